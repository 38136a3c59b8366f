"""The bank's vectors on a Chroma server: a real one, one that is down, one that says nothing."""

import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from agent.banking import open_bank
from agent.recalling import BankRecaller
from agent.settings import load_settings
from memory.bank import RubricBank
from memory.bank_server import ServerChroma
from memory.errors import SettingsError, StoreError
from tests.bank_parts import WordEmbedder, bank_in, ids, reflection
from tests.waiting import Process, wait_for

RUN = "from chromadb.cli.cli import app; app()"


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
    return port


def answers(url: str) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(f"{url}/api/v2/heartbeat").is_success
    return False


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder, port = tmp_path_factory.mktemp("chroma"), free_port()
    where = ["--path", str(folder), "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "log").open("w") as log:
        process = Process(
            [sys.executable, "-c", RUN, "run", *where], stdout=log, stderr=log, cwd=folder
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: answers(url) or process.poll() is not None)
        assert process.poll() is None, (folder / "log").read_text()
        yield url
    finally:
        process.terminate()
        process.wait()


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
    monkeypatch.setattr("memory.bank_server._SECONDS", 0.2)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if silent:
            listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        bank = bank_on(url, tmp_path)
        await bank.put(reflection("cache", "own"))
        await bank.put(reflection("heap", "other"))
        with pytest.raises(StoreError, match=f"the Chroma server {url} cannot be used") as caught:
            await bank.search("heap")
        assert "bank_server" in caught.value.remedy and "\n" not in str(caught.value)
        told: list[object] = []
        found = await BankRecaller(bank, listener=told.append).recall("cache")
    assert found.ids == ("own",) and "the memory is left out" in str(told[0])


def test_the_server_is_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RUBRICEM_BANK_SERVER", "http://localhost:8000/")
    settings = load_settings()
    assert settings.bank_server == "http://localhost:8000"
    assert open_bank(settings).server == "http://localhost:8000"
    monkeypatch.setenv("RUBRICEM_BANK_SERVER", "localhost")
    with pytest.raises(SettingsError, match="RUBRICEM_BANK_SERVER cannot be"):
        load_settings()
