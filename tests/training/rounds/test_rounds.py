"""Rounds that overlap: what each samples from, trains on, recalls, and does not wait for.

By the command: a tiny random model, a loopback server, the real engine. Which checkpoint is the
best, money that is limited, and kills at random moments, after which rounds are as if nothing had
happened.
"""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from click.testing import CliRunner, Result

from benchmarks.rounds_server import serving
from benchmarks.scripted_judge import buffer_of
from rubricem.agent.cli import main
from rubricem.agent.learning.reflect import Reflected
from rubricem.agent.models.policy import Policy
from rubricem.agent.weights.checkpoints import Checkpoint
from rubricem.memory.bank import RubricBank
from rubricem.memory.errors import PolicyError
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.schema import (
    GroupJudgement,
    Judgement,
    RubricBuffer,
    Sampling,
    Trajectory,
    TrajectoryGroup,
    Usage,
)
from rubricem.training.collect.directory import StepMemory
from rubricem.training.collect.gate import RunStopped
from rubricem.training.local.checkpoints import TrainingFolder
from rubricem.training.rounds.update import Metrics, RoundFolders
from rubricem.training.rows.row import TrainRow
from tests.conftest import COMMAND, ENVIRONMENT, ROOT
from tests.programs.killing import killed_runs
from tests.programs.runs_killed import ROUNDS
from tests.support.collected import (
    Failing,
    FixedReflections,
    LengthJudge,
    ManyReflections,
    judgement,
    two_turns,
)
from tests.support.policies import ScriptedPolicy
from tests.support.rows import ASKED, FileUpdates, NamedMemory, Parts
from tests.support.scripted_server import ScriptedServer
from tests.support.tiny import write_tiny
from tests.support.waiting import wait_for
from tests.test_examples import judging
from tests.training.show.test_events import unexplained

pytestmark = pytest.mark.usefixtures("one_thread")
SEED = 1
TO_ASK = [f"Which rule is number {number}?" for number in range(6)]


@pytest.fixture
def server() -> Iterator[str]:
    with serving(0.02) as address:
        yield address


def written(folder: Path, **rounds: Any) -> Path:
    """A configuration of two new questions a round, which holds out one of them."""
    write_tiny(folder / "tiny.gguf")
    (folder / "asked.txt").write_text("".join(f"{q}\n" for q in TO_ASK[:4]))
    (folder / "held_out.txt").write_text("".join(f"{q}\n" for q in TO_ASK[3:]))
    table = {"questions": "asked.txt", "questions_per_round": 2, "group_size": 2, **rounds}
    # The replies go by the seeds, so that the scores of two groups in three differ.
    engine = {"out": "out", "seed": SEED, "model": "tiny.gguf", "rank": 4, "alpha": 8.0,
              "dtype": "float32", "max_row_tokens": 8192}  # fmt: skip
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in engine.items()]
    lines += ["[rounds]\n", *(f"{name} = {json.dumps(value)}\n" for name, value in table.items())]
    path = folder / "rounds.toml"
    path.write_text("".join(lines))
    return path


def on_server(folder: Path, address: str, **changed: Any) -> Path:
    """Three rounds on the server, which scores by rubrics that are there from the beginning."""
    for store in (folder / "out" / "data", folder / "out" / "held_out" / "data"):
        buffers = BufferStore(store / "buffers")
        for question in TO_ASK:
            if not buffers.load(question).version:
                buffers.save(buffer_of(question).model_copy(update={"version": 1}))
    rounds = {
        "rounds": 3, "held_out": "held_out.txt", "base_url": address, "model": "policy",
        "refresh": ["sh", "-c", "cksum < {checkpoint}/adapter.gguf | tr ' ' -"],
        "source": [f"searxng:{address.removesuffix('/v1')}"], "reflections": 2,
        **changed,
    }  # fmt: skip
    return written(folder, **rounds)


