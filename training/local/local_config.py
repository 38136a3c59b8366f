"""The settings of a training run, from a TOML file as in docs/training.md.

Paths are relative to the file that names them. The plan of steps depends on nothing but the
settings. A window is what one optimizer step sees: for imitation some rows in a shuffled order, for
the policy gradient whole groups, because advantages were normalised within them.
"""

import math
import sys
import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, Field, ValidationError, model_validator

from rubricem.judge.build import NONE
from rubricem.judge.composed import RUBRIC
from rubricem.memory.errors import SettingsError
from rubricem.memory.text import with_leaves
from rubricem.training.objective.objective_config import ObjectiveConfig, TableConfig
from rubricem.training.show.console import Tracker

Method = Literal["sft", "ss-grpo"]
Adaptation = Literal["lora", "full"]


class SpendingConfig(TableConfig):
    """What calls may cost."""

    max_run_cost: float | None = Field(default=None, gt=0)
    """US dollars that all calls to models may cost; prices go by the models' names, and a
    checkpoint's is that of `model`"""


class JudgedConfig(TableConfig):
    """How groups are scored and reflected upon, and what their rollouts are shown of a rubric."""

    judge: str = "stage"
    """as `--judge` of `rubricem collect` takes it"""
    rubric: Path | None = None
    """a file of standards of a relative judge, in place of the default ones"""
    gated: bool = False
    """stages of broken form and badly cited answers get 0, and the judge is asked about the rest; a
    stage that it has nothing to say about gets 1"""
    support: Literal["rules", "judge", "off"] = "rules"
    """who checks claims; `off`: their support changes no score"""
    reflections: int = Field(default=8, ge=0, le=64)
    """candidates on one trajectory of each judged group"""
    scaffold: Literal["linear"] | None = None
    """a question's rollouts are shown its rubric: the first of a group all of it, the last nothing
    (`training.collect.scaffolding`); None: nothing"""

    @model_validator(mode="after")
    def _gates_ours(self) -> Self:
        if self.gated and (self.judge == NONE or self.judge.startswith(RUBRIC)):
            raise ValueError(
                "gated puts a gate before a judge of ours: leave it out, or compose the gate with "
                "your own rubric"
            )
        return self


class GroupsConfig(JudgedConfig, SpendingConfig):
    """How judged groups of rollouts are collected, by a collecting run and by rounds."""

    questions: str
    """a .txt, .jsonl or .parquet file; of the same question twice, one is asked"""
    group_size: int = Field(default=4, ge=1, le=256)
    """rollouts of each question"""
    windows: int = Field(default=0, ge=0, le=4096)
    """steps of new questions after which the same are asked again; 3 in the paper, 0: never"""
    system_prompt: Literal["full", "short"] = "full"
    """`short`: for a model trained on it"""
    passages: int | None = Field(default=None, ge=1, le=50)
    """shown for each search; None: 5, embedded 3"""
    passage_words: int | None = Field(default=None, ge=10)
    """shown of each passage; None: 160, embedded 110"""
    judge_model: str | None = None
    """None: the policy's; in rounds the weights that training began with, never the adapter in
    training"""
    judge_base_url: str | None = None
    """a server that judges"""
    ray_workers: int = Field(default=0, ge=0, le=4096)
    """Ray's workers, which write rollouts, each with a core and a model of its own, on this machine
    or at RAY_ADDRESS; 0: this process does"""

    def beside(self, folder: Path) -> Self:
        """The same with its paths relative to the folder of the file that names them."""
        return self.model_copy(
            update={
                "questions": str(folder / Path(self.questions).expanduser()),
                "rubric": self.rubric and folder / self.rubric.expanduser(),
                "judge_model": self.judge_model and folder_or_name(self.judge_model, folder),
            }
        )


def folder_or_name(name: str, beside: Path) -> str:
    """The path of a folder, of documents or of a checkpoint; another name stays as it is."""
    path = beside / Path(name).expanduser()
    return str(path) if path.is_dir() else name


class SampledConfig(TableConfig):
    """Rounds of samples and updates, and what samples them."""

    rounds: int = Field(ge=1)
    """updates, each of new samples; you may raise it when you resume a folder"""
    base_url: str | None = None
    """a server that samples in place of the embedded model, or a router before several"""
    model: str | None = None
    """the server's name of the weights that training begins with"""
    refresh: Literal["vllm-lora"] | tuple[str, ...] = ()
    """how the server gets a checkpoint: `vllm-lora` loads it as an adapter by vLLM's interface; a
    command is given the checkpoint's folder as {checkpoint} and prints, last, the name of the model
    to ask for, which no other checkpoint of a policy has had"""

    @model_validator(mode="after")
    def _server_follows(self) -> Self:
        if len({bool(self.base_url), bool(self.model), bool(self.refresh)}) > 1:
            raise ValueError(
                "a server needs base_url, model and refresh: without the last it would go on "
                "sampling what training began with"
            )
        return self


