"""Which embedding model the answers of rounds are compared with: the bank's, or one asked for."""

from pathlib import Path
from typing import Any

import pytest

from tests.bank_parts import WordEmbedder, bank_in, reflection
from tests.test_rounds_job import rounds_of
from training.diversity import meaning_apart
from training.local.config import EngineConfig
from training.rounds.collected import Sampled
from training.rounds.folders import RoundFolders


def sampled(folder: Path, **rounds: Any) -> Sampled:
    config = rounds_of(folder, **rounds)
    return Sampled(config, EngineConfig(out=folder), RoundFolders(folder, folder / "data"), print)


async def test_the_banks_model_is_used_once_it_is_loaded_and_no_other(tmp_path: Path):
    one, model = sampled(tmp_path), WordEmbedder()
    assert await one.embedder() is None, "no bank is open"
    one.bank = bank_in(tmp_path, model)
    assert await one.embedder() is None, "nothing was looked up by meaning"
    await one.bank.put(reflection("What is a cache?", "r"))
    assert await one.bank.search("heap")
    assert await one.embedder() is model


@pytest.mark.model
async def test_a_model_that_is_asked_for_is_opened_once_without_a_bank(
    tmp_path: Path, minilm: Path
):
    one = sampled(tmp_path, embed_answers=True, reflections=0)
    embedder = await one.embedder()
    assert embedder is not None and await one.embedder() is embedder
    near = meaning_apart(
        ["Caches evict the oldest entry.", "A cache drops what is oldest."], embedder
    )
    far = meaning_apart(["Caches evict the oldest entry.", "Rome is a city in Italy."], embedder)
    assert near is not None and far is not None and 0 <= near < far <= 2
