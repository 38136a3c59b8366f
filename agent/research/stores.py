"""Where runs, bank, indexes, pages and uploads are kept, and how the first two are opened."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rubricem.agent.models.opening import embedder_in
from rubricem.agent.research.recall import BankRecaller, RecalledKinds
from rubricem.agent.transcript.events import Tell, hush
from rubricem.memory.bank import RubricBank
from rubricem.memory.embedder import MEANING, CountedEmbedder
from rubricem.memory.errors import needed
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Embedder


@dataclass(frozen=True, slots=True)
class Stores:
    """The folders that everything is kept in, and how what lies in them is opened."""

    data_dir: Path
    """runs, threads, bank, rubrics, indexes, pages and uploads"""
    weights_dir: Path
    embedder: str
    """of the bank and of hybrid retrieval"""
    bank_server: str | None = None
    """a Chroma server that holds the bank's vectors; None: a folder of the data directory"""

    @property
    def runs(self) -> RunStore:
        return RunStore(self.data_dir)

    async def open_embedder(self, tell: Tell = hush) -> Embedder:
        needed("tokenizers", "memory", MEANING)  # before anything is fetched
        return await embedder_in(self.weights_dir, tell, self.embedder)

    def open_bank(
        self, tell: Tell = hush, on_embedded: Callable[[int], None] | None = None
    ) -> RubricBank:
        """The bank; its embedding model is fetched when it is first needed.

        `on_embedded` is called with the number of texts that were embedded so far.
        """

        async def open_embedder() -> Embedder:
            embedder = await self.open_embedder(tell)
            return CountedEmbedder(embedder, on_embedded) if on_embedded else embedder

        return RubricBank(self.data_dir, open_embedder, self.bank_server)

    def open_recaller(
        self,
        floor: float | None,
        context_tokens: int | None,
        tell: Tell = hush,
        *,
        kinds: RecalledKinds = "both",
        keeps: bool = False,
    ) -> BankRecaller:
        """What puts the bank's lessons before a question; see `BankRecaller`."""
        return BankRecaller(
            self.open_bank(tell),
            floor=floor,
            context_tokens=context_tokens,
            kinds=kinds,
            keeps=keeps,
            tell=tell,
        )
