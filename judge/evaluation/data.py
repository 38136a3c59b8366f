"""Labelled data for measuring a judge, and recorded verdicts: pairs, single criteria, checklists.

The public sets are read as published, a JSON list or one JSON object a line: LLMBar
(arXiv:2310.07641), JudgeBench (arXiv:2410.12784), chosen and rejected answers as in RewardBench
(arXiv:2403.13787), RM-Bench with three styles of each (arXiv:2410.16184), and HealthBench's answers
with checklists and physicians' labels (arXiv:2505.08775). A pair's `first` and `second` are its own
numbering, independent of the order of showing; if the data names a chosen and a rejected answer,
the chosen one is the first.

Recorded verdicts are our own lines, or result files: LLMBar's name the winner in the unswapped
numbering, in the order of the data; JudgeBench's second judgement names it as shown, that is,
swapped.

Raises SettingsError if a file has none of the formats, StoreError if it cannot be read or a row is
broken, with the number of the row.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, Field, ValidationError

from rubricem.judge.buffers import json_rows
from rubricem.judge.checklist import ChecklistItem
from rubricem.memory.asking import first_fault
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.runs import writable
from rubricem.memory.schema import NO_USAGE, Usage, Value

Side = Literal["first", "second"]
Winner = Literal["first", "second", "tie"]
Style = Literal[0, 1, 2]
"""of an RM-Bench answer: concise, detailed, detailed with markdown"""


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
    styles: tuple[Style, Style] | None = None
    """of the chosen and of the rejected answer; RM-Bench only"""


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


class LabelledCriterion(Value):
    """One criterion of one answer, and whether each physician found it met (HealthBench)."""

    id: str
    conversation: tuple[LabelledTurn, ...]
    completion: str
    criterion: str
    labels: tuple[bool, ...] = Field(min_length=1)
    subset: str = ""


class ListedAnswer(Value):
    """One answer with the checklist of its prompt (HealthBench), without labels."""

    id: str
    conversation: tuple[LabelledTurn, ...]
    completion: str
    items: tuple[ChecklistItem, ...] = Field(min_length=1)
    tags: tuple[str, ...] = ()


class LabelledMark(Value):
    """Whether a judge found a criterion met; None: there was no verdict."""

    item: str
    """the id of a labelled criterion, or that of a listed answer with the item's number: x/1"""
    judge: str = ""
    met: bool | None = None
    reason: str = ""
    usage: Usage = NO_USAGE


MIRRORED: Mapping[Winner | None, Winner] = {"first": "second", "second": "first"}
"""a winner or verdict in the numbering of the other order; others stay as they are"""


Labelled = LabelledPair | LabelledCriterion | ListedAnswer


class LlmBarRow(BaseModel):
    """An instruction with two outputs; the label is the number of the better one."""

    input: str
    output_1: str
    output_2: str
    label: Literal[1, 2]

    def to_items(self, place: int) -> list[LabelledPair]:
        return [
            LabelledPair(
                id=str(place),
                prompt=self.input,
                first=self.output_1,
                second=self.output_2,
                better="first" if self.label == 1 else "second",
            )
        ]


class JudgeBenchRow(BaseModel):
    """A question with two responses of which one is correct."""

    pair_id: str
    question: str
    response_A: str
    response_B: str
    label: Literal["A>B", "B>A"]
    source: str = ""

    def to_items(self, place: int) -> list[LabelledPair]:
        return [
            LabelledPair(
                id=self.pair_id,
                prompt=self.question,
                first=self.response_A,
                second=self.response_B,
                better="first" if self.label == "A>B" else "second",
                subset=self.source,
            )
        ]


class ChosenRow(BaseModel):
    """A chosen and a rejected answer: texts, or conversations that end in them."""

    prompt: str | list[LabelledTurn] = ""
    chosen: str | list[LabelledTurn]
    rejected: str | list[LabelledTurn]
    subset: str = ""
    id: str | int | None = None

    def to_items(self, place: int) -> list[LabelledPair]:
        before = self.chosen[:-1] if isinstance(self.chosen, list) else []
        return [
            LabelledPair(
                id="/".join(
                    filter(None, (self.subset, str(place if self.id is None else self.id)))
                ),
                prompt=conversation_text(self.prompt or before),
                first=_last(self.chosen),
                second=_last(self.rejected),
                better="first",
                subset=self.subset,
            )
        ]


