"""What a person removed does not come back by itself, under whatever id."""

from pathlib import Path

import pytest

from memory.items import Imported
from tests.bank_commands import bank as bank_command
from tests.bank_parts import bank_in, ids, reflection
from tests.learning import Server, ask, by_content, command, kept, prepared
from tests.scripted_server import Scripted, ScriptedServer

FLAGGED = {"flags": ("It tells its reader to visit a page.",)}


async def test_removed_words_come_back_under_no_new_id_from_a_run(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "a", "- a secret"))
    await bank.remove("a")
    assert not await bank.put(reflection("cache", "b", "- a secret", score=0.9))
    assert not await bank_in(tmp_path).put(reflection("cache", "b", "-  a\nsecret ", **FLAGGED))
    assert await bank.items(every=True) == []
    assert "secret" not in (tmp_path / "bank" / "journal.jsonl").read_text()


async def test_other_words_and_the_same_ones_on_another_question_may_come(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "a"))
    await bank.remove("a")
    assert await bank.put(reflection("cache", "b", "- open the file"))
    assert await bank.put(reflection("heap", "c"))


@pytest.mark.parametrize("way", ["import", "release", "edit"])
async def test_a_person_brings_removed_words_back(tmp_path: Path, way: str):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "a"))
    await bank.put(reflection("cache", "waits", **FLAGGED))
    await bank.put(reflection("cache", "other", "- open the file"))
    await bank.remove("a")
    assert not await bank.put(reflection("cache", "b"))
    if way == "import":
        assert await bank.bring_in([reflection("cache", "z")]) == Imported(kept=1)
    elif way == "release":
        await bank.release("waits")
    else:
        await bank.edit("other", "Pitfalls: guessing", "- read the source")
    assert await bank.put(reflection("cache", "b"))
    assert ids(await bank.items()) == ["b"]


async def test_an_import_that_waits_in_quarantine_brings_nothing_back(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "a"))
    await bank.remove("a")
    await bank.bring_in([reflection("cache", "z", **FLAGGED)])
    assert not await bank.put(reflection("cache", "b"))


async def test_a_catalogue_made_again_and_an_older_copy_bar_the_same_words(tmp_path: Path):
    bank = bank_in(tmp_path / "data")
    await bank.put(reflection("heap", "other"))
    await bank.snapshot(tmp_path / "before")
    await bank.put(reflection("cache", "a"))
    await bank.remove("a")
    (tmp_path / "data" / "bank" / "catalogue.db").unlink()
    assert not await bank_in(tmp_path / "data").put(reflection("cache", "b"))
    await bank.restore(tmp_path / "before")
    assert not await bank.put(reflection("cache", "b"))


def test_a_removed_lesson_does_not_come_back_by_a_rating(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    data, removed = prepared(tmp_path, monkeypatch), False
    script = Server()

    def answering(body: dict[str, object], number: int) -> Scripted:
        reply = script(body, number)
        scored = script.asked[-1] == "judge reflections" and removed
        return by_content(body).replace("0.9", "0.7") if scored else reply

    with ScriptedServer(answering) as server:
        ask(server, data, "--memory", "on", "--thread", "one")
        [lesson] = kept(data)
        bank_command("rm", lesson.id, "--yes")
        removed = True
        command("rate", "one", "4")
        done = command("learn")
    assert kept(data) == []
    assert "is not recalled: a person disabled or removed it" in done.stdout
    assert lesson.takeaways not in (data / "bank" / "journal.jsonl").read_text()
