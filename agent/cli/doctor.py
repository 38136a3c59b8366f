"""`rubricem doctor`: would `rubricem ask` work here? What is configured, answers, and is missing.

Everything that `ask` needs is checked without asking a question: folders are read, services are
contacted. A check is `ok`, a `note` (worth knowing, but no obstacle), or a `fault`: something that
`ask` needs and that is missing, with its remedy. Weights not yet fetched are a note, since `ask`
fetches them.
"""

import asyncio
import json
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, Literal

import click
import httpx2
from pydantic import SecretStr

from rubricem.agent.cli.options import AS_JSON, set_option, setting_flags
from rubricem.agent.models.opening import SERVER, EmbeddedChoice, PolicyChoice, ServerChoice
from rubricem.agent.settings import (
    DEFAULT_ORIGIN,
    FILE_NAME,
    Settings,
    load_settings,
)
from rubricem.agent.settings.door import keys_of, model_of, with_default_source
from rubricem.agent.sources.choice import (
    ALLOWED,
    AUTO,
    GIT,
    PYTHON,
    SCHOLAR,
    SEARXNG,
    WEB,
    Sources,
    is_beyond,
    is_folder,
    kept_name,
    web_answers,
)
from rubricem.agent.sources.tool_server import ToolServer
from rubricem.agent.weights.catalogue import Weights, lookup
from rubricem.memory.embedder import MEANING
from rubricem.memory.errors import RubricemError, SettingsError, import_extra
from rubricem.memory.runs import RunStore, writable
from rubricem.memory.schema import Trajectory
from rubricem.memory.text import pluralise


@dataclass(frozen=True, slots=True)
class Check:
    """What was checked, what was found, and what to do about it."""

    name: str
    state: Literal["ok", "note", "fault"]
    found: str
    remedy: str = ""


def fault_of(name: str, error: RubricemError) -> Check:
    return Check(name, "fault", str(error), error.remedy)


Probe = Callable[[str, Settings], Awaitable[Check]]


async def check_sources(settings: Settings, probe: Probe | None = None) -> list[Check]:
    """One check for each named source; `probe` contacts those beyond this machine."""
    ask = probe or check_service
    return [
        await ask(name, settings)
        if is_beyond(name) or name == AUTO
        else await asyncio.to_thread(check_source, name)
        for name in settings.source
    ]


def check_source(name: str) -> Check:
    """A source on this machine."""
    if name == PYTHON:
        return Check("source", "ok", "python: the installed libraries and the standard library")
    if name.startswith(GIT):
        try:
            Sources((name,)).check()
        except SettingsError as error:
            return fault_of("source", error)
        found = shutil.which("git") is not None
        said = f"{name}: a repository, {'which git fetches' if found else 'and there is no git'}"
        return Check("source", "ok" if found else "fault", said, "" if found else "Install git.")
    from rubricem.agent.sources.readers import READERS

    folder = Path(name).expanduser()
    try:
        with closing(folder.iterdir()) as listing:  # raises what rglob would pass over in silence
            next(listing, None)
        files = (path for path in folder.rglob("*") if path.suffix.lower() in READERS)
        found = any(path.is_file() for path in files)
    except OSError as cause:
        wrong = f"{name} cannot be opened: {cause.strerror or cause}."
        return Check("source", "fault", wrong, ALLOWED)
    if not found:
        return Check("source", "fault", f"{name} holds no document that can be read.", ALLOWED)
    return Check("source", "ok", f"{name}: a folder of documents")


async def check_service(name: str, settings: Settings) -> Check:
    """A source beyond this machine; nothing is searched for except a word at Semantic Scholar."""
    if name in (WEB, AUTO):
        return await check_web(name)
    try:
        if name == SCHOLAR:
            return await _check_scholar()
        from rubricem.agent.sources.choice import open_source

        tool = open_source(name, settings.data_dir, keys=keys_of(settings))
        await tool.prepare()
        return Check("source", "ok", f"{kept_name(name)} answers")
    except RubricemError as error:
        return fault_of("source", error)


