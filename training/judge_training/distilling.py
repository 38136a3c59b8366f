"""From labelled pairs to a judge that imitates teachers: traces, rows, and the training on them.

OUT/distilled/journal.jsonl   every finished call of a teacher: none is made twice
OUT/distilled/traces.jsonl    the traces that are kept
OUT/distilled/rows.jsonl      the same as rows of the judge's own tokeniser
OUT/distilled/report.json     what was kept, redone and dropped, by reason
OUT/distilled/made_of.json    what all that follows from
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass

from agent.choice import EmbeddedChoice, choose_policy
from agent.judging import open_judge_model
from judge.building import LocalModel
from judge.pairwise_forms import ChainForm, well_formed
from memory.errors import JudgeError, SettingsError, StoreError, boundary
from memory.runs import write_atomically
from training.exporting import write_rows
from training.judge_training.config import DistilConfig, TeacherConfig
from training.judge_training.gated import Gated, all_done, gated, settings_of
from training.judge_training.pairs import ShownPair, read_pairs, shown_once
from training.judge_training.rows import trace_row
from training.judge_training.standing import keep_made_of, made_of, stands
from training.judge_training.traces import FAILED, Teacher, Teachers, Trace
from training.local.config import TrainConfig
from training.local.session import Tell
from training.opening_flow import check_priced
from training.rows import TrainRow

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
            found = await gate.through(_traced(gate, teachers, shown, tell), stop)
        cost = gate.flow.meter.cost
    traces = [trace for trace in found if isinstance(trace, Trace)]
    dropped = Counter(_plain(reason) for reason in found if isinstance(reason, str))
    _check_any(traces, found)
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
    model = await stack.enter_async_context(open_judge_model(settings))
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
    if not isinstance(choose_policy(settings), EmbeddedChoice):
        raise SettingsError(
            f"{config.model!r} is no embedded model.", "Name the one to train, such as 0.5b."
        )
    asked = {pair.id: pair for pair in shown}
    rows, unfit = [], Counter[str]()
    async with open_judge_model(settings) as student:
        assert isinstance(student, LocalModel)
        for trace in traces:
            row = await trace_row(student, form, asked[trace.pair], trace)
            if isinstance(row, str):
                unfit[row] += 1
            else:
                rows.append(row)
    return rows, unfit


def _plain(reason: str) -> str:
    """The kind of reason: failures differ in their words and are one kind."""
    return FAILED if reason.startswith(FAILED) else reason


def _check_any(traces: Sequence[Trace], found: Sequence[Trace | str]) -> None:
    if not traces:
        first = next(reason for reason in found if isinstance(reason, str))
        raise JudgeError(
            f"Of {len(found)} pairs no trace can be kept: {first}.",
            "Name a stronger teacher, or a second one; what was written is not paid for again.",
        )
