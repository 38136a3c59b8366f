"""What a collection may take, by hand, and that it is told before and after."""

import pytest

from rubricem.agent.models.limits import Price
from rubricem.agent.transcript.question import Ask
from rubricem.memory.schema import Usage
from rubricem.training.collect.expected import estimate, expected
from tests.support.collected import manifest

ASK = Ask("", tool_calls=2, passages=5, passage_words=100)


@pytest.mark.parametrize(
    ("kind", "options", "calls"),
    [
        ("stage", {}, 9),
        ("stage", {"support": "judge"}, 10),
        ("relative", {}, 1),
        ("pairwise", {}, 56),
        ("checklist", {}, 10),
        ("rubric:a:b 12", {}, 9),
    ],
)
def test_a_group_of_eight_costs_so_many_calls(kind: str, options: dict[str, str], calls: int):
    shape = {"judge": "j", "judge_kind": kind, "group_size": 8, "judge_options": options}
    told = expected(manifest().model_copy(update=shape), ASK, rollouts=16)
    assert told["judge"].calls == 2 * calls


def test_the_estimate_is_the_sum_of_its_parts_at_their_prices():
    shape = {"judge": "j", "group_size": 4, "reflections": 3}
    told = expected(manifest().model_copy(update=shape), ASK, rollouts=8)
    # A run of three turns of 400 tokens, between which two searches bring 5 x 100 words each.
    run = 2 * 5 * 100 * 1.4 + 3 * 400
    assert told["rollouts"] == Usage(
        calls=24, prompt_tokens=int(24 * (1500 + run / 2)), completion_tokens=24 * 400
    )
    assert told["judge"] == Usage(
        calls=10, prompt_tokens=int(2 * (5 * 1900 + 8 * run)), completion_tokens=7000
    )
    assert told["reflections"].calls == 8, (
        "three are written on one run of each, and judged at once"
    )
    said = estimate(told, Price(0, 0, 10), Price(0, 0, 100))
    assert said.startswith(
        "it may take rollouts: 24 calls, 67,200 tokens read, 9,600 written; judge"
    )
    assert said.endswith(f"about {(96_00 + 5600) * 1e-5 + 0.7:.2f} US dollars")
    assert "dollars" not in estimate(told, None, None)
    bare = expected(manifest().model_copy(update={"judge": ""}), ASK, rollouts=8)
    assert not bare["judge"].calls and "judge" not in estimate(bare, None, None)
