"""What a training run is told, from a TOML file.

    out = "runs/first"            # the run's folder; the same command goes on with it
    rows = ["collected/rows.jsonl"]
    model = "0.5b"
    learning_rate = 2e-5

Paths are relative to the file that names them.
"""

import tomllib
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from memory.errors import SettingsError
from training.local.learner import StepConfig

Method = Literal["sft", "ss-grpo"]


class TrainConfig(BaseModel):
    """Everything that shapes a training run; what is not known is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    out: Path
    rows: tuple[Path, ...] = Field(min_length=1)
    """files of `rubricem export`, or folders with a rows.jsonl"""
    model: str = "0.5b"
    """the weights: a name of the catalogue, a GGUF file or a hub name"""
    start_adapter: Path | None = None
    """a checkpoint to go on from; it is the reference too"""
    bank: Path | None = None
    """a data directory whose rubric bank is copied into every checkpoint, and goes back to the
    newest one's copy when a killed run goes on: weights and memory are of the same step"""
    learning_rate: float = Field(default=1e-4, gt=0)
    schedule: Literal["constant", "cosine"] = "constant"
    warmup: float = Field(default=0.0, ge=0, le=1)
    """share of the steps in which the rate rises to its full size"""
    epochs: int = Field(default=1, ge=1)
    batch: int = Field(default=0, ge=0)
    """of one step: rows for sft, whole groups for ss-grpo; 0: all"""
    max_steps: int | None = Field(default=None, ge=1)
    max_row_tokens: int = Field(default=4096, ge=2)
    """longer rows are left out, and counted"""
    rank: int = Field(default=16, ge=1)
    alpha: float = Field(default=32.0, gt=0)
    clip: tuple[float, float] = (0.2, 0.2)
    truncation: float = Field(default=2.0, ge=1)
    beta: float = Field(default=0.0, ge=0)
    passes: int = Field(default=1, ge=1)
    reflection_weight: float = Field(default=1.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    seed: int = Field(default=0, ge=0)
    threads: int | None = Field(default=None, ge=1)
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """of the frozen weights; `auto`: bfloat16 where it is measured to be faster"""

    @model_validator(mode="after")
    def _clip_is_a_range(self) -> Self:
        if not (0 < self.clip[0] < 1 and self.clip[1] > 0):
            raise ValueError("clip is how far the ratio may fall (below 1) and rise, both above 0")
        return self

    def step_config(self) -> StepConfig:
        return StepConfig(
            clip=self.clip,
            truncation=self.truncation,
            beta=self.beta,
            passes=self.passes,
            max_grad_norm=self.max_grad_norm,
            weight_decay=self.weight_decay,
            reflection_weight=self.reflection_weight,
        )


def read_config(path: Path) -> TrainConfig:
    """The configuration in a TOML file. Raises SettingsError with every fault in a sentence."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.", "Name a TOML file.") from error
    return build_config(values, path.parent)


def build_config(values: dict[str, Any], folder: Path) -> TrainConfig:
    """The configuration of values whose paths are relative to a folder."""
    try:
        config = TrainConfig.model_validate(values)
    except ValidationError as error:
        faults = "; ".join(_told(fault) for fault in error.errors())
        known = ", ".join(TrainConfig.model_fields)
        raise SettingsError(
            f"the training configuration is wrong: {faults}.", f"It may set {known}."
        ) from error
    start, bank = config.start_adapter, config.bank
    found = {
        "out": folder / config.out.expanduser(),
        "rows": tuple(folder / rows.expanduser() for rows in config.rows),
        "start_adapter": start and folder / start.expanduser(),
        "bank": bank and folder / bank.expanduser(),
    }
    if config.model.lower().endswith(".gguf"):
        found["model"] = str(folder / Path(config.model).expanduser())
    return config.model_copy(update=found)


def _told(fault: Any) -> str:
    name = ".".join(str(part) for part in fault["loc"]) or "the whole"
    return f"{name}: {fault['msg'].removeprefix('Value error, ')}"
