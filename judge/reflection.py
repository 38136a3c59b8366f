"""How good a reflection is as guidance for later runs: three scores for each candidate.

The judge sees what the writer did not: the scores of the run's stages with their reasons, and a
person's rating if there is one. It scores the reflection, not the run (RubricEM, arXiv:2605.10899,
appendix D). A candidate with an invalid form scores 0, like a stage that the policy left out; one
that was cut off by a limit, or on which the judge failed, is unscored, which is not 0.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Annotated

from pydantic import BeforeValidator, Field

from rubricem.judge.base import instruct, outcome, render_run, render_stage, sight_of
from rubricem.judge.evidence import without_repeats
from rubricem.judge.readers import ChoiceSeries, Score, on_scale, scale_of
from rubricem.memory.asking import ReplyForm, Valid, ask_entries
from rubricem.memory.runs import BEST, Rating
from rubricem.memory.schema import (
    ChatModel,
    ChoiceReader,
    Judgement,
    ReflectionCandidate,
    ReflectionScore,
    Stage,
    StageScore,
    Trajectory,
)
from rubricem.memory.screening import words_of
from rubricem.memory.text import cut, fence, without_markers

REMARK = 1000
"""characters of a person's remark that are shown"""
SUSPICION = 200
"""characters of suspicious text that are kept"""
QUOTED_SHARE = 0.8
"""share of its words that must be the review's: judges also write "none" there"""
STATEMENTS: Mapping[str, str] = {
    "diagnostic_accuracy": "The review says what was wrong or right with this very answer.",
    "specificity": "Somebody could act on this review, as it says what to look up and what to "
    "state.",
    "scope_and_balance": "Somebody with a similar question would do better after reading this "
    "review.",
}
MINIMUM = 0.5
"""total score from which a reflection may enter the bank"""
READ_MINIMUM = 0.4
"""the same if scores are probabilities read from a small model, which says No too often

Measured on the 0.5B with two hand-made pairs: pointed reviews 0.42 and 0.43, general advice 0.38
and 0.42. That is a weak judge; a server's model is a better one.
"""

Candidates = Sequence[ReflectionCandidate]
Scores = Sequence[ReflectionScore | str]
"""for each candidate a score, or why it has none"""


@dataclass(frozen=True, slots=True)
class Known:
    """What a judge knows of the run that was reflected on."""

    trajectory: Trajectory
    judgement: Judgement | None = None
    rating: Rating | None = None
    """a person's, if somebody rated the answer"""
    beside: Trajectory | None = None
    """a run that came out worse, which the review holds against it"""


class ReflectionJudge(ABC):
    """Scores all candidates of one trajectory."""

    minimum: float
    """total score from which a candidate may enter the bank"""

    async def score(
        self,
        trajectory: Trajectory,
        judgement: Judgement | None,
        candidates: Candidates,
        seed: int = 0,
        *,
        rating: Rating | None = None,
        beside: Trajectory | None = None,
    ) -> tuple[ReflectionCandidate, ...]:
        """The candidates in order, each with a score or the reason why it has none.

        `seed` determines the order in which a judge that sees all of them at once sees them.
        """
        readable = [c for c in candidates if not c.fault and not c.unscored_reason]
        if not readable:
            return tuple(_with_score(c, iter(())) for c in candidates)
        known = Known(trajectory, judgement, rating, beside)
        found = await outcome(self._read(known, readable, seed))
        given = iter(found) if isinstance(found, Sequence) else repeat(str(found))
        return tuple(_with_score(c, given) for c in candidates)

    @abstractmethod
    async def _read(self, known: Known, candidates: Candidates, seed: int) -> Scores:
        """Of candidates of valid form. Raises JudgeError or PolicyError if it cannot."""


class GivenReflectionScore(ReplyForm):
    """One entry of a chat judge's reply."""

    id: str
    justification: str = Field(min_length=1)
    diagnostic_accuracy: Score
    specificity: Score
    scope_and_balance: Score
    suspicion: Annotated[
        str, BeforeValidator(lambda x: " ".join(map(str, x if isinstance(x, list) else [x or ""])))
    ] = ""

    @property
    def numbers(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in STATEMENTS}

    def score(self, candidate: ReflectionCandidate, scale: float) -> ReflectionScore:
        """The scores for this candidate; a suspicion counts only if it quotes the candidate."""
        quoted = words_of(self.suspicion)
        own = frozenset(words_of(f"{candidate.rubrics} {candidate.takeaways}"))
        holds = len(quoted) > 1 and sum(word in own for word in quoted) >= QUOTED_SHARE * len(
            quoted
        )
        told: dict[str, str | float]
        told = {"suspicion": cut(self.suspicion, SUSPICION) if holds else ""}
        told |= {name: on_scale(number, scale) for name, number in self.numbers.items()}
        return ReflectionScore.model_validate(self.model_dump(exclude={"id"}) | told)