async def check_web(name: str, answers: Callable[[], Awaitable[bool]] | None = None) -> Check:
    """`auto` works either way, so for it an unreachable web is no fault."""
    began = time.monotonic()
    found = await (answers or web_answers)()
    seconds = f"{time.monotonic() - began:.1f} s"
    if found:
        return Check("source", "ok", f"{name}: the web answers in {seconds}")
    silent = f"{name}: the web does not answer within {seconds}"
    if name == AUTO:
        return Check("source", "note", f"{silent}, so python is taken")
    return Check("source", "fault", f"{silent}.", "Connect this machine, or name another source.")


async def _check_scholar() -> Check:
    from rubricem.agent.models.limits import Retry
    from rubricem.agent.sources.web import Scholar
    from rubricem.agent.sources.web import SearchRefused as Refused

    try:
        await Scholar(retry=Retry(tries=1)).search("bees", 1)
    except Refused as refused:
        return Check("source", "note", str(refused), refused.remedy)
    return Check("source", "ok", "scholar: Semantic Scholar answers")


SERVER_TIMEOUT = 3.0
"""seconds to wait for a server's list of models"""
_SPARE = 256 << 20
"""bytes of free space required beyond weights still to be fetched"""


async def run_checks(settings: Settings, deep: bool = False) -> list[Check]:
    """Everything that `ask` would need under these settings, in the order it would need it.

    `deep`: weights are hashed, whatever their record says.
    """
    checks = [
        check_python(),
        check_version(),
        check_data_dir(settings.data_dir),
    ]
    try:
        choice = model_of(settings)
    except RubricemError as error:
        checks.append(fault_of("policy", error))
    else:
        checks += await _check_policy(settings, choice, deep)
        settings = with_default_source(settings)
    checks += await check_sources(settings)
    held, bank = await check_bank(settings)
    checks += [bank, await asyncio.to_thread(check_speed, settings.data_dir)]
    checks += [await asyncio.to_thread(check_embedder, settings, held, deep)]
    return checks


async def _check_policy(settings: Settings, choice: PolicyChoice, deep: bool) -> list[Check]:
    if isinstance(choice, ServerChoice):
        return [await check_server(choice)]
    return [
        await asyncio.to_thread(check_llama),
        await check_weights(choice, settings.weights_dir, deep),
        check_disk(choice, settings.weights_dir),
    ]


def check_python() -> Check:
    # An older Python than ours cannot even install the command, so there is nothing to refuse.
    return Check("python", "ok", f"Python {platform.python_version()} in {sys.prefix}")


def check_version() -> Check:
    """Our version, and the extras whose packages are all installed."""
    wanted: dict[str, list[str]] = {}
    for line in requires("rubricem") or ():
        name, extra = _REQUIRED.match(line), _EXTRA.search(line)
        if name and extra and name[0] != "rubricem":
            wanted.setdefault(extra[1], []).append(name[0])
    here = [extra for extra, names in sorted(wanted.items()) if all(map(_is_installed, names))]
    found = f"rubricem {version('rubricem')}, with {', '.join(here) or 'no extra'}"
    return Check("version", "ok", found)


_REQUIRED, _EXTRA = re.compile(r"[\w.-]+"), re.compile(r"extra == ['\"]([\w-]+)")


def _is_installed(name: str) -> bool:
    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False


RECENT = 5
"""runs from which the model's speed is read"""


def check_speed(data_dir: Path) -> Check:
    """How fast the model wrote in the last ended runs; the model is not called."""
    store, ended = RunStore(data_dir), list[Trajectory]()
    for thread in reversed(store.threads()[-10 * RECENT :]):
        with suppress(RubricemError):
            if store.has_ended(thread) and (run := store.load(thread)).spent:
                ended += [run] if not ended or run.policy == ended[0].policy else []
        if len(ended) == RECENT:
            break
    spent = [each for run in ended for each in run.spent if each.written]
    if not (seconds := sum(each.seconds for each in spent)):
        return Check("model speed", "ok", "known once a run has ended")
    rate = sum(each.written for each in spent) / seconds
    took = sum(run.seconds for run in ended) / len(ended)
    found = f"{ended[0].policy} wrote {rate:,.1f} tokens a second, reading included"
    runs = pluralise(len(ended), "run")
    return Check("model speed", "ok", f"{found}; the last {runs} took {took:,.0f} s on average")


