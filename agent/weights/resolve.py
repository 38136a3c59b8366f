"""From a model's name to its weights on disk, and what lies there.

A name is one of the catalogue (`1.5b`), the path of a GGUF file, or a model of the hub
(`org/repo`, or `org/repo:file.gguf`); a policy's name may also be the folder of a checkpoint. The
name of an embedder is the default's (fetched once, then read without a network), a short name, the
folder of a sentence-transformers model, or such a model of the hub: `org/repo`, or a bare name of
the organisation that makes the library. No model brings code of its own into the process.

Fetched weights lie in the user's cache directory, or in `RUBRICEM_WEIGHTS_DIR`, and are shared by
all projects: one folder for each hash, `NAME-HASH` when whole and checked, `NAME-HASH.partial`
while being fetched.
"""

import asyncio
import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from rubricem.agent.weights import download
from rubricem.agent.weights.catalogue import (
    CATALOGUE,
    DEFAULT_EMBEDDER,
    DEFAULT_MODEL,
    MODULES,
    RECORD,
    SHORT_NAMES,
    OnProgress,
    Weights,
    hash_of,
    known,
    recorded,
    unknown,
    unseen,
    verify,
)
from rubricem.agent.weights.checkpoints import ADAPTER, MODEL, is_checkpoint, read_checkpoint
from rubricem.agent.weights.download import HubError, fetch, hub_name, look_up
from rubricem.memory.embedder import SentenceEmbedder
from rubricem.memory.errors import SettingsError, WeightsError


@dataclass(frozen=True, slots=True)
class ListedWeights:
    """Weights of the catalogue or the disk; `state`: here, damaged, partial or not fetched."""

    weights: Weights
    folder: Path
    state: str


@dataclass(frozen=True, slots=True)
class CheckedWeights:
    """Weights on disk, hashed again; `damage` is None for whole ones."""

    weights: Weights
    damage: WeightsError | None


def weights_dir() -> Path:
    chosen = os.environ.get("RUBRICEM_WEIGHTS_DIR")
    if chosen:
        return Path(chosen).expanduser()
    return Path(platformdirs.user_cache_dir("rubricem")) / "weights"


def listed(directory: Path | None = None) -> list[ListedWeights]:
    """The catalogue, then whatever else has been fetched from the hub. Nothing is hashed."""
    directory = directory or weights_dir()
    every = (*CATALOGUE, *fetched_from_hub(directory))
    return [
        ListedWeights(
            weights, directory / weights.folder, _state(weights, directory / weights.folder)
        )
        for weights in every
    ]


def fetched_from_hub(directory: Path) -> list[Weights]:
    """Fetched weights that are not in the catalogue, the latest first."""
    records = sorted(directory.glob(f"*/{RECORD}"), key=lambda path: -path.stat().st_mtime_ns)
    found = [recorded(path.parent) for path in records if path.parent.suffix != ".partial"]
    return [weights for weights in found if weights is not None and known(weights.name) is None]


def check_stored(
    name: str | None = None, *, directory: Path | None = None, on_progress: OnProgress = unseen
) -> list[CheckedWeights]:
    """Hash again the weights of one name, or all that are on disk."""
    rows = listed(directory)
    if name is None:
        rows = [row for row in rows if row.state in ("here", "damaged")]
    else:
        wanted = name.lower()
        rows = [row for row in rows if wanted in (row.weights.name.lower(), *row.weights.aliases)]
        if not rows:
            raise unknown(name)
    return [CheckedWeights(row.weights, _damage(row, on_progress)) for row in rows]


def remove(name: str, directory: Path | None = None) -> int:
    """Delete the weights of a name, whole or partial, of any hash; the bytes freed."""
    directory = directory or weights_dir()
    weights = known(name)
    stem, file = (weights.name, None) if weights else hub_name(name)
    stem = stem.replace("/", "--")
    freed = 0
    for folder in directory.glob(f"{stem}-*"):
        # Not of a model whose name only begins like this one's.
        if not re.fullmatch(re.escape(stem) + r"-[0-9a-f]{12}(\.partial)?", folder.name):
            continue
        held = recorded(folder)
        if file is None or (held is not None and held.files[0].path == file):
            freed += sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            shutil.rmtree(folder)
    return freed


def _state(weights: Weights, folder: Path) -> str:
    if os.path.exists(folder):
        paths = [(folder / file.path, file.size) for file in weights.files]
        whole = all(os.path.isfile(path) and path.stat().st_size == size for path, size in paths)
        return "here" if whole else "damaged"
    return "partial" if os.path.exists(f"{folder}.partial") else "not fetched"


def _damage(row: ListedWeights, on_progress: OnProgress) -> WeightsError | None:
    try:
        verify(row.weights, row.folder, rehash=True, on_progress=on_progress)
    except WeightsError as damage:
        return damage
    return None


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
    return await asyncio.to_thread(hash_of, path)


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
        weights = await download.look_up(repo, file)
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
    return await download.look_up(repo, file)


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
