"""What is found by meaning and recalled together."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from rubricem.memory.bank import RubricBank
from rubricem.memory.bank.index import BankIndex
from rubricem.memory.bank.store import BankStore, IndexMark
from rubricem.memory.bank.tables import question_key
from tests.support.banks import WordEmbedder, bank_in, ids, put, reflection
from tests.support.waiting import free_port


async def test_the_nearest_other_questions_are_found_in_order(bank: RubricBank):
    await put(bank, ("cache heap", "both"), ("cache", "same subject"), ("rome", "another"))
    found = (await bank.recall("cache cache", k=2)).similar
    assert ids(found) == ["same subject", "both"]
    assert [m.similarity for m in found] == pytest.approx([1.0, 0.7071], abs=1e-3)


async def test_what_is_farther_than_the_floor_is_another_matter(bank: RubricBank):
    await bank.put(reflection("cache heap", "both"))
    assert ids((await bank.recall("cache", floor=0.7)).similar) == ["both"]
    assert (await bank.recall("cache", floor=0.71)).similar == ()
    assert (await bank.recall("rome")).similar == ()
    assert ids(await bank.search("rome")) == ["both"]


async def test_only_new_questions_are_embedded(tmp_path: Path):
    embedder = WordEmbedder()
    bank = bank_in(tmp_path, embedder)
    await bank.put(reflection("cache", "a"))
    await bank.search("x")
    await bank.put(reflection("heap", "b"))
    await bank.put(reflection("cache", "c"))
    for _ in range(2):
        assert ids(await bank.search("cache heap")) in (["b", "c"], ["c", "b"])
    assert embedder.embedded == ["x", "cache", "cache heap", "heap", "cache heap"]


@pytest.mark.parametrize("damage", ["missing", "garbage", "killed", "embedder"])
async def test_an_index_that_does_not_fit_is_built_again(
    bank: RubricBank, tmp_path: Path, damage: str
):
    await put(bank, ("cache", "a"), ("rome", "b"))
    assert ids(await bank.search("cache")) == ["a", "b"]
    index, embedder = tmp_path / "bank" / "index", WordEmbedder()
    if damage == "missing":
        shutil.rmtree(index)
    elif damage == "garbage":
        for path in index.rglob("chroma.sqlite3"):
            path.write_bytes(b"no database" * 1000)
    elif damage == "killed":
        store = BankStore(tmp_path / "bank")
        store.set_mark(store.mark().model_copy(update={"changes": -1}))
    else:
        embedder = WordEmbedder("other")
    again = bank_in(tmp_path, embedder)
    assert ids(await again.search("cache")) == ["a", "b"]
    assert sorted(embedder.embedded) == ["cache", "cache", "rome"]
    assert (await again.stats()).embedder == embedder.name
    assert ids(await bank.search("rome")) == ["b", "a"]


def test_of_many_equal_vectors_none_is_missed_and_the_order_is_fixed(tmp_path: Path):
    store = BankStore(tmp_path / "bank")
    asked = [f"cache number {'x' * number}" for number in range(60)]
    for question in asked:
        store.put(reflection(question, question_key(question)[:12]))
    store.put(reflection("heap", "apart"))
    index, vector = BankIndex(store, WordEmbedder()), WordEmbedder().embed(["cache"])[0]
    found = index.near(vector, 61)
    assert [near.key for near in found] == [*sorted(map(question_key, asked)), question_key("heap")]
    np.testing.assert_allclose([near.similarity for near in found[:60]], 1.0, atol=1e-6)
    assert found[-1].similarity == pytest.approx(0.0, abs=1e-5)


async def test_its_own_item_comes_first_and_what_says_the_same_is_left_out(bank: RubricBank):
    await put(bank, ("cache", "own"), ("cache, again", "same words"), ("cache heap", "other"))
    recalled = await bank.recall("cache")
    assert recalled.own is not None and recalled.own.id == "own"
    assert (ids(recalled.similar), recalled.fault) == (["other"], None)
    assert recalled.similar[0].similarity == pytest.approx(0.7071, abs=1e-3)
    without = await bank.recall("cache", own=False)
    assert without.own is None and "own" not in ids(without.similar)


async def test_what_was_near_and_is_gone_or_too_late_does_not_crowd_out_the_rest(bank: RubricBank):
    await bank.put(reflection("cache heap", "far"))
    # Each a little nearer than the one before.
    nearer = ("cache " * (2 + n) + "rome" for n in range(40))
    await bank.bring_in(reflection(text, f"near{n}") for n, text in enumerate(nearer))
    assert ids((await bank.recall("cache", generation=1)).similar) == ["far"]
    for number in range(40):
        await bank.remove(f"near{number}")
    assert ids((await bank.recall("cache")).similar) == ["far"]


async def test_the_folder_one_works_in_has_no_say_in_where_vectors_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / ".env").write_text(
        "chroma_api_impl=chromadb.api.fastapi.FastAPI\nchroma_server_host=127.0.0.1\n"
        f"chroma_server_http_port={free_port()}\n"
    )
    monkeypatch.chdir(tmp_path)
    bank = bank_in(tmp_path / "data")
    await put(bank, ("cache", "own"), ("heap", "other"))
    assert ids(await bank.search("heap"))[0] == "other"
    assert BankStore(bank.folder).mark() != IndexMark()
