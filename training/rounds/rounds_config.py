"""The configuration of `rubricem train`: rows of files or collected runs, or rounds that make them.

A folder that `rubricem collect` wrote, or a file of `export --to sft`, is compiled into OUT/rows,
so that a run that is resumed or inspected finds what it was trained on. Instead of `rows` the table
[rounds] makes on-policy rounds. docs/training.md shows such files.

Paths are relative to the file that names them. Everything outside the table is the engine's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from rubricem.agent.transcript.events import Tell
from rubricem.agent.transcript.scaffold import Rule
from rubricem.judge.build import NONE
from rubricem.memory.errors import SettingsError
from rubricem.training.collect.collect_config import GroupsConfig, path_or_name
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.local.local_config import (
    EngineConfig,
    Method,
    SampledConfig,
    TrainConfig,
    check_config,
    check_sampled,
)
from rubricem.training.rows.compile import SWITCHED, compile_rows, write_rows
from rubricem.training.rows.credit import Compiled, RowRule, row_rule
from rubricem.training.tables import check_table, read_toml

TABLE = "rounds"
CHANGEABLE = {
    "rounds", "held_out_every", "refresh", "base_url", "judge_base_url", "max_run_cost",
    "ray_workers",
}  # fmt: skip
"""what may differ when the rounds of a folder go on"""
VLLM = "vllm-lora"


class RoundsConfig(GroupsConfig, SampledConfig):
    """What is collected between updates."""

    held_out: str | None = None
    """questions that are never trained on; asked before, between and after the rounds"""
    held_out_every: int = Field(default=1, ge=1)
    """rounds between two evaluations of the held-out questions; they are always asked before the
    first round and after the last"""
    questions_per_round: int = Field(default=4, ge=1)
    """questions of one round"""
    source: tuple[str, ...] = Field(default=("python",), min_length=1)
    """what rollouts search, as in the settings"""
    tool_calls: int = Field(default=10, ge=1)
    """tool calls of a rollout, at most"""
    max_tokens: int = Field(default=4096, ge=16)
    """tokens of one turn, at most"""
    ahead: Literal[0, 1] = 1
    """rounds whose rollouts begin before the previous round's update; 0: strictly on-policy. Rows
    lag by as many updates, and reflections by one more"""
    sampler: Literal["auto", "llama.cpp", "torch"] = "auto"
    """what the embedded model writes rollouts with. auto: torch on a GPU, else llama.cpp; torch is
    faster with many slots on a processor with bfloat16 instructions too, and takes 2 GB more there
    for the 0.5B"""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        given = self.model_fields_set
        told = {
            "without a judge there is nothing to learn from": self.judge == NONE,
            "held_out_every needs held_out": self.held_out is None and "held_out_every" in given,
            "windows replay what reflections taught": self.windows and not self.reflections,
            "a group to learn from has two rollouts or more": self.group_size < 2,
            "the sampler torch is one process and no server: leave base_url and ray_workers out": (
                self.sampler == "torch" and bool(self.base_url or self.ray_workers)
            ),
        }
        for clause, wrong in told.items():
            if wrong:
                raise ValueError(clause)
        return self

    def progress_of(self, number: int) -> float:
        """Of the training in a round, counted from 0: from 0 to 1."""
        return min(number / (self.rounds - 1), 1.0) if self.rounds > 1 else 0.0

    def beside(self, folder: Path) -> Self:
        own = {
            "held_out": self.held_out and str(folder / Path(self.held_out).expanduser()),
            "source": tuple(path_or_name(name, folder) for name in self.source),
        }
        return super().beside(folder).model_copy(update=own)


CREDIT, RULES = "credit", "rules"


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A training run: its engine's configuration, and where the rows come from."""

    config: EngineConfig
    rounds: RoundsConfig | None
    """None: `config` is a TrainConfig, which names its rows"""
    rule: RowRule
    """how judged groups become rows"""
    stricter: frozenset[Rule] = frozenset()
    """the rejection rules beyond the first four, of runs that are imitated"""

    @classmethod
    def read(cls, path: Path, method: Method, overrides: Sequence[str] = ()) -> "TrainingJob":
        """What a TOML file asks for. Raises SettingsError with every fault in a sentence."""
        return build_job(read_toml(path, overrides), path.parent, method)

    async def with_rows(
        self, method: Method, tell: Tell, weights_dir: Path | None = None
    ) -> TrainConfig:
        """Its configuration over files of rows alone: all else is compiled into OUT/rows.

        `weights_dir`: where embedded models are; None: the platform's place.
        What is left out is told with its count by reason. Raises SettingsError for a folder that
        holds no run, whose run does not fit the method, or where all of them come to no row.
        """
        config = self.config
        assert isinstance(config, TrainConfig), "rounds make their own rows"
        files, every = list[Path](), Compiled()
        for number, path in enumerate(config.rows):
            found = await compile_rows(
                path, config.model, self.rule, self.stricter,
                imitate=method == "sft", weights_dir=weights_dir,
            )  # fmt: skip
            if found is None:
                files.append(path)
                continue
            tell("; ".join(filter(None, (f"{path}: {len(found.rows)} rows", _list_dropped(found)))))
            every += found
            files.append(config.out / "rows" / f"{number}.jsonl")
            write_rows(files[-1], found.rows)
        if not every.rows and all(RunDirectory(path).exists for path in config.rows):
            why = _list_dropped(every) or "no step is finished, or none has a rollout"
            raise SettingsError(
                f"no rollout of the runs gives a row for {method}: {why}.",
                "Collect more, or groups whose stages are scored differently.",
            )
        return config.model_copy(update={"rows": tuple(files)})


