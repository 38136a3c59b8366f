"""The settings of a training run, from a TOML file as in docs/training.md.

Paths are relative to the file that names them. The plan of steps depends on nothing but the
settings. A window is what one optimizer step sees: for imitation some rows in a shuffled order, for
the policy gradient whole groups, because advantages were normalised within them.
"""

import math
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import Field, model_validator

from rubricem.memory.errors import SettingsError
from rubricem.training.objective.objective_config import ObjectiveConfig
from rubricem.training.show.console import Tracker
from rubricem.training.tables import TableConfig, check_table

Method = Literal["sft", "ss-grpo"]
Adaptation = Literal["lora", "full"]


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

    beside_it = ("credit", "rules", "rounds")

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


Config = TypeVar("Config", bound=EngineConfig)


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
