"""Scores read from probabilities: the reads by a fake, the order of answers by the real 0.5B."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from agent.llama import LlamaConfig, LlamaPolicy
from judge.building import stage_judge
from judge.choice_judge import ITEM_TOKENS, ChoiceScorer, fitted
from memory.errors import JudgeError, PolicyError
from memory.interfaces import Message
from memory.rubrics import RubricBuffer
from memory.schema import Author, Segment, Stage
from tests.judged import QUESTION, WHOLE, group_of, item, run_of, varied

RULE = item("Names the least recently used entry.")
SIZE = item("Names the size.", positive=False)


class FixedReader:
    """A `ChoiceReader` with one token a character, that always gives the same probabilities."""

    name, version = "fixed", "1"

    def __init__(self, *given: float, context_tokens: int = 8192) -> None:
        self.given = given
        self.context_tokens = context_tokens
        self.read: list[str] = []

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return await self.encode("\n".join(message.content for message in messages))

    async def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    async def weigh(self, prefix: Sequence[int], options: Sequence[str]) -> tuple[float, ...]:
        assert options == ("Yes", "yes", "No", "no")
        self.read.append("".join(map(chr, prefix)))
        await asyncio.sleep(0)
        return self.given


async def test_points_are_twice_the_probability_of_yes_in_either_case():
    reader = FixedReader(0.5, 0.25, 0.2, 0.05)
    scored = await ChoiceScorer(reader).score(run_of(), {Stage.ANSWER: (RULE, SIZE)})
    verdicts = scored.verdicts[Stage.ANSWER]
    assert [v.points for v in verdicts] == [1.5, 1.5], "a flaw's points are not turned round"
    assert [v.criterion for v in verdicts] == [RULE, SIZE]
    assert verdicts[0].justification == "The least recently used entry goes first."
    assert verdicts[1].justification == "", "no sentence shares a word with it"
    assert {v.justified_by for v in verdicts} == {"code"}
    assert scored.usage.calls == 2


async def test_all_items_of_a_trajectory_share_one_long_beginning():
    reader = FixedReader(1, 0, 0, 0)
    await ChoiceScorer(reader).score(run_of(), {Stage.PLAN: (RULE,), Stage.ANSWER: (RULE, SIZE)})
    before = await fitted(reader, run_of())
    assert all(before in read for read in reader.read)
    assert all(text in before for text in (QUESTION, *WHOLE.values()))
    assert reader.read[1].endswith(
        "Look at the answer stage (answering the question).\n"
        "Statement: Names the least recently used entry.\n"
        'The closest sentence there: "The least recently used entry goes first."\n'
        "Sources it cites: none.\n"
        "Does the statement hold of what the agent wrote in the answer stage? Yes or No?"
    )


async def test_trajectories_take_turns_so_that_each_keeps_its_cache():
    reader = FixedReader(1, 0, 0, 0)
    scorer = ChoiceScorer(reader)
    runs = [varied("a", "The first text."), varied("b", "The second text.")]
    await asyncio.gather(*(scorer.score(run, {Stage.ANSWER: (RULE, SIZE)}) for run in runs))
    assert ["The first text." in read for read in reader.read] == [True, True, False, False]


async def test_a_long_trajectory_is_cut_to_the_context():
    tool = Segment(author=Author.TOOL, stage=Stage.RESEARCH, turn=1, text="word " * 4000)
    reader = FixedReader(1, 0, 0, 0, context_tokens=3000)
    text = await fitted(reader, run_of(extra=[tool]))
    assert len(text) <= 3000 - ITEM_TOKENS
    assert all(own in text for own in WHOLE.values()), "tool output goes first"


async def test_a_question_that_fills_the_context_cannot_be_judged():
    with pytest.raises(JudgeError, match="fills the judge's context"):
        await fitted(FixedReader(1, 0, 0, 0, context_tokens=600), run_of())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model(weights_05b: Path) -> AsyncIterator[LlamaPolicy]:
    loaded = await LlamaPolicy.load(weights_05b, "0.5b", "v", LlamaConfig(2048, 1))
    yield loaded
    await loaded.aclose()


@pytest.mark.model
@pytest.mark.asyncio(loop_scope="module")
async def test_the_model_prefers_the_true_option(model: LlamaPolicy):
    asked = await model.render([Message("user", "Is fire cold? Reply with Yes or No only.")])
    yes, no = await model.weigh(asked, ("Yes", "No"))
    assert yes + no == pytest.approx(1) and no > yes
    assert await model.weigh(asked, ("No", "Yes")) == pytest.approx((no, yes), abs=1e-3)


@pytest.mark.model
@pytest.mark.asyncio(loop_scope="module")
async def test_an_option_far_down_the_vocabulary_still_has_its_share(model: LlamaPolicy):
    asked = await model.render([Message("user", "Is fire hot? Reply with Yes or No only.")])
    likely, rare = await model.weigh(asked, ("Yes", "zymurgy"))
    assert 0 < rare < 1e-3 < likely


@pytest.mark.model
@pytest.mark.asyncio(loop_scope="module")
async def test_options_that_begin_alike_cannot_be_told_apart(model: LlamaPolicy):
    with pytest.raises(PolicyError, match="same token"):
        await model.weigh((1,), ("Yes", "Yes, but"))


@pytest.mark.model
@pytest.mark.asyncio(loop_scope="module")
async def test_a_prefix_beyond_the_context_is_refused(model: LlamaPolicy):
    with pytest.raises(PolicyError, match="refused the request"):
        await model.weigh((100,) * 3000, ("Yes", "No"))


@pytest.mark.model
@pytest.mark.asyncio(loop_scope="module")
async def test_the_real_judge_puts_the_better_of_two_answers_first(model: LlamaPolicy):
    """Criteria that are there already, so that scoring alone is tried; both runs are scored."""
    criteria = (
        item("Says that the least recently used entry is evicted.", 3, kept=True),
        item("Says that maxsize=None lets the cache grow without bound.", kept=True),
    )
    buffer = RubricBuffer(question=QUESTION, persistent={Stage.ANSWER: criteria})
    better = varied(
        "better",
        "<answer>The least recently used entry is evicted. With maxsize=None the cache grows "
        "without bound.</answer>",
    )
    worse = varied("worse", "<answer>The cache stores results to make calls faster.</answer>")
    silent = {stage: text for stage, text in WHOLE.items() if stage is not Stage.ANSWER}
    judge = stage_judge(model)
    scores = [
        (await judge.judge(group_of(run), buffer)).judgements[0]
        for run in (better, worse, run_of(silent, "silent"))
    ]
    values = [judgement.score(Stage.ANSWER) for judgement in scores]
    assert all(value is not None for value in values)
    assert values == sorted(values, key=lambda v: v or 0, reverse=True)
    assert values[2] == 0 and scores[2].stages[-1].missing
    first = scores[0].stages[-1].verdicts[0]
    assert first.justification == "The least recently used entry is evicted."
    assert first.justified_by == "code" and 0 < first.points < 2
    assert scores[0].usage.calls == 2
