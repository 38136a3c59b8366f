"""What `rubricem train` is told: rows of files, of collected runs, or rounds that make their own.

    out = "runs/first"
    rows = ["collected/monday", "collected/tuesday", "more/rows.jsonl"]
    credit = "ss-grpo"                    # or another of `training.row_rule`, or a matrix
    scaffold_ratio = "unscaffolded"
    rules = ["citation"]                  # sft: rejection rules beyond the first four

A folder that `rubricem collect` wrote is compiled here; with a table `[rounds]` the policy
collects by itself. What is compiled is kept in OUT/rows, so that a run that goes on, or is looked
into, finds what it was trained on.
"""

import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.rejection import Rule
from memory.errors import SettingsError
from training.compiling import Compiled
from training.exporting import write_rows
from training.local.config import (
    Config,
    EngineConfig,
    Method,
    TrainConfig,
    build_config,
    checked_config,
)
from training.objective_config import ObjectiveConfig
from training.rejecting import rules_named
from training.rounds.config import TABLE, RoundsConfig, build_rounds
from training.row_rule import DR_GRPO, RowRule, row_rule
from training.run_directory import RunDirectory
from training.tokenising import compiled_run, compiled_traces

Tell = Callable[[str], None]
CREDIT, RATIO, RULES = "credit", "scaffold_ratio", "rules"
_ARGUMENTS = {CREDIT: "credit", RATIO: "ratio"}


@dataclass(frozen=True, slots=True)
class Job:
    """A training run: its engine's configuration, and where the rows come from."""

    config: EngineConfig
    rounds: RoundsConfig | None
    """None: `config` is a TrainConfig, which names its rows"""
    rule: RowRule
    """how judged groups become rows"""
    rules: frozenset[Rule] = frozenset()
    """the rejection rules beyond the first four, of runs that are imitated"""


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
    if RULES in values:
        rules = rules_named(values.pop(RULES))
        return replace(_imitating(build_job(values, folder, method), method), rules=rules)
    table = values.pop(TABLE, None)
    told = {name: values.pop(name) for name in (CREDIT, RATIO) if name in values}
    rule = row_rule(**{_ARGUMENTS[name]: value for name, value in told.items()})
    if table is None:
        return _of_rows(build_config(values, folder), rule, told, method)
    if method != "ss-grpo" or "rows" in values:
        raise SettingsError(
            f"[{TABLE}] makes rows of its own, for ss-grpo.",
            f"Leave out `rows`, or [{TABLE}]; imitate accepted traces by `rubricem train sft`.",
        )
    if "save_every" in values:
        raise SettingsError(
            f"[{TABLE}] saves a checkpoint after every round.", "Leave out `save_every`."
        )
    config = _settled(checked_config(values, folder, EngineConfig), rule, told)
    rounds = build_rounds(table, folder)
    _check_scaffold(config, rounds, rule)
    return Job(config, rounds, rule)


def _imitating(job: Job, method: Method) -> Job:
    """The same, of a training that `rules` can shape. Raises SettingsError for another one."""
    rows = job.config.rows if isinstance(job.config, TrainConfig) else ()
    if method != "sft" or not any(map(_is_run, rows)):
        raise SettingsError(
            f"{RULES}: this chooses among the runs that are imitated; the policy gradient has "
            "none, and exported rows were made with theirs.",
            f"Leave out {RULES}, or name the runs' folders under sft.",
        )
    return job


def _of_rows(config: TrainConfig, rule: RowRule, told: Mapping[str, Any], method: Method) -> Job:
    if told and (method == "sft" or not any(map(_is_run, config.rows))):
        names = " and ".join(told)
        raise SettingsError(
            f"{names}: this acts on judged groups of collected runs and rounds; imitation has "
            "none, and exported rows were made with theirs.",
            f"Leave out {names}, or name the runs' folders under ss-grpo.",
        )
    return Job(_settled(config, rule, told), None, rule)


def _settled(config: Config, rule: RowRule, told: Mapping[str, Any]) -> Config:
    """The configuration with the objective that the rule is defined by.

    Raises SettingsError where another one is set.
    """
    implied: dict[str, Any] = {}
    if told.get(CREDIT) == DR_GRPO:
        implied |= {"aggregation": "token-sum", "token_budget": config.max_row_tokens}
    if rule.ratio == "behaviour":
        implied |= {"correction": "bypass", "importance": "none"}
    given = config.objective.model_dump(exclude_unset=True)
    wrong = sorted(n for n in implied.keys() & given.keys() - {"token_budget"}
                   if given[n] != implied[n])  # fmt: skip
    if wrong:
        need = ", ".join(f"{name} = {implied[name]!r}" for name in wrong)
        names = " and ".join(f"{name} {value}" for name, value in told.items())
        raise SettingsError(
            f"{names} goes with {need}, and [objective] sets something else.",
            f"Leave out {', '.join(wrong)} under [objective].",
        )
    objective = ObjectiveConfig.model_validate({**implied, **given})
    return config.model_copy(update={"objective": objective})


def _check_scaffold(config: EngineConfig, rounds: RoundsConfig, rule: RowRule) -> None:
    """Whether the ratio can be formed of what the rounds will collect."""
    if rounds.scaffold is None and rule.ratio != "unscaffolded":
        raise SettingsError(
            f"{RATIO} is about rollouts under a scaffold, and [{TABLE}] shows none.",
            f"Set scaffold under [{TABLE}], or leave out {RATIO}.",
        )
    bypass = config.objective.correction == "bypass"
    if rounds.scaffold is not None and rule.ratio == "unscaffolded" and bypass:
        raise SettingsError(
            "bypass forms the ratio to the sampler, which saw a scaffold that the rows have not.",
            f'Set {RATIO} to "behaviour" if that is meant, or correction to "decoupled".',
        )


async def with_rows(
    config: TrainConfig,
    rule: RowRule,
    method: Method,
    tell: Tell,
    rules: Collection[Rule] = (),
) -> TrainConfig:
    """The same with files of rows alone: runs that were collected are compiled into OUT/rows.

    `rules`: those of a job. What is left out is told with its count by reason. Raises
    SettingsError for a folder that holds no run, whose run does not fit the method, or where all of
    them come to no row.
    """
    files, every = list[Path](), Compiled()
    for number, path in enumerate(config.rows):
        if not _is_run(path):
            files.append(path)
            continue
        if method == "sft":
            found = await compiled_traces(path, config.model, rules)
        else:
            found = await compiled_run(path, rule, config.model)
        tell(_told(path, found))
        every += found
        files.append(config.out / "rows" / f"{number}.jsonl")
        write_rows(files[-1], _apart(found, number, len(config.rows)))
    if not every.rows and all(map(_is_run, config.rows)):
        why = _left_out(every) or "no step is finished, or none has a rollout"
        raise SettingsError(
            f"no rollout of the runs gives a row for {method}: {why}.",
            "Collect more, or groups whose stages are scored differently.",
        )
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
    return "; ".join(filter(None, (f"{path}: {len(found.rows)} rows", _left_out(found))))


def _left_out(found: Compiled) -> str:
    left = sorted(found.dropped.items(), key=lambda item: -item[1])
    return "; ".join(f"{count} left out, {reason}" for reason, count in left)
