"""The weights on disk: where they lie, which there are, whether they are whole, taking them away.

They lie in the user's cache directory, or in `RUBRICEM_WEIGHTS_DIR`, one folder for each hash:
`NAME-HASH` when whole and checked, `NAME-HASH.partial` while being fetched.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from agent.weights.catalogue import CATALOGUE, OnProgress, Weights, known, unknown, unseen
from agent.weights.hub import hub_name
from agent.weights.verified import RECORD, recorded, verify
from memory.errors import WeightsError


@dataclass(frozen=True, slots=True)
class Listed:
    """Weights of the catalogue or the disk; `state`: here, damaged, partial or not fetched."""

    weights: Weights
    folder: Path
    state: str


@dataclass(frozen=True, slots=True)
class Checked:
    """Weights on disk, hashed again; `damage` is None for whole ones."""

    weights: Weights
    damage: WeightsError | None


def weights_dir() -> Path:
    chosen = os.environ.get("RUBRICEM_WEIGHTS_DIR")
    if chosen:
        return Path(chosen).expanduser()
    return Path(platformdirs.user_cache_dir("rubricem")) / "weights"


def listed(directory: Path | None = None) -> list[Listed]:
    """The catalogue, then whatever else has been fetched from the hub. Nothing is hashed."""
    directory = directory or weights_dir()
    every = (*CATALOGUE, *fetched_from_hub(directory))
    return [
        Listed(weights, directory / weights.folder, _state(weights, directory / weights.folder))
        for weights in every
    ]


def fetched_from_hub(directory: Path) -> list[Weights]:
    """Fetched weights that are not in the catalogue, the latest first."""
    records = sorted(directory.glob(f"*/{RECORD}"), key=lambda path: -path.stat().st_mtime_ns)
    found = [recorded(path.parent) for path in records if path.parent.suffix != ".partial"]
    return [weights for weights in found if weights is not None and known(weights.name) is None]


def check_stored(
    name: str | None = None, *, directory: Path | None = None, on_progress: OnProgress = unseen
) -> list[Checked]:
    """Hash again the weights of one name, or all that are on disk."""
    rows = listed(directory)
    if name is None:
        rows = [row for row in rows if row.state in ("here", "damaged")]
    else:
        rows = [row for row in rows if name.lower() in _names(row.weights)]
        if not rows:
            raise unknown(name)
    return [Checked(row.weights, _damage(row, on_progress)) for row in rows]


def remove(name: str, directory: Path | None = None) -> int:
    """Delete the weights of a name, whole or partial, of any hash; the bytes freed."""
    directory = directory or weights_dir()
    weights = known(name)
    stem, file = (weights.name, None) if weights else hub_name(name)
    freed = 0
    for folder in _folders(stem, directory):
        held = recorded(folder)
        if file is None or (held is not None and held.files[0].path == file):
            freed += sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            shutil.rmtree(folder)
    return freed


def _names(weights: Weights) -> set[str]:
    return {weights.name.lower(), *weights.aliases}


def _state(weights: Weights, folder: Path) -> str:
    if os.path.exists(folder):
        whole = all(_size(folder / file.path) == file.size for file in weights.files)
        return "here" if whole else "damaged"
    return "partial" if os.path.exists(f"{folder}.partial") else "not fetched"


def _size(path: Path) -> int | None:
    return path.stat().st_size if os.path.isfile(path) else None


def _damage(row: Listed, on_progress: OnProgress) -> WeightsError | None:
    try:
        verify(row.weights, row.folder, rehash=True, on_progress=on_progress)
    except WeightsError as damage:
        return damage
    return None


def _folders(name: str, directory: Path) -> list[Path]:
    stem = name.replace("/", "--")
    mine = re.compile(re.escape(stem) + r"-[0-9a-f]{12}(\.partial)?")
    return [path for path in directory.glob(f"{stem}-*") if mine.fullmatch(path.name)]
