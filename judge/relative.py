"""The relative judge: all attempts of a group in one call, each scored against the others.

The attempts share one prompt: what they have in common is sent once, and each is shown under a
number that a recorded seed has shuffled; scores return by that number. A second pass shows them
in the opposite order, and the mean of both is the score. The idea is that of RULER (OpenPipe,
2025). A model scores by writing JSON, or by its probabilities. A judge that fails leaves the
group unscored with the reason, never at 0.

Where other judges stand its lists of scores become judgements of stages. A list is what the
attempts of a group come to against one another, and stands for one stage of them. Either one list
is of whole runs, and stands for the answer, whose score training spreads over the other stages;
or each stage has a list of its own, made of what the runs wrote in it and read in a call of its
own.
"""

import asyncio
import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Protocol

from pydantic import BaseModel, model_validator

from rubricem.judge.base import (
    FAILED,
    NO_CRITERIA,
    GivenScore,
    GroupScores,
    TrajectoryScore,
    id_fault,
    in_unit_range,
    instructed,
    outcome,
    prompt,
    read_usage,
    unread,
)
from rubricem.judge.stage import GroupJudgement
from rubricem.judge.stage_readers import expected
from rubricem.judge.transcripts import group_text, stage_segments, unreadable
from rubricem.memory.asking import TRIES, ask_json, spent
from rubricem.memory.errors import JudgeError
from rubricem.memory.interfaces import ChatModel, ChoiceReader, Message
from rubricem.memory.rubrics import RubricBuffer
from rubricem.memory.schema import (
    NO_USAGE,
    Judgement,
    Stage,
    StageScore,
    Status,
    Trajectory,
    TrajectoryGroup,
    Usage,
)
from rubricem.memory.text import cut, fenced, fill, fit

CHARACTERS = 60_000
"""of attempts shown in one call, some 15,000 tokens"""
LARGE = 8
"""attempts beyond which judges are known to lose the overview"""
ALONE = "A lone attempt was scored by itself: there was nothing to hold it against."
MANY = f"{{shown}} attempts are many for one call: judges are steadier on groups of 4 to {LARGE}."
IDENTICAL = "All attempts are the same: one was scored, and its score is everyone's."


@dataclass(frozen=True, slots=True)
class Attempts:
    """What a reader is shown, in the order of the numbers 1, 2, ..."""

    question: str
    shared: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """A score in [0, 1] and an explanation for each attempt, in the order shown."""

    scores: tuple[tuple[float, str], ...]
    usage: Usage = NO_USAGE


class AttemptReader(Protocol):
    """Scores attempts against one another. Raises JudgeError or PolicyError if it cannot."""

    @property
    def name(self) -> str: ...

    @property
    def rubric_version(self) -> str:
        """Names the standards it holds attempts to."""
        ...

    @property
    def characters(self) -> int:
        """Of attempts that it can be shown at once."""
        ...

    async def read(self, attempts: Attempts, seed: int) -> Read: ...


class RelativeScores(GroupScores):
    """Scores in [0, 1] of one group, and how it was shown."""

    seed: int = 0
    orders: tuple[tuple[int, ...], ...] = ()
    """for each pass that counts, the places in the group in the order shown"""
    order_effect: float | None = None
    """mean distance between the scores of two passes; None for one pass"""


Pass = tuple[tuple[int, ...], Read]


class RelativeJudge:
    """Judges groups with one reader. `passes`: 2 shows each group in the opposite order too."""

    def __init__(self, reader: AttemptReader, passes: int = 1) -> None:
        if passes not in (1, 2):
            raise ValueError("a group is read once, or twice in opposite orders")
        self._reader = reader
        self.name = reader.name
        self._passes = passes

    @property
    def rubric_version(self) -> str:
        return self._reader.rubric_version

    async def judge(self, group: TrajectoryGroup, seed: int = 0) -> RelativeScores:
        """One score for each trajectory, in their order; raises nothing for a judge that failed."""
        reasons = unreadable(group.trajectories)
        places = [i for i, reason in enumerate(reasons) if not reason]
        if not places:
            return self._scores(group, reasons, [], [], NO_USAGE, seed)
        together: dict[str, list[int]] = {}
        for place in places:
            together.setdefault(group.trajectories[place].transcript(), []).append(place)
        # Those that say the same are shown once, and its score is everyone's.
        twins = list(together.values())
        readable = [group.trajectories[same[0]] for same in twins]
        text = group_text(readable, self._reader.characters)
        read, faults, usage = await self._read(group.question, text.shared, text.attempts, seed)
        given = [
            {place: s for i, s in zip(order, one.scores, strict=True) for place in twins[i]}
            for order, one in read
        ]
        for place in places:
            reasons[place] = "" if given else f"{FAILED}: {faults[0]}"
        if given and len(twins) == 1:
            faults = [IDENTICAL if len(places) > 1 else ALONE, *faults]
        elif given and len(twins) > LARGE:
            faults = [MANY.format(shown=len(twins)), *faults]
        return self._scores(group, reasons, given, faults, usage, seed)

    async def _read(
        self, question: str, shared: str, texts: Sequence[str], seed: int
    ) -> tuple[list[Pass], list[str], Usage]:
        """The passes that worked, the faults of those that did not, and what all cost."""
        orders = orders_of(len(texts), seed, self._passes)
        tasks = [
            self._reader.read(Attempts(question, shared, tuple(texts[i] for i in order)), seed)
            for order in orders
        ]
        passes, faults, usage = list[Pass](), list[str](), NO_USAGE
        for order, found in zip(orders, await asyncio.gather(*map(outcome, tasks)), strict=True):
            if isinstance(found, Read):
                passes.append((order, found))
                usage += found.usage
            else:
                faults.append(found.told())
                usage += spent(found)
        return passes, faults, usage

    def _scores(
        self,
        group: TrajectoryGroup,
        reasons: Sequence[str],
        passes: Sequence[Mapping[int, tuple[float, str]]],
        notes: Sequence[str],
        usage: Usage,
        seed: int,
    ) -> RelativeScores:
        """`passes`: the scores of each that counts, by place, in the order shown."""
        given = [
            [one[place] for one in passes if place in one]
            for place in range(len(group.trajectories))
        ]
        scores = tuple(
            _score(trajectory, self.name, found, reason)
            for trajectory, found, reason in zip(group.trajectories, given, reasons, strict=True)
        )
        gaps = [abs(found[0][0] - found[1][0]) for found in given if len(found) == 2]
        return RelativeScores(
            scores=scores,
            notes=tuple(notes),
            usage=usage,
            seed=seed,
            orders=tuple(map(tuple, passes)),
            order_effect=fmean(gaps) if gaps else None,
        )


