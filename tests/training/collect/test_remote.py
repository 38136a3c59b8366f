"""`rubricem collect --engine ray` on a real Ray of this machine, one of its workers killed.

Rollouts in other processes: as in one process, whoever of them dies; workers without Ray.
"""

import asyncio
import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from rubricem.agent.cli import main
from rubricem.agent.research.recall import Recall
from rubricem.agent.transcript.question import Ask
from rubricem.judge.build import Wanted
from rubricem.memory.errors import PolicyError, SettingsError, StoreError, install_of
from rubricem.memory.schema import Completion, Recollection, Trajectory, Usage
from rubricem.training.collect.collector import Judging
from rubricem.training.collect.directory import RunDirectory, RunTally
from rubricem.training.collect.gate import GatedPolicy, RunStopped
from rubricem.training.collect.remote import (
    _LOCAL,
    Begin,
    LineJournal,
    RayOptions,
    RemoteRollouts,
    RolloutWorker,
    WorkerLost,
    _RayWorker,
    _rest,
    connect,
)
from tests.conftest import ENVIRONMENT, ROOT
from tests.support.collected import Failing, Opened, Remote, left, remote, two_turns
from tests.support.judges import ScriptedChat
from tests.support.policies import ScriptedPolicy, answer, plan
from tests.support.scripted_server import ScriptedServer
from tests.support.waiting import PATIENCE, PROC, Process, descendants, listening, name_of, wait_for
from tests.training.cli.test_collect import COMMAND, PROPOSAL, REFLECTION, scripted
from tests.training.collect.test_gate import PATIENT, WRITES, Unsteady, away, collector_of

KEY = "sk-4f1d-nobody-else-may-read-this"
GROUP = 4
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
TIMES = {"id", "started_at", "seconds", "spent"}


class Holding:
    """A model that answers the second turn of a rollout when it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.held = 0
        self._lock = threading.Lock()

    def __call__(self, body: dict[str, Any], number: int) -> str:
        if "tool_output" not in body["messages"][-1]["content"]:
            return plan()
        with self._lock:
            self.held += 1
        assert self.let_go.wait(600)
        return answer(f'It is <cite id="S1">answer {body["seed"]}</cite>.')


def arguments(folder: Path, server: ScriptedServer, engine: str) -> list[str]:
    named = [str(folder / "questions.txt"), "--out", str(folder / engine), "--judge", "none"]
    where = ["--base-url", server.base_url, "--source", str(folder / "documents")]
    # So many places that each of two workers gets half of the rollouts.
    shape = ["--group-size", str(GROUP), "--concurrency", str(GROUP)]
    return ["collect", *named, *where, *shape, "--engine", engine]


@contextmanager
def collecting(folder: Path, server: ScriptedServer, *more: str) -> Iterator[Process]:
    """The command as a process with a home of its own."""
    (folder / "home").mkdir()
    own = {"HOME": str(folder / "home"), "RUBRICEM_DATA_DIR": str(folder / "data")}
    process = Process(
        [*COMMAND, *arguments(folder, server, "ray"), *more],
        env={**ENVIRONMENT, **own, "RUBRICEM_API_KEY": KEY, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def products(run: RunDirectory) -> list[dict[str, Any]]:
    """A run's trajectories without what no two runs share."""
    return [json.loads(t.model_dump_json(exclude=TIMES)) for t in run.trajectories()]


def workers_of(pid: int) -> list[int]:
    return [child for child in descendants(pid) if "RolloutActor" in name_of(child)]


def session_of(pid: int) -> Path:
    """The folder that Ray keeps its files in."""
    (raylet,) = {
        part.partition("=")[2]
        for child in descendants(pid)
        for part in name_of(child).split()
        if part.startswith("--session-dir=") or part.startswith("--session_dir=")
    }
    return Path(raylet)


def written_in(folder: Path) -> str:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return "\n".join(path.read_bytes().decode(errors="replace") for path in files)


