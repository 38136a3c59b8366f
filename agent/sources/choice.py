"""What a source name refers to: a source of this machine, a service or a package, or a folder.

Packages provide their own sources through the entry points `rubricem.sources`. A folder with the
name of a source is given by its path, as in `./web`. Several sources are searched as one, at the
same time, and their passages are ranked together.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rubricem.agent.models.opening import OWN, given
from rubricem.agent.models.tracing import untold
from rubricem.agent.sources.documents import Folder, fetch_repository
from rubricem.agent.sources.fetch import SENDING, Outward, OutwardPages, WebPages
from rubricem.agent.sources.index import (
    Indexed,
    JointIndex,
    LexicalIndex,
    OnProgress,
    around,
    matched_text,
    page,
    services,
    sources_in,
    without_near_duplicates,
)
from rubricem.agent.sources.libraries import PythonDocs
from rubricem.agent.sources.past import PastRuns
from rubricem.agent.sources.tool_server import ToolServer
from rubricem.agent.sources.web import (
    ArXiv,
    PubMed,
    Scholar,
    SearXNG,
    Tavily,
    Web,
    Wikipedia,
)
from rubricem.agent.transcript.events import Tell, hush
from rubricem.agent.transcript.question import PUBLIC
from rubricem.agent.transcript.words import read_query
from rubricem.memory.errors import RubricemError, SettingsError, SourceError
from rubricem.memory.parts import own_part, parts_of
from rubricem.memory.schema import (
    NOT_SHOWN,
    Embedder,
    Passage,
    SearchTool,
    ShownTexts,
)
from rubricem.memory.text import digest_of, one_line, storable

PYTHON = "python"
HISTORY = "history"
WEB = "web"
SCHOLAR = "scholar"
PAPERS = (SCHOLAR, ArXiv.name, PubMed.name)
"""what searches papers, whose passages are abstracts"""
SEARXNG = "searxng:"
GIT = "git:"
WIKIPEDIA = "wikipedia"
TAVILY = Tavily.name
KEYLESS = {kind.name: kind for kind in (Web, Scholar, ArXiv, PubMed)}
SERVICES = (WEB, *PAPERS, WIKIPEDIA, TAVILY)
"""beyond this machine, except for self-hosted instances"""
COLLECTION = "@"
"""before the name of a set of sources"""
UPLOADS, UPLOADED = "uploads", "upload:"
"""the folder of the data directory whose folders are sources, and what precedes their names"""
AUTO = "auto"
"""the web if it answers, else `python`"""

ALLOWED = (
    "A source is `python` (the libraries installed here), `web`, `scholar`, `arxiv`, `pubmed`, "
    "`wikipedia` (or `wikipedia:de`), `tavily`, `searxng:URL`, `git:URL`, `history` (earlier "
    "runs), `auto`, `@NAME` (a collection), a name that an installed package adds, or an existing "
    "folder with md, txt, rst, html, pdf, docx, pptx, xlsx, epub or csv files."
)

PROBED = ("https://duckduckgo.com/", "https://www.wikipedia.org/")
"""two of the services that the web search uses; one that answers is enough"""
SECONDS = 2.0


async def web_answers(addresses: Sequence[str] = PROBED, seconds: float = SECONDS) -> bool:
    """Whether any of the addresses answers without an error within so many seconds."""
    import httpx2

    async def answers(address: str) -> bool:
        try:
            reply = await http.head(address)
        except httpx2.HTTPError:
            return False
        return reply.is_success or reply.is_redirect

    async with httpx2.AsyncClient(timeout=seconds) as http:
        return any(await asyncio.gather(*map(answers, addresses)))


def is_beyond(name: str) -> bool:
    """Whether its passages are beyond this machine, under addresses that can be opened."""
    return name in SERVICES or name.startswith((SEARXNG, f"{WIKIPEDIA}:"))


def finds_pages(name: str) -> bool:
    """Whether what it finds are pages of the web, of which it shows an excerpt."""
    return is_beyond(name) and name not in PAPERS


def is_folder(name: str) -> bool:
    if is_beyond(name) or name.startswith((GIT, OWN, COLLECTION)):
        return False
    return name not in (PYTHON, HISTORY, AUTO, *parts_of("sources"))


def kept_name(name: str) -> str:
    """The name as stored with a run: an absolute path, or an address without its password."""
    if name.startswith(SEARXNG):
        return SEARXNG + SearXNG.place(name.removeprefix(SEARXNG)).url
    path = Path(name).expanduser()
    return str(path.absolute()) if is_folder(name) and path.exists() else name


@contextmanager
def _named(part: str) -> Iterator[None]:
    """Have an error inside begin with the part of a collection that it is of; "": of none."""
    try:
        yield
    except RubricemError as error:
        if not part:
            raise
        remedy = f"Mend it, or take it out of [collections] of the settings. {error.remedy}"
        kind = SourceError if isinstance(error, SourceError) else type(error)  # some take more
        raise kind(f"{part}: {error}", remedy.strip()) from error


@dataclass(frozen=True, slots=True)
class Sources:
    """What is searched and read."""

    names: tuple[str, ...]
    parts: Mapping[str, str] = field(default_factory=dict, repr=False)
    """by names: which part of which collection it is"""
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    tool_servers: Mapping[str, ToolServer] = field(default_factory=dict, repr=False)
    private_hosts: tuple[str, ...] = ()
    whole: bool = False
    """read completely before the first search"""

    def check(self) -> None:
        """Raise SettingsError for an unknown source, before any is opened."""
        for name in self.names:
            with _named(self.parts.get(name, "")):
                if name.startswith(GIT):
                    _check_address(name.removeprefix(GIT))
                if is_folder(name) and not Path(name or "\0").expanduser().is_dir():
                    raise _unknown(name)

    @property
    def asks_others(self) -> bool:
        """Whether a run over them asks public services."""
        return self.beyond or any(server.public for server in self.tool_servers.values())

    @property
    def beyond(self) -> bool:
        """Whether any of them has passages beyond this machine."""
        return any(map(is_beyond, self.names))

    def open_pages(self, data_dir: Path) -> OutwardPages:
        """A reader of web pages with a cache of recent ones."""
        return OutwardPages(WebPages(data_dir / "pages", self.private_hosts), self.private_hosts)

    @asynccontextmanager
    async def open(
        self,
        data_dir: Path,
        tell: Tell = hush,
        meaning: "Meaning | None" = None,
    ) -> AsyncIterator[SearchTool]:
        """The named sources as one; folders and libraries are indexed when it is prepared.

        `meaning` reranks what they find.
        """

        def read(done: int, total: int, doing: str) -> None:
            # Without the name of what is read, so that a log gets one line of it.
            tell(f"reading document {done + 1} of {total}" if total else doing)

        parts = [self.parts.get(name, "") for name in self.names]

        def open_all() -> list[SearchTool]:
            rest = data_dir / "indexes", read, self.keys, self.whole
            below = _told_apart([n for n in self.names if n.startswith(GIT) or is_folder(n)])
            opened = list[SearchTool]()
            for name, part in zip(self.names, parts, strict=True):
                with _named(part):
                    opened.append(open_source(name, *rest, below.get(name, "")))
            hosts = self.private_hosts
            pages = WebPages(data_dir / "pages", hosts)
            return [
                Outward(tool, hosts, pages if finds_pages(name) else None)
                if is_beyond(name) or getattr(tool, "public", False)
                else tool
                for name, tool in zip(self.names, opened, strict=True)
            ]

        tools = await asyncio.to_thread(open_all)
        tool = Combined(tools, tell, None if {*self.names} <= {*PAPERS} else meaning, parts)
        try:
            if self.tool_servers:
                from rubricem.agent.sources.mcp_client import Equipped

                kept = data_dir / "allowed_tools.json"
                async with aclosing(Equipped(tool, self.tool_servers, kept, tell)) as equipped:
                    yield equipped
            else:
                yield tool
        finally:
            for each in tools:
                if isinstance(each, PythonDocs):
                    await asyncio.to_thread(each.close)


def open_source(
    name: str,
    cache_dir: Path,
    on_progress: OnProgress | None = None,
    keys: Mapping[str, str] | None = None,
    whole: bool = False,
    below: str = "",
) -> SearchTool:
    """The source called `name`; if it is on this machine, it is indexed when it is prepared.

    `auto` is no source here: it has been replaced before. `below`: what the paths of a folder's
    files begin with. Raises SettingsError for an unknown source.
    """
    if name == PYTHON:
        return PythonDocs(cache_dir, on_progress, whole)
    if name == HISTORY:
        return PastRuns(cache_dir.parent, cache_dir / HISTORY)
    if is_beyond(name):
        rest = name.partition(":")[2]
        if name == TAVILY:
            return Tavily((keys or {}).get(name))
        if kind := KEYLESS.get(name):
            return kind()
        return SearXNG(rest) if name.startswith(SEARXNG) else Wikipedia(rest)
    if name in parts_of("sources") or name.startswith(OWN):
        own = given(name) if name.startswith(OWN) else own_part("sources", name)
        return own_source(own, name)
    folder = Path(name).expanduser()
    if name.startswith(GIT):
        _check_address(name.removeprefix(GIT))
        if on_progress is not None:
            on_progress(0, 0, "fetching the repository")
        folder = fetch_repository(name.removeprefix(GIT), cache_dir.parent / "repositories")
    if name and folder.is_dir():
        return Folder(folder, cache_dir, on_progress, label=label_of(name), below=below)
    raise _unknown(name)


def own_source(own: Any, name: str) -> SearchTool:
    """An object as a source. Raises SettingsError if it lacks a part of one."""
    if not hasattr(own, "search"):
        return Retrieved(own, name)
    if lacking := [part for part in ("name", "prepare") if not hasattr(own, part)]:
        said = f"The source {type(own).__name__} has no {lacking[0]!r}."
        raise SettingsError(said, "Add it, as docs/extending.md shows.")
    found: SearchTool = own
    return found


def _parts(name: str) -> tuple[str, ...]:
    """The names along the way to a folder, or in a repository's address."""
    if name.startswith(GIT):
        address = name.removeprefix(GIT).partition("#")[0].rstrip("/").removesuffix(".git")
        return tuple(address.replace(":", "/").split("/"))
    path = Path(name).expanduser().absolute()
    return path.parts[1:] or (str(path),)


