"""What the tests of the chat share: a folder of one document, and a data directory."""

from pathlib import Path

import pytest

from tests.support.terminal import DOCUMENT


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "cache.md").write_text(DOCUMENT)
    return folder


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"
