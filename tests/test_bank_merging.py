"""Uses of the bank's items, and reflections that are brought in from elsewhere."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory.errors import StoreError
from memory.items import Imported
from tests.bank_parts import bank_in, ids, reflection

LATER = datetime(2026, 2, 2, tzinfo=UTC)


async def test_an_item_says_how_often_it_was_recalled_and_how_those_runs_were_scored(
    tmp_path: Path,
):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "a"))
    await bank.put(reflection("heap", "b"))
    for run, items in (("r1", ["a", "b"]), ("r2", ["a"]), ("r3", ["a"]), ("r1", ["b"])):
        await bank.used(run, items, "a secret question")
    for run, mean in (("r1", 0.1), ("r2", 0.8), ("r1", 0.5), ("r9", 1.0)):
        await bank.scored(run, mean)
    counted = {i.reflection.id: (i.recalled, i.mean_score) for i in await bank.items()}
    assert counted == {"a": (3, pytest.approx(0.65)), "b": (1, 0.5)}
    assert (await bank.stats()).uses == 3
    assert await bank.generation() == 2
    again = await bank_in(tmp_path).find("a")
    assert [(i.recalled, i.mean_score) for i in again] == [(3, pytest.approx(0.65))]
    assert "secret" not in (tmp_path / "bank" / "uses.jsonl").read_text()


async def test_a_use_cut_by_a_crash_is_passed_over_and_a_damaged_one_is_told(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "a"))
    await bank.used("r1", ["a"], "q")
    with (tmp_path / "bank" / "uses.jsonl").open("a") as file:
        file.write('{"trajectory": "r2", "ids"')
    assert (await bank.items())[0].recalled == 1
    await bank.used("r3", ["a"], "q")
    assert (await bank.items())[0].recalled == 2
    with (tmp_path / "bank" / "uses.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(StoreError, match="line 3 of the bank's uses"):
        await bank_in(tmp_path).items()
    assert (await bank_in(tmp_path).recall("cache")).own is not None


async def test_of_two_on_one_question_the_better_one_wins_and_the_other_is_history(
    tmp_path: Path,
):
    bank = bank_in(tmp_path)
    for question, identifier in (("cache", "a"), ("heap", "b"), ("path", "c"), ("rome", "d")):
        await bank.put(reflection(question, identifier))
    await bank.pin("a")
    await bank.disable("d")
    brought = await bank.bring_in(
        [
            reflection("cache", "a2", score=1.0),  # pinned against it
            reflection("heap", "b2", score=0.7),  # worse
            reflection("heap", "b3", score=0.75, written_at=LATER),  # as good, later
            reflection("heap", "b4", score=0.75),  # as good, earlier
            reflection("path", "c2", score=0.8),  # better
            reflection("rome", "d2", score=0.1),  # against one that is disabled
            reflection("new", "e"),
            reflection("newer", "f", flags=("It gives orders.",)),
            reflection("heap", "b"),  # there already
        ]
    )
    assert brought == Imported(added=1, replaced=3, kept=4, quarantined=1)
    assert ids(await bank.items()) == ["a", "b3", "c2", "d2", "e"]
    assert ids(await bank.history("heap")) == ["b", "b2", "b3", "b4"]
    assert {i.reflection.origin for i in await bank.find("b2")} == {"import"}
    assert [i.reflection.id for i in await bank.items(every=True) if i.quarantined] == ["f"]


async def test_what_was_removed_is_not_brought_in_again(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "a"))
    await bank.remove("a")
    assert await bank.bring_in([reflection("cache", "a")]) == Imported(removed=1)
    assert await bank.items() == []


async def test_what_was_removed_is_brought_in_under_a_new_id_where_it_is_asked_for(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "a"))
    await bank.remove("a")
    assert await bank.bring_in([reflection("cache", "a")], removed=True) == Imported(added=1)
    [first] = ids(await bank.items())
    assert first != "a"
    assert await bank.bring_in([reflection("cache", "a")], removed=True) == Imported(kept=1)
    await bank.remove(first)
    assert await bank.bring_in([reflection("cache", "a")], removed=True) == Imported(added=1)
    assert first not in ids(await bank.items())


async def test_an_export_brought_into_an_empty_bank_is_the_same_bank(tmp_path: Path):
    one, two = bank_in(tmp_path / "one"), bank_in(tmp_path / "two")
    await one.bring_in(reflection(f"cache {n}", f"r{n}") for n in range(600))
    exported = [item.reflection for item in await one.export()]
    assert await two.bring_in(exported) == Imported(added=600)
    assert ids(await two.items()) == ids(await one.items())
    assert await two.bring_in(exported) == Imported(kept=600)
    assert await two.generation() == 600
