"""Questions and how their answers are graded: our own lines, and public sets as published.

Our own format is JSON lines: `question`, and any of `id`, `answer` (a text, or a list of
alternatives), `pattern` (a regular expression, or a list with one for each fact), `gold` (titles or
places of the passages with the evidence), `rubric` (a list of `criterion` and `points`), `type`
(groups the results) and `unanswerable`.

Public sets are recognised by the fields of their first row: 2WikiMultihopQA (arXiv:2011.01060),
HotpotQA (arXiv:1809.09600) and MuSiQue (arXiv:2108.00573), whose passages are a closed corpus;
HealthBench (arXiv:2505.08775) and DeepResearch Bench (arXiv:2506.11763), which are graded upstream
by a large model, so that their figures here are not comparable (`incomparable`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import field_validator

from rubricem.agent.transcript.question import check_question
from rubricem.judge.buffers import conversation_text, read_rows, row_fault
from rubricem.judge.checklist import ChecklistItem
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.schema import Passage, Value
from rubricem.memory.text import digest_of

POINTS = 10
"""points of the heaviest possible criterion of DeepResearch Bench"""


class EvalQuestion(Value, coerce_numbers_to_str=True):
    """One question, and what its answer is graded by."""

    id: str = ""
    question: str
    answers: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    """one for each fact that the answer should state"""
    gold: tuple[str, ...] = ()
    """titles or places of the passages with the evidence"""
    rubric: tuple[ChecklistItem, ...] = ()
    type: str = ""
    unanswerable: bool = False
    """the right answer is that none was found"""

    @field_validator("answers", "patterns", "gold", "rubric", mode="before")
    @classmethod
    def _list(cls, value: Any) -> Any:
        """A single text becomes a list of one; a missing value becomes empty."""
        if value is None:
            return ()
        return (value,) if isinstance(value, str | int | float) else value

    @field_validator("patterns")
    @classmethod
    def _compile(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except (re.error, RecursionError, OverflowError) as error:
                raise ValueError(f"{pattern[:80]!r} is no regular expression: {error}") from error
        return patterns

    @classmethod
    def of_line(cls, row: Mapping[str, Any]) -> "EvalQuestion":
        """The question of a line of our own format. Raises ValueError if it is none."""
        return cls.model_validate(_own(dict(row))[0])

    @property
    def gradable(self) -> bool:
        graded = self.answers or self.patterns or self.gold or self.rubric
        return bool(graded) or self.unanswerable


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """The questions of one file."""

    format: str
    questions: tuple[EvalQuestion, ...]
    passages: tuple[Passage, ...] = ()

    @property
    def incomparable(self) -> str:
        """Why its figures are not comparable with published ones; "" if they are."""
        return INCOMPARABLE.get(self.format, "")

    @property
    def types(self) -> list[str]:
        """The questions' types in order; empty if there are fewer than two."""
        found = list(dict.fromkeys(question.type for question in self.questions))
        return found if len(found) > 1 else []

    def first(self, limit: int | None) -> "QuestionSet":
        return QuestionSet(self.format, self.questions[:limit], self.passages)

    def digest(self) -> str:
        told = "\n".join(question.model_dump_json() for question in self.questions)
        return digest_of(told, 24)

    @classmethod
    def read(cls, path: Path) -> "QuestionSet":
        """The questions of a file, in the format that its first row shows.

        Raises SettingsError for an empty file, an unknown format and repeated ids, StoreError for a
        file or row that cannot be read.
        """
        rows = read_rows(path, "no question", _OWN)
        fields = rows[0] if isinstance(rows[0], dict) else {}
        showing = (name for name, (signs, _) in _FORMATS.items() if signs <= fields.keys())
        form = next(showing, None)
        if form is None:
            shown = ", ".join(map(str, fields))[:200] or "no fields"
            raise SettingsError(
                f"The format of {path} is not known: its first row has {shown}.",
                f"Known are {', '.join(_FORMATS)}. {_OWN}",
            )
        reader = _FORMATS[form][1]
        asked = dict[str, int]()
        questions, passages = list[EvalQuestion](), dict[Passage, None]()
        for place, row in enumerate(rows, start=1):
            question, own = _read(reader, row, path, place)
            if question.id in asked:
                raise SettingsError(
                    f"Rows {asked[question.id]} and {place} of {path} have the same id "
                    f"{question.id!r}.",
                    "Give each question an id of its own, or leave one of the two out.",
                )
            asked[question.id] = place
            questions.append(question)
            passages |= dict.fromkeys(own)
        return cls(form, tuple(questions), tuple(passages))


Fields = dict[str, Any]
"""of an `EvalQuestion`, not validated yet"""


def _own(row: Fields) -> tuple[Fields, list[Passage]]:
    """A line of our own format, whose answers and patterns are named in the singular."""
    named = {"answer": "answers", "pattern": "patterns"}
    return {named.get(name, name): value for name, value in row.items()}, []