class RmBenchRow(BaseModel):
    """Three chosen and three rejected answers in styles 0 to 2: nine comparisons."""

    prompt: str
    chosen: list[str] = Field(min_length=3, max_length=3)
    rejected: list[str] = Field(min_length=3, max_length=3)
    domain: str = ""
    id: str | int | None = None

    def to_items(self, place: int) -> list[LabelledPair]:
        name = f"{self.domain}/{place if self.id is None else self.id}".removeprefix("/")
        styles: tuple[Style, ...] = get_args(Style)
        return [
            LabelledPair(
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

    prompt: list[LabelledTurn]
    completion: str
    rubric: str
    binary_labels: list[bool] = Field(min_length=1)
    category: str = ""

    def to_items(self, place: int) -> list[LabelledCriterion]:
        return [
            LabelledCriterion(
                id=str(place),
                conversation=tuple(self.prompt),
                completion=self.completion,
                criterion=self.rubric,
                labels=tuple(self.binary_labels),
                subset=self.category,
            )
        ]


class _Ideal(BaseModel):
    ideal_completion: str


class HealthBenchRow(BaseModel):
    """A prompt with its checklist, and an answer: a model's `completion`, or the ideal one."""

    prompt: list[LabelledTurn]
    rubrics: list[ChecklistItem] = Field(min_length=1)
    completion: str = ""
    ideal_completions_data: _Ideal | None = None
    prompt_id: str | None = None
    example_tags: list[str] = []

    def to_items(self, place: int) -> list[ListedAnswer]:
        """Empty if the row has no answer."""
        ideal = self.ideal_completions_data.ideal_completion if self.ideal_completions_data else ""
        if not (self.completion or ideal):
            return []
        return [
            ListedAnswer(
                id=self.prompt_id or str(place),
                conversation=tuple(self.prompt),
                completion=self.completion or ideal,
                items=tuple(self.rubrics),
                tags=tuple(self.example_tags),
            )
        ]


Row = LlmBarRow | JudgeBenchRow | ChosenRow | RmBenchRow | PhysiciansRow | HealthBenchRow


def form_of(row: object) -> type[Row] | None:
    """The format identified by a row's fields, or None."""
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


def conversation_text(prompt: str | list[LabelledTurn] | tuple[LabelledTurn, ...]) -> str:
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
Kind = TypeVar("Kind", LabelledPair, LabelledCriterion, ListedAnswer)

KNOWN = (
    "Known are rows of LLMBar, JudgeBench, RewardBench (prompt, chosen, rejected), RM-Bench "
    "(three of each), and of HealthBench: prompts with rubrics and a completion, or its meta "
    "evaluation (completion, rubric, binary_labels)."
)


@dataclass(frozen=True, slots=True)
class LabelledData:
    """The contents of a file: one of the three."""

    pairs: tuple[LabelledPair, ...] = ()
    criteria: tuple[LabelledCriterion, ...] = ()
    answers: tuple[ListedAnswer, ...] = ()

    @property
    def checkable(self) -> tuple[LabelledCriterion | ListedAnswer, ...]:
        """What a judge marks item by item."""
        return self.criteria or self.answers


def read_labelled(path: Path) -> LabelledData:
    """All labelled data in the file, each with an id of its own."""
    rows = read_rows(path)
    form = form_of(rows[0])
    if form is None:
        raise SettingsError(f"{path} holds none of the labelled formats.", KNOWN)
    read: list[Labelled] = []
    for place, row in enumerate(rows, start=1):
        read += validate_row(form, row, path, place).to_items(place)
    if not read:
        raise SettingsError(f"{path} holds prompts without answers.", "Add a `completion` to each.")
    return LabelledData(
        pairs=_apart([one for one in read if isinstance(one, LabelledPair)]),
        criteria=_apart([one for one in read if isinstance(one, LabelledCriterion)]),
        answers=_apart([one for one in read if isinstance(one, ListedAnswer)]),
    )


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


def _apart(listed: Sequence[Kind]) -> tuple[Kind, ...]:
    """The same with unique ids: sets restart their numbering in each part."""
    seen: Counter[str] = Counter()
    apart = []
    for one in listed:
        seen[one.id] += 1
        again = seen[one.id]
        apart.append(one if again == 1 else one.model_copy(update={"id": f"{one.id}#{again}"}))
    return tuple(apart)


NAMED: dict[str | None, Winner] = {"A>B": "first", "B>A": "second", "A=B": "tie"}
NUMBERED: dict[str, Winner] = {"1": "first", "2": "second"}


class _LlmBarWinner(BaseModel):
    winner: str | int | None = None


class _LlmBarResult(BaseModel):
    given: _LlmBarWinner = Field(alias="swap = False")
    swapped: _LlmBarWinner = Field(alias="swap = True")


class _LlmBarRow(BaseModel):
    label: Literal[1, 2]
    results: list[Any] = Field(min_length=1)

    def result(self) -> _LlmBarResult:
        """Multi-turn evaluators store their questions before it: the last one that fits counts."""
        for value in reversed(self.results):
            try:
                return _LlmBarResult.model_validate(value)
            except ValidationError:
                continue
        raise ValueError("no result names winners")


class _JudgeBenchJudgement(BaseModel):
    decision: str | None = None


class _JudgeBenchRow(BaseModel):
    pair_id: str
    judgments: list[_JudgeBenchJudgement | None] = Field(min_length=1, max_length=2)


def read_comparisons(path: Path, pairs: Sequence[LabelledPair]) -> list[LabelledComparison]:
    """Recorded comparisons of these pairs, at most one for each order."""
    rows = read_rows(path)
    first = rows[0] if isinstance(rows[0], dict) else {}
    if "results" in first and "label" in first:
        read = _llmbar(rows, path, pairs)
    elif "judgments" in first:
        read = _judgebench(rows, path)
    else:
        read = [
            validate_row(LabelledComparison, row, path, place) for place, row in enumerate(rows, 1)
        ]
    _check({c.pair for c in read}, {pair.id for pair in pairs}, path)
    return list({(c.pair, c.swapped): c for c in read}.values())


def read_marks(path: Path, items: Iterable[str]) -> list[LabelledMark]:
    """Recorded marks of the items with these ids, at most one for each."""
    read = [
        validate_row(LabelledMark, row, path, place) for place, row in enumerate(read_rows(path), 1)
    ]
    _check({mark.item for mark in read}, set(items), path)
    return list({mark.item: mark for mark in read}.values())


def _llmbar(
    rows: Sequence[object], path: Path, pairs: Sequence[LabelledPair]
) -> list[LabelledComparison]:
    if len(rows) != len(pairs):
        raise _foreign(path, f"it has {len(rows)} results, the data {len(pairs)} pairs")
    read = []
    for place, (row, pair) in enumerate(zip(rows, pairs, strict=True), start=1):
        parsed = validate_row(_LlmBarRow, row, path, place)
        if (parsed.label == 1) != (pair.better == "first"):
            raise _foreign(path, f"the label of its row {place} is not that of the data")
        try:
            result = parsed.result()
        except ValueError as error:
            raise StoreError(f"row {place} of {path} cannot be read: {error}") from error
        for swapped, given in ((False, result.given), (True, result.swapped)):
            read.append(_comparison(pair.id, swapped, NUMBERED.get(str(given.winner))))
    return read


def _judgebench(rows: Sequence[object], path: Path) -> list[LabelledComparison]:
    read = []
    for place, row in enumerate(rows, start=1):
        parsed = validate_row(_JudgeBenchRow, row, path, place)
        for swapped, judgement in zip((False, True), parsed.judgments, strict=False):
            said = NAMED.get(judgement.decision) if judgement else None
            winner = MIRRORED.get(said, said) if swapped else said
            read.append(_comparison(parsed.pair_id, swapped, winner))
    return read


def _comparison(pair: str, swapped: bool, winner: Winner | None) -> LabelledComparison:
    reason = "" if winner else "no verdict is recorded"
    return LabelledComparison(pair=pair, swapped=swapped, winner=winner, reason=reason)


def _check(named: set[str], known: set[str], path: Path) -> None:
    if strange := sorted(named - known):
        raise _foreign(path, f"it speaks of {strange[0]!r}, which the data does not hold")


def _foreign(path: Path, why: str) -> SettingsError:
    return SettingsError(
        f"{path} was not recorded on this data: {why}.",
        "Name the data it was recorded on, or another --recorded file.",
    )
