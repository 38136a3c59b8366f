"""Rounds under torchrun: two processes train what one does, and what ends one of them.

By the command, on a loopback server: the first process has the rounds, the other follows.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from benchmarks.rounds_server import serving
from rubricem.memory.errors import PolicyError, SettingsError, StoreError
from rubricem.training.local.checkpoints import TrainingFolder, read_weights
from rubricem.training.local.ranks import Ranks
from rubricem.training.local.session import open_session
from rubricem.training.rounds.update import END, RoundFolders, SessionUpdates
from tests.conftest import COMMAND, ENVIRONMENT, ROOT
from tests.support.rows import config_of, policy_rows, quiet
from tests.support.waiting import wait_for
from tests.training.rounds.test_rounds import calls, metrics, on_server, train

pytestmark = pytest.mark.usefixtures("one_thread")
NAMED = "tr -dc '[:alnum:]:' < {checkpoint}/checkpoint.json | grep -o 'step:[0-9]*'"
"""by its step and not by its bytes: rounding must not change what is sampled"""
SHAPE: dict[str, Any] = {
    "rounds": 3, "reflections": 0, "held_out_every": 3, "refresh": ["sh", "-c", NAMED],
}  # fmt: skip
T = TypeVar("T")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(0.02) as address:
        yield address


@contextmanager
def torchrun(*command: str) -> Iterator["subprocess.Popen[str]"]:
    """Two processes of a command, each with one thread."""
    environment = {**ENVIRONMENT, "HOME": os.environ["HOME"], "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": str(ROOT)}  # fmt: skip
    launch = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    with subprocess.Popen(
        (*launch, "--no-python", *command), cwd=ROOT, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()


def worker(launcher: int, rank: int) -> int:
    """The process of a rank."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    told = {pid: Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") for pid in children}
    return next(int(pid) for pid, values in told.items() if f"RANK={rank}".encode() in values)


def weights(out: Path) -> dict[str, Any]:
    return read_weights(TrainingFolder(out).newest, "lora")


def furthest(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, server: str) -> Path:
    """The folder of one process's rounds."""
    folder = tmp_path_factory.mktemp("alone")
    done = train(on_server(folder, server, **SHAPE))
    assert done.exit_code == 0, done.output
    return folder / "out"