def _passage(title: str, text: str) -> Passage:
    return Passage(title=title, location=title, place="", text=text)


def _hops(row: Fields) -> tuple[Fields, list[Passage]]:
    """A row of HotpotQA or of 2WikiMultihopQA: pairs of a title, or the hub's columns."""
    facts, pairs = row["supporting_facts"], row.get("context") or ()
    named = facts["title"] if isinstance(facts, dict) else [fact[0] for fact in facts]
    if isinstance(pairs, dict):
        texts: list[Any] = pairs.get("sentences") or pairs.get("content") or []
        pairs = zip(pairs.get("title", []), texts, strict=False)
    found = [_passage(title, " ".join(one.strip() for one in held)) for title, held in pairs]
    own = {"id": row.get("id", row.get("_id", "")), "answers": row["answer"]}
    return {**row, **own, "gold": list(dict.fromkeys(map(str, named)))}, found


def _musique(row: Fields) -> tuple[Fields, list[Passage]]:
    """A row of MuSiQue; its type is the number of hops, with which its id begins.

    An unanswerable twin has its question's id, and its answer cannot be found.
    """
    held, answerable = row["paragraphs"], row.get("answerable", True)
    fields = {
        "id": row["id"] if answerable else f"{row['id']}-unanswerable",
        "question": row["question"],
        "answers": [row["answer"], *row.get("answer_aliases", ())] if answerable else [],
        "gold": list(dict.fromkeys(p["title"] for p in held if p.get("is_supporting"))),
        "type": row["id"].partition("__")[0],
        "unanswerable": not answerable,
    }
    return fields, [_passage(p["title"], p["paragraph_text"]) for p in held]


def _health(row: Fields) -> tuple[Fields, list[Passage]]:
    """A row of HealthBench; the theme among its tags is its type."""
    themes = [tag for tag in row.get("example_tags", ()) if tag.startswith("theme:")]
    fields = {
        "id": row.get("prompt_id", ""),
        "question": conversation_text(row["prompt"]),
        "rubric": row["rubrics"],
        "type": themes[0].removeprefix("theme:") if themes else "",
    }
    return fields, []


def _deepresearch(row: Fields) -> tuple[Fields, list[Passage]]:
    """A query of DeepResearch Bench, with its criteria if the row is from the criteria file.

    The weights of a dimension's criteria sum to 1.
    """
    weights = row.get("dimension_weight", {})
    items = [
        {
            "criterion": ": ".join(filter(None, (one["criterion"], one.get("explanation")))),
            "points": POINTS * weights.get(dimension, 1.0) * one["weight"],
        }
        for dimension, listed in row.get("criterions", {}).items()
        for one in listed
    ]
    fields = {
        "id": row["id"],
        "question": row["prompt"],
        "rubric": [item for item in items if item["points"] > 0],
        "type": row.get("topic") or row.get("language") or "",
    }
    return fields, []


Reader = Callable[[Fields], tuple[Fields, list[Passage]]]
_FORMATS: dict[str, tuple[set[str], Reader]] = {
    "2wiki": ({"question", "supporting_facts", "evidences"}, _hops),
    "hotpotqa": ({"question", "supporting_facts"}, _hops),
    "musique": ({"question", "paragraphs"}, _musique),
    "healthbench": ({"prompt", "rubrics"}, _health),
    "deepresearch": ({"prompt", "id"}, _deepresearch),
    "rubricem": ({"question"}, _own),
}
"""by name: the fields that identify a format (the first match counts), and what reads a row"""
INCOMPARABLE = {
    "healthbench": "HealthBench is graded upstream by GPT-4.1, here by the judge that was named",
    "deepresearch": "DeepResearch Bench is graded upstream by a large model against a reference "
    "report, here by the judge that was named and without one",
}
_OWN = 'Write lines such as {"question": "...", "answer": "..."}.'


def _read(reader: Reader, row: Any, path: Path, place: int) -> tuple[EvalQuestion, list[Passage]]:
    """A question with an id, and its passages; raises StoreError if it cannot be asked."""
    try:
        if not isinstance(row, dict):
            raise ValueError("it is no object")
        fields, passages = reader(row)
        question = EvalQuestion.model_validate(fields)
        text = check_question(question.question)
    except (SettingsError, ValueError, LookupError, TypeError, AttributeError) as error:
        said = f"row {place} of {path} cannot be asked: {row_fault(error)}"
        raise StoreError(said, "Fix the row, or leave it out.") from error
    identifier = question.id or digest_of(text, 12)
    return question.model_copy(update={"id": identifier, "question": text}), passages


def ungraded(questions: Sequence[EvalQuestion]) -> str:
    """A sentence if questions have nothing to grade an answer by; "" if all do."""
    missing = sum(not question.gradable for question in questions)
    if not missing:
        return ""
    named = "No question says" if missing == len(questions) else f"{missing} questions do not say"
    return (
        f"{named} what a right answer is (answer, pattern, gold, rubric, unanswerable): of them "
        "only searches, seconds and cites are reported."
    )
