"""The settings of the objective; its equation is in `objective`. Reading them needs no torch."""

from collections.abc import Sequence
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rubricem.training.rows.row import TrainRow

LARGEST_IMPORTANCE = 2.0
"""at which a token's weight, old / behaviour, is held"""


class TableConfig(BaseModel):
    """A part of a training's configuration; what is not known is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ObjectiveConfig(TableConfig):
    """The clipped objective of a window. Raises ValidationError for settings that contradict."""

    clip: tuple[float, float] = (0.2, 0.2)
    """how far below 1 and above 1 the ratio may go"""
    beta: float = Field(default=0.0, ge=0)
    """weight of k3, the divergence from the reference"""

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if not (0 < self.clip[0] < 1 and self.clip[1] > 0):
            raise ValueError("clip is how far the ratio may fall (below 1) and rise, both above 0")
        return self

    def with_gradient(self, rows: Sequence[TrainRow]) -> list[TrainRow]:
        """The rows of a window that have a gradient; the others are counted alone."""
        return [row for row in rows if self.beta or row.moves]
