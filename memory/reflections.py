"""What a judged run teaches, and how good that is as guidance for later runs.

Fields that earlier versions did not write have defaults, so that their lines stay readable.
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from memory.values import Value

Origin = Literal["run", "hand", "import"]
"""`run`: a policy reflected on its run; `hand`: a person edited it; `import`: another bank's"""


class ReflectionScore(Value):
    """How good a reflection is as guidance for later runs; each part in [0, 1]."""

    diagnostic_accuracy: float = Field(ge=0, le=1)
    specificity: float = Field(ge=0, le=1)
    scope_and_balance: float = Field(ge=0, le=1)
    justification: str = ""
    suspicion: str = ""
    """its words that a server's judge takes for an order to the reader; "": there are none"""

    @property
    def total(self) -> float:
        """Weights 0.4, 0.3, 0.3 (RubricEM, arXiv:2605.10899, appendix D)."""
        return 0.4 * self.diagnostic_accuracy + 0.3 * (self.specificity + self.scope_and_balance)


class Reflection(Value):
    """What a judged run teaches: rubrics for such a question, and portable takeaways."""

    id: str
    question: str
    rubrics: str
    takeaways: str
    score: float = Field(ge=0, le=1)
    trajectory_id: str
    policy: str = ""
    policy_version: str = ""
    judge: str = ""
    judge_version: str = ""
    """the rubrics' version, or what is known of the judge model's"""
    stage_scores: tuple[Annotated[float, Field(ge=0, le=1)] | None, ...] = ()
    """of the run it is about, in the order of the stages; None: unscored"""
    reflection_score: ReflectionScore | None = None
    """the parts of `score`, where a judge gave them"""
    origin: Origin = "run"
    replaces: str = ""
    """id of the version that a person edited"""
    flags: tuple[str, ...] = ()
    """sentences that say why it stands in quarantine: with any it is not recalled until a person
    releases it"""
    written_at: datetime


class Recollection(Value):
    """What a run was given of the bank, as it stood then; earlier versions kept the id alone."""

    id: str
    question: str = ""
    """that it was learnt from"""
    own: bool = False
    """it is the run's own question"""
    similarity: float | None = None
    """of the two questions, a cosine; None for its own, and where nobody kept it"""
    score: float | None = None
    """of the reflection"""
