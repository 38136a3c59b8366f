"""Sources beyond this machine: the web through ddgs, SearXNG or Tavily, papers, Wikipedia.

`Web` uses ddgs, which queries several public engines and parses what strangers sent: it runs in a
process that is ended after a time limit. `Scholar` (Semantic Scholar) gives a paper's abstract or
one-sentence summary; all callers share one allowance, so calls are made one at a time. arXiv may be
asked once in three seconds, PubMed (NCBI's E-utilities) three times a second without a key; both
answer in XML, which is read in a process apart.

A reply is read up to a size limit and a hard time limit; redirects are not followed. Results become
passages: only those with web addresses, each page and each text once.
"""

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Literal

import httpx2

from rubricem.agent.models.limits import (
    Endpoint,
    Retry,
    is_transient,
    parse_wait,
    shared_client,
    shared_limiter,
)
from rubricem.agent.sources.fetch import Fetched, normal, packing_of
from rubricem.agent.sources.index import without_near_duplicates
from rubricem.agent.sources.sandbox.pool import SEARCH_SECONDS, Job, readers, searchers
from rubricem.agent.transcript.words import Query, read_query
from rubricem.memory.errors import SettingsError, SourceError
from rubricem.memory.language import STOP_WORDS
from rubricem.memory.schema import Passage
from rubricem.memory.text import one_line

LONGEST = 8000
"""characters kept of one result's text"""
MOST_BYTES = 10_000_000
"""of a service's reply"""
QUOTED = 200
"""characters of a service's own words in an error"""
SECONDS = SEARCH_SECONDS
_TRACKING = ("utm_", "fbclid", "gclid", "msclkid", "mc_eid", "ref_src")
_LATER = "Search again later, or name another source."


def citable_passages(rows: Iterable[Passage], limit: int) -> list[Passage]:
    """Passages of the first `limit` rows that can be cited, each page and each text once."""
    seen: set[str] = set()
    kept: list[Passage] = []
    for row in rows:
        address = same_page(row.location)
        if address and row.text and address not in seen:
            seen.add(address)
            kept.append(row)
    return without_near_duplicates(kept, limit)


def row(title: object, address: object, text: object, place: str = "") -> Passage:
    """A passage from fields of a service's reply, which may be missing or of another type."""
    title, address, text = (
        " ".join(value[: 2 * LONGEST].split()) if isinstance(value, str) else ""
        for value in (title, address, text)
    )
    return Passage(title or address, address, place, (text or title)[:LONGEST])


def same_page(address: str) -> str:
    """A form that two addresses of one page share; "" if it is no web address."""
    base, _, query = normal(address).partition("?")
    # Without what only says where a visitor came from.
    told = [pair for pair in query.split("&") if not pair.lower().startswith(_TRACKING)]
    page = base.partition("://")[2].removeprefix("www.").rstrip("/")
    return f"{page}?{'&'.join(told)}" if page else ""


Rows = Sequence[dict[str, Any]]
AskEngines = Callable[[str, int], Awaitable[Rows]]
"""query, most results -> rows with `title`, `href` and `body`; [] if nothing matched"""

ENGINES_MEGABYTES = 512
"""for asking all of them at once, each in a thread"""


class Searched:
    """A search beyond this machine: what its `rows` give to a query becomes passages."""

    async def prepare(self) -> tuple[str, ...]:
        return ()

    async def search(self, query: str, limit: int) -> list[Passage]:
        asked = read_query(query)
        return citable_passages(await self.rows(asked, limit), limit) if asked.text else []

    async def rows(self, asked: Query, limit: int) -> Iterable[Passage]:
        """What the service tells. Raises SourceError."""
        raise NotImplementedError


class Web(Searched):
    """Its passages are the engines' excerpts of pages."""

    name = "web"

    def __init__(self, ask: AskEngines | None = None) -> None:
        self._ask = ask or ask_engines_apart

    async def rows(self, asked: Query, limit: int) -> Iterable[Passage]:
        try:
            rows = await asyncio.wait_for(self._ask(asked.text, limit), SECONDS)
        except TimeoutError as cause:
            late = f"The web search did not answer within {SECONDS:g} s."
            raise SourceError(late, _LATER) from cause
        return [row(r.get("title"), r.get("href"), r.get("body")) for r in rows]