def train(path: Path, *flags: str) -> Result:
    return CliRunner().invoke(main, ["train", "ss-grpo", str(path), *flags])


def metrics(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]


def calls(address: str) -> int:
    with urlopen(address.removesuffix("/v1") + "/asked") as reply:
        return sum(json.load(reply)["calls"].values())


@pytest.mark.slow
@pytest.mark.model
def test_rounds_by_rays_workers_end_as_those_of_one_process(
    tmp_path: Path, server: str, minilm: Path
):
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    lines, made = [], []
    for name, more in (("one", {}), ("ray", {"ray_workers": 2})):
        (tmp_path / name).mkdir()
        assert go_on(on_server(tmp_path / name, server, rounds=2, **more), None)
        lines.append(metrics(tmp_path / name / "out"))
        made.append(calls(server))
    assert made[1] == 2 * made[0]
    for name in ("round", "rows/policy", "rows/reflect", "staleness/max", "reward/answer/mean",
                 "judge/calls", "reflection/score/mean"):  # fmt: skip
        assert [line.get(name) for line in lines[1]] == [line.get(name) for line in lines[0]], name


@pytest.mark.model
def test_rounds_collect_judge_reflect_and_train_and_a_second_run_repeats_nothing(
    tmp_path: Path, server: str, minilm: Path
):
    path = on_server(tmp_path, server)
    done = train(path, "--json")
    assert done.exit_code == 0, done.output
    assert "1 questions are held out, and not trained on" in done.stderr
    told = json.loads(done.stdout)
    out = tmp_path / "out"
    assert (told["rounds"], told["checkpoint"]) == (3, str(TrainingFolder(out).newest))
    lines = metrics(out)
    assert [line["round"] for line in lines] == [1, 2, 3]
    assert [line["staleness/max"] for line in lines] == [0, 1, 2]
    assert lines[1]["rows/reflect"] == 4 and sum(line["rows/policy"] for line in lines) > 0
    assert lines[2]["grad_norm"] > 0 and lines[0]["unscored_share"] == 0
    versions = [RoundFolders(out, out).round(n).manifest().policy_version for n in range(3)]
    assert versions[0] == versions[1] == "policy" != versions[2]
    held = [json.loads((out / "held_out" / f"{n:03d}" / "numbers.json").read_text())
            for n in range(4)]  # fmt: skip
    assert [one["updates"] for one in held] == [0, 1, 2, 3] and held[0]["groups"] == 3
    asked = calls(server)
    again = train(path, "--json")
    assert again.exit_code == 0 and json.loads(again.stdout)["rounds"] == 3
    assert calls(server) == asked and metrics(out) == lines


@pytest.mark.slow
def test_more_rounds_go_on_and_other_ones_are_refused(tmp_path: Path, server: str):
    shape = {"reflections": 0, "held_out_every": 2}
    assert train(on_server(tmp_path, server, rounds=1, **shape)).exit_code == 0
    assert train(on_server(tmp_path, server, rounds=2, **shape)).exit_code == 0
    asked = sorted(path.name for path in (tmp_path / "out" / "held_out").glob("0*"))
    assert asked == ["000", "001", "002"], "before, after what was the last, and every second"
    assert [line["round"] for line in metrics(tmp_path / "out")] == [1, 2]
    refused = train(on_server(tmp_path, server, rounds=2, **shape, group_size=3))
    assert refused.exit_code == 2 and "another rounds.group_size" in refused.stderr


def test_rounds_go_on_by_what_they_ask_however_their_files_are_named(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "a.md").write_text("# One\nWhat is asked is read first.\n")
    shape = {"reflections": 0, "source": ["documents"]}
    path = on_server(tmp_path, server, rounds=1, **shape)
    monkeypatch.chdir(tmp_path)
    assert train(Path(path.name)).exit_code == 0
    on_server(tmp_path, server, rounds=1, held_out="moved.txt", **shape)
    (tmp_path / "moved.txt").write_text((tmp_path / "held_out.txt").read_text())
    assert train(path).exit_code == 0
    (tmp_path / "moved.txt").write_text(f"{TO_ASK[3]}\n{TO_ASK[5]}\n")
    refused = train(path)
    assert refused.exit_code == 2 and "with another rounds.asked_held_out." in refused.stderr


