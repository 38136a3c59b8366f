"""From labelled pairs to a judge that imitates teachers: traces, rows, and the training on them.

OUT/distilled/journal.jsonl   every finished call of a teacher: none is made twice
OUT/distilled/traces.jsonl    the traces that are kept
OUT/distilled/rows.jsonl      the same as rows of the judge's own tokeniser
OUT/distilled/report.json     what was kept, redone and dropped, by reason
OUT/distilled/made_of.json    what all that follows from

A pair whose teacher failed is asked about again by the next call, so that more rows may come. A
training goes on with the very rows that it began with, so from the beginning of the training on
them none is made, and what they were made of is compared instead.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rubricem.agent.learning.scoring import open_judge_model
from rubricem.agent.settings.door import model_of
from rubricem.judge.evaluation.data import LabelledPair
from rubricem.judge.pairwise import ChainForm, well_formed
from rubricem.memory.errors import JudgeError, SettingsError, StoreError, boundary
from rubricem.memory.interfaces import LocalModel
from rubricem.memory.runs import write_atomically
from rubricem.training.collect.gate import check_priced
from rubricem.training.judge_training.judge_config import DistilConfig, TeacherConfig
from rubricem.training.judge_training.pairs import (
    FAILED,
    Gated,
    ShownPair,
    Teacher,
    Teachers,
    Trace,
    all_done,
    digest,
    gated,
    read_pairs,
    settings_of,
    shown_once,
    trace_row,
)
from rubricem.training.local.local_config import TrainConfig
from rubricem.training.local.session import Tell
from rubricem.training.rows.forms import write_rows
from rubricem.training.rows.row import TrainRow
from rubricem.training.show.training import RECORD, object_of

MADE_OF = "made_of.json"


def made_of(
    config: TrainConfig, told: DistilConfig, pairs: Sequence[LabelledPair]
) -> dict[str, Any]:
    """What the rows follow from.

    Where a model that is named is served, and what the calls may cost, changes no row.
    """
    second = told.second_teacher
    return {
        "model": _placed(config.model, config.out),
        "judge": config.judge,
        "seed": config.seed,
        "distil.pairs": digest(pairs),
        "distil.teacher": _teacher(told.teacher, config.out),
        "distil.second_teacher": second and _teacher(second, config.out),
    }


def keep_made_of(config: TrainConfig, made: Mapping[str, Any]) -> None:
    """Beside the rows, before anybody trains on them."""
    write_atomically(_path(config), json.dumps(made, indent=1))


def stands(config: TrainConfig, made: Mapping[str, Any]) -> bool:
    """Whether the training on the rows has begun.

    Raises SettingsError where what has begun is the training on rows that are made of other things.
    """
    if not (config.out / RECORD).exists():
        return False
    if not (held := object_of(_path(config))):
        raise SettingsError(
            f"{config.out} holds a training, and nothing there tells what its rows were made of.",
            "Name another folder as `out`, or go on with it by `rubricem train` on its own rows.",
        )
    if other := [name for name in made if held.get(name) != made[name]]:
        raise SettingsError(
            f"{config.out} holds a training on rows of another {', '.join(other)}.",
            "Put those back to go on with it, or name another folder as `out`.",
        )
    return True


def _teacher(teacher: TeacherConfig, out: Path) -> dict[str, Any]:
    if teacher.model is None:
        return teacher.model_dump(mode="json")
    told = {"model": _placed(teacher.model, out), "served": teacher.base_url is not None}
    return {**told, "max_tokens": teacher.max_tokens}


def _placed(model: str, out: Path) -> str:
    """Where weights lie as seen from `out`, wherever that is; any other name as it stands."""
    is_path = model.lower().endswith(".gguf") or Path(model).is_dir()
    return os.path.relpath(model, out) if is_path else model


def _path(config: TrainConfig) -> Path:
    return config.rows[0].parent / MADE_OF


TOLD_EVERY = 25
"""pairs between two lines that tell how far it is"""
LIMIT = "max_run_cost under [distil]"
REPORT = "report.json"


@dataclass(frozen=True, slots=True)
class Distilled:
    """What the teachers' traces came to."""

    pairs: int
    kept: int
    redone: int
    """of those that are kept, by the second teacher"""
    well_formed: int
    """of those that are kept: exactly the parts of the form asked for"""
    dropped: dict[str, int]
    """pairs without a trace or a row, by reason"""
    cost: float
    """US dollars of all calls whose price is known, also of earlier processes"""
    rows: int


