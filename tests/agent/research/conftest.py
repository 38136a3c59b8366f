"""Runs over fakes, opened."""

from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.research.run import Run
from tests.support.policies import Opening, new_run


@pytest.fixture
def run_of(tmp_path: Path) -> Opening:
    """Opens a run whose journal lies in a folder of the test's own, `folder` inside it."""

    async def opened(*parts: Any, folder: str = "", **limits: Any) -> Run:
        run = new_run(tmp_path / folder, *parts, **limits)
        await run.open("system", "question")
        run.turn = 1
        return run

    return opened
