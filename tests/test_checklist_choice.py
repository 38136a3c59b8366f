"""Checklists read from the probabilities of a local model."""

from judge.checklist import ChecklistItem
from judge.checklist_choice import ChoiceChecker
from memory.errors import PolicyError
from tests.readers import FixedReader

ITEMS = [ChecklistItem(criterion=f"It names {word}.", points=2) for word in ("LRU", "FIFO", "LIFO")]


async def test_an_item_is_met_where_yes_is_likelier():
    def rule(text: str) -> tuple[float, ...]:
        if "names LRU" in text:
            return (0.5, 0.1, 0.3, 0.1)
        return (0.1, 0.1, 0.5, 0.3) if "names FIFO" in text else (0.25, 0.25, 0.25, 0.25)

    checked = await ChoiceChecker(FixedReader(rule)).check(
        "Which?", "Cats sleep. LRU it is.", ITEMS
    )
    assert [f.outcome for f in checked.findings] == ["met", "not met", "unparsed"]
    assert (checked.findings[0].explanation, checked.findings[0].by) == ("LRU it is.", "code")
    assert checked.usage.calls == 3


async def test_items_share_the_prefix_that_a_cache_keeps():
    reader = FixedReader(lambda text: (1.0, 0.0, 0.0, 0.0), context_tokens=3000)
    await ChoiceChecker(reader).check("Which?" * 200, "An answer. " * 900, ITEMS)
    first, second, third = reader.texts
    shared = next(at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    assert first[:shared] == third[:shared] and "names" in first[shared - 20 :]
    assert max(map(len, reader.texts)) <= 3000
    assert "Which?" in first and "An answer." in first


async def test_a_question_that_leaves_no_room_leaves_all_unparsed():
    reader = FixedReader(lambda text: (1.0, 0.0, 0.0, 0.0), context_tokens=500)
    checked = await ChoiceChecker(reader).check("q" * 9000, "a", ITEMS)
    assert [f.outcome for f in checked.findings] == ["unparsed"] * 3
    assert "context" in checked.fault


async def test_one_item_that_fails_is_unparsed_alone():
    def rule(text: str) -> tuple[float, ...]:
        if "names FIFO" in text:
            raise PolicyError("no option has a probability")
        return (0.9, 0.0, 0.1, 0.0)

    checked = await ChoiceChecker(FixedReader(rule)).check("q", "a", ITEMS)
    assert [f.outcome for f in checked.findings] == ["met", "unparsed", "met"]
    assert checked.fault == "no option has a probability"
