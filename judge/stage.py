"""The stage judge: scores every stage of every rollout of a question on evolving rubrics.

For a group of rollouts it proposes criteria by contrasting them, adds the new ones, scores every
rollout on all criteria in force, and prunes criteria that do not discriminate. A single run, or a
group of identical ones, has nothing to contrast and is scored on criteria made from the question.
Nothing is saved here: the caller saves the new buffer at the end of its step. Source: RubricEM
(arXiv:2605.10899), appendix C, with choices of our own where it leaves something open.

If a run is scored several times, its score is the mean, and the spread tells how certain that is.

Persistent criteria are made once, before any run is seen, from the question and from what a search
for it finds. This makes them true and concrete more often than those of a model that reads the
question alone (DR Tulu, arXiv:2511.19399, table 6: 56.7 against 55.2 on average).

A proposed criterion is dropped as a loophole if it can be met without better work: if it rewards
form (tags, headings), effort or length as such, following a plan whatever the evidence says,
self-consistency, or a comparison with the other attempts (RubricEM, as above). Words of the
question itself, and what the writing is to say, are substance and exempt: a longer wavelength is
not a longer answer. Of 30 sound criteria full of such words, 4 passed without this exemption and 30
pass with it; all of 15 loopholes beside them are found (`tests/judge/loophole_cases.py`).
"""

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Protocol

from rubricem.judge.base import FAILED, failure_notes, outcome, unread
from rubricem.judge.buffers import add, prune
from rubricem.memory.asking import usage_of_error
from rubricem.memory.errors import JudgeError, PolicyError, RubricemError, SettingsError
from rubricem.memory.schema import (
    NO_CRITERIA,
    NO_USAGE,
    Criterion,
    GroupJudgement,
    Judgement,
    Passage,
    RubricBuffer,
    SearchTool,
    Stage,
    StageScore,
    Trajectory,
    TrajectoryGroup,
    Usage,
    Verdict,
)

_WRITING = (
    r"(?:answer|explanation|text|report|response|review|plan|discussion|section|summary|prose)"
)

_MARKS = r"(?:xml|tags?|headings?|headers?|markdown|markup|bullets?|bullet(?:ed)? (?:list|points?))"
_PLAN = r"(?:its|the|their|his) (?:own |initial |original |stated |research )*plan\b"
_COUNT = r"(?:at least|more than|over) (?:\d+|two|three|four|five|six|seven|eight|nine|ten|\w+teen)"
Standard = Mapping[Stage, tuple[Criterion, ...]]
"""the criteria to score a trajectory on, by stage; no stage without criteria"""


@dataclass(frozen=True, slots=True)
class Scored:
    """A scorer's result for one trajectory: one verdict per criterion, in order."""

    verdicts: Mapping[Stage, tuple[Verdict, ...]]
    usage: Usage = NO_USAGE
    spread: Mapping[Stage, float] = field(default_factory=dict)
    """of the stage scores, if there were several scorings"""


class Scorer(Protocol):
    """Scores one trajectory on given criteria. Raises JudgeError or PolicyError if it cannot."""

    @property
    def name(self) -> str: ...

    async def score(self, trajectory: Trajectory, standard: Standard) -> Scored: ...


def stage_reward(verdicts: Sequence[Verdict]) -> float:
    """The stage reward R in [0, 1], the weighted mean of at least one verdict."""
    total = sum(v.criterion.weight for v in verdicts)
    gained = sum(
        v.criterion.weight * (v.points if v.criterion.positive else 2 - v.points) / 2
        for v in verdicts
    )
    return gained / total


def score_unread(trajectory: Trajectory, stage: Stage, buffer: RubricBuffer) -> StageScore | None:
    """The score of a stage that needs no scorer; None if it has to be scored."""
    known = unread(trajectory, stage)
    if (known is None or known.missing) and not buffer.criteria(stage):
        return StageScore(stage=stage, unscored_reason=NO_CRITERIA)
    return known


def _score_of(stage: Stage, scored: Scored, failure: str) -> StageScore:
    """`failure`: why there may be no verdict on the stage."""
    verdicts, spread = scored.verdicts.get(stage, ()), scored.spread.get(stage)
    if not verdicts:
        return StageScore(stage=stage, unscored_reason=f"{FAILED}: {failure}")
    return StageScore(stage=stage, score=stage_reward(verdicts), verdicts=verdicts, spread=spread)


