"""The rubric bank over a real journal and a real Chroma: what stands, stood, and comes back."""

import dataclasses
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rubricem.memory.bank import EpisodeMatch, Imported, ItemUse, RubricBank
from rubricem.memory.bank.store import FAILING
from rubricem.memory.errors import SettingsError, StoreError
from tests.conftest import ROOT
from tests.support.banks import WordEmbedder, bank_in, episode, ids, put, reflection


async def test_an_empty_bank_loads_nothing_and_writes_nothing(tmp_path: Path):
    opened = []

    async def open_embedder() -> WordEmbedder:
        opened.append(1)
        return WordEmbedder()

    bank = RubricBank(tmp_path, open_embedder)
    assert await bank.across("cache?") == [] == await bank.search("cache")
    assert await bank.within("cache?") is None
    assert (await bank.items(), await bank.generation(), opened) == ([], 0, [])
    assert list(tmp_path.iterdir()) == []


def test_an_empty_bank_imports_neither_chroma_nor_torch():
    code = (
        "import asyncio, sys, tempfile, pathlib\n"
        "from rubricem.memory.bank import RubricBank\n"
        "bank = RubricBank(pathlib.Path(tempfile.mkdtemp()))\n"
        "assert asyncio.run(bank.across('x')) == []\n"
        "sys.exit(len({'chromadb', 'torch', 'sentence_transformers'} & set(sys.modules)))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


async def test_the_nearest_other_questions_are_found_in_order(bank: RubricBank):
    await put(bank, ("cache heap", "both"), ("cache", "same subject"), ("rome", "another"))
    found = await bank.across("cache cache", k=2)
    assert [m.reflection.id for m in found] == ["same subject", "both"]
    assert [m.similarity for m in found] == pytest.approx([1.0, 0.7071], abs=1e-3)


async def test_what_is_farther_than_the_floor_is_another_matter(bank: RubricBank):
    await bank.put(reflection("cache heap", "both"))
    assert [m.reflection.id for m in await bank.across("cache", floor=0.7)] == ["both"]
    assert await bank.across("cache", floor=0.71) == []
    assert await bank.across("rome") == []
    assert [m.reflection.id for m in await bank.search("rome")] == ["both"]


async def test_the_question_itself_is_found_by_its_words_and_is_not_its_own_neighbour(
    bank: RubricBank,
):
    await put(bank, ("cache", "own"), ("cache heap", "other"))
    own = await bank.within(" cache\n")
    assert own is not None and own.id == "own"
    assert [m.reflection.id for m in await bank.across("cache")] == ["other"]
    assert await bank.within("Cache") is None


async def test_a_reencounter_replaces_and_the_old_one_stays_in_the_history(bank: RubricBank):
    await bank.put(reflection("cache", "old"))
    assert [m.reflection.id for m in await bank.across("cache heap")] == ["old"]
    await bank.put(reflection("cache", "new"))
    assert [m.reflection.id for m in await bank.across("cache heap")] == ["new"]
    assert [i.reflection.id for i in await bank.items()] == ["new"]
    assert [i.reflection.id for i in await bank.history("cache")] == ["old", "new"]
    assert [i.reflection.id for i in await bank.find("ol")] == ["old"]


async def test_the_same_reflection_is_put_once(bank: RubricBank):
    assert await bank.put(reflection("cache", "a")) is True
    assert await bank.put(reflection("cache", "a")) is False
    assert await bank.generation() == 1


async def test_asked_at_a_generation_the_bank_answers_as_it_stood_then(bank: RubricBank):
    await put(bank, ("cache", "old"), ("cache heap", "other"), ("cache", "new"))
    then = await bank.within("cache", generation=2)
    assert then is not None and then.id == "old"
    query = "cache cache heap"
    assert [m.reflection.id for m in await bank.across(query, generation=2)] == ["other", "old"]
    assert [m.reflection.id for m in await bank.across(query)] == ["other", "new"]
    assert [i.reflection.id for i in await bank.items(1)] == ["old"]
    assert await bank.across(query, generation=0) == []


async def test_only_what_is_new_is_embedded(tmp_path: Path):
    embedder = WordEmbedder()
    bank = bank_in(tmp_path, embedder)
    await bank.put(reflection("cache", "a"))
    await bank.across("cache heap")
    await bank.put(reflection("heap", "b"))
    await bank.across("cache heap")
    await bank.across("cache heap")
    assert embedder.embedded == ["cache heap", "cache", "cache heap", "heap", "cache heap"]


@pytest.mark.parametrize("damage", ["missing", "garbage", "journal"])
async def test_an_index_that_does_not_fit_is_built_again(
    bank: RubricBank, tmp_path: Path, damage: str
):
    await put(bank, ("cache", "a"), ("rome", "b"))
    assert len(await bank.search("cache")) == 2
    index = tmp_path / "bank" / "index"
    embedder = WordEmbedder()
    if damage == "missing":
        for path in sorted(index.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    elif damage == "garbage":
        for path in (*index.rglob("chroma.sqlite3"), *index.glob("vectors-*")):
            path.write_bytes(b"no database" * 1000)
    elif damage == "journal":
        (tmp_path / "bank" / "journal.jsonl").unlink()
        for identifier in ("c", "d", "e"):
            await bank.put(reflection(f"cache {identifier}", identifier))
    again = bank_in(tmp_path, embedder)
    wanted = {"c", "d", "e"} if damage == "journal" else {"a", "b"}
    assert {m.reflection.id for m in await again.search("cache")} == wanted
    assert len(embedder.embedded) == 1 + len(wanted), "every vector is of this embedder"


async def test_two_banks_see_what_the_other_puts(tmp_path: Path):
    one, two = bank_in(tmp_path), bank_in(tmp_path)
    await one.put(reflection("cache", "a"))
    assert len(await one.search("cache")) == len(await two.search("cache")) == 1
    await two.put(reflection("cache heap", "b"))
    assert [m.reflection.id for m in await two.across("cache")] == ["b"]
    assert [m.reflection.id for m in await one.across("cache")] == ["b"]


async def test_a_line_cut_by_a_crash_is_passed_over_and_removed(tmp_path: Path):
    path = tmp_path / "bank" / "journal.jsonl"
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "a"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:-20])
    assert [i.reflection.id for i in await bank_in(tmp_path).items()] == ["a"]
    await bank.put(reflection("heap", "b"))
    assert path.read_bytes().startswith(whole) and path.read_bytes().count(b"\n") == 2
    assert [i.reflection.id for i in await bank_in(tmp_path).items()] == ["a", "b"]
    assert [i.reflection.id for i in await bank.items()] == ["a", "b"]


