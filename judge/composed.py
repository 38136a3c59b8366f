"""Stage rewards composed of rubrics, with the stage judge as one rubric among others.

    Sequential(Gate(Valid()), Gate(Supported(), 0.5), Judged())

The action that such a rubric scores is the text of a stage; the observation is a `StageView` of it.
`Judged` is the score of the stage judge, which is called once per group, and only with the
trajectories of which some stage passed the gates in front of it: gates save its cost. It contrasts
and prunes criteria by those trajectories alone. Calls that rubrics such as an `LLMJudge` make to
models of their own are counted with the trajectory.

`rubric:MODULE:NAME` names custom code, wherever a judge has a name: a `Rubric`, a callable that
makes one, or a mapping from stages to either. Stages missing from a mapping are scored by the stage
judge.
"""

import asyncio
import copy
import hashlib
import importlib
import math
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from rubricem.judge.base import (
    CHARACTERS,
    answer_text,
    failed_score,
    failure_notes,
    stage_text,
    unread,
)
from rubricem.judge.evidence import evidence_of
from rubricem.judge.rubrics.core import Rubric
from rubricem.judge.rubrics.llm import note_usage, unread_raises
from rubricem.memory.errors import JudgeError, RubricemError, SettingsError, boundary
from rubricem.memory.schema import (
    Author,
    GroupJudge,
    GroupJudgement,
    Judgement,
    RubricBuffer,
    Stage,
    StageScore,
    Trajectory,
    TrajectoryGroup,
    Usage,
    is_left_out,
)
from rubricem.memory.text import cut, fence

Compositions = Mapping[Stage, Callable[[], Rubric]]
"""A new rubric for each trajectory's stage, as rubrics have state; a missing stage is `Judged`."""
ROUNDING = 1e-6
"""how far beyond its bounds a reward may be and still count as within them"""


@dataclass(frozen=True, slots=True)
class StageView:
    """What a composed rubric observes: a stage, its run, and the judge to ask."""

    trajectory: Trajectory
    stage: Stage
    judged: Callable[[], Awaitable[StageScore]]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """what the questions file says of the question, for rubrics to score by"""

    @property
    def done(self) -> bool:
        """Whether the stage is the last one, as trajectory rubrics expect."""
        return self.stage is Stage.ANSWER

    def __str__(self) -> str:
        """What other judges are shown: question, answer, the passages it cites, what code saw."""
        run, room = self.trajectory, CHARACTERS // 3
        shown = fence({"question": cut(run.question, room), "answer": cut(answer_text(run), room)})
        return f"{shown}\n\n{evidence_of(run, CHARACTERS)}".rstrip()


class Judged(Rubric):
    """The stage judge's score; NaN if there is none."""

    def __init__(self, unasked: float = math.nan) -> None:
        """`unasked`: the score of a stage on which the judge has nothing to say."""
        super().__init__()
        self.unasked = unasked

    async def forward(self, action: str, observation: StageView) -> float:
        given = await observation.judged()
        if is_left_out(given):
            return self.unasked
        return math.nan if given.score is None else given.score


@dataclass(slots=True)
class _Asking:
    """One stage of one trajectory: whether its rubric needs the judge, and the reply."""

    trajectory: Trajectory
    stage: Stage
    facts: Mapping[str, Any]
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    reply: asyncio.Future[StageScore] = field(default_factory=asyncio.Future)
    used: list[Usage] = field(default_factory=list)
    """by calls of rubrics that have a model of their own"""

    async def ask_judge(self) -> StageScore:
        self.wanted.set()
        return await asyncio.shield(self.reply)

    @property
    def replied(self) -> StageScore:
        return self.reply.result() if self.reply.done() else StageScore(stage=self.stage)


_Row = Sequence[_Asking]
"""the stages of one trajectory, in order"""


