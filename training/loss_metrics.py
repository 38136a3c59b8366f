"""What a loss was made of, in numbers that add up over micro-batches and ranks.

A mean is kept as its total and the tokens it is over, so that the numbers of a window do not
depend on how it was cut.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LossMetrics:
    """Numbers of some rows' trained tokens; `+` gives those of all of them."""

    totals: Mapping[str, float] = field(default_factory=dict)
    tokens: Mapping[str, float] = field(default_factory=dict)
    """of a mean, how many tokens its total is over; a total whose name is missing is a sum"""
    peaks: Mapping[str, float] = field(default_factory=dict)
    """the largest value of any token"""

    def __add__(self, other: "LossMetrics") -> "LossMetrics":
        peaks = dict(self.peaks)
        for name, peak in other.peaks.items():
            peaks[name] = max(peak, peaks.get(name, peak))
        return LossMetrics(
            _added(self.totals, other.totals), _added(self.tokens, other.tokens), peaks
        )

    def report(self) -> dict[str, float]:
        """Sums, means and, ending in `_max`, peaks; what no token was measured for is left out.

        `ess` is the effective sample size of the importance weights w over n tokens, as a share
        of them: (sum of w)^2 / (n * sum of w^2), 1 where all are alike (Kish, 1965).
        """
        means = {n: self.totals[n] / count for n, count in self.tokens.items() if count}
        square = means.pop("importance_square", None)
        if square is not None:
            means["ess"] = means["importance"] ** 2 / square if square else 0.0
        sums = {name: total for name, total in self.totals.items() if name not in self.tokens}
        return (
            {"tokens": 0.0}
            | sums
            | means
            | {f"{name}_max": peak for name, peak in self.peaks.items()}
        )


class Ledger:
    """Collects a batch's numbers on its device, and moves them from there all at once."""

    def __init__(self) -> None:
        self._totals: dict[str, Tensor] = {}
        self._tokens: dict[str, Tensor] = {}
        self._peaks: dict[str, Tensor] = {}
        self._means: set[str] = set()

    def sum(self, name: str, values: Tensor, where: Tensor) -> None:
        """The sum of the values of the tokens in `where`, (B, T) bool."""
        self._totals[name] = _kept(values, where).sum()
        self._tokens[name] = where.sum()

    def mean(self, name: str, values: Tensor, where: Tensor) -> None:
        """Their mean."""
        self.sum(name, values, where)
        self._means.add(name)

    def peak(self, name: str, values: Tensor, where: Tensor) -> None:
        """The largest of them, which are not negative; 0 of none."""
        self._peaks[name] = _kept(values, where).max()

    def closed(self) -> LossMetrics:
        """Everything so far, without what was over no token."""
        parts = (self._totals, self._tokens, self._peaks)
        flat = [tensor.double() for part in parts for tensor in part.values()]
        numbers = iter(torch.stack(flat).tolist())
        totals, tokens, peaks = ({name: next(numbers) for name in part} for part in parts)
        there = [name for name, count in tokens.items() if count]
        return LossMetrics(
            totals={name: totals[name] for name in there},
            tokens={name: tokens[name] for name in there if name in self._means},
            peaks=peaks,
        )


def _added(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in {**one, **other}}


def _kept(values: Tensor, where: Tensor) -> Tensor:
    return values.detach().masked_fill(~where, 0.0)
