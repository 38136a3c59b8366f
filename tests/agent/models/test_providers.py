"""Providers as they document themselves: each one's replies are replayed to the real client.

`tests/data/providers/*.json`: the path of its address, what it lists, which parameters it refuses,
the events of a streamed and of a whole reply and of native calls, the tokens that it counts, and
its errors with what a person is to be told. `{text}` stands for what the model writes.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rubricem import research
from rubricem.memory.errors import PolicyError
from rubricem.memory.schema import Status
from tests.conftest import ROOT
from tests.support.policies import ASKED, KEY, QUESTION, RUN, SAMPLING, SUPPORTED, client
from tests.support.scripted_server import Fault, ScriptedServer

RECORDED = {
    path.stem: json.loads(path.read_text()) for path in (ROOT / "tests/data/providers").glob("*")
}
ERRORS = [(name, kind) for name, told in RECORDED.items() for kind in told["errors"]]


def filled(value: Any, text: str) -> Any:
    """A recorded value with the text in its place."""
    return json.loads(json.dumps(value).replace(json.dumps("{text}"), json.dumps(text)))


def events(recorded: list[Any]) -> str:
    lines = [each if isinstance(each, str) else f"data: {json.dumps(each)}" for each in recorded]
    return "".join(f"{line}\n\n" for line in lines)


def streamed(told: dict[str, Any], text: str) -> Fault:
    """The text in pieces, after thinking where the provider shows it."""
    stream = told["stream"]
    thinking = [filled(stream["thinking"], part) for part in ("Hm", ".") if stream["thinking"]]
    pieces = [filled(stream["piece"], text[i : i + 40]) for i in range(0, len(text), 40)]
    whole = events([*stream["first"], *thinking, *pieces, *stream["last"]])
    return Fault(200, body=whole, headers={"Content-Type": "text/event-stream"})


def refused(told: dict[str, Any], body: dict[str, Any]) -> Fault | None:
    """What the provider says to parameters that it does not take."""
    met = (no for no in told["refuses"] if set(no["has"]) <= body.keys())
    return next((Fault(no["status"], body=json.dumps(no["body"])) for no in met), None)


@pytest.mark.parametrize("name", RECORDED)
async def test_a_question_is_answered_by_a_provider_within_what_it_accepts_and_counts(
    name: str, documents: Path, data: Path
):
    told = RECORDED[name]
    turns = iter([*RUN, SUPPORTED])

    def script(body: dict[str, Any], number: int) -> Fault:
        assert body["model"] == told["model"]
        return refused(told, body) or streamed(told, next(turns))

    with ScriptedServer(script, told["models"]) as server:
        report = await research(
            QUESTION,
            base_url=f"{server.root}{told['base']}",
            model=told["model"],
            api_key=KEY if told["key"] else "",
            source=str(documents),
        )
    assert report.status is Status.FINISHED and "unbounded cache [1]" in report.text
    assert "Hm." not in report.text
    prompt, written, cached = told["usage"]
    used = report.trajectory.usage
    assert (used.prompt_tokens, used.completion_tokens) == (4 * prompt, 4 * written)
    assert cached is None or used.cached_tokens == 4 * cached
    assert len(server.requests) == 4 + len(told["refuses"])


@pytest.mark.parametrize("name", RECORDED)
async def test_a_whole_reply_and_native_calls_of_a_provider_are_read(name: str):
    told = RECORDED[name]
    script = [
        Fault(200, body=json.dumps(filled(told["whole"], "Bees."))),
        Fault(200, body=events(told["calls"])),
    ]
    with ScriptedServer(script, told["models"]) as server:
        async with client(f"{server.root}{told['base']}") as chat:
            said = await chat.chat(ASKED, SAMPLING)
            assert (said.text, said.stop_reason) == ("Bees.", "eos")
            assert said.reasoning in ("", "Hm.")
            called = (await chat.chat(ASKED, SAMPLING)).text
    call = json.loads(re.sub(r"</?tool_call>", "", called))
    assert (call["name"], json.loads(call["arguments"])) == ("search", {"query": "bees"})


@pytest.mark.parametrize(("name", "kind"), ERRORS)
async def test_an_error_of_a_provider_is_told_in_a_sentence_with_a_remedy(name: str, kind: str):
    told = RECORDED[name]
    error = told["errors"][kind]
    said = error["body"]
    body = events(said) if error["status"] == 200 and isinstance(said, list) else json.dumps(said)
    fault = Fault(error["status"], body=body, headers=error.get("headers", {}))
    with ScriptedServer([fault] * 9, told["models"]) as server:
        async with client(f"{server.root}{told['base']}") as chat:
            with pytest.raises(PolicyError) as caught:
                await chat.chat(ASKED, SAMPLING)
    assert error["says"] in str(caught.value) and error["remedy"] in caught.value.remedy
    assert len(server.requests) == error["tries"]
