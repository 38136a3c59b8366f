"""Ours beside a bare client that makes the same calls, and beside two peers where asked.

    python -m benchmarks.peers [--quick | --full] [--peers FOLDER [--checkout DIR]]

A server on loopback plays model (1 s a call) and search service (50 ms) and notes when each request
began and ended (`server.py`). Each participant is a process of its own (`driver.py`) on one core,
the server on another, and they take turns:

    floor                the usual clients, openai and httpx, make the calls of our question
    ours                 one open researcher for all questions, as `rubricem serve` has it
    library              each question is a `research()` of its own
    gpt_researcher       from the package index, installed in FOLDER once
    open_deep_research   from a checkout of it, installed in FOLDER once

Measured: own time of a question alone (wall less the union of its requests), CPU of the process
and all below it for each call of the model, calls, searches and tokens of a question, and of N
questions at once the share of the ideal (union of one question's requests / wall). Then one
question is killed (SIGKILL) within its third call and asked again under its name: which of the
finished calls and searches come again?
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.report import Value, emit, sized_parser

ROOT = Path(__file__).parent.parent.parent
ALONE, TOGETHER, ROUNDS = 9, (64, 256), 3
PACKAGES = {"gpt_researcher": "gpt-researcher", "open_deep_research": ""}
OF_FLOOR = {"own_ms": "own_of_floor"} | {
    f"cpu_ms_a_call_{count}": f"cpu_of_floor_{count}" for count in TOGETHER
}
"""measure -> the name of its quotient by the floor's"""
LIMITS = {
    "ours_cpu_of_floor_64": 2.0, "ours_cpu_of_floor_256": 2.2, "ours_own_ms": 25.0,
    "ours_own_of_floor": 2.0, "ours_repeated_after_kill": 0.0,
}  # fmt: skip
LEAST = {"ours_share_64": 0.93, "ours_share_256": 0.8, "library_share_64": 0.85}


class Request(NamedTuple):
    """One that the server answered; seconds of the machine's monotonic clock."""

    kind: str
    begin: float
    end: float
    read: int
    written: int


@dataclass(frozen=True, slots=True)
class Lot:
    """Questions asked at once, and the requests that they made."""

    count: int
    begin: float
    end: float
    cpu: float
    requests: tuple[Request, ...]

    @property
    def wall(self) -> float:
        return self.end - self.begin

    @property
    def calls(self) -> int:
        return sum(request.kind == "model" for request in self.requests)

    @property
    def union(self) -> float:
        """Seconds in which at least one request was under way."""
        total, reached = 0.0, self.begin
        for request in sorted(self.requests, key=lambda r: r.begin):
            total += max(request.end - max(request.begin, reached), 0.0)
            reached = max(reached, request.end)
        return total


@dataclass(frozen=True, slots=True)
class Round:
    """What one participant's process measured."""

    import_s: float
    alone: tuple[Lot, ...]
    together: tuple[Lot, ...]

    def values(self) -> dict[str, float]:
        one = self.alone[0]
        calls = statistics.median(lot.calls for lot in self.alone)
        own = statistics.median(lot.wall - lot.union for lot in self.alone)
        ideal = statistics.median(lot.union for lot in self.alone)
        found: dict[str, float] = {
            "import_s": self.import_s, "own_ms": own * 1e3, "own_ms_a_call": own * 1e3 / calls,
            "calls": calls, "searches": sum(r.kind == "search" for r in one.requests),
            "tokens_read": sum(r.read for r in one.requests),
            "tokens_written": sum(r.written for r in one.requests),
        }  # fmt: skip
        for lot in self.together:
            found[f"cpu_ms_a_call_{lot.count}"] = lot.cpu / lot.calls * 1e3
            found[f"share_{lot.count}"] = ideal / lot.wall
        return found


def spread(rounds: Sequence[Round]) -> dict[str, float]:
    """The median of each value over the rounds."""
    each = [one.values() for one in rounds]
    return {name: statistics.median(values[name] for values in each) for name in each[0]}


@contextmanager
def serving(core: int, seconds: float = 1.0) -> Iterator[str]:
    """The scripted server on a core; gives its address, without a path."""
    command = [sys.executable, "-m", "benchmarks.peers.server", "--seconds", str(seconds)]
    with on(core):
        server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.terminate()


