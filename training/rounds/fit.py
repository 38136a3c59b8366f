"""A training run on given rows, from its configuration to a checkpoint; estimates of such runs.

The same command goes on after an interruption, and ends where an uninterrupted run would have
ended. When the last step is done the canary row is compared. Estimates are of rounds, too.
"""

import asyncio
import ctypes
import gc
import hashlib
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import ValidationError

from rubricem.memory.errors import SettingsError, import_extra
from rubricem.memory.runs import plain_bytes
from rubricem.memory.schema import read
from rubricem.training.collect.gate import RunStopped
from rubricem.training.collect.questions import read_questions
from rubricem.training.extras import in_thread
from rubricem.training.local.learner import Metrics
from rubricem.training.local.load import find_weights, memory_costs
from rubricem.training.local.local_config import EngineConfig, Method, TrainConfig, rate_at
from rubricem.training.local.session import (
    Canary,
    Tell,
    TrainingSession,
    check_best,
    compare_once,
    open_session,
    products_per_second,
    settle_before,
)
from rubricem.training.objective.objective_config import READ_BY_IMITATION
from rubricem.training.rounds.rounds_config import RoundsConfig
from rubricem.training.rows.credit import Compiled, RowRule, longer_than, trainable
from rubricem.training.rows.row import TrainRow, Window
from rubricem.training.show.console import PlainTraining, with_event_files
from rubricem.training.show.events import RowsDone, StepTaken, Watch, watch_nothing
from rubricem.training.show.training import ROUNDS, SAVED_AT, number, objects_of, steps_of

Stopped = Callable[[], bool]
"""whether the training is to end after the step under way; the same for all ranks"""


@dataclass(frozen=True, slots=True)
class Trained:
    """What a finished run gave."""

    checkpoint: Path
    steps: tuple[dict[str, Any], ...]
    """the metrics of each"""
    dropped: Mapping[str, int]
    canary: Canary | None
    """None where llama.cpp cannot serve the model"""


