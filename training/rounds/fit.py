"""A training run on given rows, from its configuration to a checkpoint.

The same command goes on after an interruption, and ends where an uninterrupted run would have
ended.
"""

import asyncio
import hashlib
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rubricem.agent.transcript.events import Tell
from rubricem.memory.errors import SettingsError
from rubricem.memory.runs import plain_bytes
from rubricem.memory.schema import read
from rubricem.training.collect.gate import RunStopped
from rubricem.training.extras import in_thread
from rubricem.training.local.load import release_memory
from rubricem.training.local.local_config import Method, TrainConfig, rate_at
from rubricem.training.local.session import TrainingSession, open_session, settle
from rubricem.training.objective.objective_config import READ_BY_IMITATION
from rubricem.training.rows.credit import (
    NO_RATIO,
    SAMPLE,
    Compiled,
    RowRule,
    longer_than,
    trainable,
)
from rubricem.training.rows.row import TrainRow, Window


@dataclass(frozen=True, slots=True)
class Trained:
    """What a finished run gave."""

    checkpoint: Path
    steps: tuple[dict[str, Any], ...]
    """the metrics of each"""
    dropped: Mapping[str, int]


async def train(
    config: TrainConfig, method: Method, tell: Tell, weights_dir: Path | None = None,
    stop: asyncio.Event | None = None, rule: RowRule | None = None,
) -> Trained:  # fmt: skip
    """Train to the end, from the newest checkpoint if there is one.

    `stop`, once set, ends the training after the step under way, which is saved; a cancellation
    does the same. `rule`: how the rows were made of judged groups, for the record; None: nobody
    here knows.

    Raises SettingsError for a configuration, rows or a folder that do not fit, PolicyError when
    a step gives no finite gradient, RunStopped at `stop`.
    """
    unread = sorted(config.objective.model_fields_set - READ_BY_IMITATION)
    if method == "sft" and unread:
        raise SettingsError(
            f"imitation makes no use of {', '.join(f'objective.{name}' for name in unread)}, "
            "which shape the policy gradient.",
            "Leave them out, or train by ss-grpo.",
        )
    rows = await asyncio.to_thread(read_rows, config.rows)
    if config.max_row_tokens is None:  # what is wrong with all is told before weights are fetched
        _select_rows(rows, config, method, tell)
    config = await settle(config, weights_dir)
    selection = await asyncio.to_thread(_select_rows, rows, config, method, tell)
    plan = windows(selection.rows, method, config)
    record = _record(selection.rows, rule)
    async with open_session(config, method, tell, weights_dir, record) as session:
        if session.done < len(plan):
            stop = stop or asyncio.Event()
            left = partial(_take_steps, session, config, plan, stop.is_set)
            await in_thread(left, give_up=stop.set)
        if not session.note.served:
            session.tell(
                "llama.cpp serves adapters of GGUF files alone: load "
                f"{session.folder.newest} by transformers or peft, or serve it by vLLM."
            )
        newest, steps = session.folder.newest, tuple(session.folder.metrics())
    release_memory()  # a model holds itself in cycles
    return Trained(newest, steps, selection.dropped)