MOST_PROPOSED: Mapping[Stage, int] = {
    Stage.PLAN: 4,
    Stage.RESEARCH: 4,
    Stage.REVIEW: 4,
    Stage.ANSWER: 5,
}
"""new criteria that one proposal may add at most"""


@dataclass(frozen=True, slots=True)
class Proposed:
    """New criteria by stage, and what asking for them cost."""

    criteria: Mapping[Stage, tuple[Criterion, ...]]
    usage: Usage = NO_USAGE


class Proposer(Protocol):
    """Writes criteria. Raises JudgeError or PolicyError if it cannot."""

    async def contrast(
        self, trajectories: Sequence[Trajectory], buffer: RubricBuffer, step: int
    ) -> Proposed:
        """Criteria that tell the stronger from the weaker of at least two runs."""
        ...

    async def from_question(
        self,
        question: str,
        found: Sequence[Passage] = (),
        stages: Sequence[Stage] = tuple(Stage),
    ) -> Proposed:
        """Criteria made before any run is seen; `found` are passages of a search for the question.

        `stages` are those for which criteria are wanted; the result may include others.
        """
        ...


class StageJudge:
    """Judges groups with one proposer and one scorer.

    `persistent`: a question without persistent criteria gets some for the answer, made from the
    question, before its first group is contrasted, since the paper's questions come with such
    criteria.
    """

    def __init__(self, proposer: Proposer, scorer: Scorer, *, persistent: bool = False) -> None:
        self.proposer = proposer
        self._scorer = scorer
        self.name = scorer.name
        self._persistent = persistent

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement:
        """One judgement for each trajectory, and the next buffer.

        Raises nothing: a failure leaves stages unscored with the reason, or adds no criteria and
        leaves a note. `step` is recorded in the buffer's history.
        """
        different = [group.trajectories[place] for place in distinct(group.trajectories)]
        grown, lone = _Grown(buffer, step), len(different) < 2
        if not any(buffer.persistent.values()) and (lone or self._persistent):
            # For a group, only the criteria of the answer are made from the question.
            stages = tuple(Stage) if lone else (Stage.ANSWER,)
            asked = self.proposer.from_question(buffer.question, stages=stages)
            await grown.by(asked, "from the question", stages)
        if not lone:
            asked = self.proposer.contrast(different, grown.buffer, step)
            await grown.by(asked, f"contrasting {len(different)} runs")
        scored = grown.buffer
        judgements = await asyncio.gather(*(self._score(t, scored) for t in group.trajectories))
        pruned = prune(scored, _points(group.trajectories, judgements), step)
        return GroupJudgement(
            judgements=tuple(judgements),
            buffer=pruned,
            notes=(*grown.notes, *failure_notes(judgements)),
            usage=grown.usage,
        )

    async def _score(self, trajectory: Trajectory, buffer: RubricBuffer) -> Judgement:
        open_stages = [stage for stage in Stage if score_unread(trajectory, stage, buffer) is None]
        scored, failure, usage = Scored({}), "", NO_USAGE
        if open_stages:
            try:
                standard = {stage: buffer.criteria(stage) for stage in open_stages}
                scored = await self._scorer.score(trajectory, standard)
                usage = scored.usage
            except (JudgeError, PolicyError) as error:
                failure, usage = error.told(), usage_of_error(error)
        return Judgement(
            trajectory_id=trajectory.id,
            judge=self._scorer.name,
            rubric_version=buffer.label,
            stages=tuple(
                score_unread(trajectory, stage, buffer) or _score_of(stage, scored, failure)
                for stage in Stage
            ),
            usage=usage,
        )


@dataclass(slots=True)
class _Grown:
    """A buffer to which proposals are added, with their usage and notes on failures."""

    buffer: RubricBuffer
    step: int
    notes: list[str] = field(default_factory=list)
    usage: Usage = NO_USAGE

    async def by(
        self, asked: Awaitable[Proposed], reason: str, stages: Sequence[Stage] = tuple(Stage)
    ) -> None:
        """Add the criteria proposed for the stages; a proposer that fails leaves a note."""
        proposed = await outcome(asked)
        if not isinstance(proposed, Proposed):
            self.notes.append(f"No new criteria: {proposed.told()}")
            self.usage += usage_of_error(proposed)
            return
        sound, dropped = without_loopholes(proposed.criteria, self.buffer.question)
        most = {s: _most(found, MOST_PROPOSED[s]) for s, found in sound.items() if s in stages}
        self.buffer = add(self.buffer, most, self.step, reason)
        self.notes += dropped
        self.usage += proposed.usage


