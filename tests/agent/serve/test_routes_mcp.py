"""`/mcp` of `rubricem serve` as the official client meets it: the same tools, runs and guards."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from pydantic import SecretStr

from rubricem.memory.runs import RunStore
from tests.agent.mcp.test_server import TOOLS
from tests.support.pages import QUESTION, app_at, run_settings, scripted_site
from tests.support.policies import RUN, SUPPORTED, answer, plan
from tests.support.scripted_server import Hang, ScriptedServer

KEY = "sk-not-to-be-seen-0123"


@asynccontextmanager
async def client(address: str, **headers: str) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=120) as http,
        Client(streamable_http_client(f"{address}/mcp", http_client=http)) as found,
    ):
        yield found


async def test_a_client_researches_by_a_run_that_the_page_shows(tmp_path: Path):
    progress: list[str | None] = []

    async def heard(number: float, total: float | None, message: str | None) -> None:
        progress.append(message)

    async with scripted_site([*RUN, SUPPORTED], tmp_path) as here:
        async with client(str(here.http.base_url).rstrip("/")) as tools:
            listed = await tools.list_tools()
            assert sorted(tool.name for tool in listed.tools) == TOOLS
            result = await tools.call_tool(
                "research",
                {"question": QUESTION, "format": "short"},
                progress_callback=heard,
            )
        found: Any = result.structured_content
        [run] = (await here.http.get("/api/runs")).json()["runs"]
    assert (found["status"], found["answer"]) == ("finished", "It is an unbounded cache [1].")
    assert found["citations"][0]["verdict"] == "supported"
    assert (run["run"], run["question"]) == (found["run"], QUESTION)
    assert "Stage: plan" in progress
    assert "Call 1: folder: lru_cache maxsize None" in progress


async def test_no_key_of_the_server_is_in_what_a_client_gets(tmp_path: Path):
    leak = f'It is <cite id="S1">an unbounded cache</cite> {KEY} {tmp_path / "data"}.'
    with ScriptedServer([plan(), answer(leak), SUPPORTED]) as model:
        chosen = run_settings(tmp_path, model, api_key=SecretStr(KEY))
        with app_at(chosen) as (address, _):
            async with client(address) as tools:
                result = await tools.call_tool("research", {"question": QUESTION})
    told = result.model_dump_json()
    assert "***" in told and KEY not in told and str(tmp_path / "data") not in told


async def test_a_run_that_its_client_gives_up_ends_and_can_be_resumed(tmp_path: Path):
    with ScriptedServer([plan(), Hang()]) as model:
        chosen = run_settings(tmp_path, model)
        with app_at(chosen) as (address, desk):
            async with client(address) as tools:
                call = asyncio.create_task(tools.call_tool("research", {"question": QUESTION}))
                while len(model.requests) < 2:
                    await asyncio.sleep(0.01)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
                while desk.live:
                    await asyncio.sleep(0.01)
            [run] = RunStore(chosen.data_dir).threads()
            assert httpx.get(f"{address}/api/runs/{run}").json()["status"] == "partial"
