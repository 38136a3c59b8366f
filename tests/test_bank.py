"""The rubric bank over a real journal and a real Chroma, in one process and in several."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memory.bank import RubricBank
from memory.errors import SettingsError, StoreError
from tests.bank_parts import WordEmbedder, bank_in, reflection
from tests.conftest import ROOT
from tests.waiting import Process


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
        "from memory.bank import RubricBank\n"
        "bank = RubricBank(pathlib.Path(tempfile.mkdtemp()))\n"
        "assert asyncio.run(bank.across('x')) == []\n"
        "sys.exit(len({'chromadb', 'torch', 'sentence_transformers'} & set(sys.modules)))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


async def test_the_nearest_other_questions_are_found_in_order(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache heap", "both"))
    await bank.put(reflection("cache", "same subject"))
    await bank.put(reflection("rome", "another"))
    found = await bank.across("cache cache", k=2)
    assert [m.reflection.id for m in found] == ["same subject", "both"]
    assert [m.similarity for m in found] == pytest.approx([1.0, 0.7071], abs=1e-3)


async def test_what_is_farther_than_the_floor_is_another_matter(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache heap", "both"))
    assert [m.reflection.id for m in await bank.across("cache", floor=0.7)] == ["both"]
    assert await bank.across("cache", floor=0.71) == []
    assert await bank.across("rome") == []
    assert [m.reflection.id for m in await bank.search("rome")] == ["both"]


async def test_the_question_itself_is_found_by_its_words_and_is_not_its_own_neighbour(
    tmp_path: Path,
):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "own"))
    await bank.put(reflection("cache heap", "other"))
    own = await bank.within(" cache\n")
    assert own is not None and own.id == "own"
    assert [m.reflection.id for m in await bank.across("cache")] == ["other"]
    assert await bank.within("Cache") is None


async def test_a_reencounter_replaces_and_the_old_one_stays_in_the_history(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "old"))
    assert [m.reflection.id for m in await bank.across("cache heap")] == ["old"]
    await bank.put(reflection("cache", "new"))
    assert [m.reflection.id for m in await bank.across("cache heap")] == ["new"]
    assert [i.reflection.id for i in await bank.items()] == ["new"]
    assert [i.reflection.id for i in await bank.history("cache")] == ["old", "new"]
    assert [i.reflection.id for i in await bank.find("ol")] == ["old"]


async def test_the_same_reflection_is_put_once(tmp_path: Path):
    bank = bank_in(tmp_path)
    assert await bank.put(reflection("cache", "a")) is True
    assert await bank.put(reflection("cache", "a")) is False
    assert await bank.generation() == 1


async def test_asked_at_a_generation_the_bank_answers_as_it_stood_then(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "old"))
    await bank.put(reflection("cache heap", "other"))
    await bank.put(reflection("cache", "new"))
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
async def test_an_index_that_does_not_fit_is_built_again(tmp_path: Path, damage: str):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "a"))
    await bank.put(reflection("rome", "b"))
    assert len(await bank.search("cache")) == 2
    index = tmp_path / "bank" / "index"
    embedder = WordEmbedder()
    if damage == "missing":
        for path in sorted(index.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    elif damage == "garbage":
        [database] = index.rglob("chroma.sqlite3")
        database.write_bytes(b"no database" * 1000)
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


WRITER = """
import asyncio, sys
from pathlib import Path
from tests.bank_parts import bank_in, reflection

async def put():
    bank = bank_in(Path(sys.argv[1]))
    for number in range(int(sys.argv[3])):
        name = f"{sys.argv[2]}{number}"
        await bank.put(reflection(f"cache {name}", name, "- " + "long " * 2000))
        print(name, flush=True)
        if number % 5 == 0:
            await bank.search("cache", 1)

asyncio.run(put())
"""


def writer(folder: Path, name: str, count: int) -> Process:
    command = [sys.executable, "-c", WRITER, str(folder), name, str(count)]
    return Process(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


async def test_two_processes_lose_nothing_and_both_are_found(tmp_path: Path):
    running = [writer(tmp_path, name, 6) for name in ("a", "b")]
    for process in running:
        process.communicate()
        assert process.returncode == 0
    bank = bank_in(tmp_path)
    wanted = {f"{name}{number}" for name in "ab" for number in range(6)}
    assert {i.reflection.id for i in await bank.items()} == wanted
    assert {m.reflection.id for m in await bank.search("cache", 12)} == wanted


@pytest.mark.parametrize("acknowledged", [1, 7])
async def test_a_process_killed_in_the_middle_loses_nothing_it_was_told_is_kept(
    tmp_path: Path, acknowledged: int
):
    process = writer(tmp_path, "a", 10_000)
    assert process.stdout is not None
    told = [process.stdout.readline().strip() for _ in range(acknowledged)]
    time.sleep(0.003 * acknowledged)
    os.kill(process.pid, signal.SIGKILL)
    told += process.communicate()[0].split()
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache after", "after"))
    kept = [i.reflection.id for i in await bank.items()]
    assert kept[: len(told)] == told and kept[-1] == "after"
    assert len(kept) <= len(told) + 2
    assert {m.reflection.id for m in await bank.search("cache", len(kept))} == set(kept)


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
