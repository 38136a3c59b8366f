"""The web search on rows in the shape that ddgs returns: title, href, body."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from ddgs.base import BaseSearchEngine
from ddgs.ddgs import DDGS
from ddgs.engines.duckduckgo import Duckduckgo
from ddgs.exceptions import DDGSException, TimeoutException

from agent.sources.web import Rows, Web, ask_engines
from memory.errors import SourceError
from tests.json_site import Answer, json_site
from tests.waiting import PATIENCE

ROWS: list[dict[str, Any]] = [
    {
        "title": "Waggle dance - Wikipedia",
        "href": "https://en.wikipedia.org/wiki/Waggle_dance",
        "body": "Waggle dance is a term used in beekeeping for a figure-eight dance.",
    },
    {
        "title": "Waggle dance",
        "href": "https://en.wikipedia.org/wiki/Waggle_dance#History",
        "body": "Karl von Frisch was one of the first who translated its meaning.",
    },
    {"title": "Beekeeping", "href": "https://bees.example/keeping", "body": "Hives need shade."},
    {"title": "No address", "href": "", "body": "An advertisement."},
]


class Engines:
    """Stands in for the engines, and remembers what they were asked."""

    def __init__(self, answer: Callable[[], Rows] = lambda: ROWS) -> None:
        self.answer = answer
        self.asked: list[tuple[str, int]] = []

    def __call__(self, query: str, most: int) -> Rows:
        self.asked.append((query, most))
        return self.answer()


async def test_rows_become_passages_each_page_once() -> None:
    engines = Engines()
    found = await Web(engines).search("bee dance year:2019", 5)
    assert [(p.title, p.location) for p in found] == [
        ("Waggle dance - Wikipedia", "https://en.wikipedia.org/wiki/Waggle_dance"),
        ("Beekeeping", "https://bees.example/keeping"),
    ]
    assert found[0].text.startswith("Waggle dance is a term")
    assert engines.asked == [("bee dance", 5)]


async def test_nothing_found_is_an_empty_list_and_no_words_ask_nobody() -> None:
    engines = Engines(lambda: [])
    assert await Web(engines).search("bees", 5) == []
    assert await Web(engines).search("year:2019", 5) == []
    assert len(engines.asked) == 1


async def test_a_failure_of_the_engines_is_a_failure_of_the_search() -> None:
    def fail() -> Rows:
        raise SourceError("no engine", "connect")

    with pytest.raises(SourceError, match="no engine"):
        await Web(Engines(fail)).search("bees", 5)


async def test_a_search_that_hangs_is_given_up_in_time_and_holds_nothing_up() -> None:
    free = threading.Event()

    def hang() -> Rows:
        free.wait(PATIENCE)
        return ROWS

    began = time.monotonic()
    with pytest.raises(SourceError, match=r"did not answer within 0\.05 s") as caught:
        await Web(Engines(hang), seconds=0.05).search("bees", 5)
    assert time.monotonic() - began < 60
    assert caught.value.remedy
    (left,) = [thread for thread in threading.enumerate() if thread.name == "web-search"]
    assert left.daemon
    free.set()
    await asyncio.to_thread(left.join)


async def test_other_work_goes_on_while_the_web_is_searched() -> None:
    gate = threading.Event()

    def wait() -> Rows:
        gate.wait(PATIENCE)
        return ROWS

    searching = asyncio.create_task(Web(Engines(wait)).search("bees", 5))
    await asyncio.sleep(0)
    gate.set()
    assert len(await searching) == 2


class Client:
    """Stands in for ddgs where the network would be needed."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def text(self, query: str, **options: Any) -> list[dict[str, Any]]:
        assert (query, options) == ("bees", {"max_results": 5})
        raise self.error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (TimeoutException("timed out"), "did not answer in time"),
        (DDGSException("RuntimeError: connection reset"), "no engine gave a result"),
    ],
)
def test_the_engines_own_errors_are_sentences_without_their_internals(
    error: Exception, message: str
) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        ask_engines("bees", 5, Client(error))
    assert caught.value.remedy
    assert "RuntimeError" not in str(caught.value)


class Loopback(Duckduckgo):
    """An engine of the installed package that asks a page of ours."""

    search_method = "GET"


class LocalClient(DDGS):
    """The installed client itself, with one engine."""

    def __init__(self, url: str) -> None:
        super().__init__(timeout=60)
        self.url = url

    def _get_engines(self, category: str, backend: str) -> list[BaseSearchEngine[Any]]:
        engine = Loopback(timeout=60)
        engine.search_url = self.url
        return [engine]


def result(title: str, address: str, body: str) -> str:
    link = f"<h2><a href='{address}'>{title}</a></h2><a href='{address}'>{body}</a>"
    return f"<div class='result results_links'><div class='links_main body'>{link}</div></div>"


async def test_the_installed_client_reads_the_engines_page() -> None:
    page = result("Waggle dance", "https://bees.example/dance", "Bees <b>dance</b> in eights.")
    with json_site(Answer(f"<html><body>{page}</body></html>".encode())) as site:
        client = LocalClient(site.url)
        found = await Web(lambda words, most: ask_engines(words, most, client)).search("bees", 5)
        assert site.asked[0].params["q"] == "bees"
    assert [(p.title, p.location, p.text) for p in found] == [
        ("Waggle dance", "https://bees.example/dance", "Bees dance in eights.")
    ]


def test_the_installed_clients_way_of_finding_nothing_is_no_error() -> None:
    with json_site(Answer(b"<html><body>no results</body></html>")) as site:
        assert ask_engines("bees", 5, LocalClient(site.url)) == []


def test_the_installed_client_without_a_connection_is_an_error() -> None:
    with json_site(Answer(b"")) as site:
        client = LocalClient(site.url)
    with pytest.raises(SourceError, match="no engine gave a result"):
        ask_engines("bees", 5, client)
