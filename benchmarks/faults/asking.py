"""A question killed at points over its run and resumed: is any finished call made again?

`rubricem ask` runs as a process against a loopback server that is both its model (three turns
and the check of the answer's citation, in 20 pieces each) and its SearXNG, and counts every
request. The process is killed (SIGKILL)
when the server has sent the k-th piece, at points spread over the whole run, those at the end
of each turn among them; then `rubricem ask --resume` goes on. A call is finished when its
reply is in the journal. Calls after the kill, as the server counts them, beyond those that were
not finished yet, are finished calls that were repeated. A call in flight at the kill is made
again: that is no repetition, and is counted beside it.
"""

import json
import os
import signal
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
    """One kill: what the server and the journal had by then, and what the resume asked for."""

    turns_kept: int
    searches_kept: int
    turns_after: int
    searches_after: int
    in_flight: int
    finished: bool

    @property
    def repeated(self) -> int:
        turns = self.turns_after - (CALLS - self.turns_kept)
        searches = self.searches_after - (SEARCHES - self.searches_kept)
        return max(turns, 0) + max(searches, 0)


def points(count: int) -> list[int]:
    """Numbers of pieces after which to kill, from the first to the last of the run."""
    spread = {1 + round(i * (PIECES - 1) / (count - 1)) for i in range(count)}
    ends = [PIECES // CALLS * (call + 1) for call in range(CALLS)]
    kept = sorted(spread, key=lambda at: min(abs(at - end) for end in ends), reverse=True)
    return sorted({*kept[: count - len(ends)], *ends})[:count]


def counts(address: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{address.removesuffix('/v1')}/count") as reply:
        counted: dict[str, int] = json.load(reply)
    return counted


def settled(address: str) -> dict[str, int]:
    """The counts once nothing more comes of a client that is gone: it may just have asked."""
    before = counts(address)
    while True:
        time.sleep(DELAY)
        if (now := counts(address)) == before:
            return now
        before = now


def kept(folder: Path) -> Counter[str]:
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
        where = ("Which rule?", "--base-url", address, "--source", searxng, "--thread", "t")
        begun = subprocess.Popen([*COMMAND, "ask", *where, "--quiet"], env=environment,
                                 stdout=subprocess.DEVNULL)  # fmt: skip
        wait_for(address, at, begun)
        time.sleep(wait)
        begun.send_signal(signal.SIGKILL)
        begun.wait()
        before, held = settled(address), kept(data / "runs" / "t")
        resume = [*COMMAND, "ask", "--resume", "t", "--json"]
        done = subprocess.run(resume, env=environment, capture_output=True, text=True, check=False)
        after = counts(address)
        return Trial(
            turns_kept=held["calls"],
            searches_kept=held["searches"],
            turns_after=after["calls"] - before["calls"],
            searches_after=after["searches"] - before["searches"],
            in_flight=before["calls"] - held["calls"],
            finished=done.returncode == 0 and finished(json.loads(done.stdout)),
        )


def finished(report: Mapping[str, Any]) -> bool:
    return bool(report["status"] == "finished" and report["usage"]["calls"] == CALLS)


def wait_for(address: str, pieces: int, process: "subprocess.Popen[bytes]") -> None:
    while counts(address)["pieces"] < pieces:
        if process.poll() is not None:
            raise RuntimeError(f"the process ended by itself with status {process.returncode}")
        time.sleep(0.002)
