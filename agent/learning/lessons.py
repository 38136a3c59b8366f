"""Learning from one run that has ended: it is judged and reflected on; the best reflection is kept.

This happens after the answer, which stands whatever fails here: the run then waits, with the
reason. Every finished call is in a journal beside the run until learning is done. A run that
somebody rated is not reflected on again: its reflections are scored again, with the rating.

    runs/THREAD/learn.json          the decision about learning from it: a `LearnMark`
    runs/THREAD/reflections.json    all reflections written on it, scored: it was learnt from

A run without a mark waits if it was asked with `--memory on`, has ended and was not learnt from:
the folders are the queue.
"""

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from rubricem.agent.learning.reflect import CANDIDATES, Reflected, Reflector
from rubricem.agent.learning.scoring import SupportBound, find_run
from rubricem.agent.models.policy import JournaledCalls, Policy, call_scope, journal_calls
from rubricem.agent.record.conversations import Background, background_in, in_conversation
from rubricem.agent.research.setup import Setup
from rubricem.agent.transcript.events import Tell, hush
from rubricem.judge.build import JudgeModel, reflection_judge, stage_judge
from rubricem.memory.bank import RubricBank
from rubricem.memory.errors import JudgeError, RubricemError, StoreError
from rubricem.memory.runs import (
    Journal,
    Rating,
    RunStore,
    rate,
    ratings_in,
    value_in,
    writable,
    write_atomically,
)
from rubricem.memory.schema import Judgement, Reflection, ReflectionCandidate, Trajectory, Value

MARK, WRITTEN = "learn.json", "reflections.json"
JOURNAL = "learning.jsonl"
"""the calls of unfinished learning"""


class LearnMark(Value):
    """`queued`: waits, whatever was learnt from it before. `skipped`: does not wait."""

    state: Literal["queued", "skipped"] = "queued"
    reason: str = ""
    failed: tuple[str, ...] = ()
    """steps at which a judge gave nothing usable, once for each time, to be asked again"""


def mark_in(folder: Path) -> LearnMark | None:
    """The mark of the run in this folder; an unreadable one counts as none."""
    try:
        return LearnMark.model_validate_json((folder / MARK).read_bytes())
    except (OSError, ValidationError):
        return None


def set_mark(folder: Path, mark: LearnMark) -> None:
    write_atomically(folder / MARK, mark.model_dump_json())


def clear_mark(folder: Path) -> None:
    path = folder / MARK
    with writable(path):
        path.unlink(missing_ok=True)


def candidates_in(folder: Path) -> list[ReflectionCandidate]:
    """The reflections written on the run in this folder; empty if it was not learnt from."""
    remedy = "Remove it, and learn from the run again."
    return value_in(folder / WRITTEN, list[ReflectionCandidate], remedy) or []


def save_candidates(folder: Path, candidates: Sequence[ReflectionCandidate]) -> None:
    listed = ",".join(candidate.model_dump_json() for candidate in candidates)
    write_atomically(folder / WRITTEN, f"[{listed}]")


def was_learnt(folder: Path, trajectory: Trajectory) -> bool:
    """Whether this very run was learnt from, and nothing has requested it again."""
    mark = mark_in(folder)
    if mark is not None and mark.state == "queued":
        return False
    return any(c.trajectory_id == trajectory.id for c in candidates_in(folder))


def enter(store: RunStore, trajectory: Trajectory) -> str:
    """Queue a run asked with `--memory on`; or say why it does not wait."""
    if why := why_not(trajectory):
        return why
    folder = store.folder_of(trajectory.thread)
    if was_learnt(folder, trajectory):
        return "this run was learnt from before"
    if candidates_in(folder) and mark_in(folder) is None:
        set_mark(folder, LearnMark(reason="it went on after it had been learnt from"))
    return ""


def find_queued(
    store: RunStore, *, every: bool = False, settled: dict[str, int] | None = None
) -> list[str]:
    """Threads of the waiting runs, the oldest first.

    `every`: also runs asked without `--memory on`, and skipped ones. `settled`: a cache for
    repeated calls of which runs did not wait, and the state of their folders; every file that makes
    one wait changes that state.
    """
    settled = {} if settled is None else settled
    waiting = []
    for thread in store.threads():
        with suppress(FileNotFoundError):
            state = os.stat(f"{store.folder}/{thread}").st_mtime_ns
            if settled.get(thread) == state:
                continue
            # What comes within a tick of the clock leaves the folder's time as it was.
            still = time.time_ns() - state > 10**9 and not store.running(thread)
            if _waits(store, thread, every):
                waiting.append(thread)
            elif still:
                settled[thread] = state
    return waiting