def check_data_dir(folder: Path) -> Check:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as cause:
        found = f"{folder} cannot be written: {cause.strerror or cause}."
        return Check("data directory", "fault", found, "Name another: RUBRICEM_DATA_DIR=FOLDER.")
    free = shutil.disk_usage(folder).free
    if free < _SPARE:
        found = f"{folder} has {free / 1e6:,.0f} MB free."
        return Check("data directory", "note", found, "Free some space, or name another.")
    return Check("data directory", "ok", f"{folder}, {free / 1e9:,.1f} GB free")


def check_llama() -> Check:
    try:
        import_extra("xllamacpp", "local", "The embedded model", SERVER)
    except SettingsError as error:
        return fault_of("llama.cpp", error)
    except OSError as cause:
        found = f"llama.cpp cannot be loaded: {cause}."
        return Check("llama.cpp", "fault", found, "Install it again: pip install xllamacpp")
    return Check("llama.cpp", "ok", f"xllamacpp {version('xllamacpp')}")


async def check_weights(choice: EmbeddedChoice, folder: Path, deep: bool = False) -> Check:
    """Whether the weights are on disk and complete; only `deep` repeats a recorded hash."""
    from rubricem.agent.weights.store import WeightsStore

    name = choice.model_name
    repo, _, file = name.partition(":")
    store = WeightsStore(folder)
    weights = lookup(name) or store.on_hand(repo, file or None)
    if weights is not None:
        return await asyncio.to_thread(_check_published, "weights", weights, folder, deep)
    local = name.lower().endswith(".gguf") and ":" not in name
    if local or Path(name).expanduser().is_file():
        # A file of the user's own: there is no published hash to hold it against.
        try:
            return Check("weights", "ok", str(await store.model(name)))
        except RubricemError as error:
            return fault_of("weights", error)
    found = f"{name} is not fetched; the hub may have it."
    return Check("weights", "note", found, f"ask fetches it, or now: rubricem models fetch {name}")


def _check_published(what: str, weights: Weights, folder: Path, deep: bool) -> Check:
    from rubricem.agent.weights.catalogue import verify

    held = folder / weights.folder
    if not held.exists():
        found = f"{weights.name} is not fetched yet ({weights.size / 1e6:,.0f} MB)."
        remedy = f"It is fetched when first needed, or now: rubricem models fetch {weights.name}"
        return Check(what, "note", found, remedy)
    try:
        verify(weights, held, rehash=deep)
    except RubricemError as error:
        return fault_of(what, error)
    return Check(what, "ok", f"{weights.name}, whole, in {held}")


def check_disk(
    choice: EmbeddedChoice,
    folder: Path,
    free_bytes: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
) -> Check:
    weights = lookup(choice.model_name)
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
    """The address as it may be shown to anyone: a query may contain a key as well."""
    parsed = httpx2.URL(url)
    if parsed.userinfo:
        parsed = parsed.copy_with(username="***", password="")
    return str(parsed.copy_with(query=b"***")) if parsed.query else str(parsed)


async def check_server(choice: ServerChoice, seconds: float = SERVER_TIMEOUT) -> Check:
    """Ask the server for its list of models, which costs nothing."""
    shown = without_password(choice.base_url)
    headers = {"authorization": f"Bearer {choice.api_key}"} if choice.api_key else {}
    try:
        async with httpx2.AsyncClient(timeout=seconds, headers=headers) as http:
            reply = await http.get(f"{choice.base_url}/models")
    except httpx2.HTTPError as cause:
        found = f"{shown} does not answer: {str(cause) or type(cause).__name__}."
        return Check("server", "fault", found, "Start the server, or correct --base-url.")
    if reply.status_code in (401, 403):
        wrong = "refuses the key" if choice.api_key else "asks for a key"
        found = f"{shown} {wrong} (HTTP {reply.status_code})."
        return Check("server", "fault", found, "Set RUBRICEM_API_KEY to a key of that server.")
    return _check_listing(choice, shown, reply)


