import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricem.training.collect.curriculum import Curriculum
from rubricem.training.collect.directory import Question
from rubricem.training.rounds.rounds import recalls_after
from tests.support.rows import ASKED


def asked(names: str) -> list[Question]:
    return [Question(id=name, question=f"What is {name}?") for name in names]


def shown(curriculum: Curriculum, steps: int) -> list[tuple[str, int | None]]:
    batches = [curriculum.batch(step) for step in range(steps)]
    return [("".join(q.id for q in batch.questions), batch.replay_of) for batch in batches]


@pytest.mark.parametrize(
    ("names", "size", "window", "steps", "batches"),
    [
        ("abcde", 2, 0, 3, [("ab", None), ("cd", None), ("e", None)]),
        ("abaab", 3, 0, 3, [("ab", None), ("a", None), ("ab", None)]),
        ("ab", 1, 0, 2, [("a", None), ("b", None)]),
        (
            "abcdefgh", 2, 3, 8,
            [("ab", None), ("cd", None), ("ef", None), ("ab", 0), ("cd", 1), ("ef", 2),
             ("gh", None), ("gh", 6)],
        ),
        (
            "abc", 2, 1, 4,
            [("ab", None), ("ab", 0), ("c", None), ("c", 2), ("ab", None), ("ab", 4)],
        ),
    ],
    ids=[
        "each once a pass in its order", "no step holds a question twice", "one a step",
        "a window asks K new batches, then the same", "a second pass goes on counting steps",
    ],
)  # fmt: skip
def test_the_batches_of_steps_by_hand(
    names: str, size: int, window: int, steps: int, batches: list[tuple[str, int | None]]
):
    curriculum = Curriculum(asked(names), size, window)
    assert (curriculum.steps, shown(curriculum, len(batches))) == (steps, batches)


def test_a_seed_gives_each_pass_an_order_of_its_own_and_every_time_the_same():
    first, again = (Curriculum(asked("abcdefghij"), 10, seed=3) for _ in range(2))
    assert shown(first, 3) == shown(again, 3)
    orders = [order for order, _ in shown(first, 3)]
    assert len(set(orders)) == 3
    assert {"".join(sorted(order)) for order in orders} == {"abcdefghij"}
    assert shown(Curriculum(asked("abcdefghij"), 10, seed=4), 1) != shown(first, 1)


@given(
    names=st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=30),
    size=st.integers(1, 5),
    window=st.integers(0, 4),
    seed=st.none() | st.integers(0, 9),
    step=st.integers(0, 60),
)
def test_a_step_follows_from_its_number_alone(
    names: list[str], size: int, window: int, seed: int | None, step: int
):
    def made() -> Curriculum:
        return Curriculum(asked("".join(names)), size, window, seed)

    walked = made()
    assert [walked.batch(n) for n in range(step + 1)][-1] == made().batch(step)
    batch = made().batch(step)
    assert 0 < len(batch.questions) <= size
    if batch.replay_of is not None:
        assert made().batch(batch.replay_of).questions == batch.questions
        assert step - batch.replay_of <= window


def test_a_batch_is_fresh_where_its_window_asks_it_again():
    windowed, plain = Curriculum(asked("abc"), 1, window=2), Curriculum(asked("abc"), 1)
    assert [windowed.batch(step).fresh for step in range(8)] == [
        True, True, False, False, True, False, True, True,
    ]  # fmt: skip
    assert not any(plain.batch(step).fresh for step in range(4))


def test_no_questions_make_no_curriculum():
    with pytest.raises(ValueError, match="0 questions make no batches"):
        Curriculum([], 2)


def test_a_round_recalls_what_is_surely_over_and_waits_for_its_own_questions():
    fresh = Curriculum(ASKED, 1)
    assert [recalls_after(fresh, n, 0) for n in range(3)] == [-1, 0, 1]
    assert [recalls_after(fresh, n, 1) for n in range(5)] == [-1, -1, -1, 0, 1]
    again = Curriculum(ASKED, 2, window=1)
    assert [recalls_after(again, n, 1) for n in range(4)] == [-1, 0, 0, 2]
