"""A rubric that asks a model: its prompt, how its reply is read, and what it is asked through."""

import subprocess
import sys
from typing import Any

import pytest

from rubricem.judge.rubrics import LLMJudge, OpenAIClient
from rubricem.memory.errors import JudgeError
from rubricem.memory.schema import Usage
from tests.support.scripted_server import Fault, Reply, ScriptedServer


class Said:
    """Replies the same each time, and remembers the prompts."""

    def __init__(self, reply: str) -> None:
        self.reply = reply
        self.prompts: list[str] = []

    async def complete(self, prompt: str, **kwargs: Any) -> str:
        self.prompts.append(prompt)
        return self.reply


async def prompt_of(template: str, action: Any = "A", observation: Any = "O") -> str:
    client = Said("1")
    await LLMJudge(template, client)(action, observation)
    return client.prompts[0]


async def test_a_prompt_is_filled_once_keeps_other_braces_and_ends_no_turn():
    assert await prompt_of("Did {action}, saw {observation}.", 42, {"k": 1}) == (
        "Did 42, saw {'k': 1}."
    )
    assert await prompt_of("{action!r} {action:>3} {{x}}") == "'A'   A {x}"
    template = 'Reply {"score": 0.5} for {action}.'
    assert await prompt_of(template) == 'Reply {"score": 0.5} for A.'
    assert await prompt_of("{action} } {") == "A } {"
    assert await prompt_of("{action} {observation}", "{observation}", "<|im_end|>") == (
        "{observation} \u2039|im_end|>"
    )
    assert await prompt_of('{"a": {action}}', "{action}") == '{"a": {action}}'


@pytest.mark.parametrize(
    ("options", "reply", "score"),
    [
        ({}, "Score: 8", 1.0),
        ({"normalize": False}, "Score: 8", 8.0),
        ({"scale": 10}, "8", 0.8),
        ({"scale": 10}, "8 out of 10", 0.8),
        ({"scale": 5, "normalize": False}, "8/10", 0.8),
        ({"scale": 10, "score_pattern": r"(\d+)"}, "a 7", 0.7),
        ({"score_pattern": r"\[(\d+)/10\]", "normalize": False}, "1 of [7/10]", 7.0),
        ({"score_pattern": r"(x)?(\d)"}, "4", 0.0),
        ({"default_score": 5.0}, "none", 5.0),
    ],
)
async def test_the_score_by_the_options(options: dict[str, Any], reply: str, score: float):
    judge = LLMJudge("{action}", Said(reply), **options)
    assert await judge("a", "o") == pytest.approx(score)
    assert judge.last_score == pytest.approx(score)


def parted(server: ScriptedServer) -> tuple[str, int]:
    endpoint, _, port = server.base_url.removesuffix("/v1").rpartition(":")
    return endpoint, int(port)


async def test_an_openai_client_asks_a_server_and_counts_what_it_used():
    with ScriptedServer(["Score: 0.5", Reply("0.25", usage=None)]) as server:
        client = OpenAIClient(*parted(server), model="m", system_prompt="Judge.")
        assert client.base_url + "/v1" == server.base_url
        assert await LLMJudge("Rate {action}", client)("a", "o") == 0.5
        assert await client.complete("again", temperature=0.9, max_tokens=7) == "0.25"
        await client.aclose()
    first, second = (recorded.body for recorded in server.requests)
    assert first == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Judge."},
            {"role": "user", "content": "Rate a"},
        ],
        "temperature": 0.0,
        "max_tokens": 256,
    }
    assert (second["temperature"], second["max_tokens"]) == (0.9, 7)
    assert server.requests[0].headers["authorization"] == "Bearer not-needed"
    assert client.usage == Usage(prompt_tokens=100, completion_tokens=20, calls=2)


async def test_a_server_that_fails_is_a_judge_error_and_counted():
    with ScriptedServer([Fault(400, "no such model")]) as server:
        client = OpenAIClient(*parted(server), model="m")
        judge = LLMJudge("{action}", client)
        with pytest.raises(JudgeError, match=f"Asking m at {client.base_url} failed"):
            await judge("a", "o")
        await client.aclose()
    assert (client.usage.calls, judge.last_score) == (1, None)


def test_a_client_needs_no_package_that_an_installation_may_lack():
    code = "import sys; sys.modules['aiohttp'] = None; from rubricem.judge import rubrics; "
    code += "rubrics.OpenAIClient('http://localhost', 1, 'm')"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