def label_of(name: str) -> str:
    """What a folder or repository is called: its last name, and one before that says what of."""
    way = _parts(name)
    return "/".join(way[-_telling(way) :])


_TELL_NOTHING = frozenset(
    ("doc", "docs", "documentation", "documents", "files", "html", "pages", "src", "text", "txt")
)
"""names of folders that do not say what these are about"""


def _telling(way: Sequence[str]) -> int:
    """How many of the last names tell what a folder is about."""
    return min(1 + (way[-1].lower() in _TELL_NOTHING), len(way))


def _told_apart(names: Sequence[str]) -> dict[str, str]:
    """For each of several folders its last names that no other has; nothing for one."""
    ways = {name: _parts(name) for name in dict.fromkeys(names)}
    told = dict[str, str]()
    for name, way in ways.items() if len(ways) > 1 else ():
        counts = range(_telling(way), len(way) + 1)
        alone = (n for n in counts if [w[-n:] for w in ways.values()].count(way[-n:]) == 1)
        told[name] = "/".join(way[-next(alone, len(way)) :])
    return told


class Retrieved:
    """A `BaseRetriever` of LangChain as a source: its documents are passages as they are."""

    def __init__(self, retriever: Any, name: str) -> None:
        self._retriever, self.name = retriever, name.removeprefix(OWN)

    async def prepare(self) -> tuple[str, ...]:
        return ()

    async def search(self, query: str, limit: int) -> list[Passage]:
        with untold():
            found = await self._retriever.ainvoke(read_query(query).text)
        return without_near_duplicates(map(self._passage, found), limit)

    def _passage(self, document: Any) -> Passage:
        text, told = storable(document.page_content), document.metadata
        place = told.get("url") or told.get("link") or told.get("source")
        title = one_line(str(told.get("title") or place or self.name))
        return Passage(title, str(place or f"{self.name}/{digest_of(text, 8)}"), "", text)


