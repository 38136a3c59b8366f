"""Labelled pairs as a judge is shown them: in an order drawn from the seed, the right one known."""

import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from judge.evaluation.comparing import Task, sample, tasks_of
from judge.evaluation.labelled import Pair
from judge.evaluation.reading import read_labelled
from judge.pairwise_parsing import Side
from memory.errors import SettingsError
from training.questions_selecting import normal


@dataclass(frozen=True, slots=True)
class ShownPair:
    """Two replies in the order of showing; A is the first."""

    id: str
    question: str
    first: str
    second: str
    better: Side


def read_pairs(paths: Sequence[Path], limit: int | None = None, seed: int = 0) -> list[Pair]:
    """The labelled pairs of all files, or so many of them.

    Raises SettingsError for a file that is empty or holds no labelled pairs, StoreError for a row
    that is broken.
    """
    found: list[Pair] = []
    for number, path in enumerate(paths):
        pairs = read_labelled(path).pairs
        if not pairs:
            raise SettingsError(
                f"{path} holds single answers, and this judge learns to compare two.",
                "Name files of pairs whose better answer is known.",
            )
        named = len(paths) > 1
        found += [p.model_copy(update={"id": f"{number}:{p.id}"}) if named else p for p in pairs]
    return sample(found, limit, seed)


def shown_once(pairs: Iterable[Pair], seed: int) -> list[ShownPair]:
    """Each pair in the order that the seed draws for it."""
    return [_shown(task) for task in tasks_of(pairs, "one", seed)]


def apart_from(pairs: Sequence[Pair], held_out: Sequence[Pair]) -> list[Pair]:
    """The pairs whose request, however it is spaced and written, is not among those held out.

    Answers to it may be shared.
    """
    asked = {normal(pair.prompt) for pair in held_out}
    return [pair for pair in pairs if normal(pair.prompt) not in asked]


def batch_of(pairs: Sequence[Pair], size: int, number: int, seed: int) -> list[Pair]:
    """The pairs of a round: all of them in a drawn order, then all of them in another."""
    size, chosen = min(size, len(pairs)), []
    for place in range(number * size, (number + 1) * size):
        epoch, at = divmod(place, len(pairs))
        chosen.append(_shuffled(pairs, f"{seed}/{epoch}")[at])
    return list({pair.id: pair for pair in chosen}.values())


def digest(pairs: Sequence[Pair]) -> str:
    """The SHA-256 of all that the pairs hold, in their order."""
    lines = "\n".join(pair.model_dump_json() for pair in pairs)
    return hashlib.sha256(lines.encode()).hexdigest()


def _shuffled(pairs: Sequence[Pair], seed: str) -> list[Pair]:
    order = list(pairs)
    random.Random(seed).shuffle(order)
    return order


def _shown(task: Task) -> ShownPair:
    pair, swapped = task
    first, second = (pair.second, pair.first) if swapped else (pair.first, pair.second)
    better: Side = "A" if (pair.better == "first") != swapped else "B"
    return ShownPair(pair.id, pair.prompt, first, second, better)
