"""Would `rubricem ask` work here? Each thing it needs is looked at without asking a question.

A check is `ok`, a `note` (worth knowing, nothing is in the way), or a `fault`: something that
`ask` needs and that is not there. Weights not yet fetched are a note, since `ask` fetches them.
"""

import asyncio
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import httpx

from agent.auto_source import with_default_source
from agent.check import Check, fault_of
from agent.choice import EmbeddedChoice, PolicyChoice, ServerChoice, choose_policy
from agent.settings import Settings, unknown_variables
from agent.source_checks import check_sources
from agent.weights.catalogue import Weights, known
from memory.errors import RubricemError

SERVER_TIMEOUT = 3.0
"""seconds to wait for a server's list of models"""
_SPARE = 256 << 20
"""bytes wanted free beyond weights still to be fetched"""


async def run_checks(settings: Settings) -> list[Check]:
    """Everything that `ask` would need under these settings, in the order it would need it."""
    checks = [check_python(), *check_variables(), check_data_dir(settings.data_dir)]
    try:
        choice = choose_policy(settings)
    except RubricemError as error:
        checks.append(fault_of("policy", error))
    else:
        checks += await _check_policy(settings, choice)
        settings = with_default_source(settings)
    checks += await check_sources(settings)
    held, bank = await check_bank(settings)
    checks += [bank, await asyncio.to_thread(check_embedder, settings, held)]
    return checks


async def _check_policy(settings: Settings, choice: PolicyChoice) -> list[Check]:
    if isinstance(choice, ServerChoice):
        return [await check_server(choice)]
    return [
        await asyncio.to_thread(check_llama),
        await check_weights(choice, settings.weights_dir),
        check_disk(choice, settings.weights_dir),
    ]


def check_python() -> Check:
    # An older Python than ours cannot even install the command, so there is nothing to refuse.
    return Check("python", "ok", f"Python {platform.python_version()} in {sys.prefix}")


def check_variables() -> Iterator[Check]:
    for name in unknown_variables():
        remedy = "Correct its name, or unset it."
        yield Check("environment", "note", f"{name} names no setting and is not read.", remedy)


def check_data_dir(folder: Path) -> Check:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as cause:
        found = f"{folder} cannot be written: {cause.strerror or cause}."
        return Check("data directory", "fault", found, "Name another: RUBRICEM_DATA_DIR=FOLDER.")
    return Check("data directory", "ok", str(folder))


def check_llama() -> Check:
    try:
        import_module("xllamacpp")
    except (ImportError, OSError) as cause:
        found = f"llama.cpp cannot be loaded: {cause}."
        return Check("llama.cpp", "fault", found, "Install it again: pip install xllamacpp")
    return Check("llama.cpp", "ok", f"xllamacpp {version('xllamacpp')}")


async def check_weights(choice: EmbeddedChoice, folder: Path) -> Check:
    """Whether the model's weights are on disk and whole; a hash known already is not redone."""
    name = choice.model_name
    weights = known(name) or _fetched(name, folder)
    if weights is not None:
        return await asyncio.to_thread(_check_published, "weights", weights, folder)
    local = name.lower().endswith(".gguf") and ":" not in name
    if local or Path(name).expanduser().is_file():
        return await _check_file(name, folder)
    found = f"{name} is not fetched; the hub may have it."
    return Check("weights", "note", found, f"ask fetches it, or now: rubricem models fetch {name}")


def _fetched(name: str, folder: Path) -> Weights | None:
    from agent.weights.stored import fetched_from_hub

    repo, _, file = name.partition(":")
    return next(
        (w for w in fetched_from_hub(folder) if w.repo == repo and file in ("", w.files[0].path)),
        None,
    )


async def _check_file(name: str, folder: Path) -> Check:
    """A GGUF file of the user's own: there is no published hash to hold it against."""
    from agent.weights.resolving import resolve_model

    try:
        path = await resolve_model(name, directory=folder)
    except RubricemError as error:
        return fault_of("weights", error)
    return Check("weights", "ok", str(path))


