"""The stage judge: every stage of every rollout of a question, scored on rubrics that evolve.

For a group of rollouts it proposes criteria by contrasting them, adds those that are new,
scores every rollout on all criteria in force, and prunes those that separate nothing. A lone
run, or a group of identical ones, has nothing to contrast: it is scored on criteria made from
the question. Nothing is saved here: the caller saves the new buffer at
the end of its step. Source: RubricEM (arXiv:2605.10899), appendix C, with what it leaves open.

Where a run is scored several times the mean is its score, and the spread says how sure that is.

Criteria that are kept for good are made once, before any run is seen. They come from the question
and from what a search for it brings, which makes them more often true and concrete than those of
a model that reads the question alone (DR Tulu, arXiv:2511.19399, table 6: 56.7 against 55.2 on
average).

Criteria that could be met without doing better work are dropped when a judge proposes them. They
reward form (tags, headings), effort and length as such, keeping to a plan whatever the evidence
says, agreeing with oneself, or what only holds beside the other attempts (RubricEM, as above).
Words that the question itself uses are its substance, and so is what the writing is to say: a
longer wavelength is no longer answer. Of 30 sound criteria full of such words 4 were left before
that was looked at, and 30 are; of 15 loopholes beside them all are seen
(`tests/judge/loophole_cases.py`).
"""

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Protocol

from rubricem.judge.base import FAILED, failure_notes, outcome, unread
from rubricem.judge.buffers import add, prune
from rubricem.memory.asking import spent
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


def stage_reward(verdicts: Sequence[Verdict]) -> float:
    """R of at least one verdict, in [0, 1]."""
    total = sum(v.criterion.weight for v in verdicts)
    gained = sum(
        v.criterion.weight * (v.points if v.criterion.positive else 2 - v.points) / 2
        for v in verdicts
    )
    return gained / total


def score_unread(trajectory: Trajectory, stage: Stage, buffer: RubricBuffer) -> StageScore | None:
    """The score of a stage that no scorer has to read, or None where one has to."""
    known = unread(trajectory, stage)
    if (known is None or known.missing) and not buffer.criteria(stage):
        return StageScore(stage=stage, unscored_reason=NO_CRITERIA)
    return known


def stage_scores(
    trajectory: Trajectory, buffer: RubricBuffer, scored: Scored | None, failure: str
) -> tuple[StageScore, ...]:
    """One score a stage, in order; `failure` is why `scored` is None."""
    return tuple(
        score_unread(trajectory, stage, buffer) or _score_of(stage, scored, failure)
        for stage in Stage
    )


def _score_of(stage: Stage, scored: Scored | None, failure: str) -> StageScore:
    verdicts = scored.verdicts.get(stage, ()) if scored else ()
    if not verdicts:
        return StageScore(stage=stage, unscored_reason=f"{FAILED}: {failure}")
    spread = scored.spread.get(stage) if scored else None
    return StageScore(stage=stage, score=stage_reward(verdicts), verdicts=verdicts, spread=spread)


MOST_PROPOSED: Mapping[Stage, int] = {
    Stage.PLAN: 4,
    Stage.RESEARCH: 4,
    Stage.REVIEW: 4,
    Stage.ANSWER: 5,
}
"""new criteria that one proposal may bring"""


@dataclass(frozen=True, slots=True)
class Proposed:
    """New criteria by stage, and what asking for them cost."""

    criteria: Mapping[Stage, tuple[Criterion, ...]]
    usage: Usage = NO_USAGE


class Proposer(Protocol):
    """Writes criteria. Raises JudgeError or PolicyError when it has none to give."""

    async def contrast(
        self, trajectories: Sequence[Trajectory], buffer: RubricBuffer, step: int
    ) -> Proposed:
        """Criteria that separate stronger from weaker ones of at least two runs."""
        ...

    async def from_question(
        self,
        question: str,
        found: Sequence[Passage] = (),
        stages: Sequence[Stage] = tuple(Stage),
    ) -> Proposed:
        """Criteria made before any run was seen; `found` is what a search for it brought.

        `stages` are those that criteria are wanted for; it may bring others, too.
        """
        ...


class StageJudge:
    """Judges groups with one proposer and one scorer.

    `persistent`: a question that has no criteria that are kept for good is given some for the
    answer, made from the question, before its first group is contrasted, as the paper's questions
    come with such.
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

        A judge that fails leaves stages unscored with the reason, or brings no new criteria and
        a note; it raises nothing. `step` is told in the buffer's history.
        """
        different = [group.trajectories[place] for place in distinct(group.trajectories)]
        grown, lone = _Grown(buffer, step), len(different) < 2
        if not any(buffer.persistent.values()) and (lone or self._persistent):
            # Kept for good are, beside a group, criteria of the answer alone.
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
                failure, usage = error.told(), spent(error)
        return Judgement(
            trajectory_id=trajectory.id,
            judge=self._scorer.name,
            rubric_version=buffer.label,
            stages=stage_scores(trajectory, buffer, scored, failure),
            usage=usage,
        )