async def train(
    config: TrainConfig,
    method: Method,
    tell: Tell,
    weights_dir: Path | None = None,
    watch: Watch | None = None,
    stop: asyncio.Event | None = None,
    rule: RowRule | None = None,
) -> Trained:
    """Train to the end, from the newest checkpoint if there is one.

    `watch`: who is shown each step; None: `tell`, a line for each. `stop`, once set, ends the
    training after the step under way, which is saved; a cancellation does the same. `rule`: how
    the rows were made of judged groups, for the record; None: nobody here knows.

    Raises SettingsError for a configuration, rows or a folder that do not fit, PolicyError when
    a step gives no finite gradient or what was exported is not what was trained, RunStopped at
    `stop`.
    """
    given = config.objective.model_fields_set - READ_BY_IMITATION
    unread = {*config.model_fields_set & {"passes", "novelty"}, *(f"objective.{n}" for n in given)}
    if method == "sft" and unread:
        raise SettingsError(
            f"imitation makes no use of {', '.join(sorted(unread))}, which shape the policy "
            "gradient.",
            "Leave them out, or train by ss-grpo.",
        )
    if config.engine == "trl":
        _check_suits_trl(config, method)
        import_extra("trl", "trl")
    rows = await asyncio.to_thread(read_rows, config.rows)
    if config.max_row_tokens is None:  # what is wrong with all is told before weights are fetched
        _select_rows(rows, config, method, tell)
    async with settle_before(config, weights_dir) as whole:
        selection = await asyncio.to_thread(_select_rows, rows, whole, method, tell, rule)
        return await _train_on(selection, whole, method, tell, weights_dir, watch, stop, rule)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a training on rows would take, told before anything is trained."""

    rows: int
    groups: int
    tokens: int
    """that all steps read"""
    trained_tokens: int
    longest: int
    """tokens of a row"""
    steps: int
    memory: int
    """bytes, estimated as for the longest row"""
    seconds: float
    """at the speed of the steps in its folder, else at least: as long as the products alone take"""
    measured: bool
    dropped: Mapping[str, int]

    def describe(self) -> str:
        how = "at the speed of its steps so far" if self.measured else "at least, by its products"
        left = [f"{count} rows left out: {reason}" for reason, count in self.dropped.items()]
        return "\n".join([
            f"{self.rows} rows in {self.groups} groups, {self.steps} steps",
            f"{self.tokens:,} tokens read, {self.trained_tokens:,} of them trained; "
            f"the longest row has {self.longest:,}",
            f"about {self.memory / 1e9:.1f} GB of memory",
            f"about {self.seconds / 60:,.1f} minutes, {how}",
            *left,
        ])  # fmt: skip


async def estimate(
    config: TrainConfig, method: Method, tell: Tell, weights_dir: Path | None = None
) -> Estimate:
    """What `train` would do with the configuration. Raises as that does; changes nothing."""
    rows = await asyncio.to_thread(read_rows, config.rows)
    async with settle_before(config, weights_dir) as whole:
        selection = await asyncio.to_thread(_select_rows, rows, whole, method, tell)
        path = await find_weights(whole.model, weights_dir)
        costs = await asyncio.to_thread(memory_costs, whole, path)
    plan = windows(selection.rows, method, whole)
    passes = 1 if method == "sft" else whole.passes
    tokens = passes * sum(len(row.ids) for window in plan for row in window)
    longest = max(len(row.ids) for row in selection.rows)
    speeds = [s["tokens_per_second"] for s in steps_of(config.out) if s.get("tokens_per_second")]
    # A parameter is multiplied and added forward, back to the activations, and where it is trained
    # back to itself.
    work = 2 * (3 if whole.adaptation == "full" else 2) * costs.parameters * tokens
    seconds = tokens * len(speeds) / sum(speeds) if speeds else work / products_per_second(whole)
    return Estimate(
        rows=len(selection.rows),
        groups=len({row.group for row in selection.rows}),
        tokens=tokens,
        trained_tokens=passes * sum(sum(row.loss_mask) for window in plan for row in window),
        longest=longest,
        steps=len(plan),
        memory=costs.fixed + costs.token * longest * whole.micro_batch,
        seconds=seconds,
        measured=bool(speeds),
        dropped=selection.dropped,
    )


@dataclass(frozen=True, slots=True)
class RoundsEstimate:
    """What the rounds still to come would take; of the rows at most what may be, or as so far."""

    rounds: int
    """to come"""
    done: int
    rollouts: int
    """of all rounds to come"""
    held_out: int | None
    """rollouts of held-out questions to come; None where these are read from a hub"""
    rows: int
    """of rollouts and reflections"""
    tokens: int
    """that the updates read"""
    longest: int
    """tokens of a row"""
    memory: int
    """bytes, estimated as for the longest row"""
    seconds: float | None
    """as the rounds so far took; None before the first"""
    update_seconds: float
    """of the products of the updates alone"""

    @property
    def measured(self) -> bool:
        return self.done > 0

    def describe(self) -> str:
        most = "about" if self.measured else "at most"
        how = (
            "not known before a round is done: that depends on the rollouts; the products of the "
            f"updates alone take {self.update_seconds / 60:,.1f} minutes, if rows are that long"
        )
        if self.seconds is not None:
            how = f"about {self.seconds / 60:,.1f} minutes, as the rounds so far took"
        held_out = "an unread number" if self.held_out is None else f"{self.held_out:,}"
        return "\n".join([
            f"{self.rounds} rounds to come, {self.done} done",
            f"{self.rollouts:,} rollouts, and {held_out} of held-out questions",
            f"{most} {self.rows:,} rows and {self.tokens:,} tokens read by the updates; "
            f"the longest row has {most} {self.longest:,}",
            f"about {self.memory / 1e9:.1f} GB of memory, without what samples and judges",
            f"time: {how}",
        ])  # fmt: skip


async def estimate_rounds(
    config: EngineConfig, rounds: RoundsConfig, weights_dir: Path | None = None
) -> RoundsEstimate:
    """What `run_rounds` would still do in the folder. Raises as that does; changes nothing."""
    names = rounds.questions, *([rounds.held_out] if rounds.held_out else [])
    counts = [len(await asyncio.to_thread(read_questions, name)) for name in names]
    lines = await asyncio.to_thread(objects_of, config.out / ROUNDS)
    async with settle_before(config, weights_dir) as whole:
        path = await find_weights(whole.model, weights_dir)
        costs = await asyncio.to_thread(memory_costs, whole, path)
    assert whole.max_row_tokens is not None, "it is settled"
    done, left = len(lines), max(rounds.rounds - len(lines), 0)

    def usual(*names: str, otherwise: float) -> float:
        """The mean of a round's metrics together, or what they are at most."""
        found = [sum(number(line, name) or 0.0 for name in names) for line in lines]
        return sum(found) / len(found) if found else otherwise

    rollouts = rounds.questions_per_round * rounds.group_size
    most = rollouts + rounds.questions_per_round * rounds.reflections
    rows = left * usual("rows/policy", "rows/reflect", otherwise=most)
    tokens = rows * usual("row_tokens/mean", otherwise=whole.max_row_tokens)
    longest = max((int(number(line, "row_tokens/max") or 0) for line in lines), default=0)
    longest = longest or whole.max_row_tokens
    work = 2 * (3 if whole.adaptation == "full" else 2) * costs.parameters * tokens
    asked = counts[1] if rounds.held_out else 0
    ends = range(done + 1 if done else 0, rounds.rounds + 1)
    times = sum(n % rounds.held_out_every == 0 or n == rounds.rounds for n in ends)
    return RoundsEstimate(
        rounds=left,
        done=done,
        rollouts=left * rollouts,
        held_out=None if asked is None else asked * times,
        rows=round(rows),
        tokens=round(tokens),
        longest=longest,
        memory=costs.fixed + costs.token * longest * whole.micro_batch,
        seconds=left * _round_seconds(lines) if lines else None,
        update_seconds=work / products_per_second(whole),
    )