class GivenReviews(ReplyForm):
    """The reply's form."""

    reviews: Valid[GivenReflectionScore]


def _scale(entries: Sequence[GivenReflectionScore | None]) -> float:
    return scale_of([number for one in entries if one for number in one.numbers.values()])


class ChatReflectionJudge(ReflectionJudge):
    """A chat server's: one call for all candidates, in a shuffled order."""

    minimum = MINIMUM

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    async def _read(self, known: Known, candidates: Candidates, seed: int) -> Scores:
        order = random.Random(seed).sample(range(len(candidates)), len(candidates))
        names = [str(number) for number in range(1, len(order) + 1)]
        reviews = [review(candidates[i], name) for name, i in zip(names, order, strict=True)]
        run = known.trajectory.transcript()
        room = max(sight_of(self._model, run) - sum(map(len, reviews)), 1)
        messages = instruct("reflection", material(known, room), *reviews)
        given = await ask_entries(self._model, messages, GivenReviews, names, check=_scale)
        scale = _scale(given.found)
        scores = {
            i: one.score(candidates[i], scale) if one else given.fault
            for i, one in zip(order, given.found, strict=True)
        }
        return [scores[i] for i in range(len(candidates))]


class ChoiceReflectionJudge(ReflectionJudge):
    """By probabilities: one yes/no read for each of three statements.

    No more of the run is shown than question, answer and scores: after the whole of it the 0.5B
    ranked the one good review last of three.
    """

    minimum = READ_MINIMUM

    def __init__(self, reader: ChoiceReader) -> None:
        self._series = ChoiceSeries(reader)

    async def _read(self, known: Known, candidates: Candidates, seed: int) -> Scores:
        questions = [
            f"{review(candidate)}\n\nStatement: {statement}\n"
            "Does this hold of the review? Yes or No?"
            for candidate in candidates
            for statement in STATEMENTS.values()
        ]
        read, _ = await self._series.yes(
            "reflection_choice",
            partial(short_material, known),
            questions,
            "the reflection and the scores alone fill",
        )
        chances = iter(read)
        return [
            ReflectionScore.model_validate({name: next(chances) for name in STATEMENTS})
            for _ in candidates
        ]


def material(known: Known, characters: int) -> str:
    """The context of every candidate: question, runs in this many characters, scores."""
    run, worse = known.trajectory, known.beside
    shown = render_run(run, characters // 2 if worse else characters)
    other = render_run(without_repeats(run, worse), characters // 2) if worse else ""
    told = [f"A run that came out worse:\n{other}"] if other else []
    return "\n\n".join([fence({"question": run.question}), shown, *told, *_remarks_on(known)])


def short_material(known: Known, characters: int) -> str:
    run = known.trajectory
    answer = render_stage(run, Stage.ANSWER, characters)
    return "\n\n".join([fence({"question": run.question, "answer": answer}), *_remarks_on(known)])


def _remarks_on(known: Known) -> list[str]:
    """The judge's and the person's words on the run, as far as there are any."""
    said = {}
    if known.judgement is not None:
        said["scores"] = "\n".join(map(scores, known.judgement.stages))
    if known.rating is not None:
        rating = f"{known.rating.score} of {BEST}, where {BEST} is best."
        said["a person's rating"] = f"{rating}\n{cut(known.rating.comment, REMARK)}".strip()
    return [fence(said)] if said else []


def scores(stage: StageScore) -> str:
    """A stage's score and its parts, one line for each criterion."""
    if stage.score is None:
        return f"{stage.stage}: not scored ({stage.unscored_reason})"
    lines = [f"{stage.stage}: {stage.score:.2f} of 1. {stage.justification}".strip()]
    for verdict in stage.verdicts:
        flaw = "" if verdict.criterion.positive else " (flaw)"
        said = f" - {verdict.justification}" if verdict.justified_by == "judge" else ""
        lines.append(f"- {verdict.points:.1f} of 2{flaw}: {verdict.criterion.title}{said}")
    return "\n".join(lines)


def review(candidate: ReflectionCandidate, name: str = "") -> str:
    """A candidate as shown to a judge."""
    text = without_markers(f"{candidate.rubrics}\n\nTakeaways:\n{candidate.takeaways}")
    return fence({f"review {name}".strip(): text})


def _with_score(
    candidate: ReflectionCandidate, given: Iterator[ReflectionScore | str]
) -> ReflectionCandidate:
    if candidate.unscored_reason:
        return candidate
    if candidate.fault:
        nothing = ReflectionScore(
            diagnostic_accuracy=0, specificity=0, scope_and_balance=0, justification=candidate.fault
        )
        return candidate.model_copy(update={"score": nothing})
    if isinstance(found := next(given), str):
        return candidate.model_copy(update={"unscored_reason": f"the judge failed: {found}"})
    return candidate.model_copy(update={"score": found})
