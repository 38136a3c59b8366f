"""Servers asked in token ids: what each kind sends, replayed, and what is made of it."""

import asyncio
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.models.limits import AttemptError, Limiter
from rubricem.agent.models.tokens import Kind, kind_of, open_tokens
from rubricem.memory.errors import PolicyError
from rubricem.memory.interfaces import Completion, Message, Sampling
from rubricem.memory.schema import Usage
from tests.support.token_servers import (
    CHAT,
    Failure,
    RecordedServer,
    http_to,
    maybe_opened,
    opened,
    recorded,
    without,
)

COMPLETIONS = {
    "vllm": "POST /v1/completions",
    "sglang": "POST /generate",
    "sglang_incremental": "POST /generate",
    "llama": "POST /completion",
}
TWO_TOKEN_CHARACTER = ["vllm", "sglang", "sglang_incremental"]
SAMPLING = Sampling(max_tokens=40, temperature=1.0, seed=3)
PROMPT = (151644, 8948, 151645, 151644, 77091, 198)


@pytest.mark.parametrize("name", TWO_TOKEN_CHARACTER)
async def test_ids_and_logprobs_line_up_with_the_text_and_the_turns_end_is_no_part(name: str):
    heard: list[str] = []
    with RecordedServer(recorded(name)) as server:
        async with opened(server) as policy:
            prefix = await policy.render(CHAT)
            written = await policy.complete(prefix, SAMPLING, on_text=heard.append)
    assert prefix == PROMPT
    assert written == Completion(
        text="für <a>",
        stop_reason="eos",
        token_ids=(69, 127, 120, 81, 366, 64, 29),
        logprobs=(-0.25, -0.5, -0.125, -1.0, -2.0, -0.75, -0.0625),
        token_ends=(1, 1, 2, 3, 5, 6, 7),
        usage=Usage(prompt_tokens=6, cached_tokens=4, completion_tokens=8, calls=1),
    )
    assert "".join(heard) == "für <a>"
    assert (policy.mismatched, policy.unknown) == (0, 0)


async def test_what_llama_server_sends_lines_up_too():
    with RecordedServer(recorded("llama")) as server:
        async with opened(server) as policy:
            prefix = await policy.render(CHAT)
            written = await policy.complete(prefix, SAMPLING)
            assert await policy.encode(" ok") == (32, 111, 107)
    assert len(prefix) == 44
    assert (written.text, written.stop_reason) == ("L'J", "eos")
    assert written.token_ids == (76, 39, 74) and written.token_ends == (1, 2, 3)
    assert written.logprobs == pytest.approx((-4.7829, -4.4488, -3.1329), abs=1e-4)
    assert written.usage.completion_tokens == 4


@pytest.mark.parametrize("name", TWO_TOKEN_CHARACTER)
async def test_a_text_that_the_predicate_cuts_keeps_the_tokens_that_begin_in_it(name: str):
    def after_the_tag(text: str) -> int | None:
        return text.index("<") + 1 if "<" in text else None

    with RecordedServer(recorded(name)) as server:
        async with opened(server) as policy:
            written = await policy.complete(PROMPT, SAMPLING, after_the_tag)
    assert (written.text, written.stop_reason) == ("für <", "stop")
    assert written.token_ids == (69, 127, 120, 81, 366)
    assert written.logprobs == (-0.25, -0.5, -0.125, -1.0, -2.0)
    assert written.token_ends == (1, 1, 2, 3, 5)


@pytest.mark.parametrize("name", COMPLETIONS)
async def test_ids_go_in_and_nothing_narrows_what_is_sampled(name: str):
    with RecordedServer(recorded(name)) as server:
        async with opened(server) as policy:
            await policy.complete(PROMPT, SAMPLING)
        (body,) = server.bodies(COMPLETIONS[name])
    sent: dict[str, Any] = {**body, **body.get("sampling_params", {})}
    given = [sent[key] for key in ("prompt", "input_ids") if key in sent]
    assert given == [list(PROMPT)]
    assert (sent["temperature"], sent["top_p"], sent["min_p"]) == (1.0, 1.0, 0.0)
    assert sent["top_k"] in (-1, 0) and not {"stop", "grammar", "json_schema"} & sent.keys()
    assert 40 in (sent.get("max_tokens"), sent.get("max_new_tokens"), sent.get("n_predict"))
    assert sent.get("repetition_penalty", sent.get("repeat_penalty")) == 1.0


@pytest.mark.parametrize(
    ("told", "sent"),
    [
        ({"enable_deterministic_inference": True, "random_seed": 42}, 3),
        ({"enable_deterministic_inference": False}, None),
        ({"version": "0.4.6"}, None),
        (Failure(404), None),
    ],
)
async def test_sglang_is_sent_a_seed_in_its_deterministic_mode_alone(told: Any, sent: int | None):
    with RecordedServer({**recorded("sglang"), "GET /get_server_info": told}) as server:
        async with opened(server) as policy:
            await policy.complete(PROMPT, SAMPLING)
        (body,) = server.bodies("POST /generate")
    assert body["sampling_params"].get("sampling_seed") == sent
    assert ("sampling_seed" in body["sampling_params"]) == (sent is not None)