@pytest.mark.slow
def test_two_processes_train_the_weights_of_one(tmp_path: Path, server: str, alone: Path):
    asked = calls(server)
    path = on_server(tmp_path, server, **SHAPE)
    with torchrun(*COMMAND, "train", "ss-grpo", str(path), "parallel=fsdp", "--json") as process:
        said = process.communicate(timeout=600)[0]
    assert process.returncode == 0, said
    assert said.count('"rounds": 3') == 1, "one process tells"
    out = tmp_path / "out"
    ours, theirs = weights(alone), weights(out)
    assert furthest(ours, theirs) < 1e-5 < 1e-4 < max(float(w.abs().max()) for w in theirs.values())
    for one, other in zip(metrics(alone), metrics(out), strict=True):
        assert other["rows/policy"] == one["rows/policy"]
        if one["rows/policy"]:  # replies differ with the server's port, and some not at all
            assert other["loss"] == pytest.approx(one["loss"], abs=1e-5)
            assert other["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-4)
    assert sum(one["rows/policy"] for one in metrics(alone)) > 0
    assert calls(server) == 2 * asked, "no call is made by the process that follows"


@pytest.mark.slow
def test_a_process_that_dies_ends_the_round_and_one_goes_on(
    tmp_path: Path, server: str, alone: Path
):
    before = calls(server)
    path, out = on_server(tmp_path, server, **SHAPE), tmp_path / "out"
    with torchrun(*COMMAND, "train", "ss-grpo", str(path)) as process:

        def saved() -> bool:
            assert process.poll() is None, process.communicate()[0]
            told = out / "rounds.jsonl"
            return told.exists() and bool(told.read_text())

        wait_for(saved, 300)
        os.kill(worker(process.pid, rank=1), signal.SIGKILL)
        said = process.communicate(timeout=120)[0]
    assert process.returncode != 0
    told = ("Another process of the training has ended", "The training was interrupted")
    assert any(sentence in said for sentence in told), said
    assert said.count("Traceback") == 1, "only torchrun's own"
    assert 1 <= len(metrics(out)) < 3
    again = train(path)
    assert again.exit_code == 0, again.output
    assert furthest(weights(alone), weights(out)) < 1e-5
    made = calls(server) - before
    assert made <= 2 * before, "finished calls are not repeated"


@pytest.mark.slow
def test_processes_of_two_configurations_are_refused_before_anything_is_collected(
    tmp_path: Path, server: str
):
    before = calls(server)
    path = on_server(tmp_path, server, **SHAPE)
    path.with_name("rounds1.toml").write_text(path.read_text().replace("rank = 4", "rank = 8"))
    path.rename(path.with_name("rounds0.toml"))
    command = 'exec "$@" ' + f"{path.with_suffix('')}$RANK.toml"
    with torchrun("sh", "-c", command, "sh", *COMMAND, "train", "ss-grpo") as process:
        said = process.communicate(timeout=300)[0]
    assert process.returncode != 0
    assert "do not see the same rank." in said
    assert calls(server) == before and not (tmp_path / "out" / "run.json").exists()


class Second(Ranks):
    """The first of two ranks; what the other says is told before."""

    def __init__(self, says: Sequence[Any] = ()) -> None:
        super().__init__(0, 2)
        object.__setattr__(self, "says", list(says))
        object.__setattr__(self, "heard", [])

    def gather(self, value: T) -> list[T]:
        return [value, self.says.pop(0)]

    def broadcast(self, order: T | None = None) -> T:
        self.heard.append(order)
        return order  # type: ignore[return-value]

    def wait(self) -> None:
        """The other is there."""


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        ({"rows": "ab"}, {"rows": "cd"}, "do not see the same rows"),
        ({"rank": 4}, {}, "do not see the same rank"),
        ({"a": 1, "b": 2}, {"a": 2, "b": 3}, "do not see the same a, b"),
    ],
)
def test_ranks_that_see_other_things_are_told_which(
    ours: dict[str, Any], theirs: dict[str, Any], told: str
):
    with pytest.raises(SettingsError, match=told):
        Second([theirs]).check_alike(ours)
    Second([ours]).check_alike(ours)


async def test_a_folder_that_is_gone_ends_all_processes_by_one_error(tiny: Path, tmp_path: Path):
    """A full disk, or a share that went away: the first process writes, and all are told."""
    config = config_of(tmp_path, tiny, policy_rows(4))
    async with open_session(config, "ss-grpo", quiet) as session:
        updates = SessionUpdates(session, RoundFolders(config.out, tmp_path), 3)
        found = updates.update(policy_rows(4))
        (config.out / "checkpoints").write_text("in the way")
        session.ranks = Second()
        with pytest.raises(StoreError) as told:
            updates.save({"round": 1.0, **found})
        orders = session.ranks.heard
        assert orders[0][0] == "save" and orders[1] is told.value
        updates.dismiss(told.value)
        assert len(orders) == 2, "what fails on all has ended the others already"
    assert updates.done == 0


@pytest.mark.parametrize(
    ("error", "heard"),
    [(None, None), (PolicyError("The server is away."), "server is away"), (KeyError("x"), "Key")],
)
async def test_the_others_end_as_the_first_process_does(
    error: Exception | None, heard: str | None, tiny: Path, tmp_path: Path
):
    config = config_of(tmp_path, tiny, policy_rows(4))
    async with open_session(config, "ss-grpo", quiet) as session:
        updates = SessionUpdates(session, RoundFolders(config.out, tmp_path), 3)
        session.ranks = Second()
        updates.dismiss(error)
        updates.dismiss(error)
        ((order, (done, said)),) = session.ranks.heard
        assert (order, done) == (END, 0) and (said is None) == (error is None)
        assert heard is None or heard in str(said)
