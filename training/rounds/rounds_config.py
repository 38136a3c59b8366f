"""The configuration of `rubricem train`: rows of files or collected runs, or rounds that make them.

A folder that `rubricem collect` wrote, or a file of `export --to sft`, is compiled into OUT/rows,
so that a run that is resumed or inspected finds what it was trained on. Instead of `rows` the table
[rounds] makes on-policy rounds. docs/training.md shows such files.

Paths are relative to the file that names them. Everything outside the table is the engine's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from rubricem.agent.transcript.scaffold import Rule
from rubricem.judge.build import NONE
from rubricem.memory.errors import SettingsError
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.collect.scaffolding import ScaffoldRule, scaffold_rule
from rubricem.training.local.local_config import (
    Config,
    EngineConfig,
    JudgeOptions,
    Method,
    TrainConfig,
    check_config,
    check_table,
    read_toml,
)
from rubricem.training.objective.objective_config import ObjectiveConfig
from rubricem.training.rows.compile import SWITCHED, compile_rows, write_rows
from rubricem.training.rows.credit import DR_GRPO, Compiled, RowRule, row_rule

TABLE = "rounds"
CHANGEABLE = {
    "rounds", "held_out_every", "refresh", "base_url", "judge_base_url", "embed_answers",
    "max_run_cost", "slots", "ray_workers", "ray_address",
}  # fmt: skip
"""what may differ when the rounds of a folder go on"""


ADDED = (
    "rubric", "gated", "system_prompt", "passages", "passage_words", "in_flight", "sampler",
)  # fmt: skip
"""what a folder of an earlier version does not tell of its rounds: they had what is the default"""


Refresh = Literal["vllm-lora", "vllm-weights", "sglang-lora", "sglang-weights", "llama-adapter"]
ONE_AT_A_TIME = ("vllm-weights", "sglang-weights", "llama-adapter")
"""ways in which a server has the newest checkpoint in the place of the one before"""


class RoundsConfig(JudgeOptions):
    """What is collected between updates."""

    questions: str
    """a file, as `rubricem collect` takes it"""
    held_out: str | None = None
    """questions that are never trained on; asked before, between and after the rounds"""
    held_out_every: int = Field(default=1, ge=1)
    """rounds between two evaluations of the held-out questions; they are always asked before the
    first round and after the last"""
    rounds: int = Field(ge=1)
    """number of rounds; you may raise it when you resume a folder"""
    questions_per_round: int = Field(default=4, ge=1)
    """questions of one round"""
    group_size: int = Field(default=4, ge=2)
    """rollouts of each question"""
    windows: int = Field(default=0, ge=0)
    """after this many rounds of new questions the same ones are asked again; the paper has 3; 0:
    never"""
    base_url: str | tuple[str, ...] = ()
    """a server that samples in place of the embedded model, or several that share its calls;
    `refresh` gives each checkpoint to all of them"""
    model: str | None = None
    """the servers' name of the weights that training begins with"""
    refresh: Refresh | tuple[str, ...] = ()
    """how servers get a checkpoint: through their own interface (docs/scale.md), or by a command
    that has them sample from the checkpoint whose folder replaces {checkpoint}; the last thing it
    prints is the model to ask for, under a name that no other checkpoint has had"""
    judge_model: str | None = None
    """None: the weights that training began with, never the adapter in training"""
    judge_base_url: str | None = None
    """a server that judges"""
    source: tuple[str, ...] = Field(default=("python",), min_length=1)
    """what rollouts search, as in the settings"""
    tool_calls: int = Field(default=10, ge=1)
    """of a rollout"""
    max_tokens: int = Field(default=4096, ge=16)
    """of one turn"""
    system_prompt: Literal["full", "short"] = "full"
    """as in the settings"""
    passages: int | None = Field(default=None, ge=1, le=50)
    """as in the settings"""
    passage_words: int | None = Field(default=None, ge=10)
    """as in the settings"""
    reflections: int = Field(default=8, ge=0, le=64)
    """candidates on one trajectory of each group; they become rows of their own one round later"""
    scaffold: str | None = None
    """how much of its rubric a question's rollouts are shown: `linear`, `binary:MEMBERS`, `full`
    (`training.collect.scaffolding`); None: nothing"""
    scaffold_decay: str = "sigmoid"
    """how the scaffold fades from the first round to the last: `sigmoid:STEEPNESS:MIDDLE`,
    `linear`, `power:N`, `constant`"""
    embed_answers: bool = False
    """load the embedding model to measure how far apart answers are in meaning; if the bank has it
    loaded, this is measured anyway"""
    max_run_cost: float | None = Field(default=None, gt=0)
    """US dollars that all rounds may cost: rollouts, judge, reflections and held-out questions;
    prices go by the models' names, and a checkpoint's is that of `model`"""
    ahead: int = Field(default=1, ge=0, le=8)
    """rounds whose rollouts begin before the previous round's update; 0: strictly on-policy. Rows
    lag by as many updates, and reflections by one more, which `max_staleness` must allow"""
    in_flight: Literal["keep", "cut"] | None = None
    """what happens to rollouts in flight when servers get a new checkpoint in place of the old one
    while rounds run ahead: `keep`: they go on with their next turn by the new weights; `cut`: they
    are sampled anew"""
    ray_workers: int = Field(default=0, ge=0, le=4096)
    """Ray workers that write the rollouts of a round, judge them and reflect, for all rounds under
    way; 0: this process does"""
    ray_address: str | None = None
    """address of a Ray cluster (`auto`, `HOST:PORT`); None: one is started on this machine"""
    slots: int | None = Field(default=None, ge=1, le=64)
    """as in the settings: rollouts at the same time on the embedded model"""
    sampler: Literal["llama.cpp", "torch"] = "llama.cpp"
    """what the embedded model writes rollouts with; `torch` is faster with many slots on a
    processor with bfloat16 instructions, and takes 2 GB more for the 0.5B"""
    max_staleness: int = Field(default=2, ge=0)
    """updates between the policy that wrote a row and the one it trains; older rows are dropped"""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        given = self.model_fields_set
        told = {
            "without a judge there is nothing to learn from": self.judge == NONE,
            f"max_staleness {self.max_staleness} would drop what lags by {self.lag} updates: "
            "reflections lag one more than rollouts, which lag by `ahead`": (
                self.max_staleness < self.lag
            ),
            "scaffold_decay needs a scaffold": self.scaffold is None and "scaffold_decay" in given,
            "held_out_every needs held_out": self.held_out is None and "held_out_every" in given,
            "windows replay what reflections taught": self.windows and not self.reflections,
            "a server needs base_url, model and refresh: without the last it would go on sampling "
            "the first policy": len({*map(bool, (self.base_url, self.model, self.refresh))}) > 1,
            f"servers of refresh {self.refresh!r} have one policy at a time, replaced while some "
            'rollouts are in flight: set in_flight to "keep" or "cut", or ahead to 0': (
                self.replaced and self.ahead > 0 and self.in_flight is None
            ),
            "in_flight is about rollouts that run ahead on servers with one policy at a time": (
                self.in_flight is not None and not (self.replaced and self.ahead)
            ),
            "ray_address needs ray_workers": self.ray_address is not None and not self.ray_workers,
            "Ray's workers ask servers by themselves, and would not hear that weights are replaced "
            "while they do: set ahead to 0, or ray_workers": (
                self.ray_workers > 0 and self.replaced and self.ahead > 0
            ),
            "the sampler torch is one process and no server: leave base_url and ray_workers out": (
                self.sampler == "torch" and bool(self.base_url or self.ray_workers)
            ),
            f"servers of refresh {self.refresh!r} have no other policy to judge by than the one in "
            "training: name judge_base_url or judge_model": (
                self.replaced and self.judge_model is None and self.judge_base_url is None
            ),
        }
        for clause, wrong in told.items():
            if wrong:
                raise ValueError(clause)
        return self

    def scaffold_of(self, number: int) -> ScaffoldRule | None:
        """The scaffold of a round, counted from 0; None without one."""
        progress = number / (self.rounds - 1) if self.rounds > 1 else 0.0
        return scaffold_rule(self.scaffold, self.scaffold_decay, min(progress, 1.0))

    @property
    def servers(self) -> tuple[str, ...]:
        """The addresses of the servers that sample; none: the embedded model does."""
        return (self.base_url,) if isinstance(self.base_url, str) else self.base_url

    @property
    def replaced(self) -> bool:
        """Whether the servers have a checkpoint in the place of the one before."""
        return self.refresh in ONE_AT_A_TIME

    @property
    def remembers(self) -> bool:
        """Whether a round leaves something in the bank, and recalls what is there."""
        return bool(self.reflections)

    @property
    def lag(self) -> int:
        """Updates by which the oldest rows of an undisturbed run lag."""
        return self.ahead + (1 if self.reflections else 0)


