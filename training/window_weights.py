"""What each token counts in a window's loss, known before the window is cut into batches.

A window is all the rows of one optimizer step, over all micro-batches and ranks. With o an
objective, w_o its weight, W a row's own, and `size` what the aggregation divides by,

    token-mean     size = N_o             trained tokens of o
    stage-mean     size = S_o * N_o,s     stages of o that have a trained token, tokens of this one
    sequence-mean  size = M_o * n         rows of o with a trained token, trained tokens of this one
    token-sum      size = M_o * budget

    weight of a token = w_o * W / size            for the clipped term, and for imitation
    share of a token  = 1 / size over all objectives together    for the divergence

so that the loss is a plain sum over tokens, and how a window is cut changes nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from memory.errors import SettingsError
from training.objective_config import ObjectiveConfig
from training.rows import Objective, TrainRow


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a window, or one objective of it, has."""

    rows: int
    """with a trained token"""
    stages: Mapping[int, int]
    """trained tokens of each stage, 0 to 3, and of none, -1"""

    @property
    def tokens(self) -> int:
        """Trained tokens."""
        return sum(self.stages.values())


@dataclass(frozen=True, slots=True)
class WindowWeights:
    """The sizes of a window, and the weights of its tokens by them."""

    config: ObjectiveConfig
    objectives: Mapping[Objective, Sizes]
    whole: Sizes

    def weights(self, row: TrainRow) -> Tensor:
        """(len(ids),) float32, 0 where not trained; those of a window's objective sum to w_o."""
        of_row = self.config.weight_of(row.objective) * row.weight
        return of_row * self._mean(row, self.objectives[row.objective])

    def shares(self, row: TrainRow) -> Tensor:
        """(len(ids),) float32, 0 where not trained; those of a window sum to 1 but by token-sum."""
        return self._mean(row, self.whole)

    def _mean(self, row: TrainRow, sizes: Sizes) -> Tensor:
        mask = torch.tensor(row.loss_mask, dtype=torch.float32)
        match self.config.aggregation:
            case "token-mean":
                size: float | Tensor = sizes.tokens
            case "stage-mean":
                of_stage = [sizes.stages.get(stage, 0) for stage in row.stages]
                size = len(sizes.stages) * torch.tensor(of_stage).clamp(min=1)
            case "sequence-mean":
                size = sizes.rows * sum(row.loss_mask)
            case "token-sum":
                size = sizes.rows * float(self.config.token_budget or 1)
        return mask / size if any(row.loss_mask) else mask


def window_weights(
    rows: Sequence[TrainRow], config: ObjectiveConfig | None = None
) -> WindowWeights:
    """The weights of a window's tokens; `rows` are all of the window, on all ranks.

    Raises SettingsError where the configuration does not suit a row: with `bypass`, one whose ratio
    is to be formed to the policy before the update; without it, one whose ratio is to be formed to
    what the sampler computed under another prompt.
    """
    settings = config or ObjectiveConfig()
    _refuse_unsuited(rows, bypass=settings.correction == "bypass")
    kinds = {row.objective for row in rows}
    parts = {kind: _sizes([row for row in rows if row.objective == kind]) for kind in kinds}
    return WindowWeights(settings, parts, _sizes(rows))


def _sizes(rows: Sequence[TrainRow]) -> Sizes:
    stages: Counter[int] = Counter()
    for row in rows:
        pairs = zip(row.stages, row.loss_mask, strict=True)
        stages.update(stage for stage, trained in pairs if trained)
    return Sizes(sum(any(row.loss_mask) for row in rows), stages)


def _refuse_unsuited(rows: Sequence[TrainRow], *, bypass: bool) -> None:
    wrong = "recompute_logprobs" if bypass else "across_prompts"
    row = next((row for row in rows if getattr(row, wrong)), None)
    if row is not None and bypass:
        raise SettingsError(
            f"bypass forms the ratio to what the sampler computed, and row {row.id} was sampled "
            "under another prompt.",
            "Set correction to decoupled, or make the rows with the scaffold_ratio behaviour.",
        )
    if row is not None:
        raise SettingsError(
            f"row {row.id} forms its ratio to what the sampler computed under another prompt.",
            "Set correction to bypass and importance to none, or make the rows with another "
            "scaffold_ratio.",
        )