async def ask_engines_apart(query: str, most: int) -> Rows:
    """The engines' results, requested and parsed in another process; raises SourceError."""
    asked = {"query": query, "most": most}
    job = Job("engines", "The web search", asked, megabytes=ENGINES_MEGABYTES, remedy=_LATER)
    rows: Rows = await searchers().read(job)
    return rows


class SearchRefused(SourceError):
    """The service answered with an HTTP error status."""

    def __init__(self, message: str, remedy: str, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(message, remedy)
        self.status = status
        self.headers = headers


@dataclass(frozen=True, slots=True)
class Service:
    """A search service: `name` and `url` for messages, headers for requests.

    `refusals`: message and remedy for HTTP statuses with a particular meaning for this service.
    `retry`: how often it is asked while it is busy, one caller at a time, `gap` seconds apart.
    """

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    refusals: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    retry: Retry | None = None
    gap: float = 0.0

    async def get(self, path: str, **asked: Any) -> dict[str, Any]:
        """The JSON object at a path; `params` are asked for, `json` is posted.

        Raises SourceError, and its subclass `SearchRefused` for an HTTP error status.
        """
        reply = await self._parse("json", await self.fetch(path, **asked))
        if not isinstance(reply, dict):
            raise self._garbled_reply()
        return reply

    async def rows(
        self, path: str, element: str, fields: Mapping[str, str], **asked: Any
    ) -> list[dict[str, list[str]]]:
        """Of a reply in XML: for each `element` the texts at the paths of its `fields`."""
        reply = await self.fetch(path, **asked)
        read = await self._parse("xml", reply, row=element, fields={**fields})
        return [dict(each) for each in read]

    async def fetch(self, path: str, **asked: Any) -> Fetched:
        """The reply at a path, asked for as `get` does."""
        if self.retry is None:
            return await self._fetch(path, asked)
        limiter = shared_limiter(self.url, 1)
        tried, waited = 0, 0.0
        while True:
            tried += 1
            async with limiter.slot():
                limiter.pause(self.gap)
                try:
                    return await self._fetch(path, asked)
                except SearchRefused as refused:
                    wait = self.retry.wait(tried, parse_wait(refused.headers), random.random())
                    waited += wait
                    last = tried == self.retry.tries or waited > self.retry.total
                    if last or not is_transient(refused.status):
                        raise
                    limiter.pause(wait)

    async def _fetch(self, path: str, asked: Mapping[str, Any]) -> Fetched:
        http = await shared_client(f"search {self.url}", _open_client, httpx2.AsyncClient.aclose)
        method, content = "POST" if "json" in asked else "GET", bytearray()
        call = http.stream(method, self.url + path, headers=self.headers, **asked)
        try:
            async with asyncio.timeout(SECONDS), call as reply:
                packing = packing_of(reply.headers)
                async for piece in reply.aiter_raw():
                    content += piece
                    if len(content) > MOST_BYTES:
                        raise self._garbled_reply()
        except TimeoutError as cause:
            late = f"{self.name} did not answer within {SECONDS:g} s."
            raise SourceError(late, _LATER) from cause
        except (httpx2.HTTPError, httpx2.InvalidURL) as cause:
            raise SourceError(
                f"{self.name} cannot be reached at {self.url}.",
                "Look whether it runs and whether this machine is connected, or name another "
                "source.",
            ) from cause
        read = Fetched(self.url, reply.headers.get("content-type", ""), bytes(content), packing)
        if not reply.is_success:
            told = None
            with suppress(SourceError):
                told = await self._parse("json", read)
            raise self._refusal(reply, told if isinstance(told, dict) else {})
        return read

    async def _parse(self, kind: Literal["json", "xml"], reply: Fetched, **more: Any) -> Any:
        asked = {"packing": reply.packing, "most": MOST_BYTES, **more}
        try:
            return await readers().read(Job(kind, "The reply", asked, reply.content))
        except SourceError:
            raise self._garbled_reply() from None

    def _garbled_reply(self) -> SourceError:
        return SourceError(
            f"What {self.url} sent is no search result of {self.name}.",
            "Correct its address, or name another source.",
        )

    def _refusal(self, reply: httpx2.Response, told: Mapping[str, Any]) -> SearchRefused:
        """The error, with the service's own words if a field of a JSON reply has them."""
        status = reply.status_code
        own = told.get("error") or told.get("message")
        words = " ".join(own.rstrip(".").split())[:QUOTED] if isinstance(own, str) else ""
        said = f": {words}" if words else ""
        usual = f"{self.name} refused the search (HTTP {status}){said}.", _LATER
        return SearchRefused(*self.refusals.get(status, usual), status, reply.headers)


def _open_client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        headers={
            "user-agent": "rubricem (research agent)",
            "accept": "application/json",
            # What arrives packed is unpacked under limits.
            "accept-encoding": "gzip",
        },
        # Searches of one program are nobody's session.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        timeout=None,  # `Service` has its own
        limits=httpx2.Limits(max_connections=1000),
    )


