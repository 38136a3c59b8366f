"""What is recalled together, equal vectors, and vectors on a Chroma server."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rubricem.agent.models.opening import embedder_in
from rubricem.agent.research.recall import BankRecaller
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import stores_of
from rubricem.memory.bank import RubricBank
from rubricem.memory.bank.store import BankStore
from rubricem.memory.bank.vectors import (
    BankIndex,
    Chroma,
    FolderChroma,
    Near,
    ServerChroma,
    VectorFile,
    diverse,
    vector_rows,
)
from rubricem.memory.errors import SettingsError, StoreError
from tests.conftest import ROOT, WEIGHTS_DIR
from tests.support.banks import WordEmbedder, bank_in, chroma_server, ids, put, reflection
from tests.support.waiting import free_port


class Astray:
    """A collection whose graph leads to two of its vectors; `held` is how many it has left."""

    def __init__(self, collection: Any, held: int | None) -> None:
        self._collection = collection
        self._held = held

    def __getattr__(self, name: str) -> Any:
        return getattr(self._collection, name)

    def query(self, **wanted: Any) -> Any:
        return self._collection.query(**wanted | {"n_results": 2})

    def get(self, **wanted: Any) -> Any:
        if "limit" in wanted and self._held is not None:
            wanted["limit"] = max(0, self._held - wanted["offset"])
        return self._collection.get(**wanted) if wanted.get("limit", 1) else {"ids": []}


class AstrayChroma:
    """A Chroma with such a collection."""

    def __init__(self, chroma: Chroma, held: int | None = None) -> None:
        self._chroma = chroma
        self._held = held

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chroma, name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = name in ("_chroma", "_held")
        object.__setattr__(self if own else self._chroma, name, value)

    def collection(self) -> Any:
        found = self._chroma.collection()
        return Astray(found, self._held) if found is not None else None


def indexed(folder: Path, held: int | None = None) -> BankIndex:
    """A bank of twenty equal questions, and one apart."""
    store = BankStore(folder / "bank")
    for number in range(20):
        store.put(reflection(f"cache number {'x' * number}", f"r{number}"))
    store.put(reflection("heap", "apart"))
    chroma: Any = AstrayChroma(FolderChroma.of(store.folder / "index"), held)
    return BankIndex(store, WordEmbedder(), chroma)


@pytest.fixture
def by_graph(monkeypatch: pytest.MonkeyPatch):
    """Banks are too large for their vectors to be compared."""
    monkeypatch.setattr("rubricem.memory.bank.vectors.COMPARED", 0)


@pytest.mark.usefixtures("by_graph")
def test_where_the_graph_misses_some_all_are_compared(tmp_path: Path):
    index = indexed(tmp_path)
    vector = WordEmbedder().embed(["cache"])[0]
    found = index.near(vector, 16)
    assert [near.number for near in found] == list(range(1, 17))
    np.testing.assert_allclose([near.similarity for near in found], 1.0, atol=1e-6)
    apart = index.near(vector, 30)[-1]
    assert (apart.number, round(apart.similarity, 4)) == (21, 0.0)
    np.testing.assert_allclose(apart.vector, WordEmbedder().embed(["heap"])[0], atol=1e-6)


@pytest.mark.usefixtures("by_graph")
def test_where_the_vectors_themselves_are_missing_it_is_told(tmp_path: Path):
    index = indexed(tmp_path, held=5)
    with pytest.raises(StoreError, match="it finds 5 of the bank's questions"):
        index.near(WordEmbedder().embed(["cache"])[0], 16)


OPENING = """
import asyncio, sys
from pathlib import Path
from rubricem.memory.bank import vectors
from tests.support.banks import WordEmbedder, bank_in, ids

vectors.QUICK, vectors.ASKED = int(sys.argv[2]), 2
embedder = WordEmbedder()
bank = bank_in(Path(sys.argv[1]), embedder)

async def ask():
    for _ in range(int(sys.argv[3])):
        found = await bank.search("cache", 3)
    return found