def models_of(store: RunStore, thread: str) -> tuple[str, str]:
    """The model and the server of a run; "": none was named. Raises StoreError where it is lost."""
    choices = store.request(thread).get("choices") or {}
    if "model" not in choices:
        said = f"The request of the run {thread!r} does not say which model it was asked of."
        raise StoreError(said, "Name one: rubricem learn RUN --model NAME.")
    return choices["model"] or "", choices.get("base_url") or ""


def _waits(store: RunStore, thread: str, every: bool) -> bool:
    """Whether it waits; an unreadable run does not affect others."""
    folder = store.folder_of(thread)
    mark = mark_in(folder)
    if mark is not None and mark.state == "skipped" and not every:
        return False
    if (mark is None or mark.state == "skipped") and (folder / WRITTEN).exists():
        return False
    try:
        wanted = mark or every or store.request(thread)["choices"].get("memory") == "on"
        ready = wanted and store.has_ended(thread) and not store.running(thread)
        return bool(ready) and why_not(store.load(thread)) == ""
    except (RubricemError, KeyError, TypeError, AttributeError):
        return False


def why_not(trajectory: Trajectory) -> str:
    """Why a run should not be learnt from; "" if it should."""
    if trajectory.failed:
        return "a failed run teaches nothing"
    if trajectory.ended_by == "interrupt":
        return "nothing was learnt from this run: it was interrupted"
    return ""


Outcome = Literal["kept", "quarantined", "set aside", "nothing", "skipped", "queued"]
"""`kept`: in the bank. `quarantined`: there, but not recalled until a person releases it. `set
aside`: in the history alone. `nothing`: none was good enough. `queued`: learning failed."""


class Lesson(Value):
    thread: str
    outcome: Outcome
    said: str
    reflection: str = ""
    score: float | None = None


def failed_lesson(thread: str, error: RubricemError) -> Lesson:
    said = f"nothing was learnt from this run: {error.told()}"
    return Lesson(thread=thread, outcome="queued", said=said)


def lesson_of(
    trajectory: Trajectory,
    best: Reflection | None,
    candidates: Sequence[ReflectionCandidate],
    standing: Reflection | None,
) -> Lesson:
    """`best` was put into the bank; its current item for the question is `standing`."""
    thread = trajectory.thread
    if best is None:
        why = _why_none(trajectory, candidates, standing)
        return Lesson(thread=thread, outcome="nothing", said=why)
    outcome, said = _put(best, standing)
    return Lesson(thread=thread, outcome=outcome, said=said, reflection=best.id, score=best.score)


def _put(best: Reflection, standing: Reflection | None) -> tuple[Outcome, str]:
    if best.flags:
        held = f"reflection {best.id} is held in quarantine: {best.flags[0].rstrip('.')}"
        return "quarantined", f"{held}. Release it by: rubricem bank release {best.id}"
    if standing is None or standing.id != best.id:
        why = f"{standing.id}, which a person wrote, stays" if standing else "a person removed it"
        return "set aside", f"reflection {best.id} is not recalled: {why}"
    return "kept", f"kept reflection {best.id}, which scored {best.score:.2f}"


def _why_none(
    trajectory: Trajectory, candidates: Sequence[ReflectionCandidate], standing: Reflection | None
) -> str:
    scores = [c.score.total for c in candidates if c.score and not c.fault]
    why = next((c.unscored_reason or c.fault for c in candidates), "none was written")
    if scores:
        why = f"the best scored {max(scores):.2f}, which is too little"
    mine = standing is not None and standing.trajectory_id == trajectory.id
    stays = f"; {standing.id}, which it taught before, stands" if standing and mine else ""
    return f"no reflection on this run was good enough to be kept: {why}{stays}"


EMBEDDED_CANDIDATES = 0
"""a model on a few cores takes minutes for each and rarely completes the form: it writes one under
a grammar"""
OUT_OF_CONTEXT = "nothing of its thread is left, without which its question means nothing"


@dataclass(frozen=True, slots=True)
class RunLearner:
    """What is opened once to learn from many runs."""

    setup: Setup
    policy: Policy
    model: JudgeModel
    bank: RubricBank
    tell: Tell = hush


@asynccontextmanager
async def open_learner(
    setup: Setup, tell: Tell = hush, policy: Policy | None = None
) -> AsyncIterator[RunLearner]:
    """The reflecting model and the judge; what was opened is freed at the end.

    `policy` is open already, and reflects unless another model is to.
    """
    choice = setup.reflecting
    async with AsyncExitStack() as stack:
        if policy is None or choice != setup.model:
            policy = await stack.enter_async_context(choice.open_policy(tell))
        opening = choice.open_judge(tell, policy.reader)
        model = await stack.enter_async_context(opening)
        yield RunLearner(setup, policy, model, setup.stores.open_bank(tell), tell)