def _unknown(name: str) -> SettingsError:
    path = Path(name or "\0").expanduser()
    if path.is_file():
        return SettingsError(
            f"The source {name!r} is a file.", f"Name the folder that it is in: {path.parent}"
        )
    is_path = path.name != name and "://" not in name
    said = f"There is no folder {name!r}." if is_path else f"Unknown source {name!r}."
    known = [] if is_path else [*SERVICES, PYTHON, HISTORY, AUTO, *parts_of("sources")]
    with suppress(OSError):
        known += [str(each) for each in path.parent.iterdir() if each.is_dir()]
    near = get_close_matches(str(path), known, n=2)
    meant = f"Did you mean {' or '.join(near)}? " if near else "Put a folder there, or name one. "
    return SettingsError(said, f"{meant}{ALLOWED}")


def _check_address(address: str) -> None:
    held: str | None = None
    with suppress(ValueError):
        parts = urlsplit(address)
        # By https a token is often given as the name; by ssh a name is one.
        held = parts.password or (parts.username if parts.scheme in ("http", "https") else None)
    if held:
        raise SettingsError(
            "The address of the repository holds a password or token, which is told with its name.",
            "Leave it out: git asks its own credential helpers.",
        )


RERANKED, MOST_RERANKED = 16, 40
"""passages found by words that are reranked; more improve little and cost 20 ms each"""
_FIRST_BONUS, _HALVED_AT = 0.1, 6
"""cosine that the first rank by words is worth, and how many ranks later half of it is left; right
passages first for 40 of 49 questions on manuals, for 32 by words and 33 by meaning alone"""