@contextmanager
def on(core: int) -> Iterator[None]:
    """Processes that are begun meanwhile run on one core, where the system can be told so."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def fetch_log(address: str) -> list[Request]:
    with urllib.request.urlopen(f"{address}/log") as reply:
        return [Request(*row) for row in json.load(reply)["log"]]


@dataclass(frozen=True, slots=True)
class Participant:
    name: str
    python: str
    core: int

    @contextmanager
    def begin(self, address: str, data: Path, *more: str) -> "Iterator[subprocess.Popen[str]]":
        driver = Path(__file__).with_name("driver.py")
        command = [self.python, "-P", str(driver), self.name, address, str(data), *more]
        with on(self.core):
            process = subprocess.Popen(command, cwd=data, stdout=subprocess.PIPE, text=True)
        with process:
            try:
                yield process
            finally:
                process.kill()

    def ask(self, address: str, data: Path, *more: str) -> dict[str, Any]:
        """Raises RuntimeError where the participant failed; what it said stands above."""
        with self.begin(address, data, *more) as process:
            said, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{self.name} ended with status {process.returncode}")
        told: dict[str, Any] = json.loads(said.splitlines()[-1])
        return told

    def round(self, address: str, data: Path, together: Sequence[int]) -> Round:
        lots = [str(count) for count in together]
        told = self.ask(address, data, "--alone", str(ALONE), "--together", *lots)
        log = fetch_log(address)

        def read(lot: dict[str, Any]) -> Lot:
            made = tuple(r for r in log if lot["begin"] <= r.begin and r.end <= lot["end"] + 1)
            return Lot(**lot, requests=made)

        return Round(told["import_s"], *(tuple(map(read, told[w])) for w in ("alone", "together")))

    def measure_kill(self, address: str, data: Path) -> dict[str, float]:
        """Finished requests of a killed question, and how many of them were made again."""
        named, before = ("--run", "killed"), len(fetch_log(address))
        whole = self.ask(address, data, "--run", "whole")
        assert whole
        needed = len(worth(fetch_log(address)[before:]))
        before = len(fetch_log(address))
        with self.begin(address, data, *named) as process:
            while sum(r.kind == "model" for r in fetch_log(address)[before:]) < 2:
                if process.poll() is not None:
                    raise RuntimeError(f"{self.name} ended before it was killed")
                time.sleep(0.05)
            time.sleep(0.5)
            process.send_signal(signal.SIGKILL)
            process.wait()
        finished = len(worth(fetch_log(address)[before:]))
        time.sleep(1.5)  # what was in flight ends at the server
        before = len(fetch_log(address))
        self.ask(address, data, *named)
        again = len(worth(fetch_log(address)[before:])) - (needed - finished)
        return {"finished_at_kill": finished, "repeated_after_kill": max(again, 0)}


def worth(requests: Sequence[Request]) -> list[Request]:
    return [request for request in requests if request.kind in ("model", "search")]


def environment(folder: Path, name: str, source: str) -> str:
    """The Python of a peer's own environment, made where it is missing."""
    place = folder / name
    python = place / "bin" / "python"
    if not (place / "installed").exists():
        print(f"installing {source} into {place}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--no-input", source]
        subprocess.run(pip, check=True)
        (place / "installed").touch()
    return str(python)


def main() -> None:
    parser = sized_parser(__doc__, "one round (default)", f"{ROUNDS} rounds")
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="also peers, installed there")
    parser.add_argument("--checkout", type=Path, help="of open_deep_research; else it is left out")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    pythons = dict.fromkeys(("floor", "ours", "library"), sys.executable)
    if options.peers:
        wanted = PACKAGES | {"open_deep_research": str(options.checkout or "")}
        folder = options.peers.resolve()
        pythons |= {n: environment(folder, n, source) for n, source in wanted.items() if source}
    taking = [Participant(name, python, cores[0]) for name, python in pythons.items()]
    rounds = ROUNDS if options.full else 1
    with tempfile.TemporaryDirectory() as data, serving(cores[-1]) as address:
        values = measure(taking, address, Path(data), rounds)
    targets = {name: f"<= {most:g}" for name, most in LIMITS.items()}
    targets |= {name: f">= {least:g}" for name, least in LEAST.items()}
    how = (
        f"{rounds} rounds in turns, participants on core {cores[0]} and the server on {cores[-1]}; "
        f"{ALONE} questions alone, then {TOGETHER} at once (peers {TOGETHER[0]}); medians; load "
        f"{os.getloadavg()[0]:.1f} at the end on {os.cpu_count()} cores"
    )
    emit("peers", values, targets, holds(values), how)


def measure(
    taking: Sequence[Participant], address: str, data: Path, rounds: int
) -> dict[str, Value]:
    found: dict[str, list[Round]] = {each.name: [] for each in taking}
    values: dict[str, Value] = {}
    for number in range(rounds):
        for each in taking:
            folder = data / f"{each.name}{number}"
            folder.mkdir()
            lots = TOGETHER[: 1 if each.name in PACKAGES else None]
            found[each.name].append(each.round(address, folder, lots))
            print(f"{each.name}: {round_all(found[each.name][-1].values())}", flush=True)
    for each in taking:
        folder = data / f"{each.name}_killed"
        folder.mkdir()
        own = spread(found[each.name]) | each.measure_kill(address, folder)
        values |= {f"{each.name}_{name}": value for name, value in round_all(own).items()}
    for measure, share in OF_FLOOR.items():
        floor = number_of(values[f"floor_{measure}"])
        for name in ("ours", "library"):
            of_floor = number_of(values[f"{name}_{measure}"]) / floor
            values[f"{name}_{share}"] = round(of_floor, 3)
    return values


def round_all(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in values.items()}


def holds(values: dict[str, Value]) -> bool:
    most = all(number_of(values[name]) <= limit for name, limit in LIMITS.items())
    return most and all(number_of(values[name]) >= limit for name, limit in LEAST.items())


def number_of(value: Value) -> float:
    assert isinstance(value, int | float)
    return value


if __name__ == "__main__":
    main()
