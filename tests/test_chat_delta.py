from typing import Any

import pytest

from agent.servers.chat_delta import Delta, Token, TokenTrace, delta_of


def tokens(*written: bytes) -> TokenTrace:
    return TokenTrace([Token(10 + i, part, -1.0 - i) for i, part in enumerate(written)])


def test_a_token_that_ends_inside_a_character_ends_before_it() -> None:
    trace = tokens(b"f", b"\xc3", b"\xbcr")
    assert trace.spans("für", 3) == ((10, 11, 12), (-1.0, -2.0, -3.0), (1, 1, 3))


def test_tokens_from_the_cut_on_are_left_out_and_the_last_end_is_cut() -> None:
    trace = tokens(b"ab", b"cd", b"ef")
    assert trace.spans("abcdef", 3) == ((10, 11), (-1.0, -2.0), (2, 3))
    assert trace.spans("abcdef", 4) == ((10, 11), (-1.0, -2.0), (2, 4))


def test_the_end_of_turn_token_is_left_out() -> None:
    assert tokens(b"ab", b"<|im_end|>").spans("ab", 2) == ((10,), (-1.0,), (2,))


def test_tokens_that_did_not_write_the_text_are_no_spans() -> None:
    assert tokens(b"ab", b"xx").spans("abcd", 4) is None
    assert tokens(b"ab").spans("abcd", 4) is None
    assert TokenTrace().spans("ab", 2) is None


def test_one_token_without_an_id_leaves_no_spans() -> None:
    trace = TokenTrace([Token(1, b"a", -0.1), Token(None, b"b", -0.1)])
    assert trace.spans("ab", 2) is None


def test_ids_beside_the_delta_are_those_of_its_tokens() -> None:
    entries = [{"token": "a", "logprob": -0.5}, {"token": "b", "bytes": [98], "logprob": -0.25}]
    choice = {"delta": {"content": "ab"}, "logprobs": {"content": entries}, "token_ids": [7, 8]}
    assert delta_of({"choices": [choice]}) == Delta(
        content="ab", tokens=(Token(7, b"a", -0.5), Token(8, b"b", -0.25))
    )


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