@pytest.mark.slow
@pytest.mark.skipif(not PROC.is_dir(), reason="it looks at processes as Linux shows them")
def test_a_killed_workers_rollouts_go_on_and_nothing_finished_is_repeated(folder: Path):
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    model = Holding()
    with ScriptedServer(model) as server:
        with collecting(folder, server) as process:
            wait_for(lambda: model.held == GROUP or process.poll() is not None, 300)
            assert process.poll() is None, process.communicate()
            begun = [process.pid, *descendants(process.pid)]
            workers = workers_of(process.pid)
            assert len(workers) == 2
            session = session_of(process.pid)
            assert listening(begun) and listening(begun) <= LOOPBACK
            os.kill(workers[0], signal.SIGKILL)
            # Its two rollouts ask for their second turns again, and for nothing else.
            wait_for(lambda: model.held == GROUP + 2, 300)
            assert KEY not in written_in(session)
            assert not any(KEY in name_of(pid) for pid in begun)
            model.let_go.set()
            out, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        asked = [request.body["messages"] for request in server.requests]
        sent = {request.headers["authorization"] for request in server.requests}
        here = CliRunner().invoke(main, arguments(folder, server, "asyncio"))
    assert here.exit_code == 0, here.output
    assert len(asked) == 2 * GROUP + 2 and sent == {f"Bearer {KEY}"}
    assert "worker 1 ended: " in errors or "worker 2 ended: " in errors
    assert "4 rollouts: 4 finished" in out and KEY not in out + errors
    assert products(RunDirectory(folder / "ray")) == products(RunDirectory(folder / "asyncio"))
    assert not session.exists(), "what Ray wrote went with it"
    assert list((folder / "home").rglob("*ray*")) == [], "no token in the home directory"
    assert not [pid for pid in begun if name_of(pid)], "no process is left"


def test_without_ray_the_command_says_how_to_install_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "ray", None)
    with ScriptedServer(Holding()) as server:
        done = CliRunner().invoke(main, arguments(folder, server, "ray"))
    assert done.exit_code == 2
    assert "This needs ray, which is not installed." in done.stderr
    assert install_of("ray") in done.stderr


@pytest.mark.parametrize("engine", ["ray", "asyncio"])
def test_a_cluster_that_does_not_answer_or_is_not_asked_for_is_told_at_once(
    engine: str, folder: Path
):
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    with ScriptedServer(Holding()) as server:
        there = [*arguments(folder, server, engine), "--ray-address", address]
        done = CliRunner().invoke(main, there)
    assert done.exit_code == 2
    if engine == "asyncio":
        assert "Add --engine ray." in done.stderr
        return
    assert f"Ray cannot be reached at {address}: [Errno 111] Connection refused." in done.stderr
    assert "name a running cluster by --ray-address" in done.stderr


