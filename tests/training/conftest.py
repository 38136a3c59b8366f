"""What the tests of collecting and training share: a working directory to collect in."""

from pathlib import Path

import pytest

from tests.support.collected import QUESTION


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: documents, a file with one question, and the data directory."""
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "lru.md").write_text(
        "# lru_cache\nWithout a maxsize the lru_cache has no bound.\n"
    )
    (tmp_path / "questions.txt").write_text(f"{QUESTION}\n")
    return tmp_path
