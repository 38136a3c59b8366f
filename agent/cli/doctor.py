"""`rubricem doctor`: would `rubricem ask` work here? What is configured, answers, and is missing.

Everything that `ask` needs is checked without asking a question: folders are read, services are
contacted. A check is `ok`, a `note` (worth knowing, but no obstacle), or a `fault`: something that
`ask` needs and that is missing, with its remedy. Weights not yet fetched are a note, since `ask`
fetches them.
"""

import asyncio
import json
import platform
import shutil
import sqlite3
import sys
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from itertools import starmap
from pathlib import Path
from typing import Any, Literal

import click

from rubricem.agent.cli.options import AS_JSON, set_option, setting_flags
from rubricem.agent.models.opening import LANGCHAIN, SERVER, EmbeddedChoice, ServerChoice
from rubricem.agent.record.history import FILE_NAME as HISTORY
from rubricem.agent.settings import (
    DEFAULT_ORIGIN,
    FILE_NAME,
    Settings,
    door,
    load_settings,
    page_file,
    settings_file,
)
from rubricem.agent.sources import choice
from rubricem.agent.sources.documents import check_repository, find_files
from rubricem.agent.sources.mcp_client import Connection
from rubricem.agent.sources.sandbox.pool import Job, readers
from rubricem.agent.sources.tool_server import ToolServer
from rubricem.agent.weights.catalogue import Weights, lookup, verify
from rubricem.agent.weights.checkpoints import note_of
from rubricem.agent.weights.store import WeightsStore
from rubricem.memory.embedder import MEANING
from rubricem.memory.errors import PolicyError, RubricemError, SettingsError, import_extra
from rubricem.memory.schema import Message, Sampling
from rubricem.memory.text import pluralise

REACHED = 30.0
"""seconds in which a repository answers"""


@dataclass(frozen=True, slots=True)
class Check:
    """What was checked, what was found, and what to do about it."""

    name: str
    state: Literal["ok", "note", "fault"]
    found: str
    remedy: str = ""


def fault_of(name: str, error: RubricemError) -> Check:
    return Check(name, "fault", str(error), error.remedy)


async def run_checks(settings: Settings) -> list[Check]:
    checks = [check_program(), check_data_dir(settings.data_dir)]
    try:
        policy = door.model_of(settings)
    except RubricemError as error:
        checks.append(fault_of("policy", error))
    else:
        if isinstance(policy, ServerChoice):
            checks.append(await check_server(policy))
        else:
            checks += [check_llama(), await check_weights(policy, settings.weights_dir)]
        settings = door.with_default_source(settings)
    checks += [*await check_checker(settings), *await check_sources(settings)]
    checks += [*await check_tools(settings), await check_sandbox()]
    held, bank = await check_bank(settings)
    return [*checks, bank, await asyncio.to_thread(check_embedder, settings, held)]


def check_program() -> Check:
    page = page_file()
    read = [str(each) for each in (page, settings_file()) if each and each.exists()]
    none = f"no settings file: write a {FILE_NAME}, name it by --config"
    file = f"settings of {' and '.join(read)}" if read else none
    python = f"Python {platform.python_version()} in {sys.prefix}"
    return Check("rubricem", "ok", f"{version('rubricem')}, {python}; {file}")


TRIED, HOUR = 1_000_000, 3600.0
"""bytes that are written to see whether there is room; seconds that two clocks may be apart"""


def check_data_dir(folder: Path) -> Check:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(TRIED))
            file.flush()
        newest = max((each.stat().st_mtime for each in folder.iterdir()), default=0.0)
    except OSError as cause:
        found = f"{folder} cannot be written: {cause.strerror or cause}."
        remedy = "Free some of its disk, or name another: RUBRICEM_DATA_DIR=FOLDER."
        return Check("data directory", "fault", found, remedy)
    if newest - time.time() > HOUR:
        found = f"{folder} was written {(newest - time.time()) / HOUR:.0f} hours from now."
        return Check("data directory", "note", found, "The clock was set back: set it right.")
    try:
        place = (folder.absolute() / HISTORY).as_uri()
        with closing(sqlite3.connect(f"{place}?mode=rw", 1, uri=True)) as history:
            history.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            found, remedy = "Another process locks its history.", "Runs are asked all the same."
            return Check("data directory", "note", found, remedy)
    free = shutil.disk_usage(folder).free
    return Check("data directory", "ok", f"{folder}, {free / 1e9:,.1f} GB free")


