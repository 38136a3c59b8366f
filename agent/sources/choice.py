"""What a source name refers to: a source of this machine, a service or a package, or a folder.

Packages provide their own sources through the entry points `rubricem.sources`. A folder with the
name of a source is given by its path, as in `./web`. Several sources are searched as one, at the
same time, and their passages are interleaved.
"""

import asyncio
import math
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable
from urllib.parse import urlsplit

from rubricem.agent.sources.documents import Folder, fetch_repository
from rubricem.agent.sources.fetch import WebPages
from rubricem.agent.sources.index import (
    EMBEDDING,
    PATIENCE,
    Indexed,
    OnProgress,
    matched_text,
    without_near_duplicates,
)
from rubricem.agent.sources.libraries import PythonDocs
from rubricem.agent.sources.tool_server import ToolServer
from rubricem.agent.sources.web import Brave, Exa, Scholar, SearXNG, Tavily, Web, Wikipedia
from rubricem.agent.transcript.events import Tell, hush
from rubricem.agent.transcript.words import (
    OPTION,
    dotted_names,
    names_page,
    read_query,
    worded_defaults,
)
from rubricem.memory.errors import SettingsError, SourceError
from rubricem.memory.parts import own_part, parts_of
from rubricem.memory.schema import Embedder, Passage, SearchTool

PYTHON = "python"
WEB = "web"
SCHOLAR = "scholar"
SEARXNG = "searxng:"
"""prefix of a SearXNG instance's address"""
GIT = "git:"
"""prefix of a git repository's address, which is searched like a folder of documents"""
WIKIPEDIA = "wikipedia"
KEYED = {tool.name: tool for tool in (Tavily, Exa, Brave)}
"""services that need a key"""
SERVICES = (WEB, SCHOLAR, WIKIPEDIA, *KEYED)
"""beyond this machine, except for self-hosted instances"""
AUTO = "auto"
"""the web if it answers, else `python`"""

ALLOWED = (
    "A source is `python` (the libraries installed here), `web`, `scholar`, `wikipedia` (or "
    "`wikipedia:de`), `tavily`, `exa`, `brave`, `searxng:URL`, `git:URL`, `auto`, one of an "
    "installed package, or an existing folder with md, txt, rst, html, pdf, docx, pptx, xlsx, "
    "epub or csv files."
)

PROBED = ("https://duckduckgo.com/", "https://www.wikipedia.org/")
"""two of the services that the web search uses; one that answers is enough"""
SECONDS = 2.0


async def web_answers(addresses: Sequence[str] = PROBED, seconds: float = SECONDS) -> bool:
    """Whether any of the addresses answers without an error within so many seconds."""
    import httpx

    async def answers(address: str) -> bool:
        try:
            reply = await http.head(address)
        except httpx.HTTPError:
            return False
        return reply.is_success or reply.is_redirect

    async with httpx.AsyncClient(timeout=seconds) as http:
        tries = [asyncio.create_task(answers(address)) for address in addresses]
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


def is_beyond(name: str) -> bool:
    """Whether its passages are beyond this machine, under addresses that can be opened."""
    return name in SERVICES or name.startswith((SEARXNG, f"{WIKIPEDIA}:"))


def is_folder(name: str) -> bool:
    if is_beyond(name) or name.startswith(GIT):
        return False
    return name not in (PYTHON, AUTO, *parts_of("sources"))


def kept_name(name: str) -> str:
    """The name as stored with a run: an absolute path, or an address without its password."""
    if name.startswith(SEARXNG):
        return SEARXNG + SearXNG.place(name.removeprefix(SEARXNG)).url
    path = Path(name).expanduser()
    return str(path.absolute()) if is_folder(name) and path.exists() else name


