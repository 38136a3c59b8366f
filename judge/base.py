"""What all judges share: scores of stages, of answers and of groups, and how a model is asked.

    R = (sum over positive items w * s / 2 + sum over negative items w * (2 - s) / 2) / sum of w

with weights w > 0 and points s in [0, 2], so R is in [0, 1] (RubricEM, arXiv:2605.10899,
appendix C). A stage that the policy left out scores 0 and counts as missing. One that was cut
off by others, that has no criterion, or that the judge failed on is unscored: that is no 0. A
judge of whole answers reads a run's answer and nothing else; the other stages have no criteria
then, and are left out of every sum.

Models write scores on whatever scale they choose. Numbers, texts of numbers, fractions such as
"8/10" and percentages are read, and brought to [0, 1] for a whole group: plain numbers share one
scale, told from the largest: to 1.5 it is 1, to 10 it is 10, to 100 it is 100.
"""

import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from rubricem.judge.transcripts import cut_off, stage_text, written
from rubricem.memory import text
from rubricem.memory.errors import JudgeError, PolicyError
from rubricem.memory.interfaces import ChoiceReader, Message, TokenReader
from rubricem.memory.rubrics import RubricBuffer
from rubricem.memory.schema import (
    NO_USAGE,
    Criterion,
    Judgement,
    Stage,
    StageScore,
    Trajectory,
    Usage,
    Value,
    Verdict,
)

Done = TypeVar("Done")


class TrajectoryScore(Value):
    """One trajectory as one judge saw it. The judge says which range its scores have."""

    trajectory_id: str
    judge: str
    score: float | None = Field(default=None, allow_inf_nan=False)
    explanation: str = ""
    unscored_reason: str = ""
    spread: float | None = None
    """population standard deviation over repeated scorings, where there were any"""


class GroupScores(Value):
    """A group as one judge saw it."""

    scores: tuple[TrajectoryScore, ...]
    """one for each trajectory, in their order"""
    notes: tuple[str, ...] = ()
    """what did not work, and what limits the scores, in sentences"""
    usage: Usage = NO_USAGE
    """of all calls, failed ones included"""


def unread(trajectory: Trajectory, stage: Stage) -> StageScore | None:
    """The score of a stage that nobody has to read, or None where one has to.

    It is unscored where others ended it, and 0 where the policy ended without it.
    """
    if reason := cut_off(trajectory, stage):
        return StageScore(stage=stage, unscored_reason=reason)
    if not written(trajectory, stage):
        said = "The policy ended without this stage."
        return StageScore(stage=stage, score=0.0, missing=True, justification=said)
    return None


NO_CRITERIA = "no criteria"
"""the reason of a stage that is left out of every sum it would enter, rather than unknown"""
Standard = Mapping[Stage, tuple[Criterion, ...]]
"""the criteria to score a trajectory on, by stage; none of them empty"""


@dataclass(frozen=True, slots=True)
class Scored:
    """What a scorer found of one trajectory: for each criterion a verdict, in order."""

    verdicts: Mapping[Stage, tuple[Verdict, ...]]
    usage: Usage = NO_USAGE
    spread: Mapping[Stage, float] = field(default_factory=dict)
    """of the stages' scores, where there were several scorings"""


class Scorer(Protocol):
    """Scores one trajectory on given criteria. Raises JudgeError or PolicyError if it cannot."""

    @property
    def name(self) -> str: ...

    async def score(self, trajectory: Trajectory, standard: Standard) -> Scored: ...


def without_criteria(score: StageScore | None) -> bool:
    """Whether the stage has no score because its rubric says nothing: nobody failed at it."""
    return score is not None and score.score is None and score.unscored_reason == NO_CRITERIA


def stage_reward(verdicts: Sequence[Verdict]) -> float:
    """R of at least one verdict, in [0, 1]."""
    total = sum(v.criterion.weight for v in verdicts)
    gained = sum(
        v.criterion.weight * (v.points if v.criterion.positive else 2 - v.points) / 2
        for v in verdicts
    )
    return gained / total


