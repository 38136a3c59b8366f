"""What `rubricem train` is told: rows of files, of collected runs, or rounds that make their own.

    out = "runs/first"
    rows = ["collected/monday", "collected/tuesday", "more/rows.jsonl"]
    dependence = "paper"

A folder that `rubricem collect` wrote is compiled here; with a table `[rounds]` the policy
collects by itself. What is compiled is kept in OUT/rows, so that a run that goes on, or is looked
into, finds what it was trained on.
"""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory.errors import SettingsError
from training.compiling import Compiled
from training.exporting import write_rows
from training.local.config import (
    EngineConfig,
    Method,
    TrainConfig,
    build_config,
    checked_config,
)
from training.rounds.config import TABLE, RoundsConfig, build_rounds
from training.run_directory import RunDirectory
from training.tokenising import DEPENDENCES, compiled_run, compiled_traces

Tell = Callable[[str], None]
DEPENDENCE = "dependence"


@dataclass(frozen=True, slots=True)
class Job:
    """A training run: its engine's configuration, and where the rows come from."""

    config: EngineConfig
    rounds: RoundsConfig | None
    """None: `config` is a TrainConfig, which names its rows"""
    dependence: str


def read_job(path: Path, method: Method) -> Job:
    """What a TOML file asks for. Raises SettingsError with every fault in a sentence."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.", "Name a TOML file.") from error
    return build_job(values, path.parent, method)


def build_job(values: dict[str, Any], folder: Path, method: Method) -> Job:
    """The job of values whose paths are relative to a folder."""
    values = dict(values)
    given, table = DEPENDENCE in values, values.pop(TABLE, None)
    dependence = values.pop(DEPENDENCE, "paper")
    if dependence not in DEPENDENCES:
        raise SettingsError(
            f"There is no dependence {dependence!r}.", f"Use {', '.join(DEPENDENCES)}."
        )
    if table is None:
        config = build_config(values, folder)
        if given and not any(map(_is_run, config.rows)):
            raise SettingsError(
                f"{DEPENDENCE} acts on collected runs and rounds; exported rows have theirs.",
                f"Leave out {DEPENDENCE}, or name the runs' folders in their place.",
            )
        return Job(config, None, dependence)
    if method != "ss-grpo" or "rows" in values:
        raise SettingsError(
            f"[{TABLE}] makes rows of its own, for ss-grpo.",
            f"Leave out `rows`, or [{TABLE}]; imitate accepted traces by `rubricem train sft`.",
        )
    return Job(
        checked_config(values, folder, EngineConfig), build_rounds(table, folder), dependence
    )


async def with_rows(
    config: TrainConfig, dependence: str, method: Method, tell: Tell
) -> TrainConfig:
    """The same with files of rows alone: runs that were collected are compiled into OUT/rows.

    What is left out is told with its count by reason. Raises SettingsError for a folder that
    holds no run, or whose run does not fit the method.
    """
    files: list[Path] = []
    for number, path in enumerate(config.rows):
        if not _is_run(path):
            files.append(path)
            continue
        if method == "sft":
            found = await compiled_traces(path, config.model)
        else:
            found = await compiled_run(path, dependence, config.model)
        tell(_told(path, found))
        files.append(config.out / "rows" / f"{number}.jsonl")
        write_rows(files[-1], _apart(found, number, len(config.rows)))
    return config.model_copy(update={"rows": tuple(files)})


def _is_run(path: Path) -> bool:
    """A collected run that was not exported, which is then taken as it stands."""
    return RunDirectory(path).exists and not (path / "rows.jsonl").exists()


def _apart(found: Compiled, number: int, runs: int) -> Sequence[Any]:
    """The rows, their groups told from those of the other runs, which are called alike."""
    if runs == 1:
        return found.rows
    return [row.model_copy(update={"group": f"{number}:{row.group}"}) for row in found.rows]


def _told(path: Path, found: Compiled) -> str:
    left = sorted(found.dropped.items(), key=lambda item: -item[1])
    out = "; ".join(f"{count} left out, {reason}" for reason, count in left)
    return f"{path}: {len(found.rows)} rows{f'; {out}' if out else ''}"
