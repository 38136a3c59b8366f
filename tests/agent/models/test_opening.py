"""A server that is asked in token ids: which weights it says that it serves."""

from typing import Any

import pytest

from rubricem.agent.models.opening import ServerChoice
from rubricem.memory.schema import Sampling
from tests.support.token_servers import RecordedServer, recorded

BASE = "Qwen/Qwen2.5-1.5B-Instruct"
LISTED = {"data": [{"id": "qwen", "owned_by": "sglang"}, {"id": "mine"}]}


@pytest.mark.parametrize(
    ("routes", "model", "version"),
    [
        (
            recorded("vllm") | {"GET /weight_info": {"weight_version": "step-7"}},
            "qwen",
            f"{BASE}@step-7",
        ),
        (recorded("sglang"), "qwen:mine", f"{BASE}@step-7:"),
        (recorded("sglang") | {"GET /v1/models": LISTED}, "qwen:mine", f"{BASE}@step-7:mine"),
    ],
    ids=["updated weights", "an adapter that is missing", "an adapter"],
)
async def test_weights_that_were_updated_and_adapters_have_a_version_of_their_own(
    routes: dict[str, Any], model: str, version: str
):
    with RecordedServer(routes) as server:
        choice = ServerChoice(model, server.base_url, in_tokens=True, timeout=5.0)
        async with choice.open_tokens() as served:
            assert served.version == version
            sent = served._dialect.body((1,), Sampling(max_tokens=16))
            assert sent.get("lora_path") == ("mine" if ":" in model else None)
