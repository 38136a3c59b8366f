"""Which source a name means, and the source itself."""

from pathlib import Path

from agent.sources.folder import Folder
from agent.sources.names import ALLOWED, PYTHON, SCHOLAR, SEARXNG, WEB
from agent.sources.passages import OnProgress
from agent.sources.python_docs import PythonDocs
from agent.sources.scholar import Scholar
from agent.sources.searxng import SearXNG
from agent.sources.web import Web
from memory.errors import SettingsError
from memory.interfaces import Embedder, SearchTool


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