def check_llama() -> Check:
    try:
        import_extra("xllamacpp", "local", "The embedded model", SERVER)
    except SettingsError as error:
        return fault_of("llama.cpp", error)
    return Check("llama.cpp", "ok", f"xllamacpp {version('xllamacpp')}")


async def check_weights(policy: EmbeddedChoice, folder: Path) -> Check:
    try:
        name = note_of(policy.checkpoint).base if policy.checkpoint else policy.name
        if (weights := lookup(name)) is not None:
            return await asyncio.to_thread(_check_published, "weights", weights, folder)
        # A file of the user's own: there is no published hash to hold it against.
        return Check("weights", "ok", str(await WeightsStore(folder).model(name)))
    except RubricemError as error:
        return fault_of("weights", error)


def _check_published(what: str, weights: Weights, folder: Path) -> Check:
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


async def check_server(policy: ServerChoice) -> Check:
    """Ask the server for its models, which is free, and one that it does not list to reply."""
    untried = ""
    try:
        names = await policy.model_names()
        model = policy.model or await policy.resolve_model()
        if policy.base_url != LANGCHAIN and model not in names:  # it may take it all the same
            async with policy.open_chat() as chat:
                await chat.chat([Message("user", "Hello")], Sampling(max_tokens=16))
        elif policy.api_key and policy.base_url != LANGCHAIN:
            with suppress(PolicyError):
                await replace(policy, api_key=None).model_names()
                untried = " to everybody, so that the key was not tried"
    except RubricemError as error:
        if not isinstance(error, PolicyError) or error.kind not in ("empty", "thinking"):
            return fault_of("server", error)
    prices = ", ".join(f"${each:g}" for each in policy.prices.get(model, ()))
    priced = f"at {prices} a million tokens" if prices else "which has no price in [prices]"
    told = f"{door.without_password(policy.base_url)} answers, with {model}, {priced}"
    listed = f"{told}; it lists {pluralise(len(names), 'model')}{untried}"
    return Check("server", "note" if untried else "ok", listed)


async def check_checker(settings: Settings) -> list[Check]:
    """The server of another model that checks claims, if there is one: a run goes on without."""
    try:
        if not isinstance(policy := door.checker_of(settings), ServerChoice):
            return []
        found = await check_server(policy)
    except RubricemError as error:
        found = fault_of("checker", error)
    return [replace(found, name="checker", state="ok" if found.state == "ok" else "note")]


async def check_tools(settings: Settings) -> list[Check]:
    """Each server of tools: a run goes on without those that do not answer."""

    async def check(name: str, server: ToolServer) -> Check:
        connection = Connection(name, server)
        try:
            there = {offer.tool for offer in await connection.offers()}
        except RubricemError as error:
            remedy = error.remedy or f"Start it, or correct [mcp_servers.{name}]."
            return Check("tools", "note", f"{error} Its tools are left out.", remedy)
        finally:
            await connection.aclose()
        told = f"the MCP server {name} answers, with {', '.join(sorted(there)) or 'no tool named'}"
        if lacks := sorted({*server.tools} - there):
            remedy = f"Correct `tools` under [mcp_servers.{name}]."
            return Check("tools", "note", f"{told}, without {', '.join(lacks)}", remedy)
        return Check("tools", "ok", told)

    return list(await asyncio.gather(*starmap(check, settings.mcp_servers.items())))


async def check_sources(settings: Settings) -> list[Check]:
    """Each source that is named, and each part of a collection, whether that is named or not."""
    try:
        named, checks = door.named_sources(settings), list[Check]()
    except SettingsError as error:
        return [fault_of("source", error)]
    every = (*settings.source, *(choice.COLLECTION + name for name in settings.collections))
    for name, part in door.named_sources(settings.model_copy(update={"source": every})).items():
        check = await check_source(name, settings)
        if part:
            check = replace(check, found=part if check.found == name else f"{part}: {check.found}")
        if check.state == "fault" and name not in named:  # what nobody asks for is no obstacle
            check = replace(check, state="note")
        checks.append(check)
    return checks


