"""Learning from a run that has ended: it is judged, reflected on, and the best is kept.

It comes after the answer and can only fail by itself: whatever goes wrong, the answer stands
and the run waits to be learnt from later, with the reason. Every finished call is in a journal
beside the run until the learning is done, so a learning that was killed repeats none. A run
that is learnt from again, because somebody rated it, is reflected on no second time: what was
written on it is scored anew, now with the rating shown to the judge.

A question of a thread is judged and reflected on with what was asked and reported before it.
What it taught is kept under the question that can stand alone, by which it is recalled.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.banking import open_bank
from agent.choice import choose_policy
from agent.clients import open_policy
from agent.conversations.background import Background, background_in
from agent.conversations.in_thread import in_thread
from agent.conversations.leaning import standalone
from agent.events import Listener, SourceProgress, ignore
from agent.journaled import Calls, JournaledChat, JournaledPolicy, JournaledReader
from agent.judged_runs import find_run
from agent.judging import open_judge_model
from agent.learnable import (
    JOURNAL,
    Mark,
    candidates_in,
    clear_mark,
    mark_in,
    save_candidates,
    set_mark,
    was_learnt,
    why_not,
)
from agent.lessons import Lesson, failed, lesson_of, skipped
from agent.policy import Policy, TokenWriter
from agent.recalling import note_scores
from agent.reflecting import CANDIDATES, accepted, mark_best, write_candidates
from agent.settings import Settings
from judge.building import JudgeModel, LocalModel, reflection_judge, stage_judge
from memory.asking import told
from memory.bank import RubricBank
from memory.buffers import BufferStore
from memory.errors import JudgeError, RubricemError
from memory.journal import Journal
from memory.ratings import Rating, ratings_in
from memory.runs import RunStore
from memory.schema import Judgement, ReflectionCandidate, Status, Trajectory

EMBEDDED_CANDIDATES = 2
"""a model on a few cores writes each for a minute or more"""
THREADLESS = "nothing of its thread is left, without which its question means nothing"


@dataclass(frozen=True, slots=True)
class Learner:
    """What is opened once to learn from many runs."""

    settings: Settings
    policy: Policy
    model: JudgeModel
    bank: RubricBank
    tell: Listener = ignore

    @property
    def local(self) -> bool:
        """The policy runs in this process, and judges too."""
        return local_model(self.policy) is not None


@asynccontextmanager
async def open_learner(settings: Settings, tell: Listener = ignore) -> AsyncIterator[Learner]:
    """The policy and the judge that the settings name; their models are freed at the end."""
    async with (
        open_policy(settings, choose_policy(settings), tell) as policy,
        open_judge_model(settings, local_model(policy), tell) as model,
    ):
        yield Learner(settings, policy, model, open_bank(settings, tell), tell)


def local_model(policy: Policy) -> LocalModel | None:
    """The policy's own model where it runs in this process; it judges, too."""
    held = policy.model if isinstance(policy, TokenWriter) else None
    return held if isinstance(held, LocalModel) else None


async def learn(learner: Learner, thread: str) -> Lesson:
    """Judge, reflect and keep. What fails is said in the lesson, and the run stays queued."""
    store = RunStore(learner.settings.data_dir)
    try:
        trajectory = await asyncio.to_thread(store.load, thread)
        if trajectory.status is Status.FAILED:
            return skipped(thread, why_not(trajectory))
        folder = store.folder / thread
        journal = await asyncio.to_thread(Journal, folder / JOURNAL)
        with closing(journal):
            return await _learnt(learner, store, trajectory, journal)
    except RubricemError as error:
        return failed(thread, error)


async def _learnt(
    learner: Learner, store: RunStore, trajectory: Trajectory, journal: Journal
) -> Lesson:
    folder = store.folder / trajectory.thread
    background = await asyncio.to_thread(background_in, folder, store, trajectory.earlier)
    why = "this run was learnt from before"
    if trajectory.earlier and not background.turns:
        why = THREADLESS
        await asyncio.to_thread(set_mark, folder, Mark(state="skipped", reason=why))
    elif not await asyncio.to_thread(was_learnt, folder, trajectory):
        why = ""
    if why:
        # Another process may have learnt from it and removed the file while this one opened it.
        await asyncio.to_thread(journal.path.unlink, missing_ok=True)
        return skipped(trajectory.thread, why)
    mark = await asyncio.to_thread(mark_in, folder) or Mark()
    work = _Work(learner, trajectory, background, folder, Calls(journal), mark)
    try:
        lesson = await work.done()
    except RubricemError as error:
        waits = {"state": "queued", "reason": told(error)}
        await asyncio.to_thread(set_mark, folder, work.mark.model_copy(update=waits))
        raise
    if await asyncio.to_thread(ratings_in, folder) == work.ratings:
        await asyncio.to_thread(clear_mark, folder)
    else:
        await asyncio.to_thread(set_mark, folder, Mark(reason="it was rated while it was learnt"))
    await asyncio.to_thread(journal.path.unlink, missing_ok=True)
    return lesson


