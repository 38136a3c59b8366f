"""What training the judge is told: a training configuration with the table of one of its halves.

    out = "runs/judge"            # the engine's settings, as for `rubricem train sft`
    model = "0.5b"
    judge = "full"                # the form of reasoning: full, no-types or no-rubric

    [grpo]                        # or [distil]
    pairs = ["preferences.jsonl"]
    rounds = 8

Paths are relative to the file that names them. The defaults of `[grpo]` and of its objective are
those of RM-R1 (arXiv:2505.02387): 7 samples, clip 0.2, divergence 1e-3.
"""

from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rubricem.memory.errors import SettingsError
from rubricem.training.local.local_config import (
    EngineConfig,
    TrainConfig,
    checked_config,
    checked_table,
    read_toml,
)

RewardRule = Literal["answer", "answer+format"]
"""`answer`: +1 for the right verdict, -1 for the other one and for none; `answer+format`: 1 for
the right verdict plus 1 for a text of exactly the form asked for, else 0 (the ablation)"""
BETA = 1e-3
TRACE_TOKENS = 4096


class Named(BaseModel):
    """A table of the configuration; what is not known is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class TeacherConfig(Named):
    """A model that writes traces: an embedded one, or a server's."""

    model: str | None = None
    """None: the only one that the server lists"""
    base_url: str | None = None
    """its server; None: the model is embedded"""
    max_tokens: int = Field(default=TRACE_TOKENS, ge=16)
    """of one trace"""

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if self.model is None and self.base_url is None:
            raise ValueError("name a model, or a base_url, or both")
        return self


class PairsConfig(Named):
    """Which labelled pairs are learnt from."""

    pairs: tuple[Path, ...] = Field(min_length=1)
    """files in the formats that `rubricem judge eval` reads"""
    limit: int | None = Field(default=None, ge=1)
    """so many of them, drawn by the seed; None: all"""


class DistilConfig(PairsConfig):
    """Who writes the traces."""

    teacher: TeacherConfig
    """the table [distil.teacher]"""
    second_teacher: TeacherConfig | None = None
    """redoes what the first got wrong, shown the right verdict and the wrong trace; None: wrong
    ones are dropped"""
    max_run_cost: float | None = Field(default=None, gt=0)
    """US dollars that all calls to teachers may cost"""


class GrpoConfig(PairsConfig):
    """What is sampled between updates, and how it is rewarded."""

    held_out: tuple[Path, ...] = ()
    """pairs that are never trained on, judged in both orders before and after"""
    rounds: int = Field(ge=1)
    """updates, each of new samples"""
    pairs_per_round: int = Field(default=8, ge=1)
    """whose samples are one update"""
    samples: int = Field(default=7, ge=2)
    """of each pair, which are one group"""
    max_tokens: int = Field(default=2048, ge=16)
    """of one sample; one that this limit cuts off is unscored"""
    reward: RewardRule = "answer"
    """`answer`: +1 for the right verdict, else -1; `answer+format`: points for verdict and form"""
    base_url: str | None = None
    """a server that samples in place of the embedded model, in token ids"""
    model: str | None = None
    """the server's name of the weights that training begins with"""
    refresh: tuple[str, ...] = ()
    """a command that has the server sample from the checkpoint whose folder is put in the place
    of {checkpoint}; what it prints last is the model to ask for, or nothing: the same"""

    @model_validator(mode="after")
    def _server_follows(self) -> Self:
        if len({bool(self.base_url), bool(self.model), bool(self.refresh)}) > 1:
            raise ValueError(
                "a server needs base_url, model and refresh: without the last it would go on "
                "sampling the first judge"
            )
        return self


Table = TypeVar("Table", bound=PairsConfig)


def read_distil(path: Path) -> tuple[TrainConfig, DistilConfig]:
    """A file's settings of imitation; the rows are those that will be written.

    Raises SettingsError with every fault in a sentence.
    """
    values = {"judge": "full", **read_toml(path)}
    told = _with_teachers(_taken(values, "distil", DistilConfig, path.parent), path.parent)
    if "rows" in values:
        raise SettingsError(
            "[distil] makes rows of its own.",
            "Leave out `rows`; train on files of rows by `rubricem train sft`.",
        )
    values["rows"] = [str(Path(str(values.get("out", ""))) / "distilled" / "rows.jsonl")]
    config = checked_config(values, path.parent, TrainConfig)
    return config, told


def read_grpo(path: Path) -> tuple[EngineConfig, GrpoConfig]:
    """A file's settings of the rounds. Raises SettingsError with every fault in a sentence."""
    values = {"judge": "full", **read_toml(path)}
    told = _taken(values, "grpo", GrpoConfig, path.parent)
    if "save_every" in values:
        raise SettingsError(
            "[grpo] saves a checkpoint after every round.", "Leave out `save_every`."
        )
    objective = values.get("objective", {})
    if isinstance(objective, dict):
        values["objective"] = {"beta": BETA, **objective}
    return checked_config(values, path.parent, EngineConfig), told


def _with_teachers(told: DistilConfig, folder: Path) -> DistilConfig:
    """The same with the paths of the teachers' weights, where they are paths."""
    named = {n: getattr(told, n) for n in ("teacher", "second_teacher")}
    found = {
        name: teacher.model_copy(update={"model": _weights(folder, teacher.model)})
        for name, teacher in named.items()
        if teacher is not None
    }
    return told.model_copy(update=found)


def _weights(folder: Path, model: str | None) -> str | None:
    """A GGUF file or a checkpoint lies beside the file; any other name is a model's own."""
    if model is None:
        return None
    path = folder / Path(model).expanduser()
    return str(path) if model.lower().endswith(".gguf") or path.is_dir() else model


def _taken(values: dict[str, Any], name: str, kind: type[Table], folder: Path) -> Table:
    """The table of that name, which is taken out of the values."""
    if (table := values.pop(name, None)) is None:
        raise SettingsError(
            f"there is no table [{name}].", f"It sets {', '.join(kind.model_fields)}."
        )
    told = checked_table(table, kind, f"[{name}]")
    paths = {n: getattr(told, n, None) for n in ("pairs", "held_out")}
    found = {n: [folder / path.expanduser() for path in given or ()] for n, given in paths.items()}
    return told.model_copy(update={n: tuple(listed) for n, listed in found.items() if listed})
