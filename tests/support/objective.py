"""Short training rows for the objective, and a policy of a few numbers that reads them.

Small problems in which everything is known: all trajectories, their probability, every score.

The policies are tables; each trajectory is one training row of `Batch`, weighed by how likely the
policy is to write it, so that the objective's gradient is the expected one and no sampling error
is left.
"""

from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rubricem.training.objective.batch import Batch
from rubricem.training.objective.objective import clipped_objective
from rubricem.training.rows.credit import Dependence, Floats
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


@dataclass(frozen=True)
class Aliased:
    """A decision whose stage z is not written in the context c (RubricEM, theorems 1 and 2)."""

    contexts: Floats
    """(C,) their probabilities"""
    stages: Floats
    """(C, Z) p(z | c)"""
    values: Floats
    """(C, Z, A) q(c, z, a), what an action is worth"""

    def gap(self) -> float:
        """E over c of: sum_z p(z|c) max_a q(c,z,a) - max_a sum_z p(z|c) q(c,z,a)."""
        seen = (self.stages[..., None] * self.values).sum(1).max(-1)
        told = (self.stages * self.values.max(-1)).sum(-1)
        return float(self.contexts @ (told - seen))

    def best(self, sees_stage: bool) -> float:
        """The value of the best of all deterministic policies, each tried."""
        contexts, stages, actions = self.values.shape
        places = contexts * stages if sees_stage else contexts
        policies = product(range(actions), repeat=places)
        return max(self._value(np.array(chosen), sees_stage) for chosen in policies)

    def learnt(self, sees_stage: bool, steps: int = 150, size: float = 6.0) -> float:
        """The value that a softmax policy reaches by the objective, from the uniform one."""
        probabilities = torch.tensor(self.contexts[:, None] * self.stages, dtype=torch.float32)
        values = torch.tensor(self.values, dtype=torch.float32)
        shape = values.shape if sees_stage else (len(values), 1, values.shape[-1])
        table = torch.zeros(shape, requires_grad=True)
        for _ in range(steps):
            logprobs = table.log_softmax(-1).expand_as(values).reshape(1, -1)
            chances = (probabilities[..., None] * logprobs.exp().reshape_as(values)).reshape(1, -1)
            loss = exact_loss(values.reshape(1, -1), logprobs, chances.detach())
            (gradient,) = torch.autograd.grad(loss, table)
            table.data -= size * gradient * len(values)
        policy = table.detach().softmax(-1).expand_as(values)
        return float((probabilities[..., None] * policy * values).sum())

    def _value(self, chosen: Floats, sees_stage: bool) -> float:
        contexts, stages, _ = self.values.shape
        actions = chosen.reshape(contexts, stages if sees_stage else 1)
        table = np.broadcast_to(actions, (contexts, stages))
        worth = np.take_along_axis(self.values, table[..., None], -1)[..., 0]
        return float(self.contexts @ (self.stages * worth).sum(-1))


@dataclass(frozen=True)
class Staged:
    """K stages of two actions, each chosen knowing the one before (theorems 3 and 4).

    Scores are tables over all 2 ** K trajectories: `truth` what a stage was worth and `judged`
    what a judge said, both (2 ** K, K).
    """

    table: Floats
    """(K, 2, 2): the logits of a stage's action, by the action before it (0 before the first)"""
    truth: Floats
    judged: Floats

    @property
    def paths(self) -> list[tuple[int, ...]]:
        """All trajectories, as the action of each stage."""
        return list(product(range(2), repeat=len(self.table)))

    def gradient(self, scores: Floats, dependence: Dependence) -> Tensor:
        """(K, 4): of each stage's logits, by our returns and our objective, in expectation."""
        returns = torch.tensor(dependence.returns(scores), dtype=torch.float32)
        table = torch.tensor(self.table, dtype=torch.float32, requires_grad=True)
        logprobs = self._logprobs(table)
        chances = logprobs.detach().sum(1, keepdim=True).exp().expand_as(logprobs)
        (found,) = torch.autograd.grad(exact_loss(returns, logprobs, chances), table)
        return -found.flatten(1)

    def slope(self, signal: Floats) -> Tensor:
        """(K, 4): how the expectation of a number per trajectory, (2 ** K,), rises with the logits.

        By differentiating the probabilities themselves: no score function, no objective.
        """
        table = torch.tensor(self.table, dtype=torch.float64, requires_grad=True)
        chances = self._logprobs(table).sum(1).exp()
        (found,) = torch.autograd.grad((chances * torch.tensor(signal)).sum(), table)
        return found.flatten(1)

    def chances(self) -> Floats:
        """(2 ** K,) of the trajectories."""
        table = torch.tensor(self.table, dtype=torch.float64)
        return self._logprobs(table).sum(1).exp().numpy()  # type: ignore[no-any-return]

    def score_norms(self) -> Floats:
        """(K,): E of the squared norm of a stage's grad log-probability, B_k."""
        table = torch.tensor(self.table, dtype=torch.float64, requires_grad=True)
        logprobs, chances = self._logprobs(table), self.chances()
        norms = np.zeros(len(self.table))
        for stage, path in product(range(len(self.table)), range(len(self.paths))):
            (found,) = torch.autograd.grad(logprobs[path, stage], table, retain_graph=True)
            norms[stage] += chances[path] * float(found[stage].square().sum())
        return norms

    def _logprobs(self, table: Tensor) -> Tensor:
        """(2 ** K, K) of each trajectory's actions."""
        logs, paths = table.log_softmax(-1), torch.tensor(self.paths)
        before = torch.cat([torch.zeros(len(paths), 1, dtype=torch.int64), paths[:, :-1]], 1)
        return logs[torch.arange(len(table)), before, paths]


def exact_loss(advantages: Tensor, logprobs: Tensor, chances: Tensor) -> Tensor:
    """The objective's loss of (n, T) tokens, each with the probability that it is written.

    At the policy that writes them its gradient is minus the expected policy gradient.
    """
    batch = _batch(*advantages.shape)
    first = torch.zeros(len(advantages), 1)
    wide = replace(
        batch,
        sampled=torch.zeros_like(batch.sampled),  # the policy itself writes them: no correction
        advantages=torch.cat([first, advantages], 1),
        weights=torch.cat([first, chances], 1),
    )
    return clipped_objective(wide, torch.cat([first, logprobs], 1)).loss


@cache
def _batch(rows: int, tokens: int) -> Batch:
    return Batch.collate([row((1.0,) * tokens, name=str(number)) for number in range(rows)])
