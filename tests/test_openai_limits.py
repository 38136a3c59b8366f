"""Requests to OpenAI's interface at their limits: long histories, refusals before any route."""

from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from agent.protocols.openai_asked import LONGEST_TURN, dialogue
from agent.question import LONGEST_QUESTION, checked
from agent.serve.security import Security
from tests.openai_served import QUESTION, served


def history(turns: int, words: str) -> list[dict[str, Any]]:
    return [
        {"role": ("user", "assistant")[at % 2], "content": f"turn {at} {words}"}
        for at in range(turns)
    ]


@pytest.mark.parametrize("characters", [10, 1500, 5000, LONGEST_QUESTION - 5, LONGEST_QUESTION])
def test_a_long_history_leaves_room_for_the_question(characters: int) -> None:
    question = "q" * characters
    messages = [*history(9, "w " * 4000), {"role": "user", "content": question}]
    told = dialogue(messages, "messages").as_question()
    assert checked(told).startswith(question)
    assert ("Assistant: turn 7 " in told) == (characters <= LONGEST_QUESTION - LONGEST_TURN - 100)


def test_of_a_short_history_everything_is_told_in_its_order() -> None:
    messages = [*history(3, "said"), {"role": "user", "content": QUESTION}]
    told = dialogue(messages, "messages").as_question()
    assert told.split("\n\n") == [
        QUESTION,
        "What was said before this question:",
        "User: turn 0 said",
        "Assistant: turn 1 said",
        "User: turn 2 said",
    ]


def test_what_is_refused_at_the_door_is_told_as_its_clients_read_it(tmp_path: Path) -> None:
    with (
        served([], tmp_path, security=Security(token="t" * 40, most_body=2000)) as (url, _, _),
        OpenAI(base_url=url, api_key="wrong", max_retries=0) as stranger,
        OpenAI(base_url=url, api_key="t" * 40, max_retries=0) as known,
    ):
        with pytest.raises(openai.AuthenticationError) as unknown:
            stranger.models.list()
        with pytest.raises(openai.APIStatusError) as large:
            known.chat.completions.create(
                model="rubricem", messages=[{"role": "user", "content": "x" * 3000}]
            )
    told: Any = unknown.value.body
    assert told["type"] == "invalid_request_error" and "asks for its token" in told["message"]
    told = large.value.body
    assert large.value.status_code == 413 and "too large" in told["message"]