@dataclass(frozen=True, slots=True)
class Sources:
    """What is searched and read."""

    names: tuple[str, ...]
    retrieval: Literal["auto", "lexical", "rerank", "hybrid"] = "lexical"
    """ranking of passages: by words; by words, then reordered by meaning; by both. `auto`:
        whichever is available"""
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    """of services, by their names"""
    tool_servers: Mapping[str, ToolServer] = field(default_factory=dict, repr=False)
    """servers whose tools may be called besides the search"""
    private_hosts: tuple[str, ...] = ()
    """hosts whose pages may be read although they are private"""
    patience: float = PATIENCE
    """seconds after which a search continues with what is read and embedded so far"""

    def whole(self) -> "Sources":
        """The same sources, but read completely before the first search."""
        return replace(self, patience=math.inf)

    def check(self) -> None:
        """Raise SettingsError for an unknown source, before any is opened."""
        for name in self.names:
            if name.startswith(GIT):
                _check_address(name.removeprefix(GIT))
            if is_folder(name) and not Path(name or "\0").expanduser().is_dir():
                raise _unknown(name)

    @property
    def beyond(self) -> bool:
        """Whether any of them has passages beyond this machine."""
        return any(map(is_beyond, self.names))

    def open_pages(self, data_dir: Path) -> WebPages:
        """A reader of web pages with a cache of recent ones."""
        return WebPages.of(data_dir / "pages", self.private_hosts)

    @asynccontextmanager
    async def open(
        self,
        data_dir: Path,
        embedder: Embedder | None,
        tell: Tell = hush,
        meaning: "Meaning | None" = None,
    ) -> AsyncIterator[SearchTool]:
        """The named sources as one; folders and libraries are indexed when it is prepared.

        `embedder` is for hybrid search; `meaning` reranks other sources of this machine.
        """

        def read(done: int, total: int, doing: str) -> None:
            # Without the name of what is read, so that a log gets one line of it.
            what = doing if doing == EMBEDDING else "reading documents"
            tell(f"{what}: {done} of {total}" if total else doing)

        rerank = meaning if self.retrieval in ("auto", "rerank") else None

        def open_all() -> list[SearchTool]:
            rest = data_dir / "indexes", embedder, read, self.keys, self.patience
            return [open_source(name, *rest) for name in self.names]

        tools = await asyncio.to_thread(open_all)
        ranked = [
            Reranked(each, rerank) if rerank and not is_beyond(each.name) else each
            for each in tools
        ]
        tool = ranked[0] if len(ranked) == 1 else Combined(ranked, tell)
        try:
            if self.tool_servers:
                from rubricem.agent.sources.mcp_client import Equipped

                async with aclosing(Equipped(tool, self.tool_servers)) as equipped:
                    yield equipped
            else:
                yield tool
        finally:
            for each in tools:
                if isinstance(each, Indexed):
                    await asyncio.to_thread(each.close)


def open_source(
    name: str,
    cache_dir: Path,
    embedder: Embedder | None = None,
    on_progress: OnProgress | None = None,
    keys: Mapping[str, str] | None = None,
    patience: float = PATIENCE,
) -> SearchTool:
    """The source called `name`; if it is on this machine, it is indexed when it is prepared.

    With an embedder, indexed sources are also searched by meaning. `auto` is no source here: it has
    been replaced before. Raises SettingsError for an unknown source.
    """
    if name == PYTHON:
        return PythonDocs(cache_dir, embedder, on_progress, patience)
    if is_beyond(name):
        return _service(name, keys or {})
    if name in parts_of("sources"):
        own: SearchTool = own_part("sources", name)
        return own
    folder = Path(name).expanduser()
    if name.startswith(GIT):
        folder = _repository(name.removeprefix(GIT), cache_dir, on_progress)
    if name and folder.is_dir():
        return Folder(folder, cache_dir, embedder, on_progress, patience)
    raise _unknown(name)


def _unknown(name: str) -> SettingsError:
    path = Path(name or "\0").expanduser()
    if path.is_file():
        return SettingsError(
            f"The source {name!r} is a file.", f"Name the folder that it is in: {path.parent}"
        )
    return SettingsError(f"Unknown source {name!r}.", ALLOWED)


def _repository(address: str, cache_dir: Path, on_progress: OnProgress | None) -> Path:
    """The folder of a repository's files. Raises SettingsError if the address has a password."""
    _check_address(address)
    if on_progress is not None:
        on_progress(0, 0, "fetching the repository")
    return fetch_repository(address, cache_dir.parent / "repositories")


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


def _service(name: str, keys: Mapping[str, str]) -> SearchTool:
    kind, _, rest = name.partition(":")
    if kind in KEYED:
        return KEYED[kind](keys.get(kind))
    if name == WEB:
        return Web()
    if name == SCHOLAR:
        return Scholar(keys.get(name))
    return SearXNG(rest) if name.startswith(SEARXNG) else Wikipedia(rest)


RERANKED = 16
"""passages found by words that are reranked; more improve little and cost 20 ms each"""
MEANT = 2
"""wordings that are embedded for it: the question, and with what is expected of its answer"""
_FIRST_BONUS, _HALVED_AT = 0.1, 6
"""cosine that the first rank by words is worth, and how many ranks later half of it is left; right
passages first for 40 of 49 questions on manuals, for 32 by words and 33 by meaning alone"""
_NAMED_BONUS = 0.1
"""bonus if the query has the name that is the title, as code or as people write it: of 50 questions
over `python` 33, not 30, have the right passage first, and 40, not 37, among two"""