class SearXNG(Searched):
    """Its passages are the excerpts that the instance's engines show of pages."""

    name = "searxng"

    def __init__(self, address: str) -> None:
        """`address`: the instance's first page; it may contain a user and password.

        Raises SettingsError if it is no address.
        """
        place = self.place(address)
        headers = {"authorization": place.basic} if place.basic else {}
        # Two refusals that an instance's own settings cause, with the setting.
        refusals = {
            403: (
                f"SearXNG at {place.url} gives no JSON (HTTP 403).",
                "Add json to search.formats in its settings.yml, or use an instance of your own.",
            ),
            429: (
                f"SearXNG at {place.url} limits its callers (HTTP 429).",
                "Turn off its limiter for this machine, or search again later.",
            ),
        }
        self._service = Service("SearXNG", place.url, headers, refusals)

    @staticmethod
    def place(address: str) -> Endpoint:
        """What the address of an instance names. Raises SettingsError if it is none."""
        try:
            return Endpoint.parse(address)
        except SettingsError as cause:
            raise SettingsError(
                "The address of the SearXNG instance is not an http or https address.",
                "Write it like searxng:http://localhost:8080.",
            ) from cause

    async def prepare(self) -> tuple[str, ...]:
        """Raises SourceError if nothing answers, before a question is paid for."""
        with suppress(SearchRefused):  # instances without this page still answer searches
            await self._service.fetch("/healthz")
        return ()

    async def rows(self, asked: Query, limit: int) -> Iterable[Passage]:
        reply = await self._service.get("/search", params={"q": asked.text, "format": "json"})
        found = _results(reply, "content", "publishedDate")
        pairs = reply.get("unresponsive_engines")
        told = [p for p in pairs if isinstance(p, list)] if isinstance(pairs, list) else []
        failed = ", ".join(f"{pair[0]} ({pair[1]})" for pair in told if len(pair) == 2)
        if failed and not citable_passages(found, limit):
            raise SourceError(
                f"SearXNG found nothing, and these of its engines failed: "
                f"{one_line(failed, QUOTED)}.",
                "Search again later, or turn on other engines in its settings.yml.",
            )
        return found


MOST = 100
RETRY = Retry(tries=4, first=1.0, longest=8.0, total=20.0)


class Archive(Searched):
    """An archive of papers, whose passages are abstracts; all who ask it wait for one another."""

    named: tuple[str, str]
    """for messages, and where its interface is"""
    gap = 0.0
    """seconds between two requests"""

    def __init__(self, url: str = "", retry: Retry = RETRY, gap: float | None = None) -> None:
        name, usual = self.named
        busy = {429: (f"{name} limits its callers (HTTP 429).", _LATER)}
        gap = self.gap if gap is None else gap
        self._service = Service(name, url or usual, {}, busy, retry, gap)


RETURNED = "title,abstract,tldr,year,venue,authors,url,openAccessPdf,externalIds,fieldsOfStudy"


class Scholar(Archive):
    """Semantic Scholar's paper search."""

    name = "scholar"
    named = ("Semantic Scholar", "https://api.semanticscholar.org/graph/v1")

    async def rows(self, asked: Query, limit: int) -> Iterable[Passage]:
        # Terms with a hyphen match nothing there.
        params = {"query": " ".join(asked.text.replace("-", " ").split()), "fields": RETURNED}
        if asked.years:
            params["year"] = asked.years
        if asked.fields:
            params["fieldsOfStudy"] = ",".join(asked.fields)
        params["limit"] = str(min(limit, MOST))
        reply = await self._service.get("/paper/search", params=params)
        return map(_paper_passage, _objects_in(reply, "data"))


