"""Rounds that overlap: what each samples from, trains on, recalls, and does not wait for.

Which embedding model the answers of rounds are compared with: the bank's, or one asked for.

Killed at random moments and gone on with, rounds are as if nothing had happened.

Rounds whose money is limited: they end, tell so, and go on with more, also at another server.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rounds_server import serving
from rubricem.agent.models.policy import Policy
from rubricem.judge.stage import GroupJudgement
from rubricem.memory.bank import RubricBank
from rubricem.memory.errors import PolicyError
from rubricem.memory.interfaces import Sampling
from rubricem.memory.rubrics import BufferStore, RubricBuffer
from rubricem.memory.schema import Judgement, Trajectory, TrajectoryGroup, Usage
from rubricem.training.collect.curriculum import Curriculum
from rubricem.training.collect.gate import RunStopped
from rubricem.training.collect.groups import Reflected, StepMemory
from rubricem.training.local.local_config import EngineConfig
from rubricem.training.rounds.rollouts import Sampled
from rubricem.training.rounds.rounds import recalls_after
from rubricem.training.rounds.rounds_config import RoundsConfig
from rubricem.training.rounds.update import Metrics, RoundFolders
from rubricem.training.rows.row import TrainRow
from rubricem.training.show.card import CARD
from rubricem.training.statistics import meaning_apart
from tests.programs.killing import killed_runs
from tests.programs.runs_killed import ROUNDS
from tests.support.banks import WordEmbedder, bank_in, reflection
from tests.support.collected import Failing, FixedReflections, LengthJudge, judgement, two_turns
from tests.support.policies import ScriptedPolicy
from tests.support.rows import ASKED, FileUpdates, ManyReflections, NamedMemory, Parts
from tests.support.waiting import wait_for
from tests.training.rounds.test_parts import calls, metrics, on_server, train
from tests.training.rounds.test_rounds_config import rounds_of
from tests.training.show.test_events import unexplained

TURNS = 8
"""of a round: two each of two rollouts of two questions"""


@pytest.mark.parametrize(
    ("ahead", "sampled"),
    [(0, ["base", "1", "2"]), (1, ["base", "base", "1"])],
)
async def test_a_round_samples_from_the_checkpoint_so_many_updates_before_its_own(
    ahead: int, sampled: list[str], tmp_path: Path
):
    parts = Parts(tmp_path, 3, ahead)
    await parts.rounds().run()
    assert [parts.sampled[number] for number in range(3)] == sampled
    lags = [(line["staleness/mean"], line["staleness/max"]) for line in parts.updates.lines]
    # The first two have base rows alone; later the reflections lag one more than the rollouts.
    assert lags[0] == (0, 0) and lags[2] == (ahead + 0.5, ahead + 1)
    assert not any(parts.folders.policy(number).exists() for number in range(3))


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
    line = parts.updates.lines[0]
    assert line["seconds/train"] > 0
    assert 0 < line["seconds/judge_group/mean"] <= line["seconds/judge_group/max"]


class LateReflections(ManyReflections):
    """The first round's are written once that is there which they are not to hold up."""

    def __init__(self, there: Callable[[], bool]) -> None:
        super().__init__()
        self.there = there
        self.written: list[str] = []

    async def __call__(
        self, trajectory: Trajectory, judgement: Judgement | None, seed: int
    ) -> Reflected:
        while "0" in trajectory.question and not self.there():
            await asyncio.sleep(0.01)
        self.written.append(trajectory.question)
        return await super().__call__(trajectory, judgement, seed)


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


def test_a_round_recalls_what_is_surely_over_and_waits_for_its_own_questions():
    fresh = Curriculum(ASKED, 1)
    assert [recalls_after(fresh, n, 0) for n in range(3)] == [-1, 0, 1]
    assert [recalls_after(fresh, n, 1) for n in range(5)] == [-1, -1, -1, 0, 1]
    again = Curriculum(ASKED, 2, window=1)
    assert [recalls_after(again, n, 1) for n in range(4)] == [-1, 0, 0, 2]


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
    with pytest.raises(PolicyError, match="No rollout of step 0 came to an end"):
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


class Stuck(ManyReflections):
    """The reflection of the first round never ends; that of the second has the rounds stopped."""

    def __init__(self, stop: asyncio.Event) -> None:
        super().__init__()
        self.stop = stop

    async def __call__(
        self, trajectory: Trajectory, judgement: Judgement | None, seed: int
    ) -> Reflected:
        if "0" in trajectory.question:
            await asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.2, self.stop.set)
        return await super().__call__(trajectory, judgement, seed)


async def test_a_round_that_waits_for_its_turn_holds_up_nobody_who_stops_it(tmp_path: Path):
    stop = asyncio.Event()
    parts = Parts(tmp_path, 2, per_round=1)
    parts.reflecting = Stuck(stop)
    async with asyncio.timeout(60):
        with pytest.raises(RunStopped, match="interrupted"):
            await parts.rounds(stop).run()