def settled(trajectory: Trajectory, stage: Stage, buffer: RubricBuffer) -> StageScore | None:
    """The score of a stage that no scorer has to read, or None where one has to."""
    if not cut_off(trajectory, stage) and not buffer.criteria(stage):
        return StageScore(stage=stage, unscored_reason=NO_CRITERIA)
    return unread(trajectory, stage)


def stage_scores(
    trajectory: Trajectory, buffer: RubricBuffer, scored: Scored | None, failure: str
) -> tuple[StageScore, ...]:
    """One score a stage, in order; `failure` is why `scored` is None."""
    return tuple(
        settled(trajectory, stage, buffer) or _read(stage, scored, failure) for stage in Stage
    )


def _read(stage: Stage, scored: Scored | None, failure: str) -> StageScore:
    verdicts = scored.verdicts.get(stage, ()) if scored else ()
    if not verdicts:
        return StageScore(stage=stage, unscored_reason=f"{FAILED}: {failure}")
    spread = scored.spread.get(stage) if scored else None
    return StageScore(stage=stage, score=stage_reward(verdicts), verdicts=verdicts, spread=spread)


ONE, TEN, HUNDRED = 1.5, 10.0, 100.0
"""the largest plain number that speaks for a scale to 1, to 10 and to 100"""
_NUMBER = r"([+-]?\d+(?:\.\d+)?|[+-]?\.\d+)"
_FRACTION = re.compile(rf"{_NUMBER}\s*(?:/|out of|of)\s*{_NUMBER}", re.I)
_PERCENT = re.compile(rf"{_NUMBER}\s*%")
_ID = re.compile(r"\W*(?:attempt|trajectory|id)?[\s_#-]*(\d+)\W*", re.I)


@dataclass(frozen=True, slots=True)
class Raw:
    """A number as written; `scaled`: it named its own scale."""

    value: float
    scaled: bool = False