async def test_a_damaged_line_is_told_with_its_number(tmp_path: Path):
    await bank_in(tmp_path).put(reflection("cache", "a"))
    with (tmp_path / "bank" / "journal.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(StoreError, match="line 2 of the bank's journal") as caught:
        await bank_in(tmp_path).items()
    assert "Remove that line" in caught.value.remedy
    with pytest.raises(StoreError, match="line 2"):
        await bank_in(tmp_path).put(reflection("heap", "b"))


async def test_another_embedder_is_refused_until_the_bank_is_rebuilt(tmp_path: Path):
    await bank_in(tmp_path).put(reflection("cache", "a"))
    await bank_in(tmp_path).search("heap")
    other = WordEmbedder("other")
    bank = bank_in(tmp_path, other)
    with pytest.raises(SettingsError, match="indexed by words, not by other") as caught:
        await bank.search("heap")
    assert "rubricem bank rebuild" in caught.value.remedy
    opening = tmp_path / "bank" / "index" / "opening"
    assert not opening.exists(), "a refusal counts as no crash, after two of which all is remade"
    recalled = await bank.recall("cache heap")
    assert (recalled.similar, type(recalled.fault)) == ((), SettingsError)
    await bank.rebuild()
    assert [m.reflection.id for m in await bank.search("heap")] == ["a"]
    assert "cache" in other.embedded
    with pytest.raises(SettingsError, match="indexed by other, not by words"):
        await bank_in(tmp_path).search("heap")


async def test_a_bank_without_an_embedder_says_so(tmp_path: Path):
    bank = RubricBank(tmp_path)
    await bank.put(reflection("cache", "a"))
    assert await bank.within("cache") is not None
    with pytest.raises(SettingsError, match="without an embedding model"):
        await bank.search("heap")


async def test_a_folder_that_cannot_be_used_is_one_sentence(tmp_path: Path):
    (tmp_path / "bank").write_text("a file")
    with pytest.raises(StoreError, match="cannot be used"):
        await bank_in(tmp_path).put(reflection("cache", "a"))


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
    bank: RubricBank,
):
    await bank.put(reflection("cache", "old"))
    await bank.pin("old")
    await bank.put(reflection("cache", "new"))
    assert ids(await bank.items()) == ["old"]
    assert ids(await bank.history("cache")) == ["old", "new"]
    await bank.pin("old", False)
    await bank.put(reflection("cache", "newer"))
    assert ids(await bank.items()) == ["newer"]