class ComposedJudge:
    """A `StageJudge` whose rewards are computed by compositions."""

    def __init__(self, judge: GroupJudge, compositions: Compositions) -> None:
        self._judge = judge
        self._compositions = compositions

    @property
    def name(self) -> str:
        return f"{self._judge.name}, composed"

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement:
        """As `StageJudge.judge`. A rubric that fails leaves its stage unscored with the reason."""
        rows = [
            [_Asking(trajectory, stage, group.facts or {}) for stage in Stage]
            for trajectory in group.trajectories
        ]
        stages = [asking for row in rows for asking in row]
        tasks = [asyncio.create_task(self._score(asking)) for asking in stages]
        try:
            await asyncio.gather(*map(_wait_for_end_or_ask, tasks, stages))
            judged = await self._ask(group, rows, buffer, step)
            scores = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return self._together(judged, rows, scores)

    async def _score(self, asking: _Asking) -> StageScore:
        trajectory, stage = asking.trajectory, asking.stage
        known = unread(trajectory, stage)
        if known is not None and not known.missing:
            return known
        compose = self._compositions.get(stage)
        if compose is None:
            return await asking.ask_judge()
        if known is not None:
            return known
        try:
            with (
                boundary(JudgeError, f"The rubric composed for the stage {stage}"),
                note_usage() as asking.used,
                unread_raises(),
            ):
                rubric = compose()
                view = StageView(trajectory, stage, asking.ask_judge, asking.facts)
                reward = float(await rubric(stage_text(trajectory, stage), view))
        except RubricemError as error:
            return failed_score(error.told(), stage)
        return _compose_score(reward, rubric, asking.replied)

    async def _ask(
        self, group: TrajectoryGroup, rows: Sequence[_Row], buffer: RubricBuffer, step: int
    ) -> GroupJudgement:
        """The stage judge's scores of the trajectories that need them."""
        rows = [row for row in rows if _is_wanted(row)]
        if not rows:
            return GroupJudgement(judgements=(), buffer=buffer)
        asked = tuple(map(_only_wanted, rows))
        smaller = group.model_copy(update={"trajectories": asked})
        judged = await self._judge.judge(smaller, buffer, step)
        for row, judgement in zip(rows, judged.judgements, strict=True):
            for asking, score in zip(row, judgement.stages, strict=True):
                asking.reply.set_result(score)
        return judged

    def _together(
        self, judged: GroupJudgement, rows: Sequence[_Row], scores: Sequence[StageScore]
    ) -> GroupJudgement:
        given, left = iter(judged.judgements), iter(scores)
        judgements = []
        for row in rows:
            name, version = row[0].trajectory.id, judged.buffer.label
            unasked = Judgement(trajectory_id=name, judge="", rubric_version=version, stages=())
            plain = next(given) if _is_wanted(row) else unasked
            stages = tuple(islice(left, len(row)))
            usage = sum((used for asking in row for used in asking.used), plain.usage)
            update = {"judge": self.name, "stages": stages, "usage": usage}
            judgements.append(plain.model_copy(update=update))
        failed = (note for note in failure_notes(judgements) if note not in judged.notes)
        return judged.model_copy(
            update={"judgements": tuple(judgements), "notes": (*judged.notes, *failed)}
        )