def _round_seconds(lines: Sequence[Metrics]) -> float:
    """The median from the end of one round to that of the next; of the first one its parts."""
    ends = [float(line[SAVED_AT]) for line in lines if SAVED_AT in line]
    if len(ends) > 1:
        return median(after - before for before, after in pairwise(ends))
    parts = ("rollout", "judge", "reflect", "train")
    return sum(number(lines[-1], f"seconds/{part}") or 0.0 for part in parts)


async def _train_on(
    selection: Compiled,
    config: TrainConfig,
    method: Method,
    tell: Tell,
    weights_dir: Path | None,
    watch: Watch | None,
    stop: asyncio.Event | None,
    rule: RowRule | None,
) -> Trained:
    plan = windows(selection.rows, method, config)
    record = _record(selection.rows, rule)
    async with open_session(config, method, tell, weights_dir, record) as session:
        # What a checkpoint's card tells of its data.
        session.trained_on = {
            "rows": len(selection.rows),
            "rows SHA-256": record["rows"],
            "groups": len({row.group for row in selection.rows}),
            "trained tokens": sum(sum(row.loss_mask) for row in selection.rows),
            "steps planned": len(plan),
            "left out": selection.dropped,
        }
        first = session.ranks.first
        shown = (watch or PlainTraining(session.tell)) if first else watch_nothing
        with with_event_files(shown, config.out, config.tracked if first else ()) as told:
            if session.done < len(plan):
                stop = stop or asyncio.Event()
                left = partial(_go_on, session, config, plan, told, stop.is_set)
                await in_thread(left, give_up=stop.set)
        if not session.base.gguf:
            session.tell(
                f"llama.cpp cannot serve what was trained of {session.base.path.name}, a folder of "
                f"safetensors: load {session.folder.newest} by transformers or peft."
            )
        found = await compare_once(session, selection.rows[0])
        newest, steps = session.folder.newest, tuple(session.folder.metrics())
    _give_back()
    return Trained(newest, steps, selection.dropped, found)


def _record(rows: Sequence[TrainRow], rule: RowRule | None) -> dict[str, Any]:
    """What must be the same when the training goes on."""
    digest = hashlib.sha256()
    for row in rows:
        # Rows that were written before they said these are the same rows.
        digest.update(row.model_dump_json(exclude={"tokenizer", "later_versions"}).encode())
    found: dict[str, Any] = {"rows": digest.hexdigest()}
    return found if rule is None else found | {"rule": rule.to_record()}