async def test_what_is_disabled_is_not_recalled_until_it_is_enabled(bank: RubricBank):
    await bank.put(reflection("cache", "a"))
    await bank.disable("a")
    assert (await bank.items(), await bank.search("cache")) == ([], [])
    assert await bank.within("cache") is None
    [item] = await bank.items(every=True)
    assert (item.disabled, item.live) == (True, False)
    await bank.disable("a", False)
    assert ids(await bank.search("cache")) == ids(await bank.items()) == ["a"]


async def test_what_is_flagged_waits_in_quarantine_and_replaces_nothing(bank: RubricBank):
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


async def test_what_is_released_late_does_not_replace_a_newer_or_a_pinned_one(bank: RubricBank):
    await bank.put(reflection("cache", "late", **FLAGGED))
    await put(bank, ("cache", "newer"), ("heap", "pinned"))
    await bank.pin("pinned")
    await bank.put(reflection("heap", "after", **FLAGGED))
    await bank.release("late")
    await bank.release("after")
    assert ids(await bank.items()) == ["newer", "pinned"]
    assert not any(item.quarantined for item in await bank.items(every=True))


async def test_an_edited_item_takes_the_place_and_the_pin_of_the_old_one(bank: RubricBank):
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


async def test_an_edit_lets_a_flagged_item_out_in_the_persons_words(bank: RubricBank):
    await bank.put(reflection("cache", "old", **FLAGGED))
    item = await bank.edit("old", "r", "t")
    assert item.live and ids(await bank.items()) == [item.reflection.id]
    assert ids(await bank.items(every=True)) == ["old", item.reflection.id]


async def test_what_is_removed_is_gone_from_every_view_and_its_text_from_the_disk(
    bank: RubricBank, tmp_path: Path
):
    await bank.put(reflection("cache", "other"))
    await bank.put(reflection("cache secret-one", "old", "- secret-two", rubrics="secret-three"))
    await bank.put(reflection("cache secret-one", "new", "- public"))
    await bank.search("cache")
    await bank.note_use("run", ["old"], "cache secret-one")
    for identifier in ("old", "new"):
        await bank.remove(identifier)
    assert await everywhere(bank, "cache secret-one") == {"other"}
    assert await everywhere(bank_in(tmp_path), "cache secret-one") == {"other"}
    assert ids(await bank.items(2)) == ["other"]
    held = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"secret-" not in held and b"other" in held
    assert await bank.put(reflection("cache secret-one", "old")) is False


async def test_removing_leaves_the_generations_and_the_other_items_where_they_were(
    bank: RubricBank, tmp_path: Path
):
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


async def test_a_question_comes_back_after_it_was_removed(bank: RubricBank):
    await put(bank, ("heap", "a"), ("cache", "b"))
    assert len(await bank.search("heap")) == 2
    await bank.remove("a")
    assert ids(await bank.search("heap")) == ["b"]
    await bank.put(reflection("heap", "c", "- open the file"))
    assert ids(await bank.search("heap")) == ["c", "b"]


