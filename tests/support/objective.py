"""Short training rows for the objective, and a policy of a few numbers that reads them."""

from typing import Any

import torch
from torch import Tensor

from rubricem.training.objective.batch import Batch
from rubricem.training.rows.row import Objective, TrainRow

WORDS = 9


def row(
    advantages: tuple[float, ...] = (1.0,),
    *,
    name: str = "r",
    objective: Objective = "policy",
    behaviour: tuple[float, ...] | None = None,
    stages: tuple[int, ...] | None = None,
    mask: tuple[int, ...] | None = None,
    ids: tuple[int, ...] | None = None,
    **more: Any,
) -> TrainRow:
    """A first token that is prompt, then one for each advantage, trained where the mask says so."""
    count = len(advantages)
    seed = sum(map(ord, name))
    return TrainRow(
        id=name,
        group="g",
        trajectory=name,
        objective=objective,
        policy_version="v",
        ids=ids or tuple((seed + 5 * place) % WORDS for place in range(count + 1)),
        prompt_tokens=1,
        loss_mask=(0, *(mask or (1,) * count)),
        advantages=(0.0, *advantages),
        behaviour_logprobs=(0.0, *(behaviour or (0.0,) * count)),
        stages=(-1, *(stages or (-1,) * count)),
        **more,
    )


def logs(*probabilities: float) -> Tensor:
    """Log-probabilities of one row, (1, 1 + T); nothing is known of its first token."""
    return torch.tensor([[float("nan"), *torch.tensor(probabilities).log().tolist()]])


class Bigrams:
    """The log-probability of a token by the one before it, from a table of (WORDS, WORDS)."""

    def __init__(self, seed: int) -> None:
        table = torch.randn(WORDS, WORDS, generator=torch.Generator().manual_seed(seed))
        self.table = table.requires_grad_()

    def __call__(self, batch: Batch) -> Tensor:
        """(B, T); of each row's first token it says what is not to be read."""
        chosen = torch.log_softmax(self.table, dim=1)[batch.ids[:, :-1], batch.ids[:, 1:]]
        first = torch.full((len(batch.ids), 1), float("nan"))
        return torch.cat([first, chosen], dim=1)
