"""Runs killed with SIGKILL at random, by kind: how many stood it, what was lost or paid twice.

    python -m benchmarks.faults [--quick | --full] [--kinds ask,collect,bank,train] [--out FILE]

ask: `rubricem ask` as a process against a loopback server that is its model (three turns and the
check of the answer's citation, in 20 pieces each) and its SearXNG, and counts every request. It is
killed when the server has sent the k-th piece, at points spread over the whole run, the end of each
call among them; then `--resume` goes on. collect: forks that collect, judge and reflect, each
killed at moments drawn at random until it gets through (`tests.programs.runs_killed`). bank: forks
that put, edit, remove, search and copy, each looked after by another fork
(`tests.programs.bank_killed`, which ends where anything was lost or came back). train: `rubricem
train` on a tiny model, killed at a random time after a step, so often; its adapter is compared with
that of an undisturbed one.

A kill is survived where the run went on to its end; of collecting and training, to the same end.
A call is finished when its reply is in the journal, and paid twice where it is asked for again
after that. As calls of `ask` are made one after another, those that are kept are the first that the
server was asked for; it tells them apart by their bodies. A call in flight at the kill is made
again: that is no repetition, whenever it reached the server, and is counted beside it.
"""

import json
import os
import random
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

from benchmarks.loopback import TURNS, serving
from benchmarks.report import RESULTS, emit, sized_parser
from tests.conftest import COMMAND
from tests.programs.killing import killed_runs, ran
from tests.programs.runs_killed import products
from tests.support.rows import policy_rows, written
from tests.support.tiny import write_tiny

QUICK: Mapping[str, int] = {"ask": 2, "collect": 1, "bank": 4, "train": 2}
FULL: Mapping[str, int] = {"ask": 20, "collect": 8, "bank": 40, "train": 9}
"""kills"""
SEED = 0
STEP_JITTER = 0.2
"""seconds that a training may be killed after a step: into the next one, or its checkpoint"""
CHUNKS, DELAY = 20, 0.4
CALLS = len(TURNS) + 1
"""of the model: its turns, and one that checks the answer"""
PIECES = CALLS * CHUNKS
SEARCHES = 2
JITTER = DELAY / CHUNKS
"""seconds that a kill may come after its piece: into the time when a reply is being kept"""


@dataclass(frozen=True, slots=True)
class Stood:
    """What came of the kills of one kind."""

    kills: int
    survived: int
    paid_twice: int = 0
    lost: int = 0
    """rollouts, lessons or steps that were told to be done, or that an undisturbed run has"""
    in_flight: int = 0
    """calls that were broken off, and made again"""


Asked = Mapping[str, Mapping[str, int]]
"""by kind: how often each was asked for, in the order in which they first were"""


def repetitions(kept: Mapping[str, int], before: Asked, after: Asked) -> int:
    """How often what is kept, so many of each kind, was asked for again between two looks.

    More than a run has are repetitions in other words.
    """
    first = ((kind, one) for kind in kept for one in list(before[kind])[: kept[kind]])
    other = max(len(after["calls"]) - CALLS, 0) + max(len(after["searches"]) - SEARCHES, 0)
    return other + sum(after[kind][one] - before[kind][one] for kind, one in first)


def points(count: int) -> list[int]:
    """Numbers of pieces after which to kill, from the first to the last of the run."""
    spread = {1 + round(i * (PIECES - 1) / (count - 1)) for i in range(count)}
    ends = [CHUNKS * (call + 1) for call in range(CALLS)]
    kept = sorted(spread, key=lambda at: min(abs(at - end) for end in ends), reverse=True)
    return sorted({*kept[: count - len(ends)], *ends})[:count]


def asked_at(address: str) -> Any:
    with urllib.request.urlopen(f"{address.removesuffix('/v1')}/asked") as reply:
        return json.load(reply)


def count_kept(folder: Path) -> Counter[str]:
    """How many calls of the model and searches stand in whole lines of a folder's journal."""
    path = folder / "journal.jsonl"
    lines = path.read_bytes().rpartition(b"\n")[0].splitlines() if path.exists() else []
    replies = [json.loads(line)["reply"] for line in lines]
    calls = sum("token_ids" in reply for reply in replies)
    return Counter({"calls": calls, "searches": sum("passages" in reply for reply in replies)})


def trial(at: int, wait: float) -> Stood:
    """Kill after piece `at` and a little, then go on."""
    with tempfile.TemporaryDirectory() as folder, serving(DELAY, CHUNKS) as address:
        environment = {**os.environ, "RUBRICEM_DATA_DIR": folder, "RUBRICEM_MEMORY": "off"}
        searxng = f"searxng:{address.removesuffix('/v1')}"
        where = ("Which rule?", "--base-url", address, "--source", searxng, "--run", "t")
        begun = subprocess.Popen([*COMMAND, "ask", *where, "--quiet"], env=environment,
                                 stdout=subprocess.DEVNULL)  # fmt: skip
        kill(begun, address, at, wait)
        before, held = asked_at(address), count_kept(Path(folder, "runs", "t"))
        resume = [*COMMAND, "ask", "--resume", "t", "--json"]
        done = subprocess.run(resume, env=environment, capture_output=True, text=True, check=False)
        report = {} if done.returncode else json.loads(done.stdout)
        whole = report.get("status") == "finished" and report["usage"]["calls"] == CALLS
        again = repetitions(held, before, asked_at(address))
        return Stood(1, int(whole), again, in_flight=len(before["calls"]) - held["calls"])


