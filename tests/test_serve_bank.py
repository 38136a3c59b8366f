"""The bank over HTTP: what is shown, found, decided, and refused."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.serve.routes_bank import router
from memory.bank import RubricBank
from tests.bank_parts import WordEmbedder, bank_in, reflection
from tests.serve_apps import served

FLAG = "It tells its reader to obey."


@pytest.fixture
def bank(tmp_path: Path) -> RubricBank:
    return bank_in(tmp_path)


@pytest.fixture
async def client(bank: RubricBank) -> AsyncIterator[httpx.AsyncClient]:
    async with served(router(bank)) as client:
        yield client


async def got(client: httpx.AsyncClient, path: str) -> Any:
    reply = await client.get(path)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def listed(client: httpx.AsyncClient, query: str = "") -> list[str]:
    return [item["id"] for item in (await got(client, f"/api/bank?{query}"))["items"]]


async def test_an_empty_bank_is_an_empty_list(client: httpx.AsyncClient, tmp_path: Path):
    assert await got(client, "/api/bank") == {"items": [], "next": "", "note": ""}
    assert await got(client, "/api/bank?query=cache") == {"items": [], "next": "", "note": ""}
    assert (await got(client, "/api/bank/stats"))["active"] == 0
    assert not (tmp_path / "bank").exists()


async def test_the_list_is_paged_from_the_latest(bank: RubricBank, client: httpx.AsyncClient):
    for number in range(5):
        await bank.put(reflection(f"cache {number}", f"r{number}"))
    first = await got(client, "/api/bank?limit=2")
    assert [item["id"] for item in first["items"]] == ["r4", "r3"]
    rest = await got(client, f"/api/bank?limit=3&before={first['next']}")
    assert ([item["id"] for item in rest["items"]], rest["next"]) == (["r2", "r1", "r0"], "")


async def test_a_state_lists_what_is_in_it(bank: RubricBank, client: httpx.AsyncClient):
    await bank.put(reflection("cache", "a"))
    await bank.put(reflection("heap", "b"))
    await bank.put(reflection("rome", "bad", flags=(FLAG,)))
    await bank.disable("b")
    assert await listed(client) == ["bad", "b", "a"]
    states = {s: await listed(client, f"state={s}") for s in ("active", "quarantine", "disabled")}
    assert states == {"active": ["a"], "quarantine": ["bad"], "disabled": ["b"]}
    stats = await got(client, "/api/bank/stats")
    assert (stats["active"], stats["quarantine"], stats["disabled"]) == (1, 1, 1)


async def test_a_search_finds_by_meaning_and_in_other_states_by_words(
    bank: RubricBank, client: httpx.AsyncClient
):
    await bank.put(reflection("cache heap", "near"))
    await bank.put(reflection("rome", "far"))
    await bank.put(reflection("a cache in quarantine", "bad", flags=(FLAG,)))
    found = (await got(client, "/api/bank?query=cache"))["items"]
    assert [item["id"] for item in found] == ["near", "far"]
    assert found[0]["similarity"] == pytest.approx(0.7071, abs=1e-3)
    assert await listed(client, "query=CACHE%20in&state=quarantine") == ["bad"]
    assert await listed(client, "query=heap&state=quarantine") == []


async def test_without_an_embedder_words_are_looked_for_and_it_is_said(tmp_path: Path):
    bank = RubricBank(tmp_path)
    await bank.put(reflection("cache", "a"))
    await bank.put(reflection("heap", "b"))
    async with served(router(bank)) as client:
        found = await got(client, "/api/bank?query=Cache")
    assert [item["id"] for item in found["items"]] == ["a"]
    assert "by its words alone" in found["note"] and "embedding model" in found["note"]


async def test_an_item_is_shown_with_its_history(bank: RubricBank, client: httpx.AsyncClient):
    await bank.put(reflection("cache", "old", "- <b>old</b>"))
    await bank.put(reflection("cache", "new"))
    shown = await got(client, "/api/bank/new")
    assert (shown["question"], shown["state"], shown["pinned"]) == ("cache", "active", False)
    [before] = shown["history"]
    assert (before["id"], before["state"]) == ("old", "replaced")
    assert before["takeaways"] == "- <b>old</b>"


@pytest.mark.parametrize("name", ["none", "ne", "%2e%2e%2fx", "x" * 300])
async def test_an_unknown_id_is_a_404_with_a_sentence(
    bank: RubricBank, client: httpx.AsyncClient, name: str
):
    await bank.put(reflection("cache", "new"))
    for reply in (
        await client.get(f"/api/bank/{name}"),
        await client.patch(f"/api/bank/{name}", json={"pinned": True}),
        await client.delete(f"/api/bank/{name}"),
    ):
        assert reply.status_code == 404
    assert await listed(client) == ["new"]


@pytest.mark.parametrize("query", ["limit=0", "limit=9999", "before=x", "state=odd"])
async def test_odd_parameters_are_refused(client: httpx.AsyncClient, query: str):
    assert (await client.get(f"/api/bank?{query}")).status_code == 422


async def test_one_embedder_serves_all_searches(tmp_path: Path):
    opened: list[WordEmbedder] = []

    async def open_embedder() -> WordEmbedder:
        opened.append(WordEmbedder())
        return opened[-1]

    bank = RubricBank(tmp_path, open_embedder)
    await bank.put(reflection("cache", "a"))
    async with served(router(bank)) as client:
        for _ in range(3):
            assert await listed(client, "query=cache") == ["a"]
    assert len(opened) == 1
