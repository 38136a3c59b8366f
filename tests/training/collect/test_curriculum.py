import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricem.training.collect.curriculum import Curriculum
from rubricem.training.collect.directory import Question


def asked(names: str) -> list[Question]:
    return [Question(id=name, question=f"What is {name}?") for name in names]


def shown(curriculum: Curriculum, steps: int) -> list[tuple[str, int | None]]:
    batches = [curriculum.batch(step) for step in range(steps)]
    return [("".join(q.id for q in batch.questions), batch.replay_of) for batch in batches]


def test_without_windows_each_question_is_asked_once_a_pass_in_its_order():
    curriculum = Curriculum(asked("abcde"), size=2)
    assert curriculum.steps == 3
    assert shown(curriculum, 3) == [("ab", None), ("cd", None), ("e", None)]


def test_a_window_asks_k_new_batches_and_then_the_same_again():
    curriculum = Curriculum(asked("abcdefgh"), size=2, window=3)
    assert curriculum.steps == 8
    assert shown(curriculum, 8) == [
        ("ab", None), ("cd", None), ("ef", None), ("ab", 0), ("cd", 1), ("ef", 2),
        ("gh", None), ("gh", 6),
    ]  # fmt: skip


def test_a_step_holds_no_question_twice():
    assert shown(Curriculum(asked("abaab"), 3), 3) == [("ab", None), ("a", None), ("ab", None)]
    assert shown(Curriculum(asked("ab"), 1), 2) == [("a", None), ("b", None)]


def test_a_second_pass_goes_on_counting_steps():
    curriculum = Curriculum(asked("abc"), size=2, window=1)
    assert shown(curriculum, 6)[4:] == [("ab", None), ("ab", 4)]
    assert curriculum.steps == 4


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