def build_job(values: dict[str, Any], folder: Path, method: Method) -> TrainingJob:
    """The job of values whose paths are relative to a folder."""
    values = dict(values)
    table, credit = values.pop(TABLE, None), values.pop(CREDIT, None)
    rules = _rules_named(values.pop(RULES)) if RULES in values else None
    rule = row_rule() if credit is None else row_rule(credit)
    if table is None:
        config = check_config(values, folder, TrainConfig)
        runs = any(RunDirectory(path).exists for path in config.rows)
        _check_acts(CREDIT, credit is None or (runs and method == "ss-grpo"))
        _check_acts(RULES, rules is None or (runs and method == "sft"))
        return TrainingJob(config, None, rule, rules or frozenset())
    _check_acts(RULES, rules is None)
    if method != "ss-grpo" or "rows" in values:
        raise SettingsError(
            f"[{TABLE}] makes rows of its own, for ss-grpo.",
            f"Leave out `rows`, or [{TABLE}]; imitate accepted traces by `rubricem train sft`.",
        )
    if "save_every" in values:
        raise SettingsError(
            f"[{TABLE}] saves a checkpoint after every round.", "Leave out `save_every`."
        )
    engine = check_config(values, folder, EngineConfig)
    rounds = check_table(table, RoundsConfig, f"[{TABLE}]").beside(folder)
    check_sampled(engine, rounds, TABLE)
    if rounds.scaffold is not None and engine.objective.importance == "bypass":
        raise SettingsError(
            "bypass forms the ratio to the sampler, which saw a scaffold that the rows have not.",
            'Set importance to "truncate".',
        )
    return TrainingJob(engine, rounds, rule)


_ACTS = {CREDIT: "judged groups, under ss-grpo", RULES: "runs that are imitated, under sft"}


def _check_acts(key: str, acts: bool) -> None:
    if not acts:
        raise SettingsError(
            f"{key}: this acts on {_ACTS[key]}; exported rows were made with theirs.",
            f"Leave out {key}, or name the runs' folders as rows.",
        )


def _rules_named(names: object) -> frozenset[Rule]:
    """The rules of a configuration's list. Raises SettingsError for any other name."""
    if not isinstance(names, list) or not set(map(str, names)) <= set(SWITCHED):
        raise SettingsError(
            f"There are no rejection rules {names!r} to switch on.",
            f"Give a list of {', '.join(SWITCHED)}; the first four always hold.",
        )
    return frozenset(map(Rule, names))


def _list_dropped(found: Compiled) -> str:
    left = sorted(found.dropped.items(), key=lambda item: -item[1])
    return "; ".join(f"{count} left out, {reason}" for reason, count in left)