async def learn(learner: RunLearner, thread: str) -> Lesson:
    """Judge, reflect and store. A failure is reported in the lesson, and the run stays queued."""
    store = learner.setup.stores.runs
    try:
        trajectory = await asyncio.to_thread(store.load, thread)
        if trajectory.failed:
            return Lesson(thread=thread, outcome="skipped", said=why_not(trajectory))
        folder = store.folder_of(thread)
        journal = await asyncio.to_thread(Journal, folder / JOURNAL)
        with closing(journal):
            return await _learn(learner, store, trajectory, journal)
    except RubricemError as error:
        return failed_lesson(thread, error)


async def _learn(
    learner: RunLearner, store: RunStore, trajectory: Trajectory, journal: Journal
) -> Lesson:
    folder = store.folder_of(trajectory.thread)
    background = await asyncio.to_thread(background_in, folder, store, trajectory.earlier)
    why = "this run was learnt from before"
    if trajectory.earlier and not background.turns:
        why = OUT_OF_CONTEXT
        await asyncio.to_thread(set_mark, folder, LearnMark(state="skipped", reason=why))
    elif not await asyncio.to_thread(was_learnt, folder, trajectory):
        why = ""
    if why:
        # Another process may have learnt from it and removed the file while this one opened it.
        await asyncio.to_thread(journal.path.unlink, missing_ok=True)
        return Lesson(thread=trajectory.thread, outcome="skipped", said=why)
    mark = await asyncio.to_thread(mark_in, folder) or LearnMark()
    work = _LearningWork(learner, trajectory, background, folder, JournaledCalls(journal), mark)
    try:
        lesson = await work.learn()
    except RubricemError as error:
        waits = {"state": "queued", "reason": error.told()}
        await asyncio.to_thread(set_mark, folder, work.mark.model_copy(update=waits))
        raise
    await asyncio.to_thread(clear_mark, folder)
    # Looked at afterwards: a rating that came before has lost its mark.
    if await asyncio.to_thread(ratings_in, folder) != work.ratings:
        again = LearnMark(reason="it was rated while it was learnt")
        await asyncio.to_thread(set_mark, folder, again)
    await asyncio.to_thread(journal.path.unlink, missing_ok=True)
    return lesson


@dataclass(slots=True)
class _LearningWork:
    """The learning from one run."""

    learner: RunLearner
    ended: Trajectory
    background: Background
    folder: Path
    calls: JournaledCalls
    mark: LearnMark
    ratings: tuple[Rating, ...] = ()
    """the ratings that the judge of the reflections saw"""

    @property
    def trajectory(self) -> Trajectory:
        """The run in the form in which it is judged and reflected on."""
        return in_conversation(self.ended, self.background)

    @property
    def question(self) -> str:
        """The question in the form in which the bank stores it."""
        return self.ended.alone or self.ended.question

    @property
    def private(self) -> bool:
        """Whether the lesson is, also where an earlier version did not say so of the run."""
        recalled = any(item.private for item in self.ended.recollections)
        return self.ended.private or self.background.private or recalled

    async def learn(self) -> Lesson:
        learner = self.learner
        # What was written on this very run before is scored anew.
        written = [
            candidate.model_copy(update={"score": None, "accepted": False})
            for candidate in await asyncio.to_thread(candidates_in, self.folder)
            if candidate.trajectory_id == self.ended.id
        ]
        judgement = await self._judge(again=bool(written))
        if self.ended.recalled:
            await learner.bank.note_judgements([judgement])
        reflector = Reflector(
            journal_calls(learner.policy, self.calls),
            reflection_judge(self._model()),
            learner.setup.reflection_tokens,
            EMBEDDED_CANDIDATES if learner.policy.reader else CANDIDATES,
        )
        found = await self._choose(reflector, judgement, written or await self._write(reflector))
        if found.reflection is not None:
            server = learner.setup.model.server
            learnt = {"private": self.private, "server": server}
            await learner.bank.put(found.reflection.model_copy(update=learnt))
        standing = await learner.bank.within(self.question)
        await asyncio.to_thread(save_candidates, self.folder, found.candidates)
        return lesson_of(self.ended, found.reflection, found.candidates, standing)

    @contextmanager
    def _step(self, name: str, doing: str) -> Iterator[None]:
        """A step of a judge: if its reply is unusable, it is asked again next time."""
        self.learner.tell(doing)
        with call_scope(f"{name} {self.mark.failed.count(name)}"):
            try:
                yield
            except JudgeError:
                self.mark = self.mark.model_copy(update={"failed": (*self.mark.failed, name)})
                raise

    async def _judge(self, *, again: bool) -> Judgement:
        """The run's judgement, stored with the question's rubrics."""
        data_dir = self.learner.setup.stores.data_dir
        found = await asyncio.to_thread(find_run, str(self.folder), data_dir)
        if again and (before := await asyncio.to_thread(found.judgement)):
            return before
        with self._step("stages", "judging this run"):
            judge = SupportBound(stage_judge(self._model()))
            [judged] = await found.judge(judge, self.learner.setup.stores)
            [judgement] = judged.judgements
            if all(stage.score is None for stage in judgement.stages):
                reasons = [*judged.notes, judgement.stages[-1].unscored_reason]
                raise JudgeError(f"nothing could be scored: {reasons[0]}")
        await asyncio.to_thread(found.save, [judgement])
        return judgement

    async def _write(self, reflector: Reflector) -> list[ReflectionCandidate]:
        self.learner.tell("reflecting on this run")
        with call_scope("reflections"):
            written = await reflector.write(self.trajectory, self.learner.setup.template.seed)
        return [each.model_copy(update={"question": self.question}) for each in written]

    async def _choose(
        self, reflector: Reflector, judgement: Judgement, written: Sequence[ReflectionCandidate]
    ) -> Reflected:
        self.ratings = await asyncio.to_thread(ratings_in, self.folder)
        with self._step("scores", "scoring what was written"):
            found = await reflector.choose(
                self.trajectory,
                judgement,
                written,
                self.learner.setup.template.seed,
                rating=self.ratings[-1] if self.ratings else None,
                earlier=self.background.sources,
            )
            for before, after in zip(written, found.candidates, strict=True):
                if after.unscored_reason != before.unscored_reason:
                    raise JudgeError(after.unscored_reason)
        return found

    def _model(self) -> Any:
        return journal_calls(self.learner.model, self.calls)