def build_rounds(values: Any, folder: Path) -> RoundsConfig:
    """The table's configuration. Raises SettingsError with every fault in a sentence."""
    config = check_table(values, RoundsConfig, f"[{TABLE}]")
    config.scaffold_of(0)

    def beside(name: str) -> str:
        return str(folder / Path(name).expanduser())

    def source(name: str) -> str:
        """A folder, of documents or of a checkpoint, is beside the file; other names stay."""
        path = folder / Path(name).expanduser()
        return str(path) if path.is_dir() else name

    return config.model_copy(
        update={
            "questions": beside(config.questions),
            "held_out": config.held_out and beside(config.held_out),
            "rubric": config.rubric and folder / config.rubric.expanduser(),
            "judge_model": config.judge_model and source(config.judge_model),
            "source": tuple(source(name) for name in config.source),
        }
    )


Tell = Callable[[str], None]
CREDIT, RATIO, RULES = "credit", "scaffold_ratio", "rules"
_ARGUMENTS = {CREDIT: "credit", RATIO: "ratio"}


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

    async def with_rows(self, method: Method, tell: Tell) -> TrainConfig:
        """Its configuration over files of rows alone: all else is compiled into OUT/rows.

        What is left out is told with its count by reason. Raises SettingsError for a folder that
        holds no run, whose run does not fit the method, or where all of them come to no row.
        """
        config = self.config
        assert isinstance(config, TrainConfig), "rounds make their own rows"
        files, every = list[Path](), Compiled()
        for number, path in enumerate(config.rows):
            found = await compile_rows(
                path, config.model, self.rule, self.stricter, imitate=method == "sft"
            )
            if found is None:
                files.append(path)
                continue
            tell("; ".join(filter(None, (f"{path}: {len(found.rows)} rows", _list_dropped(found)))))
            every += found
            rows: Sequence[Any] = found.rows
            if len(config.rows) > 1:  # groups of several runs are called alike
                rows = [r.model_copy(update={"group": f"{number}:{r.group}"}) for r in rows]
            files.append(config.out / "rows" / f"{number}.jsonl")
            write_rows(files[-1], rows)
        if not every.rows and all(RunDirectory(path).unexported for path in config.rows):
            why = _list_dropped(every) or "no step is finished, or none has a rollout"
            raise SettingsError(
                f"no rollout of the runs gives a row for {method}: {why}.",
                "Collect more, or groups whose stages are scored differently.",
            )
        return config.model_copy(update={"rows": tuple(files)})


