"""The judge of ended runs: how it is opened, what it is given, and where scores are stored.

Its model is the one that was chosen. If the policy is the embedded model, it can be shared, so that
its weights are in memory once. What code can check of a stage - whether its form is complete, and
what its citations support - can be put in front of the judge, which then need not be asked.

A run can be judged by its name, from a trajectory's file, or as a collected run. A run of a
conversation is judged together with the conversation, without which its question means little. The
judgement is stored beside its trajectory as `judgement.json`: one `Judgement`, or a list of them if
the folder holds a collected run.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from rubricem.agent.learning.certain import shown_to, sure_finding
from rubricem.agent.models.opening import PolicyChoice
from rubricem.agent.models.policy import KeptCalls, journal_calls
from rubricem.agent.record.conversations import background_in, in_conversation
from rubricem.agent.reports.cited import Cited, Uncited, cited_answer
from rubricem.agent.reports.rules import Checker
from rubricem.agent.reports.verifier import AnswerVerifier, ChatChecker, ChoiceChecker
from rubricem.agent.research.setup import Setup, Stores
from rubricem.agent.transcript.scaffold import CHILDREN, ScaffoldDocument, rounds
from rubricem.judge.build import Kind, Wanted, group_judge
from rubricem.judge.composed import RUBRIC, ComposedJudge, Compositions, Judged, StageView
from rubricem.judge.relative import version_of
from rubricem.judge.rubrics import Gate, Rubric, Sequential
from rubricem.memory.asking import usage_of_error
from rubricem.memory.bank import RubricBank
from rubricem.memory.errors import JudgeError, PolicyError, SettingsError
from rubricem.memory.ids import ids_named
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.runs import (
    ReplyStore,
    RunStore,
    value_in,
    value_of,
    writable,
    write_atomically,
)
from rubricem.memory.schema import (
    BY_RULES,
    NO_USAGE,
    SUPPORT,
    GroupJudge,
    GroupJudgement,
    Judgement,
    LocalModel,
    RubricBuffer,
    Stage,
    StageScore,
    Trajectory,
    TrajectoryGroup,
    Value,
)

NEEDED = {
    Stage.PLAN: ("structured_plan", *CHILDREN["structured_plan"]),
    Stage.RESEARCH: ("state_evaluation",),
    Stage.REVIEW: ("review", *CHILDREN["review"]),
    Stage.ANSWER: ("answer",),
}
"""blocks that a stage consists of: closed, and with text in them"""
WORTH = {"supported": 1.0, "unchecked": 1.0, "partial": 0.5, "unsupported": 0.0}
"""of a claim, by the best verdict that a source it cites gives it"""
LEAST_SUPPORT = 0.5
"""share of the cited claims that must be held"""


def checked_by_rules(trajectory: Trajectory) -> Trajectory:
    """The run with its citations checked: as a model checked them, or by what code is sure of.

    A claim that the rules merely find worded otherwise than its source is unchecked.
    """
    known = trajectory.verification
    if known is not None and known.checker != BY_RULES:
        return trajectory
    rule = partial(sure_finding, seen=shown_to(trajectory), found=trajectory.sources)
    found = AnswerVerifier("mark", None).by_rules(trajectory, "", rule)
    return trajectory.model_copy(update={"verification": found})


def support_of(checked: Trajectory) -> float | None:
    """Share of the answer's cited claims against which nothing is known, 0 to 1.

    A claim whose ids were never found counts 0, one that is supported in part a half, and one that
    could not be checked 1. None: the answer cites nothing that could be checked.
    """
    answer, found = cited_answer(checked), checked.sources
    names = [name for s in found for name in (s.title, s.location) if name[3:]]
    # An entry of a list of its own that names what it found is no claim.
    own = [text for text in answer.invented if any(name in text for name in names)]
    pieces = [p for p in answer.pieces if isinstance(p, Cited | Uncited) and p.text not in own]
    given = [[c.verdict for c in p.citations] if isinstance(p, Cited) else [] for p in pieces]
    if all(verdict == "unchecked" for verdict in chain.from_iterable(given)) and all(given):
        return None
    return fmean(max((WORTH[verdict] for verdict in each), default=0.0) for each in given)


def support_of_review(trajectory: Trajectory) -> float | None:
    """Share of what the last review marks as met by a source for which a tool returned one.

    None: it names no source.
    """
    known = {source.id for source in trajectory.sources}
    marks = (mark for turn in rounds(trajectory)[-1:] for mark in turn.review_marks())
    named = [" ".join(m.ids) for m in marks if m.state != "missing" and m.ids]
    met = [not known.isdisjoint(ids_named(ids)) for ids in named]
    return fmean(met) if met else None


class SupportBound:
    """A judge whose scores of answer and review are multiplied by their support.

    What an answer says that its sources do not say is no merit, however well it reads; so a policy
    cannot gain by inventing citations. The judge is given the runs with their citations checked:
    as they were, by rules, or anew by the `checker`, all claims of a group at once. It is told the
    verdicts. A claim that nobody could check changes nothing.
    """

    def __init__(self, judge: GroupJudge, checker: Checker | None = None, bound: bool = True):
        """`bound`: whether scores are multiplied; the judge is told in any case."""
        self._judge, self._checker, self._bound = judge, checker, bound

    @property
    def name(self) -> str:
        return self._judge.name

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement:
        runs, notes, usage = list(group.trajectories), tuple[str, ...](), NO_USAGE
        try:
            if self._checker is not None:
                runs, usage = await AnswerVerifier.verify_together(self._checker, runs)
        except PolicyError as error:
            notes, usage = (f"The claims were checked by rules: {error}",), usage_of_error(error)
        runs = [await asyncio.to_thread(checked_by_rules, run) for run in runs]
        shown = group.model_copy(update={"trajectories": tuple(runs)})
        judged = await self._judge.judge(shown, buffer, step)
        told = []
        for judgement, run in zip(judged.judgements, runs, strict=True):
            stages = tuple(self._bind(score, run) for score in judgement.stages)
            told.append(judgement.model_copy(update={"stages": stages}))
        more = {"notes": (*judged.notes, *notes), "usage": judged.usage + usage}
        return judged.model_copy(update={"judgements": tuple(told), **more})

    def _bind(self, given: StageScore, run: Trajectory) -> StageScore:
        measure = {Stage.ANSWER: support_of, Stage.REVIEW: support_of_review}.get(given.stage)
        if measure is None or given.score is None or given.missing:
            return given
        if (support := measure(run)) is None:
            return given
        # Points that were lost on a checklist are lost all the same.
        score = min(given.score, given.score * support) if self._bound else given.score
        known = {**given.components, SUPPORT: support}
        return given.model_copy(update={"score": score, "components": known})


Support = Literal["rules", "judge", "off"]
"""who checks the claims by which scores are bound; `off`: rules check, and nothing is bound"""


def bound_by_support(
    judge: GroupJudge, kind: str, model: Any = None, by: Support = "rules"
) -> GroupJudge:
    """A judge of ours, bound by support; a rubric of somebody's own code scores as it says.

    That may have `Supported` among its parts. `model` judges, and checks if it is named by `by`.
    """
    checker: Checker | None = None
    if by == "judge":
        local = isinstance(model, LocalModel)
        checker = ChoiceChecker(model) if local else ChatChecker(model, ruled=False)
    return SupportBound(judge, checker, bound=by != "off" and not kind.startswith(RUBRIC))


class Valid(Rubric):
    """1 where every turn of the stage has the blocks that it needs, else 0."""

    def forward(self, action: Any, observation: StageView) -> float:
        turns = rounds(observation.trajectory)
        stage = observation.stage
        own = {Stage.PLAN: turns[:1], Stage.RESEARCH: turns[1:]}.get(stage, turns[-1:])
        return float(bool(own) and all(_whole(turn, tag) for turn in own for tag in NEEDED[stage]))


class Supported(Rubric):
    """`support_of` the run; NaN where nothing can be checked."""

    def __init__(self, uncited: float = 0.0) -> None:
        """`uncited`: the score of an answer that cites nothing, as an honest refusal does."""
        super().__init__()
        self.uncited = uncited

    def forward(self, action: Any, observation: StageView) -> float:
        support = support_of(checked := checked_by_rules(observation.trajectory))
        nothing = math.nan if cited_answer(checked).citations else self.uncited
        return nothing if support is None else support


def gate_scores() -> Compositions:
    """The judge's score for a stage of whole form, and for an answer whose citations hold.

    An answer without any may be right to say that it found nothing: that is the judge's to say.

    A stage of whole form of which the judge has nothing to say, as one of whole answers has not, is
    1: left out, it would be compared with none, and a broken one beside it would lose nothing.
    """
    return {
        **dict.fromkeys(Stage, lambda: Sequential(Gate(Valid()), Judged(unasked=1.0))),
        Stage.ANSWER: lambda: Sequential(
            Gate(Valid()), Gate(Supported(uncited=1.0), LEAST_SUPPORT), Judged()
        ),
    }


def _whole(document: ScaffoldDocument, tag: str) -> bool:
    blocks = document.find(tag)
    return all(block.closed for block in blocks) and any(
        document.inner(block).strip() for block in blocks
    )


def resolve_judge(kind: Kind, rubric: Path | None, data_dir: Path, seed: int) -> Wanted:
    """The judge of a kind; a file of standards is read, and a copy kept under its version."""
    return Wanted(kind, _keep_standards(rubric, data_dir) if rubric else "", seed)


def _keep_standards(path: Path, data_dir: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{path} cannot be read as text: {error}.", "Save it as UTF-8."
        ) from error
    if not text:
        raise SettingsError(f"{path} is empty.", "Write down the standards for attempts.")
    write_atomically(data_dir / "standards" / f"{version_of(text)}.md", text)
    return text


@asynccontextmanager
async def open_group_judge(
    choice: PolicyChoice,
    wanted: Wanted,
    replies: Path | None = None,
    *,
    gate: bool = False,
    bound: bool = True,
    shared: LocalModel | None = None,
) -> AsyncIterator[GroupJudge]:
    """The wanted judge; with a folder for its replies, the same call is paid for once.

    `gate`: it is asked only about what code finds whole in form and held by its citations.
    `bound`: as of `SupportBound`. `shared`, which is open already, is used where the choice is
    embedded.
    """
    async with choice.open_judge(shared=shared) as model:
        if replies:
            model = journal_calls(model, KeptCalls(ReplyStore(replies)))
        judge = group_judge(model, replace(wanted, chain=choice.chain))
        yield SupportBound(ComposedJudge(judge, gate_scores()) if gate else judge, bound=bound)


FILE = "judgement.json"
_REMEDY = "Name a trajectory.json, a thread, or the folder of a collected run."
V = TypeVar("V", bound=Value)


class _Members(Value):
    """Of a line of `groups.jsonl` what is needed here."""

    question: str
    trajectories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Judgeable:
    """Groups to be judged in their order, and the folder that their judgement goes to."""

    groups: tuple[TrajectoryGroup, ...]
    folder: Path
    collected: bool

    @property
    def file(self) -> Path:
        return self.folder / FILE

    def save(self, judgements: Sequence[Judgement]) -> None:
        listed = [judgement.model_dump(mode="json") for judgement in judgements]
        text = json.dumps(listed if self.collected else listed[0], ensure_ascii=False, indent=1)
        write_atomically(self.file, text)

    def judgement(self) -> Judgement | None:
        """What a lone run was judged to be; None where that was never scored, or cannot be read."""
        try:
            kept = Judgement.model_validate_json(self.file.read_bytes())
        except (OSError, ValidationError):
            return None
        same = kept.trajectory_id == self.groups[0].trajectories[0].id
        scored = any(stage.score is not None for stage in kept.stages)
        return kept if same and scored else None

    async def judge(self, judge: GroupJudge, stores: Stores) -> list[GroupJudgement]:
        """What the judge says of each group; the questions' rubrics are saved, scored or not."""
        buffers = BufferStore(stores.data_dir / "buffers")
        judged = []
        for step, group in enumerate(self.groups):
            buffer = await asyncio.to_thread(buffers.load, group.question)
            judged.append(await judge.judge(group, buffer, step))
            await asyncio.to_thread(buffers.save, judged[-1].buffer)
        return judged

    async def score(
        self, judge: GroupJudge, stores: Stores, bank: RubricBank | None
    ) -> list[GroupJudgement]:
        """Judge what has ended, group by group, and keep the verdicts and the questions' rubrics.

        The bank, where it is given, is told how well the runs that it helped came out. Raises
        JudgeError where a judge that did not work left everything unscored.
        """
        judged = await self.judge(judge, stores)
        judgements = [judgement for group in judged for judgement in group.judgements]
        notes = [note for group in judged for note in group.notes]
        scored = any(stage.score is not None for each in judgements for stage in each.stages)
        if notes and not scored:
            raise JudgeError(f"Nothing could be scored. {notes[0]}")
        await asyncio.to_thread(self.save, judgements)
        recalling = {t.id for group in self.groups for t in group.trajectories if t.recalled}
        helped = [judgement for judgement in judgements if judgement.trajectory_id in recalling]
        if bank and helped:
            await bank.note_judgements(helped)
        return judged