def _check_listing(choice: ServerChoice, shown: str, reply: httpx2.Response) -> Check:
    try:
        reply.raise_for_status()
        names = [str(model["id"]) for model in reply.json()["data"]]
    except (httpx2.HTTPError, ValueError, KeyError, TypeError):
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
    """What earlier runs have taught; the number of reflections comes first."""
    from rubricem.memory.bank import RubricBank

    try:
        held = len(await RubricBank(settings.data_dir).items())
    except RubricemError as error:
        return 0, Check("bank", "note", f"{error}, so nothing is recalled", error.remedy)
    found = f"{pluralise(held, 'reflection')}, memory {settings.memory}"
    return held, Check("bank", "ok", found)


def check_embedder(settings: Settings, recallable: int = 0, deep: bool = False) -> Check:
    """Whether the embedding model is there, which recalls `recallable` reflections."""
    from rubricem.agent.weights.store import WeightsStore

    by_words = settings.retrieval == "lexical" or (
        settings.retrieval == "auto" and settings.base_url is not None
    )
    if by_words and (not recallable or settings.memory == "off"):
        return Check("embedder", "ok", "not needed: retrieval is lexical, and nothing is recalled")
    try:
        import_extra("tokenizers", "memory", MEANING)
        held = WeightsStore(settings.weights_dir).find_embedder(settings.embedder)
    except RubricemError as error:
        if settings.retrieval in ("auto", "lexical"):  # a run goes on without it
            found = f"{error} Nothing is recalled, and sources are searched by words alone."
            return Check("embedder", "note", found, error.remedy)
        return fault_of("embedder", error)
    if isinstance(held, Path):
        return Check("embedder", "ok", f"the model in {held}")
    if held is not None:
        return _check_published("embedder", held, settings.weights_dir, deep)
    repo = WeightsStore.embedder_repo(settings.embedder)
    found = f"{repo} is not fetched; the hub may have it."
    remedy = f"It is fetched when first needed, or now: rubricem models fetch {repo}"
    return Check("embedder", "note", found, remedy)


_SHOWN_SECRET = 12
"""characters; a shorter secret shows no letter of itself"""


@click.command()
@setting_flags("model", "base_url", "source")
@set_option
@click.option("--deep", is_flag=True, help="Hash the weights, not only their size and time.")
@click.option("--all", "whole", is_flag=True, help="List the settings at their defaults, too.")
@AS_JSON
@click.pass_context
def doctor(ctx: click.Context, /, deep: bool, whole: bool, as_json: bool, **flags: Any) -> None:
    """Say what is configured, what responds, what is missing, and how to fix it.

    Flags are checked as if they were settings.

    Exits with 0 when `rubricem ask` would work, else with 1.
    """
    settings: Settings | None = None
    try:
        settings = load_settings(flags)
    except SettingsError as error:
        checks = [check_python(), fault_of("settings", error)]
    else:
        checks = asyncio.run(run_checks(settings, deep))
    if as_json:
        works, looked_at = _works(checks), [asdict(check) for check in checks]
        found = {"works": works, "settings": _rows(settings), "checks": looked_at}
        click.echo(json.dumps(found, default=str, ensure_ascii=False, indent=2))
    else:
        click.echo(_as_text(settings, checks, whole))
    ctx.exit(0 if _works(checks) else 1)


def _works(checks: list[Check]) -> bool:
    return all(check.state != "fault" for check in checks)


def redact(value: object) -> object:
    """A setting's value, fit to be shown to anyone: without keys and passwords."""
    if isinstance(value, SecretStr):
        secret = value.get_secret_value()
        return f"set (…{secret[-2:]})" if len(secret) >= _SHOWN_SECRET else "set"
    if isinstance(value, tuple):
        return tuple(map(redact, value))
    if isinstance(value, ToolServer):
        value = value.describe()
    if isinstance(value, Mapping):
        return {name: redact(held) for name, held in value.items()}
    for prefix in (SEARXNG, GIT):
        if isinstance(value, str) and value.startswith(prefix):
            return prefix + str(redact(value.removeprefix(prefix)))
    return without_password(value) if isinstance(value, str) and "://" in value else value