async def test_decisions_are_seen_from_the_generation_they_were_made_in(bank: RubricBank):
    await bank.put(reflection("cache", "a"))  # generation 1
    await bank.disable("a")  # 2
    await bank.disable("a", False)  # 3
    await bank.put(reflection("heap", "b", **FLAGGED))  # 4
    await bank.release("b")  # 5
    shown = [ids(await bank.items(generation)) for generation in range(6)]
    assert shown == [[], ["a"], [], ["a"], ["a"], ["a", "b"]]
    found = [sorted(ids(await bank.across("cache heap", generation=g))) for g in range(6)]
    assert found == shown


async def test_a_decision_that_is_so_already_makes_no_generation(bank: RubricBank):
    await bank.put(reflection("cache", "a"))
    await bank.pin("a")
    await bank.pin("a")
    await bank.disable("a", False)
    await bank.release("a")
    assert await bank.generation() == 2


async def test_what_cannot_be_decided_is_said_in_a_sentence(bank: RubricBank):
    await put(bank, ("cache", "a"), ("cache", "b"))
    await bank.put(reflection("heap", "c", **FLAGGED))
    with pytest.raises(SettingsError, match="no item 'x'"):
        await bank.remove("x")
    with pytest.raises(SettingsError, match="a was replaced by b") as caught:
        await bank.edit("a", "r", "t")
    assert "b" in caught.value.remedy
    with pytest.raises(SettingsError, match="c is in quarantine") as caught:
        await bank.pin("c")
    assert "rubricem bank release c" in caught.value.remedy
    assert await bank.generation() == 3


async def test_stats_count_what_is_there(bank: RubricBank, tmp_path: Path):
    for question, identifier in (("cache", "a"), ("cache", "b"), ("heap", "c"), ("path", "d")):
        await bank.put(reflection(question, identifier))
    await bank.put(reflection("rome", "e", **FLAGGED))
    await bank.disable("c")
    await bank.remove("d")
    await bank.note_use("run", ["b"], "cache")
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


LATER = datetime(2026, 2, 2, tzinfo=UTC)


async def test_an_item_says_how_often_it_was_recalled_and_how_those_runs_were_scored(
    bank: RubricBank, tmp_path: Path
):
    await put(bank, ("cache", "a"), ("heap", "b"))
    for run, items in (("r1", ["a", "b"]), ("r2", ["a"]), ("r3", ["a"]), ("r1", ["b"])):
        await bank.note_use(run, items, "a secret question")
    for run, mean in (("r1", 0.1), ("r2", 0.8), ("r1", 0.5), ("r9", 1.0)):
        await bank.note_score(run, mean)
    counted = {i.reflection.id: (i.recalled, i.mean_score) for i in await bank.items()}
    assert counted == {"a": (3, pytest.approx(0.65)), "b": (1, 0.5)}
    assert (await bank.stats()).uses == 3
    assert await bank.generation() == 2
    again = await bank_in(tmp_path).find("a")
    assert [(i.recalled, i.mean_score) for i in again] == [(3, pytest.approx(0.65))]
    assert "secret" not in (tmp_path / "bank" / "uses.jsonl").read_text()


async def test_a_use_cut_by_a_crash_is_passed_over_and_a_damaged_one_is_told(
    bank: RubricBank, tmp_path: Path
):
    await bank.put(reflection("cache", "a"))
    await bank.note_use("r1", ["a"], "q")
    with (tmp_path / "bank" / "uses.jsonl").open("a") as file:
        file.write('{"trajectory": "r2", "ids"')
    assert (await bank.items())[0].recalled == 1
    await bank.note_use("r3", ["a"], "q")
    assert (await bank.items())[0].recalled == 2
    with (tmp_path / "bank" / "uses.jsonl").open("a") as file:
        file.write("{}\n")
    for _ in range(2):
        with pytest.raises(StoreError, match="line 3 of the bank's uses"):
            await bank.stats()
    with pytest.raises(StoreError, match="line 3 of the bank's uses"):
        await bank_in(tmp_path).items()
    assert (await bank_in(tmp_path).recall("cache")).own is not None


async def test_of_two_on_one_question_the_better_one_wins_and_the_other_is_history(
    bank: RubricBank,
):
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


