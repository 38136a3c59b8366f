"""Runs killed with SIGKILL at random, by kind: how many stood it, what was lost or paid twice.

    python -m benchmarks.faults [--quick | --full] [--kinds ask,collect,bank,train] [--out FILE]

ask: `rubricem ask` at points over its whole run, the end of each call among them; then `--resume`.
collect: `rubricem collect` after a piece drawn at random; then the same command. bank: forks that
put, edit, remove, search and copy, each looked after by another fork (`tests.programs.bank_killed`,
which ends where anything was lost or came back). train: `rubricem train` on a tiny model, killed
at a random time after a step, so often; its adapter is compared with that of an undisturbed one.

A kill is survived where the run went on to its end; of collecting and training, to the same end.
Paid twice are calls that had finished, by the journal, and that the server was asked for again.
"""

import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.faults import asking, collecting
from benchmarks.report import RESULTS, emit, sized_parser
from tests.programs.killing import ran
from tests.support.rows import policy_rows, written
from tests.support.tiny import write_tiny

QUICK: Mapping[str, int] = {"ask": 2, "collect": 1, "bank": 4, "train": 2}
FULL: Mapping[str, int] = {"ask": 20, "collect": 8, "bank": 40, "train": 9}
"""kills"""
SEED = 0
JITTER = 0.2
"""seconds that a training may be killed after a step: into the next one, or its checkpoint"""


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


def ask(kills: int) -> Stood:
    drawn = random.Random(SEED)
    points = asking.points(max(kills, asking.CALLS + 1))[-kills:]
    trials = [asking.trial(at, drawn.uniform(0, asking.JITTER)) for at in points]
    return Stood(
        len(trials),
        sum(one.finished for one in trials),
        sum(one.repeated for one in trials),
        in_flight=sum(one.in_flight for one in trials),
    )


def collect(kills: int) -> Stood:
    total, whole = collecting.run_undisturbed()
    drawn, trials = random.Random(SEED), []
    for _ in range(kills):
        at = drawn.randrange(1, total["pieces"])
        trials.append(collecting.trial(at, drawn.uniform(0, collecting.JITTER), total, whole))
    wanted = collecting.GROUP * len(collecting.QUESTIONS)
    return Stood(
        len(trials),
        sum(one.same for one in trials),
        sum(one.repeated for one in trials),
        sum(wanted - one.finished for one in trials),
        sum(one.in_flight for one in trials),
    )


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
        ends = [_train(places[1], drawn.uniform(0, JITTER)) for _ in range(kills)]
        killed, well = ends.count(-signal.SIGKILL), {0, -signal.SIGKILL}
        ended, whole = map(_train, reversed(places))
        ours, theirs = ((each / "last" / "adapter_model.safetensors") for each in places)
        same = {whole, ended} == {0} and well >= {*ends}
        same = same and ours.read_bytes() == theirs.read_bytes()
    return Stood(killed, killed if same else 0, lost=int(not same))


def _train(folder: Path, wait: float | None = None) -> int:
    """The status of `rubricem train`, which is killed so many seconds after its next step."""
    before = _steps(folder)
    command = [*asking.COMMAND, "train", "ss-grpo", str(folder.with_suffix(".toml"))]
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
