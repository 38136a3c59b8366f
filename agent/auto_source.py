"""What `--source auto` stands for: the web where it answers soon enough, else `python`.

`auto` is the default where a server answers the questions, since a large model knows what to do
with the web; the embedded model keeps to the installed libraries. It is settled before anything
is asked and kept with the run by the name of what it took, so that a resume searches the same.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import httpx

from agent.choice import ServerChoice, choose_policy
from agent.events import Listener, SourceProgress, ignore
from agent.settings import Settings
from agent.sources.names import AUTO, PYTHON, WEB
from memory.runs import RunStore

PROBED = ("https://duckduckgo.com/", "https://www.wikipedia.org/")
"""two of the services that the web search asks; one that answers is enough"""
SECONDS = 2.0

Answers = Callable[[], Awaitable[bool]]
"""whether the web answers; never takes longer than `SECONDS`"""


def with_default_source(settings: Settings) -> Settings:
    """The settings with `auto` as their source where a server is named and no source is."""
    if "source" in settings.model_fields_set:
        return settings
    server = isinstance(choose_policy(settings), ServerChoice)
    return settings.model_copy(update={"source": (AUTO,)}) if server else settings


async def settled(
    settings: Settings,
    thread: str | None = None,
    listener: Listener = ignore,
    answers: Answers | None = None,
) -> Settings:
    """The settings with a source in the place of `auto`, which the listener is told.

    A thread that was begun goes on with what it took then, and nothing is probed.
    """
    if AUTO not in settings.source:
        return settings
    store = RunStore(settings.data_dir)
    if thread is not None and await asyncio.to_thread(store.holds, thread):
        request = await asyncio.to_thread(store.request, thread)
        return settings.model_copy(update={"source": tuple(request["choices"]["source"])})
    began = time.monotonic()
    found = await (answers or web_answers)()
    seconds = time.monotonic() - began
    listener(SourceProgress(_told(found, seconds)))
    taken = WEB if found else PYTHON
    names = dict.fromkeys(taken if name == AUTO else name for name in settings.source)
    return settings.model_copy(update={"source": tuple(names)})


def _told(found: bool, seconds: float) -> str:
    if found:
        return f"source: the web, which answered in {seconds:.1f} s"
    return (
        f"source: the Python libraries installed here, since the web did not answer in "
        f"{seconds:.1f} s; name another with --source"
    )


async def web_answers(addresses: Sequence[str] = PROBED, seconds: float = SECONDS) -> bool:
    """Whether any of the addresses answers without an error within so many seconds."""
    async with httpx.AsyncClient(timeout=seconds) as http:
        tries = [asyncio.create_task(_answers(http, address)) for address in addresses]
        try:
            for first in asyncio.as_completed(tries, timeout=seconds):
                if await first:
                    return True
        except TimeoutError:
            pass
        finally:
            for task in tries:
                task.cancel()
            await asyncio.gather(*tries, return_exceptions=True)
    return False


async def _answers(http: httpx.AsyncClient, address: str) -> bool:
    try:
        reply = await http.head(address)
    except httpx.HTTPError:
        return False
    return reply.is_success or reply.is_redirect
