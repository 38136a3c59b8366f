"""The rubrics of one question as they evolve: what counts now, what was retired, and why.

A buffer is a value: the judge makes a new one of it, and its caller saves that at a step's end.
Persistent criteria came with the question, or were made from it before any run was seen, and
are never pruned; active ones were proposed by contrasting runs (RubricEM, arXiv:2605.10899,
appendix C).
"""

import hashlib
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from memory.schema import Criterion, Stage, Value

ChangeKind = Literal["added", "returned", "retired", "pinned"]


class RubricChange(Value):
    """One line of a buffer's history."""

    version: int
    """of the buffer that the change led to"""
    step: int
    stage: Stage
    kind: ChangeKind
    criterion: Criterion
    reason: str


Criteria = Mapping[Stage, tuple[Criterion, ...]]
"""by stage; a stage without any may be left out"""


class RubricBuffer(Value):
    """Every criterion of one question. A version counts each set of changes made at once."""

    question: str
    version: int = 0
    persistent: Criteria = Field(default_factory=dict)
    active: Criteria = Field(default_factory=dict)
    retired: Criteria = Field(default_factory=dict)
    """those that are no longer scored, the latest last"""
    history: tuple[RubricChange, ...] = ()

    @property
    def id(self) -> str:
        """Names the question: its hash."""
        return question_id(self.question)

    def at(self, version: int) -> "RubricBuffer":
        """The buffer as it was at an earlier version, replayed from its history."""
        buffer = RubricBuffer(question=self.question)
        for change in self.history:
            if change.version <= version:
                buffer = buffer._after(change)
        return buffer

    def _after(self, change: RubricChange) -> "RubricBuffer":
        """With one change made, on whichever shelves the criterion stood."""
        shelves: dict[str, dict[Stage, tuple[Criterion, ...]]] = {
            "persistent": dict(self.persistent),
            "active": dict(self.active),
            "retired": dict(self.retired),
        }
        stage, criterion = change.stage, change.criterion
        for shelf in shelves.values():
            if stage in shelf:
                shelf[stage] = tuple(c for c in shelf[stage] if not same(c, criterion))
        kept = "persistent" if criterion.persistent else "active"
        place = shelves["retired" if change.kind == "retired" else kept]
        place[stage] = (*place.get(stage, ()), criterion)
        history = (*self.history, change)
        return self.model_copy(update={**shelves, "version": change.version, "history": history})

    def criteria(self, stage: Stage) -> tuple[Criterion, ...]:
        """What this stage is scored on: the persistent ones, then the active ones."""
        return self.persistent.get(stage, ()) + self.active.get(stage, ())

    @property
    def label(self) -> str:
        """Names what is scored now: the version, and a hash of the criteria in force."""
        keys = [f"{stage}:{c.key}:{c.weight}" for stage in Stage for c in self.criteria(stage)]
        return f"{self.version}-{hashlib.sha256(' '.join(keys).encode()).hexdigest()[:8]}"


def question_id(question: str) -> str:
    return hashlib.sha256(question.encode()).hexdigest()[:24]


def meaning(criterion: Criterion) -> str:
    """What a criterion says, without case, punctuation and sign."""
    text = f"{criterion.title} {criterion.description}".casefold()
    return " ".join("".join(c if c.isalnum() else " " for c in text).split())


def same(one: Criterion, other: Criterion) -> bool:
    return meaning(one) == meaning(other)
