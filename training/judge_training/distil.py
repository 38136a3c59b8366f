"""From labelled pairs to rows by which a judge imitates teachers (RM-R1, arXiv:2505.02387, 3.2).

A row's trace is of a first teacher, who compares a pair as any judge does. If its verdict is wrong
or missing, a second one is shown the right verdict and the wrong trace, and rewrites the trace;
what is still not right is dropped. Rows are in the ids of the judge's own tokeniser.

docs/judge_training.md names the files in OUT/distilled. A pair whose teacher failed is tried again
by the next call, so that more rows may come. A training must continue on the rows that it began
with, so once it has begun no row is made any more.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Self

from pydantic import model_validator

from rubricem.agent.models.policy import call_scope, end_of_turn
from rubricem.agent.settings import Settings
from rubricem.agent.settings.door import model_of
from rubricem.agent.transcript.events import Tell
from rubricem.judge.base import CHARACTERS, fit_messages
from rubricem.judge.build import JudgeModel
from rubricem.judge.pairwise import CHAIN_TOKENS, Side, verdict_end, verdict_of, without_tags
from rubricem.judge.rubrics.core import together
from rubricem.memory.errors import JudgeError, PolicyError, SettingsError, StoreError, boundary
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import Completion, LocalModel, Message, Sampling, Value
from rubricem.memory.text import cut, fence, fill, prompt
from rubricem.training.collect.collect_config import SpendingConfig, path_or_name
from rubricem.training.collect.gate import check_priced
from rubricem.training.judge_training.pairs import (
    LIMIT,
    MessagesOf,
    PairsConfig,
    ShownPair,
    open_gate,
    read_pairs,
    show_once,
    take_table,
)
from rubricem.training.local.local_config import TrainConfig, check_config
from rubricem.training.rows.compile import write_rows
from rubricem.training.rows.credit import Compiled, separate_rows
from rubricem.training.rows.row import TrainRow
from rubricem.training.show.training import RECORD
from rubricem.training.tables import TableConfig, read_toml

TRACE_TOKENS = 4096
"""of one trace, at most"""


class TeacherConfig(TableConfig):
    """A model that writes traces: an embedded one, or a server's."""

    model: str | None = None
    """None: the only one that the server lists"""
    base_url: str | None = None
    """its server; None: the model is embedded"""

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if self.model is None and self.base_url is None:
            raise ValueError("name a model, or a base_url, or both")
        return self


class DistilConfig(PairsConfig, SpendingConfig):
    """Who writes the traces."""

    teacher: TeacherConfig
    """the table [distil.teacher]"""
    second_teacher: TeacherConfig | None = None
    """redoes what the first got wrong, shown the right verdict and the wrong trace; None: wrong
    ones are dropped"""


def read_distil(path: Path, overrides: Sequence[str] = ()) -> tuple[TrainConfig, DistilConfig]:
    """A file's settings of imitation; the rows are those that will be written.

    Raises SettingsError with every fault in a sentence.
    """
    values = {"judge": "full", **read_toml(path, overrides)}
    told = take_table(values, "distil", DistilConfig, path.parent)

    def with_path(teacher: TeacherConfig | None) -> TeacherConfig | None:
        """With the path of its weights, which is relative to the file."""
        if teacher is None or teacher.model is None:
            return teacher
        return teacher.model_copy(update={"model": path_or_name(teacher.model, path.parent)})

    named = {name: with_path(getattr(told, name)) for name in ("teacher", "second_teacher")}
    if "rows" in values:
        raise SettingsError(
            "[distil] makes rows of its own.",
            "Leave out `rows`; train on files of rows by `rubricem train sft`.",
        )
    values["rows"] = [str(Path(str(values.get("out", ""))) / "distilled" / "rows.jsonl")]
    return check_config(values, path.parent, TrainConfig), told.model_copy(update=named)


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


async def trace_of(
    pair: ShownPair, first: JudgeModel, second: JudgeModel | None
) -> Trace | str | Exception:
    """The trace of a pair, or the reason why it has none; a teacher that failed is asked again."""
    try:
        by, said = first, await _write(first, pair.messages)
        if wrong := _wrong(said, pair.better):
            if second is None:
                return wrong
            again = partial(_redoing, pair.messages, said.text, wrong, pair.better)
            by, said = second, await _write(second, again)
            if still := _wrong(said, pair.better):
                return f"{still}, also when it was redone"
    except (PolicyError, JudgeError) as error:
        return error
    text = said.text[: verdict_end(said.text)].rpartition("</think>")[2].strip()
    return Trace(pair=pair.id, better=pair.better, text=text, teacher=by.name, redone=bool(wrong))


async def _write(model: JudgeModel, messages_of: MessagesOf) -> Completion:
    """Raises PolicyError if the model fails, JudgeError if the pair is too long."""
    sampling = Sampling(max_tokens=TRACE_TOKENS, temperature=0.0, seed=0)
    if isinstance(model, LocalModel):
        _, prefix = await fit_messages(model, messages_of, TRACE_TOKENS)
        return await model.complete(prefix, sampling, verdict_end)
    return await model.chat(messages_of(CHARACTERS), sampling)


