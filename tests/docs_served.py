"""Where the examples of the docs run: a folder with one document, and a scripted model."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chat_terminal import turns
from tests.scripted_server import ScriptedServer

DOCUMENT = "# lru_cache\n\nIf maxsize is None, lru_cache is an unbounded cache that never evicts.\n"


@contextmanager
def scripted_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    """A working directory with `papers` and `documents`, and settings that name the model."""
    monkeypatch.chdir(folder)
    for name in ("papers", "documents"):
        (folder / name).mkdir()
        (folder / name / "cache.md").write_text(DOCUMENT)
    with ScriptedServer(turns) as model:
        monkeypatch.setenv("RUBRICEM_BASE_URL", model.base_url)
        monkeypatch.setenv("RUBRICEM_MODEL", "scripted")
        monkeypatch.setenv("RUBRICEM_DATA_DIR", str(folder / "data"))
        monkeypatch.setenv("RUBRICEM_MEMORY", "off")
        yield model
