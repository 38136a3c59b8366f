"""A plan is data: numbered look-ups with kinds and references, and one operation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricem.agent.research.plans import Lookup, Plan, PlanOperation, plan_grammar, read_plan
from rubricem.agent.research.tuned import TUNED
from rubricem.memory.schema import AnswerKind
from tests.support.gbnf import accepts

QUESTION = "Which film has the older director, The Kite or The Iris?"
WRITTEN = """1. Who directed The Kite? | person
2. Who directed The Iris? | person
3. When was [1] born? | date
4. When was [2] born? | date
Then: earlier [3] and [4]"""


def test_a_plan_is_its_lines_with_kinds_references_and_what_is_done_with_them():
    plan = read_plan(WRITTEN, QUESTION)
    assert [(s.number, s.kind, s.refers) for s in plan.steps] == [
        (1, AnswerKind.PERSON, ()),
        (2, AnswerKind.PERSON, ()),
        (3, AnswerKind.DATE, (1,)),
        (4, AnswerKind.DATE, (2,)),
    ]
    assert (plan.operation, plan.of) == (PlanOperation.EARLIER, (3, 4))
    assert (plan.leaves, plan.ends, plan.needed) == ((3, 4), (3, 4), {1, 2, 3, 4})
    assert read_plan(plan.text(), QUESTION) == plan
    assert not plan.apart


@pytest.mark.parametrize(
    ("text", "steps", "of"),
    [
        ("", [QUESTION], ()),
        ("no look-up at all", [QUESTION], ()),
        ("1. Where did [2] die? | place", ["Where did die?"], ()),
        ("1. Where did [1] die? | place", ["Where did die?"], ()),
        ("2. Who made A?\n5. Who saw [2]?\nThen: later", ["Who made A?", "Who saw [1]?"], (1, 2)),
        ("1. Who made A?\nThen: same [1] and [2]", ["Who made A?"], ()),
        ("1. Who made A?\n2. Who made B?\nThen: joined [1] and [2]", ["Who made A?", "Who made B?"],
         ()),
        ("1. When was A?\n2. Who is B?\n3. When was C?\nThen: later [1] and [3]",
         ["When was A?", "Who is B?", "When was C?"], (1, 3)),
    ],
)  # fmt: skip
def test_what_a_plan_refers_to_and_is_not_there_is_left_out(
    text: str, steps: list[str], of: tuple[int, ...]
):
    plan = read_plan(text, QUESTION)
    assert [step.text for step in plan.steps] == steps
    assert plan.of == of


def test_a_look_up_without_a_kind_is_answered_in_words():
    plan = read_plan("1. Who made A?\n2. Who made B? | sculptor", QUESTION)
    assert {step.kind for step in plan.steps} == {AnswerKind.WORDS}


def test_a_plan_has_so_many_look_ups_at_most():
    many = "\n".join(f"{n}. Who made A{n}? | person" for n in range(1, 99))
    assert len(read_plan(many, QUESTION).steps) == TUNED.lookups


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        (WRITTEN[2:] + "", True),
        (" Who? | person\nThen: none", True),
        (" Who? | words\n2. Where did [1] die? | yes/no\nThen: both [1] and [2]", True),
        (" Where did [1] die? | place\nThen: none", False),
        (" Who? | sculptor\nThen: none", False),
        (" Who? | person\n3. Who? | person\nThen: none", False),
        (" Who? | person", False),
    ],
)
def test_a_model_can_write_nothing_but_a_plan(text: str, allowed: bool):
    assert accepts(plan_grammar(4), text) is allowed


@given(st.text(alphabet="12. |[]\nThen:beotharlis", max_size=80))
def test_any_text_is_read_as_a_plan_whose_references_come_before(text: str):
    plan = read_plan(text, QUESTION)
    assert plan.steps and all(n < step.number for step in plan.steps for n in step.refers)
    assert set(plan.of) <= {step.number for step in plan.steps}


def test_what_no_end_rests_on_is_not_needed():
    steps = (Lookup(1, "Which?"), Lookup(2, "When was A?"), Lookup(3, "When was B?"))
    assert Plan(steps, PlanOperation.LATER, (2, 3)).needed == {2, 3}


@pytest.mark.parametrize(
    ("texts", "ends"),
    [
        (["Where did the director die?", "Who directed it?", "Where did [2] die?"], (3,)),
        (["Why is it?", "What happens?"], (1, 2)),
        (["Who directed it?"], (1,)),
    ],
)
def test_a_chain_ends_with_its_last_look_up_and_parts_with_each(texts: list[str], ends: object):
    steps = tuple(Lookup(at, text) for at, text in enumerate(texts, start=1))
    assert Plan(steps).ends == ends


def test_a_look_up_that_repeats_another_is_that_one():
    """Small models write a line again and again."""
    text = "1. Who built it? | person\n2. who built  it? | person\n3. When did [2] die? | date\n"
    plan = read_plan(text, "When did its builder die?")
    assert [(step.number, step.text) for step in plan.steps] == [
        (1, "Who built it?"), (2, "When did [1] die?"),
    ]  # fmt: skip
    same = "".join(f"{n}. What is it? | thing\n" for n in range(1, 6))
    assert len(read_plan(f"{same}Then: same [1] and [2]", "What is it?").steps) == 1