def _record(rows: Sequence[TrainRow], rule: RowRule | None) -> dict[str, Any]:
    """What must be the same when the training goes on."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(row.model_dump_json().encode())
    found: dict[str, Any] = {"rows": digest.hexdigest()}
    return found if rule is None else found | {"rule": rule.model_dump(mode="json")}


def _take_steps(
    session: TrainingSession,
    config: TrainConfig,
    plan: Sequence[Window],
    stopped: Callable[[], bool],
) -> None:
    """The steps that are left; a step's number is all that says which rows it sees.

    Raises RunStopped where `stopped` on any rank.
    """
    total = len(plan)

    def is_stopped() -> bool:
        return any(session.ranks.gather(stopped()))

    told = session.progress
    ending = is_stopped()
    while session.done < total and not ending:
        step = session.done
        told.begin(step + 1, total)
        metrics = session.step(plan[step], rate_at(step, total, config))
        ending = session.done == total or is_stopped()
        if ending or session.done % config.save_every == 0:
            session.save()
        told.step(session.done, total, metrics)
    if (done := session.done) < total:
        raise RunStopped(
            f"The training was interrupted; its first {done} of {total} steps are saved.",
            by_person=True,
        )


def select(rows: Sequence[TrainRow], method: Method, max_row_tokens: int) -> Compiled:
    """The rows of a method that can be trained on, and how many of the others by reason.

    Raises SettingsError when none is left, or when two attempts carry one id.
    """
    suited = [row for row in rows if (row.objective == "sft") == (method == "sft")]
    if len({row.id for row in suited}) < len(suited):
        raise SettingsError("two rows have the same id.", "Name each file of rows once.")
    others = (
        f"{row.objective} rows" for row in rows if (row.objective == "sft") != (method == "sft")
    )
    found = trainable([*suited, *others], max_row_tokens)
    if not found.rows:
        told = "; ".join(f"{count} {reason}" for reason, count in found.dropped.items())
        raise SettingsError(
            f"there is no row to train on by {method} ({told or 'the files are empty'}).",
            SAMPLE if NO_RATIO in found.dropped else "Export such rows, or raise max_row_tokens.",
        )
    return found


def windows(rows: Sequence[TrainRow], method: Method, config: TrainConfig) -> list[Window]:
    """The windows of a whole training run, in order."""
    groups: dict[str, list[TrainRow]] = {}
    for row in rows:
        # What is never divided between windows.
        groups.setdefault(row.id if method == "sft" else row.group, []).append(row)
    found: list[Window] = []
    for epoch in range(config.epochs):
        units = list(groups.values())
        random.Random(f"{config.seed}/{epoch}").shuffle(units)
        size = config.batch or len(units)
        for start in range(0, len(units), size):
            found.append(tuple(row for unit in units[start : start + size] for row in unit))
    return found


def read_rows(paths: Sequence[Path]) -> list[TrainRow]:
    """The rows of all files in order. Raises SettingsError for a file that holds no rows.

    Runs call their groups alike: a group that is called as one of an earlier file is another one,
    and has the number of its file before its name.
    """
    found, taken = list[TrainRow](), set[str]()
    for place, path in enumerate(paths):
        rows = _rows_of(path)
        for row in rows:
            group = f"{place}:{row.group}" if row.group in taken else row.group
            found.append(row if group == row.group else row.model_copy(update={"group": group}))
        taken |= {row.group for row in rows}
    return found


def _rows_of(path: Path) -> list[TrainRow]:
    file = path / "rows.jsonl" if path.is_dir() else path
    try:
        # Not splitlines, which also parts what a text holds, as U+2028.
        lines = plain_bytes(file).decode().removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"the rows {file} cannot be read: {error}.", "Make them by `rubricem export RUN`."
        ) from error
    rows = []
    for place, line in enumerate(lines if any(lines) else (), start=1):
        try:
            rows.append(read(line, TrainRow))
        except ValidationError as error:
            raise SettingsError(
                f"line {place} of {file} is not a training row: {error.errors()[0]['msg']}.",
                "Make the rows by `rubricem export RUN`.",
            ) from error
    return rows


def _select_rows(
    rows: Sequence[TrainRow],
    config: TrainConfig,
    method: Method,
    tell: Tell,
) -> Compiled:
    longest = config.max_row_tokens or sys.maxsize
    selection = select(rows, method, longest)
    if cut := sum(bool(row.cut_tokens) for row in selection.rows):
        tell(f"{cut} rows are {longer_than(longest)}: their first ones are trained")
    if left := selection.dropped.get(longer_than(longest)):
        tell(f"{left} rows are {longer_than(longest)}: they are left out")
    if (
        method != "sft"
        and not config.objective.beta
        and not any(row.moves for row in selection.rows)
    ):
        raise SettingsError(
            f"none of the {len(selection.rows)} rows has an advantage other than 0, so there is "
            "nothing to learn.",
            "Collect groups whose stages are scored differently, or set objective.beta.",
        )
    return selection