def _paper_passage(paper: dict[str, Any]) -> Passage:
    """Its place reads like "Vaswani et al., 2017, NeurIPS, https://www.semanticscholar.org/..."."""
    text = paper.get("abstract") or _at(paper, "tldr", "text")
    page, pdf = paper.get("url"), _at(paper, "openAccessPdf", "url")
    doi = _at(paper, "externalIds", "DOI")
    address = pdf or page or (f"https://doi.org/{doi}" if doi else "")
    who = [str(author["name"]) for author in _objects_in(paper, "authors") if author.get("name")]
    place = _told_of(who, paper.get("year"), paper.get("venue"), page if pdf else "")
    return row(paper.get("title"), address, text, place)


def _told_of(who: Sequence[str], *parts: object) -> str:
    """The authors of a paper, and what else is known of it."""
    names = " and ".join(who) if len(who) < 3 else f"{who[0]} et al."
    return ", ".join(str(part) for part in (names, *parts) if part)


def _at(reply: Any, *path: str) -> Any:
    """What stands at a path in a reply; None if it has another shape."""
    for name in path:
        reply = reply.get(name) if isinstance(reply, dict) else None
    return reply


def _objects_in(reply: Any, *path: str) -> list[dict[str, Any]]:
    """The objects of a list in a reply; empty if it has another shape."""
    found = _at(reply, *path)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _results(reply: Any, text: str, date: str) -> list[Passage]:
    """The pages of a reply, given its fields for text and date."""
    found = []
    for each in _objects_in(reply, "results"):
        told = each.get(date)
        note = f"published {told[:10]}" if isinstance(told, str) and told else ""
        found.append(replace(row(each.get("title"), each.get("url"), each.get(text)), date=note))
    return found


MOST_WORDS = 12
"""of a query to an archive, of which each narrows what is found"""
_ENTRY = {
    "title": "{*}title", "text": "{*}summary", "page": "{*}id", "date": "{*}published",
    "who": "{*}author/{*}name", "venue": "{*}journal_ref",
}  # fmt: skip
_ARTICLE = {
    "title": ".//ArticleTitle", "text": ".//Abstract/AbstractText", "id": "MedlineCitation/PMID",
    "who": ".//AuthorList/Author/LastName", "venue": ".//Journal/ISOAbbreviation",
    "date": ".//JournalIssue/PubDate/*",
}  # fmt: skip
Fields = dict[str, list[str]]
"""of a paper: the texts of each of its elements"""


def words_of(query: str) -> list[str]:
    """The words that an archive is asked for; a hyphen or a quotation mark would be its syntax."""
    words = re.findall(r"\w+", query)
    return ([w for w in words if w.lower() not in STOP_WORDS] or words)[:MOST_WORDS]


def years_of(asked: Query) -> tuple[str, str] | None:
    """First and last year; None: of any year."""
    first, until, last = asked.years.partition("-")
    return (first or "1900", last or ("2100" if until else first)) if asked.years else None


def archived(fields: Fields, address: str, page: str = "") -> Passage:
    """Its place reads like "Vaswani et al., 2017, Nat. Med., https://..."."""
    told = {name: " ".join(texts) for name, texts in fields.items()}
    year = re.search(r"\b(?:1[89]|20)\d\d\b", told["date"])
    place = _told_of(fields["who"], year[0] if year else "", *fields["venue"][:1], page)
    return row(told["title"], address, told["text"], place)