async def test_more_rounds_go_on_where_fewer_ended(tmp_path: Path):
    await Parts(tmp_path, 2).rounds().run()
    before = Parts(tmp_path).updates.lines
    parts = Parts(tmp_path, 4)
    await parts.rounds().run()
    assert parts.updates.lines[:2] == before and parts.updates.done == 4
    assert parts.sampled == {2: "1", 3: "2"}
    assert [len(line["taken"][0]) for line in parts.updates.lines] == [0, 4, 4, 4]


async def test_a_server_that_was_not_refreshed_is_found_by_its_version(tmp_path: Path):
    parts = Parts(tmp_path, 4)
    open_round = parts.open_round

    def same(number: int, batch: Any) -> Any:
        # Its policy names itself as in the first round, whatever it was given.
        (parts.folders.policy(number) / "weights").unlink(missing_ok=True)
        return open_round(number, batch)

    parts.open_round = same  # type: ignore[method-assign]
    await parts.rounds().run()
    lines = parts.updates.lines
    assert [line["staleness/max"] for line in lines[:3]] == [0, 1, 2]
    assert [line["rows/policy"] for line in lines] == [4, 4, 4, 0], "three updates old"
    assert lines[3]["dropped/older than 2 updates"] == 8


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


def sampled(folder: Path, **rounds: Any) -> Sampled:
    config = rounds_of(folder, **rounds)
    return Sampled(config, EngineConfig(out=folder), RoundFolders(folder, folder / "data"), print)


async def test_the_banks_model_is_used_once_it_is_loaded_and_no_other(tmp_path: Path):
    one, model = sampled(tmp_path), WordEmbedder()
    assert await one.embedder() is None, "no bank is open"
    one.bank = bank_in(tmp_path, model)
    assert await one.embedder() is None, "nothing was looked up by meaning"
    await one.bank.put(reflection("What is a cache?", "r"))
    assert await one.bank.search("heap")
    assert await one.embedder() is model


@pytest.mark.model
async def test_a_model_that_is_asked_for_is_opened_once_without_a_bank(
    tmp_path: Path, minilm: Path
):
    one = sampled(tmp_path, embed_answers=True, reflections=0)
    embedder = await one.embedder()
    assert embedder is not None and await one.embedder() is embedder
    near = meaning_apart(
        ["Caches evict the oldest entry.", "A cache drops what is oldest."], embedder
    )
    far = meaning_apart(["Caches evict the oldest entry.", "Rome is a city in Italy."], embedder)
    assert near is not None and far is not None and 0 <= near < far <= 2


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


pytestmark = pytest.mark.usefixtures("one_thread")
LIMIT = "max_run_cost under [rounds]"


def replies(out: Path) -> list[Usage]:
    """What every finished call of a model has used, of all journals."""
    lines = [line for path in RoundFolders(out, out).journals()
             for line in path.read_text().splitlines()]  # fmt: skip
    used = (json.loads(line)["reply"].get("usage") for line in lines)
    return [usage for one in used if one for usage in [Usage.model_validate(one)] if usage.calls]


def priced(folder: Path) -> None:
    """Ten dollars for a thousand tokens written, of the first weights; checkpoints cost as much."""
    (folder / "rubricem.toml").write_text("[prices]\npolicy = [0.0, 0.0, 10000.0]\n")


def test_money_ends_all_rounds_at_its_limit_and_more_goes_on_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    shape: dict[str, Any] = {"reflections": 0, "rounds": 2}
    with serving(0.02) as address:
        shape["source"] = [f"searxng:{address.removesuffix('/v1')}"]
        refused = train(on_server(tmp_path, address, **shape, max_run_cost=1.0))
        assert refused.exit_code == 2 and f"{LIMIT} cannot be kept" in refused.stderr
        priced(tmp_path)
        ended = train(on_server(tmp_path, address, **shape, max_run_cost=40.0))
        said = " ".join(ended.stderr.split())
        assert ended.exit_code == 3, ended.output
        assert "of 40 US dollars, and another call may cost more" in said
        assert f"Allow it more by {LIMIT}. The same command goes on" in said
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
    card = (tmp_path / "out" / "last" / CARD).read_text()
    assert "Not compared" not in card and "differ by" in card
    asked = card.split("## Held-out questions")[1].split("##")[0].splitlines()
    assert [line.split("|")[1].strip() for line in asked if line.startswith("| ")][2:] == [
        "0", "1", "2",
    ], "also what was asked of the last checkpoint"  # fmt: skip
    found = replies(tmp_path / "out")
    assert len(found) == made, "no finished call was made again"
    assert json.loads(done.stdout)["cost"] == pytest.approx(sum(one.cost or 0.0 for one in found))


@pytest.mark.parametrize("limit", [0, -1.0, float("inf"), float("nan")])
def test_a_limit_that_is_none_is_refused(limit: float):
    with pytest.raises(ValueError, match="max_run_cost"):
        RoundsConfig(questions="q.txt", rounds=1, max_run_cost=limit)
