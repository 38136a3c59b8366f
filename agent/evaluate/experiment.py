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
import os
import re
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
from rubricem.agent.research.setup import Setup, open_researcher, settle
from rubricem.agent.sources.index import PassageCorpus
from rubricem.agent.transcript.events import Tell, hush
from rubricem.agent.transcript.question import Ask
from rubricem.judge.build import Kind, Wanted
from rubricem.judge.checklist import with_items
from rubricem.memory.errors import PolicyError, RubricemError, SettingsError, StoreError
from rubricem.memory.runs import append_whole, hold_lock, value_of, writable, write_atomically
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
JUDGES: tuple[Kind, ...] = ("checklist", "stage")
"""those that can grade one answer by a rubric; the others compare answers"""
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
    """for the questions' own rubrics; None: they are not graded"""
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
        folder = EvalFolder(self.out)
        with folder.alone():
            setup = await settle(self.setup.over_whole_sources(), tell=tell)
            self = replace(self, setup=setup)
            folder.claim(self.row_inputs())
            wanted = [(question, arm) for question in self.questions.questions
                      for arm in self.arms]  # fmt: skip
            rows = RowFile(self.out / ROWS)
            rows.check_questions(self.questions.questions)
            done = {key for key, row in rows.held.items() if row.status is not Status.FAILED}
            left = [(q, arm) for q, arm in wanted if (q.id, arm.name) not in done]
            if left:
                async with open_parts(self, tell) as parts:
                    await _answer_all(parts, left, rows, on_row, len(wanted))
            return [rows.held[q.id, arm.name] for q, arm in wanted]


@dataclass(frozen=True, slots=True)
class EvalFolder:
    """The folder of an evaluation's settings and rows."""

    path: Path

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the folder against other evaluations; raises StoreError if one is running."""
        busy = StoreError(
            f"{self.path} is in use by another evaluation.",
            "Wait until that one has ended, or name another folder with --out.",
        )
        with hold_lock(self.path / "lock", busy):
            yield

    def claim(self, told: Mapping[str, Any]) -> None:
        """Store the settings, or check that they are those stored before."""
        told, path = json.loads(json.dumps(told)), self.path / SETTINGS
        if not path.exists():
            write_atomically(path, json.dumps(told, ensure_ascii=False, indent=1) + "\n")
            return
        with writable(path):
            text = path.read_text(encoding="utf-8")
        try:
            before = json.loads(text)
            other = [name for name in told if before.get(name) != told[name]]
        except (ValueError, AttributeError) as error:
            raise StoreError(
                f"{path} cannot be read.", "Name another folder with --out."
            ) from error
        if other:
            raise SettingsError(
                f"{self.path} holds an evaluation with other {', '.join(other)}.",
                f"Name another folder with --out; {path.name} has the settings of that one.",
            )


class RowFile:
    """Rows on disk, each by its `key`; of two with one key the later one counts."""

    def __init__(self, path: Path, kind: type[EvalRow] = EvalRow) -> None:
        self.path = path
        self.held: dict[tuple[str, str], Any] = {}
        with writable(path):
            whole = path.read_bytes() if path.exists() else b""
            # A last line without its end was being written when the process was killed.
            if (end := whole.rfind(b"\n") + 1) < len(whole):
                os.truncate(path, end)
        for line in whole[:end].splitlines():
            row = value_of(line, kind, "Name another folder with --out.", str(path))
            self.held[row.key] = row

    async def append(self, row: EvalRow) -> None:
        """Return once the row is on disk."""
        line = row.model_dump_json() + "\n"
        with writable(self.path), self.path.open("ab") as file:
            await asyncio.to_thread(append_whole, file.fileno(), line.encode())
        self.held[row.key] = row

    def check_questions(self, questions: Sequence[EvalQuestion]) -> None:
        """Raises SettingsError if a row is of another question with the same id."""
        asked = {question.id: question.question for question in questions}
        for row in self.held.values():
            if asked.get(row.id, row.question) != row.question:
                raise SettingsError(
                    f"{self.path.parent} holds another question with the id {row.id!r}.",
                    "Name another folder with --out.",
                )


@dataclass(frozen=True, slots=True)
class EvalParts:
    """What all runs share."""

    experiment: Experiment
    setup: Setup
    """its runs are stored in the evaluation's folder"""
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
            )
        if experiment.judge and any(q.rubric for q in experiment.questions.questions):
            own = None if experiment.judge_model else researcher.policy.reader
            choice = experiment.judge_model or given.model
            opening_judge = open_group_judge(choice, Wanted(experiment.judge), shared=own)
            judge = await stack.enter_async_context(opening_judge)
        yield EvalParts(experiment, setup, researcher, recaller, judge)


async def _answer_all(
    parts: EvalParts,
    wanted: Sequence[tuple[EvalQuestion, Arm]],
    rows: RowFile,
    on_row: OnRow,
    total: int,
) -> None:
    """As many at once as are allowed, begun in order."""
    waiting, failed, done = iter(wanted), 0, total - len(wanted)

    async def work() -> None:
        nonlocal failed, done
        for question, arm in waiting:
            row = await answer_one(parts, question, arm)
            await rows.append(row)
            failed, done = failed + 1 if row.status is Status.FAILED else 0, done + 1
            on_row(row, done, total)
            if failed >= MOST_FAILED:
                raise PolicyError(
                    f"{failed} runs in a row failed; of the last: {row.reason}",
                    "Fix that; the same command then continues.",
                )

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(parts.experiment.at_once, len(wanted))):
                tasks.create_task(work())
    except BaseExceptionGroup as group:
        known = next((e for e in group.exceptions if isinstance(e, RubricemError)), None)
        raise known or group from None


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
    buffer = with_items(RubricBuffer(question=question.question), question.rubric, "its own", 0)
    group = TrajectoryGroup(question=question.question, trajectories=(run,))
    [judgement] = (await judge.judge(group, buffer)).judgements
    found = judgement.at(Stage.ANSWER)
    if found is None or found.score is None:
        return {"rubric_reason": found.unscored_reason if found else "the answer was not judged"}
    return {"rubric": found.score, "rubric_reason": found.justification}
