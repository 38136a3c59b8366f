"""The files of a hub's repository that make a sentence-transformers model, each with its hash.

The hub gives the SHA-256 of large files alone; of a small one it gives what git calls it, the
SHA-1 of a header and the bytes. Small files are therefore read once, held against that, and
hashed. Weights are taken as safetensors only: other formats may hold code that reading runs.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import httpx

from agent.weights.catalogue import MODULES, WeightFile
from memory.errors import WeightsError

_WEIGHTS = ".safetensors"
_WANTED = re.compile(
    r"(?!.*\.\./)(?!(?:onnx|openvino)/)[\w-][\w./-]*\.(?:safetensors|json|txt|model|jinja)"
)
_MOST_BYTES = 32 << 20
"""of a file that is not said to be large; the hub keeps larger ones apart"""


def is_embedder(listed: Mapping[str, Any]) -> bool:
    """Whether a repository with these files holds a sentence-transformers model."""
    return MODULES in listed


async def embedder_files(
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
                raise _another(name)
    if hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() != entry["blobId"]:
        raise _another(name)
    return WeightFile(name, len(content), hashlib.sha256(content).hexdigest())


def _another(name: str) -> WeightsError:
    return WeightsError(f"The hub has another file in the place of {name}.", "Check HF_ENDPOINT.")
