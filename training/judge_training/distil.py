"""From labelled pairs to a judge that imitates teachers: traces, rows, and training on them.

Imitation takes the trace of a first teacher, who compares a pair as any judge does. If its verdict
is wrong or missing, a second one is shown the right verdict and the wrong trace, and rewrites the
trace; what is still not right is dropped (RM-R1, arXiv:2505.02387, section 3.2). The trace becomes
a row in the ids of the judge's own tokeniser.

docs/judge_training.md names the files in OUT/distilled. A pair whose teacher failed is tried again
by the next call, so that more rows may come. A training must continue on the rows that it began
with, so once it has begun no row is made any more, and the origins of its rows are compared
instead.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from rubricem.agent.models.policy import call_scope
from rubricem.agent.settings.door import model_of
from rubricem.judge.base import CHARACTERS, fit_messages
from rubricem.judge.build import JudgeModel
from rubricem.judge.evaluation.data import LabelledPair
from rubricem.judge.pairwise import (
    CHAIN_TOKENS,
    ChainForm,
    Side,
    verdict_end,
    verdict_of,
    well_formed,
    without_tags,
)
from rubricem.judge.rubrics.core import together
from rubricem.memory.errors import JudgeError, PolicyError, SettingsError, StoreError, boundary
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import Completion, LocalModel, Message, Sampling, TokenPolicy, Value
from rubricem.memory.text import cut, fence, fill, prompt
from rubricem.training.collect.gate import RunGate, check_priced
from rubricem.training.judge_training.pairs import (
    LIMIT,
    MessagesOf,
    PairsConfig,
    ShownPair,
    digest,
    form_of,
    open_gate,
    read_pairs,
    settings_of,
    show_once,
    take_table,
)
from rubricem.training.local.local_config import TrainConfig, check_config, read_toml
from rubricem.training.local.session import Tell
from rubricem.training.objective.objective_config import TableConfig
from rubricem.training.rows.compile import write_rows
from rubricem.training.rows.row import TrainRow
from rubricem.training.rows.sequences import NO_STAGE
from rubricem.training.show.training import RECORD, object_of

TRACE_TOKENS = 4096


class TeacherConfig(TableConfig):
    """A model that writes traces: an embedded one, or a server's."""

    model: str | None = None
    """None: the only one that the server lists"""
    base_url: str | None = None
    """its server; None: the model is embedded"""
    max_tokens: int = Field(default=TRACE_TOKENS, ge=16)
    """tokens of one trace"""

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if self.model is None and self.base_url is None:
            raise ValueError("name a model, or a base_url, or both")
        return self


class DistilConfig(PairsConfig):
    """Who writes the traces."""

    teacher: TeacherConfig
    """the table [distil.teacher]"""
    second_teacher: TeacherConfig | None = None
    """redoes what the first got wrong, shown the right verdict and the wrong trace; None: wrong
    ones are dropped"""
    max_run_cost: float | None = Field(default=None, gt=0)
    """US dollars that all calls to teachers may cost"""


def read_distil(path: Path, overrides: Sequence[str] = ()) -> tuple[TrainConfig, DistilConfig]:
    """A file's settings of imitation; the rows are those that will be written.

    Raises SettingsError with every fault in a sentence.
    """
    values = {"judge": "full", **read_toml(path, overrides)}
    told = take_table(values, "distil", DistilConfig, path.parent)

    def with_path(teacher: TeacherConfig | None) -> TeacherConfig | None:
        """With the path of its weights: a GGUF file or a checkpoint is relative to the file."""
        if teacher is None or teacher.model is None:
            return teacher
        weights = path.parent / Path(teacher.model).expanduser()
        is_path = teacher.model.lower().endswith(".gguf") or weights.is_dir()
        return teacher.model_copy(update={"model": str(weights)}) if is_path else teacher

    named = {name: with_path(getattr(told, name)) for name in ("teacher", "second_teacher")}
    told = told.model_copy(update=named)
    if "rows" in values:
        raise SettingsError(
            "[distil] makes rows of its own.",
            "Leave out `rows`; train on files of rows by `rubricem train sft`.",
        )
    values["rows"] = [str(Path(str(values.get("out", ""))) / "distilled" / "rows.jsonl")]
    config = check_config(values, path.parent, TrainConfig)
    return config, told


