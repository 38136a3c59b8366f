"""The web search on rows in the shape that ddgs returns: title, href, body.

SearXNG on replies in the shape of its JSON search API, served on loopback.

Semantic Scholar on replies in the shape of its paper search, served on loopback.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from ddgs.base import BaseSearchEngine
from ddgs.ddgs import DDGS
from ddgs.engines.duckduckgo import Duckduckgo

from rubricem.agent.models.limits import Retry
from rubricem.agent.sources.sandbox.web_text import ask_engines
from rubricem.agent.sources.web import (
    ArXiv,
    PubMed,
    Rows,
    Scholar,
    SearXNG,
    Tavily,
    Web,
    Wikipedia,
    same_page,
)
from rubricem.memory.errors import SettingsError, SourceError
from rubricem.memory.schema import Passage
from tests.support.sites import JsonSite, Sent
from tests.support.waiting import PATIENCE

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
    {"title": "Copy", "href": "https://copy.example/", "body": "Hives need shade."},
    {"title": "No address", "href": "", "body": "An advertisement."},
]


async def test_rows_become_passages_each_page_and_each_text_once() -> None:
    asked: list[tuple[str, int]] = []

    async def ask(query: str, most: int) -> Rows:
        asked.append((query, most))
        return ROWS

    found = await Web(ask).search("bee dance year:2019", 5)
    assert [(p.title, p.location) for p in found] == [
        ("Waggle dance - Wikipedia", "https://en.wikipedia.org/wiki/Waggle_dance"),
        ("Beekeeping", "https://bees.example/keeping"),
    ]
    assert found[0].text.startswith("Waggle dance is a term")
    assert len(await Web(ask).search("bee dance", 1)) == 1
    assert asked == [("bee dance", 5), ("bee dance", 1)]


async def test_a_search_that_hangs_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rubricem.agent.sources.web.SECONDS", 0.05)

    async def hang(query: str, most: int) -> Rows:
        await asyncio.sleep(PATIENCE)
        return ROWS

    with pytest.raises(SourceError, match=r"did not answer within 0\.05 s") as caught:
        await Web(hang).search("bees", 5)
    assert caught.value.remedy


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
    with JsonSite(Sent(f"<html><body>{page}</body></html>".encode())) as site:
        client = LocalClient(site.url)

        async def ask(words: str, most: int) -> Rows:
            return ask_engines(words, most, client)

        found = await Web(ask).search("bees", 5)
        assert site.asked[0].params["q"] == "bees"
    assert [(p.title, p.location, p.text) for p in found] == [
        ("Waggle dance", "https://bees.example/dance", "Bees dance in eights.")
    ]


ROW: dict[str, Any] = {
    "url": "https://en.wikipedia.org/wiki/Waggle_dance",
    "title": "Waggle dance",
    "content": "A term used in beekeeping\nfor a figure-eight dance.",
    "publishedDate": "2019-05-01T00:00:00",
}


def reply(*rows: Any, **more: Any) -> Sent:
    return Sent({"query": "q", "results": list(rows), "unresponsive_engines": [], **more})


async def test_rows_become_passages_with_address_and_date() -> None:
    other = {"url": "https://bees.example/", "title": "Bees", "content": "Hives need shade."}
    with JsonSite(reply(ROW, {**ROW, "engine": "brave"}, other)) as site:
        found = await SearXNG(f"{site.url}/").search("bee dance year:2019", 5)
        (asked,) = site.asked
    assert (asked.path, asked.params) == ("/search", {"q": "bee dance", "format": "json"})
    assert [p.location for p in found] == [ROW["url"], "https://bees.example/"]
    assert [p.date for p in found] == ["published 2019-05-01", ""]
    assert found[0].text == "A term used in beekeeping for a figure-eight dance."


@pytest.mark.parametrize(
    "answer", [Sent({}, delay=0.5), Sent(b" " * 100, byte_by_byte=True, seconds=0.02)]
)
async def test_a_service_that_is_silent_or_drips_is_given_up_in_time(
    answer: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rubricem.agent.sources.web.SECONDS", 0.1)
    with (
        JsonSite(answer) as site,
        pytest.raises(SourceError, match=r"SearXNG did not answer within 0\.1 s"),
    ):
        await SearXNG(site.url).search("bees", 5)


async def test_a_password_in_the_address_is_sent() -> None:
    with JsonSite(reply()) as site:
        await SearXNG(site.url.replace("//", "//ann:hunter2@")).search("bees", 5)
        (asked,) = site.asked
    assert asked.headers["authorization"] == "Basic YW5uOmh1bnRlcjI="


PAGE = "https://www.semanticscholar.org/paper/204e3073870fae3d05bcbc2f6a8e263d9b72e776"
PAPER: dict[str, Any] = {
    "externalIds": {"ArXiv": "1706.03762"},
    "url": PAGE,
    "title": "Attention is All you Need",
    "venue": "Neural Information Processing Systems",
    "year": 2017,
    "openAccessPdf": {"url": "https://arxiv.org/pdf/1706.03762", "status": "GREEN"},
    "fieldsOfStudy": ["Computer Science"],
    "tldr": {"model": "tldr@v2.0.0", "text": "A new simple network architecture."},
    "authors": [{"name": "Ashish Vaswani"}, {"name": "Noam M. Shazeer"}, {"name": "Niki Parmar"}],
    "abstract": "The dominant sequence transduction models are based on complex networks.",
}
CLOSED: dict[str, Any] = {
    "externalIds": {"DOI": "10.1000/bees"},
    "url": "https://www.semanticscholar.org/paper/b1",
    "title": "How bees dance",
    "venue": "",
    "year": None,
    "openAccessPdf": None,
    "tldr": {"model": "tldr@v2.0.0", "text": "Bees dance to tell where food is."},
    "authors": [{"authorId": "1", "name": "K. Frisch"}, {"authorId": "2", "name": "M. Lindauer"}],
    "abstract": None,
}
LIMITED = Sent({"message": "Too Many Requests. Please wait.", "code": "429"}, 429)
SOON = Retry(tries=3, first=0.01, longest=0.02, total=1.0)


def paper(*papers: dict[str, Any]) -> Sent:
    return Sent({"total": len(papers), "offset": 0, "data": list(papers)})


def scholar(site: JsonSite) -> Scholar:
    return Scholar(site.url, retry=SOON)


BARE = {"paperId": "b1", "title": "How bees dance", "externalIds": {"DOI": "10.1000/bees"}}


@pytest.mark.parametrize(
    ("given", "location", "place", "text"),
    [
        (PAPER, "https://arxiv.org/pdf/1706.03762",
         f"Ashish Vaswani et al., 2017, Neural Information Processing Systems, {PAGE}",
         PAPER["abstract"]),
        (CLOSED, CLOSED["url"], "K. Frisch and M. Lindauer", "Bees dance to tell where food is."),
        (BARE, "https://doi.org/10.1000/bees", "", "How bees dance"),
    ],
    ids=["all is known", "summary and page stand in", "DOI and title stand in"],
)  # fmt: skip
async def test_a_paper_keeps_what_is_known_of_addresses_authors_year_and_venue(
    given: dict[str, Any], location: str, place: str, text: str
) -> None:
    with JsonSite(paper(given)) as site:
        (found,) = await scholar(site).search("bees", 5)
    assert found == Passage(given["title"], location, place, text)


async def test_years_and_fields_are_passed_through_and_hyphens_are_not() -> None:
    query = 'self-attention year:2017-2020 field:"Computer Science,Biology"'
    with JsonSite(paper(PAPER)) as site:
        await scholar(site).search(query, 500)
        (asked,) = site.asked
    assert asked.path == "/paper/search"
    fields = asked.params.pop("fields").split(",")
    assert {"title", "abstract", "url", "openAccessPdf", "year"} <= set(fields)
    assert asked.params == {
        "query": "self attention",
        "year": "2017-2020",
        "fieldsOfStudy": "Computer Science,Biology",
        "limit": "100",
    }


async def test_a_service_that_limits_its_callers_is_asked_again_after_its_wait() -> None:
    wait = Sent(LIMITED.body, 429, {"retry-after-ms": "100"})
    with JsonSite(wait, Sent(b"", 503), paper(PAPER)) as site:
        began = time.monotonic()
        assert len(await scholar(site).search("bees", 5)) == 1
        assert len(site.asked) == 3
    assert time.monotonic() - began > 0.1


DANCE = "https://en.wikipedia.org/wiki/Waggle_dance"
EXTRACT = {"title": "Waggle dance", "url": DANCE, "content": "A figure-eight dance.", "score": 0.9,
           "published_date": "2019-05-01T00:00:00Z"}  # fmt: skip


async def test_what_tavily_finds_and_what_it_is_sent() -> None:
    with JsonSite(Sent({"query": "bees", "results": [EXTRACT, "x"]})) as site:
        found = await Tavily("sk-secret", site.url).search("bee dance year:2019", 5)
        (asked,) = site.asked
    assert found == [
        Passage("Waggle dance", DANCE, "", "A figure-eight dance.", date="published 2019-05-01")
    ]
    assert (asked.path, asked.body) == ("/search", {"query": "bee dance", "max_results": 5})
    assert asked.headers["authorization"] == "Bearer sk-secret"


def searxng(site: JsonSite) -> SearXNG:
    return SearXNG(site.url.replace("//", "//ann:s3cret@"))


def tavily(site: JsonSite) -> Tavily:
    return Tavily("s3cret", site.url)


FAILED = [["google", "Suspended: CAPTCHA"], ["brave", "timeout"]]
MOVED = Sent(b"", 302, {"location": "http://10.0.0.1/"})
UNKNOWN = Sent({"error": "Unrecognized or unsupported fields: [x]"}, 400)


@pytest.mark.parametrize(
    ("tool", "answer", "times", "message", "remedy"),
    [
        (searxng, Sent({}, 401), 1, r"refused the search \(HTTP 401\)", "later"),
        (searxng, Sent(b"<h1>No</h1>", 403), 1, r"gives no JSON \(HTTP 403\)", "search.formats"),
        (searxng, Sent(b"", 429), 1, r"limits its callers \(HTTP 429\)", "limiter"),
        (searxng, Sent(b"oops", 500), 1, r"refused the search \(HTTP 500\)", "another source"),
        (searxng, MOVED, 1, r"\(HTTP 302\)", "another source"),
        (searxng, Sent(b"<html>welcome</html>"), 1, "no search result of SearXNG", "address"),
        (searxng, Sent(b" " * 10_000_001), 1, "no search result of SearXNG", "address"),
        (searxng, reply(unresponsive_engines=FAILED), 1, r"google \(Suspended: CAPTCHA\), brave",
         "engines"),
        (scholar, LIMITED, 3, r"limits its callers \(HTTP 429\)", "later"),
        (scholar, Sent(LIMITED.body, 429, {"retry-after": "3600"}), 1, "limits its", "later"),
        (scholar, UNKNOWN, 1, r"\(HTTP 400\): Unrecognized or unsupported fields", "later"),
        (tavily, Sent({"detail": "no"}, 401), 1, "refused the key", "RUBRICEM_TAVILY_KEY"),
        (tavily, Sent({"error": "slow down"}, 429), 1, "slow down", "later"),
        (tavily, Sent(b"<html>"), 1, "no search result of Tavily", "address"),
    ],
)  # fmt: skip
async def test_a_failure_is_a_sentence_and_a_remedy_without_the_key_repeated_only_while_it_may_pass(
    tool: Callable[[JsonSite], Any], answer: Sent, times: int, message: str, remedy: str
) -> None:
    with JsonSite(answer) as site:
        asking = tool(site)
        with pytest.raises(SourceError, match=message) as caught:
            await asking.search("bees", 5)
        assert len(site.asked) == times
    assert remedy in caught.value.remedy
    assert "s3cret" not in f"{caught.value} {caught.value.remedy} {asking._service!r}"


def test_without_its_key_tavily_is_not_asked() -> None:
    with pytest.raises(SettingsError, match="none is set") as missing:
        Tavily(None)
    assert "RUBRICEM_TAVILY_KEY" in missing.value.remedy


async def test_wikipedia_gives_the_beginnings_of_articles_in_the_order_of_their_rank() -> None:
    pages = [
        {"index": 2, "title": "Honey", "fullurl": "https://de.wikipedia.org/wiki/Honig",
         "extract": "Honig ist süß."},
        {"index": 1, "title": "Tanz", "fullurl": "https://de.wikipedia.org/wiki/Tanz",
         "extract": "Bienen tanzen."},
        {"title": "Stub", "fullurl": "https://de.wikipedia.org/wiki/Stub"},
    ]  # fmt: skip
    with JsonSite(Sent({"query": {"pages": pages}})) as site:
        tool = Wikipedia("de", site.url)
        found = await tool.search("Bienentanz", 2)
        (asked,) = site.asked
    assert [p.text for p in found] == ["Bienen tanzen.", "Honig ist süß."]
    assert (tool.name, asked.path, asked.params["gsrsearch"]) == (
        "wikipedia:de", "/api.php", "Bienentanz",
    )  # fmt: skip
    with JsonSite(Sent({"batchcomplete": True})) as site:
        assert await Wikipedia("", site.url).search("nothing", 5) == []
    with pytest.raises(SettingsError, match="no language"):
        Wikipedia("../x")


def test_a_page_is_one_page_however_it_was_come_by_and_what_is_no_web_address_none() -> None:
    plain = same_page("https://bees.org/dance?id=7")
    assert same_page("http://www.bees.org/dance/?utm_source=x&id=7&fbclid=y#top") == plain
    assert same_page("https://bees.org/dance?id=8") != plain
    assert same_page("https://bees.org:8443/dance?id=7") != plain
    for address in ("", "javascript:alert(1)", "file:///a", "/dance", "http://", "http://[::1"):
        assert same_page(address) == ""


FEED = """<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom" xmlns:arxiv="http://arxiv.org/schemas/atom">
  <title>arXiv Query</title>
  <entry>
    <id>http://arxiv.org/abs/2301.00001v2</id><published>2023-01-01T00:00:00Z</published>
    <title>How bees
      dance</title><summary>  Bees dance in eights of
      &lt;10 cm. </summary>
    <author><name>Ann Beck</name></author><author><name>Bo Carl</name></author>
    <author><name>Di Eck</name></author><arxiv:journal_ref>J. Bees 4</arxiv:journal_ref>
  </entry>
