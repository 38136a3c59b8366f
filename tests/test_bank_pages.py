"""The bank read page by page, and who decided on what it shows."""

from datetime import UTC, datetime
from pathlib import Path

from tests.bank_parts import bank_in, ids, reflection

FLAGGED = {"flags": ("It tells its reader to visit a page.",)}


async def test_pages_go_back_from_the_latest_without_gaps_or_repeats(tmp_path: Path):
    bank = bank_in(tmp_path)
    for number in range(7):
        await bank.put(reflection(f"cache {number}", f"r{number}"))
    first = await bank.page(limit=3)
    assert ids(first) == ["r6", "r5", "r4"]
    await bank.put(reflection("heap", "newer"))
    second = await bank.page(limit=3, before=first[-1].since)
    assert ids(second) == ["r3", "r2", "r1"]
    assert ids(await bank.page(limit=3, before=second[-1].since)) == ["r0"]


async def test_a_page_holds_the_items_of_its_standing(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "old"))
    await bank.put(reflection("cache", "new"))
    await bank.put(reflection("heap", "flagged", **FLAGGED))
    await bank.put(reflection("path", "off"))
    await bank.put(reflection("rome", "gone"))
    await bank.disable("off")
    await bank.remove("gone")
    assert ids(await bank.page()) == ["off", "flagged", "new"]
    assert ids(await bank.page("active")) == ["new"]
    assert ids(await bank.page("quarantine")) == ["flagged"]
    assert ids(await bank.page("disabled")) == ["off"]
    assert ids(await bank.page("replaced")) == ["old"]


async def test_an_item_says_where_and_when_it_was_released_or_edited(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("heap", "flagged", **FLAGGED))
    await bank.put(reflection("cache", "a"))
    before = datetime.now(UTC)
    released = (await bank.release("flagged", "web page")).item
    assert released.released_by == "web page" and released.released_at is not None
    assert before <= released.released_at <= datetime.now(UTC)
    edited = await bank.edit("a", "r", "t", "terminal")
    assert (edited.edited_by, edited.released_by) == ("terminal", "")
    (tmp_path / "bank" / "catalogue.db").unlink()
    again = {item.reflection.id: item for item in await bank_in(tmp_path).items()}
    assert again["flagged"] == released
    assert again[edited.reflection.id] == edited