def by_meaning(
    embedder: Embedder, queries: Sequence[str], texts: Sequence[str]
) -> list[tuple[int, float]]:
    """The indices of the texts and their mean cosine to the queries, best first."""
    vector = embedder.embed(queries, query=True).mean(axis=0)
    cosines = (embedder.embed(texts) @ vector).tolist()
    return sorted(enumerate(cosines), key=lambda each: -each[1])


@dataclass
class Meaning:
    """The embedder that ranks by meaning, once it is loaded."""

    embedder: Embedder | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    """whoever ranks waits here, and not in the threads in which journals are written"""


MOST_OF_A_DOCUMENT = 3
"""passages of one among several sources, while there are others"""


def reading_of(tool: SearchTool) -> tuple[str, ...]:
    """What a report has to say of how the sources were read, a line for each that has to."""
    return tuple(chain.from_iterable(getattr(t, "reading", ()) for t in sources_in(tool)))


def about(tool: SearchTool) -> tuple[str, ...]:
    """What a policy is told of the sources: a line for each."""
    told = (getattr(t, "about", ()) or (ABOUT.get(t.name, t.name),) for t in sources_in(tool))
    return tuple(chain.from_iterable(told))


ABOUT = {
    PYTHON: "python: the documentation of the Python libraries installed here",
    WEB: "web: a web search; the pages that it finds are read",
    SCHOLAR: "scholar: a search of scientific papers, by title and abstract",
    ArXiv.name: "arxiv: preprints of arXiv, by title and abstract; they can be opened whole",
    PubMed.name: "pubmed: papers on medicine and life, by title and abstract",
    WIKIPEDIA: "wikipedia: its articles",
    TAVILY: "tavily: a web search; the pages that it finds are read",
    "searxng": "searxng: a web search; the pages that it finds are read",
}
"""by a source's name"""