@pytest.mark.slow
def test_a_server_that_is_not_given_a_checkpoint_ends_the_rounds_in_a_sentence(
    tmp_path: Path, server: str
):
    refresh = ["sh", "-c", "echo no such adapter >&2; exit 3"]
    done = train(on_server(tmp_path, server, refresh=refresh, reflections=0))
    assert done.exit_code == 1
    assert "was not given the checkpoint: no such adapter" in done.stderr
    assert "Correct `refresh`" in done.stderr
    done = train(on_server(tmp_path, server, reflections=0, rounds=2))
    assert done.exit_code == 0, "it can be corrected, and what was collected is not lost"
    assert [line["round"] for line in metrics(tmp_path / "out")] == [1, 2]


@pytest.mark.parametrize(("said", "of"), [([], "training began with"), (["mine"], "ss-grpo-1-")])
@pytest.mark.slow
def test_a_server_that_has_one_name_for_two_checkpoints_is_not_sampled(
    said: list[str], of: str, tmp_path: Path, server: str
):
    done = train(on_server(tmp_path, server, refresh=["echo", *said], reflections=0))
    assert done.exit_code == 1
    assert f"the name of {of}" in done.stderr.replace("the weights that ", "")
    assert "print a name of its own for each checkpoint" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["llama.cpp", "torch"])
def test_the_embedded_policy_samples_from_each_checkpoint(tmp_path: Path, sampler: str):
    (documents := tmp_path / "documents").mkdir()
    (documents / "a.md").write_text("# One\nWhat is asked is measured and read first.\n")
    with ScriptedServer(judging) as judge:
        path = written(
            tmp_path, judge_model="scripted", judge_base_url=judge.base_url,
            source=["documents"], tool_calls=1, max_tokens=40, reflections=0, ahead=0,
            rounds=2, sampler=sampler,
        )  # fmt: skip
        done = train(path)
    assert done.exit_code == 0, done.output
    out = tmp_path / "out"
    versions = [RoundFolders(out, out).round(n).manifest().policy_version for n in range(2)]
    assert "ss-grpo-1-" in versions[1] and "ss-grpo" not in versions[0]
    assert Checkpoint.for_llama(TrainingFolder(out).newest).step == 2
    assert [line["staleness/max"] for line in metrics(out)] == [0, 0]
    gap = max(line["sampler_gap"] for line in metrics(out))
    assert gap < (1e-4 if sampler == "torch" else 0.1), "torch trains what it samples"


