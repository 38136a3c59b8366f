"""Processes that are killed on the way and go on: the forks, the moments, and what is left.

A program of this folder is run as a process of its own by `ran`, and kills forks of itself. What
collects or trains is killed at one of the moments at which it opens or renames a file or calls a
model; calls that were answered are noted, so that a test can count those that were made twice.
"""

import gc
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conftest import ENVIRONMENT, ROOT

CALLS, KILLS, MOMENTS = "calls.log", "kills.log", "moments"


def ran(program: str, *arguments: object, seconds: float | None = None) -> str:
    """What the program printed. Raises TimeoutExpired where it was killed after so long."""
    command = [sys.executable, "-m", f"tests.programs.{program}", *map(str, arguments)]
    environment = {**ENVIRONMENT, "HOME": os.environ["HOME"]}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Killed:
    """What is left of a run that was killed and went on until its end."""

    folder: Path
    told: str
    """the seed, for whoever is to see it again"""

    @property
    def kills(self) -> int:
        log = self.folder / KILLS
        return len(log.read_text().splitlines()) if log.exists() else 0

    @property
    def repeated(self) -> int:
        """Calls that were answered more often than once."""
        calls = Counter((self.folder / CALLS).read_text().splitlines())
        return calls.total() - len(calls)


def killed_runs(
    program: str, folder: Path, runs: int, seed: int | None = None
) -> tuple[Path, list[Killed]]:
    """The folder of a run that nobody killed, and others, each killed until it got through."""
    seed = random.randrange(2**32) if seed is None else seed
    *words, module = program.split()[::-1]
    ran(module, *words[::-1], folder, seed, runs)
    killed = [folder / f"killed{number}" for number in range(runs)]
    found = [Killed(one, f"with the seed {seed}, {one.name}") for one in killed]
    assert sum(one.kills for one in found) >= runs - 1, "nothing was killed"
    return folder / "whole", found


def forked(work: Callable[[], None]) -> int:
    """The process that does the work; it ends with 1 where that raises, and says what."""
    if not (child := os.fork()):
        try:
            work()
        finally:
            if sys.exc_info()[0] is not None:
                sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
            os._exit(sys.exc_info()[0] is not None)
    return child


def ended_well(child: int) -> bool:
    return os.waitpid(child, 0)[1] == 0


def note(log: Path, line: str) -> None:
    with log.open("a") as file:
        file.write(line.replace("\n", " ") + "\n")


class Moments:
    """Counts the moments of a process and kills it at one of them."""

    def __init__(self, last: int | None) -> None:
        self.count = 0
        self.last = last

    def pass_one(self, *event: object) -> bool:
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        return False


def kill_at_moments(
    work: Callable[[Path, Moments], None], folder: Path, seed: int, runs: int
) -> None:
    """Do the work once in FOLDER/whole, then so often in FOLDER/killedN, killed until it ends."""

    def attempt(at: Path, last: int | None) -> bool:
        moments = Moments(last)

        def heard(event: str, args: tuple[object, ...]) -> None:
            if event in ("open", "os.rename") and str(args[0]).startswith(str(at)):
                moments.pass_one()

        def do() -> None:
            sys.addaudithook(heard)
            work(at, moments)
            (at / MOMENTS).write_text(str(moments.count))

        at.mkdir(parents=True, exist_ok=True)
        return ended_well(forked(do))

    with TemporaryDirectory() as warm:  # what the work imports, once, and not in each fork
        work(Path(warm), Moments(None))
    gc.freeze()
    if not attempt(folder / "whole", None):
        raise SystemExit("the uninterrupted run failed")
    moments, draw = int((folder / "whole" / MOMENTS).read_text()), random.Random(seed)
    for number in range(runs):
        killed = folder / f"killed{number}"
        while not attempt(killed, draw.randrange(1, moments)):
            note(killed / KILLS, "killed")