print(*ids(asyncio.run(ask())), "chromadb" in sys.modules, len(embedder.embedded))
"""


def asked_elsewhere(folder: Path, quick: int = 1000, times: int = 1) -> list[str]:
    """What a process of its own finds, whether it needed Chroma for that, and texts embedded."""
    command = [sys.executable, "-c", OPENING, str(folder), str(quick), str(times)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.split()


def copies(folder: Path) -> list[Path]:
    return list((folder / "bank" / "index").glob("vectors-*"))


async def test_a_process_that_only_asks_compares_all_vectors_and_opens_no_chroma(
    bank: RubricBank, tmp_path: Path
):
    await put(bank, ("cache", "a"), ("cache heap", "b"), ("rome", "c"))
    assert ids(await bank.search("cache", 3)) == ["a", "b", "c"]
    assert asked_elsewhere(tmp_path) == ["a", "b", "c", "False", "1"]
    [copy] = copies(tmp_path)
    await bank.put(reflection("cache cache heap", "d"))
    # Who is behind brings Chroma up to date first, and then the copy, which grows.
    assert asked_elsewhere(tmp_path) == ["a", "d", "b", "True", "2"]
    assert asked_elsewhere(tmp_path) == ["a", "d", "b", "False", "1"]
    assert copies(tmp_path) == [copy] and ids(await bank.search("cache", 3)) == ["a", "d", "b"]
    await bank.remove("a")
    assert asked_elsewhere(tmp_path) == ["d", "b", "c", "True", "1"]
    assert asked_elsewhere(tmp_path) == ["d", "b", "c", "False", "1"]
    assert copy not in copies(tmp_path) and len(copies(tmp_path)) == 1


@pytest.mark.parametrize("damage", ["gone", "cut", "zeros", "nan", "unfinished"])
async def test_a_copy_of_the_vectors_that_is_damaged_is_made_again_from_chroma(
    bank: RubricBank, tmp_path: Path, damage: str
):
    await bank.bring_in(reflection(f"heap {'path ' * n}", f"h{n}") for n in range(40))
    await put(bank, ("cache", "a"), ("cache heap", "b"), ("cache cache heap", "d"))
    assert ids(await bank.search("cache", 3)) == ["a", "d", "b"]
    [copy] = copies(tmp_path)
    whole = copy.read_bytes()
    damaged = {
        "cut": whole[:-100], "zeros": bytes(len(whole)), "nan": whole[:-40] + b"\xff" * 40,
        "unfinished": whole + whole[:50],  # more than the mark says: a kill came before it
    }  # fmt: skip
    copy.unlink()  # what this process has mapped stays
    if damage in damaged:
        copy.write_bytes(damaged[damage])
    needed = str(damage != "unfinished")
    assert asked_elsewhere(tmp_path) == ["a", "d", "b", needed, "1"]
    [again] = copies(tmp_path)
    assert (again == copy) == (damage == "unfinished")
    await bank.put(reflection("cache cache cache heap", "e"))
    assert asked_elsewhere(tmp_path) == ["a", "e", "d", "True", "2"]
    assert copies(tmp_path) == [again] and again.read_bytes().startswith(whole)


async def test_who_asks_much_of_a_large_bank_opens_the_graph(bank: RubricBank, tmp_path: Path):
    await put(bank, ("cache", "a"), ("cache heap", "b"), ("rome", "c"))
    await bank.search("cache", 3)
    assert asked_elsewhere(tmp_path, times=9) == ["a", "b", "c", "False", "9"]
    assert asked_elsewhere(tmp_path, quick=2, times=2) == ["a", "b", "c", "False", "2"]
    assert asked_elsewhere(tmp_path, quick=2, times=3) == ["a", "b", "c", "True", "3"]


async def test_a_bank_that_grows_too_large_for_its_copy_is_searched_by_the_graph(
    bank: RubricBank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rubricem.memory.bank.vectors.COMPARED", 2)
    await put(bank, ("cache", "a"), ("cache heap", "b"))
    assert ids(await bank.search("cache", 3)) == ["a", "b"] and copies(tmp_path)
    await bank.put(reflection("rome", "c"))
    assert ids(await bank.search("cache", 3)) == ["a", "b", "c"] and not copies(tmp_path)
    await bank.remove("c")
    assert ids(await bank.search("cache", 3)) == ["a", "b"] and copies(tmp_path)


async def test_a_copy_is_not_of_another_journal_that_has_as_many_events(tmp_path: Path):
    for name in ("one", "two"):
        await put(bank_in(tmp_path / name), ("cache", name), (f"heap {name}", f"{name}2"))
        await bank_in(tmp_path / name).search("cache")
    journal = tmp_path / "two" / "bank" / "journal.jsonl"
    (tmp_path / "one" / "bank" / "journal.jsonl").write_bytes(journal.read_bytes())
    found = await bank_in(tmp_path / "one").search("cache")
    assert ids(found) == ["two", "two2"]


def test_of_equal_vectors_the_first_are_found_and_none_twice(tmp_path: Path):
    vectors = np.eye(3, 8, dtype=np.float32)[[0, 1, 1, 1, 2, 1]]
    held = VectorFile.new(tmp_path, vector_rows([9, 8, 7, 4, 3, 5], vectors))
    assert [n.number for n in held.nearest(vectors[1], 2)] == [4, 5]
    assert [n.number for n in held.nearest(vectors[1], 5)] == [4, 5, 7, 8, 3]
    assert [n.number for n in held.nearest(vectors[0], 99)] == [9, 3, 4, 5, 7, 8]
    drawn = np.random.default_rng(1).standard_normal((500, 8)).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    many = VectorFile.new(tmp_path, vector_rows(range(500), drawn))
    asked = drawn[123] @ drawn.T
    assert [n.number for n in many.nearest(drawn[123], 16)] == list(np.argsort(-asked)[:16])


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
    found = [near(1, 0.9, 1, 0), near(2, 0.89, 0.96, 0.28), near(3, 0.5, 0.94, 0.341)]
    assert [n.number for n in diverse(found, 2)] == [1, 3]
    assert [n.number for n in diverse(found[1:], 2, [found[0].vector])] == [3]


async def test_its_own_item_comes_first_and_what_says_the_same_is_left_out(bank: RubricBank):
    await put(bank, ("cache", "own"), ("cache, again", "same words"), ("cache heap", "other"))
    recalled = await bank.recall("cache")
    assert recalled.own is not None and recalled.own.id == "own"
    assert (ids(recalled.similar), recalled.fault) == (["other"], None)
    assert recalled.similar[0].similarity == pytest.approx(0.7071, abs=1e-3)
    asked = await bank.recall("cache?")
    assert asked.own is None and ids(asked.similar) == ["own", "other"]


async def test_a_recall_that_its_own_item_fills_opens_no_embedder(tmp_path: Path):
    bank = RubricBank(tmp_path)
    await put(bank, ("cache", "own"), ("heap", "other"))
    recalled = await bank.recall("cache", k=1)
    assert recalled.own is not None and (recalled.similar, recalled.fault) == ((), None)
    wanted = await bank.recall("cache", k=2)
    assert wanted.own is not None and isinstance(wanted.fault, SettingsError)
    nothing = await bank.recall("cache", k=0)
    assert (nothing.own, nothing.similar, nothing.fault) == (None, (), None)


async def test_what_was_near_and_is_replaced_or_disabled_does_not_crowd_out_the_rest(
    bank: RubricBank,
):
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
    await put(
        bank,
        ("What does functools.lru_cache do with maxsize=None?", "cache"),
        ("Which river flows through Rome?", "river"),
    )
    found = await bank.recall("How large may an lru_cache grow by default?")
    assert ids(found.similar) == ["cache"]
    rivers = await bank.recall("What is the name of the river in Rome?")
    assert ids(rivers.similar) == ["river"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with chroma_server(tmp_path_factory.mktemp("chroma")) as address:
        yield address


def bank_on(server: str, folder: Path, embedder: WordEmbedder | None = None) -> RubricBank:
    held = embedder or WordEmbedder()

    async def open_embedder() -> WordEmbedder:
        return held

    return RubricBank(folder, open_embedder, server)


async def test_a_bank_is_searched_on_a_server_and_nothing_of_it_lies_in_a_folder(
    server: str, tmp_path: Path
):
    bank = bank_on(server, tmp_path)
    await bank.bring_in([reflection("cache heap", "both"), reflection("rome", "other")])
    assert ids(await bank.search("cache", 1)) == ["both"]
    await bank.put(reflection("cache", "same"))
    assert ids(await bank.search("cache")) == ["same", "both", "other"]
    await bank.remove("both")
    assert ids(await bank_on(server, tmp_path).search("cache")) == ["same", "other"]
    assert not list(tmp_path.rglob("chroma.sqlite3"))
    assert (await bank.stats()).embedder == "words"


async def test_two_banks_on_one_server_are_kept_apart(server: str, tmp_path: Path):
    one, two = (bank_on(server, tmp_path / name) for name in ("one", "two"))
    await one.put(reflection("cache", "a"))
    await two.put(reflection("cache", "b"))
    await two.put(reflection("cache rome", "c"))
    assert ids(await one.search("cache")) == ["a"]
    assert ids(await two.search("cache")) == ["b", "c"]


async def test_two_clients_of_one_bank_see_what_the_other_adds_and_rebuilds(
    server: str, tmp_path: Path
):
    one, two = bank_on(server, tmp_path), bank_on(server, tmp_path)
    await one.put(reflection("cache", "a"))
    assert ids(await two.search("cache")) == ids(await one.search("cache")) == ["a"]
    await two.put(reflection("heap", "b"))
    assert ids(await one.search("heap")) == ["b", "a"]
    await one.rebuild()
    assert ids(await two.search("heap")) == ["b", "a"]
    other = bank_on(server, tmp_path, WordEmbedder("other"))
    with pytest.raises(SettingsError, match="indexed by words, not by other"):
        await other.search("heap")
    await other.rebuild()
    with pytest.raises(SettingsError, match="indexed by other, not by words"):
        await two.search("heap")


async def test_a_server_that_lost_its_collection_is_given_it_again(server: str, tmp_path: Path):
    bank = bank_on(server, tmp_path)
    await bank.put(reflection("cache", "a"))
    assert ids(await bank.search("cache")) == ["a"]
    name = (tmp_path / "bank" / "id").read_text()
    ServerChroma(server, f"rubricem-{name}", tmp_path / "other").create(
        {"generation": 0, "digest": "", "embedder": "words"}
    )
    assert ids(await bank.search("cache")) == ["a"]


async def test_a_bank_moves_from_a_folder_to_a_server_and_back(server: str, tmp_path: Path):
    await bank_in(tmp_path).put(reflection("cache", "a"))
    for bank in (bank_in(tmp_path), bank_on(server, tmp_path), bank_in(tmp_path)):
        assert ids(await bank.search("cache")) == ["a"]


@pytest.mark.parametrize("silent", [False, True])
async def test_a_server_that_is_down_or_silent_is_one_sentence_and_its_own_item_is_recalled(
    tmp_path: Path, silent: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rubricem.memory.bank.vectors._SECONDS", 0.2)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if silent:
            listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        bank = bank_on(url, tmp_path)
        await put(bank, ("cache", "own"), ("heap", "other"))
        with pytest.raises(StoreError, match=f"the Chroma server {url} cannot be used") as caught:
            await bank.search("heap")
        assert "bank_server" in caught.value.remedy and "\n" not in str(caught.value)
        told: list[str] = []
        found = await BankRecaller(bank, tell=told.append).recall("cache")
    assert found.ids == ("own",) and "the memory is left out" in told[0]


def test_the_server_is_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RUBRICEM_BANK_SERVER", "http://localhost:8000/")
    settings = load_settings()
    assert settings.bank_server == "http://localhost:8000"
    assert stores_of(settings).open_bank().server == "http://localhost:8000"
    monkeypatch.setenv("RUBRICEM_BANK_SERVER", "localhost")
    with pytest.raises(SettingsError, match="RUBRICEM_BANK_SERVER cannot be"):
        load_settings()


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