def _rows(settings: Settings | None) -> dict[str, dict[str, object]]:
    if settings is None:
        return {}
    return {
        name: {"value": redact(getattr(settings, name)), "origin": settings.origin(name)}
        for name in Settings.model_fields
    }


def _as_text(settings: Settings | None, checks: list[Check], whole: bool) -> str:
    rows = _rows(settings)
    told = (name for name in rows if whole or rows[name]["origin"] != DEFAULT_ORIGIN)
    shown_rows = {name: rows[name] for name in told}
    lines = ["settings"] if rows else []
    widest = max(map(len, shown_rows), default=0)
    for name, row in shown_rows.items():
        value = row["value"]
        if isinstance(value, dict):
            value = json.dumps(value, default=str, ensure_ascii=False)
        elif isinstance(value, tuple):
            value = ", ".join(map(str, value))
        lines.append(f"  {name:{widest}} {'-' if value is None else value}  [{row['origin']}]")
    if left := len(rows) - len(shown_rows):
        others = "others" if shown_rows else "all"
        lines.append(f"  {others} at their defaults ({left}): rubricem doctor --all")
    lines.append("checks")
    for check in checks:
        lines.append(f"  {check.state:6} {check.name:15} {check.found}")
        if check.remedy:
            lines.append(f"  {'':22} -> {check.remedy}")
    lines.append("ask works" if _works(checks) else "ask would fail: fix the faults above")
    return "\n".join(lines)


@click.command("init")
def init() -> None:
    """Ask four questions, and write their answers into a rubricem.toml of this folder.

    Since you answered yourself, the file may act outside of the folder.
    """
    path = Path(FILE_NAME)
    if path.exists():
        raise SettingsError(f"{path} exists already.", "Edit it, or remove it and start again.")
    try:
        said = _ask_settings()
    except click.Abort:
        told = "Nothing is written: answer each question, in a terminal or by lines of the input."
        click.echo(f"\n{told}", err=True)
        raise
    load_settings(said)  # says what is wrong before anything is written
    lines = (f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in said.items())
    with writable(path), path.open("x", encoding="utf-8") as file:
        path.chmod(0o600)  # there may be a key in it
        file.write("\n".join([HEAD, *lines, ""]))
    click.echo(f'written: {path}; `rubricem doctor` checks it. Then: rubricem ask "..."')


def _ask_settings() -> dict[str, Any]:
    told = "Model: 1.5b or 0.5b run here; NAME@http://SERVER/v1 asks a server"
    said: dict[str, Any] = click.prompt(told, default="1.5b", value_proc=_parse_model)
    told = "Sources, with commas between: python, web, wikipedia, scholar, folders, ..."
    said["source"] = click.prompt(told, default=PYTHON, value_proc=_parse_sources)
    keys = ["tavily_key"] if "tavily" in said["source"] else []
    keys += ["api_key"] if "base_url" in said else []
    for name in keys:
        told = f"{name}, not shown (empty: none, or RUBRICEM_{name.upper()} later)"
        if given := click.prompt(told, default="", hide_input=True, show_default=False).strip():
            said[name] = given
    if not keys:
        click.echo("Keys: none is needed.")
    told = "US dollars that one question may cost (0: no limit)"
    said["max_cost"] = click.prompt(told, default=1.0, type=click.FloatRange(min=0))
    return said


HEAD = "# What this folder asks with; `rubricem doctor` says what is in force, and why."


def _parse_model(given: str) -> dict[str, Any]:
    name, _, server = given.strip().partition("@")
    said = {"model": name, "base_url": server} if server else {"model": name}
    try:
        # Of a key not there nobody was asked yet.
        settings = load_settings({**said, "api_key": "asked later"})
        if not server and not model_of(settings).embedded:
            raise SettingsError(f"{name!r} is no model that runs here; its server is missing.")
    except SettingsError as error:
        raise click.BadParameter(error.told()) from error
    return said


def _parse_sources(given: str) -> list[str]:
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if is_folder(name) and not Path(name).expanduser().is_dir():
            raise click.BadParameter(f"There is no source {name!r}. {ALLOWED}")
    return names or [PYTHON]