def orders_of(count: int, seed: int, passes: int) -> list[tuple[int, ...]]:
    """A shuffled order, and its opposite for a second pass; one attempt has one order."""
    order = tuple(random.Random(seed).sample(range(count), count))
    return [order, order[::-1]][: passes if count > 1 else 1]


def _score(
    trajectory: Trajectory, judge: str, found: Sequence[tuple[float, str]], reason: str
) -> TrajectoryScore:
    numbers = [score for score, _ in found]
    return TrajectoryScore(
        trajectory_id=trajectory.id,
        judge=judge,
        score=fmean(numbers) if numbers else None,
        explanation=found[0][1] if found else "",
        unscored_reason="" if numbers else reason,
        spread=pstdev(numbers) if len(numbers) > 1 else None,
    )


_TASK = (
    "The attempts show one stage alone of work on the task below: its {stage}. Hold them to what "
    "that stage is for.\n\n{question}"
)


@dataclass(frozen=True, slots=True)
class Attempted:
    """The attempts of one list, and the stage that it stands for."""

    stage: Stage
    read: TrajectoryGroup
    settled: Mapping[str, StageScore] = field(default_factory=dict)
    """of those that nobody has to read, by the trajectory's id; they are in nobody's comparison"""


@dataclass(frozen=True, slots=True)
class ListedAttempt:
    """A list's scores by the trajectory's id, notes, and what its calls cost."""

    stage: Stage
    scores: Mapping[str, StageScore]
    notes: tuple[str, ...] = ()
    usage: Usage = NO_USAGE


class RelativeGroups:
    """A `RelativeJudge` that judges groups as the stage judge does; it uses no buffer."""

    def __init__(self, judge: RelativeJudge, seed: int = 0, *, by_stage: bool = False) -> None:
        self._judge = judge
        self.name = judge.name
        self._seed = seed
        self._by_stage = by_stage

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement:
        """One judgement for each trajectory; the seed of its order stands in the version.

        A judge that fails leaves the stage of its list unscored. The usage is the group's, since
        one call is about all runs.
        """
        seed = self._seed + step
        whole = Attempted(Stage.ANSWER, group)
        lists = [_stage_of(group, stage) for stage in Stage] if self._by_stage else [whole]
        found = await asyncio.gather(*(self._listed(one, seed) for one in lists))
        version = f"{self._judge.rubric_version} seed {seed}"
        return GroupJudgement(
            judgements=tuple(
                Judgement(
                    trajectory_id=trajectory.id,
                    judge=self.name,
                    rubric_version=version,
                    # A stage that no list stands for has no criteria.
                    stages=tuple(
                        next(
                            (one.scores[trajectory.id] for one in found if one.stage is stage),
                            StageScore(stage=stage, unscored_reason=NO_CRITERIA),
                        )
                        for stage in Stage
                    ),
                )
                for trajectory in group.trajectories
            ),
            buffer=buffer,
            notes=tuple(
                f"{one.stage}: {note}" if self._by_stage else note
                for one in found
                for note in one.notes
            ),
            usage=sum((one.usage for one in found), NO_USAGE),
        )

    async def _listed(self, one: Attempted, seed: int) -> ListedAttempt:
        if not one.read.trajectories:
            return ListedAttempt(one.stage, one.settled)
        result = await self._judge.judge(one.read, seed)
        effect = result.order_effect
        notes = [] if effect is None else [f"The order shown moved scores by {effect:.2f}."]
        read = {
            score.trajectory_id: StageScore(
                stage=one.stage,
                score=score.score,
                justification=score.explanation,
                unscored_reason=score.unscored_reason,
                spread=score.spread,
            )
            for score in result.scores
        }
        return ListedAttempt(
            one.stage, {**one.settled, **read}, (*result.notes, *notes), result.usage
        )