async def test_what_was_removed_is_not_brought_in_again(bank: RubricBank):
    await bank.put(reflection("cache", "a"))
    await bank.remove("a")
    assert await bank.bring_in([reflection("cache", "a")]) == Imported(removed=1)
    assert await bank.items() == []


async def test_what_was_removed_is_brought_in_under_a_new_id_where_it_is_asked_for(
    bank: RubricBank,
):
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


async def test_a_bank_goes_back_to_what_it_was_with_its_uses(tmp_path: Path):
    bank, copy = bank_in(tmp_path), tmp_path / "copy"
    await put(bank, ("cache", "a"), ("heap", "b"))
    await bank.note_use("run", ["a"], "q")
    assert len(await bank.search("cache")) == 2
    assert await bank.snapshot(copy) == 2
    await bank.put(reflection("cache", "c"))
    await bank.disable("b")
    await bank.note_use("later", ["b"], "q")
    assert ids(await bank.search("cache")) == ["c"]
    other = bank_in(tmp_path)
    assert ids(await other.items()) == ["c"]
    assert await bank.restore(copy) == 2
    for held in (bank, other, bank_in(tmp_path)):
        assert ids(await held.items()) == ["a", "b"]
        assert ids(await held.search("cache")) == ["a", "b"]
        assert [i.recalled for i in await held.items()] == [1, 0]
        assert await held.generation() == 2


async def test_what_was_removed_since_stays_removed(tmp_path: Path):
    bank, copy = bank_in(tmp_path), tmp_path / "copy"
    await bank.put(reflection("cache", "a", "- secret"))
    await bank.put(reflection("heap", "b"))
    await bank.snapshot(copy)
    await bank.remove("a")
    assert await bank.restore(copy) == 3
    assert ids(await bank.items(every=True)) == ids(await bank.search("cache")) == ["b"]
    assert "secret" not in (tmp_path / "bank" / "journal.jsonl").read_text()


async def test_another_banks_snapshot_is_refused_unless_told_and_an_empty_bank_takes_any(
    tmp_path: Path,
):
    one, two, empty = (bank_in(tmp_path / name) for name in ("one", "two", "empty"))
    await one.put(reflection("cache", "a"))
    await two.put(reflection("heap", "b"))
    await one.snapshot(tmp_path / "copy")
    with pytest.raises(SettingsError, match="of another bank"):
        await two.restore(tmp_path / "copy")
    assert ids(await two.items()) == ["b"]
    await two.restore(tmp_path / "copy", foreign=True)
    assert ids(await two.items()) == ids(await two.search("cache")) == ["a"]
    await empty.restore(tmp_path / "copy")
    assert ids(await empty.items()) == ["a"]
    await empty.put(reflection("path", "c"))
    assert await empty.restore(tmp_path / "copy") == 1


async def test_what_was_removed_stays_removed_by_way_of_a_time_before_it_came(
    bank: RubricBank, tmp_path: Path
):
    await bank.put(reflection("heap", "b"))
    await bank.snapshot(tmp_path / "before")
    await bank.put(reflection("cache", "a", "- secret"))
    await bank.snapshot(tmp_path / "after")
    await bank.remove("a")
    for name in ("before", "after", "before", "after"):
        await bank.restore(tmp_path / name)
        assert ids(await bank.items(every=True)) == ids(await bank.search("cache")) == ["b"]
        assert "secret" not in (tmp_path / "bank" / "journal.jsonl").read_text()
        assert not await bank.put(reflection("cache", "a", "- secret"))
    assert ids(await bank_in(tmp_path).items(every=True)) == ["b"]


@pytest.mark.parametrize("name", ["journal.jsonl", "uses.jsonl"])
async def test_a_damaged_line_of_a_snapshot_changes_nothing(tmp_path: Path, name: str):
    bank, copy = bank_in(tmp_path), tmp_path / "copy"
    await bank.put(reflection("cache", "a"))
    await bank.note_use("run", ["a"], "q")
    await bank.snapshot(copy)
    await bank.put(reflection("heap", "b"))
    (copy / name).write_bytes((copy / name).read_bytes().replace(b'"', b"\xff", 1))
    with pytest.raises(SettingsError, match=r"damaged|no whole snapshot"):
        await bank.restore(copy)
    assert ids(await bank.items()) == ids(await bank_in(tmp_path).items()) == ["a", "b"]


