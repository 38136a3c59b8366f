"""The names a source goes by: `python`, `web`, `scholar`, `searxng:URL`, `auto`, or a folder.

A folder called like one of them is meant by its path, as in `./web`.
"""

from pathlib import Path

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
        from agent.servers.endpoint import Endpoint

        return SEARXNG + Endpoint.parse(name.removeprefix(SEARXNG)).url
    path = Path(name).expanduser()
    return str(path.absolute()) if is_folder(name) and path.exists() else name