_ENTRY_BONUS = 0.1
"""bonus for the entry of an option that is asked about, or expected: of 29 questions on git's
manual 27, not 25, have a right passage among four; twice as much is no better"""
_OF_PAGE = 24
"""passages of the best one's page that are ranked beside those found by words: of 41 questions on
manuals 34, not 32, have a right passage among four"""
_OF_NAMED_PAGE = 60
"""the same where the question names the page, whose words it may not have otherwise"""
_APART = re.compile(
    r"\n[ \t]*\n|\n(?=[ \t]*(?:\*{0,2}\w+(?:, \*{0,2}\w+)* : |:param |\*{0,2}\w+ \([^()\n]*\): ))"
)
"""between what a page says of one option or parameter, and of the next"""


def _parts(passage: Passage) -> list[str]:
    """What a passage says of one thing and of another, each with its page's title."""
    parts = [part for part in _APART.split(passage.text) if len(part.split()) > 2]
    return [f"{passage.title}: {part}" for part in parts] if len(parts) > 1 else []


_CHANGES_MALUS = 0.3
"""malus of a page about changes or requirements, unless the query asks for those: it says nearly
the same as the page about how things are"""
_CHANGES = re.compile(
    r"\b(?:requirements|change ?log|changes|what'?s new|news|chronology|upgrading checklist|"
    r"(?:release|version) (?:history|notes|\d))",
    re.I,
)
_OF_CHANGES = re.compile(
    r"\b(?:versions?|releases?|chang\w+|new in|since when|upgrad\w+|histor\w+|requirements?|"
    r"introduced|deprecated)\b",
    re.I,
)
_DEFAULT_BONUS = 0.3
"""bonus if a signature has the default that is asked for"""
_SECTION_BONUS = 0.2
"""bonus for the section of a manual's page that by its heading tells what is asked"""
_SECTIONS = (
    (re.compile(r"\b(?:exit|return|status) (?:status|code|value)s?\b", re.I),
     re.compile(r"(?:^|> )(?:(?:EXIT|RETURN) (?:STATUS|CODES?|VALUES?)|DIAGNOSTICS)$")),
    (re.compile(r"\benvironment variables?\b", re.I),
     re.compile(r"(?:^|> )ENVIRONMENT(?: VARIABLES)?$")),
    (re.compile(r"\bexamples?\b", re.I), re.compile(r"(?:^|> )EXAMPLES?$")),
)  # fmt: skip
"""what is asked, and such a heading as man-pages(7) has it"""


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


_ENTERED = re.compile(r"^[ \t]*(--?[A-Za-z][\w-]*(?:[ =\[<,|].*)?)$", re.MULTILINE)


def entered_options(text: str) -> set[str]:
    """The options that a text has an entry for: of lines that begin with one."""
    return {option for line in _ENTERED.findall(text) for option in OPTION.findall(line)}


_ENDS = re.compile(r"(?:^|> )(?:SEE ALSO|GIT|AUTHORS?|COPYRIGHT|COLOPHON|REPORTING BUGS)$")
"""the heading of what a manual's page ends with, which tells nothing of its command"""


def is_of_changes(passage: Passage) -> bool:
    """Whether a page is a list of requirements or of changes, by its title."""
    return not dotted_names(passage.title) and bool(_CHANGES.search(passage.title))


