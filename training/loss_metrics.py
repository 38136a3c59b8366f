"""What a loss was made of, in numbers that add up over micro-batches and ranks.

A mean is kept as its total and the tokens it is over, so that the numbers of a window do not
depend on how it was cut.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

BOUNDS = (2, 10, 100)
"""ratios of sequences beyond each are counted (RuscaRL, arXiv:2508.16949, section 5)"""
LARGEST = 700.0
"""nats whose exponential is a float still"""


@dataclass(frozen=True, slots=True)
class LossMetrics:
    """Numbers of some rows' trained tokens; `+` gives those of all of them."""

    totals: Mapping[str, float] = field(default_factory=dict)
    tokens: Mapping[str, float] = field(default_factory=dict)
    """of a mean, how many tokens its total is over; a total whose name is missing is a sum"""
    peaks: Mapping[str, float] = field(default_factory=dict)
    """the largest value of any token"""
    rows: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """of each row the log of a ratio of its whole sequence"""

    def __add__(self, other: "LossMetrics") -> "LossMetrics":
        peaks = dict(self.peaks)
        for name, peak in other.peaks.items():
            peaks[name] = max(peak, peaks.get(name, peak))
        return LossMetrics(
            _added(self.totals, other.totals),
            _added(self.tokens, other.tokens),
            peaks,
            {
                n: (*self.rows.get(n, ()), *other.rows.get(n, ()))
                for n in {**self.rows, **other.rows}
            },
        )

    def report(self) -> dict[str, float]:
        """Sums, means and, ending in `_max`, peaks; what no token was measured for is left out.

        Of ratios of sequences the median and, ending in `_above_N`, how many are larger than N.

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
            | ratio_numbers(self.rows)
        )


class Ledger:
    """Collects a batch's numbers on its device, and moves them from there all at once."""

    def __init__(self) -> None:
        self._totals: dict[str, Tensor] = {}
        self._tokens: dict[str, Tensor] = {}
        self._peaks: dict[str, Tensor] = {}
        self._means: set[str] = set()
        self._rows: dict[str, Tensor] = {}

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

    def rows(self, name: str, values: Tensor) -> None:
        """Of each row a number, (rows,)."""
        self._rows[name] = values

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
            rows={name: tuple(values.tolist()) for name, values in self._rows.items()},
        )


def ratio_numbers(rows: Mapping[str, tuple[float, ...]]) -> dict[str, float]:
    """Of the logs of the rows' ratios, by name: the ratios' median, and counts above each bound.

    A median beyond what a float holds is told as the largest one.
    """
    found: dict[str, float] = {}
    for name, logs in rows.items():
        if logs:
            found[f"{name}_median"] = math.exp(min(statistics.median(logs), LARGEST))
            for bound in BOUNDS:
                above = sum(one > math.log(bound) for one in logs)
                found[f"{name}_above_{bound}"] = float(above)
    return found


def _added(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in {**one, **other}}


def _kept(values: Tensor, where: Tensor) -> Tensor:
    return values.detach().masked_fill(~where, 0.0)