@dataclass(slots=True)
class _Grown:
    """A buffer as proposals are added to it, with what they cost and did not bring."""

    buffer: RubricBuffer
    step: int
    notes: list[str] = field(default_factory=list)
    usage: Usage = NO_USAGE

    async def by(
        self, asked: Awaitable[Proposed], reason: str, stages: Sequence[Stage] = tuple(Stage)
    ) -> None:
        """Add what is proposed for the stages; a proposer that fails brings a note."""
        proposed = await outcome(asked)
        if not isinstance(proposed, Proposed):
            self.notes.append(f"No new criteria: {proposed.told()}")
            self.usage += spent(proposed)
            return
        sound, dropped = without_loopholes(proposed.criteria, self.buffer.question)
        most = {s: _most(found, MOST_PROPOSED[s]) for s, found in sound.items() if s in stages}
        self.buffer = add(self.buffer, most, self.step, reason)
        self.notes += dropped
        self.usage += proposed.usage


def _most(criteria: Sequence[Criterion], most: int) -> list[Criterion]:
    """The first of them; of flaws as many as there are, up to half, however many stand before."""
    good, flaws = ([c for c in criteria if c.positive is sign] for sign in (True, False))
    few = min(len(flaws), max(most // 2, most - len(good)))
    return good[: most - few] + flaws[:few]


def _points(
    trajectories: Sequence[Trajectory], judgements: Sequence[Judgement]
) -> dict[Stage, dict[str, list[float]]]:
    """Points of every criterion over the trajectories that differ; none for a lone one."""
    points: dict[Stage, dict[str, list[float]]] = {stage: {} for stage in Stage}
    for place in distinct(trajectories):
        for score in judgements[place].stages:
            for verdict in score.verdicts:
                given = points[score.stage].setdefault(verdict.criterion.key, [])
                given.append(verdict.points)
    return points


def distinct(trajectories: Sequence[Trajectory]) -> list[int]:
    """Places of the trajectories that say something another before them does not."""
    seen: set[str] = set()
    places = []
    for place, trajectory in enumerate(trajectories):
        text = trajectory.transcript()
        if text not in seen:
            seen.add(text)
            places.append(place)
    return places


TEMPERATURE = 0.7
"""of scorings that are repeated: at 0 most servers would say the same again"""


class RepeatedScorer:
    """A `Scorer` that has several others score, and takes the mean of those that could."""

    def __init__(self, scorers: Sequence[Scorer]) -> None:
        self._scorers = scorers

    @property
    def name(self) -> str:
        return self._scorers[0].name

    async def score(self, trajectory: Trajectory, standard: Standard) -> Scored:
        """Each criterion's mean points; its words are those of the scoring nearest to the mean.

        Raises the first error, with what all scorings cost, where none could score.
        """
        tasks = (outcome(scorer.score(trajectory, standard)) for scorer in self._scorers)
        found = await asyncio.gather(*tasks)
        scorings = [one for one in found if isinstance(one, Scored)]
        errors = [one for one in found if isinstance(one, RubricemError)]
        usage = sum((s.usage for s in scorings), NO_USAGE)
        usage = sum(map(spent, errors), usage)
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
    """The mean's points, in the words of the verdict that comes nearest."""
    mean = fmean(verdict.points for verdict in same)
    nearest = min(same, key=lambda verdict: abs(verdict.points - mean))
    return nearest.model_copy(update={"points": mean})


PASSAGES = 6


@dataclass(frozen=True, slots=True)
class FirstRubrics:
    """The buffer with the new criteria in it, and what making them cost."""

    buffer: RubricBuffer
    passages: int
    notes: tuple[str, ...] = ()
    usage: Usage = NO_USAGE

    @classmethod
    async def propose(
        cls, buffer: RubricBuffer, proposer: Proposer, search: SearchTool | None
    ) -> "FirstRubrics":
        """Raises SettingsError where the question has such criteria, JudgeError where none came."""
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
    """The criteria that are left, and a sentence for each that is not."""
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
"""What the writing is to say: there the words are of the matter, and speak of no writing."""


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
"""what is rewarded -> words that say so"""


def loophole(criterion: Criterion, question: str) -> str:
    """What a criterion rewards beside good work, or ""."""
    # A title is a label of the matter; what earns points is the description.
    text = _SAID.sub(" ", criterion.description or criterion.title)
    asked = question.casefold()
    for name, pattern in LOOPHOLES.items():
        if any(match.group(0).casefold() not in asked for match in pattern.finditer(text)):
            return name
    return ""
