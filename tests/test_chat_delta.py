from typing import Any

import pytest

from agent.servers.chat_delta import Delta, delta_of


def test_an_event_of_usage_alone_adds_no_text() -> None:
    assert delta_of({"choices": [], "usage": {"prompt_tokens": 1}}).usage == {"prompt_tokens": 1}


def test_missing_and_null_fields_add_nothing() -> None:
    assert delta_of({}) == Delta()
    assert delta_of({"choices": [{"delta": {"content": None, "role": "assistant"}}]}) == Delta()


@pytest.mark.parametrize(
    "event", ["text", 3, [], {"choices": 1}, {"choices": ["x"]}, {"choices": [{"delta": "x"}]}]
)
def test_what_is_no_chunk_is_refused(event: Any) -> None:
    with pytest.raises(ValueError, match="not a chunk of a chat completion"):
        delta_of(event)