KEPT, MOST_WAITING = 20, 200
Learn = Callable[[], Awaitable[Lesson]]


class LearningQueue:
    """Learns from one run at a time; used on one event loop."""

    def __init__(self) -> None:
        self.lessons: deque[Lesson] = deque(maxlen=KEPT)
        """results of the runs so far, the latest last"""
        self.current = ""
        """the run being learnt from"""
        self._waiting: dict[str, Learn] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def working(self) -> bool:
        return self._task is not None

    def put(self, thread: str, learn: Learn) -> None:
        """Queue a run, unless it is here already. Raises RubricemError if too many wait."""
        if thread != self.current and thread not in self._waiting:
            if len(self._waiting) >= MOST_WAITING:
                said = f"{MOST_WAITING} runs wait to be learnt from; others wait in their folders."
                raise RubricemError(said, "Learn from them later, as rubricem learn does.")
            self._waiting[thread] = learn
        if self._task is None:
            self._task = asyncio.create_task(self._work())

    async def idle(self) -> None:
        """Return once every run here has been learnt from."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def stop(self) -> None:
        """Stop; replies of the model are kept, and not requested again."""
        self._waiting.clear()
        if (task := self._task) is not None:
            task.cancel()
            await asyncio.wait([task])  # and not for one that a run's end began meanwhile

    async def _work(self) -> None:
        try:
            while self._waiting:
                self.current = next(iter(self._waiting))
                self.lessons.append(await _lesson(self.current, self._waiting.pop(self.current)))
        finally:
            self.current, self._task = "", None


async def _lesson(thread: str, learn: Learn) -> Lesson:
    try:
        return await learn()
    except RubricemError as error:
        return failed_lesson(thread, error)
    except Exception as error:
        # Nobody awaits this: a fault that is not told here is told nowhere.
        logging.getLogger(__name__).error("learning from %s", thread, exc_info=error)
        return failed_lesson(thread, RubricemError(f"rubricem itself failed: {error!r}"))


def keep_rating(store: RunStore, thread: str, score: int, comment: str = "") -> str:
    """Store a rating of 1 to 5; returns a sentence that says when it is learnt from.

    Raises SettingsError if no ended run has this name, or the comment is too long.
    """
    store.load(thread)
    folder = store.folder_of(thread)
    rate(folder, score, comment)
    if (folder / WRITTEN).exists():
        set_mark(folder, LearnMark(reason="it was rated after it had been learnt from"))
        return "It was learnt from before the rating; it waits again: rubricem learn"
    if thread in find_queued(store):
        return "It waits to be learnt from, with the rating: rubricem learn"
    return f"It does not wait to be learnt from; to do so: rubricem learn {thread}"
