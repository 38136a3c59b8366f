"""From the name of an embedding model to one that embeds.

A name is the default's (fetched once, then read without a network), a short name, the folder of
a sentence-transformers model, or such a model of the hub: `org/repo`, or a bare name of the
organisation that makes the library. No model brings code of its own into the process.
"""

import asyncio
import hashlib
import json
import re
from pathlib import Path

from agent.weights.catalogue import (
    CATALOGUE,
    DEFAULT_EMBEDDER,
    MODULES,
    SHORT_NAMES,
    OnProgress,
    Weights,
    known,
    unseen,
)
from agent.weights.hub import HubError, look_up
from agent.weights.resolving import obtain
from agent.weights.stored import fetched_from_hub, weights_dir
from agent.weights.verified import recorded
from memory.embedder import SentenceEmbedder
from memory.errors import SettingsError, WeightsError

_LIBRARY = "sentence-transformers"
_OURS = "sentence_transformers."
"""what the library's own classes are called; any other class is code from elsewhere"""
_REMEDY = (
    f"Set embedder to {DEFAULT_EMBEDDER}, to qwen3-0.6b or another sentence-transformers model of "
    "the hub where there is a network, or to the folder of one."
)
_COUNTED = (".safetensors", ".bin", ".json", ".txt", ".model")
"""files that decide what vectors a model gives"""


async def open_embedder(
    name: str = DEFAULT_EMBEDDER,
    *,
    directory: Path | None = None,
    on_progress: OnProgress = unseen,
) -> SentenceEmbedder:
    """The embedder of a name, fetched where it is not on disk and loaded when it first embeds."""
    folder = await resolve_embedder(name, directory=directory, on_progress=on_progress)
    return SentenceEmbedder(folder, await asyncio.to_thread(_identity, folder))


async def resolve_embedder(
    name: str = DEFAULT_EMBEDDER,
    *,
    directory: Path | None = None,
    on_progress: OnProgress = unseen,
) -> Path:
    """The folder of an embedding model, fetched when it is not on disk.

    Raises SettingsError for a name that means no embedder, WeightsError for one that is damaged
    or cannot be had.
    """
    directory = directory or weights_dir()
    held = await asyncio.to_thread(held_embedder, name, directory)
    if isinstance(held, Path):
        return held
    try:
        weights = held or _embedding(await look_up(repo_of(name)))
        folder = await obtain(weights, directory=directory, on_progress=on_progress)
    except HubError as error:
        message = f"The embedding model {name} cannot be fetched. {error}"
        raise WeightsError(message, _REMEDY) from error
    return await asyncio.to_thread(_checked, folder)


def held_embedder(name: str, directory: Path) -> Weights | Path | None:
    """What the catalogue or the disk says of a name: weights, a folder; None: ask the hub."""
    weights = known(name)
    path = Path(name).expanduser()
    if weights is None and name.strip() and path.is_dir():
        return _checked(path.resolve())
    if name.startswith(("/", ".", "~")):
        raise SettingsError(f"There is no folder {path} with an embedding model.", _REMEDY)
    if weights is None:
        repo = repo_of(name)
        every = (*CATALOGUE, *fetched_from_hub(directory))
        weights = next((known for known in every if known.repo == repo), None)
    return weights and _embedding(weights)


def repo_of(name: str) -> str:
    """The hub's name of an embedder; a bare one belongs to the library's own organisation."""
    full = SHORT_NAMES.get(name.lower(), name)
    full = full if "/" in full else f"{_LIBRARY}/{full}"
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", full):
        raise SettingsError(f"No embedding model is called {name!r}.", _REMEDY)
    return full


def _embedding(weights: Weights) -> Weights:
    if not weights.embedder:
        raise SettingsError(f"{weights.name} is no embedding model.", _REMEDY)
    return weights


def _checked(folder: Path) -> Path:
    """The folder, if a model lies there that runs no code of its own."""
    try:
        parts = json.loads((folder / MODULES).read_text("utf-8"))
        if not isinstance(parts, list) or not parts:
            raise ValueError(f"{MODULES} names no parts")
        kinds = [str(part["type"]) for part in parts]
    except OSError as cause:
        raise WeightsError(f"{folder} is no sentence-transformers model.", _REMEDY) from cause
    except (ValueError, KeyError, TypeError) as cause:
        raise WeightsError(f"{folder / MODULES} is damaged.", _REMEDY) from cause
    if foreign := [kind for kind in kinds if not kind.startswith(_OURS)]:
        raise WeightsError(
            f"The model in {folder} brings code of its own ({foreign[0]}), which is not run.",
            _REMEDY,
        )
    return folder


def _identity(folder: Path) -> str:
    """A name that no model with other vectors has: that of published weights holds their hash."""
    if recorded(folder) is not None:
        return folder.name
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix in _COUNTED and path.is_file():
            with path.open("rb") as stream:
                digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return f"{folder.name}-{digest.hexdigest()[:12]}"
