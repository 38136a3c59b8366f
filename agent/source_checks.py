"""Could the named sources be searched? Folders are looked into; services are asked to answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

from agent.auto_source import web_answers
from agent.check import Check, fault_of
from agent.settings import Settings
from agent.sources.names import ALLOWED, AUTO, PYTHON, SCHOLAR, WEB, is_beyond, kept_name
from memory.errors import RubricemError

Probe = Callable[[str, Settings], Awaitable[Check]]


async def check_sources(settings: Settings, probe: Probe | None = None) -> list[Check]:
    """One check for each named source; `probe` looks at those beyond this machine."""
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
    folder = Path(name).expanduser()
    try:
        found = _first_document(folder)
    except OSError as cause:
        wrong = f"{name} cannot be opened: {cause.strerror or cause}."
        return Check("source", "fault", wrong, ALLOWED)
    if found is None:
        return Check("source", "fault", f"{name} holds no document that can be read.", ALLOWED)
    return Check("source", "ok", f"{name}: a folder of documents")


def _first_document(folder: Path) -> Path | None:
    from agent.sources.readers import READERS

    with closing(folder.iterdir()) as listing:  # raises what rglob would pass over in silence
        next(listing, None)
    files = (path for path in folder.rglob("*") if path.suffix.lower() in READERS)
    return next((path for path in files if path.is_file()), None)


async def check_service(name: str, settings: Settings) -> Check:
    """A source beyond this machine; nothing is searched for but a word at Semantic Scholar."""
    if name in (WEB, AUTO):
        return await check_web(name)
    try:
        if name == SCHOLAR:
            return await _check_scholar(settings)
        from agent.sources.opening import open_source

        await open_source(name, settings.data_dir).prepare()
        return Check("source", "ok", f"{kept_name(name)} answers")
    except RubricemError as error:
        return fault_of("source", error)


async def check_web(name: str, answers: Callable[[], Awaitable[bool]] | None = None) -> Check:
    """`auto` works either way, so that a web which is silent is no fault of it."""
    began = time.monotonic()
    found = await (answers or web_answers)()
    seconds = f"{time.monotonic() - began:.1f} s"
    if found:
        return Check("source", "ok", f"{name}: the web answers in {seconds}")
    silent = f"{name}: the web does not answer within {seconds}"
    if name == AUTO:
        return Check("source", "note", f"{silent}, so python is taken")
    return Check("source", "fault", f"{silent}.", "Connect this machine, or name another source.")


async def _check_scholar(settings: Settings) -> Check:
    from agent.servers.retrying import Retry
    from agent.sources.json_reply import Refused
    from agent.sources.scholar import Scholar

    key = settings.scholar_key.get_secret_value() if settings.scholar_key else None
    try:
        await Scholar(key, retry=Retry(tries=1)).search("bees", 1)
    except Refused as refused:
        return Check("source", "note", str(refused), refused.remedy)
    return Check("source", "ok", "scholar: Semantic Scholar answers")
