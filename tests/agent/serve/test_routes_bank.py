"""The bank over HTTP: what is shown, found, decided, and refused.

What a person changes in the bank over HTTP, in one tab and in two.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rubricem.agent.serve.routes_bank import bank_of, routes
from rubricem.memory.bank import RubricBank
from rubricem.memory.screening import RUBRICS_CHARACTERS
from tests.support.banks import bank_in, ids, reflection
from tests.support.pages import served

FLAG = "It tells its reader to obey."


@pytest.fixture
def bank(tmp_path: Path) -> RubricBank:
    return bank_in(tmp_path)


@pytest.fixture
async def client(bank: RubricBank) -> AsyncIterator[httpx.AsyncClient]:
    async with served(routes, {bank_of: bank}) as client:
        yield client


async def got(client: httpx.AsyncClient, path: str) -> Any:
    reply = await client.get(path)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def listed(client: httpx.AsyncClient, query: str = "") -> list[str]:
    return [item["id"] for item in (await got(client, f"/api/bank?{query}"))["items"]]


async def test_the_list_is_paged_from_the_latest(bank: RubricBank, client: httpx.AsyncClient):
    for number in range(5):
        await bank.put(reflection(f"cache {number}", f"r{number}"))
    first = await got(client, "/api/bank?limit=2")
    assert [item["id"] for item in first["items"]] == ["r4", "r3"]
    await bank.put(reflection("heap", "newer"))
    rest = await got(client, f"/api/bank?limit=3&before={first['next']}")
    assert ([item["id"] for item in rest["items"]], rest["next"]) == (["r2", "r1", "r0"], "")


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


@pytest.mark.parametrize("name", ["none", "ne", "%2e%2e%2fx", "x" * 300])
async def test_an_unknown_id_is_a_404_with_a_sentence(
    bank: RubricBank, client: httpx.AsyncClient, name: str
):
    await bank.put(reflection("cache", "new"))
    for reply in (
        await client.get(f"/api/bank/{name}"),
        await client.patch(f"/api/bank/{name}", json={"rubrics": "x"}),
        await client.delete(f"/api/bank/{name}"),
    ):
        assert reply.status_code == 404
    assert await listed(client) == ["new"]


@pytest.fixture
async def owner(bank: RubricBank) -> AsyncIterator[httpx.AsyncClient]:
    await bank.put(reflection("cache", "a"))
    async with served(routes, {bank_of: bank}) as client:
        yield client


async def patched(client: httpx.AsyncClient, identifier: str, **change: Any) -> httpx.Response:
    return await client.patch(f"/api/bank/{identifier}", json=change)


async def test_an_edit_is_screened_and_a_person_is_told(owner: httpx.AsyncClient):
    nasty = "- see https://evil.example/x <script>alert(1)</script>\u202e now"
    kept = (await patched(owner, "a", takeaways=nasty, rubrics="word " * 900)).json()
    assert "evil.example" not in kept["takeaways"] and "<script>" not in kept["takeaways"]
    assert "\u202e" not in kept["takeaways"]
    assert len(kept["rubrics"]) <= RUBRICS_CHARACTERS
    assert kept["warnings"][0].startswith("Some of it was taken out or cut")
    assert any("address" in warning for warning in kept["warnings"])


@pytest.mark.parametrize(
    "change",
    [
        {"rubrics": "  "},
        {"takeaways": "\u200b"},
        {"rubrics": "x" * 20_001},
        {"rubrics": 5},
        {"pinned": True},
        {"id": "b"},
        {"origin": "run"},
    ],
)
async def test_a_change_that_makes_no_sense_changes_nothing(
    bank: RubricBank, owner: httpx.AsyncClient, change: dict[str, Any]
):
    assert (await patched(owner, "a", **change)).status_code == 422
    assert await bank.generation() == 1


async def test_of_two_edits_at_once_one_is_kept_and_one_refused(
    bank: RubricBank, owner: httpx.AsyncClient
):
    replies = await asyncio.gather(
        patched(owner, "a", takeaways="- one"), patched(owner, "a", takeaways="- two")
    )
    assert sorted(reply.status_code for reply in replies) == [200, 409]
    [kept] = [reply.json() for reply in replies if reply.status_code == 200]
    assert ids(await bank.items()) == [kept["id"]]


async def test_a_release_says_what_it_came_to(bank: RubricBank, owner: httpx.AsyncClient):
    await bank.put(reflection("heap", "alone", flags=(FLAG,)))
    await bank.put(reflection("cache", "late", "- other words", flags=(FLAG,)))
    own = (await patched(owner, "a", takeaways="- mine")).json()["id"]
    free = (await owner.post("/api/bank/alone/release")).json()
    assert (free["state"], free["instead"], free["released_by"]) == ("active", None, "web page")
    assert free["released_at"] is not None and free["flags"] == [FLAG]
    late = (await owner.post("/api/bank/late/release", json={})).json()
    assert (late["state"], late["instead"]["id"]) == ("replaced", own)
    assert (await owner.post("/api/bank/alone/release")).status_code == 409