@dataclass(slots=True)
class _Work:
    """One run on its way to a lesson."""

    learner: Learner
    ended: Trajectory
    background: Background
    """what had been asked and found in its thread"""
    folder: Path
    calls: Calls
    mark: Mark
    ratings: tuple[Rating, ...] = ()
    """what the judge of the reflections was told of"""

    @property
    def trajectory(self) -> Trajectory:
        """The run as it is judged and reflected on."""
        return in_thread(self.ended, self.background)

    @property
    def question(self) -> str:
        """The question as the bank knows it."""
        return standalone(self.ended.question, self.background.questions)

    async def done(self) -> Lesson:
        written = await asyncio.to_thread(self._written_before)
        judgement = await self._judgement(again=bool(written))
        if self.ended.recalled:
            await note_scores(self.learner.bank, [judgement])
        candidates = await self._scored(judgement, written or await self._write())
        lesson = await self._kept(judgement, candidates)
        await asyncio.to_thread(save_candidates, self.folder, candidates)
        return lesson

    @contextmanager
    def _step(self, name: str, doing: str) -> Iterator[None]:
        """A judge's step: where it gives nothing of use, the next time it is asked anew."""
        self.learner.tell(SourceProgress(doing))
        with self.calls.scope(f"{name} {self.mark.failed.count(name)}"):
            try:
                yield
            except JudgeError:
                self.mark = self.mark.model_copy(update={"failed": (*self.mark.failed, name)})
                raise

    async def _judgement(self, *, again: bool) -> Judgement:
        """The run's judgement; it and the question's rubrics are saved."""
        settings = self.learner.settings
        found = await asyncio.to_thread(find_run, str(self.folder), settings.data_dir)
        if again and (before := await asyncio.to_thread(found.judgement)):
            return before
        store = BufferStore(settings.data_dir / "buffers")
        with self._step("stages", "judging this run"):
            buffer = await asyncio.to_thread(store.load, found.groups[0].question)
            judged = await stage_judge(self._model()).judge(found.groups[0], buffer)
            # Also where nothing was scored: its criteria are not to be asked for again.
            await asyncio.to_thread(store.save, judged.buffer)
            [judgement] = judged.judgements
            if all(stage.score is None for stage in judgement.stages):
                reasons = [*judged.notes, judgement.stages[-1].unscored_reason]
                raise JudgeError(f"nothing could be scored: {reasons[0]}")
        await asyncio.to_thread(found.save, [judgement])
        return judgement

    def _written_before(self) -> list[ReflectionCandidate]:
        """What was written on this very run, without its scores."""
        return [
            candidate.model_copy(update={"score": None, "accepted": False})
            for candidate in candidates_in(self.folder)
            if candidate.trajectory_id == self.ended.id
        ]

    async def _write(self) -> list[ReflectionCandidate]:
        self.learner.tell(SourceProgress("reflecting on this run"))
        count = EMBEDDED_CANDIDATES if self.learner.local else CANDIDATES
        policy = JournaledPolicy(self.learner.policy, self.calls)
        with self.calls.scope("reflections"):
            written = await write_candidates(
                policy, self.trajectory, count, self.learner.settings.seed
            )
        return [each.model_copy(update={"question": self.question}) for each in written]

    async def _scored(
        self, judgement: Judgement, candidates: Sequence[ReflectionCandidate]
    ) -> list[ReflectionCandidate]:
        settings, judge = self.learner.settings, reflection_judge(self._model())
        self.ratings = await asyncio.to_thread(ratings_in, self.folder)
        with self._step("scores", "scoring what was written"):
            scored = await judge.score(
                self.trajectory,
                judgement,
                candidates,
                settings.seed,
                rating=self.ratings[-1] if self.ratings else None,
            )
            for before, after in zip(candidates, scored, strict=True):
                if after.unscored_reason != before.unscored_reason:
                    raise JudgeError(after.unscored_reason)
        least = settings.least_reflection_score
        return mark_best(scored, judge.minimum if least is None else least)

    async def _kept(
        self, judgement: Judgement, candidates: Sequence[ReflectionCandidate]
    ) -> Lesson:
        policy, bank = self.learner.policy, self.learner.bank
        read = (*self.ended.sources, *self.background.sources)
        texts = list(dict.fromkeys(source.text for source in read))
        best = accepted(
            candidates, policy.name, policy.version, judgement=judgement, source_texts=texts
        )
        if best is not None:
            await bank.put(best)
        standing = await bank.within(self.question)
        return lesson_of(self.ended, best, candidates, standing)

    def _model(self) -> Any:
        model = self.learner.model
        if isinstance(model, LocalModel):
            return JournaledReader(model, model, self.calls)
        return JournaledChat(model, self.calls)
