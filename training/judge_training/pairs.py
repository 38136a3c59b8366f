"""Labelled pairs as shown to a judge, and what its two trainings have in common.

A training configuration has the engine's settings, and the table [distil] or [grpo] of one of the
two stages, as in docs/judge_training.md. Paths are relative to the file that names them. A pair is
shown in an order drawn from the seed, with the right one known. Calls are journaled in one file and
pass one gate, as in collecting: finished calls are never repeated, an unavailable server is waited
for, and the limit on cost is kept.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field

from rubricem.agent.transcript.events import Tell
from rubricem.judge.evaluation.data import LabelledPair, read_labelled
from rubricem.judge.evaluation.run import is_swapped
from rubricem.judge.pairwise import Side, chain_messages
from rubricem.memory.errors import SettingsError
from rubricem.memory.runs import Journal
from rubricem.memory.schema import Message
from rubricem.training.collect.gate import Meter, Purse, RunGate
from rubricem.training.tables import TableConfig, check_table

LIMIT = "max_run_cost under [distil]"
MessagesOf = Callable[[int], Sequence[Message]]
"""From the available characters to the messages."""


class PairsConfig(TableConfig):
    """Which labelled pairs are used."""

    pairs: tuple[Path, ...] = Field(min_length=1)
    """files in the formats that `rubricem judge eval` reads"""


Table = TypeVar("Table", bound=PairsConfig)


def take_table(values: dict[str, Any], name: str, kind: type[Table], folder: Path) -> Table:
    """The table of that name, which is removed from the values."""
    if (table := values.pop(name, None)) is None:
        raise SettingsError(
            f"there is no table [{name}].", f"It sets {', '.join(kind.model_fields)}."
        )
    told = check_table(table, kind, f"[{name}]")
    paths = {n: getattr(told, n, None) for n in ("pairs", "held_out")}
    found = {n: [folder / path.expanduser() for path in given or ()] for n, given in paths.items()}
    return told.model_copy(update={n: tuple(listed) for n, listed in found.items() if listed})


@dataclass(frozen=True, slots=True)
class ShownPair:
    """Two replies in the order of showing; A is the first."""

    id: str
    question: str
    first: str
    second: str
    better: Side

    @property
    def messages(self) -> MessagesOf:
        return partial(chain_messages, self.question, self.first, self.second)


def read_pairs(paths: Sequence[Path]) -> list[LabelledPair]:
    """The labelled pairs of all files.

    Raises SettingsError for a file that is empty or has no labelled pairs, StoreError for a broken
    row.
    """
    found: list[LabelledPair] = []
    for number, path in enumerate(paths):
        pairs = read_labelled(path)
        named = len(paths) > 1
        found += [p.model_copy(update={"id": f"{number}:{p.id}"}) if named else p for p in pairs]
    return found


def show_once(pairs: Iterable[LabelledPair], seed: int) -> list[ShownPair]:
    """Each pair in an order drawn from the seed."""
    shown = []
    for pair in pairs:
        swapped = is_swapped(pair, seed)
        first, second = (pair.second, pair.first) if swapped else (pair.first, pair.second)
        better: Side = "A" if (pair.better == "first") != swapped else "B"
        shown.append(ShownPair(pair.id, pair.prompt, first, second, better))
    return shown


@contextmanager
def open_gate(folder: Path, tell: Tell, most_cost: float | None = None) -> Iterator[RunGate]:
    """The gate of calls journaled in a folder's journal.jsonl; raises StoreError."""
    meter = Meter()
    journal = Journal(folder / "journal.jsonl", meter.hear)
    try:
        purse = Purse(most_cost, LIMIT)
        yield RunGate(journal, meter, purse, tell=tell, name="The training of the judge")
    finally:
        journal.close()
