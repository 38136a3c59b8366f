"""A question killed at points over its run and resumed: is any finished call made again?

`rubricem ask` runs as a process against a loopback server that is both its model (three turns
and the check of the answer's citation, in 20 pieces each) and its SearXNG, and counts every
request. The process is killed (SIGKILL)
when the server has sent the k-th piece, at points spread over the whole run, those at the end
of each turn among them; then `rubricem ask --resume` goes on. A call is finished when its
reply is in the journal. As calls are made one after another, those that are kept are the first
that the server was asked for; it tells them apart by their bodies, and each that it is asked for
again after the kill is repeated. A call in flight at the kill is made again: that is no
repetition, whenever it reached the server, and is counted beside it.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.loopback import TURNS, serving

CHUNKS, DELAY = 20, 0.4
CALLS = len(TURNS) + 1
"""of the model: its turns, and one that checks the answer"""
PIECES = CALLS * (CHUNKS + 1)
"""each call's end is a piece, too"""
SEARCHES = 2
JITTER = DELAY / CHUNKS
"""seconds that a kill may come after its piece: into the time when a reply is being kept"""
COMMAND = (sys.executable, "-c", "from rubricem.agent.cli import main; main(prog_name='rubricem')")


@dataclass(frozen=True, slots=True)
class Trial:
    """One kill: how many finished calls and searches were repeated, how many others broken off."""

    repeated: int
    in_flight: int
    finished: bool


Asked = Mapping[str, Mapping[str, int]]
"""by kind: how often each was asked for, in the order in which they first were"""


def repetitions(kept: Mapping[str, int], before: Asked, after: Asked) -> int:
    """How often what is kept, so many of each kind, was asked for again between two looks.

    More than a run has are repetitions in other words.
    """
    first = ((kind, one) for kind in before for one in list(before[kind])[: kept[kind]])
    other = max(len(after["calls"]) - CALLS, 0) + max(len(after["searches"]) - SEARCHES, 0)
    return other + sum(after[kind][one] - before[kind][one] for kind, one in first)


def points(count: int) -> list[int]:
    """Numbers of pieces after which to kill, from the first to the last of the run."""
    spread = {1 + round(i * (PIECES - 1) / (count - 1)) for i in range(count)}
    ends = [PIECES // CALLS * (call + 1) for call in range(CALLS)]
    kept = sorted(spread, key=lambda at: min(abs(at - end) for end in ends), reverse=True)
    return sorted({*kept[: count - len(ends)], *ends})[:count]


def fetch(address: str, what: str) -> Any:
    with urllib.request.urlopen(f"{address.removesuffix('/v1')}/{what}") as reply:
        return json.load(reply)


def counts(address: str) -> dict[str, int]:
    counted: dict[str, int] = fetch(address, "count")
    return counted


def count_kept(folder: Path) -> Counter[str]:
    """How many calls of the model and searches stand in whole lines of a folder's journal."""
    path = folder / "journal.jsonl"
    lines = path.read_bytes().rpartition(b"\n")[0].splitlines() if path.exists() else []
    replies = [json.loads(line)["reply"] for line in lines]
    calls = sum("token_ids" in reply for reply in replies)
    return Counter({"calls": calls, "searches": sum("passages" in reply for reply in replies)})


def trial(at: int, wait: float) -> Trial:
    """Kill after piece `at` and a little, then go on."""
    with tempfile.TemporaryDirectory() as folder, serving(DELAY, CHUNKS) as address:
        data = Path(folder)
        environment = {**os.environ, "RUBRICEM_DATA_DIR": folder, "RUBRICEM_MEMORY": "off"}
        searxng = f"searxng:{address.removesuffix('/v1')}"
        where = ("Which rule?", "--base-url", address, "--source", searxng, "--run", "t")
        begun = subprocess.Popen([*COMMAND, "ask", *where, "--quiet"], env=environment,
                                 stdout=subprocess.DEVNULL)  # fmt: skip
        kill(begun, address, at, wait)
        before, held = fetch(address, "asked"), count_kept(data / "runs" / "t")
        resume = [*COMMAND, "ask", "--resume", "t", "--json"]
        done = subprocess.run(resume, env=environment, capture_output=True, text=True, check=False)
        return Trial(
            repeated=repetitions(held, before, fetch(address, "asked")),
            in_flight=len(before["calls"]) - held["calls"],
            finished=done.returncode == 0 and is_finished(json.loads(done.stdout)),
        )


def is_finished(report: Mapping[str, Any]) -> bool:
    return bool(report["status"] == "finished" and report["usage"]["calls"] == CALLS)


def kill(process: "subprocess.Popen[bytes]", address: str, pieces: int, wait: float) -> None:
    """Kill it so many seconds after its server has sent so many pieces."""
    while counts(address)["pieces"] < pieces:
        if process.poll() is not None:
            raise RuntimeError(f"the process ended by itself with status {process.returncode}")
        time.sleep(0.002)
    time.sleep(wait)
    process.kill()
    process.wait()
