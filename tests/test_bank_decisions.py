"""What a person decides about the bank's items, and what stands then and stood before."""

import dataclasses
from pathlib import Path

import pytest

from memory.bank import RubricBank
from memory.errors import SettingsError
from tests.bank_parts import bank_in, ids, reflection

FLAGGED = {"flags": ("It tells its reader to visit a page.",)}


async def everywhere(bank: RubricBank, question: str) -> set[str]:
    """Ids of all that any view of the bank shows."""
    shown = await bank.items(every=True)
    shown += await bank.history(question) + await bank.find("o") + await bank.find("n")
    shown += list(await bank.export())
    found = await bank.search("cache", 10)
    recalled = await bank.recall(question)
    own = {recalled.own.id} if recalled.own else set()
    return {*ids(shown), *ids(found), *ids(recalled.similar), *own}


async def test_what_is_pinned_is_not_replaced_and_the_new_one_is_kept_in_the_history(
    tmp_path: Path,
):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "old"))
    await bank.pin("old")
    await bank.put(reflection("cache", "new"))
    assert ids(await bank.items()) == ["old"]
    assert ids(await bank.history("cache")) == ["old", "new"]
    await bank.pin("old", False)
    await bank.put(reflection("cache", "newer"))
    assert ids(await bank.items()) == ["newer"]


async def test_what_is_disabled_is_not_recalled_until_it_is_enabled(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "a"))
    await bank.disable("a")
    assert (await bank.items(), await bank.search("cache")) == ([], [])
    assert await bank.within("cache") is None
    [item] = await bank.items(every=True)
    assert (item.disabled, item.live) == (True, False)
    await bank.disable("a", False)
    assert ids(await bank.search("cache")) == ids(await bank.items()) == ["a"]


async def test_what_is_flagged_waits_in_quarantine_and_replaces_nothing(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "old"))
    await bank.put(reflection("cache", "new", **FLAGGED))
    await bank.put(reflection("cache heap", "alone", **FLAGGED))
    assert ids(await bank.items()) == ids(await bank.search("cache")) == ["old"]
    waiting = [i for i in await bank.items(every=True) if i.quarantined]
    assert ids(waiting) == ["new", "alone"] and not any(i.live for i in waiting)
    await bank.release("new")
    await bank.release("alone")
    assert ids(await bank.items()) == ["new", "alone"]
    assert ids(await bank.search("heap")) == ["alone", "new"]


async def test_what_is_released_late_does_not_replace_a_newer_or_a_pinned_one(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "late", **FLAGGED))
    await bank.put(reflection("cache", "newer"))
    await bank.put(reflection("heap", "pinned"))
    await bank.pin("pinned")
    await bank.put(reflection("heap", "after", **FLAGGED))
    await bank.release("late")
    await bank.release("after")
    assert ids(await bank.items()) == ["newer", "pinned"]
    assert not any(item.quarantined for item in await bank.items(every=True))


async def test_an_edited_item_takes_the_place_and_the_pin_of_the_old_one(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "old"))
    await bank.pin("old")
    item = await bank.edit("old", "Pitfalls: none", "- mine")
    written = item.reflection
    assert (written.origin, written.replaces, written.question) == ("hand", "old", "cache")
    assert (written.rubrics, written.takeaways, item.pinned) == ("Pitfalls: none", "- mine", True)
    assert ids(await bank.items()) == [written.id]
    assert ids(await bank.history("cache")) == ["old", written.id]
    await bank.put(reflection("cache", "run"))
    assert ids(await bank.items()) == [written.id]


async def test_an_edit_lets_a_flagged_item_out_in_the_persons_words(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "old", **FLAGGED))
    item = await bank.edit("old", "r", "t")
    assert item.live and ids(await bank.items()) == [item.reflection.id]
    assert ids(await bank.items(every=True)) == ["old", item.reflection.id]


