"""What the tests of the memory share."""

from pathlib import Path

import pytest

from rubricem.memory.bank import RubricBank
from tests.support.banks import bank_in


@pytest.fixture
def bank(tmp_path: Path) -> RubricBank:
    """An empty bank in the test's folder."""
    return bank_in(tmp_path)