def go_on(path: Path, seconds: float | None) -> bool:
    """Run the command in a process; True if it came to its end before it was killed."""
    kept = {n: os.environ[n] for n in ("HOME", "RUBRICEM_WEIGHTS_DIR") if n in os.environ}
    command = [*COMMAND, "train", "ss-grpo", str(path)]
    with subprocess.Popen(
        command, cwd=ROOT, env={**ENVIRONMENT, **kept}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            said = process.communicate(timeout=seconds)[0].decode()
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            return False
    assert process.returncode == 0, said
    return True


TURNS = 8
"""of a round: two each of two rollouts of two questions"""


@pytest.mark.parametrize(
    ("ahead", "sampled"),
    [
        (0, ["base", "1"]),
        (1, ["base", "base", "1"]),
    ],
)
async def test_a_round_samples_from_the_checkpoint_so_many_updates_before_its_own(
    ahead: int, sampled: list[str], tmp_path: Path
):
    parts, rounds = Parts(tmp_path, ahead + 2, ahead), range(ahead + 2)
    await parts.rounds().run()
    assert [parts.sampled[number] for number in rounds] == sampled
    lags = [(line["staleness/mean"], line["staleness/max"]) for line in parts.updates.lines]
    # The first have base rows alone; later the reflections lag one more than the rollouts.
    assert lags[0] == (0, 0) and lags[-1] == (ahead + 0.5, ahead + 1)
    assert not any(parts.folders.policy(number).exists() for number in rounds)


async def test_an_update_trains_the_reflections_of_the_round_before_and_then_its_own_rollouts(
    tmp_path: Path,
):
    parts = Parts(tmp_path, 2)
    await parts.rounds().run()
    first, second = (line["taken"] for line in parts.updates.lines)
    rounds = [{t.id for t in parts.folders.round(n).trajectories()} for n in (0, 1)]
    assert first[0] == [] and {i.split(":")[0] for i in first[1]} == rounds[0]
    reflected = {i.split(":")[0] for i in second[0]}
    assert len(second[0]) == 4 and all(":reflect:" in i for i in second[0])
    assert reflected < rounds[0] and len(reflected) == 2, "one trajectory of each group"
    assert {i.split(":")[0] for i in second[1]} == rounds[1]
    assert [line["round"] for line in parts.updates.lines] == [1, 2]
    scores = [line.get("reflection/score/mean") for line in parts.updates.lines]
    assert scores == [None, 0.5], "of the reflections that the update trained"
    assert parts.held_out == [0, 1, 2]


def noting(asked: list[int]) -> Callable[[int], Policy]:
    """Policies that write down the round of each turn that they are asked for."""

    def policy(number: int) -> Policy:
        def turn(before: str, sampling: Sampling) -> str:
            asked.append(number)
            return two_turns(before, sampling)

        return ScriptedPolicy(turn)

    return policy


@pytest.mark.parametrize("ahead", [0, 1])
async def test_rollouts_begin_while_the_round_before_is_trained_if_they_are_ahead(
    ahead: int, tmp_path: Path
):
    asked: list[int] = []
    parts = Parts(tmp_path, 2, ahead, policy=noting(asked))
    train, seen = parts.updates.update, list[int]()

    def update(rows: Sequence[TrainRow]) -> Metrics:
        if ahead and rows and not seen:
            wait_for(lambda: asked.count(1) == TURNS)
        seen.extend([asked.count(1)] if rows else [])
        return train(rows)

    parts.updates.update = update  # type: ignore[method-assign]
    await parts.rounds().run()
    assert seen[0] == ahead * TURNS and seen[-1] == TURNS
    assert parts.updates.lines[0]["seconds/train"] > 0


class LateReflections(ManyReflections):
    """The first round's are written once that is there which they are not to hold up."""

    def __init__(self, there: Callable[[], bool]) -> None:
        super().__init__()
        self.there = there
        self.written: list[str] = []

    async def __call__(
        self,
        trajectory: Trajectory,
        judgement: Judgement | None,
        seed: int,
        beside: Trajectory | None = None,
    ) -> Reflected:
        while "0" in trajectory.question and not self.there():
            await asyncio.sleep(0.01)
        self.written.append(trajectory.question)
        return await super().__call__(trajectory, judgement, seed, beside)


async def test_the_bank_is_filled_in_the_order_of_rounds_and_seen_as_it_was_at_their_beginning(
    tmp_path: Path,
):
    parts = Parts(tmp_path, 4, per_round=1)
    parts.reflecting = late = LateReflections(lambda: "What is 1?" in late.written)
    await parts.rounds().run()
    memory = parts.memory
    assert isinstance(memory, NamedMemory)
    assert [item.question for item in memory.items] == [f"What is {n}?" for n in range(4)]
    assert memory.pinned == [0, 0, 0, 1], "never what the two before taught meanwhile"


async def test_a_reflection_as_slow_as_two_rounds_holds_up_no_rollouts(tmp_path: Path):
    asked: list[int] = []
    parts = Parts(tmp_path, 3, per_round=1, policy=noting(asked))
    parts.reflecting = LateReflections(lambda: asked.count(2) == TURNS / 2)
    await parts.rounds().run()
    assert parts.updates.done == 3


async def test_a_slow_reflection_holds_up_no_update_of_its_own_round(tmp_path: Path):
    parts = Parts(tmp_path, 1, per_round=1)
    parts.reflecting = late = LateReflections(lambda: parts.updates.done == 1)
    await parts.rounds().run()
    assert late.written == ["What is 0?"]


async def test_questions_asked_again_recall_their_own_reflection(tmp_path: Path):
    parts = Parts(tmp_path, 4, per_round=1, windows=1)
    await parts.rounds().run()
    assert isinstance(parts.memory, NamedMemory)
    assert parts.memory.pinned == [0, 1, 1, 2]
    asked = [[q.id for q in parts.folders.round(n).questions()] for n in range(4)]
    assert asked == [["0"], ["0"], ["1"], ["1"]]


async def test_what_ends_one_round_ends_all_in_its_own_words_and_nothing_is_lost(tmp_path: Path):
    down = True

    def policy(number: int) -> Failing:
        return Failing(ScriptedPolicy(two_turns), lambda asked: down and number == 1)

    parts = Parts(tmp_path, 3, policy=policy)
    with pytest.raises(PolicyError, match="No rollout of step 0 ended"):
        await parts.rounds().run()
    assert parts.updates.done <= 1
    kept = {t.id for t in parts.folders.round(0).trajectories()}
    down = False
    parts = Parts(tmp_path, 3, policy=policy)
    await parts.rounds().run()
    assert parts.updates.done == 3
    assert kept <= {t.id for t in parts.folders.round(0).trajectories()}


async def test_a_person_who_stops_it_waits_for_calls_in_flight_alone(tmp_path: Path):
    stop = asyncio.Event()

    class Stopping(ScriptedPolicy):
        async def write(self, *call: Any) -> Any:
            if number[0] == 1:
                stop.set()
                await asyncio.sleep(0.1)
            return await super().write(*call)

    number, made = [0], list[Stopping]()

    def policy(of: int) -> Stopping:
        number[0] = of
        made.append(Stopping(two_turns))
        return made[-1]

    with pytest.raises(RunStopped, match="interrupted"):
        await Parts(tmp_path, 3, policy=policy).rounds(stop).run()
    assert 0 < sum(len(one.calls) for one in made) < 24
    parts = Parts(tmp_path, 3, policy=policy)
    await parts.rounds().run()
    assert parts.updates.done == 3
    assert sum(len(one.calls) for one in made) == 24, "each of the turns was asked for once"


class AlikeAtFirst(LengthJudge):
    """Three rounds whose members all score alike, so that they teach nothing."""

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement:
        found = await super().judge(group, buffer, step)
        if int(group.question.split()[2][:-1]) >= 3:
            return found
        alike = tuple(judgement(t, [0.5] * 4) for t in group.trajectories)
        return found.model_copy(update={"judgements": alike})


async def test_rounds_that_trained_nothing_age_no_rows(tmp_path: Path):
    parts = Parts(tmp_path, 5, per_round=1)
    parts.judge = AlikeAtFirst()
    parts.reflecting = FixedReflections()  # one candidate has no group to be better than
    await parts.rounds().run()
    lines = parts.updates.lines
    assert [line["rows/policy"] for line in lines] == [0, 0, 0, 2, 2]
    assert lines[3]["staleness/max"] == 0, "no update came between: the policy is the first still"
    assert lines[4]["staleness/max"] == 1


KILLS = 4


def left_by(folder: Path) -> dict[str, Any]:
    """What rounds leave, but for the names and times that no two runs share."""
    rounds = [RoundFolders(folder, folder / "data").round(n) for n in range(ROUNDS)]
    threads = {t.id: f"{n}:{t.thread}" for n, run in enumerate(rounds) for t in run.trajectories()}

    def named(row: str) -> str:
        trajectory, _, rest = row.partition(":")
        return f"{threads[trajectory]}:{rest}"

    lines = FileUpdates(folder).lines
    return {
        "transcripts": [t.transcript() for run in rounds for t in run.trajectories()],
        "versions": [run.manifest().policy_version for run in rounds],
        "pinned": [run.part(0, "snapshot", StepMemory) for run in rounds],
        "taken": [[[named(i) for i in part] for part in line["taken"]] for line in lines],
        "numbers": [
            {k: v for k, v in line.items() if k != "taken" and not k.startswith("seconds")}
            for line in lines
        ],
        "rubrics": [BufferStore(folder / "data" / "buffers").load(q.question).version
                    for q in ASKED[:ROUNDS]],
    }  # fmt: skip


@pytest.mark.slow
async def test_rounds_killed_at_random_moments_repeat_nothing_and_train_the_same_rows(
    tmp_path: Path,
):
    at, killed = killed_runs("runs_killed rounds", tmp_path, KILLS)
    whole = left_by(at)
    assert [len(part) for part in whole["taken"][1]] == [2, 2]
    for one in killed:
        assert left_by(one.folder) == whole, one.told
        # In flight are at most two rollouts of a round, and a judgement of the one before.
        assert one.repeated <= 3 * one.kills, f"calls were repeated {one.told}"
        kept = [i.reflection.question for i in await RubricBank(one.folder / "data").items()]
        assert kept == [q.question for q in ASKED[:ROUNDS]], one.told


LIMIT = "max_run_cost under [rounds]"


def replies(out: Path) -> list[Usage]:
    """What every finished call of a model has used, of all journals."""
    lines = [line for path in RoundFolders(out, out).journals()
             for line in path.read_text().splitlines()]  # fmt: skip
    used = (json.loads(line)["reply"].get("usage") for line in lines)
    return [usage for one in used if one for usage in [Usage.model_validate(one)] if usage.calls]


@pytest.mark.slow
def test_money_ends_all_rounds_at_its_limit_and_more_goes_on_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    shape: dict[str, Any] = {"reflections": 0, "rounds": 2}
    with serving(0.02) as address:
        shape["source"] = [f"searxng:{address.removesuffix('/v1')}"]
        refused = train(on_server(tmp_path, address, **shape, max_run_cost=1.0))
        assert refused.exit_code == 2 and f"{LIMIT} cannot be kept" in refused.stderr
        # Ten dollars for a thousand tokens written, of the first weights; checkpoints cost as much.
        monkeypatch.setenv("RUBRICEM_PRICES", '{"policy": [0.0, 0.0, 10000.0]}')
        ended = train(on_server(tmp_path, address, **shape, max_run_cost=40.0))
        said = " ".join(ended.stderr.split())
        assert ended.exit_code == 3, ended.output
        assert "of 40 US dollars, and another call may cost more" in said
        assert f"Allow more by {LIMIT}. The same command continues" in said
        spent = sum(one.cost or 0.0 for one in replies(tmp_path / "out"))
        assert 30.0 < spent <= 40.0, "nothing in flight was lost, and no call was too much"
        with serving(0.02) as moved:
            path = on_server(tmp_path, moved, **shape, max_run_cost=1000.0)
            done = train(path, "--json")
            assert done.exit_code == 0, done.output
            made = calls(address) + calls(moved)
    assert f"the rounds have cost {spent:.2f} of 1000 US dollars so far" in done.stderr
    lines = metrics(tmp_path / "out")
    assert [line["round"] for line in lines] == [1, 2]
    assert [unexplained(line) for line in lines] == [[], []]
    found = replies(tmp_path / "out")
    assert len(found) == made, "no finished call was made again"
    assert json.loads(done.stdout)["cost"] == pytest.approx(sum(one.cost or 0.0 for one in found))
