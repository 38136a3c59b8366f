"""Which rows make which step: files of rows to a plan that depends on nothing but the settings.

A window is what one optimizer step sees. For imitation it is some rows in a shuffled order; for
the policy gradient it is whole groups, because advantages were normalised within them.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from memory.errors import SettingsError
from memory.versions import read
from training.local.config import EngineConfig, Method, TrainConfig
from training.rows import TrainRow

Window = tuple[TrainRow, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows that are trained on, and how many were left out for which reason."""

    rows: tuple[TrainRow, ...]
    dropped: dict[str, int]


def read_rows(paths: Sequence[Path]) -> list[TrainRow]:
    """The rows of all files in order. Raises SettingsError for a file that holds no rows."""
    return [row for path in paths for row in _rows_of(path)]


def select(rows: Sequence[TrainRow], method: Method, max_row_tokens: int) -> Selection:
    """The rows of a method that can be trained on.

    Raises SettingsError when none is left, or when two attempts carry one id.
    """
    kept: list[TrainRow] = []
    dropped: dict[str, int] = {}
    for row in rows:
        if reason := _unfit(row, method, max_row_tokens):
            dropped[reason] = dropped.get(reason, 0) + 1
        else:
            kept.append(row)
    if len({row.id for row in kept}) < len(kept):
        raise SettingsError("two rows have the same id.", "Name each file of rows once.")
    if not kept:
        told = "; ".join(f"{count} {reason}" for reason, count in dropped.items())
        raise SettingsError(
            f"there is no row to train on by {method} ({told or 'the files are empty'}).",
            "Export rows of that kind, or raise max_row_tokens.",
        )
    return Selection(tuple(kept), dropped)


def windows(rows: Sequence[TrainRow], method: Method, config: TrainConfig) -> list[Window]:
    """The windows of a whole training run, in order."""
    found: list[Window] = []
    for epoch in range(config.epochs):
        units = _units(rows, method)
        random.Random(f"{config.seed}/{epoch}").shuffle(units)
        size = config.batch or len(units)
        for start in range(0, len(units), size):
            found.append(tuple(row for unit in units[start : start + size] for row in unit))
    return found[: config.max_steps]


def rate_at(step: int, steps: int, config: EngineConfig) -> float:
    """The learning rate of a step, counted from 0; it ends above `min_rate` by one step's fall."""
    warm = math.ceil(config.warmup * steps)
    if step < warm:
        return config.learning_rate * (step + 1) / warm
    passed = (step - warm) / max(steps - warm, 1)
    left = {
        "constant": 1.0,
        "linear": 1 - passed,
        "cosine": 0.5 * (1 + math.cos(math.pi * passed)),
    }[config.schedule]
    return config.min_rate + (config.learning_rate - config.min_rate) * left


def _units(rows: Sequence[TrainRow], method: Method) -> list[list[TrainRow]]:
    """What is never divided between windows."""
    if method == "sft":
        return [[row] for row in rows]
    groups: dict[str, list[TrainRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return list(groups.values())


def _unfit(row: TrainRow, method: Method, max_row_tokens: int) -> str:
    if (row.objective == "sft") != (method == "sft"):
        return f"{row.objective} rows"
    if method != "sft" and not row.ratio_allowed:
        return "retokenised or forced"
    if not any(row.loss_mask):
        return "without a trained token"
    if len(row.ids) > max_row_tokens:
        return f"longer than {max_row_tokens} tokens"
    if not _finite(row):
        return "with an advantage or a log-probability that is not finite"
    return ""


def _finite(row: TrainRow) -> bool:
    """Whether all numbers of the trained tokens are; what stands elsewhere is never looked at."""
    values = zip(row.loss_mask, row.advantages, row.behaviour_logprobs, strict=True)
    return all(math.isfinite(number) for on, *numbers in values if on for number in numbers)


def _rows_of(path: Path) -> list[TrainRow]:
    file = path / "rows.jsonl" if path.is_dir() else path
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"the rows {file} cannot be read: {error}.", "Make them by `rubricem export RUN`."
        ) from error
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(read(line, TrainRow))
        except ValidationError as error:
            raise SettingsError(
                f"line {number} of {file} is not a training row: {error.errors()[0]['msg']}.",
                "Make the rows by `rubricem export RUN`.",
            ) from error
    return rows