MADE_OF = "made_of.json"


def origin_of(
    config: TrainConfig, told: DistilConfig, pairs: Sequence[LabelledPair]
) -> dict[str, Any]:
    """The inputs that determine the rows.

    Where a named model is served, and the limit on cost, change no row.
    """
    second = told.second_teacher
    return {
        "model": _path_from(config.model, config.out),
        "judge": config.judge,
        "seed": config.seed,
        "distil.pairs": digest(pairs),
        "distil.teacher": _teacher(told.teacher, config.out),
        "distil.second_teacher": second and _teacher(second, config.out),
    }


def stands(config: TrainConfig, made: Mapping[str, Any]) -> bool:
    """Whether the training on the rows has begun.

    Raises SettingsError if a training on rows of another origin has begun there.
    """
    if not (config.out / RECORD).exists():
        return False
    if not (held := object_of(_path(config))):
        raise SettingsError(
            f"{config.out} holds a training, and nothing there says what its rows were made from.",
            "Name another folder as `out`, or go on with it by `rubricem train` on its own rows.",
        )
    if other := [name for name in made if held.get(name) != made[name]]:
        raise SettingsError(
            f"{config.out} holds a training on rows of another {', '.join(other)}.",
            "Restore those to continue it, or name another folder as `out`.",
        )
    return True


def _teacher(teacher: TeacherConfig, out: Path) -> dict[str, Any]:
    if teacher.model is None:
        return teacher.model_dump(mode="json")
    told = {"model": _path_from(teacher.model, out), "served": teacher.base_url is not None}
    return {**told, "max_tokens": teacher.max_tokens}


def _path_from(model: str, out: Path) -> str:
    """A path of weights relative to `out`; any other name unchanged."""
    is_path = model.lower().endswith(".gguf") or Path(model).is_dir()
    return os.path.relpath(model, out) if is_path else model


def _path(config: TrainConfig) -> Path:
    return config.rows[0].parent / MADE_OF


FAILED = "the teacher failed"
WRONG_CHARACTERS = 20_000
"""characters of a wrong trace shown to the second teacher"""


class Trace(Value):
    """A comparison with the right verdict."""

    pair: str
    better: Side
    text: str
    teacher: str
    redone: bool = False
    """rewritten by the second teacher, who knew the verdict"""


@dataclass(frozen=True, slots=True)
class Teacher:
    """A model that writes comparisons: one that answers messages, or continues token ids."""

    model: JudgeModel
    max_tokens: int

    async def write(self, messages_of: MessagesOf) -> Completion:
        """Raises PolicyError if the model fails, JudgeError if the pair is too long."""
        sampling = Sampling(max_tokens=self.max_tokens, temperature=0.0, seed=0)
        model = self.model
        if isinstance(model, LocalModel):
            _, prefix = await fit_messages(model, messages_of, self.max_tokens)
            return await model.complete(prefix, sampling, verdict_end)
        return await model.chat(messages_of(CHARACTERS), sampling)


@dataclass(frozen=True, slots=True)
class Teachers:
    """The writers of traces, and their form."""

    form: ChainForm
    first: Teacher
    second: Teacher | None = None

    async def trace(self, pair: ShownPair) -> Trace | str:
        """The trace of a pair, or the reason why it has none."""
        asked = pair.messages_for(self.form)
        try:
            said = await self.first.write(asked)
            if not (wrong := _wrong(said, pair.better)):
                return _trace(pair, said, self.first)
            if self.second is None:
                return wrong
            said = await self.second.write(partial(_redoing, asked, said.text, wrong, pair.better))
        except (PolicyError, JudgeError) as error:
            return f"{FAILED}: {error}"
        if still := _wrong(said, pair.better):
            return f"{still}, also when it was redone"
        return _trace(pair, said, self.second, redone=True)