@pytest.mark.parametrize("damage", ["no marker", "cut", "no folder"])
async def test_what_is_no_whole_snapshot_is_refused_and_changes_nothing(
    tmp_path: Path, damage: str
):
    bank, copy = bank_in(tmp_path), tmp_path / "copy"
    await bank.put(reflection("cache", "a"))
    await bank.snapshot(copy)
    await bank.put(reflection("heap", "b"))
    if damage == "no marker":
        (copy / "snapshot.json").unlink()
    elif damage == "cut":
        journal = copy / "journal.jsonl"
        journal.write_bytes(journal.read_bytes()[:-9])
    else:
        copy = tmp_path / "none"
    with pytest.raises(SettingsError, match="no whole snapshot"):
        await bank.restore(copy)
    assert ids(await bank.items()) == ["a", "b"]


async def test_a_snapshot_is_made_over_an_older_one_and_an_empty_bank_has_one_too(tmp_path: Path):
    bank, copy = bank_in(tmp_path), tmp_path / "copy"
    assert await bank.snapshot(copy) == 0
    await bank.put(reflection("cache", "a"))
    assert await bank.snapshot(copy) == 1
    await bank.put(reflection("cache", "b"))
    assert await bank.restore(copy) == 1
    assert ids(await bank.items()) == ["a"]


def told(run: str, item: str, used: int = 0, failed: int = 0) -> ItemUse:
    return ItemUse(trajectory=run, item=item, use="pointer", shown=1, used=used, failed=failed)


def leads(matches: Sequence[EpisodeMatch]) -> list[str]:
    return [match.episode.id for match in matches]


async def test_an_episode_stands_beside_the_reflection_on_its_question(bank: RubricBank):
    await put(bank, ("cache", "r"))
    await bank.put(episode("cache", "first", score=0.5))
    await bank.put(episode("cache", "best", score=0.9))
    await bank.put(episode("cache", "less", score=0.6))
    await bank.put(episode("heap", "held", flags=("It orders.",)))
    assert ids(await bank.items()) == ["r"]
    assert [i.record.id for i in await bank.items(kind="episode")] == ["best"]
    assert [i.record.id for i in await bank.items(3, kind="episode")] == ["best"]
    assert [i.record.id for i in await bank.items(2, kind="episode")] == ["first"]
    assert leads((await bank.episodes("cache")).matches) == ["best"]
    assert leads((await bank.episodes("heap")).matches) == []
    await bank.release("held")
    assert leads((await bank.episodes("heap")).matches) == ["held"]
    assert ids((await bank.recall("cache")).similar) == [] and (await bank.stats()).episodes == 2
    await bank.remove("best")
    assert (await bank.episodes("cache", own=True)).matches == ()
    assert "best" not in [i.record.id for i in await bank.items(every=True, kind=None)]
    with pytest.raises(SettingsError, match="not reworded"):
        await bank.edit("held", "a", "b")


async def test_episodes_are_found_by_a_name_that_they_share_and_without_an_embedder(
    tmp_path: Path,
):
    bank = RubricBank(tmp_path)
    await bank.put(episode("Who wrote it?", "holt", names=("Mira Holt",)))
    await bank.put(episode("Who wrote that?", "quist", names=("Abel Quist",)))
    [match] = (await bank.episodes("Where was Mira Holt born?")).matches
    assert (match.episode.id, match.own, match.shared) == ("holt", False, ("Mira Holt",))
    assert await bank.sharing("Who wrote which?") == (), "common words are no name"
    assert await bank.sharing("Mira Holt", besides="Who wrote it?") == ()
    assert await bank.sharing("Mira Holt", generation=0) == ()
    await bank.remove("holt")
    assert await bank.sharing("Mira Holt") == ()


