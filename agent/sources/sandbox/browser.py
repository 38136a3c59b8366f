"""Pages that are drawn by scripts, read as a browser has drawn them, if one is installed.

The browser reaches nothing by itself: no name resolves for it, its proxy is a closed door, and each
request of a page is answered here, from what the fetcher gives: documents, scripts and data of
public hosts and of the page's own. Nothing is posted, and no cookie, worker or download is kept.
What was drawn is then read like any page, in the reading process.
"""

import asyncio
import os
import shutil
from contextlib import suppress
from functools import cache
from typing import Any

from rubricem.agent.models.limits import shared_client
from rubricem.agent.sources.sandbox.worker import Unread, decompress
from rubricem.memory.errors import SourceError
from rubricem.memory.text import one_line

SECONDS, QUIET_SECONDS = 20.0, 6.0
"""for a page; until no request of it is under way any more"""
PAGES, MOST_REQUESTS = 2, 80
"""drawn at once; answered for one page"""
TAKEN = frozenset({"document", "script", "xhr", "fetch"})
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "SYSTEMROOT", "LD_LIBRARY_PATH", "HOME")
"""of the environment: a browser needs no keys"""
CLOSED = "http://127.0.0.1:9"
ARGUMENTS = (
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--proxy-bypass-list=<-loopback>",
)


@cache
def browser_path() -> str | None:
    """The browser's program; None if there is none, or the extra `browser` is not installed."""
    from importlib.util import find_spec

    found = filter(None, map(shutil.which, NAMES))
    return next(found, None) if find_spec("playwright") else None


class Browser:
    """One process of a browser, begun with the first page and ended with the event loop."""

    def __init__(self) -> None:
        self._places, self._lock = asyncio.Semaphore(PAGES), asyncio.Lock()
        self._driver: Any = None
        self._process: Any = None

    async def draw(self, address: str, fetcher: Any) -> bytes:
        """The HTML of a page once its scripts have drawn it; `fetcher`: a `Fetcher` for all of it.

        Raises SourceError.
        """
        from playwright.async_api import Error

        try:
            async with self._places, asyncio.timeout(SECONDS):
                process = await self._open()
                context = await process.new_context(service_workers="block", accept_downloads=False)
                try:
                    return await self._draw(context, address, fetcher)
                finally:
                    await context.close()
        except TimeoutError as cause:
            raise SourceError(f"The page was not drawn within {SECONDS:g} s.") from cause
        except Error as cause:
            said = one_line(cause.message, 200)
            raise SourceError(f"The browser could not draw the page: {said}.") from cause

    async def _draw(self, context: Any, address: str, fetcher: Any) -> bytes:
        from playwright.async_api import Error

        left = MOST_REQUESTS

        async def answer(route: Any) -> None:
            nonlocal left
            asked, left = route.request, left - 1
            try:
                if asked.method != "GET" or asked.resource_type not in TAKEN or left < 0:
                    raise SourceError("It is not taken.")
                got = await fetcher.fetch(asked.url)
                most = fetcher.limits.bytes
                body = await asyncio.to_thread(decompress, got.content, got.packing, most)
                told = {"content-type": got.content_type, "access-control-allow-origin": "*"}
                await route.fulfill(status=200, headers=told, body=body)
            except (SourceError, Unread):
                with suppress(Error):
                    await route.abort()

        await context.route("**/*", answer)
        await context.route_web_socket("**/*", lambda socket: socket.close())
        page = await context.new_page()
        await page.goto(address, wait_until="domcontentloaded")
        with suppress(Error):
            await page.wait_for_load_state("networkidle", timeout=1000 * QUIET_SECONDS)
        drawn: str = await page.content()
        if len(content := drawn.encode(errors="replace")) > fetcher.limits.bytes:
            raise SourceError(f"What was drawn is larger than {fetcher.limits.megabytes} MB.")
        return content

    async def _open(self) -> Any:
        from playwright.async_api import async_playwright

        async with self._lock:
            if self._process is None or not self._process.is_connected():
                self._driver = self._driver or await async_playwright().start()
                self._process = await self._driver.chromium.launch(
                    executable_path=browser_path(),
                    args=[*ARGUMENTS],
                    proxy={"server": CLOSED},
                    # A browser's own sandbox refuses to work for the superuser.
                    chromium_sandbox=os.geteuid() != 0,
                    env={name: os.environ[name] for name in KEPT if name in os.environ},
                )
            return self._process

    async def aclose(self) -> None:
        if self._driver is not None:
            await self._driver.stop()


async def draw(address: str, fetcher: Any) -> bytes:
    """As of `Browser.draw`, by this event loop's browser."""
    browser = await shared_client("browser", Browser, Browser.aclose)
    return await browser.draw(address, fetcher)
