"""What the tests of commands and fronts share: a data directory, and a folder to search."""

from pathlib import Path

import pytest

from tests.support.terminal import DOCUMENT


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data directory that every command of the test works in."""
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """A folder with a document on caches and one on heaps."""
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "cache.md").write_text(DOCUMENT)
    (folder / "heap.md").write_text("# heapq\n\nThe smallest element is always heap[0].\n")
    return folder
