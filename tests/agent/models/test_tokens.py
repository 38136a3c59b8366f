"""Servers asked in token ids: what they send, replayed, and what is made of it.

Some die, lie about their ids, or leave out what they were asked for.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest

from rubricem.memory.errors import PolicyError
from rubricem.memory.schema import Completion, Sampling, Usage
from tests.support.token_servers import (
    CHAT,
    Events,
    Fault,
    Json,
    RecordedServer,
    changed,
    maybe_opened,
    opened,
    recorded,
    spelled,
    spelling_routes,
    without,
)

COMPLETIONS = "POST /v1/completions"
SAMPLING = Sampling(max_tokens=40, temperature=1.0, seed=3)
PROMPT = (151644, 8948, 151645, 151644, 77091, 198)


async def test_ids_and_logprobs_line_up_with_the_text_and_the_turns_end_is_no_part():
    heard: list[str] = []
    with RecordedServer(recorded()) as server:
        async with opened(server) as policy:
            prefix = await policy.render(CHAT)
            written = await policy.complete(prefix, SAMPLING, on_text=heard.append)
            plain = [await policy.encode(text) for text in (" ok", "")]
    assert prefix == PROMPT
    assert plain == [(5394,), ()], "text has no special tokens around it"
    assert written == Completion(
        text="für <a>",
        stop_reason="eos",
        token_ids=(69, 127, 120, 81, 366, 64, 29),
        logprobs=(-0.25, -0.5, -0.125, -1.0, -2.0, -0.75, -0.0625),
        token_ends=(1, 1, 2, 3, 5, 6, 7),
        usage=Usage(prompt_tokens=6, cached_tokens=4, completion_tokens=8, calls=1),
    )
    assert "".join(heard) == "für <a>"
    asked = next(body for body in server.bodies("POST /tokenize") if len(body["messages"]) == 2)
    assert asked["messages"] == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Count."},
    ]  # fmt: skip
    assert asked["add_generation_prompt"] is True


async def test_a_text_that_the_predicate_cuts_keeps_the_tokens_that_begin_in_it():
    def after_the_tag(text: str) -> int | None:
        return text.index("<") + 1 if "<" in text else None

    with RecordedServer(recorded()) as server:
        async with opened(server) as policy:
            written = await policy.complete(PROMPT, SAMPLING, after_the_tag)
    assert (written.text, written.stop_reason) == ("für <", "stop")
    assert written.token_ids == (69, 127, 120, 81, 366)
    assert written.logprobs == (-0.25, -0.5, -0.125, -1.0, -2.0)
    assert written.token_ends == (1, 1, 2, 3, 5)


async def test_ids_go_in_and_nothing_narrows_what_is_sampled():
    with RecordedServer(recorded()) as server:
        async with opened(server) as policy:
            await policy.complete(PROMPT, SAMPLING)
        (body,) = server.bodies(COMPLETIONS)
    assert body["prompt"] == list(PROMPT)
    assert (body["temperature"], body["top_p"], body["min_p"]) == (1.0, 1.0, 0.0)
    assert body["top_k"] == -1 and not {"stop", "grammar", "json_schema"} & body.keys()
    assert (body["max_tokens"], body["repetition_penalty"]) == (40, 1.0)


PLAIN = {"object": "list", "data": [{"id": "qwen", "owned_by": "openai"}]}


@pytest.mark.parametrize(
    ("routes", "said"),
    [
        ({"GET /v1/models": PLAIN}, []),
        (
            without(recorded(), "POST /tokenize"),
            ["is asked as a chat server, since it gives no token ids"],
        ),
    ],
    ids=["of no kind", "does not tokenise"],
)
async def test_a_server_that_gives_no_token_ids_is_left_to_chat(
    routes: dict[str, Any], said: list[str]
):
    told: list[str] = []
    with RecordedServer(routes) as server:
        async with maybe_opened(server, tell=told.append) as policy:
            assert policy is None
    assert len(told) == len(said) and all(map(str.__contains__, told, said))


OWN_IDS = ((9, 8, 7), (0, 4, 7))
"""of the recorded tokeniser for `für ` and `<a>`, and where each of them ends"""


def choice(event: Json) -> Json:
    choices = event.get("choices") or [{}]
    first: Json = choices[0]
    return first


async def written_by(routes: dict[str, Any]) -> Completion:
    """What a changed vLLM is made of."""
    with RecordedServer(routes) as server:
        async with opened(server) as policy:
            return await policy.complete(PROMPT, SAMPLING)


def vllm(change: Any = None, **routes: Any) -> dict[str, Any]:
    kept = recorded()
    events = kept[COMPLETIONS]
    assert isinstance(events, Events)
    return {**kept, COMPLETIONS: changed(events, change) if change else events, **routes}


def is_retokenised(reply: Completion) -> bool:
    ids = (reply.token_ids, reply.token_ends)
    return reply.retokenised and reply.logprobs is None and ids == OWN_IDS


def telling(of: int | None = None, **told: Any) -> Callable[[Json], None]:
    """Changes what events with ids tell, or the one with this id."""

    def change(event: Json) -> None:
        ids = choice(event).get("token_ids")
        if ids is not None and of in (None, *ids):
            choice(event).update(told)

    return change


@pytest.mark.parametrize(
    ("change", "decoded"),
    [
        (telling(token_ids=[1]), "gür <b>"),
        (telling(token_ids=[]), "für <a>"),
        (telling(127, token_ids=[], logprobs=None), "f\ufffdr <a>"),
        (telling(64, logprobs={"tokens": ["z"], "token_logprobs": [-0.75]}), None),
        (telling(logprobs=None), None),
    ],
    ids=["other ids", "no ids", "one id lost", "other words, no decoder", "nothing said of them"],
)
async def test_ids_that_are_not_shown_to_be_the_texts_are_replaced_marked_and_counted(
    change: Any, decoded: str | None, caplog: pytest.LogCaptureFixture
):
    routes = vllm(change) | {"POST /detokenize": lambda asked: {"prompt": decoded}}
    if decoded is None:
        routes = without(routes, "POST /detokenize")
    reply = await written_by(routes)
    assert reply.text == "für <a>" and is_retokenised(reply)
    assert "a reply's ids are not its text's" in caplog.text


@pytest.mark.parametrize("left", [None, {"tokens": ["f"], "token_logprobs": [None]}])
async def test_ids_without_logprobs_stand_without_and_are_counted(left: Json | None):
    reply = await written_by(vllm(telling(69, logprobs=left)))
    assert reply.token_ids == (69, 127, 120, 81, 366, 64, 29)
    assert reply.logprobs is None and not reply.retokenised
    assert reply.token_ends == (1, 1, 2, 3, 5, 6, 7) or left is None


async def test_a_server_that_dies_in_a_reply_is_asked_again_and_what_was_lost_is_counted():
    whole = vllm()[COMPLETIONS]
    tries = [Events(whole.events[:3], broken=True), whole]
    reply = await written_by(vllm() | {COMPLETIONS: lambda asked: tries.pop(0)})
    assert reply.token_ids == (69, 127, 120, 81, 366, 64, 29)
    assert (reply.usage.calls, reply.usage.completion_tokens) == (2, 3 + 8)
    broken = Events(whole.events[:3], broken=True)
    with pytest.raises(PolicyError, match="broke off in the middle of a reply") as raised:
        await written_by(vllm() | {COMPLETIONS: broken})
    assert raised.value.remedy
    assert raised.value.usage is not None
    assert (raised.value.usage.calls, raised.value.usage.completion_tokens) == (3, 9)


async def test_a_reply_that_was_paid_is_counted_though_the_server_dies_before_it_is_checked():
    routes = vllm() | {"POST /detokenize": Fault(503, "shutting down")}
    with pytest.raises(PolicyError, match="503") as raised:
        await written_by(routes)
    assert raised.value.away and raised.value.usage is not None
    assert (raised.value.usage.calls, raised.value.usage.completion_tokens) == (1, 8)


OTHER = "is not an OpenAI-compatible completion"


@pytest.mark.parametrize(
    ("reply", "told", "remedy"),
    [
        (
            Fault(400, "This model's maximum context length is 4096 tokens."),
            "no longer fits the context length of qwen",
            "longer context",
        ),
        (Events([{"object": "chat.completion.chunk"}]), OTHER, "update the server"),
        (Events([{"choices": [{"text": "a", "token_ids": ["7"]}]}]), OTHER, "update the server"),
    ],
)
async def test_a_refusal_is_told_in_the_servers_words_and_events_of_another_kind_as_such(
    reply: Any, told: str, remedy: str
):
    with pytest.raises(PolicyError, match=re.escape(told)) as raised:
        await written_by(vllm() | {COMPLETIONS: reply})
    assert remedy in raised.value.remedy


async def test_a_prompt_ends_before_the_thinking_that_the_servers_template_opens():
    routes = spelling_routes(lambda prompt, asked: "")
    plain = routes["POST /tokenize"]

    def thinking(asked: Json) -> Json:
        found = plain(asked)
        return {"tokens": found["tokens"] + spelled("<think>\n") * ("messages" in asked)}

    shown = RecordedServer(routes), RecordedServer(routes | {"POST /tokenize": thinking})
    prompts = []
    for server in shown:
        with server:
            async with opened(server) as policy:
                prompts.append(await policy.render(CHAT))
    assert prompts[0] == prompts[1] and prompts[0]
