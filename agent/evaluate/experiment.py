"""An evaluation: every question in every arm, each a row that is saved as soon as it is known.

The folder of an evaluation holds its settings (`settings.json`), the rows (`rows.jsonl`) and the
runs with their journals. A killed process loses no row and no answered call of the runs in flight:
the same command continues them. Failed runs are tried again. Other settings for the same folder are
refused, since rows of two settings could not be told apart. Arms and questions may be added: each
row says its own.

The model, the source and the limits are opened once and shared by all arms.
"""

import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rubricem.agent.evaluate.arms import Arm
from rubricem.agent.evaluate.grades import EvalGrade
from rubricem.agent.evaluate.questions import EvalQuestion, QuestionSet
from rubricem.agent.learning.scoring import open_group_judge
from rubricem.agent.models.opening import PolicyChoice
from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.research.recall import BankRecaller
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.research.setup import Setup, open_researcher, resolve_auto
from rubricem.agent.sources.index import PassageCorpus
from rubricem.agent.transcript.events import Tell, hush
from rubricem.agent.transcript.question import Ask
from rubricem.judge.buffers import add, persistent_criteria
from rubricem.judge.build import Kind, Wanted
from rubricem.memory.errors import PolicyError, RubricemError, SettingsError, StoreError
from rubricem.memory.runs import RowFile, hold_lock, value_in, write_atomically
from rubricem.memory.schema import (
    AnswerFormat,
    GroupJudge,
    RubricBuffer,
    SearchTool,
    Stage,
    Status,
    Trajectory,
    TrajectoryGroup,
    Value,
)
from rubricem.memory.text import digest_of

SETTINGS, ROWS = "settings.json", "rows.jsonl"
OTHER_FOLDER = "Name another folder with --out."
MOST_FAILED = 5
"""consecutive failed runs after which no more are begun"""
_PLAIN_ID = re.compile(r"[\w.-]{1,40}", re.ASCII)


class EvalRow(Value):
    """One question answered in one arm."""

    id: str
    arm: str
    question: str
    type: str = ""
    thread: str
    status: Status
    reason: str = ""
    answer: str = ""
    """as a reader sees it"""
    bare: str = ""
    """for an exact answer, the answer alone"""
    grade: EvalGrade
    searches: int = 0
    seconds: float = 0.0
    """without grading"""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    """in US dollars, if a price is known"""

    @property
    def key(self) -> tuple[str, str]:
        return self.id, self.arm


OnRow = Callable[[EvalRow, int, int], None]
"""Called with each row, the number of rows so far and the total."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """Everything that determines the rows, and where they are stored."""

    setup: Setup
    questions: QuestionSet
    arms: tuple[Arm, ...]
    out: Path
    answer_format: AnswerFormat | None = None
    """None: exact if a question gives its answer, else the setup's"""
    judge: Kind | None = None
    """for the questions' own rubrics: checklist or stage; None: they are not graded"""
    judge_model: PolicyChoice | None = None
    """None: the model under test"""
    at_once: int = 1
    search_tool: SearchTool | None = None
    """what is searched instead of the setup's sources"""

    def row_inputs(self) -> dict[str, Any]:
        """The inputs of a row, except its question and its arm."""
        template = asdict(self.setup.template)
        shaping = ("tool_calls", "passages", "passage_words", "max_tokens", "seed")
        # A server may move. Whether there is memory is said by the arms.
        left_out = ("memory", "base_url")
        chosen = {k: v for k, v in self.setup.choices.items() if k not in left_out}
        tool = self.search_tool
        return {
            "format": self.questions.format,
            "settings": chosen,
            "limits": {name: template[name] for name in shaping},
            "budgets": asdict(self.setup.budgets),
            "answer_format": self.answer_format or "auto",
            "searched": f"{tool.name} {getattr(tool, 'digest', '')[:24]}".strip() if tool else "",
            "judge": self.judge
            and f"{self.judge} by {(self.judge_model or self.setup.model).name}",
        }

    def ask(self, question: EvalQuestion) -> Ask:
        form = self.answer_format or (AnswerFormat.EXACT if question.answers else None)
        template = replace(self.setup.template, approve_plan=False, clarify=False)
        return replace(
            template,
            question=question.question,
            answer_format=form or template.answer_format,
            budgets=self.setup.budgets,
        )

    async def run(self, tell: Tell = hush, on_row: OnRow = lambda *told: None) -> list[EvalRow]:
        """The rows of all questions in all arms, in this order, earlier attempts' included.

        Raises SettingsError for a folder of other settings, StoreError if the folder is in use or
        damaged, PolicyError if run after run fails.
        """
        setup = await resolve_auto(self.setup.over_whole_sources(), tell=tell)
        self = replace(self, setup=setup)
        with claimed(self.out, self.row_inputs()):
            wanted = [(question, arm) for question in self.questions.questions
                      for arm in self.arms]  # fmt: skip
            rows = RowFile(self.out / ROWS, EvalRow, OTHER_FOLDER)
            check_questions(rows, self.questions.questions)
            done = {key for key, row in rows.held.items() if row.status is not Status.FAILED}
            left = [(q, arm) for q, arm in wanted if (q.id, arm.name) not in done]
            if left:
                async with open_parts(self, tell) as parts:
                    await _answer_all(parts, left, rows, on_row, len(wanted))
            return [rows.held[q.id, arm.name] for q, arm in wanted]