def raw_score(value: Any) -> Raw:
    """Raises ValueError for what is no finite number."""
    if isinstance(value, Raw):
        return value
    if isinstance(value, str):
        return _read_form(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("the score must be a number from 0 to 1")
    return Raw(_finite(value))


def in_unit_range(scores: Sequence[Raw]) -> list[float]:
    """Scores of one group in [0, 1]. Raises ValueError where their scale cannot be told."""
    plain = [score.value for score in scores if not score.scaled]
    most = max(plain, default=0.0)
    if most > HUNDRED:
        raise ValueError("the scores must be numbers from 0 to 1")
    scale = 1.0 if most <= ONE else TEN if most <= TEN else HUNDRED
    if scale > 1 and any(0 < value < 1 for value in plain):
        raise ValueError("the scores are on different scales; each must be from 0 to 1")
    return [min(max(s.value if s.scaled else s.value / scale, 0.0), 1.0) for s in scores]


def plain_id(value: Any) -> str:
    """An attempt's number however it was written; what holds none stays as it is."""
    match = _ID.fullmatch(str(value))
    return str(int(match.group(1))) if match else str(value)


class GivenScore(BaseModel):
    """One entry of a reply."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    id: Annotated[str, BeforeValidator(plain_id), WithJsonSchema({"type": "string"})]
    explanation: Annotated[str, BeforeValidator(lambda value: value or "")] = ""
    score: Annotated[Raw, BeforeValidator(raw_score), WithJsonSchema({"type": "number"})] = Field()


def id_fault(given: Sequence[str], wanted: Sequence[str]) -> str:
    """What is wrong with the ids of a reply, or ""."""
    if sorted(given) == sorted(wanted):
        return ""
    missing = [name for name in wanted if name not in given]
    twice = sorted({name for name in given if given.count(name) > 1})
    foreign = sorted(set(given) - set(wanted))
    parts = {"missing": missing, "more than once": twice, "unknown": foreign}
    told = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts.items() if names)
    return f"it needs exactly {len(wanted)} entries, one for each id, and has {len(given)} ({told})"


def _read_form(text: str) -> Raw:
    if match := _FRACTION.fullmatch(text):
        value, scale = map(float, match.groups())
        if scale <= 0:
            raise ValueError(f"{text!r} is no score")
        return Raw(_finite(value / scale), scaled=True)
    if match := _PERCENT.fullmatch(text):
        return Raw(_finite(float(match.group(1)) / 100), scaled=True)
    try:
        return Raw(_finite(float(text)))
    except ValueError:
        raise ValueError("the score must be a number from 0 to 1") from None


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("the score must be a finite number from 0 to 1")
    return float(value)


CHARACTERS = 60_000
"""of answers in one call, some 15,000 tokens"""
QUESTION_CHARACTERS = 20_000


def answer_text(trajectory: Trajectory) -> str:
    return stage_text(trajectory, Stage.ANSWER)


def settled_answer(trajectory: Trajectory) -> StageScore | None:
    """The score of an answer that nobody has to read, or None where one has to."""
    return unread(trajectory, Stage.ANSWER)


def unscored(reason: str) -> StageScore:
    return StageScore(stage=Stage.ANSWER, unscored_reason=reason)


def scored(score: float, why: str, verdicts: Sequence[Verdict] = ()) -> StageScore:
    """A score of the answer, in [0, 1]."""
    return StageScore(stage=Stage.ANSWER, score=score, justification=why, verdicts=tuple(verdicts))


def answer_judgement(
    trajectory: Trajectory,
    judge: str,
    answer: StageScore,
    version: str = "",
    usage: Usage = NO_USAGE,
) -> Judgement:
    """A judgement in which the answer alone is scored."""
    others = (StageScore(stage=s, unscored_reason=NO_CRITERIA) for s in Stage)
    return Judgement(
        trajectory_id=trajectory.id,
        judge=judge,
        rubric_version=version,
        stages=tuple(answer if s.stage is Stage.ANSWER else s for s in others),
        usage=usage,
    )


FAILED = "the judge failed"
"""how the reason of a stage begins that the judge was to score and did not"""


def failure_notes(judgements: Iterable[Judgement]) -> list[str]:
    """A sentence for each trajectory that the judge failed on."""
    reasons = ((j.trajectory_id, [s.unscored_reason for s in j.stages]) for j in judgements)
    failed = ((name, [r for r in said if r.startswith(FAILED)]) for name, said in reasons)
    return [f"{name}: {said[0]}" for name, said in failed if said]


async def outcome(work: Awaitable[Done]) -> Done | JudgeError | PolicyError:
    """What comes of asking a model, or the error that it ended in."""
    try:
        return await work
    except (JudgeError, PolicyError) as error:
        return error


prompt = partial(text.prompt, "judge")
"""the text of a prompt in `judge/prompts`, by its name"""


def instructed(name: str, asked: str) -> list[Message]:
    """What is asked, under the prompt of a name."""
    return [Message("system", prompt(name)), Message("user", asked)]


async def fit_messages(
    reader: TokenReader,
    messages_of: Callable[[int], Sequence[Message]],
    spare: int,
    what: str = "the question alone fills",
) -> tuple[int, tuple[int, ...]]:
    """The most characters for which the messages leave `spare` tokens, and the messages' ids.

    `messages_of` makes messages that hold so many characters of what may be cut. Raises
    JudgeError where `what` may not be cut does not fit.
    """
    most = reader.context_tokens - spare
    return await text.fit(
        lambda characters: reader.render(messages_of(characters)),
        most,
        most * 4,
        JudgeError(
            f"{what} the judge's context",
            "Raise context_tokens, or judge with a server's model.",
        ),
    )


async def chance_of_yes(
    reader: ChoiceReader, messages: Sequence[Message]
) -> tuple[float, tuple[int, ...]]:
    """How likely the reader goes on with Yes rather than No, in [0, 1]; and what it read."""
    prefix = await reader.render(messages)
    upper, lower, *_ = await reader.weigh(prefix, ("Yes", "yes", "No", "no"))
    return upper + lower, prefix


def read_usage(prefix: Sequence[int]) -> Usage:
    """Of one read by a model of this machine."""
    return Usage(prompt_tokens=len(prefix), cost=0.0, calls=1)