def _stage_of(group: TrajectoryGroup, stage: Stage) -> Attempted:
    """What the runs wrote in the stage, as if it were all of them and had come to its end."""
    known = {trajectory.id: unread(trajectory, stage) for trajectory in group.trajectories}
    ended = {"status": Status.FINISHED, "reason": "", "cut_in": None}
    alone = tuple(
        t.model_copy(update={"segments": tuple(stage_segments(t, stage)), **ended})
        for t in group.trajectories
        if known[t.id] is None
    )
    question = _TASK.format(stage=stage.value, question=group.question)
    settled = {name: score for name, score in known.items() if score is not None}
    return Attempted(stage, TrajectoryGroup(question=question, trajectories=alone), settled)


DIGITS = tuple("0123456789")
CHARACTERS_A_TOKEN = 3
ASKED_TOKENS = 200
"""left free for the question about one attempt"""


class ChatAttemptReader:
    """An `AttemptReader` over a chat server: one call for the whole group."""

    def __init__(
        self,
        model: ChatModel,
        rubric: str = "",
        tries: int = TRIES,
        characters: int = CHARACTERS,
    ) -> None:
        self._model = model
        self.name = model.name
        self._rubric = rubric.strip() or prompt("relative_rubric")
        self._tries = tries
        self.characters = characters

    @property
    def rubric_version(self) -> str:
        return version_of(self._rubric)

    async def read(self, attempts: Attempts, seed: int) -> Read:
        names = [str(number) for number in range(1, len(attempts.texts) + 1)]

        class Scores(BaseModel):
            """The reply: exactly one entry for each number, on one scale."""

            scores: list[GivenScore]

            @model_validator(mode="after")
            def _whole(self) -> "Scores":
                if fault := id_fault([given.id for given in self.scores], names):
                    raise ValueError(fault)
                in_unit_range([given.score for given in self.scores])
                return self

        system = fill(prompt("relative"), {"rubric": self._rubric})
        messages = [Message("system", system), Message("user", shown(attempts))]
        reply, usage = await ask_json(self._model, messages, Scores, self._tries, seed=seed)
        ordered = sorted(reply.scores, key=lambda given: int(given.id))
        values = in_unit_range([given.score for given in ordered])
        said = (given.explanation for given in ordered)
        return Read(tuple(zip(values, said, strict=True)), usage)


class ChoiceAttemptReader:
    """An `AttemptReader` over probabilities: the expected grade of each attempt, 0 to 9, over 9.

    All attempts are one prefix that stays in the model's cache. It explains nothing.
    """

    def __init__(self, reader: ChoiceReader) -> None:
        self._reader = reader
        self.name = reader.name
        self.characters = reader.context_tokens * CHARACTERS_A_TOKEN

    @property
    def rubric_version(self) -> str:
        return version_of(prompt("relative_choice"))

    async def read(self, attempts: Attempts, seed: int) -> Read:
        before = await self._fitted(attempts)
        scores, usage = list[tuple[float, str]](), NO_USAGE
        for number in range(1, len(attempts.texts) + 1):
            text = f"{before}\n\nThe grade of attempt {number}, from 0 to 9?"
            prefix = await self._reader.render(instructed("relative_choice", text))
            chances = await self._reader.weigh(prefix, DIGITS)
            scores.append((expected(chances) / (len(DIGITS) - 1), ""))
            usage += read_usage(prefix)
        return Read(tuple(scores), usage)

    async def _fitted(self, attempts: Attempts) -> str:
        """All attempts, cut alike until they leave room. Raises JudgeError if they never do."""

        def text(longest: int) -> str:
            texts = tuple(cut(text, longest) for text in attempts.texts)
            return shown(Attempts(attempts.question, cut(attempts.shared, longest), texts))

        longest, _ = await fit(
            lambda longest: self._reader.render(instructed("relative_choice", text(longest))),
            self._reader.context_tokens - ASKED_TOKENS,
            max(map(len, (attempts.shared, *attempts.texts))),
            JudgeError(
                "so many attempts do not fit the judge's context",
                "Raise context_tokens, judge smaller groups, or judge with a server's model.",
            ),
            least=60,
        )
        return text(longest)


def version_of(rubric: str) -> str:
    """Names a text of standards, as it is kept and looked up."""
    return f"relative-{hashlib.sha256(rubric.encode()).hexdigest()[:8]}"


def shown(attempts: Attempts) -> str:
    """The task, what is shared, then the attempts under their numbers."""
    parts = [fenced({"task": attempts.question})]
    if attempts.shared:
        parts.append(f"What all attempts have in common:\n{attempts.shared}")
    numbered = enumerate(attempts.texts, start=1)
    return "\n\n".join([*parts, *(f"Attempt {number}:\n{text}" for number, text in numbered)])