async def _wait_for_end_or_ask(task: asyncio.Task[StageScore], asking: _Asking) -> None:
    wanted = asyncio.ensure_future(asking.wanted.wait())
    try:
        await asyncio.wait({task, wanted}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        wanted.cancel()


def _is_wanted(row: _Row) -> bool:
    return any(asking.wanted.is_set() for asking in row)


def _only_wanted(row: _Row) -> Trajectory:
    """The run without what it wrote in stages that are scored without the judge."""
    run, wanted = row[0].trajectory, {asking.stage for asking in row if asking.wanted.is_set()}
    if run.failed:  # what it wrote last tells where it broke off
        return run
    kept = (s for s in run.segments if s.stage in wanted or s.author is not Author.POLICY)
    return run.model_copy(update={"segments": tuple(kept)})


def _compose_score(reward: float, rubric: Rubric, judged: StageScore) -> StageScore:
    """The composed score, with the judge's verdicts and each rubric's score.

    It is in 0 to 1, or as far below 0 as the judge's own, which a checklist may take there.
    """
    least = min(judged.score or 0.0, 0.0)
    found: dict[str, Any] = {
        "score": None,
        "justification": describe(rubric),
        "components": components(rubric),
    }
    if least - ROUNDING <= reward <= 1 + ROUNDING:
        # The reason stays where the judge had nothing to say: its share of the score is no verdict.
        reason = judged.unscored_reason if is_left_out(judged) else ""
        score = min(max(reward, least), 1.0)
        found |= {"score": score, "unscored_reason": reason, "failed": False}
    elif not math.isnan(reward):
        found["unscored_reason"] = f"its rubrics gave {reward:g}, which is not in {least:g} to 1"
    elif not judged.unscored_reason:
        found["unscored_reason"] = "its rubrics gave no number"
    return judged.model_copy(update=found)


def describe(rubric: Rubric) -> str:
    """Each rubric's name and latest score, with those of its children after it."""
    below = ", ".join(filter(None, (describe(child) for child in rubric.children())))
    if rubric.last_score is None:
        return below
    said = f"{type(rubric).__name__} {rubric.last_score:.2f}"
    return f"{said} ({below})" if below else said


def components(rubric: Rubric) -> dict[str, float]:
    """The latest score of each rubric below this one that has a known one, by dotted name."""
    return {
        name: child.last_score
        for name, child in rubric.named_rubrics()
        if child.last_score is not None and not math.isnan(child.last_score)
    }


RUBRIC = "rubric:"
_FORM = "Name it as rubric:MODULE:NAME; MODULE is a file MODULE.py in the working directory."


def compositions_of(name: str) -> Compositions:
    """The rubrics that `rubric:MODULE:NAME` names, as a new one for each stage of each run.

    Raises SettingsError if it cannot be imported or made, or is neither rubric nor mapping.
    """
    module, attribute = _module(name), name.rpartition(":")[2]
    try:
        found = getattr(module, attribute)
    except AttributeError:
        raise SettingsError(f"{module.__name__} has no {attribute!r}.", _FORM) from None
    made = _make_rubric(found, name) if _makes(found) else found
    if isinstance(made, Mapping) and not isinstance(made, Rubric):
        if unknown := [key for key in made if key not in tuple(Stage)]:
            raise SettingsError(
                f"{name} names a stage {unknown[0]!r}.", f"The stages are {', '.join(Stage)}."
            )
        return {Stage(key): _factory(value, name) for key, value in made.items()}
    return dict.fromkeys(Stage, _factory(found, name))


def with_code(name: str) -> str:
    """The name with a hash of the code behind it. Raises what `compositions_of` raises."""
    compositions_of(name)
    file = _module(name).__file__
    code = Path(file).read_bytes() if file else b""
    return f"{name} {hashlib.sha256(code).hexdigest()[:8]}"


def _module(name: str) -> ModuleType:
    module, _, attribute = name.removeprefix(RUBRIC).partition(":")
    if not module or not attribute or ":" in attribute:
        raise SettingsError(f"{name!r} does not name a rubric.", _FORM)
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # behind what is installed, which nothing there is to replace
    try:
        return importlib.import_module(module)
    except Exception as cause:  # somebody's own code may fail in any way while it is imported
        raise SettingsError(
            f"{module!r} cannot be imported: {type(cause).__name__}: {cause}.", _FORM
        ) from cause


def _makes(found: Any) -> bool:
    return callable(found) and not isinstance(found, Rubric)


def _make_rubric(make: Callable[[], Any], name: str) -> Any:
    try:
        return make()
    except Exception as cause:  # somebody's own code may fail in any way
        raise SettingsError(
            f"{name} gives no rubric: {type(cause).__name__}: {cause}.",
            "Name a function that makes one and takes no arguments.",
        ) from cause


def _factory(found: Any, name: str) -> Callable[[], Rubric]:
    """A callable is called for each stage, a rubric copied: rubrics have state."""
    factory = found if _makes(found) else lambda: copy.deepcopy(found)
    made = _make_rubric(factory, name)
    if not isinstance(made, Rubric):
        raise SettingsError(
            f"{name} gives a {type(made).__name__}, which is no rubricem.judge.rubrics.Rubric.",
            "Derive it from Rubric, or give a mapping from stages to such rubrics.",
        )
    return factory
