"""What on-policy rounds are told: the table `[rounds]` of a training configuration.

    [rounds]
    questions = "questions.jsonl"
    rounds = 6
    questions_per_round = 8
    group_size = 4
    judge_base_url = "http://localhost:8001/v1"
    scaffold = "linear"           # RuscaRL: members are shown less and less of the rubric

Paths are relative to the file that names them. Everything outside the table is the engine's.
"""

from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from memory.errors import SettingsError
from training.judges import NONE
from training.questions_rows import HUB
from training.scaffold_flags import scaffold_rule
from training.scaffolding import ScaffoldRule

TABLE = "rounds"
CHANGEABLE = {
    "rounds", "held_out_every", "refresh", "base_url", "judge_base_url", "embed_answers",
    "max_run_cost",
}  # fmt: skip
"""what may differ when the rounds of a folder go on"""


class RoundsConfig(BaseModel):
    """What is collected between updates; what is not known is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    questions: str
    """as `rubricem collect` takes them: a file, a folder saved by datasets, or hf:org/name"""
    held_out: str | None = None
    """questions that are never trained on, asked before, between and after"""
    held_out_every: int = Field(default=1, ge=1)
    """rounds between two askings of them; before the first and after the last they always are"""
    rounds: int = Field(ge=1)
    """how many there are; more may be asked for when a folder goes on"""
    questions_per_round: int = Field(default=4, ge=1)
    """questions of one round"""
    group_size: int = Field(default=4, ge=2)
    """rollouts of each question"""
    windows: int = Field(default=0, ge=0)
    """rounds of new questions after which the same are asked again; the paper has 3, 0: never"""
    base_url: str | None = None
    """a server that samples in place of the embedded model; `refresh` gives it each checkpoint"""
    model: str | None = None
    """the server's name of the weights that training begins with"""
    refresh: tuple[str, ...] = ()
    """a command that has the server sample from the checkpoint whose folder is put in the place
    of {checkpoint}; what it prints last is the model to ask for, by a name that no other checkpoint
    has had"""
    judge: str = "stage"
    """as `--judge` of `rubricem collect` takes it"""
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
    reflections: int = Field(default=8, ge=0, le=64)
    """candidates on one trajectory of each group; they are rows of their own a round later"""
    least_reflection_score: float | None = Field(default=None, ge=0, le=1)
    """as in the settings"""
    scaffold: str | None = None
    """how much of its rubric a question's rollouts are shown: `linear`, `binary:MEMBERS`, `full`
    (`training.scaffolding`); None: nothing"""
    scaffold_decay: str = "sigmoid"
    """how that fades from the first round to the last: `sigmoid:STEEPNESS:MIDDLE`, `linear`,
    `power:N`, `constant`"""
    embed_answers: bool = False
    """load the embedding model to measure how far apart answers are in meaning; where the bank has
    it loaded, that is measured anyway"""
    max_run_cost: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """US dollars that all rounds may cost: rollouts, judge, reflections and held-out questions;
    prices are by the models' names, and a checkpoint's is that of `model`"""
    ahead: int = Field(default=1, ge=0, le=1)
    """rounds whose rollouts begin before the update of the one before; 0: strictly on-policy"""
    max_staleness: int = Field(default=2, ge=0)
    """updates between the policy that wrote a row and the one it trains; older rows are dropped"""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for wrong, told in _contradictions(self):
            if wrong:
                raise ValueError(told)
        return self

    def scaffold_of(self, number: int) -> ScaffoldRule | None:
        """The scaffold of a round, counted from 0; None without one."""
        progress = number / (self.rounds - 1) if self.rounds > 1 else 0.0
        return scaffold_rule(self.scaffold, self.scaffold_decay, min(progress, 1.0))

    @property
    def lag(self) -> int:
        """Updates by which the oldest rows of an undisturbed run lag."""
        return self.ahead + (1 if self.reflections else 0)


def build_rounds(values: Any, folder: Path) -> RoundsConfig:
    """The table's configuration. Raises SettingsError with every fault in a sentence."""
    try:
        config = RoundsConfig.model_validate(values)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'the whole'}: "
            f"{fault['msg'].removeprefix('Value error, ')}"
            for fault in error.errors()
        )
        known = ", ".join(RoundsConfig.model_fields)
        raise SettingsError(f"[{TABLE}] is wrong: {faults}.", f"It may set {known}.") from error
    config.scaffold_of(0)
    return config.model_copy(
        update={
            "questions": _beside(folder, config.questions),
            "held_out": config.held_out and _beside(folder, config.held_out),
            "judge_model": config.judge_model and _source(folder, config.judge_model),
            "source": tuple(_source(folder, name) for name in config.source),
        }
    )


def _contradictions(config: RoundsConfig) -> tuple[tuple[bool, str], ...]:
    return (
        (config.judge == NONE, "without a judge there is nothing to learn from"),
        (
            config.max_staleness < config.lag,
            f"max_staleness {config.max_staleness} would drop what lags by {config.lag} updates: "
            "reflections lag one more than rollouts, which lag by `ahead`",
        ),
        (
            config.scaffold is None and "scaffold_decay" in config.model_fields_set,
            "scaffold_decay needs a scaffold",
        ),
        (
            config.held_out is None and "held_out_every" in config.model_fields_set,
            "held_out_every needs held_out",
        ),
        (
            config.least_reflection_score is not None and not config.reflections,
            "least_reflection_score is about reflections, and there are none",
        ),
        (bool(config.windows) and not config.reflections, "windows replay what reflections taught"),
        (
            len({bool(config.base_url), bool(config.model), bool(config.refresh)}) > 1,
            "a server needs base_url, model and refresh: without the last it would go on sampling "
            "the first policy",
        ),
    )


def _beside(folder: Path, name: str) -> str:
    return name if name.startswith(HUB) else str(folder / Path(name).expanduser())


def _source(folder: Path, name: str) -> str:
    """A folder, of documents or of a checkpoint, is beside the file; other names are their own."""
    path = folder / Path(name).expanduser()
    return str(path) if path.is_dir() else name
