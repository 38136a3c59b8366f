"""Labelled data for measuring a judge: pairs of answers of which the better one is known.

The public sets are read as published, a JSON list or one JSON object a line: LLMBar
(arXiv:2310.07641), JudgeBench (arXiv:2410.12784), chosen and rejected answers as in RewardBench
(arXiv:2403.13787), and RM-Bench with three styles of each (arXiv:2410.16184). A pair's `first` and
`second` are its own numbering, independent of the order of showing; if the data names a chosen and
a rejected answer, the chosen one is the first.

Raises SettingsError if a file has none of the formats, StoreError if it cannot be read or a row is
broken, with the number of the row.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from rubricem.judge.buffers import json_rows
from rubricem.memory.asking import first_fault
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.runs import writable
from rubricem.memory.schema import NO_USAGE, Usage, Value

Side = Literal["first", "second"]
Winner = Literal["first", "second", "tie"]


class LabelledTurn(Value):
    """One message of the conversation before the answer."""

    role: str
    content: str


class LabelledPair(Value):
    """Two answers to one prompt, and which is better."""

    id: str
    prompt: str
    first: str
    second: str
    better: Side
    subset: str = ""


class LabelledComparison(Value):
    """A judge's verdict on a pair shown in one order."""

    pair: str
    judge: str = ""
    swapped: bool = False
    """whether the pair's second answer was shown first"""
    winner: Winner | None = None
    """in the pair's own numbering; None: there was no verdict"""
    share: float | None = Field(default=None, ge=0, le=1)
    """the judge's confidence in the pair's first answer, 0.5 for neither; None: not given"""
    reason: str = ""
    text: str = ""
    """the text with the judge's verdict, if it wrote one; A in it is what was shown first"""
    usage: Usage = NO_USAGE

    @property
    def key(self) -> tuple[str, bool]:
        return self.pair, self.swapped


class LlmBarRow(BaseModel):
    """An instruction with two outputs; the label is the number of the better one."""

    input: str
    output_1: str
    output_2: str
    label: Literal[1, 2]

    def to_pairs(self, place: int) -> Iterator[LabelledPair]:
        better: Side = "first" if self.label == 1 else "second"
        texts = {"first": self.output_1, "second": self.output_2}
        yield LabelledPair(id=str(place), prompt=self.input, better=better, **texts)


class JudgeBenchRow(BaseModel):
    """A question with two responses of which one is correct."""

    pair_id: str
    question: str
    response_A: str
    response_B: str
    label: Literal["A>B", "B>A"]
    source: str = ""

    def to_pairs(self, place: int) -> Iterator[LabelledPair]:
        better: Side = "first" if self.label == "A>B" else "second"
        texts = {"first": self.response_A, "second": self.response_B, "subset": self.source}
        yield LabelledPair(id=self.pair_id, prompt=self.question, better=better, **texts)


class ChosenRow(BaseModel):
    """A chosen and a rejected answer: texts, or conversations that end in them."""

    prompt: str | list[LabelledTurn] = ""
    chosen: str | list[LabelledTurn]
    rejected: str | list[LabelledTurn]
    subset: str = ""
    id: str | int | None = None

    def to_pairs(self, place: int) -> Iterator[LabelledPair]:
        before = self.chosen[:-1] if isinstance(self.chosen, list) else []
        name = str(place if self.id is None else self.id)
        name = f"{self.subset}/{name}" if self.subset else name
        texts = {"first": _last(self.chosen), "second": _last(self.rejected)}
        texts |= {"prompt": conversation_text(self.prompt or before), "subset": self.subset}
        yield LabelledPair(id=name, better="first", **texts)


class RmBenchRow(BaseModel):
    """Chosen and rejected answers, each concise, detailed, and detailed with markdown.

    All nine comparisons are made; hard are those where the rejected answer is the fancier one.
    """

    prompt: str
    chosen: list[str] = Field(min_length=3, max_length=3)
    rejected: list[str] = Field(min_length=3, max_length=3)
    domain: str = ""
    id: str | int | None = None

    def to_pairs(self, place: int) -> Iterator[LabelledPair]:
        name = f"{self.domain}/{place if self.id is None else self.id}".removeprefix("/")
        for right, wrong in product(range(3), repeat=2):
            kind = "normal" if right == wrong else "hard" if right < wrong else "easy"
            texts = {"first": self.chosen[right], "second": self.rejected[wrong]}
            texts |= {"id": f"{name}/{right}{wrong}", "subset": f"{self.domain} {kind}".strip()}
            yield LabelledPair(prompt=self.prompt, better="first", **texts)


Row = LlmBarRow | JudgeBenchRow | ChosenRow | RmBenchRow


def form_of(row: object) -> type[Row] | None:
    """The format identified by a row's fields, or None."""
    fields = row if isinstance(row, dict) else {}
    chosen = fields.get("chosen")
    styled = isinstance(chosen, list) and all(isinstance(text, str) for text in chosen)
    signs: tuple[tuple[type[Row], set[str]], ...] = (
        (LlmBarRow, {"input", "output_1", "output_2"}),
        (JudgeBenchRow, {"response_A", "response_B"}),
        (RmBenchRow if styled else ChosenRow, {"chosen", "rejected"}),
    )
    return next((form for form, needed in signs if needed <= fields.keys()), None)


def conversation_text(prompt: str | Sequence[LabelledTurn]) -> str:
    """A prompt as one text: a single message as it is, several with the role before each."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1:
        return prompt[0].content
    return "\n\n".join(f"{turn.role}: {turn.content}" for turn in prompt)


def _last(answer: str | list[LabelledTurn]) -> str:
    if isinstance(answer, str):
        return answer
    return answer[-1].content if answer else ""


Form = TypeVar("Form", bound=BaseModel)
KNOWN = (
    "Known are rows of LLMBar, JudgeBench, RewardBench (prompt, chosen, rejected) and RM-Bench "
    "(three of each)."
)


def read_labelled(path: Path) -> list[LabelledPair]:
    """All pairs in the file, each with an id of its own: sets restart their numbering."""
    rows = read_rows(path)
    form = form_of(rows[0])
    if form is None:
        raise SettingsError(f"{path} holds no pairs of a known format.", KNOWN)
    found, seen = list[LabelledPair](), Counter[str]()
    for place, row in enumerate(rows, start=1):
        for pair in validate_row(form, row, path, place).to_pairs(place):
            seen[pair.id] += 1
            again = f"{pair.id}#{seen[pair.id]}"
            found.append(pair if seen[pair.id] == 1 else pair.model_copy(update={"id": again}))
    return found


def read_rows(path: Path) -> list[Any]:
    """The rows of a JSON list or of JSON lines; at least one."""
    try:
        with writable(path):
            text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise StoreError(f"{path} is no UTF-8 text.", "Name a .json or .jsonl file.") from error
    if rows := json_rows(text, str(path)):
        return rows
    raise SettingsError(f"{path} holds no rows.", KNOWN)


def validate_row(form: type[Form], row: object, path: Path, place: int) -> Form:
    """The row as a value of `form`; StoreError with its number if it is none."""
    try:
        return form.model_validate(row)
    except ValidationError as error:
        raise StoreError(
            f"row {place} of {path} cannot be read: {first_fault(error)}",
            "Fix the row, or leave it out.",
        ) from error