def find_run(name: str, data_dir: Path) -> Judgeable:
    """What the name stands for: a file or folder that exists, else a thread.

    Raises SettingsError where there is no such thing, StoreError where it cannot be read.
    """
    path = Path(name).expanduser()
    store = RunStore(data_dir)
    if path.is_file():
        found = value_in(path, Trajectory, _REMEDY)
        assert found is not None, "there is such a file"
        return _alone(found, path.parent, store)
    if (path / "groups.jsonl").is_file():
        return Judgeable(tuple(_groups(path)), path, collected=True)
    if (path / "trajectory.json").is_file():
        return find_run(str(path / "trajectory.json"), data_dir)
    if path.is_dir():
        raise SettingsError(
            f"{path} holds neither trajectory.json nor groups.jsonl.",
            "Name a thread, a trajectory's file, or the --out folder of rubricem collect.",
        )
    return _alone(store.load(name), store.folder_of(name), store)


def _alone(trajectory: Trajectory, folder: Path, store: RunStore) -> Judgeable:
    read = in_conversation(trajectory, background_in(folder, store, trajectory.earlier))
    group = TrajectoryGroup(question=read.question, trajectories=(read,))
    return Judgeable((group,), folder, collected=False)


def _groups(folder: Path) -> Iterator[TrajectoryGroup]:
    """As they were collected."""
    known = {t.id: t for t in lines_in(folder / "trajectories.jsonl", Trajectory)}
    for record in lines_in(folder / "groups.jsonl", _Members):
        members = tuple(known[name] for name in record.trajectories if name in known)
        yield TrajectoryGroup(question=record.question, trajectories=members)


def lines_in(path: Path, kind: type[V]) -> list[V]:
    """Whole lines alone: a last one without its end is still being written."""
    with writable(path):
        whole = path.read_bytes().rpartition(b"\n")[0]
    return [value_of(line, kind, _REMEDY, str(path)) for line in whole.split(b"\n") if line]


async def score_run(setup: Setup, thread: str, shared: LocalModel | None = None) -> Judgement:
    """Judge one ended run stage by stage, as `score` does; `shared` as of `open_group_judge`."""
    stores, folder = setup.stores, setup.stores.runs.folder_of(thread)
    found = await asyncio.to_thread(find_run, str(folder), stores.data_dir)
    replies = stores.data_dir / "replies"
    async with open_group_judge(setup.model, Wanted("stage"), replies, shared=shared) as judge:
        [judged] = await found.score(judge, stores, stores.open_bank())
    return judged.judgements[0]
