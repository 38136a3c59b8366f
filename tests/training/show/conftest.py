"""A collected run with its pages, for the tests of what is shown."""

from pathlib import Path

import pytest

from tests.support.collected import written_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a collected run of two steps."""
    return written_run(tmp_path / "run").folder