class Reranked:
    """A `SearchTool` over another, whose best passages are reordered by meaning, too."""

    def __init__(self, tool: SearchTool, meaning: Meaning) -> None:
        self._tool = tool
        self._meaning = meaning
        self.name = tool.name

    async def prepare(self) -> tuple[str, ...]:
        return await self._tool.prepare()

    async def search(self, query: str, limit: int) -> list[Passage]:
        return await self.search_any([query], limit)

    async def search_any(self, queries: Sequence[str], limit: int) -> list[Passage]:
        """What any of the queries finds; the first two of them rank it by meaning."""
        embedder = self._meaning.embedder
        if embedder is None:
            return await search_any(self._tool, queries, limit)
        each = [await self._tool.search(query, max(limit, RERANKED)) for query in queries]
        found = _in_turn(each, sum(map(len, each)))
        if len(found) < 2:
            return found
        ranks = [{passage: at for at, passage in enumerate(passages)} for passages in each]
        asked = [read_query(query).text for query in queries[:MEANT]]
        names, alone = {n.casefold() for text in asked for n in dotted_names(text)}, asked[-1]
        options = {option for text in asked for option in OPTION.findall(text)}
        timeless = not _OF_CHANGES.search(alone)
        sections = [heading for what, heading in _SECTIONS if what.search(alone)]

        def worth(passage: Passage, near: float) -> float:
            first = (1 / (1 + rank[passage] / _HALVED_AT) for rank in ranks if passage in rank)
            bonus = _FIRST_BONUS * sum(first) / len(ranks)
            named = passage.title.casefold() in names or names_page(alone, passage.title)
            bonus += _NAMED_BONUS * named
            bonus += _ENTRY_BONUS * (not options.isdisjoint(entered_options(passage.text)))
            bonus += _DEFAULT_BONUS * any(worded_defaults(text, passage.text) for text in asked)
            bonus += _SECTION_BONUS * (named and any(s.search(passage.place) for s in sections))
            aside = (timeless and is_of_changes(passage)) or bool(_ENDS.search(passage.place))
            return near + bonus - _CHANGES_MALUS * aside

        async def weigh(told: Sequence[tuple[Passage, str]]) -> dict[Passage, float]:
            texts = [text for _, text in told]
            near = await asyncio.to_thread(by_meaning, embedder, asked, texts) if texts else []
            nearest = dict[Passage, float]()
            for at, cosine in near:
                nearest.setdefault(told[at][0], cosine)
            return {passage: worth(passage, cosine) for passage, cosine in nearest.items()}

        worths = await weigh([(passage, matched_text(passage)) for passage in found])
        # A page that is named tells of more than what has the question's other words.
        best = max(worths, key=lambda each: (names_page(alone, each.title), worths[each]))
        most = _OF_NAMED_PAGE if names_page(alone, best.title) else _OF_PAGE
        page = await self._page(queries[0], best, most)
        whole = [(passage, matched_text(passage)) for passage in page if passage not in worths]
        parts = [(passage, part) for passage in page for part in _parts(passage)]
        for passage, value in (await weigh([*whole, *parts])).items():
            worths[passage] = max(value, worths.get(passage, value))
        return sorted(worths, key=lambda passage: -worths[passage])[:limit]

    async def _page(self, query: str, passage: Passage, most: int) -> list[Passage]:
        """Other passages on the page of the best one, which may contain the answer."""
        if not isinstance(self._tool, Indexed):
            return []
        return await self._tool.search_page(query, passage, most)


@runtime_checkable
class SearchesAny(Protocol):
    """A `SearchTool` that takes several wordings of a query at once."""

    async def search_any(self, queries: Sequence[str], limit: int) -> list[Passage]: ...


async def search_any(tool: SearchTool, queries: Sequence[str], limit: int) -> list[Passage]:
    """What any of the queries finds: ranked together if the tool can, else interleaved."""
    if isinstance(tool, SearchesAny):
        return await tool.search_any(queries, limit)
    return _in_turn([await tool.search(each, limit) for each in queries[:MEANT]], limit)


def _in_turn(found: Sequence[Sequence[Passage]], limit: int) -> list[Passage]:
    """The results of several searches, the best of each before the second best of any."""
    ranked = chain.from_iterable(zip_longest(*found))
    return without_near_duplicates((p for p in ranked if p is not None), limit)


class Combined:
    """Several `SearchTool`s as one; the best of each comes before the second best of any.

    If a source fails, the others continue: `on_problem` is told, and the search fails only if
    nothing else was found.
    """

    def __init__(
        self, tools: Sequence[SearchTool], on_problem: Callable[[str], None] | None = None
    ) -> None:
        self._tools = tools
        self._on_problem = on_problem
        self.name = "+".join(tool.name for tool in tools)

    async def prepare(self) -> tuple[str, ...]:
        problems = [await tool.prepare() for tool in self._tools]
        return tuple(chain.from_iterable(problems))

    async def search(self, query: str, limit: int) -> list[Passage]:
        return await self.search_any([query], limit)

    async def search_any(self, queries: Sequence[str], limit: int) -> list[Passage]:
        async def try_tool(tool: SearchTool) -> list[Passage] | SourceError:
            try:
                return await search_any(tool, queries, limit)
            except SourceError as error:
                return error

        answers = await asyncio.gather(*map(try_tool, self._tools))
        found = [answer for answer in answers if isinstance(answer, list)]
        failed = [answer for answer in answers if isinstance(answer, SourceError)]
        passages = _in_turn(found, limit)
        if failed and not passages:
            remedies = " ".join(dict.fromkeys(error.remedy for error in failed))
            raise SourceError(" ".join(map(str, failed)), remedies)
        for error in failed:
            if self._on_problem:
                self._on_problem(f"left out of this search: {error}")
        return passages
