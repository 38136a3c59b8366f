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
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from rubricem.judge.buffers import conversation_text, read_rows, row_fault
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.schema import NO_USAGE, Usage, Value

Side = Literal["first", "second"]
Winner = Literal["first", "second", "tie"]


class LabelledPair(Value):
    """Two answers to one prompt, and which is better."""

    id: str
    prompt: str
    first: str
    second: str
    better: Side = "first"
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


Row = Mapping[str, Any]
Reader = Callable[[Row, str], Iterator[LabelledPair]]
"""The pairs of a row at a place, counted from 1."""


def _numbered(prompt: str, first: str, second: str, labels: Mapping[Any, Side]) -> Reader:
    """Reads a row of two answers under these names, of which the label tells the better."""

    def read(row: Row, place: str) -> Iterator[LabelledPair]:
        if row["label"] not in labels:
            raise ValueError(f"its label is {row['label']!r}")
        yield LabelledPair(
            id=row.get("pair_id", place), prompt=row[prompt], first=row[first], second=row[second],
            better=labels[row["label"]], subset=row.get("source", ""),
        )  # fmt: skip

    return read


def _chosen(row: Row, place: str) -> Iterator[LabelledPair]:
    """A chosen and a rejected answer: texts, or conversations that end in them."""
    first, second = row["chosen"], row["rejected"]
    before = first[:-1] if isinstance(first, list) else []
    subset, prompt = row.get("subset", ""), row.get("prompt") or before
    name = str(place if row.get("id") is None else row["id"])
    yield LabelledPair(
        id=f"{subset}/{name}" if subset else name, prompt=conversation_text(prompt), subset=subset,
        first=_last(first), second=_last(second),
    )  # fmt: skip


def _styled(row: Row, place: str) -> Iterator[LabelledPair]:
    """Chosen and rejected answers, each concise, detailed, and detailed with markdown.

    All nine comparisons are made; hard are those where the rejected answer is the fancier one.
    """
    domain = row.get("domain", "")
    name = f"{domain}/{place if row.get('id') is None else row['id']}".removeprefix("/")
    if (len(row["chosen"]), len(row["rejected"])) != (3, 3):
        raise ValueError("it has not three chosen and three rejected answers")
    for right, wrong in product(range(3), repeat=2):
        kind = "normal" if right == wrong else "hard" if right < wrong else "easy"
        yield LabelledPair(
            id=f"{name}/{right}{wrong}", prompt=row["prompt"], subset=f"{domain} {kind}".strip(),
            first=row["chosen"][right], second=row["rejected"][wrong],
        )  # fmt: skip


_LLMBAR = _numbered("input", "output_1", "output_2", {1: "first", 2: "second"})
_JUDGEBENCH = _numbered("question", "response_A", "response_B", {"A>B": "first", "B>A": "second"})
KNOWN = (
    "Known are rows of LLMBar, JudgeBench, RewardBench (prompt, chosen, rejected) and RM-Bench "
    "(three of each)."
)


def reader_of(row: object) -> Reader | None:
    """What reads rows with the fields of this one; None if their format is not known."""
    fields = row if isinstance(row, dict) else {}
    chosen = fields.get("chosen")
    styled = isinstance(chosen, list) and all(isinstance(text, str) for text in chosen)
    readers: tuple[tuple[Reader, set[str]], ...] = (
        (_LLMBAR, {"input", "output_1", "output_2"}),
        (_JUDGEBENCH, {"response_A", "response_B"}),
        (_styled if styled else _chosen, {"chosen", "rejected"}),
    )
    return next((reader for reader, needed in readers if needed <= fields.keys()), None)


def _last(answer: str | Sequence[Row]) -> Any:
    return answer if isinstance(answer, str) else answer[-1]["content"]


def read_labelled(path: Path) -> list[LabelledPair]:
    """All pairs in the file, each with an id of its own: sets restart their numbering."""
    rows = read_rows(path, "no rows", KNOWN)
    if (reader := reader_of(rows[0])) is None:
        raise SettingsError(f"{path} holds no pairs of a known format.", KNOWN)
    found, seen = list[LabelledPair](), Counter[str]()
    for place, row in enumerate(rows, start=1):
        try:
            read = list(reader(row, str(place)))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            said = f"row {place} of {path} cannot be read: {row_fault(error)}"
            raise StoreError(said, "Fix the row, or leave it out.") from error
        for pair in read:
            seen[pair.id] += 1
            again = f"{pair.id}#{seen[pair.id]}"
            found.append(pair if seen[pair.id] == 1 else pair.model_copy(update={"id": again}))
    return found
