import pytest

from agent.servers.reasoning import split_thinking


@pytest.mark.parametrize(
    ("raw", "reasoning", "text"),
    [
        ("<think>why</think>so", "why", "so"),
        ("\n<think>\nwhy\n</think>\n\nso", "why", "so"),
        ("why</think>so", "why", "so"),
        ("<think></think>so", "", "so"),
        ("<think>why", "why", ""),
        ("so it is", "", "so it is"),
        ("so <think>late</think>", "so <think>late", ""),
        ("<answer>a</answer>", "", "<answer>a</answer>"),
        ("", "", ""),
    ],
)
def test_thinking_is_split_from_the_start(raw: str, reasoning: str, text: str) -> None:
    assert split_thinking(raw) == (reasoning, text)


def test_no_piece_of_an_opened_thought_is_ever_taken_for_text() -> None:
    whole = "<think>why not</think>because"
    seen = [split_thinking(whole[:end])[1] for end in range(len(whole) + 1)]
    assert [text for text in seen if text] == [
        "b",
        "be",
        "bec",
        "beca",
        "becau",
        "becaus",
        "because",
    ]
