"""The settings of the objective; its equation is in `objective`. Reading them needs no torch."""

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from rubricem.training.rows.row import TrainRow
from rubricem.training.tables import TableConfig

Aggregation = Literal["token-mean", "sequence-mean"]
"""how a window's tokens become one number, for each objective by itself:

- `token-mean`: each trained token counts alike, so that the longest stage counts most (DAPO);
- `sequence-mean`: the mean over rows, of the token-mean of each (GRPO, arXiv:2402.03300)
"""
Importance = Literal["truncate", "bypass"]
LARGEST_IMPORTANCE = 2.0
"""at which `truncate` holds a token's weight"""
READ_BY_IMITATION = {"aggregation"}
"""what of it imitation looks at"""


class ObjectiveConfig(TableConfig):
    """The clipped objective of a window. Raises ValidationError for settings that contradict."""

    aggregation: Aggregation = "token-mean"
    """how a window's tokens become one number, separately for each objective"""
    clip: tuple[float, float] = (0.2, 0.2)
    """how far below 1 and above 1 the ratio may go"""
    beta: float = Field(default=0.0, ge=0)
    """weight of k3, the divergence from the reference"""
    importance: Importance = "truncate"
    """the ratio is taken to the policy before the update, and a token's weight, old / behaviour, is
    held at 2 (`truncate`); `bypass`: the ratio is taken to the sampler"""

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if not (0 < self.clip[0] < 1 and self.clip[1] > 0):
            raise ValueError("clip is how far the ratio may fall (below 1) and rise, both above 0")
        return self

    def with_gradient(self, rows: Sequence[TrainRow]) -> list[TrainRow]:
        """The rows of a window that have a gradient; the others are counted alone."""
        return [row for row in rows if self.beta or row.moves]