class EngineConfig(TableConfig):
    """How a model is trained, whatever its rows are."""

    out: Path
    """the run's folder; the same command resumes it"""
    model: str = "0.5b"
    """the weights: a name of the catalogue, a GGUF file, or a folder as transformers saves it"""
    adaptation: Adaptation = "lora"
    """an adapter, or all weights"""
    start_adapter: Path | None = None
    """a checkpoint to start from; it is the reference too"""
    judge: Literal["full"] | None = None
    """`full`: the model learns to compare two replies by a chain of rubrics, for use as a judge;
    None: it learns no judging"""
    learning_rate: float = Field(default=1e-4, gt=0)
    """the learning rate after the warm-up"""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """how the learning rate changes after the warm-up"""
    warmup: float = Field(default=0.0, ge=0, le=1)
    """share of the steps in which the rate rises to its full value"""
    max_row_tokens: int | None = Field(default=None, ge=2)
    """of longer rows the beginning is trained, and none of those that are imitated; None: what the
    model can read and the memory free at the beginning is estimated to hold"""
    micro_batch: int | None = Field(default=None, ge=1)
    """rows that go through the model side by side, padded to the longest; None: on a GPU as many as
    its memory is estimated to hold, else one"""
    gradient_checkpointing: bool = False
    """activations are recomputed in the backward pass: less memory, a third more time"""
    rank: int = Field(default=16, ge=1)
    """of the adapter"""
    alpha: float = Field(default=32.0, gt=0)
    """the adapter's output is scaled by alpha / rank"""
    objective: ObjectiveConfig = ObjectiveConfig()
    """the table [objective]"""
    seed: int = Field(default=0, ge=0)
    """seed of the order of rows and of a new adapter"""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """how several processes of torchrun share the work: each has all weights (`ddp`), or a part of
    them (`fsdp`)"""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """type in which the weights are computed; `auto`: bfloat16 on a GPU, and on a CPU with
    instructions for it. What is trained is also kept in float32"""
    save_every: int = Field(default=1, ge=1)
    """steps between two checkpoints; the last step always has one"""
    trackers: tuple[Tracker, ...] = ()
    """where the numbers of every step are also sent: `tensorboard`, `wandb` (W&B), `trackio`; each
    is a package of its own, and stores them where its own variables say"""

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        lora = sorted(self.model_fields_set & {"rank", "alpha", "start_adapter"})
        if self.adaptation == "full" and lora:
            raise ValueError(f"{' and '.join(lora)} go with the adaptation lora")
        return self


class TrainConfig(EngineConfig):
    """Everything that shapes a training run on files of rows."""

    rows: tuple[Path, ...] = Field(min_length=1)
    """folders of `rubricem collect`, or files of `rubricem export`"""
    epochs: int = Field(default=1, ge=1)
    """passes over all rows"""
    batch: int = Field(default=0, ge=0)
    """per step: rows for sft, whole groups for ss-grpo; 0: all"""