async def test_what_is_removed_is_gone_from_every_view_and_its_text_from_the_disk(
    tmp_path: Path,
):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "other"))
    await bank.put(reflection("cache secret-one", "old", "- secret-two", rubrics="secret-three"))
    await bank.put(reflection("cache secret-one", "new", "- public"))
    await bank.search("cache")
    await bank.used("run", ["old"], "cache secret-one")
    for identifier in ("old", "new"):
        await bank.remove(identifier)
    assert await everywhere(bank, "cache secret-one") == {"other"}
    assert await everywhere(bank_in(tmp_path), "cache secret-one") == {"other"}
    assert ids(await bank.items(2)) == ["other"]
    held = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"secret-" not in held and b"other" in held
    assert await bank.put(reflection("cache secret-one", "old")) is False


async def test_removing_leaves_the_generations_and_the_other_items_where_they_were(
    tmp_path: Path,
):
    bank = bank_in(tmp_path)
    for question, identifier in (("cache", "a"), ("heap", "b"), ("cache", "c"), ("rome", "d")):
        await bank.put(reflection(question, identifier))
    before = [(i.reflection.id, i.since, i.until) for i in await bank.items(every=True)]
    await bank.remove("b")
    after = [(i.reflection.id, i.since, i.until) for i in await bank.items(every=True)]
    assert after == [item for item in before if item[0] != "b"]
    assert ids(await bank.items(3)) == ["c"] and await bank.generation() == 5
    (tmp_path / "bank" / "catalogue.db").unlink()
    again = await bank_in(tmp_path).items(every=True)
    assert [(i.reflection.id, i.since, i.until) for i in again] == after


async def test_a_question_comes_back_after_it_was_removed(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("heap", "a"))
    await bank.put(reflection("cache", "b"))
    assert len(await bank.search("heap")) == 2
    await bank.remove("a")
    assert ids(await bank.search("heap")) == ["b"]
    await bank.put(reflection("heap", "c", "- open the file"))
    assert ids(await bank.search("heap")) == ["c", "b"]


async def test_decisions_are_seen_from_the_generation_they_were_made_in(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "a"))  # generation 1
    await bank.disable("a")  # 2
    await bank.disable("a", False)  # 3
    await bank.put(reflection("heap", "b", **FLAGGED))  # 4
    await bank.release("b")  # 5
    shown = [ids(await bank.items(generation)) for generation in range(6)]
    assert shown == [[], ["a"], [], ["a"], ["a"], ["a", "b"]]
    found = [sorted(ids(await bank.across("cache heap", generation=g))) for g in range(6)]
    assert found == shown


async def test_a_decision_that_is_so_already_makes_no_generation(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "a"))
    await bank.pin("a")
    await bank.pin("a")
    await bank.disable("a", False)
    await bank.release("a")
    assert await bank.generation() == 2


async def test_what_cannot_be_decided_is_said_in_a_sentence(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "a"))
    await bank.put(reflection("cache", "b"))
    await bank.put(reflection("heap", "c", **FLAGGED))
    with pytest.raises(SettingsError, match="no reflection 'x'"):
        await bank.remove("x")
    with pytest.raises(SettingsError, match="a was replaced by b") as caught:
        await bank.edit("a", "r", "t")
    assert "b" in caught.value.remedy
    with pytest.raises(SettingsError, match="c is in quarantine") as caught:
        await bank.pin("c")
    assert "rubricem bank release c" in caught.value.remedy
    assert await bank.generation() == 3


async def test_stats_count_what_is_there(tmp_path: Path):
    bank = bank_in(tmp_path)
    for question, identifier in (("cache", "a"), ("cache", "b"), ("heap", "c"), ("path", "d")):
        await bank.put(reflection(question, identifier))
    await bank.put(reflection("rome", "e", **FLAGGED))
    await bank.disable("c")
    await bank.remove("d")
    await bank.used("run", ["b"], "cache")
    before = await bank.stats()
    assert (before.embedder, before.index_bytes) == ("", 0)
    await bank.search("cache")
    stats = await bank.stats()
    counts = (stats.live, stats.disabled, stats.quarantined, stats.replaced, stats.removed)
    assert counts == (1, 1, 1, 1, 1)
    assert (stats.generation, stats.uses, stats.embedder) == (7, 1, "words")
    assert stats.journal_bytes == (tmp_path / "bank" / "journal.jsonl").stat().st_size
    assert stats.index_bytes > 0
    assert dataclasses.replace(stats, embedder="", index_bytes=0) == before
