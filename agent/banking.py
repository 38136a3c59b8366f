"""The bank as the settings name it, and what of it is recalled before a question."""

from collections.abc import Callable
from pathlib import Path

from agent.events import Listener, SourceProgress, ignore
from agent.recalling import CHARACTERS, MORE_CHARACTERS, BankRecaller
from agent.settings import Settings
from agent.weights.catalogue import DEFAULT_EMBEDDER
from memory.bank import RubricBank
from memory.embedder import CountedEmbedder
from memory.interfaces import Embedder


def open_bank(
    settings: Settings,
    listener: Listener = ignore,
    on_embedded: Callable[[int], None] | None = None,
) -> RubricBank:
    """The data directory's bank; its embedding model is fetched when it is first needed.

    `on_embedded` is called with the number of texts that were embedded so far.
    """

    async def open_embedder() -> Embedder:
        embedder = await embedder_in(settings.weights_dir, listener, settings.embedder)
        return CountedEmbedder(embedder, on_embedded) if on_embedded else embedder

    return RubricBank(settings.data_dir, open_embedder, settings.bank_server)


async def embedder_in(
    weights_dir: Path, listener: Listener = ignore, name: str = DEFAULT_EMBEDDER
) -> Embedder:
    """The embedder of a name, fetched where it is not on disk and loaded when first used."""
    from agent.weights.embedders import open_embedder

    def tell(done: int, total: int, doing: str) -> None:
        share = f" {done / total:.0%} of {total / 1e6:,.0f} MB" if total else ""
        listener(SourceProgress(f"{doing}{share}"))

    return await open_embedder(name, directory=weights_dir, on_progress=tell)


def recaller_of(
    settings: Settings,
    context_tokens: int | None,
    listener: Listener = ignore,
    generation: int | None = None,
) -> BankRecaller | None:
    """What `--memory` says: None where it is off. A small context is shown less."""
    if settings.memory == "off":
        return None
    characters = MORE_CHARACTERS if context_tokens is None else CHARACTERS
    return BankRecaller(
        open_bank(settings, listener),
        floor=settings.similarity_floor,
        characters=characters,
        generation=generation,
        listener=listener,
    )