</feed>"""
NONE = '<feed xmlns="http://www.w3.org/2005/Atom"><title>arXiv Query</title></feed>'
ARTICLES = """<?xml version="1.0"?>
<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD" "http://127.0.0.1:9/no.dtd" [<!ENTITY e "x">]>
<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID Version="1">38000001</PMID><Article>
<Journal><JournalIssue><PubDate><MedlineDate>2024 Mar-Apr</MedlineDate></PubDate></JournalIssue>
<Title>Bees</Title><ISOAbbreviation>J Bees</ISOAbbreviation></Journal>
<ArticleTitle>Dance of <i>Apis</i>.</ArticleTitle><Abstract>
<AbstractText Label="AIM">Why they dance.</AbstractText>
<AbstractText>They tell&e; where.</AbstractText>
</Abstract><AuthorList><Author><LastName>Beck</LastName></Author></AuthorList></Article>
</MedlineCitation></PubmedArticle></PubmedArticleSet>"""


async def test_arxiv_is_asked_for_all_words_and_then_for_any() -> None:
    with JsonSite(Sent(NONE), Sent(FEED)) as site:
        found = await ArXiv(site.url, gap=0.0).search('"bee-dance" of AND year:2019-2021', 500)
    assert [asked.params["search_query"] for asked in site.asked] == [
        f"({words}) AND submittedDate:[201901010000 TO 202112312359]"
        for words in ("all:bee AND all:dance", "all:bee OR all:dance")
    ]
    assert {asked.params["max_results"] for asked in site.asked} == {"100"}
    place = "Ann Beck et al., 2023, J. Bees 4, https://arxiv.org/abs/2301.00001v2"
    pdf = "https://arxiv.org/pdf/2301.00001v2"
    assert found == [Passage("How bees dance", pdf, place, "Bees dance in eights of <10 cm.")]


async def test_pubmed_is_asked_for_the_abstracts_of_what_it_found() -> None:
    ids, none = ({"esearchresult": {"idlist": each}} for each in (["38000001"], []))
    with JsonSite(Sent(ids), Sent(ARTICLES), Sent(none), Sent({"error": 3})) as site:
        pubmed = PubMed(site.url, gap=0.0)
        (found,) = await pubmed.search("bee dance year:2020-", 5)
        assert [await pubmed.search("wasps", 5) for _ in range(2)] == [[], []]
    first, second, *_ = site.asked
    assert (first.path, second.path) == ("/esearch.fcgi", "/efetch.fcgi")
    assert (first.params["term"], first.params["mindate"]) == ("bee dance", "2020")
    assert second.params["id"] == "38000001" and second.params["tool"] == "rubricem"
    address = "https://pubmed.ncbi.nlm.nih.gov/38000001/"
    text = "Why they dance. They tell&e; where."  # what is declared is not put in
    assert found == Passage("Dance of Apis.", address, "Beck, 2024, J Bees", text)


async def test_archives_are_asked_no_faster_than_they_allow_and_say_what_is_wrong() -> None:
    with JsonSite(Sent(FEED), Sent(FEED), Sent("<html>", status=503), Sent("no XML")) as site:
        archive, began = ArXiv(site.url, retry=SOON, gap=0.2), time.monotonic()
        await asyncio.gather(archive.search("bees", 5), archive.search("wasps", 5))
        assert time.monotonic() - began >= 0.2
        with pytest.raises(SourceError, match="no search result of arXiv"):
            await archive.search("ants", 5)
    assert len(site.asked) == 4