def _wrong(said: Completion, better: Side) -> str:
    """What is wrong with a trace, as the end of a sentence about it; empty if nothing is."""
    if said.stop_reason == "length":
        return "was cut off by its limit of tokens"
    verdict = verdict_of(said.text)
    if verdict is None:
        return "named no winner"
    return "" if verdict == better else "named the other reply"


def _trace(pair: ShownPair, said: Completion, by: Teacher, redone: bool = False) -> Trace:
    text = said.text[: verdict_end(said.text)].rpartition("</think>")[2].strip()
    return Trace(pair=pair.id, better=pair.better, text=text, teacher=by.model.name, redone=redone)


def _redoing(
    asked: MessagesOf, trace: str, fault: str, better: Side, characters: int
) -> list[Message]:
    """The messages for the pair, followed by the wrong trace and what is known of it."""
    # The wrong trace takes its share of the room: a part of what there is, at most.
    room = min(characters // 4, WRONG_CHARACTERS)
    system, user = asked(characters - room)
    earlier = fence({"earlier comparison": cut(without_tags(trace), room)})
    told = fill(prompt("training", "redo_trace"), {"fault": fault, "better": better})
    return [system, Message("user", f"{user.content}\n\n{earlier}\n\n{told}")]


TOLD_EVERY = 25
"""pairs between two lines of progress"""
REPORT = "report.json"


@dataclass(frozen=True, slots=True)
class Distilled:
    """Results of the teachers' traces."""

    pairs: int
    kept: int
    redone: int
    """kept ones that the second teacher wrote"""
    well_formed: int
    """kept ones with exactly the parts of the required form"""
    dropped: dict[str, int]
    """pairs without a trace or a row, by reason"""
    cost: float
    """US dollars of all calls with a known price, also by earlier processes"""
    rows: int


async def distil(
    config: TrainConfig, told: DistilConfig, tell: Tell, stop: asyncio.Event | None = None
) -> Distilled:
    """Have traces written, and write their rows; the same call continues after an interruption.

    Once the training on the rows has begun they stay as they are, and no teacher is called.

    Raises SettingsError for pairs or models that do not fit, JudgeError if no trace can be kept,
    RunStopped if a person or the limit on cost ended it.
    """
    pairs = await asyncio.to_thread(read_pairs, told.pairs, told.limit, config.seed)
    made = origin_of(config, told, pairs)
    report = config.rows[0].parent / REPORT
    if stands(config, made):
        tell("training on these rows has begun: they stand as they are, and no teacher is asked")
        with boundary(StoreError, f"reading {report}"):
            return Distilled(**json.loads(report.read_text(encoding="utf-8")))
    found = await _distil(config, told, show_once(pairs, config.seed), tell, stop)
    write_atomically(report, json.dumps(asdict(found), indent=1))
    write_atomically(_path(config), json.dumps(made, indent=1))
    return found


async def _distil(
    config: TrainConfig,
    told: DistilConfig,
    shown: Sequence[ShownPair],
    tell: Tell,
    stop: asyncio.Event | None,
) -> Distilled:
    """Write the traces and the rows; returns the results."""
    form, folder = form_of(config), config.rows[0].parent
    with open_gate(folder, tell, told.max_run_cost) as gate:
        async with _teachers(gate, told, form) as teachers:
            found = await gate.through(_trace_all(gate, teachers, shown, tell), stop)
        cost = gate.meter.cost
    traces = [trace for trace in found if isinstance(trace, Trace)]
    reasons = [reason for reason in found if isinstance(reason, str)]
    if not traces:
        raise JudgeError(
            f"Of {len(found)} pairs no trace can be kept: {reasons[0]}.",
            "Name a stronger teacher, or a second one; what was written is not paid for again.",
        )
    # Failures differ in their words and are one kind.
    dropped = Counter(FAILED if reason.startswith(FAILED) else reason for reason in reasons)
    write_atomically(folder / "traces.jsonl", (t.model_dump_json() + "\n" for t in traces))
    rows, unfit = await _rows(config, form, shown, traces)
    write_rows(config.rows[0], rows)
    return Distilled(
        pairs=len(shown),
        kept=len(traces),
        redone=sum(trace.redone for trace in traces),
        well_formed=sum(well_formed(trace.text, form) for trace in traces),
        dropped=dict(dropped + unfit),
        cost=cost,
        rows=len(rows),
    )


@asynccontextmanager
async def _teachers(gate: RunGate, told: DistilConfig, form: ChainForm) -> AsyncIterator[Teachers]:
    """Both teachers open; one that is named twice is opened once."""
    async with AsyncExitStack() as stack:
        first = await _open_teacher(stack, gate, told, told.teacher)
        second = None
        if (again := told.second_teacher) is not None:
            named = {"model", "base_url"}
            same = again.model_dump(include=named) == told.teacher.model_dump(include=named)
            second = Teacher(first.model, again.max_tokens) if same else None
            second = second or await _open_teacher(stack, gate, told, again)
        yield Teachers(form, first, second)


async def _open_teacher(
    stack: AsyncExitStack, gate: RunGate, told: DistilConfig, teacher: TeacherConfig
) -> Teacher:
    settings = settings_of(teacher.model, teacher.base_url)
    model = await stack.enter_async_context(model_of(settings).open_judge())
    if told.max_run_cost is not None:
        check_priced(model, limit=LIMIT)
    return Teacher(gate.with_journal(model), teacher.max_tokens)


async def _trace_all(
    gate: RunGate, teachers: Teachers, shown: Sequence[ShownPair], tell: Tell
) -> list[Trace | str]:
    """For each pair its trace, or the reason why it has none."""
    done = 0

    async def trace(pair: ShownPair) -> Trace | str:
        nonlocal done
        with call_scope(pair.id):
            found = await teachers.trace(pair)
        done += 1
        if done % TOLD_EVERY == 0 or done == len(shown):
            tell(f"{done} of {len(shown)} pairs compared by teachers")
        return found

    return await together(trace(pair) for pair in shown)


async def _rows(
    config: TrainConfig, form: ChainForm, shown: Sequence[ShownPair], traces: Sequence[Trace]
) -> tuple[list[TrainRow], Counter[str]]:
    """The rows of the traces, as read by the model that is trained."""
    settings = settings_of(config.model, None)
    choice = model_of(settings)
    if not choice.embedded:
        raise SettingsError(
            f"{config.model!r} is no embedded model.", "Name the one to train, such as 0.5b."
        )
    asked = {pair.id: pair for pair in shown}
    rows, unfit = [], Counter[str]()
    async with choice.open_judge() as student:
        assert isinstance(student, LocalModel)
        for trace in traces:
            row = await _trace_row(student, form, asked[trace.pair], trace)
            if isinstance(row, str):
                unfit[row] += 1
            else:
                rows.append(row)
    return rows, unfit


async def _trace_row(
    student: TokenPolicy, form: ChainForm, pair: ShownPair, trace: Trace
) -> TrainRow | str:
    """The trace as the student would have written it, with the end of its turn."""
    try:
        _, prefix = await fit_messages(student, pair.messages_for(form), CHAIN_TOKENS)
    except JudgeError as error:
        return f"too long for the student: {error}"
    written = (*await student.encode(trace.text), *await _end_of_turn(student))
    before = len(prefix)
    mask = (0,) * before + (1,) * len(written)
    stages = (NO_STAGE,) * len(mask)
    return TrainRow.imitation(pair.id, trace.teacher, (*prefix, *written), before, mask, stages)


async def _end_of_turn(student: TokenPolicy) -> tuple[int, ...]:
    """The id that the chat template puts after an assistant's text; empty if none is found."""
    asked = Message("user", "Which?")
    before = (*await student.render([asked]), *await student.encode("A"))
    # Behind an assistant's text that stands last, templates may leave the turn open.
    whole = await student.render([asked, Message("assistant", "A"), asked])
    return whole[len(before) : len(before) + 1] if whole[: len(before)] == before else ()