@pytest.mark.parametrize(
    ("name", "version", "context"),
    [
        ("vllm", "Qwen/Qwen2.5-1.5B-Instruct", 4096),
        ("sglang", "Qwen/Qwen2.5-1.5B-Instruct@step-7", 4096),
        ("llama", "tiny.gguf", 1024),
    ],
)
async def test_a_policy_is_named_by_its_server_and_its_weights(
    name: str, version: str, context: int
):
    with RecordedServer(recorded(name)) as server:
        async with opened(server) as policy:
            assert policy.name == f"qwen@{server.root.removeprefix('http://')}"
            assert (policy.version, policy.context_tokens) == (version, context)


@pytest.mark.parametrize("name", TWO_TOKEN_CHARACTER)
async def test_text_is_encoded_without_special_tokens_around_it(name: str):
    with RecordedServer(recorded(name)) as server:
        async with opened(server) as policy:
            assert await policy.encode(" ok") == (5394,)
            assert await policy.encode("") == ()


async def found(base_url: str) -> Kind | None:
    async with http_to(base_url) as http:
        return await kind_of(http)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("vllm", "vllm"), ("sglang", "sglang"), ("llama", "llama.cpp")],
)
async def test_a_kind_is_told_by_its_owner_or_by_a_path_of_its_own(name: str, kind: Kind):
    routes = recorded(name)
    with RecordedServer(routes) as server:
        assert await found(server.base_url) == kind
        assert server.asked == [("GET /v1/models", {})]
    nameless = {"object": "list", "data": [{"id": "qwen", "owned_by": "me"}]}
    with RecordedServer({**routes, "GET /v1/models": nameless}) as server:
        assert await found(server.base_url) == kind
    with RecordedServer(without(routes, "GET /v1/models")) as server:
        assert await found(server.base_url) == kind


async def test_a_plain_server_is_no_kind_and_is_left_to_chat():
    models = {"object": "list", "data": [{"id": "qwen", "owned_by": "openai"}]}
    told: list[str] = []
    with RecordedServer({"GET /v1/models": models}) as server:
        async with maybe_opened(server, tell=told.append) as policy:
            assert policy is None
    assert told == []


async def test_a_server_that_is_down_is_no_plain_server():
    with RecordedServer({}) as server:
        gone = server.base_url
    with pytest.raises(AttemptError, match="no model server answers"):
        await found(gone)


async def test_a_server_that_does_not_tokenise_is_left_to_chat_and_that_is_told():
    told: list[str] = []
    with RecordedServer(without(recorded("vllm"), "POST /tokenize")) as server:
        async with maybe_opened(server, tell=told.append) as policy:
            assert policy is None
    assert "is asked as a chat server, since it gives no token ids" in told[0]


async def test_a_kind_that_was_named_must_be_the_servers():
    with RecordedServer(recorded("vllm")) as server:
        with pytest.raises(PolicyError) as raised:
            async with maybe_opened(server, "llama.cpp"):
                pass
        assert raised.value.remedy
        async with maybe_opened(server, "vllm") as policy:
            assert policy is not None


async def test_what_a_server_renders_is_the_message_list():
    with RecordedServer(recorded("vllm")) as server:
        async with opened(server) as policy:
            await policy.render([Message("system", "Be brief."), Message("user", "Count.")])
        asked = server.bodies("POST /tokenize")[-1]
    assert asked["messages"] == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Count."},
    ]  # fmt: skip
    assert asked["add_generation_prompt"] is True


async def test_a_real_llama_server_is_found_and_asked_in_token_ids(tiny: Path):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.port = str(tiny), 512, 0
    params.verbosity, params.warmup = -1, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    real = await asyncio.to_thread(xllamacpp.Server, params)
    async with http_to(f"{real.listening_address}/v1") as http:
        policy = await open_tokens(
            http, None, context_tokens=99, limiter=Limiter(2), price=None, timeout=30.0
        )
        assert policy is not None and policy.context_tokens == 512
        prefix = await policy.render(CHAT)
        written = await policy.complete(prefix, Sampling(max_tokens=24, seed=1))
        again = await policy.complete(prefix, Sampling(max_tokens=24, seed=1))
        assert await policy.encode("a<|im_end|>") != await policy.encode("a"), "it stays text"
    assert written.stop_reason == "length" and not written.retokenised
    spelt = ["th" if token == 128 else chr(token) for token in written.token_ids or ()]
    assert "".join(spelt) == written.text
    assert written.token_ends == tuple(accumulate(map(len, spelt)))
    assert len(written.logprobs or ()) == 24 and all(p < 0 for p in written.logprobs or ())
    assert again.token_ids == written.token_ids
