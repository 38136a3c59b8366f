"""Which source a name means: `python`, or a folder of documents."""

from pathlib import Path

from agent.sources.folder import Folder
from agent.sources.passages import OnProgress
from agent.sources.python_docs import PythonDocs
from memory.errors import SettingsError
from memory.interfaces import Embedder, SearchTool


def open_source(
    name: str,
    cache_dir: Path,
    retrieval: str = "lexical",
    embedder: Embedder | None = None,
    on_progress: OnProgress | None = None,
) -> SearchTool:
    """The source called `name`; it is read and indexed by its first search.

    `retrieval` is `lexical` or `hybrid`, which needs an embedder. Raises SettingsError for an
    unknown source or retrieval.
    """
    wanted = _embedder_for(retrieval, embedder)
    if name == "python":
        return PythonDocs(cache_dir, wanted, on_progress)
    folder = Path(name).expanduser()
    if name and folder.is_dir():
        return Folder(folder, cache_dir, wanted, on_progress)
    raise SettingsError(
        f"Unknown source {name!r}.",
        "A source is `python` (the libraries installed here) or an existing folder with "
        "md, txt, rst, html or pdf files.",
    )


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