def _go_on(
    session: TrainingSession,
    config: TrainConfig,
    plan: Sequence[Window],
    watch: Watch,
    stopped: Stopped,
) -> None:
    session.go_back()

    def is_stopped() -> bool:
        return any(session.ranks.gather(stopped()))

    def on_step(metrics: Metrics) -> None:
        check_best(config.best_by, metrics)
        watch(StepTaken(session.done, len(plan), metrics))

    over = is_stopped()
    if config.engine == "trl" and not over:
        from rubricem.training.trl.trainer import take_steps

        take_steps(session, config, plan, on_step, is_stopped)
    elif not over:
        _take_steps(session, config, plan, watch, is_stopped)
    if (done := session.done) < len(plan):
        raise RunStopped.by_a_person(
            f"The training was interrupted; its first {done} of {len(plan)} steps are saved."
        )


def _take_steps(
    session: TrainingSession,
    config: TrainConfig,
    plan: Sequence[Window],
    watch: Watch,
    stopped: Stopped,
) -> None:
    """The steps that are left; a step's number is all that says which rows it sees."""
    total, ending = len(plan), False

    def on_row(done: int, rows: int) -> None:
        watch(RowsDone("step", session.done + 1, total, done, rows))

    while session.done < total and not ending:
        step = session.done
        metrics = session.step(plan[step], rate_at(step, total, config), on_row)
        check_best(config.best_by, metrics)
        ending = session.done == total or stopped()
        if ending or session.done % config.save_every == 0:
            session.save(serve=session.done == total)
        watch(StepTaken(session.done, total, metrics))


def select(
    rows: Sequence[TrainRow], method: Method, max_row_tokens: int, scaled: bool | None = None
) -> Compiled:
    """The rows of a method that can be trained on, and how many of the others by reason.

    `scaled` as `trainable` has it. Raises SettingsError when none is left, or when two attempts
    carry one id.
    """
    suited = [row for row in rows if (row.objective == "sft") == (method == "sft")]
    if len({row.id for row in suited}) < len(suited):
        raise SettingsError("two rows have the same id.", "Name each file of rows once.")
    others = (
        f"{row.objective} rows" for row in rows if (row.objective == "sft") != (method == "sft")
    )
    found = trainable([*suited, *others], max_row_tokens, scaled)
    if not found.rows:
        told = "; ".join(f"{count} {reason}" for reason, count in found.dropped.items())
        raise SettingsError(
            f"there is no row to train on by {method} ({told or 'the files are empty'}).",
            "Export rows of that kind, or raise max_row_tokens.",
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
    return found[: config.max_steps]


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
    rule: RowRule | None = None,
) -> Compiled:
    longest = config.max_row_tokens or sys.maxsize
    selection = select(rows, method, longest, rule.scaled if rule else None)
    if count := selection.dropped.get(reason := longer_than(longest)):
        tell(f"{count} rows are {reason}; what is left of their groups is normalised again")
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


def _give_back() -> None:
    """Return the memory of what was let go to the system; a model holds itself in cycles.

    Without the trim, glibc keeps three gigabytes of the 0.5B's for itself.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def _check_suits_trl(config: TrainConfig, method: Method) -> None:
    """Raises SettingsError with every setting that has no counterpart in TRL 1.16."""
    objective = config.objective
    told = {
        "it has the policy gradient alone, and sft is imitation": method == "sft",
        "it pads rows and does not pack them (pack_tokens)": config.pack_tokens,
        "it reads each row whole (share_prefixes)": config.share_prefixes,
        "how weights are sharded is told to accelerate (parallel)": config.parallel == "fsdp",
        "it keeps no reference beside fully trained weights read from a GGUF file (beta)": (
            objective.beta and config.adaptation == "full"
        ),
        f"it divides the divergence by all tokens alike (beta, {objective.aggregation})": (
            objective.beta and objective.aggregation != "token-mean"
        ),
        "it asks no reference but for the divergence (novelty)": (
            config.novelty and not objective.beta
        ),
        "its dual clip (delta) also bounds what lies below the upper clip (dual_clip)": (
            objective.dual_clip is not None and objective.dual_clip < 1 + objective.clip[1]
        ),
    }
    if faults := [clause for clause, wrong in told.items() if wrong]:
        raise SettingsError(
            f"the engine trl cannot do this: {'; '.join(faults)}.",
            'Leave those settings out, or train by the engine "local".',
        )
