"""How a window is cut for the model, and which rank takes which part.

A rank that has fewer parts than another takes parts without a trained token instead: sharded
weights are fetched together at each block, so all ranks must go through the model equally often.
"""

from collections.abc import Sequence

from training.local.ranks import Ranks
from training.packing import bins
from training.rows import TrainRow

Part = list[TrainRow]
"""rows that go through the model at once"""


def cut(rows: Sequence[TrainRow], pack_tokens: int, micro_batch: int) -> list[Part]:
    """The parts of a window: bins of so many tokens, or so many rows of about one length."""
    if pack_tokens:
        return bins(rows, pack_tokens)
    if micro_batch == 1:
        return [[row] for row in rows]
    longest_first = sorted(rows, key=lambda row: -len(row.ids))
    starts = range(0, len(rows), micro_batch)
    return [longest_first[start : start + micro_batch] for start in starts]


def share(parts: Sequence[Part], ranks: Ranks) -> list[Part]:
    """This rank's parts; every rank has equally many, and about as many tokens."""
    if ranks.world == 1 or not parts:
        return list(parts)
    most = -(-len(parts) // ranks.world)
    taken: list[list[Part]] = [[] for _ in range(ranks.world)]
    for part in sorted(parts, key=lambda part: -_tokens(part)):
        free = [mine for mine in taken if len(mine) < most]
        min(free, key=lambda mine: sum(map(_tokens, mine))).append(part)
    mine = taken[ranks.rank]
    shortest = min((row for part in parts for row in part), key=lambda row: len(row.ids))
    return mine + [[silent(shortest)]] * (most - len(mine))


def silent(row: TrainRow) -> TrainRow:
    """The row with no token trained."""
    return row.model_copy(update={"loss_mask": (0,) * len(row.ids)})


def _tokens(part: Part) -> int:
    return sum(len(row.ids) for row in part)
