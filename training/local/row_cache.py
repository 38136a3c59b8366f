"""Texts of uneven lengths side by side: what each row of a batch has read is kept for what follows.

A row keeps the keys and values of its tokens. A text begins in the free row that has read most of
it, or has that copied from a row that has read more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from rubricem.memory.errors import SettingsError
from rubricem.training.local.load import vocabulary_size
from rubricem.training.objective.batch import alike

ROOM = 512
"""tokens that a row has room for at first; it doubles"""


@dataclass(slots=True)
class _Pass:
    """Where the pass that is under way writes and reads."""

    rows: slice
    begin: int = 0
    """of one row: the place of its first token"""
    places: Tensor | None = None
    """of several rows: the place of each one's only token; None: one row"""
    width: int = 0
    """tokens that the longest of them has then"""


class _Layer(DynamicLayer):  # type: ignore[no-untyped-call]
    """The keys and values of one block, (rows, heads, room, width)."""

    def __init__(self, under_way: _Pass, rows: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._pass, self._rows = under_way, rows

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **more: Any
    ) -> tuple[Tensor, Tensor]:
        told = self._pass
        if not self.is_initialized:
            self.dtype, self.device = key_states.dtype, key_states.device
            self.keys, self.values = (
                made.new_zeros(self._rows, made.shape[1], ROOM, made.shape[3])
                for made in (key_states, value_states)
            )
            self.is_initialized = True
        assert self.keys is not None and self.values is not None
        while self.keys.shape[2] < told.width:
            self.keys, self.values = (
                torch.cat([held, torch.zeros_like(held)], dim=2)
                for held in (self.keys, self.values)
            )
        keys, values = self.keys[told.rows], self.values[told.rows]
        if told.places is None:
            keys[:, :, told.begin : told.width] = key_states
            values[:, :, told.begin : told.width] = value_states
        else:
            rows = torch.arange(len(keys), device=keys.device)
            keys[rows, :, told.places] = key_states[:, :, 0]
            values[rows, :, told.places] = value_states[:, :, 0]
        return keys[:, :, : told.width], values[:, :, : told.width]

    def copy_row(self, source: int, target: int, count: int) -> None:
        """Have the first so many tokens of a row in another one."""
        if self.is_initialized:
            for held in (self.keys, self.values):
                assert held is not None
                held[target, :, :count] = held[source, :, :count]

    def swap_rows(self, one: int, other: int, count: int) -> None:
        """Exchange the first so many tokens of two rows."""
        if self.is_initialized:
            for held in (self.keys, self.values):
                assert held is not None
                held[[one, other], :, :count] = held[[other, one], :, :count]


class RowCache:
    """What each row of a model's batch has read; the rows in use are the first ones."""

    def __init__(self, model: Any, rows: int) -> None:
        self._model, self._pass = model, _Pass(slice(0, 0))
        blocks = model.config.get_text_config().num_hidden_layers
        self._layers = [_Layer(self._pass, rows) for _ in range(blocks)]
        self._cache = Cache(layers=list(self._layers))
        self.read: list[list[int]] = [[] for _ in range(rows)]
        """the tokens of each row whose keys and values are known"""

    def begin(self, used: int, ids: Sequence[int]) -> int:
        """Have row `used`, the first free one, begin as these ids do; returns how far it does."""
        free = range(used, len(self.read))
        shared = [_shared(held, ids) for held in self.read]
        # Of rows that know as little, the one with the least to lose.
        row = max(free, key=lambda n: (shared[n], -len(self.read[n])))
        self._swap(row, used)
        shared[row], shared[used] = shared[used], shared[row]
        donor = max(range(len(shared)), key=shared.__getitem__)
        if shared[donor] > shared[used]:
            for layer in self._layers:
                layer.copy_row(donor, used, shared[donor])
        self.read[used] = list(ids[: shared[donor]])
        return shared[donor]

    def end(self, row: int, used: int) -> None:
        """Free a row: the last one in use takes its place, and what it has read stays known."""
        self._swap(row, used - 1)

    def _swap(self, one: int, other: int) -> None:
        if one != other:
            count = max(len(self.read[one]), len(self.read[other]))
            for layer in self._layers:
                layer.swap_rows(one, other, count)
            self.read[one], self.read[other] = self.read[other], self.read[one]

    def extend(self, row: int, ids: Sequence[int]) -> Tensor:
        """Read more tokens of one row; returns the last state of each, (n, hidden)."""
        device, begin = self._model.device, len(self.read[row])
        width = begin + len(ids)
        self._tell(slice(row, row + 1), begin, None, width)
        places = torch.arange(begin, width, device=device)
        seen = torch.arange(width, device=device) <= places.unsqueeze(1)
        states = self._through(torch.tensor([ids], device=device), places.unsqueeze(0), seen[None])
        self.read[row] += ids
        return states[0]

    def step(self, ids: Sequence[int]) -> Tensor:
        """Read one token in each of the first rows; returns their last states, (n, hidden)."""
        device = self._model.device
        places = torch.tensor([len(self.read[row]) for row in range(len(ids))], device=device)
        width = int(places.max()) + 1
        self._tell(slice(0, len(ids)), 0, places, width)
        seen = torch.arange(width, device=device) <= places.unsqueeze(1)
        tokens = torch.tensor(ids, device=device).unsqueeze(1)
        states = self._through(tokens, places.unsqueeze(1), seen.unsqueeze(1))
        for row, token in enumerate(ids):
            self.read[row].append(token)
        return states[:, 0]

    def _tell(self, rows: slice, begin: int, places: Tensor | None, width: int) -> None:
        told = self._pass
        told.rows, told.begin, told.places, told.width = rows, begin, places, width

    def _through(self, ids: Tensor, places: Tensor, seen: Tensor) -> Tensor:
        """(rows, n) tokens and places, and what each token sees, (rows, n, width)."""
        found: Tensor = self._model.base_model(
            input_ids=ids,
            position_ids=places,
            attention_mask=seen.unsqueeze(1),
            past_key_values=self._cache,
            use_cache=True,
        ).last_hidden_state
        return found


def _shared(held: Sequence[int], ids: Sequence[int]) -> int:
    """How many tokens a row and a prefix have alike; the prefix's last one is always read."""
    return min(alike(held, ids, 0), len(ids) - 1)


@torch.inference_mode()
def check_rows_apart(model: Any) -> None:
    """Raises SettingsError for a model that cannot read rows of uneven lengths side by side."""
    words = vocabulary_size(model)
    texts = [[n % words for n in range(start, start + 6)] for start in (1, 9, 17)]
    alone = []
    for text in texts:
        ids = torch.tensor([text], device=model.device)
        alone.append(model.base_model(input_ids=ids, use_cache=False).last_hidden_state[0, -1])
    try:
        rows = RowCache(model, 3)
        for row, text in enumerate(texts):
            rows.begin(row, text)
            rows.extend(row, text[: row + 1])
        together: dict[int, Tensor] = {}
        for _ in range(5):
            going = [row for row in range(3) if len(rows.read[row]) < 6]
            # Rows in use are the first ones, and the shortest is row 0.
            states = rows.step([texts[row][len(rows.read[row])] for row in going])
            together |= dict(zip(going, states, strict=True))
        apart = max(
            float((together[row] - alone[row]).float().norm() / alone[row].float().norm())
            for row in range(3)
        )
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
        apart = 1.0
    if not apart <= torch.finfo(model.dtype).eps ** 0.5:
        raise SettingsError(
            f"a {model.config.model_type} model cannot write several texts side by side.",
            "Leave `sampler` out under [rounds]: llama.cpp or a server samples from it.",
        )
