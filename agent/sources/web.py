"""The web, searched through ddgs: the package asks several public engines and merges what they say.

Its client is synchronous and may wait for one engine after another, each with a time-out of its
own, so it runs in a thread that is given up after a hard time limit. The thread is a daemon: a
search that hangs keeps neither the answer nor the end of the program waiting.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from agent.sources.query import read_query
from agent.sources.rows import found_passages, row
from memory.errors import SourceError
from memory.interfaces import Passage

Rows = Sequence[dict[str, Any]]
AskEngines = Callable[[str, int], Rows]
"""query, most results -> rows with `title`, `href` and `body`; [] where nothing matched"""

SECONDS = 20.0
ENGINE_SECONDS = 8
"""time-out of one request to one engine"""
_NOTHING = "No results found."
"""ddgs raises this for an empty result"""


class Web:
    """Passages are the engines' excerpts of pages."""

    name = "web"

    def __init__(self, ask: AskEngines | None = None, seconds: float = SECONDS) -> None:
        self._ask = ask or ask_engines
        self._seconds = seconds

    async def prepare(self) -> tuple[str, ...]:
        return ()

    async def search(self, query: str, limit: int) -> list[Passage]:
        words = read_query(query).text
        if not words:
            return []
        try:
            rows = await asyncio.wait_for(in_thread(self._ask, words, limit), self._seconds)
        except TimeoutError as cause:
            raise SourceError(
                f"The web search did not answer within {self._seconds:g} s.",
                "Search again later, or name another source.",
            ) from cause
        found = (row(r.get("title"), r.get("href"), r.get("body")) for r in rows)
        return found_passages(found, limit)


class Client(Protocol):
    """What is used of ddgs.DDGS."""

    def text(self, query: str, **options: Any) -> list[dict[str, Any]]: ...


def ask_engines(query: str, most: int, client: Client | None = None) -> Rows:
    """Ask the engines; SourceError where they failed, [] where none of them found anything.

    An engine that refuses its callers looks to ddgs like one that found nothing.
    """
    from ddgs import DDGS
    from ddgs.exceptions import DDGSException, TimeoutException

    asked: Client = client or DDGS(timeout=ENGINE_SECONDS)
    try:
        return asked.text(query, max_results=most)
    except TimeoutException as cause:
        raise SourceError(
            "The engines of the web search did not answer in time.",
            "Search again later, or name another source.",
        ) from cause
    except DDGSException as cause:
        if str(cause) == _NOTHING:
            return []
        raise SourceError(
            "The web search failed: no engine gave a result, and not all of them could be asked.",
            "Look whether this machine is connected, or name another source.",
        ) from cause


async def in_thread(call: Callable[[str, int], Rows], query: str, most: int) -> Rows:
    """The call's result, from a thread that nothing waits for once this is cancelled."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Rows] = loop.create_future()

    def settle(result: Rows | Exception) -> None:
        if done.done():
            return
        if isinstance(result, Exception):
            done.set_exception(result)
        else:
            done.set_result(result)

    def run() -> None:
        result: Rows | Exception
        try:
            result = call(query, most)
        except Exception as error:
            result = error
        # The loop may be closed by the time that a search given up comes back.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=run, name="web-search", daemon=True).start()
    return await done