PRESET = "preset"
TOKEN_BUDGET = 4096
"""by which dr-grpo divides where no longest row is set: what is learnt must not depend on the
memory of a machine"""
_LORA = {"rank", "alpha", "start_adapter", "adapted_blocks"}
PRESETS: Mapping[str, Mapping[Method, Mapping[str, Any]]] = {
    "rubricem": {
        "ss-grpo": {
            "adaptation": "full",
            "learning_rate": 5e-7,
            "max_row_tokens": 26_624,
            "gradient_checkpointing": True,
            "batch": 32,
            "objective": {"beta": 0.001, "clip": (0.2, 0.2)},
            TABLE: {
                "questions_per_round": 32,
                "group_size": 8,
                "windows": 3,
                "reflections": 8,
                "tool_calls": 10,
                "ahead": 1,
            },
        },
        "sft": {
            "adaptation": "full",
            "learning_rate": 4e-5,
            "schedule": "cosine",
            "warmup": 0.1,
            "max_row_tokens": 16_384,
            "gradient_checkpointing": True,
            "batch": 128,
            "epochs": 5,
        },
    }
}
"""what a paper trained with, by the preset's name (RubricEM, arXiv:2605.10899, appendix F.1)"""


def with_preset(values: Mapping[str, Any], method: Method) -> dict[str, Any]:
    """The values with those of the preset that they name where they say nothing themselves.

    A training of an adapter stays one. Raises SettingsError for a preset that there is not.
    """
    told = dict(values)
    if (name := told.pop(PRESET, None)) is None:
        return told
    if name not in PRESETS:
        raise SettingsError(f"There is no {PRESET} {name!r}.", f"Use {', '.join(PRESETS)}.")
    given = dict(PRESETS[name][method])
    rounds = dict(given.pop(TABLE, {}))
    if TABLE in told:
        del given["batch"]  # a round is a step
        if isinstance(told[TABLE], Mapping):
            if told[TABLE].get("reflections") == 0:
                del rounds["windows"]  # there is nothing to ask again with
            told[TABLE] = {**rounds, **told[TABLE]}
    if _LORA & told.keys():
        del given["adaptation"]
    if isinstance(told.get("objective"), Mapping):
        told["objective"] = {**given.get("objective", {}), **told["objective"]}
    return {**given, **told}