def read_toml(path: Path | None, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """A file's values, if there is one, updated with `overrides` such as `objective.beta=0.01`.

    An override that is no TOML value is taken as a string. Raises SettingsError if something cannot
    be read.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8")) if path else {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.", "Name a TOML file.") from error
    with_leaves(values, lambda held: _refuse_code(held, overrides))
    for override in overrides:
        key, sign, value = override.partition("=")
        *tables, name = key.strip().split(".")
        table: Any = values
        for each in tables:
            table = table.setdefault(each, {}) if isinstance(table, dict) else None
        if not sign or not name or not isinstance(table, dict):
            raise SettingsError(
                f"{override!r} sets nothing.", "Write it as key=value, or table.key=value."
            )
        try:
            table[name] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            table[name] = value.strip()
    return values


def _refuse_code(value: Any, overrides: Sequence[str]) -> None:
    """A file of somebody else's runs no code that lies beside it.

    Raises SettingsError for a rubric whose module is of no installed package, unless the command
    names it as well.
    """
    if not str(value).startswith(RUBRIC) or any(value in each for each in overrides):
        return
    module = str(value).removeprefix(RUBRIC).partition(":")[0].partition(".")[0]
    here = Path.cwd()
    installed = [each for each in sys.path if each and Path(each).resolve() != here.resolve()]
    known = module.isidentifier() and PathFinder.find_spec(module, installed)
    if not known or not (found := find_spec(module)) or found.origin != known.origin:
        raise SettingsError(
            f"{value!r} names code of no installed package, and a file does not run it by itself.",
            f"If you trust it, name it in the command as well: judge={value}",
        )


Table = TypeVar("Table", bound=BaseModel)
Config = TypeVar("Config", bound=EngineConfig)


def check_table(values: Any, kind: type[Table], name: str) -> Table:
    """Values as a model of this kind. Raises SettingsError with every fault in a sentence."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'the whole'}: "
            f"{fault['msg'].removeprefix('Value error, ')}{_suggest(fault, kind)}"
            for fault in error.errors()
        )
        tables = {".".join(map(str, f["loc"][:-1])): _table_of(f, kind) for f in error.errors()}
        known = {at if table else "": table or kind for at, table in tables.items()}
        told = (
            f"{f'[{at}]' if at else 'It'} may set {', '.join(table.model_fields)}."
            for at, table in known.items()
        )
        raise SettingsError(f"{name} is wrong: {faults}.", " ".join(told)) from error


@cache
def retired() -> dict[str, str]:
    """Keys that are gone: what to do instead."""
    return tomllib.loads(Path(__file__).with_name("retired.toml").read_text(encoding="utf-8"))


BESIDE = ("credit", "rules", "rounds")
"""keys of a file that are read before its configuration is"""


def _suggest(fault: Any, kind: type[BaseModel]) -> str:
    """What an unknown key was, or which known one it resembles, in a clause; else ""."""
    if fault["type"] != "extra_forbidden":
        return ""
    name = str(fault["loc"][-1])
    if name in retired():
        return f" (it is gone: {retired()[name]})"
    if (table := _table_of(fault, kind)) is None:
        return ""
    known = (*table.model_fields, *(BESIDE if issubclass(table, EngineConfig) else ()))
    near = get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _table_of(fault: Any, kind: type[BaseModel]) -> type[BaseModel] | None:
    """The model of the table that a fault stands in, within one of this kind; None: in none."""
    for table in map(str, fault["loc"][:-1]):
        found = kind.model_fields[table].annotation if table in kind.model_fields else None
        if not (isinstance(found, type) and issubclass(found, BaseModel)):
            return None
        kind = found
    return kind


def check_config(values: dict[str, Any], folder: Path, kind: type[Config]) -> Config:
    """A configuration of any kind; its paths are relative to a folder.

    Raises SettingsError with every fault in a sentence.
    """
    config = check_table(values, kind, "the training configuration")
    paths = {name: getattr(config, name) for name in ("out", "start_adapter")}
    found: dict[str, Any] = {n: p and folder / p.expanduser() for n, p in paths.items()}
    if isinstance(config, TrainConfig):
        found["rows"] = tuple(folder / rows.expanduser() for rows in config.rows)
    model = folder / Path(config.model).expanduser()
    if config.model.lower().endswith(".gguf") or (model / "config.json").is_file():
        found["model"] = str(model.absolute())  # checkpoints keep it, and are used from elsewhere
    return config.model_copy(update=found)


def check_sampled(engine: EngineConfig, sampled: SampledConfig, table: str) -> None:
    """Raises SettingsError for weights in training that nothing samples from between updates."""
    server = f"a server under [{table}]: base_url, model and refresh"
    if not sampled.base_url and (Path(engine.model) / "config.json").is_file():
        raise SettingsError(
            f"nothing here samples from {engine.model}, a folder of safetensors.", f"Name {server}."
        )
    if engine.adaptation == "full" and (not sampled.base_url or isinstance(sampled.refresh, str)):
        raise SettingsError(
            "what samples here, as vllm-lora, takes an adapter, and all weights are trained.",
            f'Set the adaptation "lora", or name {server}, a command.',
        )


def rate_at(step: int, steps: int, config: EngineConfig) -> float:
    """The learning rate of a step, counted from 0; it ends above 0 by one step's fall."""
    warm = math.ceil(config.warmup * steps)
    if step < warm:
        return config.learning_rate * (step + 1) / warm
    passed = (step - warm) / max(steps - warm, 1)
    left = {
        "constant": 1.0,
        "linear": 1 - passed,
        "cosine": 0.5 * (1 + math.cos(math.pi * passed)),
    }[config.schedule]
    return config.learning_rate * left
