"""From a model's name to its weights on disk.

A name is one of the catalogue (`1.5b`), the path of a GGUF file, or a model of the hub
(`org/repo`, or `org/repo:file.gguf`); a policy's name may also be the folder of a checkpoint.
Fetched weights lie in the user's cache directory, or in `RUBRICEM_WEIGHTS_DIR`, in folders whose
names end in their hash, and are shared by all projects.
"""

import asyncio
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from agent.weights import hub
from agent.weights.catalogue import (
    CATALOGUE,
    DEFAULT_MODEL,
    OnProgress,
    Weights,
    known,
    unseen,
)
from agent.weights.checkpoints import ADAPTER, MODEL, is_checkpoint, read_checkpoint
from agent.weights.fetching import fetch
from agent.weights.hub import hub_name
from agent.weights.stored import fetched_from_hub, weights_dir
from agent.weights.verified import verify
from memory.errors import SettingsError, WeightsError

_GGUF_MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What llama.cpp loads for a name, and what the policy is then called."""

    path: Path
    name: str
    version: str
    adapter: Path | None = None


async def resolve_model(
    name: str = DEFAULT_MODEL, *, directory: Path | None = None, on_progress: OnProgress = unseen
) -> Path:
    """The GGUF file that a name stands for, fetched when it is not on disk.

    Raises SettingsError for a name that means nothing, WeightsError for weights that are
    damaged or cannot be had.
    """
    directory = directory or weights_dir()
    weights = known(name)
    if weights is None and (path := _local(name)) is not None:
        return path
    weights = weights or await _of_hub(name, directory)
    if weights.embedder:
        raise SettingsError(f"{weights.name} is an embedder and writes no text.", "Name a model.")
    folder = await obtain(weights, directory=directory, on_progress=on_progress)
    return _checked_gguf(folder / weights.files[0].path)


async def resolve_files(
    name: str, *, directory: Path | None = None, on_progress: OnProgress = unseen
) -> ModelFiles:
    """The files of a model's name, or of a checkpoint with the weights that it was trained on.

    Raises WeightsError when the weights of that name are not those any more.
    """
    if not is_checkpoint(name):
        path = await resolve_model(name, directory=directory, on_progress=on_progress)
        return ModelFiles(path, path.stem, path.parent.name)
    folder = Path(name).expanduser().resolve()
    note = await asyncio.to_thread(read_checkpoint, folder)
    if note.adaptation == "full":
        return ModelFiles(folder / MODEL, f"{note.base}+{note.method}", note.version)
    path = await resolve_model(note.base, directory=directory, on_progress=on_progress)
    if await base_sha256(note.base, path) != note.base_sha256:
        raise WeightsError(
            f"the adapter in {folder} was trained on other weights than {path.name}.",
            f"Put back the weights whose SHA-256 is {note.base_sha256}.",
        )
    version = f"{path.parent.name}+{note.version}"
    return ModelFiles(path, f"{path.stem}+{note.method}", version, folder / ADAPTER)


async def base_sha256(name: str, path: Path) -> str:
    """The hash of a model's weights; those of the catalogue were verified when resolved."""
    weights = known(name)
    if weights is not None:
        return weights.files[0].sha256
    return await asyncio.to_thread(_hashed, path)


async def obtain(
    weights: Weights, *, directory: Path | None = None, on_progress: OnProgress = unseen
) -> Path:
    """The folder of the weights, checked; fetched when it is not on disk.

    A cache that stands is only read, so it may lie on a disk that cannot be written.
    """
    directory = directory or weights_dir()
    folder = directory / weights.folder
    if not os.path.exists(folder):
        return await fetch(weights, directory, on_progress)
    await asyncio.to_thread(verify, weights, folder, on_progress=on_progress)
    return folder


async def fetch_named(
    name: str, *, directory: Path | None = None, on_progress: OnProgress = unseen
) -> Path:
    """Fetch weights by name, replacing damaged ones; a hub name is looked up on the hub anew."""
    weights = known(name)
    if weights is None:
        repo, file = hub_name(name)
        weights = await hub.look_up(repo, file)
    return await fetch(weights, directory or weights_dir(), on_progress, repair=True)


def _local(name: str) -> Path | None:
    path = Path(name).expanduser()
    if os.path.isfile(path):
        return _checked_gguf(path)
    if name.endswith(".gguf") and ":" not in name:
        raise WeightsError(f"There is no file {path}.", "Check the path of the .gguf file.")
    return None


def _checked_gguf(path: Path) -> Path:
    try:
        with path.open("rb") as stream:
            magic = stream.read(len(_GGUF_MAGIC))
    except OSError as cause:
        message = f"{path} cannot be read: {cause.strerror}."
        raise WeightsError(message, "Name a .gguf file that can be read.") from cause
    if magic != _GGUF_MAGIC:
        raise WeightsError(f"{path} is not a GGUF file.", "llama.cpp loads GGUF files only.")
    return path


async def _of_hub(name: str, directory: Path) -> Weights:
    """The catalogue and the disk answer first: what is known or fetched needs no look-up."""
    repo, file = hub_name(name)
    for weights in (*CATALOGUE, *fetched_from_hub(directory)):
        if weights.repo == repo and file in (None, weights.files[0].path):
            return weights
    return await hub.look_up(repo, file)


def _hashed(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
