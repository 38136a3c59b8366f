"""The rubric bank over a real SQLite file: what counts, counted, waits, and is gone."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from rubricem.memory.bank import RubricBank
from rubricem.memory.bank.store import BankItem, BankStore, Imported, Standing
from rubricem.memory.bank.tables import FILE, VERSION
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.schema import Judgement, Stage, StageScore
from tests.conftest import ROOT
from tests.support.banks import bank_in, ids, put, reflection

FLAGGED = {"flags": ("It tells its reader to visit a page.",)}


def states(items: Iterable[BankItem]) -> dict[str, str]:
    return {item.reflection.id: item.state for item in items}


def test_an_empty_bank_imports_neither_chroma_nor_torch():
    code = (
        "import asyncio, sys, tempfile, pathlib\n"
        "from rubricem.memory.bank import RubricBank\n"
        "bank = RubricBank(pathlib.Path(tempfile.mkdtemp()))\n"
        "assert asyncio.run(bank.search('x')) == []\n"
        "sys.exit(len({'chromadb', 'torch', 'sentence_transformers'} & set(sys.modules)))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


async def test_a_reencounter_replaces_and_the_old_one_stays_in_the_history(bank: RubricBank):
    await put(bank, ("cache", "old"), ("cache", "new"))
    assert ids(await bank.items()) == ["new"]
    assert states(await bank.history(" cache\n")) == {"old": "replaced", "new": "active"}
    own = await bank.within(" cache\n")
    assert own is not None and own.id == "new" and await bank.within("Cache") is None
    assert ids(await bank.find("ol")) == ["old"]


async def test_asked_at_a_generation_the_bank_answers_as_it_was_then(bank: RubricBank):
    await put(bank, ("cache", "old"), ("cache heap", "other"), ("cache", "new"))
    await bank.put(reflection("rome", "late", **FLAGGED))
    await bank.release("late")
    shown = [ids(await bank.items(generation)) for generation in range(6)]
    assert shown == [
        [], ["old"], ["old", "other"], ["other", "new"], ["other", "new"], ["other", "new", "late"]
    ]  # fmt: skip
    for at, near in ((0, []), (2, ["other", "old"]), (3, ["other", "new"])):
        assert ids((await bank.recall("cache cache heap", generation=at)).similar) == near


async def test_a_file_that_is_no_bank_or_a_newer_one_is_refused(tmp_path: Path):
    await bank_in(tmp_path).put(reflection("cache", "a"))
    path = tmp_path / "bank" / FILE
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(StoreError) as caught:
        await bank_in(tmp_path).items()
    assert "newer rubricem" in caught.value.remedy
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(StoreError, match="not a database"):
        await bank_in(tmp_path).items()


async def test_what_is_flagged_waits_in_quarantine_and_replaces_nothing(bank: RubricBank):
    await bank.put(reflection("cache", "old"))
    await bank.put(reflection("cache", "new", **FLAGGED))
    await bank.put(reflection("cache heap", "alone", **FLAGGED))
    assert ids(await bank.items()) == ids(await bank.search("cache")) == ["old"]
    assert states(await bank.items(every=True)) == {
        "old": "active", "new": "quarantine", "alone": "quarantine"
    }  # fmt: skip
    for name in ("new", "alone"):
        assert (await bank.release(name)).instead is None
    assert ids(await bank.items()) == ["new", "alone"]
    assert ids(await bank.search("heap")) == ["alone", "new"]
    with pytest.raises(SettingsError, match="not in quarantine"):
        await bank.release("new")


async def test_what_is_released_late_replaces_no_newer_one_and_no_persons(bank: RubricBank):
    await bank.put(reflection("cache", "late", **FLAGGED))
    await put(bank, ("cache", "newer"), ("heap", "worded"))
    own = (await bank.edit("worded", "r", "t")).reflection.id
    await bank.put(reflection("heap", "after", **FLAGGED))
    for name, stays in (("late", "newer"), ("after", own)):
        released = await bank.release(name)
        assert released.item.state == "replaced"
        assert released.instead is not None and released.instead.reflection.id == stays
    assert ids(await bank.items()) == ["newer", own]


async def test_what_a_person_wrote_takes_the_place_and_no_run_replaces_it(bank: RubricBank):
    await bank.put(reflection("cache", "old"))
    item = await bank.edit("old", "Pitfalls: none", "- mine", "terminal")
    written = item.reflection
    assert (written.origin, written.replaces, written.question) == ("hand", "old", "cache")
    assert (written.rubrics, written.takeaways) == ("Pitfalls: none", "- mine")
    assert (item.fixed, item.edited_by) == (True, "terminal")
    await bank.put(reflection("cache", "run"))
    assert ids(await bank.items()) == [written.id]
    assert states(await bank.history("cache")) == {
        "old": "replaced", written.id: "active", "run": "replaced"
    }  # fmt: skip
    again = await bank.edit(written.id, "Pitfalls: one", "- mine")
    assert ids(await bank.items()) == [again.reflection.id]
    with pytest.raises(SettingsError, match=f"replaced by {again.reflection.id}"):
        await bank.edit("old", "r", "t")


async def test_what_is_removed_is_gone_from_every_view_and_its_text_from_the_disk(
    bank: RubricBank, tmp_path: Path
):
    await bank.put(reflection("cache", "other"))
    await bank.put(reflection("cache secret-one", "old", "- secret-two", rubrics="secret-three"))
    await bank.put(reflection("cache secret-one", "new", "- public"))
    await bank.search("cache")
    await bank.note_use("run", ["old"])
    for identifier in ("old", "new"):
        await bank.remove(identifier)
    for held in (bank, bank_in(tmp_path)):
        shown = [await held.items(every=True), await held.items(2), await held.page()]
        shown += [await held.history("cache secret-one"), await held.find("n")]
        assert {name for items in shown for name in ids(items)} == {"other"}
        assert ids(await held.search("cache", 10)) == ["other"]
        assert (await held.recall("cache secret-one")).own is None
    on_disk = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"secret-" not in on_disk and b"other" in on_disk
    assert await bank.put(reflection("cache secret-one", "old")) is False
    with pytest.raises(SettingsError, match="no item 'old'"):
        await bank.remove("old")


async def test_removed_words_come_back_under_no_new_id_from_a_run(bank: RubricBank, tmp_path: Path):
    await bank.put(reflection("cache", "a", "- a secret"))
    await bank.remove("a")
    assert not await bank.put(reflection("cache", "b", "- a secret", score=0.9))
    assert not await bank_in(tmp_path).put(reflection("cache", "b", "-  a\nsecret ", **FLAGGED))
    assert await bank.items(every=True) == []
    assert await bank.put(reflection("cache", "b", "- open the file"))
    assert await bank.put(reflection("heap", "c", "- a secret"))


@pytest.mark.parametrize("way", ["release", "edit"])
async def test_a_person_brings_removed_words_back(bank: RubricBank, way: str):
    await bank.put(reflection("cache", "a"))
    await bank.put(reflection("cache", "waits", **FLAGGED))
    await bank.put(reflection("cache", "other", "- open the file"))
    await bank.remove("a")
    assert not await bank.put(reflection("cache", "b"))
    if way == "release":
        await bank.release("waits")
    else:
        await bank.edit("other", "Pitfalls: guessing", "- read the source")
    assert await bank.put(reflection("cache", "b"))


async def test_a_page_holds_the_items_of_its_standing(bank: RubricBank):
    await put(bank, ("cache", "old"), ("cache", "new"), ("rome", "gone"))
    await bank.put(reflection("heap", "flagged", **FLAGGED))
    await bank.remove("gone")
    wanted: dict[Standing, list[str]] = {
        "current": ["flagged", "new"],
        "active": ["new"],
        "quarantine": ["flagged"],
        "replaced": ["old"],
    }
    assert {standing: ids(await bank.page(standing)) for standing in wanted} == wanted
    stats = await bank.stats()
    assert (stats.live, stats.quarantined, stats.replaced, stats.removed) == (1, 1, 1, 1)


def judgement(run: str, *scores: float | None) -> Judgement:
    stages = (StageScore(stage=s, score=v) for s, v in zip(Stage, scores, strict=False))
    return Judgement(trajectory_id=run, judge="j", stages=tuple(stages))


async def test_an_item_says_how_many_runs_were_given_it_and_how_these_were_scored(
    bank: RubricBank, tmp_path: Path
):
    await put(bank, ("cache", "a"), ("heap", "b"))
    for run, given in (("r1", ["a"]), ("r2", ["a", "b"]), ("r3", ["a"]), ("r1", ["a"])):
        await bank.note_use(run, given)
    await bank.note_judgements([judgement("r1", 1.0, 0.2), judgement("r2", None, 0.5)])
    await bank.note_judgements([judgement("r1", 0.8, None), judgement("r3", None)])
    for held in (bank, bank_in(tmp_path)):
        counted = {i.reflection.id: (i.recalled, i.mean_score) for i in await held.items()}
        assert counted == {"a": (3, pytest.approx(0.65)), "b": (1, 0.5)}
    assert ((await bank.stats()).uses, await bank.generation()) == (3, 2)


async def test_an_import_adds_and_replaces_nothing_of_the_banks_own(bank: RubricBank):
    await put(bank, ("cache", "a"), ("heap", "b"), ("rome", "gone"))
    await bank.remove("gone")
    came = [
        reflection("cache", "better", score=1.0),
        reflection("heap", "b"),  # there already
        reflection("new", "e"),
        reflection("new", "e2"),
        reflection("newer", "f", **FLAGGED),
        reflection("rome", "gone"),
        reflection("rome", "same words"),
    ]
    brought = await bank.bring_in(came)
    assert brought == Imported(added=1, kept=3, quarantined=1, removed=2)
    assert ids(await bank.items()) == ["a", "b", "e"]
    assert [i.reflection.origin for i in await bank.find("e")] == ["import"]
    again = await bank.bring_in(came)
    assert again == Imported(kept=5, removed=2)


async def test_an_import_that_fails_half_way_adds_nothing(bank: RubricBank):
    def came():
        yield reflection("cache", "a")
        raise ValueError("cut off")

    with pytest.raises(ValueError, match="cut off"):
        BankStore(bank.folder).bring_in(came())
    assert (await bank.items(), await bank.generation()) == ([], 0)


async def test_a_bank_goes_back_to_a_snapshot_with_its_uses(tmp_path: Path):
    bank, copy = bank_in(tmp_path), tmp_path / "copy"
    store = BankStore(bank.folder)
    store.snapshot(copy)
    await put(bank, ("cache", "a"), ("heap", "b"))
    await bank.note_use("run", ["a"])
    assert len(await bank.search("cache")) == 2
    store.snapshot(copy)
    await put(bank, ("cache", "c"), ("path", "d"))
    await bank.note_use("later", ["b"])
    assert ids(await bank.search("cache")) == ["c", "b", "d"]
    store.restore(copy)
    for held in (bank, bank_in(tmp_path)):
        assert ids(await held.items()) == ["a", "b"]
        assert ids(await held.search("cache")) == ["a", "b"]
        assert [i.recalled for i in await held.items()] == [1, 0]
        assert await held.generation() == 2


async def test_what_was_removed_stays_removed_by_way_of_any_snapshot(tmp_path: Path):
    bank, store = bank_in(tmp_path), BankStore(tmp_path / "bank")
    await bank.put(reflection("heap", "b"))
    store.snapshot(tmp_path / "before")
    await bank.put(reflection("cache", "a", "- secret"))
    store.snapshot(tmp_path / "after")
    await bank.remove("a")
    for name in ("before", "after", "before", "after"):
        store.restore(tmp_path / name)
        assert ids(await bank.items(every=True)) == ids(await bank.search("cache")) == ["b"]
        assert not await bank.put(reflection("cache", "c", "- secret"))
    on_disk = b"".join(path.read_bytes() for path in (tmp_path / "bank").glob("bank.db*"))
    assert b"secret" not in on_disk


async def test_another_banks_snapshot_is_refused_and_an_empty_bank_takes_any(tmp_path: Path):
    one, two, empty = (bank_in(tmp_path / name) for name in ("one", "two", "empty"))
    await put(one, ("cache", "a"))
    await put(two, ("heap", "b"))
    BankStore(one.folder).snapshot(tmp_path / "copy")
    with pytest.raises(SettingsError, match="of another bank"):
        BankStore(two.folder).restore(tmp_path / "copy")
    assert ids(await two.items()) == ["b"]
    for _ in range(2):
        BankStore(empty.folder).restore(tmp_path / "copy")
        assert ids(await empty.items()) == ["a"]


@pytest.mark.parametrize("damage", ["none", "cut", "garbage"])
async def test_what_is_no_whole_snapshot_is_refused_and_changes_nothing(
    tmp_path: Path, damage: str
):
    bank, copy = bank_in(tmp_path), tmp_path / "copy"
    await bank.put(reflection("cache", "a"))
    if damage != "none":
        BankStore(bank.folder).snapshot(copy)
        path = copy / FILE
        path.write_bytes(path.read_bytes()[:3000] if damage == "cut" else b"no database" * 999)
    with pytest.raises(SettingsError, match="no whole snapshot"):
        BankStore(bank.folder).restore(copy)
    assert ids(await bank.items()) == ["a"]
