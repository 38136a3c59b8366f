"""Which source a name means (`python`, `web`, `scholar`, `searxng:URL`, `auto` or a folder).

A folder called like one of them is meant by its path, as in `./web`. Several sources are asked
as one, at the same time, and their passages taken in turn.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest
from pathlib import Path

from rubricem.agent.sources.documents import Folder
from rubricem.agent.sources.index import OnProgress
from rubricem.agent.sources.python import PythonDocs
from rubricem.agent.sources.web import Scholar, SearXNG, Web
from rubricem.memory.errors import SettingsError, SourceError
from rubricem.memory.interfaces import Embedder, Passage, SearchTool

PYTHON = "python"
WEB = "web"
SCHOLAR = "scholar"
SEARXNG = "searxng:"
"""prefix of a SearXNG instance's address"""
AUTO = "auto"
"""the web where it answers, else `python`"""

ALLOWED = (
    "A source is `python` (the libraries installed here), `web`, `scholar`, `searxng:URL`, "
    "`auto`, or an existing folder with md, txt, rst, html, pdf or docx files."
)


def is_beyond(name: str) -> bool:
    """Whether what it finds lies beyond this machine, under addresses that can be opened."""
    return name in (WEB, SCHOLAR) or name.startswith(SEARXNG)


def is_folder(name: str) -> bool:
    return not is_beyond(name) and name not in (PYTHON, AUTO)


def kept_name(name: str) -> str:
    """The name as it is stored with a run: a whole path, and an address without its password."""
    if name.startswith(SEARXNG):
        from rubricem.agent.models.limits import Endpoint

        return SEARXNG + Endpoint.parse(name.removeprefix(SEARXNG)).url
    path = Path(name).expanduser()
    return str(path.absolute()) if is_folder(name) and path.exists() else name


def open_source(
    name: str,
    cache_dir: Path,
    retrieval: str = "lexical",
    embedder: Embedder | None = None,
    on_progress: OnProgress | None = None,
    scholar_key: str | None = None,
) -> SearchTool:
    """The source called `name`; what lies on this machine is indexed by its first search.

    `retrieval` is `lexical` or `hybrid`, which needs an embedder, and concerns what is indexed.
    `auto` is no source: it is replaced by one before. Raises SettingsError for an unknown
    source or retrieval.
    """
    wanted = _embedder_for(retrieval, embedder)
    if name == PYTHON:
        return PythonDocs(cache_dir, wanted, on_progress)
    if name == WEB:
        return Web()
    if name == SCHOLAR:
        return Scholar(scholar_key)
    if name.startswith(SEARXNG):
        return SearXNG(name.removeprefix(SEARXNG))
    folder = Path(name).expanduser()
    if name and folder.is_dir():
        return Folder(folder, cache_dir, wanted, on_progress)
    raise SettingsError(f"Unknown source {name!r}.", ALLOWED)


def _embedder_for(retrieval: str, embedder: Embedder | None) -> Embedder | None:
    if retrieval not in ("lexical", "hybrid"):
        raise SettingsError(f"Unknown retrieval {retrieval!r}.", "Use `lexical` or `hybrid`.")
    if retrieval == "lexical":
        return None
    if embedder is None:
        raise SettingsError(
            "Hybrid retrieval needs an embedding model.", "Name one, or use `lexical`."
        )
    return embedder


class Combined:
    """A `SearchTool` over others; the best of each comes before the second best of any.

    A source that fails does not take the others with it: `on_problem` is told, and the search
    fails only where nothing was found besides.
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
        answers = await asyncio.gather(*(_tried(tool, query, limit) for tool in self._tools))
        found = [answer for answer in answers if isinstance(answer, list)]
        failed = [answer for answer in answers if isinstance(answer, SourceError)]
        ranked = chain.from_iterable(zip_longest(*found))
        passages = list(dict.fromkeys(passage for passage in ranked if passage is not None))
        if failed and not passages:
            remedies = " ".join(dict.fromkeys(error.remedy for error in failed))
            raise SourceError(" ".join(map(str, failed)), remedies)
        for error in failed:
            if self._on_problem:
                self._on_problem(f"left out of this search: {error}")
        return passages[:limit]


async def _tried(tool: SearchTool, query: str, limit: int) -> list[Passage] | SourceError:
    try:
        return await tool.search(query, limit)
    except SourceError as error:
        return error