async def check_source(name: str, settings: Settings) -> Check:
    if name in (choice.WEB, choice.AUTO):
        if await choice.web_answers():
            return Check("source", "ok", f"{name}: the web answers")
        if name == choice.AUTO:
            return Check("source", "note", f"{name}: the web does not answer, so python is taken")
        remedy = "Connect this machine, or name another source."
        return Check("source", "fault", f"{name}: the web does not answer.", remedy)
    try:
        choice.Sources((name,)).check()
        if choice.is_beyond(name):
            await choice.open_source(name, settings.data_dir, keys=door.keys_of(settings)).prepare()
            return Check(
                "source", "ok", f"{choice.kept_name(name)} answers, or is asked when needed"
            )
        if name.startswith(choice.GIT):
            await asyncio.to_thread(check_repository, name.removeprefix(choice.GIT), REACHED)
    except RubricemError as error:
        return fault_of("source", error)
    found = (
        asyncio.to_thread(find_files, Path(name).expanduser()) if choice.is_folder(name) else None
    )
    if found and not (await found).files:
        return Check(
            "source", "fault", f"{name} holds no document that can be read.", choice.ALLOWED
        )
    return Check("source", "ok", name)


async def check_sandbox() -> Check:
    """Whether what reads documents and pages can reach anything else."""
    try:
        held = await readers().read(Job("locks", "The reading process", {}))
    except RubricemError as error:
        return fault_of("sandbox", error)
    lacks = [name for name in ("landlock", "seccomp") if not held[name]]
    if not lacks:
        return Check("sandbox", "ok", "documents are read without network, programs and files")
    found = f"Documents are read in processes with limits, but without {' and '.join(lacks)}."
    return Check("sandbox", "note", found, "Linux 5.13 or newer has both, on x86-64 and arm64.")


async def check_bank(settings: Settings) -> tuple[int, Check]:
    """What earlier runs have taught; the number of reflections comes first."""
    from rubricem.memory.bank import RubricBank

    try:
        held = len(await RubricBank(settings.data_dir).items())
    except RubricemError as error:
        return 0, Check("bank", "note", f"{error}, so nothing is recalled", error.remedy)
    return held, Check("bank", "ok", f"{pluralise(held, 'reflection')}, memory {settings.memory}")


def check_embedder(settings: Settings, recallable: int = 0) -> Check:
    """Whether the embedding model is there, which recalls `recallable` reflections."""
    if settings.base_url is not None and (not recallable or settings.memory == "off"):
        return Check("embedder", "ok", "not needed: nothing is recalled")
    try:
        import_extra("tokenizers", "memory", MEANING)
        held = WeightsStore(settings.weights_dir).find_embedder(settings.embedder)
    except RubricemError as error:
        # A run goes on without it.
        found = f"{error} Nothing is recalled, and sources are searched by words alone."
        return Check("embedder", "note", found, error.remedy)
    if isinstance(held, Path):
        return Check("embedder", "ok", f"the model in {held}")
    return _check_published("embedder", held, settings.weights_dir)


@click.command()
@setting_flags("model", "base_url", "source")
@set_option
@AS_JSON
@click.pass_context
def doctor(ctx: click.Context, /, as_json: bool, **flags: Any) -> None:
    """Say what is configured, what responds, what is missing, and how to fix it.

    Flags are checked as if they were settings.

    Exits with 0 when `rubricem ask` would work, else with 1.
    """
    rows: dict[str, dict[str, Any]] = {}
    try:
        settings = load_settings(flags)
    except SettingsError as error:
        checks = [fault_of("settings", error)]
    else:
        checks = asyncio.run(run_checks(settings))
        rows = {
            name: {"value": door.redact(getattr(settings, name)), "origin": settings.origin(name)}
            for name in Settings.model_fields
        }
    works = all(check.state != "fault" for check in checks)
    if as_json:
        found = {"works": works, "settings": rows, "checks": [asdict(check) for check in checks]}
        click.echo(json.dumps(found, default=str, ensure_ascii=False, indent=2))
    else:
        for name, row in rows.items():
            if row["origin"] != DEFAULT_ORIGIN:
                value = json.dumps(row["value"], default=str, ensure_ascii=False)
                click.echo(f"  {name}: {value}  [{row['origin']}]")
        for check in checks:
            click.echo(f"  {check.state:6} {check.name:15} {check.found}")
            if check.remedy:
                click.echo(f"  {'':22} -> {check.remedy}")
        click.echo("ask works" if works else "ask would fail: fix the faults above")
    ctx.exit(0 if works else 1)