def _check_published(what: str, weights: Weights, folder: Path) -> Check:
    from agent.weights.verified import verify

    held = folder / weights.folder
    if not held.exists():
        found = f"{weights.name} is not fetched yet ({weights.size / 1e6:,.0f} MB)."
        remedy = f"It is fetched when first needed, or now: rubricem models fetch {weights.name}"
        return Check(what, "note", found, remedy)
    try:
        verify(weights, held)
    except RubricemError as error:
        return fault_of(what, error)
    return Check(what, "ok", f"{weights.name}, whole, in {held}")


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def check_disk(
    choice: EmbeddedChoice, folder: Path, free_bytes: Callable[[Path], int] = _free_bytes
) -> Check:
    weights = known(choice.model_name)
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = free_bytes(there)
    fetched = weights is None or (folder / weights.folder).exists()
    wanted = _SPARE + (0 if fetched or weights is None else weights.size)
    found = f"{free / 1e9:,.1f} GB free at {there}"
    if free < wanted:
        remedy = "Free some space, or name another disk: RUBRICEM_WEIGHTS_DIR=FOLDER."
        return Check("disk", "fault", f"{found}, but {wanted / 1e9:,.1f} GB are needed.", remedy)
    return Check("disk", "ok", found)


def without_password(url: str) -> str:
    """The address as it may be shown to anyone: a query may hold a key as well."""
    parsed = httpx.URL(url)
    if parsed.userinfo:
        parsed = parsed.copy_with(username="***", password="")
    return str(parsed.copy_with(query=b"***")) if parsed.query else str(parsed)


async def check_server(choice: ServerChoice, seconds: float = SERVER_TIMEOUT) -> Check:
    """Ask the server for its list of models, which costs nothing."""
    shown = without_password(choice.base_url)
    headers = {"authorization": f"Bearer {choice.api_key}"} if choice.api_key else {}
    try:
        async with httpx.AsyncClient(timeout=seconds, headers=headers) as http:
            reply = await http.get(f"{choice.base_url}/models")
    except httpx.HTTPError as cause:
        found = f"{shown} does not answer: {str(cause) or type(cause).__name__}."
        return Check("server", "fault", found, "Start the server, or correct --base-url.")
    if reply.status_code in (401, 403):
        wrong = "refuses the key" if choice.api_key else "asks for a key"
        found = f"{shown} {wrong} (HTTP {reply.status_code})."
        return Check("server", "fault", found, "Set RUBRICEM_API_KEY to a key of that server.")
    return _check_listing(choice, shown, reply)


def _check_listing(choice: ServerChoice, shown: str, reply: httpx.Response) -> Check:
    try:
        reply.raise_for_status()
        names = [str(model["id"]) for model in reply.json()["data"]]
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        found = f"{shown} answers (HTTP {reply.status_code}) but lists no models."
        remedy = "The address of an OpenAI-compatible server usually ends in /v1; check it."
        return Check("server", "fault", found, remedy)
    some = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    if choice.model is None and len(names) != 1:
        found = f"{shown} has {len(names)} models and none is named."
        return Check("server", "fault", found, f"Name one with --model: {some}.")
    if choice.model is not None and choice.model not in names:
        found = f"{shown} answers but does not list {choice.model!r}."
        return Check("server", "note", found, f"If ask says the model is unknown, name one: {some}")
    return Check("server", "ok", f"{shown} answers, with {choice.model or names[0]}")


async def check_bank(settings: Settings) -> tuple[int, Check]:
    """What earlier runs have taught; how many reflections that is comes first."""
    from memory.bank import RubricBank

    try:
        held = len(await RubricBank(settings.data_dir).items())
    except RubricemError as error:
        return 0, Check("bank", "note", f"{error}, so nothing is recalled", error.remedy)
    found = f"{held} reflection{'' if held == 1 else 's'}, memory {settings.memory}"
    return held, Check("bank", "ok", found)


def check_embedder(settings: Settings, recallable: int = 0) -> Check:
    """Whether the embedding model is there, by which so many reflections can be recalled."""
    from agent.weights.embedders import held_embedder, repo_of

    if settings.retrieval == "lexical" and (not recallable or settings.memory == "off"):
        return Check("embedder", "ok", "not needed: retrieval is lexical, and nothing is recalled")
    try:
        held = held_embedder(settings.embedder, settings.weights_dir)
    except RubricemError as error:
        return fault_of("embedder", error)
    if isinstance(held, Path):
        return Check("embedder", "ok", f"the model in {held}")
    if held is not None:
        return _check_published("embedder", held, settings.weights_dir)
    repo = repo_of(settings.embedder)
    found = f"{repo} is not fetched; the hub may have it."
    remedy = f"It is fetched when first needed, or now: rubricem models fetch {repo}"
    return Check("embedder", "note", found, remedy)