class ArXiv(Archive):
    """Abstracts, of papers that can be opened whole; by arXiv's interface, in Atom."""

    name, named, gap = "arxiv", ("arXiv", "https://export.arxiv.org/api"), 3.0

    async def rows(self, asked: Query, limit: int) -> Iterable[Passage]:
        found: list[Fields] = []
        for joint in (" AND ", " OR "):  # all of the words, or else any
            query = joint.join(f"all:{word}" for word in words_of(asked.text))
            if years := years_of(asked):
                query = f"({query}) AND submittedDate:[{years[0]}01010000 TO {years[1]}12312359]"
            wanted = {"search_query": query, "max_results": str(min(limit, MOST))}
            if found := await self._service.rows("/query", "entry", _ENTRY, params=wanted):
                break
        pages = [" ".join(each["page"]).replace("http://", "https://") for each in found]
        pairs = zip(found, pages, strict=True)
        return [archived(each, page.replace("/abs/", "/pdf/"), page) for each, page in pairs]


class PubMed(Archive):
    """Abstracts, by NCBI's E-utilities: what is found, and then the text of that."""

    name, named = "pubmed", ("PubMed", "https://eutils.ncbi.nlm.nih.gov/entrez/eutils")
    gap = 0.34

    async def rows(self, asked: Query, limit: int) -> Iterable[Passage]:
        usual = {"db": "pubmed", "tool": "rubricem"}
        wanted = {"term": " ".join(words_of(asked.text)), "retmax": str(min(limit, MOST))}
        wanted |= {"retmode": "json", "sort": "relevance", **usual}
        if years := years_of(asked):
            wanted |= {"datetype": "pdat", "mindate": years[0], "maxdate": years[1]}
        reply = await self._service.get("/esearch.fcgi", params=wanted)
        ids = _at(reply, "esearchresult", "idlist")
        if not isinstance(ids, list) or not ids:
            return []
        wanted = {"id": ",".join(map(str, ids)), "retmode": "xml", **usual}
        path, place = "/efetch.fcgi", "https://pubmed.ncbi.nlm.nih.gov/"
        found = await self._service.rows(path, "PubmedArticle", _ARTICLE, params=wanted)
        return [archived(each, f"{place}{' '.join(each['id'])}/") for each in found]


class Tavily(Searched):
    """Tavily's Search API (POST /search): what it extracts from a page for the query."""

    name = "tavily"

    def __init__(self, key: str | None, url: str = "https://api.tavily.com") -> None:
        """Raises SettingsError without a key."""
        if not key:
            raise SettingsError(
                "Tavily is asked with a key, and none is set.",
                "Set RUBRICEM_TAVILY_KEY, or tavily_key in rubricem.toml.",
            )
        refusals = {
            status: (f"Tavily refused the key (HTTP {status}).", "Correct RUBRICEM_TAVILY_KEY.")
            for status in (401, 403)
        }
        headers = {"authorization": f"Bearer {key}"}
        self._service = Service("Tavily", url, headers, refusals)

    async def rows(self, asked: Query, limit: int) -> Iterable[Passage]:
        body = {"query": asked.text, "max_results": min(limit, 20)}
        return _results(await self._service.get("/search", json=body), "content", "published_date")


class Wikipedia(Searched):
    """MediaWiki's search (action=query): passages are the beginnings of the articles found."""

    def __init__(self, language: str = "", url: str = "") -> None:
        """`language`: of the Wikipedia, as `de`. Raises SettingsError if it is no such name."""
        code = language or "en"
        if not re.fullmatch(r"[a-z][a-z-]{1,15}", code):
            raise SettingsError(
                f"{language!r} is no language of a Wikipedia.", "Write it like wikipedia:de."
            )
        self.name = f"wikipedia:{code}" if language else "wikipedia"
        self._service = Service("Wikipedia", url or f"https://{code}.wikipedia.org/w")

    async def rows(self, asked: Query, limit: int) -> Iterable[Passage]:
        params = {
            "action": "query", "format": "json", "formatversion": "2", "generator": "search",
            "gsrsearch": asked.text[:300], "gsrlimit": str(min(limit, 20)), "prop": "extracts|info",
            "exintro": "1", "explaintext": "1", "exlimit": "20", "inprop": "url",
        }  # fmt: skip
        pages = _objects_in(await self._service.get("/api.php", params=params), "query", "pages")
        # Pages come in no order; each says its rank.
        ranks = [(rank if isinstance(rank := p.get("index"), int) else 1 << 30) for p in pages]
        ranked = sorted(zip(ranks, pages, strict=True), key=lambda each: each[0])
        return [row(p.get("title"), p.get("fullurl"), p.get("extract")) for _, p in ranked]