@contextmanager
def claimed(path: Path, told: Mapping[str, Any]) -> Iterator[None]:
    """The folder, locked against other evaluations, with these settings in it.

    Raises StoreError if another one is running, SettingsError if the folder has other settings.
    """
    busy = StoreError(
        f"{path} is in use by another evaluation.",
        "Wait until that one has ended, or name another folder with --out.",
    )
    with hold_lock(path / "lock", busy):
        wanted, file = json.loads(json.dumps(told)), path / SETTINGS
        before = value_in(file, dict[str, Any], OTHER_FOLDER)
        if before is None:
            write_atomically(file, json.dumps(wanted, ensure_ascii=False, indent=1) + "\n")
        elif other := [name for name in wanted if before.get(name) != wanted[name]]:
            raise SettingsError(
                f"{path} holds an evaluation with other {', '.join(other)}.",
                f"{OTHER_FOLDER} {SETTINGS} has the settings of that one.",
            )
        yield


def check_questions(rows: RowFile[EvalRow], questions: Sequence[EvalQuestion]) -> None:
    """Raises SettingsError if a row is of another question with the same id."""
    asked = {question.id: question.question for question in questions}
    for row in rows.held.values():
        if asked.get(row.id, row.question) != row.question:
            raise SettingsError(
                f"{rows.path.parent} holds another question with the id {row.id!r}.", OTHER_FOLDER
            )


@dataclass(frozen=True, slots=True)
class EvalParts:
    """What all runs share."""

    experiment: Experiment
    researcher: Researcher
    recaller: Any
    judge: GroupJudge | None


@asynccontextmanager
async def open_parts(experiment: Experiment, tell: Tell = hush) -> AsyncIterator[EvalParts]:
    """Runs go into the evaluation's folder; indexes and the bank stay where they are.

    Nothing is learnt: a question's answer would teach the next arm.
    """
    given = experiment.setup
    setup = replace(
        given,
        stores=replace(given.stores, data_dir=experiment.out),
        memory="off",
        choices={**given.choices, "memory": "off"},
    )
    async with AsyncExitStack() as stack:
        tool = experiment.search_tool
        if not any(arm.searches for arm in experiment.arms):
            tool = PassageCorpus((), experiment.out / "indexes")
        if tool is None:
            tool = await stack.enter_async_context(given.open_sources(tell))
        opening = open_researcher(setup, tell, search_tool=tool)
        researcher = await stack.enter_async_context(opening)
        recaller = judge = None
        if any(arm.memory for arm in experiment.arms):
            recaller = BankRecaller(
                given.stores.open_bank(tell),
                context_tokens=researcher.policy.context_tokens,
                tell=tell,
                bars=given.bars(researcher.policy),
            )
        if experiment.judge and any(q.rubric for q in experiment.questions.questions):
            own = None if experiment.judge_model else researcher.policy.reader
            choice = experiment.judge_model or given.model
            wanted = Wanted(experiment.judge)  # the arm without sources has nothing to be bound by
            opening_judge = open_group_judge(choice, wanted, bound=False, shared=own)
            judge = await stack.enter_async_context(opening_judge)
        yield EvalParts(experiment, researcher, recaller, judge)


