"""LangSmith is told nothing of runs, of models and of sources."""

import subprocess
import sys
from pathlib import Path

from tests.conftest import ENVIRONMENT, ROOT
from tests.support.policies import RUN, SUPPORTED
from tests.support.scripted_server import ScriptedServer
from tests.support.sites import JsonSite, Sent


def test_langsmith_is_told_nothing_though_its_variables_are_set(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\nfrom rubricem import research_sync\n"
        "from rubricem.agent.sources.choice import Retrieved\n"
        "from tests.agent.models.test_langchain import ASKED, SAMPLING, Notes, over\n"
        "asyncio.run(Retrieved(Notes(), 'n').search('q', 1))\n"
        "asyncio.run(over([{'content': 'Yes'}]).chat(ASKED, SAMPLING))\n"
        "research_sync('What is it?', source=sys.argv[1], base_url=sys.argv[2])\n"
    )
    (tmp_path / "cache.md").write_text("# lru_cache\n\nIf None, an unbounded cache.\n")
    with JsonSite(Sent({})) as smith, ScriptedServer([*RUN, SUPPORTED]) as server:
        told = {"LANGSMITH_TRACING": "true", "LANGSMITH_ENDPOINT": smith.url}
        told |= {"RUBRICEM_DATA_DIR": str(tmp_path / "data"), "RUBRICEM_BASE_URL": ""}
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path), server.base_url],
            env={**ENVIRONMENT, **told, "LANGSMITH_API_KEY": "k", "PYTHONPATH": str(ROOT)},
            cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip
    assert (done.returncode, smith.asked) == (0, []), done.stderr
