"""What groups of rollouts are collected, and how they are judged; reading it loads no model."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from rubricem.judge.build import NONE
from rubricem.judge.composed import RUBRIC
from rubricem.training.tables import TableConfig


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
                "judge_model": self.judge_model and path_or_name(self.judge_model, folder),
            }
        )


def path_or_name(name: str, beside: Path) -> str:
    """The path of a folder, of documents or of a checkpoint, or of a GGUF file; else the name."""
    path = beside / Path(name).expanduser()
    return str(path) if path.is_dir() or name.lower().endswith(".gguf") else name


class CollectConfig(GroupsConfig):
    """What is collected, and how."""

    out: Path
    """the run's folder; the same command resumes it"""
    column: str = "question"
    """what holds the question"""
    limit: int | None = Field(default=None, ge=1)
    """questions at most; None: all"""
    held_out: float = Field(default=0.0, ge=0, lt=1)
    """share of the questions that is never collected, by the hash of their text"""
    step_size: int = Field(default=4, ge=1, le=4096)
    """questions in a step; rubrics and bank change between steps"""
    teacher: bool = False
    """the model writes traces for imitation, in place of the policy"""
    settings: dict[str, Any] = Field(default_factory=dict)
    """settings of every answer, such as `tool_calls`, in place of the user's own; `decoding` is
    `free`, as reinforcement learning needs it, or `forced`, for traces of imitation"""
