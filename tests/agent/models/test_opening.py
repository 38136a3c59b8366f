"""A server that is asked in token ids: which weights it says that it serves."""

import pytest

from rubricem.agent.models.opening import EmbeddedChoice, ServerChoice, in_tokens
from rubricem.memory.schema import Sampling
from tests.support.token_servers import Engine

SAMPLING = Sampling(max_tokens=16, seed=1)


def test_a_server_may_be_asked_in_token_ids_and_an_embedded_model_always_is():
    assert in_tokens(ServerChoice("m", "http://a/v1")) == ServerChoice(
        "m", "http://a/v1", in_tokens=True
    )
    assert in_tokens(embedded := EmbeddedChoice("0.5b")) is embedded


@pytest.mark.parametrize("kind", ["vllm-weights", "sglang-weights"])
async def test_weights_that_were_updated_have_a_version_of_their_own(kind: str):
    with Engine(kind) as server:
        choice = ServerChoice("base", server.base_url, in_tokens=True, timeout=5.0)
        server.weights, server.version = "/checkpoints/3", "ss-grpo-3-ab"
        async with choice.open_tokens() as served:
            assert served.version == "/checkpoints/3@ss-grpo-3-ab"


async def test_an_adapter_of_sglang_is_asked_for_by_its_name_and_missed_where_it_is_not():
    with Engine("sglang-lora") as server:
        choice = ServerChoice("base:mine", server.base_url, in_tokens=True, timeout=5.0)
        async with choice.open_tokens() as served:
            assert served.version == "org/base@default:"
        server.adapters["mine"] = "/somewhere"
        async with choice.open_tokens() as served:
            assert served.version == "org/base@default:mine"
            assert served._dialect.body((1,), SAMPLING)["lora_path"] == "mine"
