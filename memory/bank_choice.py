"""Which of the near questions are worth recalling together.

Two items about the same question teach once, so the second is passed over; of the others each
next one is near the question and unlike what is chosen (maximal marginal relevance, Carbonell
and Goldstein, SIGIR 1998).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SAME = 0.95
"""similarity from which two questions are the same in nearly the same words"""
RELEVANCE = 0.7
"""weight of being near the question against being like what is chosen"""


@dataclass(frozen=True, slots=True, eq=False)
class Near:
    """A question by its number, its similarity to the one that is asked, its unit vector."""

    number: int
    similarity: float
    vector: NDArray[np.float32]


def diverse(near: Sequence[Near], k: int, taken: Sequence[NDArray[np.float32]] = ()) -> list[Near]:
    """At most k of them, the first the nearest; `taken`: vectors of what is chosen already."""
    chosen: list[Near] = []
    held = list(taken)
    while len(chosen) < k:
        likeness = {n.number: max((float(n.vector @ v) for v in held), default=0.0) for n in near}
        left = [n for n in near if n not in chosen and likeness[n.number] < SAME]
        if not left:
            break
        best = max(
            left,
            key=lambda n: RELEVANCE * n.similarity - (1 - RELEVANCE) * likeness[n.number],
        )
        chosen.append(best)
        held.append(best.vector)
    return chosen
