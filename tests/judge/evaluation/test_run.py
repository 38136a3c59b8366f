"""Judges of scores asked which of two answers is better, and pairs shown in an order."""

import asyncio
from pathlib import Path

import pytest

from rubricem.judge.base import stage_text
from rubricem.judge.evaluation.data import LabelledComparison
from rubricem.judge.evaluation.run import (
    GroupComparer,
    compare_pair,
    evaluate,
    read_verdicts,
    report_verdicts,
)
from rubricem.judge.pairwise import Preference, ask_preference
from rubricem.judge.relative import GroupText, Read, RelativeJudge
from rubricem.judge.stage import StageJudge
from rubricem.memory.errors import JudgeError, SettingsError
from rubricem.memory.schema import Criterion, Stage, Trajectory, Usage
from tests.support.judges import PAID
from tests.support.values import ScriptedProposer, ScriptedScorer, item, pair, said

PROPOSED = {Stage.ANSWER: (item("names the rule"),)}


def stage_comparer(points: dict[str, float | None], *, keep: bool = False) -> GroupComparer:
    def scored(run: Trajectory, stage: Stage, criterion: Criterion) -> float | None:
        return points[stage_text(run, Stage.ANSWER)]

    judge = StageJudge(ScriptedProposer(PROPOSED), ScriptedScorer(scored))
    return GroupComparer(judge, keep=keep)


async def test_the_higher_answer_score_wins_and_half_the_gap_is_how_sure():
    said = await stage_comparer({"x": 0.5, "y": 2.0}).prefer("q", "x", "y")
    assert (said.winner, said.first_share) == ("B", 0.5 + (0.25 - 1.0) / 2)
    assert said.usage.calls == 3, "one proposal and two scorings"
    said = await stage_comparer({"x": 1.0, "y": 1.0}).prefer("q", "x", "y")
    assert (said.winner, said.first_share) == (None, 0.5)
    said = await stage_comparer({"x": 1.0, "y": None}).prefer("q", "x", "y")
    assert (said.winner, said.first_share) == (None, None)
    assert "the server is down" in said.reason
    said = await stage_comparer({"x": 0.5}).prefer("q", "", "x")
    assert said.winner == "B"


async def test_rubrics_that_are_kept_serve_every_pair_of_a_question():
    proposer = ScriptedProposer({Stage.ANSWER: (item("rule", kept=True),)})
    judge = StageJudge(proposer, ScriptedScorer(lambda run, stage, criterion: 1.0))
    comparer = GroupComparer(judge, keep=True)
    same = [comparer.prefer("q", "x", "x"), comparer.prefer("q", "x", "x")]
    await asyncio.gather(*same, comparer.prefer("other", "x", "x"))
    assert proposer.asked == ["q", "other"]


class FirstReader:
    """Gives the attempts shown these scores; None: it fails."""

    name = rubric_version = "reader"
    characters = 1000

    def __init__(self, scores: tuple[float, ...] | None) -> None:
        self.scores = scores
        self.seen: list[GroupText] = []

    async def read(self, question: str, text: GroupText, seed: int) -> Read:
        self.seen.append(text)
        if self.scores is None:
            raise JudgeError("it is silent", "Ask again.", Usage(calls=2))
        return Read(tuple((score, "so") for score in self.scores), Usage(calls=1))


def relative(reader: FirstReader) -> GroupComparer:
    return GroupComparer(RelativeJudge(reader, shuffled=False))


async def test_a_relative_judge_is_shown_answers_in_the_order_given_and_counts_its_cost():
    reader = FirstReader((0.2, 0.8))
    said = await relative(reader).prefer("q", "alpha", "beta")
    assert (said.winner, said.first_share) == ("B", pytest.approx(0.2))
    (seen,) = reader.seen
    assert "alpha" in seen.attempts[0] and "beta" in seen.attempts[1]
    said = await relative(FirstReader((0.7,))).prefer("q", "same", "same")
    assert (said.winner, said.first_share) == (None, 0.5)
    said = await ask_preference(relative(FirstReader(None)), "q", "x", "y")
    assert (said.winner, said.usage.calls) == (None, 2)
    assert "it is silent. Ask again." in said.reason


class Fixed:
    """A comparer that always says the same, and counts how many it is asked at once."""

    name = "fixed"

    def __init__(self, preference: Preference) -> None:
        self.preference = preference
        self.asked: list[tuple[str, str]] = []
        self.now = self.most = 0

    async def prefer(self, question: str, first: str, second: str) -> Preference:
        self.asked.append((first, second))
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return self.preference


async def test_a_swapped_pair_is_told_in_its_own_numbering():
    judge = Fixed(Preference("A", "why", first_share=0.75))
    given, swapped = [await compare_pair(judge, pair("p"), swap) for swap in (False, True)]
    assert judge.asked == [("one", "two"), ("two", "one")]
    assert (given.winner, given.share) == ("first", 0.75)
    assert (swapped.winner, swapped.share) == ("second", 0.25)


@pytest.mark.parametrize(("first_share", "winner"), [(0.5, "tie"), (None, None)])
async def test_undecided_is_a_tie_and_silent_is_no_verdict(
    first_share: float | None, winner: str | None
):
    comparison = await compare_pair(
        Fixed(Preference(None, "", first_share)), pair("p"), swapped=True
    )
    assert comparison.winner == winner


def test_kept_verdicts_come_back_and_a_cut_line_is_dropped(tmp_path: Path):
    path = tmp_path / "deep" / "kept.jsonl"
    first, second = said("a", "first", "tie")

    def kept() -> list[LabelledComparison]:
        return list(read_verdicts(path, [pair("a")]).held.values())

    read_verdicts(path, [pair("a")]).append(first)
    with path.open("a") as file:
        file.write('{"pair": "a", "swa')
    assert kept() == [first]
    read_verdicts(path, [pair("a")]).append(second)
    assert kept() == [first, second]
    read_verdicts(path, [pair("a")]).append(first.model_copy(update={"winner": "second"}))
    assert kept()[0].winner == "second", "of two on one order the later"


async def test_verdicts_of_another_judge_or_on_other_pairs_are_misuse(tmp_path: Path):
    data, path = tmp_path / "pairs.jsonl", tmp_path / "kept.jsonl"
    data.write_text('{"id": "a", "prompt": "q", "chosen": "x", "rejected": "y"}\n')
    verdict = LabelledComparison(pair="a", judge="one", winner="first")
    read_verdicts(path, [pair("a")]).append(verdict)
    with pytest.raises(SettingsError, match="verdicts of one, not of two"):
        await evaluate(Fixed(Preference("A", "")), data, judge="two", verdicts=path)
    with pytest.raises(SettingsError, match="speaks of 'a'"):
        read_verdicts(path, [pair("b")])


async def test_what_has_no_verdict_is_asked_for_again(tmp_path: Path):
    data, path = tmp_path / "pairs.jsonl", tmp_path / "kept.jsonl"
    data.write_text('{"id": "a", "prompt": "q", "chosen": "x", "rejected": "y"}\n')
    with pytest.raises(JudgeError, match="it is away"):
        vain = Fixed(Preference(None, "it is away", usage=PAID))
        await evaluate(vain, data, judge="one", verdicts=path)
    given = Fixed(Preference("A", "", usage=PAID))
    found = await evaluate(given, data, judge="one", verdicts=path)
    assert (found.measures.comparisons, found.measures.unparsed.hits) == (2, 0)
    assert found.usage == report_verdicts(data, path).usage == PAID + PAID + PAID + PAID
