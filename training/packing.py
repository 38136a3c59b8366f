"""Several rows in one sequence: no padding, and as few forward passes as the memory allows.

Rows stand one after the other in a batch of shape (1, T), and their position ids begin anew with
each. That keeps them apart where a model's attention is by position: transformers reads the borders
from the position ids where it is given no attention mask. Other models mix the rows, and are
refused when they are loaded (`training.local.faults`). The last token of a row would predict the
first of the next one; that one is never trained, so nothing is learnt across a border.
"""

from collections.abc import Sequence

import torch

from training.rows import TrainRow
from training.tensors import Batch, row_tensors
from training.window_weights import WindowWeights


def pack(rows: Sequence[TrainRow], window: WindowWeights | None = None) -> Batch:
    """Lay rows one after the other; `window` is that of the whole step, None: these are all of it.

    Raises SettingsError as `collate` does.
    """
    lines = row_tensors(rows, window)
    lengths = [len(row.ids) for row in rows]
    return Batch(
        **{name: torch.cat(parts).unsqueeze(0) for name, parts in lines.items()},
        position=torch.cat([torch.arange(length) for length in lengths]).unsqueeze(0),
        lengths=torch.tensor(lengths),
    )


def bins(rows: Sequence[TrainRow], tokens: int) -> list[list[TrainRow]]:
    """Rows divided into bins of at most so many tokens, by first fit, longest rows first.

    First-fit decreasing needs at most 11/9 of the fewest possible bins, and one more (Dosa, 2007).
    A row that is longer by itself has a bin of its own. Rows of one length keep their order.
    """
    found: list[list[TrainRow]] = []
    room: list[int] = []
    for row in sorted(rows, key=lambda row: -len(row.ids)):
        length = len(row.ids)
        place = next((i for i, left in enumerate(room) if left >= length), len(room))
        if place == len(room):
            found.append([])
            room.append(tokens)
        found[place].append(row)
        room[place] -= length
    return found