async def test_episodes_on_questions_of_the_same_form_are_found_by_it(tmp_path: Path):
    bank = bank_in(tmp_path)
    asked = "Where did the director of film {} die?"
    for at, name in enumerate(["The Kite", "Iris", "Old Mill"]):
        await bank.put(episode(asked.format(name), f"f{at}"))
    await bank.put(episode("Where did the composer of film The Kite die?", "other"))
    found = await bank.episodes_of_form(asked.format("Won in the Clouds"))
    assert [(m.episode.id, m.formed, m.own) for m in found] == [
        ("f2", True, False), ("f1", True, False), ("f0", True, False)
    ]  # fmt: skip
    assert [m.episode.id for m in await bank.episodes_of_form(asked.format("Old Mill"))] == [
        "f1",
        "f0",
    ]
    assert [m.episode.id for m in await bank.episodes_of_form(asked.format("X"), 2)] == ["f1", "f0"]
    assert await bank.episodes_of_form("When did the director of film Iris die?") == ()
    assert await bank.episodes_of_form("Who?") == await bank.episodes_of_form("") == ()
    failing = [ItemUse(trajectory=f"t{n}", item="f2", use="plan", shown=1) for n in range(2)]
    await bank.note_contributions(failing)
    assert [m.episode.id for m in await bank.episodes_of_form(asked.format("X"))] == [
        "f1",
        "f0",
        "f2",
    ]
    await bank.disable("f1")
    await bank.remove("f0")
    assert [m.episode.id for m in await bank.episodes_of_form(asked.format("X"))] == ["f2"]


async def test_an_episode_is_found_by_a_name_in_a_script_without_spaces(tmp_path: Path):
    bank = RubricBank(tmp_path)
    await bank.put(episode("謎の塔は誰が建てたか", "tower", names=("ベルネ塔",)))
    await bank.put(episode("謎の橋は誰が建てたか", "bridge", names=("サーラ橋",)))
    [match] = (await bank.episodes("いつベルネ塔が完成しましたか")).matches
    assert (match.episode.id, match.shared) == ("tower", ("ベルネ塔",))


async def test_one_of_5000_that_share_a_name_is_found_by_its_other_one(tmp_path: Path):
    bank = RubricBank(tmp_path)
    await bank.bring_in(
        episode(f"Who is number {n} in Rome?", f"{n:04}", names=("Rome", f"Name{n}"))
        for n in range(5000)
    )
    assert leads(await bank.sharing("Where in Rome is Name17?", 1)) == ["0017"]
    assert len(await bank.sharing("Where is Rome?", 3)) == 3


async def test_an_episode_that_keeps_failing_sinks_and_is_disabled_with_a_note(bank: RubricBank):
    for name in ("first", "second"):
        await bank.put(episode(f"Where is {name}?", name, names=("Mira Holt",)))
    before = leads(await bank.sharing("Mira Holt"))
    sunk, other = before
    await bank.note_contributions([told("run 0", sunk, failed=1)])
    assert leads(await bank.sharing("Mira Holt")) == [other, sunk]
    await bank.pin(other)
    for n in range(1, FAILING):
        await bank.note_contributions([told(f"run {n}", sunk), told(f"run {n}", other)])
    await bank.note_contributions([told("run 9", other)])
    assert leads(await bank.sharing("Mira Holt")) == [other], "a pinned one stays"
    item = await bank.item(sunk)
    assert item and item.disabled and "no use" in item.note
    assert [(c.use, c.runs, c.shown, c.used, c.failed) for c in item.counts] == [
        ("pointer", 5, 5, 0, 1)
    ]
    await bank.disable(sunk, False)
    await bank.note_contributions([told("run 10", sunk, used=1)])
    item = await bank.item(sunk)
    assert item and item.live and item.note == ""


async def test_episodes_of_another_bank_come_in_by_the_rules_of_reflections(bank: RubricBank):
    await bank.put(episode("cache", "own", score=0.9))
    came = await bank.bring_in(
        [
            episode("cache", "worse", score=0.3),
            episode("heap", "new"),
            reflection("heap", "lesson"),
            episode("path", "held", flags=("It orders.",)),
        ]
    )
    assert came == Imported(added=2, kept=1, quarantined=1)
    items = await bank.items(kind=None)
    assert [i.record.id for i in items] == ["own", "new", "lesson"]
    assert {i.kind for i in items} == {"episode", "reflection"}
