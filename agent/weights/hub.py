"""The model hub over plain HTTP: what a repository holds, and its files with resume.

Only two of the hub's routes are used: `/api/models/{repo}` for the list of files with their
sizes and SHA-256, and `/{repo}/resolve/{revision}/{file}` for the bytes. `HF_ENDPOINT` points
them at a mirror. Connecting may take 3 s at most, so that an offline machine soon goes on.
"""

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from agent.weights.catalogue import SHORT_NAMES, OnProgress, WeightFile, Weights, unknown
from agent.weights.hub_folder import embedder_files, is_embedder
from memory.errors import WeightsError

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
        if file is None and is_embedder(listed):
            files = await embedder_files(http, repo, revision, listed)
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
        _expect(file, done, reply)
        with part.open("r+b") as stream:
            stream.truncate(done)
            stream.seek(done)
            async for chunk in reply.aiter_raw():
                done += len(chunk)
                if done > file.size:
                    raise _another_file(file)
                stream.write(chunk)
                on_progress(before + done, weights.size, "from the hub")
    if done != file.size:
        raise httpx.ReadError(f"{done} of {file.size} bytes")


def _expect(file: WeightFile, done: int, reply: httpx.Response) -> None:
    """Refuse a page that is not the file (a log-in page, say) before it is written."""
    length = reply.headers.get("content-length")
    if length is not None and done + int(length) != file.size:
        raise _another_file(file)


def _another_file(file: WeightFile) -> HubError:
    return HubError(f"The hub has another file in the place of {file.path}.", "Check HF_ENDPOINT.")
