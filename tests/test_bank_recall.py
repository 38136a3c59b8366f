"""What is recalled together before a question, and what is looked at for that."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from agent.banking import embedder_in
from memory.bank import RubricBank
from memory.bank_choice import Near, diverse
from memory.errors import SettingsError
from tests.bank_parts import WordEmbedder, bank_in, ids, reflection
from tests.conftest import WEIGHTS_DIR


def near(number: int, similarity: float, *vector: float) -> Near:
    return Near(number, similarity, np.array(vector, dtype=np.float32))


def test_the_second_is_near_the_question_and_unlike_the_first():
    # 0.8 * 0.8 - 0.2 * 0.9 = 0.46 against 0.8 * 0.75 - 0.2 * 0.6 = 0.48
    found = [near(1, 0.9, 1, 0), near(2, 0.8, 0.9, 0.436), near(3, 0.75, 0.6, 0.8)]
    assert [n.number for n in diverse(found, 2)] == [1, 3]
    # 0.8 * 0.85 - 0.2 * 0.9 = 0.50 against 0.48
    found[1] = near(2, 0.85, 0.9, 0.436)
    assert [n.number for n in diverse(found, 2)] == [1, 2]
    assert [n.number for n in diverse(found, 5)] == [1, 2, 3]
    assert diverse(found, 0) == [] == diverse([], 2)


def test_two_questions_in_nearly_the_same_words_are_not_chosen_together():
    found = [near(1, 0.9, 1, 0), near(2, 0.89, 0.96, 0.28), near(3, 0.5, 0.94, 0.341)]
    assert [n.number for n in diverse(found, 2)] == [1, 3]
    assert [n.number for n in diverse(found[1:], 2, [found[0].vector])] == [3]


async def test_its_own_item_comes_first_and_what_says_the_same_is_left_out(tmp_path: Path):
    bank = bank_in(tmp_path)
    await bank.put(reflection("cache", "own"))
    await bank.put(reflection("cache, again", "same words"))
    await bank.put(reflection("cache heap", "other"))
    recalled = await bank.recall("cache")
    assert recalled.own is not None and recalled.own.id == "own"
    assert (ids(recalled.similar), recalled.fault) == (["other"], None)
    assert recalled.similar[0].similarity == pytest.approx(0.7071, abs=1e-3)
    asked = await bank.recall("cache?")
    assert asked.own is None and ids(asked.similar) == ["own", "other"]


async def test_a_recall_that_its_own_item_fills_opens_no_embedder(tmp_path: Path):
    bank = RubricBank(tmp_path)
    await bank.put(reflection("cache", "own"))
    await bank.put(reflection("heap", "other"))
    recalled = await bank.recall("cache", k=1)
    assert recalled.own is not None and (recalled.similar, recalled.fault) == ((), None)
    wanted = await bank.recall("cache", k=2)
    assert wanted.own is not None and isinstance(wanted.fault, SettingsError)
    nothing = await bank.recall("cache", k=0)
    assert (nothing.own, nothing.similar, nothing.fault) == (None, (), None)


async def test_what_was_near_and_is_replaced_or_disabled_does_not_crowd_out_the_rest(
    tmp_path: Path,
):
    bank = bank_in(tmp_path)
    # Each a little nearer than the one before: a graph of equal vectors may miss some.
    nearer = ("cache " * (2 + n) + "rome" for n in range(40))
    await bank.bring_in(reflection(text, f"near{n}") for n, text in enumerate(nearer))
    await bank.put(reflection("cache heap", "far"))
    for number in range(40):
        await bank.disable(f"near{number}")
    assert ids(await bank.across("cache")) == ids((await bank.recall("cache")).similar) == ["far"]
    assert len(await bank.across("cache", k=3, generation=40)) == 3


async def test_runs_that_recall_at_once_open_one_embedder(tmp_path: Path):
    opened: list[WordEmbedder] = []

    async def open_embedder() -> WordEmbedder:
        await asyncio.sleep(0.01)
        opened.append(WordEmbedder())
        return opened[-1]

    bank = RubricBank(tmp_path, open_embedder)
    await bank.put(reflection("cache", "a"))
    for recalled in await asyncio.gather(*(bank.recall(f"cache {n}") for n in range(4))):
        assert ids(recalled.similar) == ["a"]
    assert len(opened) == 1


async def test_another_version_of_a_question_is_not_embedded_again(tmp_path: Path):
    embedder = WordEmbedder()
    bank = bank_in(tmp_path, embedder)
    await bank.put(reflection("cache", "a"))
    await bank.search("x")
    await bank.put(reflection("cache", "b"))
    await bank.disable("b")
    await bank.disable("b", False)
    assert ids(await bank.search("y")) == ["b"]
    assert embedder.embedded == ["x", "cache", "y"]


@pytest.mark.model
async def test_with_the_real_embedder_a_question_finds_its_like(tmp_path: Path, minilm: Path):
    async def open_embedder() -> WordEmbedder:
        return await embedder_in(WEIGHTS_DIR)  # type: ignore[return-value]

    bank = RubricBank(tmp_path, open_embedder)
    await bank.put(reflection("What does functools.lru_cache do with maxsize=None?", "cache"))
    await bank.put(reflection("Which river flows through Rome?", "river"))
    found = await bank.recall("How large may an lru_cache grow by default?")
    assert ids(found.similar) == ["cache"]
    rivers = await bank.recall("What is the name of the river in Rome?")
    assert ids(rivers.similar) == ["river"]