def _most(criteria: Sequence[Criterion], most: int) -> list[Criterion]:
    """At most `most` criteria, the first first; up to half of the places are reserved for flaws."""
    good, flaws = ([c for c in criteria if c.positive is sign] for sign in (True, False))
    few = min(len(flaws), max(most // 2, most - len(good)))
    return good[: most - few] + flaws[:few]


def _points(
    trajectories: Sequence[Trajectory], judgements: Sequence[Judgement]
) -> dict[Stage, dict[str, list[float]]]:
    """Points of every criterion over the distinct trajectories, by stage and key."""
    points: dict[Stage, dict[str, list[float]]] = {stage: {} for stage in Stage}
    for place in distinct(trajectories):
        for score in judgements[place].stages:
            for verdict in score.verdicts:
                given = points[score.stage].setdefault(verdict.criterion.key, [])
                given.append(verdict.points)
    return points


def distinct(trajectories: Sequence[Trajectory]) -> list[int]:
    """Indices of the trajectories whose transcript no earlier one repeats."""
    seen: set[str] = set()
    places = []
    for place, trajectory in enumerate(trajectories):
        text = trajectory.transcript()
        if text not in seen:
            seen.add(text)
            places.append(place)
    return places


TEMPERATURE = 0.7
"""of repeated scorings: at 0 most servers would repeat the same reply"""


class RepeatedScorer:
    """A `Scorer` that takes the mean of several scorers, without those that failed."""

    def __init__(self, scorers: Sequence[Scorer]) -> None:
        self._scorers = scorers

    @property
    def name(self) -> str:
        return self._scorers[0].name

    async def score(self, trajectory: Trajectory, standard: Standard) -> Scored:
        """The mean points of each criterion, with the words of the scoring nearest to the mean.

        If all scorers failed, raises the first error with the usage of all.
        """
        tasks = (outcome(scorer.score(trajectory, standard)) for scorer in self._scorers)
        found = await asyncio.gather(*tasks)
        scorings = [one for one in found if isinstance(one, Scored)]
        errors = [one for one in found if isinstance(one, RubricemError)]
        usage = sum((s.usage for s in scorings), NO_USAGE)
        usage = sum(map(usage_of_error, errors), usage)
        if not scorings:
            errors[0].usage = usage
            raise errors[0]
        stages = {stage: [s.verdicts[stage] for s in scorings] for stage in standard}
        verdicts = {
            stage: tuple(_mean_verdict(same) for same in zip(*given, strict=True))
            for stage, given in stages.items()
        }
        spread = {s: pstdev(map(stage_reward, given)) for s, given in stages.items() if given[1:]}
        return Scored(verdicts, usage, spread)


def _mean_verdict(same: Sequence[Verdict]) -> Verdict:
    """The mean of the points, with the words of the verdict nearest to it."""
    mean = fmean(verdict.points for verdict in same)
    nearest = min(same, key=lambda verdict: abs(verdict.points - mean))
    return nearest.model_copy(update={"points": mean})


PASSAGES = 6


@dataclass(frozen=True, slots=True)
class FirstRubrics:
    """The buffer with new persistent criteria, and what they cost."""

    buffer: RubricBuffer
    passages: int
    notes: tuple[str, ...] = ()
    usage: Usage = NO_USAGE

    @classmethod
    async def propose(
        cls, buffer: RubricBuffer, proposer: Proposer, search: SearchTool | None
    ) -> "FirstRubrics":
        """Raises SettingsError if the question has such criteria, JudgeError if none were made."""
        if any(buffer.persistent.values()):
            raise SettingsError(
                "This question has criteria that are kept for good.",
                "Retire them first: rubricem judge rubrics retire",
            )
        found: Sequence[Passage] = await search.search(buffer.question, PASSAGES) if search else ()
        proposed = await proposer.from_question(buffer.question, found)
        sound, notes = without_loopholes(proposed.criteria, buffer.question)
        reason = f"from the question and {len(found)} passages" if found else "from the question"
        grown = add(buffer, sound, 0, reason)
        return cls(grown, len(found), tuple(notes), proposed.usage)


def without_loopholes(
    proposed: Mapping[Stage, tuple[Criterion, ...]], question: str
) -> tuple[dict[Stage, tuple[Criterion, ...]], list[str]]:
    """The sound criteria, and a sentence for each that was dropped."""
    kept: dict[Stage, tuple[Criterion, ...]] = {}
    notes: list[str] = []
    for stage, criteria in proposed.items():
        found = [(criterion, loophole(criterion, question)) for criterion in criteria]
        kept[stage] = tuple(criterion for criterion, name in found if not name)
        notes += [
            f"Dropped from {stage}, as it rewards {name}: {criterion.title}"
            for criterion, name in found
            if name
        ]
    return kept, notes


_SAID = re.compile(
    r"\b(?:says?|stat(?:es?|ing)|explain(?:s|ing)?|not(?:es?|ing)|points? out|mentions?|describes?"
    r"|reports?|finds?|shows?|argues?|warns?|clarif(?:y|ies)|recogni[sz]es?|acknowledges?|admits?"
    r"|asks?|checks?|tells?|concludes?|adds?)\b[^.;\n]*?"
    r"\b(?:that|how|why|what|which|whether|when|where|who)\b[^.;\n]*"
    r"|\b(?:names?|identif(?:y|ies)|defines?|lists?|explains?|describes?|states?|mentions?|covers?"
    r"|discusses|reports?|notes?|gives?|cites?|quotes?|compares?|distinguish(?:es)?|addresses)"
    r" (?:the|both|all|what|who|which)\b[^.;\n]*",
    re.I,
)
"""What the writing is to say: these words are about the subject, not about the writing."""


LOOPHOLES: Mapping[str, re.Pattern[str]] = {
    "form": re.compile(
        r"\b(?:has|have|uses?|using|contains?|includes?|with|adds?|puts?|between|inside|closes?"
        r"|written in)\b"
        rf"(?:\W+[\w-]+){{0,4}}?\W+{_MARKS}\b"
        r"|\bwell-(?:formed|formatted)\b|\bformatt(?:ed|ing)\b",
        re.I,
    ),
    "length": re.compile(
        rf"\b(?:long(?:er)?|lengthy|lengthier) {_WRITING}\b"
        rf"|\b{_WRITING}s? (?:is|are|runs?) (?:\w+ )?(?:long|longer|lengthy)\b"
        rf"|\b{_COUNT} (?:words|sentences|paragraphs|pages|searches|queries|sources|citations"
        rf"|references|tool calls)\b(?! of\b)",
        re.I,
    ),
    "obedience to a plan": re.compile(
        rf"\b(?:follow|stick|keep|adher|execut|deviat|depart|stray|abandon)\w*"
        rf"(?: \w+)?(?: to| from)? {_PLAN}",
        re.I,
    ),
    "agreement with itself": re.compile(
        r"\bself-consisten\w+|\b(?:consistent|agrees?|in line) with (?:its|the) "
        r"(?:own )?(?:plan|rubrics?|review|earlier|previous)\b"
        r"|\b(?:its|the agent's) own (?:rubrics?|criteria)\b",
        re.I,
    ),
    "comparison": re.compile(
        r"\b(?:other|weaker|stronger|better|worse) (?:attempts?|trajector\w+|rollouts?)\b"
        r"|\b(?:than|unlike) (?:\w+ ){0,2}(?:attempts?|runs?|trajector\w+|rollouts?)\b"
        r"|\b(?:attempt|trajectory|rollout) \d+\b",
        re.I,
    ),
}
"""what is rewarded -> wordings that reveal it"""


def loophole(criterion: Criterion, question: str) -> str:
    """What a criterion rewards other than good work; "" if nothing."""
    # A title only labels the subject; points are given for the description.
    text = _SAID.sub(" ", criterion.description or criterion.title)
    asked = question.casefold()
    for name, pattern in LOOPHOLES.items():
        if any(match.group(0).casefold() not in asked for match in pattern.finditer(text)):
            return name
    return ""