def _wrong(said: Completion, better: Side) -> str:
    """What is wrong with a trace, as the end of a sentence about it; empty if nothing is."""
    if said.stop_reason == "length":
        return "was cut off by its limit of tokens"
    verdict = verdict_of(said.text)
    if verdict is None:
        return "named no winner"
    return "" if verdict == better else "named the other reply"


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


REPORT = "report.json"


class Distilled(Value):
    """Results of the teachers' traces."""

    pairs: int
    kept: int
    redone: int
    """kept ones that the second teacher wrote"""
    dropped: dict[str, int]
    """pairs without a trace or a row, by reason"""
    cost: float
    """US dollars of all calls with a known price, also by earlier processes"""
    rows: int


async def distil(
    config: TrainConfig,
    told: DistilConfig,
    settings: Settings,
    tell: Tell,
    stop: asyncio.Event | None = None,
) -> Distilled:
    """Have traces written, and write their rows; the same call continues after an interruption.

    Once the training on the rows has begun they stay as they are, and no teacher is called.

    Raises SettingsError for pairs or models that do not fit, JudgeError if no trace can be kept,
    RunStopped if a person or the limit on cost ended it.
    """
    folder = config.rows[0].parent
    if (config.out / RECORD).exists():
        tell("training on these rows has begun: they stand as they are, and no teacher is asked")
        with boundary(StoreError, f"reading {folder / REPORT}"):
            return Distilled.model_validate_json((folder / REPORT).read_bytes())
    shown = show_once(await asyncio.to_thread(read_pairs, told.pairs), config.seed)
    async with AsyncExitStack() as stack:
        gate = stack.enter_context(open_gate(folder, tell, told.max_run_cost))
        models = dict[TeacherConfig, JudgeModel]()
        for teacher in filter(None, dict.fromkeys((told.teacher, told.second_teacher))):
            chosen = model_of(settings.model_copy(update=teacher.model_dump()))
            model = await stack.enter_async_context(chosen.open_judge())
            if told.max_run_cost is not None:
                check_priced(model, limit=LIMIT)
            models[teacher] = gate.with_journal(model)
        second = models[told.second_teacher] if told.second_teacher else None
        found = await gate.through(_trace_all(shown, models[told.teacher], second, tell), stop)
        cost = gate.meter.cost
    traces = [trace for trace in found if isinstance(trace, Trace)]
    reasons = [reason for reason in found if not isinstance(reason, Trace)]
    if not traces:
        failed = "" if isinstance(reasons[0], str) else f"{FAILED}: "
        raise JudgeError(
            f"Of {len(found)} pairs no trace can be kept: {failed}{reasons[0]}.",
            "Name a stronger teacher, or a second one; what was written is not paid for again.",
        )
    dropped = Counter(reason if isinstance(reason, str) else FAILED for reason in reasons)
    write_rows(folder / "traces.jsonl", traces)
    rows = await _rows(config, settings, shown, traces)
    write_rows(config.rows[0], rows.rows)
    done = Distilled(
        pairs=len(shown), kept=len(traces), redone=sum(trace.redone for trace in traces),
        dropped=dict(dropped + Counter(rows.dropped)), cost=cost, rows=len(rows.rows),
    )  # fmt: skip
    write_atomically(folder / REPORT, done.model_dump_json(indent=1))
    return done


async def _trace_all(
    shown: Sequence[ShownPair], first: JudgeModel, second: JudgeModel | None, tell: Tell
) -> list[Trace | str | Exception]:
    """For each pair its trace, or the reason why it has none."""
    done = 0

    async def trace(pair: ShownPair) -> Trace | str | Exception:
        nonlocal done
        with call_scope(pair.id):
            found = await trace_of(pair, first, second)
        done += 1
        if done % 25 == 0 or done == len(shown):
            tell(f"{done} of {len(shown)} pairs compared by teachers")
        return found

    return await together(trace(pair) for pair in shown)


async def _rows(
    config: TrainConfig, settings: Settings, shown: Sequence[ShownPair], traces: Sequence[Trace]
) -> Compiled:
    """The rows of the traces, as the model that is trained would have written them."""
    choice = model_of(settings.model_copy(update={"model": config.model, "base_url": None}))
    asked = {pair.id: pair for pair in shown}
    async with choice.open_judge() as student:
        assert isinstance(student, LocalModel)
        end = await end_of_turn(student)

        async def row(trace: Trace) -> TrainRow | str:
            try:
                _, prefix = await fit_messages(student, asked[trace.pair].messages, CHAIN_TOKENS)
            except JudgeError as error:
                return f"too long for the student: {error}"
            ids = (*prefix, *await student.encode(trace.text), *end)
            mask = [int(place >= len(prefix)) for place in range(len(ids))]
            return TrainRow.imitation(trace.pair, trace.teacher, ids, len(prefix), mask)

        return separate_rows([await row(trace) for trace in traces])