async def distil(
    config: TrainConfig, told: DistilConfig, tell: Tell, stop: asyncio.Event | None = None
) -> Distilled:
    """Have traces written, and write their rows; the same call goes on after an interruption.

    Once the training on the rows has begun they stand as they are, and no teacher is asked.

    Raises SettingsError for pairs or models that do not fit, JudgeError where no trace can be
    kept, RunStopped where a person or the limit of money ended it.
    """
    pairs = await asyncio.to_thread(read_pairs, told.pairs, told.limit, config.seed)
    made = made_of(config, told, pairs)
    report = config.rows[0].parent / REPORT
    if stands(config, made):
        tell("training on these rows has begun: they stand as they are, and no teacher is asked")
        with boundary(StoreError, f"reading {report}"):
            return Distilled(**json.loads(report.read_text(encoding="utf-8")))
    found = await _distilled(config, told, shown_once(pairs, config.seed), tell, stop)
    write_atomically(report, json.dumps(asdict(found), indent=1))
    keep_made_of(config, made)
    return found


async def _distilled(
    config: TrainConfig,
    told: DistilConfig,
    shown: Sequence[ShownPair],
    tell: Tell,
    stop: asyncio.Event | None,
) -> Distilled:
    """Write the traces and the rows; what they came to."""
    form, folder = form_of(config), config.rows[0].parent
    with gated(folder, tell, told.max_run_cost) as gate:
        async with _teachers(gate, told, form) as teachers:
            found = await gate.flow.through(_traced(gate, teachers, shown, tell), stop)
        cost = gate.flow.meter.cost
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


def form_of(config: TrainConfig) -> ChainForm:
    """The form that the judge is trained in; reading the configuration has settled it."""
    assert config.judge is not None
    return config.judge


@asynccontextmanager
async def _teachers(gate: Gated, told: DistilConfig, form: ChainForm) -> AsyncIterator[Teachers]:
    """Both teachers open; one that is named twice is opened once."""
    async with AsyncExitStack() as stack:
        first = await _opened(stack, gate, told, told.teacher)
        second = None
        if (again := told.second_teacher) is not None:
            named = {"model", "base_url"}
            same = again.model_dump(include=named) == told.teacher.model_dump(include=named)
            second = Teacher(first.model, again.max_tokens) if same else None
            second = second or await _opened(stack, gate, told, again)
        yield Teachers(form, first, second)


async def _opened(
    stack: AsyncExitStack, gate: Gated, told: DistilConfig, teacher: TeacherConfig
) -> Teacher:
    settings = settings_of(teacher.model, teacher.base_url)
    model = await stack.enter_async_context(open_judge_model(model_of(settings)))
    if told.max_run_cost is not None:
        check_priced(model, limit=LIMIT)
    return Teacher(gate.model(model), teacher.max_tokens)


async def _traced(
    gate: Gated, teachers: Teachers, shown: Sequence[ShownPair], tell: Tell
) -> list[Trace | str]:
    """For each pair its trace, or why it has none."""
    done = 0

    async def trace(pair: ShownPair) -> Trace | str:
        nonlocal done
        with gate.scopes.scope(pair.id):
            found = await teachers.trace(pair)
        done += 1
        if done % TOLD_EVERY == 0 or done == len(shown):
            tell(f"{done} of {len(shown)} pairs compared by teachers")
        return found

    return await all_done(trace(pair) for pair in shown)


async def _rows(
    config: TrainConfig, form: ChainForm, shown: Sequence[ShownPair], traces: Sequence[Trace]
) -> tuple[list[TrainRow], Counter[str]]:
    """The rows of the traces, as the model that is trained reads them."""
    settings = settings_of(config.model, None)
    choice = model_of(settings)
    if not choice.embedded:
        raise SettingsError(
            f"{config.model!r} is no embedded model.", "Name the one to train, such as 0.5b."
        )
    asked = {pair.id: pair for pair in shown}
    rows, unfit = [], Counter[str]()
    async with open_judge_model(choice) as student:
        assert isinstance(student, LocalModel)
        for trace in traces:
            row = await trace_row(student, form, asked[trace.pair], trace)
            if isinstance(row, str):
                unfit[row] += 1
            else:
                rows.append(row)
    return rows, unfit
