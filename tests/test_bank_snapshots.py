"""Copies of the bank and the way back: what is the same, what stays removed, what is refused."""

from pathlib import Path

import pytest

from memory.errors import SettingsError
from tests.bank_parts import bank_in, ids, reflection


async def test_a_bank_goes_back_to_what_it_was_with_its_uses(tmp_path: Path):
    bank, copy = bank_in(tmp_path), tmp_path / "copy"
    await bank.put(reflection("cache", "a"))
    await bank.put(reflection("heap", "b"))
    await bank.used("run", ["a"], "q")
    assert len(await bank.search("cache")) == 2
    assert await bank.snapshot(copy) == 2
    await bank.put(reflection("cache", "c"))
    await bank.disable("b")
    await bank.used("later", ["b"], "q")
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


async def test_what_was_removed_stays_removed_by_way_of_a_time_before_it_came(tmp_path: Path):
    bank = bank_in(tmp_path)
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
    await bank.used("run", ["a"], "q")
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