def build_job(values: dict[str, Any], folder: Path, method: Method) -> TrainingJob:
    """The job of values whose paths are relative to a folder."""
    values = with_preset(values, method)
    if RULES in values:
        rules = _rules_named(values.pop(RULES))
        job = build_job(values, folder, method)
        rows = job.config.rows if isinstance(job.config, TrainConfig) else ()
        if method != "sft" or not any(RunDirectory(path).unexported for path in rows):
            raise SettingsError(
                f"{RULES}: this chooses among the runs that are imitated; the policy gradient has "
                "none, and exported rows were made with theirs.",
                f"Leave out {RULES}, or name the runs' folders under sft.",
            )
        return replace(job, stricter=rules)
    table = values.pop(TABLE, None)
    told = {name: values.pop(name) for name in (CREDIT, RATIO) if name in values}
    rule = row_rule(**{_ARGUMENTS[name]: value for name, value in told.items()})
    if table is None:
        return _of_rows(check_config(values, folder, TrainConfig), rule, told, method)
    if method != "ss-grpo" or "rows" in values:
        raise SettingsError(
            f"[{TABLE}] makes rows of its own, for ss-grpo.",
            f"Leave out `rows`, or [{TABLE}]; imitate accepted traces by `rubricem train sft`.",
        )
    if "save_every" in values:
        raise SettingsError(
            f"[{TABLE}] saves a checkpoint after every round.", "Leave out `save_every`."
        )
    config = _settle_objective(check_config(values, folder, EngineConfig), rule, told)
    rounds = build_rounds(table, folder)
    _check_scaffold(config, rounds, rule)
    return TrainingJob(config, rounds, rule)


def _rules_named(names: object) -> frozenset[Rule]:
    """The rules of a configuration's list. Raises SettingsError for any other name."""
    if not isinstance(names, list) or not set(map(str, names)) <= set(SWITCHED):
        raise SettingsError(
            f"There are no rejection rules {names!r} to switch on.",
            f"Give a list of {', '.join(SWITCHED)}; the first four always hold.",
        )
    return frozenset(map(Rule, names))


def _of_rows(
    config: TrainConfig, rule: RowRule, told: Mapping[str, Any], method: Method
) -> TrainingJob:
    if told and (method == "sft" or not any(RunDirectory(path).unexported for path in config.rows)):
        names = " and ".join(told)
        raise SettingsError(
            f"{names}: this acts on judged groups of collected runs and rounds; imitation has "
            "none, and exported rows were made with theirs.",
            f"Leave out {names}, or name the runs' folders under ss-grpo.",
        )
    return TrainingJob(_settle_objective(config, rule, told), None, rule)


def _settle_objective(config: Config, rule: RowRule, told: Mapping[str, Any]) -> Config:
    """The configuration with the objective that the rule is defined by.

    Raises SettingsError where another one is set.
    """
    implied: dict[str, Any] = {}
    if told.get(CREDIT) == DR_GRPO:
        budget = config.max_row_tokens or TOKEN_BUDGET
        implied |= {"aggregation": "token-sum", "token_budget": budget}
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


def _list_dropped(found: Compiled) -> str:
    left = sorted(found.dropped.items(), key=lambda item: -item[1])
    return "; ".join(f"{count} left out, {reason}" for reason, count in left)