class Combined:
    """`SearchTool`s as one, their passages ranked together.

    Sources that are indexed here are ranked as one index. The others say nothing of how well theirs
    match, so that their ranks count: the best of each comes before the second best of any. What
    words rank highest is then ordered by its meaning, too, once `meaning` has an embedder. If a
    source fails, that is told, and the search fails only if nothing else was found.
    """

    def __init__(
        self,
        tools: Sequence[SearchTool],
        tell: Tell = hush,
        meaning: Meaning | None = None,
        parts: Sequence[str] = (),
    ) -> None:
        """`parts`: of each tool, which part of which collection it is; "": of none."""
        self.searched, self._tell = tools, tell
        self._parts = parts or [""] * len(tools)
        self._meaning = meaning or Meaning()
        # One alone ranks by itself.
        self._ranked = [t for t in tools if isinstance(t, Indexed)] if len(tools) > 1 else []
        self._joint: JointIndex | None = None
        self.name = "+".join(tool.name for tool in tools)

    @property
    def private(self) -> bool:
        """Whether any of them is, so that what it says of a failure may not leave."""
        return not all(isinstance(tool, Outward | PythonDocs) for tool in self.searched)

    @property
    def mixed(self) -> bool:
        return self.private and bool(services(self))

    def of_kind(self, kind: str) -> "Combined":
        """Its private tools or those that ask others; of both what does neither."""
        here = [
            (tool, part)
            for tool, part in zip(self.searched, self._parts, strict=True)
            if isinstance(tool, PythonDocs) or isinstance(tool, Outward) is (kind == PUBLIC)
        ]
        tools, parts = [tool for tool, _ in here], [part for _, part in here]
        return Combined(tools, self._tell, self._meaning, parts)

    async def prepare(self) -> tuple[str, ...]:
        problems = list[str]()
        for tool, part in zip(self.searched, self._parts, strict=True):
            with _named(part):
                problems += await tool.prepare()
        return tuple(problems)

    async def search(self, query: str, limit: int) -> list[Passage]:
        embedder = self._meaning.embedder
        if embedder is None:
            return await self._by_words(query, limit)
        found = await self._by_words(query, max(limit, RERANKED))
        # Each takes milliseconds of a core; what words rank far behind, meaning seldom brings back.
        found, behind = found[:MOST_RERANKED], found[MOST_RERANKED:]
        if len(found) > 1:
            texts, asked = [matched_text(passage) for passage in found], [read_query(query).text]
            async with self._meaning.turn:
                near = await asyncio.to_thread(by_meaning, embedder, asked, texts)
            worth = {at: cosine + _FIRST_BONUS / (1 + at / _HALVED_AT) for at, cosine in near}
            found = [found[at] for at in sorted(worth, key=lambda at: -worth[at])]
        return [*found, *behind][:limit]

    async def _by_words(self, query: str, limit: int) -> list[Passage]:
        async def try_tool(
            tool: SearchTool, part: str
        ) -> LexicalIndex | list[Passage] | SourceError:
            try:
                with _named(part):
                    if tool in self._ranked and isinstance(tool, Indexed):
                        return await tool.index_for(query)
                    return await tool.search(query, limit)
            except SourceError as error:
                return error

        answers = await asyncio.gather(*map(try_tool, self.searched, self._parts))
        found = [answer for answer in answers if isinstance(answer, list)]
        failed = [answer for answer in answers if isinstance(answer, SourceError)]
        if indexes := tuple(answer for answer in answers if isinstance(answer, LexicalIndex)):
            most, text = MOST_OF_A_DOCUMENT * limit, read_query(query).text
            found.insert(0, await asyncio.to_thread(self._search, indexes, text, most))
        # The best of each before the second best of any.
        ranked = (p for p in chain.from_iterable(zip_longest(*found)) if p is not None)
        passages = without_near_duplicates(ranked, sum(map(len, found)))
        passages = _spread(passages, limit) if len(self.searched) > 1 else passages[:limit]
        if failed and not passages:
            remedies = " ".join(dict.fromkeys(error.remedy for error in failed))
            raise SourceError(" ".join(map(str, failed)), remedies)
        for error in failed:
            self._tell(f"left out of this search: {error}")
            if (sending := SENDING.get()) and str(error) not in sending.kept:
                sending.missed.append(str(error))
        return passages

    def _search(self, indexes: tuple[LexicalIndex, ...], text: str, most: int) -> list[Passage]:
        joint = self._joint
        if joint is None or joint.indexes != indexes:
            self._joint = joint = JointIndex(indexes)
        return joint.search(text, most)

    async def around(
        self, passages: Sequence[Passage], words: int, shown: ShownTexts = NOT_SHOWN
    ) -> list[Passage]:
        wide = list(passages)
        for tool in self.searched:
            with suppress(SourceError):  # of what failed meanwhile
                wide = await around(tool, wide, words, shown)
        return wide

    async def page(self, location: str) -> list[Passage]:
        for tool in self.searched:
            with suppress(SourceError):
                if found := await page(tool, location):
                    return found
        return []


def _spread(passages: Sequence[Passage], limit: int) -> list[Passage]:
    """The first `limit` passages; of one document more than some only if there are no others."""
    counts = Counter[str]()
    chosen, further = list[Passage](), list[Passage]()
    for passage in passages:
        counts[passage.location] += 1
        (chosen if counts[passage.location] <= MOST_OF_A_DOCUMENT else further).append(passage)
    return [*chosen, *further][:limit]
