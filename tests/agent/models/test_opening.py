"""A server that is asked in token ids: which weights it says that it serves."""

from typing import Any

import pytest

from rubricem.agent.models.opening import ServerChoice
from tests.support.token_servers import RecordedServer, recorded

BASE = "Qwen/Qwen2.5-1.5B-Instruct"
LLAMA = {"default_generation_settings": {"n_ctx": 4096}}
ADAPTER = {"id": "mine", "root": "/runs/step-7", "parent": "qwen"}
LISTED = {"data": [{"id": "qwen", "owned_by": "vllm", "root": BASE}, ADAPTER]}


@pytest.mark.parametrize(("model", "version"), [("qwen", BASE), ("mine", "/runs/step-7")])
async def test_an_adapter_has_a_version_of_its_own(model: str, version: str):
    with RecordedServer(recorded() | {"GET /v1/models": LISTED}) as server:
        choice = ServerChoice(model, server.base_url, in_tokens=True)
        async with choice.open_tokens() as served:
            assert served.version == version


@pytest.mark.parametrize(
    ("entry", "more", "setting", "context"),
    [
        ({"owned_by": "vllm", "max_model_len": 131_072}, {}, 8192, 131_072),
        ({"context_length": 65_536}, {}, 8192, 65_536),
        ({"owned_by": "llamacpp", "meta": {"n_ctx_train": 99}}, {"GET /props": LLAMA}, 8192, 4096),
        ({"owned_by": "somebody"}, {}, 8192, 32_768),
        ({"owned_by": "somebody"}, {}, 200_000, 200_000),
        ({"id": "another", "max_model_len": 5}, {}, 8192, 32_768),
    ],
)
async def test_a_judge_has_the_context_that_its_server_tells_or_else_the_settings(
    entry: dict[str, Any], more: dict[str, Any], setting: int, context: int
):
    routes = {"GET /v1/models": {"data": [{"id": "m", **entry}]}, **more}
    with RecordedServer(routes) as server:
        choice = ServerChoice("m", server.base_url, context_tokens=setting)
        async with choice.open_judge() as judge:
            assert judge.context_tokens == context
    async with ServerChoice("m", "http://127.0.0.1:9/v1").open_judge() as judge:
        assert judge.context_tokens == 32_768, "nobody is there to tell"
