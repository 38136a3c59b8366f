"""Criteria written line by line: what is asked of the model, and which lines count."""

from collections.abc import Sequence

import pytest

from judge.line_proposer import LineProposer, criteria_of
from memory.errors import JudgeError
from memory.interfaces import Completion, Message, OnText, Sampling, StopPredicate
from memory.rubrics import RubricBuffer
from memory.schema import Stage
from tests.judged import QUESTION, run_of, varied

RUNS = [varied("a", "The least recently used."), varied("b", "The newest.")]


class LineModel:
    """A `TokenPolicy` with one token per character that always writes the same line."""

    name, version, context_tokens = "lines", "1", 8192

    def __init__(self, line: str) -> None:
        self.line = line
        self.asked: list[str] = []
        self.prefixes: list[str] = []
        self.samplings: list[Sampling] = []

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        self.asked.append(messages[-1].content)
        return tuple(map(ord, "\n".join(m.content for m in messages)))

    async def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    async def complete(
        self,
        prefix: Sequence[int],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        self.prefixes.append("".join(map(chr, prefix)))
        self.samplings.append(sampling)
        end = stop(self.line) if stop else None
        reason = "length" if end is None else "stop"
        return Completion(text=self.line[:end], stop_reason=reason)  # type: ignore[arg-type]


async def test_each_stage_is_asked_with_its_excerpts_and_goes_on_line_by_line():
    model = LineModel(" Says which entry it will evict. And more")
    buffer = RubricBuffer(question=QUESTION)
    proposed = await LineProposer(model).contrast(RUNS, buffer, 0)
    assert len(model.asked) == 4, "one prompt for each stage"
    assert "The newest." in model.asked[-1] and "The newest." not in model.asked[0]
    assert model.prefixes[0].endswith("GOOD:")
    assert model.prefixes[1].endswith("GOOD: Says which entry it will evict.\nGOOD:")
    answer = proposed.criteria[Stage.ANSWER]
    assert [(c.description, c.positive) for c in answer] == [
        ("Says which entry it will evict.", True)
    ]
    assert len({sampling.seed for sampling in model.samplings}) == len(model.samplings)


async def test_no_criteria_are_asked_for_a_stage_that_no_run_wrote():
    model = LineModel(" Says which entry it will evict.\n")
    answers = [run_of({Stage.ANSWER: text}) for text in ("The oldest.", "The newest.")]
    proposed = await LineProposer(model).contrast(answers, RubricBuffer(question=QUESTION), 0)
    assert (len(model.asked), set(proposed.criteria)) == (1, {Stage.ANSWER})


async def test_the_same_step_asks_with_the_same_seeds_and_another_with_others():
    async def seeds(step: int) -> list[int | None]:
        model = LineModel(" Says what it will evict.\n")
        await LineProposer(model).contrast(RUNS, RubricBuffer(question=QUESTION), step)
        return [sampling.seed for sampling in model.samplings]

    assert await seeds(1) == await seeds(1) != await seeds(2)


async def test_lines_that_break_off_are_no_criteria():
    with pytest.raises(JudgeError, match="no usable criterion"):
        await LineProposer(LineModel(" Says that the entry which")).from_question(QUESTION)


async def test_criteria_from_the_question_are_persistent():
    proposed = await LineProposer(LineModel(" Names what lru_cache keeps.\n")).from_question(
        QUESTION
    )
    assert all(c.persistent for criteria in proposed.criteria.values() for c in criteria)


def test_only_lines_that_can_be_checked_count_each_once():
    lines = [
        ("GOOD", "Says that the lru_cache drops an entry."),
        ("GOOD", "says that the lru_cache drops an entry."),
        ("GOOD", "Says why."),
        ("GOOD", "Says it in the <answer> tag of the answer."),
        ("GOOD", "Says more than the weaker attempt does."),
        ("GOOD", "Says how does lru_cache evict?"),
        ("GOOD", "Explains that lru_cache is atomic."),
        ("FLAW", "Says that the lru_cache drops the newest."),
    ]
    found = criteria_of(lines, QUESTION, "", persistent=False)  # type: ignore[arg-type]
    assert [(c.description, c.positive) for c in found] == [
        (lines[0][1], True), (lines[-1][1], False),
    ]  # fmt: skip


def test_a_word_of_the_prompts_example_counts_where_the_runs_speak_of_it():
    line = ("GOOD", "Explains that lru_cache is atomic.")
    found = criteria_of([line], QUESTION, "It is atomic.", persistent=False)  # type: ignore[list-item]
    assert [c.description for c in found] == [line[1]]