async def test_a_ray_that_is_too_slow_to_start_is_told_with_what_helps(
    monkeypatch: pytest.MonkeyPatch,
):
    def init(**told: object) -> None:
        raise Exception("The node timed out during startup. The GCS has become overloaded.")

    ray = SimpleNamespace(is_initialized=lambda: False, init=init)
    monkeypatch.setitem(sys.modules, "ray", ray)
    for name in (*_LOCAL, "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "as it is")
    with pytest.raises(SettingsError, match=r"started here: The node timed out during st") as told:
        async with connect(RayOptions()):
            raise AssertionError("it has not begun")
    assert "Collect without --engine ray" in told.value.remedy


UNJUDGED = {"judge": None, "reflecting": None}


@pytest.fixture
def opened(opened: Opened) -> Opened:
    opened.gate.patience = PATIENT
    return opened


async def undisturbed(folder: Path, **options: Any) -> dict[str, Any]:
    """What a run in one process leaves."""
    with Opened(folder) as opened:
        await opened.collector(**options).collect()
    return await left(opened.run)


async def test_a_run_leaves_the_same_rows_as_in_one_process(opened: Opened, tmp_path: Path):
    policy = ScriptedPolicy(two_turns)
    async with remote(opened, policy) as made:
        await made.collector.collect()
        assert all(worker.begun for worker in made.hired) and len(made.hired) == 2
    whole = await undisturbed(tmp_path / "whole")
    assert '"objective": "policy"' in whole["rows"]
    assert await left(opened.run) == whole
    assert len(policy.calls) == WRITES
    assert (
        sum(len(opened.journal.replies_of(f"s000-q00{q}-r{r}")) for q in (0, 1) for r in (0, 1))
        == 0
    )


class Held(ScriptedPolicy):
    """Tells of each call before it answers."""

    def __init__(self, heard: Callable[[int], None]) -> None:
        super().__init__(two_turns)
        self.heard = heard
        self.asked = 0

    async def write(self, *call: Any) -> Completion:
        self.asked = number = self.asked + 1
        self.heard(number)
        await asyncio.sleep(0.002)
        return await super().write(*call)


async def test_a_killed_workers_rollouts_go_on_elsewhere_from_their_finished_calls(
    opened: Opened, tmp_path: Path
):
    killed: list[Remote] = []

    def kill_at(number: int) -> None:
        if number in (3, 6):
            killed[0].hired[number // 3 - 1].kill()

    policy = Held(kill_at)
    async with remote(opened, policy, at_once=4) as made:
        killed.append(made)
        await made.collector.collect()
        assert len(made.hired) == 4, "each was replaced"
    assert await left(opened.run) == await undisturbed(tmp_path / "whole")
    # A reply that was on its way to a worker when it died was not finished, and is made again.
    assert len(set(policy.calls)) == WRITES
    assert len(policy.calls) <= WRITES + 2 * 4, "at most those in flight at the two kills"
    assert policy.asked > WRITES, "what was in flight was made again"
    told = [line for line in opened.lines if "ended: killed. Another takes its place" in line]
    assert len(told) == 2 and told[0].startswith("worker 1 ended")


async def test_a_node_that_is_lost_while_a_step_is_committed_changes_nothing(
    opened: Opened, tmp_path: Path
):
    policy, committed, commit = ScriptedPolicy(two_turns), list[int](), opened.run.commit
    async with remote(opened, policy) as made:

        def while_lost(step: int, *products: Any) -> None:
            for worker in made.hired:
                worker.kill()
            committed.append(step)
            commit(step, *products)

        opened.run.commit = while_lost  # type: ignore[method-assign]
        await made.collector.collect()
        assert committed == [0, 1] and len(made.hired) == 4, "the second step had new workers"
    assert await left(opened.run) == await undisturbed(tmp_path / "whole")
    assert len(policy.calls) == WRITES, "nothing was written again"


class Interrupted(Unsteady):
    """Sets an event at its fourth call."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        super().__init__(lambda number, said: self.stop.set() if number == 4 else None)


async def collected(folder: Path, policy: Unsteady, engine: str) -> RunDirectory:
    """Collect by workers or in this process until the policy interrupts it, if it does."""
    with Opened(folder) as opened:
        opened.policy = GatedPolicy(policy, opened.gate)
        async with collector_of(opened, policy, engine, at_once=3) as collector:
            if not isinstance(policy, Interrupted):
                await collector.collect()
                return opened.run
            with pytest.raises(RunStopped, match="interrupted") as stopped:
                await collector.collect(policy.stop)
        assert stopped.value.by_person and opened.run.finished_steps() == 0
        assert policy.asked == len(policy.calls) == opened.gate.meter.calls, (
            "all are in the journal"
        )
    return opened.run


@pytest.mark.parametrize(
    ("first", "second"), [("workers", "here"), ("here", "workers"), ("here", "here")]
)
async def test_what_one_engine_began_and_an_interrupt_ended_the_other_finishes(
    first: str, second: str, tmp_path: Path
):
    begun, finished = Interrupted(), Unsteady()
    await collected(tmp_path, begun, first)
    run = await collected(tmp_path, finished, second)
    assert len(begun.calls) + len(finished.calls) == WRITES and begun.calls
    assert RunTally.of(run).finished == 6


async def test_an_ended_run_does_not_wait_for_workers_that_are_to_come(opened: Opened):
    policy = Interrupted()

    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    async with remote(opened, policy, at_once=4, coming=never) as made:
        with pytest.raises(RunStopped, match="interrupted"):
            await asyncio.wait_for(made.collector.collect(policy.stop), PATIENCE)
        assert len(made.hired) == 1, "two rollouts had no worker"
    assert policy.asked == len(policy.calls) == opened.gate.meter.calls


async def test_a_rollout_that_fails_is_kept_with_its_reason_and_cost(opened: Opened):
    def two_fails(number: int, said: str) -> Exception | None:
        spent = Usage(calls=1, cost=0.25)
        return PolicyError("It broke.", "Mend it.", spent) if "What is two?" in said else None

    async with remote(opened, Unsteady(two_fails)) as made:
        await made.collector.collect()
    groups = {group.question: group for group in opened.run.groups()}
    assert groups["What is two?"].failures == ("It broke. Mend it.",) * 2
    assert groups["What is two?"].lost.cost == 0.5
    assert opened.gate.meter.cost == pytest.approx(2 * 0.25 + 8 * 0.1)


async def test_a_journal_that_cannot_be_written_fails_the_run_not_a_rollout(opened: Opened):
    async def full(key: object, reply: object) -> None:
        raise StoreError("the disk is full", "Make room.")

    opened.journal.append = full  # type: ignore[method-assign]
    async with remote(opened, ScriptedPolicy(two_turns)) as made:
        with pytest.raises(ExceptionGroup) as failed:
            await made.collector.collect()
    (error, *_) = failed.value.exceptions
    assert isinstance(error, StoreError)
    assert (str(error), error.remedy) == ("the disk is full", "Make room.")
    assert opened.run.finished_steps() == 0


def judging_by(said: str) -> str:
    """A judge that likes answers by even seeds, and the first of two reviews."""
    if ids := re.findall(r"review ([A-Z])\]", said):
        listed = [
            {"id": name, "justification": "good", "diagnostic_accuracy": score,
             "specificity": score, "scope_and_balance": score}
            for name, score in zip(dict.fromkeys(ids), (0.9, 0.4), strict=False)
        ]  # fmt: skip
        return json.dumps({"reviews": listed})
    if "Criteria:" not in said:
        return PROPOSAL
    good = 2 if re.search(r"answer \d*[02468]</cite>", said) else 0
    given = [{"number": n, "justification": "so it is", "points": good} for n in (1, 2)]
    return json.dumps({"verdicts": given})


class Judged(ScriptedChat):
    """A judge's model, which tells of each call before it answers."""

    def __init__(self, heard: Callable[[int], None] = lambda number: None) -> None:
        super().__init__(judging_by)
        self.heard = heard
        self.begun = 0

    async def chat(self, *call: Any) -> Completion:
        self.begun = number = self.begun + 1
        self.heard(number)
        await asyncio.sleep(0.002)
        return await super().chat(*call)


class AlsoReflects(ScriptedPolicy):
    """Writes rollouts of two turns, and reflections on them."""

    def __init__(self) -> None:
        super().__init__(two_turns)
        self.reflects = ScriptedPolicy(lambda before, sampling: REFLECTION)

    async def write(self, system: str, transcript: Any, *call: Any) -> Completion:
        about = "<run>" in transcript[0].text
        policy = self.reflects if about else super()
        return await policy.write(system, transcript, *call)


STAGES = Judging(
    judge="stage", model=None, wanted=Wanted(seed=7), gated=False, reflections=2,
    reflection_tokens=900, least=None,
)  # fmt: skip


async def judged_here(folder: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """What a run in one process leaves that judges by a model, and how many calls it made."""
    policy, chat = AlsoReflects(), Judged()
    with Opened(folder, policy) as opened:
        judge, reflecting = STAGES.over(chat, policy, opened.gate.with_journal)
        await opened.collector(judge=judge, reflecting=reflecting).collect()
    made = {"judge": len(chat.asked), "reflections": len(policy.reflects.calls)}
    return await left(opened.run), made


async def test_workers_judge_and_reflect_as_one_process_does(opened: Opened, tmp_path: Path):
    policy, chat = AlsoReflects(), Judged()
    async with remote(opened, policy, judging=(STAGES, chat), judged_at_once=2) as made:
        await made.collector.collect()
        begun = [type(work).__name__ for worker in made.hired for work in worker.begun]
    whole, calls = await judged_here(tmp_path / "whole")
    assert await left(opened.run) == whole and '"total"' not in whole["judgements"]
    assert '"accepted":true' in whole["reflections"] and '"objective": "policy"' in whole["rows"]
    assert Counter(begun) == {"Begin": 6, "BeginJudging": 3, "BeginReflecting": 3}
    assert calls == {"judge": len(chat.asked), "reflections": len(policy.reflects.calls)}
    assert opened.gate.meter.calls == WRITES + calls["judge"] + calls["reflections"]
    assert opened.memory.items, "what they taught is put into the run's own bank"


async def test_a_worker_that_dies_while_it_judges_makes_no_finished_call_again(
    opened: Opened, tmp_path: Path
):
    killed: list[Remote] = []

    def kill_at(number: int) -> None:
        if number in (4, 9):
            for worker in killed[0].hired[-2:]:
                worker.kill()

    policy, chat = AlsoReflects(), Judged(kill_at)
    async with remote(opened, policy, judging=(STAGES, chat), judged_at_once=2) as made:
        killed.append(made)
        await made.collector.collect()
        assert len(made.hired) > 2, "each was replaced"
    whole, calls = await judged_here(tmp_path / "whole")
    assert await left(opened.run) == whole
    assert chat.begun > calls["judge"], "what was in flight was made again"
    # One call of each group that was being judged was in flight at a kill.
    assert chat.begun <= calls["judge"] + 2 * 2


class Actor:
    """What Ray's handle of a `RolloutActor` does, in this process."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.lost = False
        self.full = False

    def __getattr__(self, name: str) -> Any:
        async def call(*given: Any) -> Any:
            if self.full:
                raise FakeRay.exceptions.OutOfMemoryError("It was killed.\nTo adjust ...")
            if self.lost:
                raise FakeRay.exceptions.RayActorError("it was killed")
            self.opened.append(given[0] if name == "open" else name)
            return ("policy", given[0]) if name == "open" else None

        return SimpleNamespace(remote=call)


class FakeRay:
    """Begins actors and counts them."""

    # Of one that Ray ends for want of memory the error is no RayActorError.
    exceptions = SimpleNamespace(**{
        name: type(name, (Exception,), {})
        for name in ("RayActorError", "OutOfMemoryError", "NodeDiedError", "WorkerCrashedError")
    })  # fmt: skip

    def __init__(self) -> None:
        self.begun: list[Actor] = []

    def remote(self, kind: type) -> Any:
        def begin() -> Actor:
            self.begun.append(Actor())
            return self.begun[-1]

        return SimpleNamespace(options=lambda **named: SimpleNamespace(remote=begin))

    def kill(self, actor: Actor) -> None:
        actor.lost = True


async def test_workers_of_a_run_that_has_ended_are_opened_anew_by_the_next_one(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
):
    ray = FakeRay()

    @asynccontextmanager
    async def connected(options: RayOptions) -> AsyncIterator[FakeRay]:
        yield ray

    monkeypatch.setattr("rubricem.training.collect.remote.connect", connected)
    monkeypatch.setattr("rubricem.training.collect.remote._RESTING", [])

    def run(version: str, runs: int = 1) -> Any:
        model = SimpleNamespace(at_once=8, embedded=False)
        setup: Any = SimpleNamespace(model=model, anywhere=lambda: version)
        policy = SimpleNamespace(name="policy", version=version)
        return RemoteRollouts.open(
            RayOptions(2, runs=runs), setup, SimpleNamespace(policy=policy), opened.gate
        )

    async with run("first") as first:
        while len(first.pool.workers) < 2:
            await asyncio.sleep(0)
    async with run("second") as second, run("beside"):
        while len(second.pool.workers) < 2:
            await asyncio.sleep(0)
        ray.begun[0].lost = True
    assert len(ray.begun) == 4, "two of each run at the same time"
    assert ray.begun[1].opened[:3] == ["first", "close", "second"]
    async with run("third") as third:
        while len(third.pool.workers) < 2:
            await asyncio.sleep(0)
        assert len(ray.begun) == 4 and "third" not in ray.begun[0].opened
    async with run("smaller", runs=3):
        assert len(ray.begun) > 4, "of another share of a core"


async def test_workers_that_ended_while_they_rested_are_replaced(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
):
    ray, lost, full = FakeRay(), Actor(), Actor()
    lost.lost = full.full = True
    model = SimpleNamespace(at_once=1, embedded=True)
    policy = SimpleNamespace(name="policy", version="v")
    setup: Any = SimpleNamespace(model=model, anywhere=lambda: "v")

    @asynccontextmanager
    async def connected(options: RayOptions) -> AsyncIterator[FakeRay]:
        yield ray

    monkeypatch.setattr("rubricem.training.collect.remote.connect", connected)
    monkeypatch.setattr("rubricem.training.collect.remote._RESTING", [(1.0, lost), (1.0, full)])
    made = RemoteRollouts.open(RayOptions(1), setup, SimpleNamespace(policy=policy), opened.gate)
    async with made as rollouts:
        assert len(rollouts.pool.workers) == len(ray.begun) == 1
    assert not any("cannot begin" in line for line in opened.lines)


async def test_a_worker_that_ray_ends_for_want_of_memory_is_a_lost_one():
    full, work = Actor(), Any
    full.full = True
    with pytest.raises(WorkerLost, match="its machine had no memory left"):
        await _RayWorker(FakeRay(), full).begin(work)  # type: ignore[arg-type]


async def test_why_a_worker_is_not_kept_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    lost = Actor()
    lost.lost = True
    assert await _rest(_RayWorker(FakeRay(), lost)) is None
    assert "A worker of Ray is not kept: WorkerLost('it was killed')" in caplog.text
    slow = SimpleNamespace(close=SimpleNamespace(remote=asyncio.Event().wait))
    monkeypatch.setattr("rubricem.training.collect.remote.REST_SECONDS", 0.01)
    assert await _rest(_RayWorker(FakeRay(), slow)) is None
    assert "A worker of Ray is not kept: TimeoutError()" in caplog.text


async def test_a_worker_leaves_what_it_was_doing_when_its_run_has_ended():
    begun, left_off = asyncio.Event(), list[str]()

    class Writing(RolloutWorker):
        async def _do(self, work: Any) -> Any:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                left_off.append(work.thread)

    worker = Writing.__new__(Writing)
    worker._journal, worker._begun = LineJournal(), {}
    waiting = asyncio.create_task(worker.begin(Begin("one", Ask(""), {})))
    await begun.wait()
    await worker.end()
    assert left_off == ["one"] and not worker._begun
    waiting.cancel()


@pytest.mark.slow
def test_rays_workers_judge_and_reflect_as_one_process_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    shape = ["--group-size", "2", "--judge", "stage", "--reflections", "2", "--memory", "on"]
    with ScriptedServer(scripted) as server:
        with collecting(folder, server, *shape) as process:
            errors = process.communicate(timeout=300)[1]
        assert process.returncode == 0, errors
        asked = len(server.requests)
        monkeypatch.setenv("RUBRICEM_DATA_DIR", str(folder / "other"))
        here = CliRunner().invoke(main, [*arguments(folder, server, "asyncio"), *shape])
        assert here.exit_code == 0, here.output
        assert len(server.requests) == 2 * asked
    away, own = (asyncio.run(left(RunDirectory(folder / e))) for e in ("ray", "asyncio"))
    assert away == own and '"accepted":true' in own["reflections"]


class OneLesson:
    """A `Recaller` that recalls one thing, and is told which runs were given it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.told: list[str] = []

    async def recall(self, question: str) -> Recall:
        self.asked.append(question)
        item = Recollection(id="r1", question="What is nought?")
        return Recall((item,), "<reference_examples>\nMind nought.\n</reference_examples>\n\n")

    async def note_use(self, trajectory: Trajectory) -> None:
        self.told.append(trajectory.thread)


async def test_workers_recall_from_the_runs_own_bank(opened: Opened):
    lesson = OneLesson()
    async with remote(opened, ScriptedPolicy(two_turns), recalls=True) as made:
        made.researcher.recaller = lesson
        await made.collector.collect()
    assert len(lesson.asked) == len(lesson.told) == len(set(lesson.told)) == 6
    for trajectory in opened.run.trajectories():
        assert trajectory.recalled == ("r1",) and "Mind nought." in trajectory.segments[0].text


async def test_a_rollout_that_ends_every_worker_ends_the_run(opened: Opened):
    workers: list[Remote] = []

    def kill_all(number: int) -> None:
        for worker in workers[0].hired:
            worker.kill()

    async with remote(opened, Held(kill_all), at_once=1, **UNJUDGED) as made:
        workers.append(made)
        with pytest.raises(ExceptionGroup) as failed:
            await made.collector.collect()
    (error,) = failed.value.exceptions
    assert isinstance(error, PolicyError)
    assert str(error) == "3 workers ended, one after another, while they wrote s000-q000-r0."
    assert "The same command continues" in error.remedy


BAD = PolicyError("there are no weights", "Fetch them.")


@pytest.mark.parametrize(
    ("fault", "told", "remedy"),
    [
        (BAD, r"No worker could begin\. The last: there are", "Fetch them."),
        (KeyError("size"), "The last: KeyError: 'size'", "Fix that and run"),
    ],
    ids=["an error of a worker's", "a fault of ours"],
)
async def test_without_any_worker_the_run_says_what_is_missing_and_nobody_waits(
    opened: Opened, fault: Any, told: str, remedy: str
):
    async with remote(opened, ScriptedPolicy(two_turns), cannot=lambda n: fault) as made:
        with pytest.raises(PolicyError, match=told) as none:
            await made.pool.ready()
    assert none.value.remedy.startswith(remedy)


async def test_a_worker_that_cannot_begin_is_missed_and_the_others_go_on(opened: Opened):
    policy = ScriptedPolicy(two_turns)
    async with remote(opened, policy, cannot=lambda n: BAD if n == 1 else None) as made:
        await made.collector.collect()
        assert len(made.hired) == 1
    assert "worker 1 cannot begin: there are no weights" in opened.lines
    assert RunTally.of(opened.run).finished == 6


async def test_what_breaks_in_a_worker_that_is_no_error_of_ours_is_raised_here(opened: Opened):
    policy = Failing(ScriptedPolicy(two_turns), lambda number: 1 // 0 > 0)
    async with remote(opened, policy, **UNJUDGED) as made:
        with pytest.raises(ExceptionGroup) as failed:
            await made.collector.collect()
    assert isinstance(failed.value.exceptions[0], ZeroDivisionError)


@pytest.mark.parametrize(
    "error", [away(Usage(calls=1, cost=0.1)), StoreError("Full.", "Make room.")]
)
def test_errors_keep_their_remedy_and_cost_on_the_way_between_processes(error: PolicyError):
    back = pickle.loads(pickle.dumps(error))
    assert str(back) == str(error) and vars(back) == vars(error) != {}