def kill(process: "subprocess.Popen[bytes]", address: str, pieces: int, wait: float) -> None:
    """Kill it so many seconds after its server has sent so many pieces."""
    while asked_at(address)["pieces"] < pieces:
        if process.poll() is not None:
            raise RuntimeError(f"the process ended by itself with status {process.returncode}")
        time.sleep(0.002)
    time.sleep(wait)
    process.kill()
    process.wait()


def ask(kills: int) -> Stood:
    drawn = random.Random(SEED)
    at = points(max(kills, CALLS + 1))[-kills:]
    trials = [astuple(trial(each, drawn.uniform(0, JITTER))) for each in at]
    return Stood(*map(sum, zip(*trials, strict=True)))


def collect(kills: int) -> Stood:
    with tempfile.TemporaryDirectory() as folder:
        whole, runs = killed_runs("runs_killed collect", Path(folder), kills, SEED)
        left = products(whole)
        other = sum(products(one.folder) != left for one in runs)
        # One thing is done at a time, so that a kill breaks off one call at most.
        twice = sum(max(one.repeated - one.kills, 0) for one in runs)
        in_flight = sum(min(one.repeated, one.kills) for one in runs)
    return Stood(kills, kills - other, twice, other, in_flight)


def bank(kills: int) -> Stood:
    with tempfile.TemporaryDirectory() as folder:
        try:
            ran("bank_killed", "writers", folder, SEED, kills)
        except AssertionError as lost:
            print(lost, flush=True)
            return Stood(kills, 0, lost=1)
    return Stood(kills, kills)


def train(kills: int) -> Stood:
    drawn = random.Random(SEED)
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        written(at / "rows.jsonl", policy_rows(8))
        tiny = write_tiny(at / "tiny.gguf")
        shape = {"model": str(tiny), "batch": 1, "epochs": 8, "rank": 4, "alpha": 8.0}
        settings = {"rows": [str(at / "rows.jsonl")], "dtype": "float32", **shape}
        places = [at / "whole", at / "killed"]
        for place in places:
            lines = {"out": str(place), **settings}.items()
            text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in lines)
            place.with_suffix(".toml").write_text(text, encoding="utf-8")
        # It goes on from its last step, so that each kill falls into a later one.
        ends = [_train(places[1], drawn.uniform(0, STEP_JITTER)) for _ in range(kills)]
        killed, well = ends.count(-signal.SIGKILL), {0, -signal.SIGKILL}
        ended, whole = map(_train, reversed(places))
        ours, theirs = ((each / "last" / "adapter_model.safetensors") for each in places)
        same = {whole, ended} == {0} and well >= {*ends}
        same = same and ours.read_bytes() == theirs.read_bytes()
    return Stood(killed, killed if same else 0, lost=int(not same))


def _train(folder: Path, wait: float | None = None) -> int:
    """The status of `rubricem train`, which is killed so many seconds after its next step."""
    before = _steps(folder)
    command = [*COMMAND, "train", "ss-grpo", str(folder.with_suffix(".toml"))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while wait is not None and process.poll() is None:
        if _steps(folder) > before:
            time.sleep(wait)
            process.kill()
        time.sleep(0.002)
    return process.wait()


def _steps(folder: Path) -> int:
    """How many steps a training has written down."""
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


KINDS: Mapping[str, Callable[[int], Stood]] = {
    "ask": ask,
    "collect": collect,
    "bank": bank,
    "train": train,
}


def main() -> None:
    parser = sized_parser(__doc__, "some kills (the default)", "many; the file is committed")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of runs, with commas between")
    parser.add_argument("--out", type=Path, help="a file for what was measured")
    chosen = parser.parse_args()
    kills = FULL if chosen.full else QUICK
    stood: dict[str, Stood] = {}
    for kind in chosen.kinds.split(","):
        stood[kind] = KINDS[kind](kills[kind])
        print(kind, stood[kind], flush=True)
    values = {
        f"{kind}_{name}": value for kind in stood for name, value in asdict(stood[kind]).items()
    }
    least = {f"{kind}_survived": one.kills for kind, one in stood.items()}
    most = {f"{kind}_{name}": 0 for kind in stood for name in ("paid_twice", "lost")}
    how = (
        f"SIGKILL, seed {SEED}; models, judge and SearXNG on loopback count; "
        f"{os.cpu_count()} cores, a load of {os.getloadavg()[0]:.0f} at the end"
    )
    out = chosen.out or (RESULTS / "faults.json" if chosen.full else None)
    emit("faults", values, how, out, least=least, most=most)


if __name__ == "__main__":
    main()
