"""How many threads the embedded model should have.

llama.cpp's threads wait for one another at every layer. Beside another busy process two threads
on two cores were measured at a third of the speed of one (7 against 17 tokens/s with the 0.5B),
so cores that others keep busy are not counted.
"""

import os
import time
from pathlib import Path

_STAT = Path("/proc/stat")
_SIBLINGS = Path("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
_IDLE = (3, 4)
"""columns of /proc/stat that are no work: idle, and waiting for a disk"""


def free_cores(seconds: float = 0.3) -> int:
    """Physical cores that no other process used during a look of so many seconds; at least 1."""
    cores = physical_cores()
    if not _STAT.exists():
        return cores
    busy, own = _busy_seconds(), time.process_time()
    time.sleep(seconds)
    others = (_busy_seconds() - busy - (time.process_time() - own)) / seconds
    return max(1, cores - round(max(others, 0.0)))


def physical_cores() -> int:
    """Cores this process may use, those with two hardware threads counted once."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    usable: int = len(affinity(0)) if affinity else os.cpu_count() or 1
    shared = _SIBLINGS.exists() and len(_SIBLINGS.read_text().replace("-", ",").split(",")) > 1
    return max(1, usable // (2 if shared and usable > 2 else 1))


def _busy_seconds() -> float:
    """Processor seconds that all processes together have used since the system started."""
    columns = [int(ticks) for ticks in _STAT.read_text().splitlines()[0].split()[1:9]]
    busy = sum(ticks for column, ticks in enumerate(columns) if column not in _IDLE)
    return busy / os.sysconf("SC_CLK_TCK")