async def _answer_all(
    parts: EvalParts,
    wanted: Sequence[tuple[EvalQuestion, Arm]],
    rows: RowFile[EvalRow],
    on_row: OnRow,
    total: int,
) -> None:
    """As many at once as are allowed, begun in order; those begun end before an error is raised."""
    waiting, failed, done, error = deque(wanted), 0, total - len(wanted), ""

    async def work() -> None:
        nonlocal failed, done, error
        while waiting:
            row = await answer_one(parts, *waiting.popleft())
            await asyncio.to_thread(rows.append, row)
            failed, done = failed + 1 if row.status is Status.FAILED else 0, done + 1
            on_row(row, done, total)
            if failed >= MOST_FAILED:
                waiting.clear()
                error = error or f"{failed} runs in a row failed; of the last: {row.reason}"

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(parts.experiment.at_once, len(wanted))):
                tasks.create_task(work())
    except BaseExceptionGroup as group:
        known = next((e for e in group.exceptions if isinstance(e, RubricemError)), None)
        raise known or group from None
    if error:
        raise PolicyError(error, "Fix that; the same command then continues.")


async def answer_one(parts: EvalParts, question: EvalQuestion, arm: Arm) -> EvalRow:
    """The row of a question in an arm, its answer graded."""
    ask, thread = parts.experiment.ask(question), thread_of(question, arm)
    run = await arm.ask(parts.researcher, parts.recaller, ask, thread)
    answer = cited_answer(run)
    grade = await asyncio.to_thread(EvalGrade.of, question, run)
    if not arm.searches:
        grade = grade.model_copy(update={"evidence": None})
    if question.rubric:
        grade = grade.model_copy(update=await rubric_score(parts.judge, question, run))
    return EvalRow(
        id=question.id,
        arm=arm.name,
        question=question.question,
        type=question.type,
        thread=run.thread,
        status=Status.FAILED if run.failed else run.status,
        reason=run.reason,
        answer=answer.text(),
        bare=answer.bare,
        grade=grade,
        searches=run.tool_calls,
        seconds=round(run.seconds, 3),
        prompt_tokens=run.usage.prompt_tokens,
        completion_tokens=run.usage.completion_tokens,
        cost=run.usage.cost,
    )


def thread_of(question: EvalQuestion, arm: Arm) -> str:
    """A run's name that can be a file's: the arm and the id, or a hash of an unsuitable id."""
    named = _PLAIN_ID.fullmatch(question.id)
    return f"{arm.name.replace('+', '-')}-{question.id if named else digest_of(question.id, 16)}"


async def rubric_score(
    judge: GroupJudge | None, question: EvalQuestion, run: Trajectory
) -> dict[str, Any]:
    """A judge's score of the answer by the question's own rubric, or why there is none."""
    if judge is None:
        return {"rubric_reason": "no judge was named"}
    if run.failed:
        return {"rubric_reason": "the run failed"}
    items = persistent_criteria([("", item.criterion, item.points) for item in question.rubric])
    empty = RubricBuffer(question=question.question)
    buffer = add(empty, {Stage.ANSWER: items}, 0, "its own")
    group = TrajectoryGroup(question=question.question, trajectories=(run,))
    [judgement] = (await judge.judge(group, buffer)).judgements
    found = judgement.at(Stage.ANSWER)
    if found is None or found.score is None:
        return {"rubric_reason": found.unscored_reason if found else "the answer was not judged"}
    return {"rubric": found.score, "rubric_reason": found.justification}
