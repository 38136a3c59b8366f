"""Deep and standard research over a made-up world: what is shown, its cost, what a kill does.

    python -m benchmarks.deep [--quick | --full]

The scripted model (`model.py`) is asked the same question with `--effort deep` and `standard`, by
the command line, in a process of its own. From the server's log come the calls in sequence (the
longest chain of calls that did not overlap), the new tokens, and the longest chain of all requests
in seconds, which no client can beat. Then deep runs are killed (SIGKILL) in each phase and resumed:
which finished calls come again? `--full` kills in twelve places instead of four.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.deep.model import QUESTION
from benchmarks.loopback import started
from benchmarks.report import RESULTS, Value, emit, number, sized_parser

ROOT = Path(__file__).parent.parent.parent
JUST = 0.2
"""seconds in which a reply reaches the journal"""
SECONDS, QUICK = 1.0, 0.3
"""of a call of the model: where time is measured, and where runs are killed"""
MODULE = "benchmarks.deep.model"
LEAST = {
    "deep_facts": 56,
    "deep_facts_written_from": 54,
    "deep_words": 150_000,
    "deep_planted_marked": 1,
    "standard_facts": 30,
}
MOST = {
    "deep_new_tokens": 500_000,
    "deep_calls_in_sequence": 20,
    "deep_false_marks": 0,
    "deep_of_critical_path": 1.2,
    "standard_calls_in_sequence": 8,
    "killed_lost": 0,
    "killed_paid_twice": 0,
}


class Request(NamedTuple):
    kind: str
    begin: float
    end: float
    read: int
    new: int
    written: int
    asked: str

    @property
    def calls_model(self) -> bool:
        return self.kind not in ("search", "page")


class Server:
    """The scripted model, in a process of its own."""

    def __init__(self, root: str) -> None:
        self.root = root

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.root}/{path}") as reply:
            return json.load(reply)

    def log(self) -> list[Request]:
        return [Request(*entry) for entry in self.get("log")["log"]]


@contextmanager
def serving(seconds: float, module: str = MODULE) -> Iterator[Server]:
    with started(module, "--seconds", seconds) as (root,):
        yield Server(root)


Begin = Callable[[Server, Path], "subprocess.Popen[str]"]
"""asks the question at a server, and may write into a folder"""


def asking(server: Server, folder: Path, *more: str) -> subprocess.Popen[str]:
    address = server.root.removeprefix("http://")
    command = [sys.executable, "-m", "rubricem", "ask", "--json", *more]
    if "--resume" not in more:
        command += [QUESTION, "--source", f"searxng:{server.root}"]
        command += ["--base-url", f"{server.root}/v1", "--model", "loopback"]
    elsewhere = {
        "RUBRICEM_DATA_DIR": str(folder),
        "RUBRICEM_WEIGHTS_DIR": str(folder / "none"),  # by words alone
        "RUBRICEM_ALLOW_HOSTS": address,
        "RUBRICEM_BASE_URL": f"{server.root}/v1",
    }
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **elsewhere},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def longest(requests: Sequence[Request], *, seconds: bool) -> float:
    """The longest chain of requests of which none began before the one before it had ended.

    Its number of requests, or what it took in `seconds`.
    """
    ordered = sorted(requests, key=lambda request: request.end)
    ends = [request.end for request in ordered]
    best = [0.0]
    for request in ordered:
        before = best[bisect_right(ends, request.begin, hi=len(best) - 1)]
        own = request.end - request.begin if seconds else 1.0
        best.append(max(best[-1], before + own))
    return best[-1]


def costs(log: Sequence[Request], shown: Mapping[str, Any]) -> dict[str, Value]:
    """What was shown, and what that took."""
    calls = [request for request in log if request.calls_model]
    return {
        "facts": shown["all"]["facts"],
        "facts_written_from": shown["section"]["facts"],
        "words": shown["all"]["words"],
        "new_tokens": sum(request.new + request.written for request in calls),
        "calls": len(calls),
        "calls_in_sequence": int(longest(calls, seconds=False)),
        "searches": sum(request.kind == "search" for request in log),
        "pages": sum(request.kind == "page" for request in log),
    }


def ours(server: Server, folder: Path) -> "subprocess.Popen[str]":
    return asking(server, folder, "--effort", "deep", "--run", "r")


def resumed(server: Server, folder: Path) -> "subprocess.Popen[str]":
    return asking(server, folder, "--resume", "r")


def measure(effort: str, seconds: float) -> tuple[dict[str, Value], dict[str, Any]]:
    """One question: what was shown, what it cost; with its report."""
    with serving(seconds) as server, tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.monotonic()
        with asking(server, Path(folder), "--effort", effort, "--run", "r") as process:
            said, _ = process.communicate()
        took = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        log, shown, report = server.log(), server.get("shown"), json.loads(said)
    calls = [request for request in log if request.calls_model]
    path = longest(log, seconds=True)
    begun = min(request.begin for request in log)
    ended = max(request.end for request in log)
    sure = ("supported", "partial")
    doubted = [c for c in report["citations"] if c["support"]["verdict"] not in sure]
    planted = [c for c in doubted if c["claim"].startswith("The Arden line is")]
    values: dict[str, Value] = costs(log, shown) | {
        "tokens": sum(request.read + request.written for request in calls),
        "report_characters": len(report["answer"]),
        "planted_marked": len(planted),
        "false_marks": len(doubted) - len(planted),
        "seconds": round(took, 2),
        "of_critical_path": round((ended - begun) / path, 3),
        "cpu_ms_a_call": round(
            1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            / max(len(calls), 1), 1,
        ),
    }  # fmt: skip
    by_kind = Counter[str]()
    for request in calls:
        by_kind[f"tokens_{request.kind}"] += request.new + request.written
    return {**values, **by_kind}, report


def kill(begin: Begin, again: Begin, at: int, module: str = MODULE) -> tuple[int, str, int]:
    """Of a run that was killed once so many calls had ended and begun again: how it ended, what it
    said, and how many of the finished calls came again.
    """
    with serving(QUICK, module) as server, tempfile.TemporaryDirectory() as folder:
        with begin(server, Path(folder)) as process:
            while process.poll() is None:
                if sum(request.calls_model for request in server.log()) >= at:
                    break
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
            killed = time.monotonic()
        time.sleep(2 * QUICK)  # what was in flight ends at the server
        # What the server had only just said may not have been read, and was never acknowledged.
        heard = Counter(r.asked for r in server.log() if r.calls_model and r.end < killed - JUST)
        with again(server, Path(folder)) as process:
            said, _ = process.communicate()
        asked = Counter(r.asked for r in server.log() if r.calls_model)
    return process.returncode, said, sum(asked[each] > count for each, count in heard.items())


def main() -> None:
    parser = sized_parser(__doc__, "kills in four places", "kills in twelve places")
    options = parser.parse_args()
    values: dict[str, Value] = {}
    for effort in ("deep", "standard"):
        found, _ = measure(effort, SECONDS)
        values |= {f"{effort}_{name}": value for name, value in found.items()}
        print(json.dumps({effort: found}), flush=True)
    total = int(number(values, "deep_calls"))
    places = 12 if options.full else 4
    at = [max(round(total * (n + 0.5) / places), 1) for n in range(places)]
    killed = [kill(ours, resumed, each) for each in at]
    values["kills"] = len(killed)
    values["killed_lost"] = sum(bool(e or not json.loads(s)["answer"]) for e, s, _ in killed)
    values["killed_paid_twice"] = sum(twice for *_, twice in killed)
    how = f"scripted model, {SECONDS:g} s a call, on {os.cpu_count()} cores"
    out = RESULTS / "deep.json" if options.full else None
    emit("deep", values, how, out, least=LEAST, most=MOST)


if __name__ == "__main__":
    main()
