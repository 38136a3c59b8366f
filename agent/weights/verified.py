"""Are these weights the published ones? The SHA-256 is checked once and remembered.

Beside the files lies a small record, `verified.json`: what they are, and each file's size and
time of change when its hash was last checked. A start compares those two only, since hashing
a gigabyte takes seconds; a file whose time has changed is hashed again.
"""

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent.weights.catalogue import OnProgress, WeightFile, Weights, unseen
from memory.errors import WeightsError

RECORD = "verified.json"


def verify(
    weights: Weights, folder: Path, *, rehash: bool = False, on_progress: OnProgress = unseen
) -> None:
    """Raise WeightsError unless every file in the folder is whole and has its published hash.

    `rehash` hashes every file again, whatever the record says.
    """
    trusted = {} if rehash else _trusted(folder)
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


def recorded(folder: Path) -> Weights | None:
    """The weights that a folder's record says it holds; None without a readable record."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        files = tuple(
            WeightFile(path, int(state["size"]), str(state["sha256"]))
            for path, state in record["files"].items()
        )
        return Weights(
            name=str(record["name"]),
            licence=str(record["licence"]),
            repo=str(record["repo"]),
            revision=str(record["revision"]),
            files=files,
        )
    return None


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
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
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
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": file.sha256}


def _trusted(folder: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, KeyError, TypeError):
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        return dict(record["files"])
    return {}


def _remember(weights: Weights, folder: Path) -> None:
    record = {
        "name": weights.name,
        "licence": weights.licence,
        "repo": weights.repo,
        "revision": weights.revision,
        "files": {file.path: _state(file, folder / file.path) for file in weights.files},
    }
    fresh = folder / f"{RECORD}.new"
    fresh.write_text(json.dumps(record, indent=1), encoding="utf-8")
    fresh.replace(folder / RECORD)
