"""Rows of the public sets of labelled judgements, as they are published.

LLMBar (arXiv:2310.07641), JudgeBench (arXiv:2410.12784), chosen and rejected answers as in
RewardBench (arXiv:2403.13787), RM-Bench with three styles of each (arXiv:2410.16184), and
HealthBench's answers with checklists
and physicians' labels (arXiv:2505.08775). Each row says what it is in our values.
"""

from typing import Literal, get_args

from pydantic import BaseModel, Field

from judge.checklist import ChecklistItem
from judge.evaluation.labelled import LabelledCriterion, ListedAnswer, Pair, Style, Turn

Labelled = Pair | LabelledCriterion | ListedAnswer


class LlmBarRow(BaseModel):
    """An instruction with two outputs; the label is the number of the better one."""

    input: str
    output_1: str
    output_2: str
    label: Literal[1, 2]

    def labelled(self, place: int) -> list[Pair]:
        better: Literal["first", "second"] = "first" if self.label == 1 else "second"
        pair = Pair(
            id=str(place),
            prompt=self.input,
            first=self.output_1,
            second=self.output_2,
            better=better,
        )
        return [pair]


class JudgeBenchRow(BaseModel):
    """A question with two responses of which one is correct."""

    pair_id: str
    question: str
    response_A: str
    response_B: str
    label: Literal["A>B", "B>A"]
    source: str = ""

    def labelled(self, place: int) -> list[Pair]:
        pair = Pair(
            id=self.pair_id,
            prompt=self.question,
            first=self.response_A,
            second=self.response_B,
            better="first" if self.label == "A>B" else "second",
            subset=self.source,
        )
        return [pair]


class ChosenRow(BaseModel):
    """A chosen and a rejected answer: texts, or conversations that end in them."""

    prompt: str | list[Turn] = ""
    chosen: str | list[Turn]
    rejected: str | list[Turn]
    subset: str = ""
    id: str | int | None = None

    def labelled(self, place: int) -> list[Pair]:
        before = self.chosen[:-1] if isinstance(self.chosen, list) else []
        pair = Pair(
            id="/".join(filter(None, (self.subset, str(place if self.id is None else self.id)))),
            prompt=conversation_text(self.prompt or before),
            first=_last(self.chosen),
            second=_last(self.rejected),
            better="first",
            subset=self.subset,
        )
        return [pair]


class RmBenchRow(BaseModel):
    """Three chosen and three rejected answers in styles 0 to 2: nine comparisons."""

    prompt: str
    chosen: list[str] = Field(min_length=3, max_length=3)
    rejected: list[str] = Field(min_length=3, max_length=3)
    domain: str = ""
    id: str | int | None = None

    def labelled(self, place: int) -> list[Pair]:
        name = f"{self.domain}/{place if self.id is None else self.id}".removeprefix("/")
        styles: tuple[Style, ...] = get_args(Style)
        return [
            Pair(
                id=f"{name}/{right}{wrong}",
                prompt=self.prompt,
                first=self.chosen[right],
                second=self.rejected[wrong],
                better="first",
                subset=self.domain,
                styles=(right, wrong),
            )
            for right in styles
            for wrong in styles
        ]


class PhysiciansRow(BaseModel):
    """A criterion of one completion, with what each physician said of it."""

    prompt: list[Turn]
    completion: str
    rubric: str
    binary_labels: list[bool] = Field(min_length=1)
    category: str = ""

    def labelled(self, place: int) -> list[LabelledCriterion]:
        item = LabelledCriterion(
            id=str(place),
            conversation=tuple(self.prompt),
            completion=self.completion,
            criterion=self.rubric,
            labels=tuple(self.binary_labels),
            subset=self.category,
        )
        return [item]


class _Ideal(BaseModel):
    ideal_completion: str


class HealthBenchRow(BaseModel):
    """A prompt with its checklist, and an answer: a model's `completion`, or the ideal one."""

    prompt: list[Turn]
    rubrics: list[ChecklistItem] = Field(min_length=1)
    completion: str = ""
    ideal_completions_data: _Ideal | None = None
    prompt_id: str | None = None
    example_tags: list[str] = []

    def labelled(self, place: int) -> list[ListedAnswer]:
        """Nothing where the row has no answer."""
        ideal = self.ideal_completions_data.ideal_completion if self.ideal_completions_data else ""
        if not (self.completion or ideal):
            return []
        answer = ListedAnswer(
            id=self.prompt_id or str(place),
            conversation=tuple(self.prompt),
            completion=self.completion or ideal,
            items=tuple(self.rubrics),
            tags=tuple(self.example_tags),
        )
        return [answer]


Row = LlmBarRow | JudgeBenchRow | ChosenRow | RmBenchRow | PhysiciansRow | HealthBenchRow


def form_of(row: object) -> type[Row] | None:
    """The format that a row's fields show, or None where they show none."""
    fields = set(row) if isinstance(row, dict) else set()
    chosen = row.get("chosen") if isinstance(row, dict) else None
    styled = isinstance(chosen, list) and all(isinstance(text, str) for text in chosen)
    signs: tuple[tuple[type[Row], set[str]], ...] = (
        (LlmBarRow, {"input", "output_1", "output_2"}),
        (JudgeBenchRow, {"response_A", "response_B"}),
        (RmBenchRow if styled else ChosenRow, {"chosen", "rejected"}),
        (PhysiciansRow, {"completion", "rubric", "binary_labels"}),
        (HealthBenchRow, {"prompt", "rubrics"}),
    )
    return next((form for form, needed in signs if needed <= fields), None)


def conversation_text(prompt: str | list[Turn] | tuple[Turn, ...]) -> str:
    """A prompt as one text: a lone message as it is, more with the role before each."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1:
        return prompt[0].content
    return "\n\n".join(f"{turn.role}: {turn.content}" for turn in prompt)


def _last(answer: str | list[Turn]) -> str:
    if isinstance(answer, str):
        return answer
    return answer[-1].content if answer else ""
