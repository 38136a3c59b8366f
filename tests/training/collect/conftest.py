"""What the tests of collecting share: runs over scripted rollouts, closed when the test ends."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.collected import Opened

Open = Callable[..., Opened]


@pytest.fixture
def open_run(tmp_path: Path) -> Iterator[Open]:
    """Opens the run of the test's folder, and closes what was opened of it before."""
    made: list[Opened] = []

    def open_next(*parts: Any, kind: type[Opened] = Opened, **changed: Any) -> Opened:
        while made:
            made.pop().close()
        made.append(kind(tmp_path, *parts, **changed))
        return made[0]

    yield open_next
    for last in made:
        last.close()


@pytest.fixture
def opened(open_run: Open) -> Opened:
    return open_run()
