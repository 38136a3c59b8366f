"""What the tests of the bank share: an embedder of words, reflections, a bank, a Chroma server."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rubricem.memory.bank import RubricBank
from rubricem.memory.bank.index import Match
from rubricem.memory.bank.store import BankItem
from rubricem.memory.schema import Reflection

WORDS = ("cache", "heap", "path", "rome")


class WordEmbedder:
    """A unit vector with one part for each known word that the text holds."""

    def __init__(self, name: str = "words") -> None:
        self.name = name
        self.embedded: list[str] = []

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        self.embedded += texts
        rows = [[float(text.count(word)) for word in WORDS] + [1e-3] for text in texts]
        matrix = np.array(rows, dtype=np.float32)
        return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def reflection(
    question: str, identifier: str, takeaways: str = "- read the source", **fields: Any
) -> Reflection:
    known: dict[str, Any] = {
        "rubrics": "Pitfalls: guessing",
        "score": 0.75,
        "trajectory_id": "t",
        "written_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return Reflection(id=identifier, question=question, takeaways=takeaways, **(known | fields))


def ids(items: Iterable[BankItem | Match]) -> list[str]:
    return [item.reflection.id for item in items]


def bank_in(folder: Path, embedder: WordEmbedder | None = None) -> RubricBank:
    held = embedder or WordEmbedder()

    async def open_embedder() -> WordEmbedder:
        return held

    return RubricBank(folder, open_embedder)


async def put(bank: RubricBank, *learnt: tuple[str, str]) -> None:
    """A reflection for each question and id, in their order."""
    for question, identifier in learnt:
        await bank.put(reflection(question, identifier))
