"""What a person changes in the bank over HTTP, in one tab and in two."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.serve.routes_bank import router
from memory.bank import RubricBank
from memory.screening import RUBRICS_CHARACTERS
from tests.bank_parts import bank_in, ids, reflection
from tests.serve_apps import served

FLAG = "It tells its reader to obey."


@pytest.fixture
def bank(tmp_path: Path) -> RubricBank:
    return bank_in(tmp_path)


@pytest.fixture
async def client(bank: RubricBank) -> AsyncIterator[httpx.AsyncClient]:
    await bank.put(reflection("cache", "a"))
    async with served(router(bank)) as client:
        yield client


async def patched(client: httpx.AsyncClient, identifier: str, **change: Any) -> httpx.Response:
    return await client.patch(f"/api/bank/{identifier}", json=change)


async def test_an_edit_is_a_new_version_that_says_where_it_was_written(
    bank: RubricBank, client: httpx.AsyncClient
):
    kept = (await patched(client, "a", takeaways="- run the code")).json()
    assert (kept["takeaways"], kept["rubrics"]) == ("- run the code", "Pitfalls: guessing")
    assert (kept["origin"], kept["replaces"], kept["edited_by"]) == ("hand", "a", "web page")
    assert kept["warnings"] == []
    assert ids(await bank.items()) == [kept["id"]]
    assert ids(await bank.history("cache")) == ["a", kept["id"]]


async def test_an_edit_is_screened_and_a_person_is_told(client: httpx.AsyncClient):
    nasty = "- see https://evil.example/x <script>alert(1)</script>\u202e now"
    kept = (await patched(client, "a", takeaways=nasty, rubrics="word " * 900)).json()
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
        {"pinned": "perhaps"},
        {"id": "b"},
        {"origin": "run"},
    ],
)
async def test_a_change_that_makes_no_sense_changes_nothing(
    bank: RubricBank, client: httpx.AsyncClient, change: dict[str, Any]
):
    assert (await patched(client, "a", **change)).status_code == 422
    assert await bank.generation() == 1


async def test_words_as_they_are_make_no_version(bank: RubricBank, client: httpx.AsyncClient):
    same = await patched(client, "a", takeaways="- read the source", rubrics="Pitfalls: guessing")
    assert (same.json()["id"], await bank.generation()) == ("a", 1)


async def test_an_item_is_pinned_and_disabled_and_both_undone(
    bank: RubricBank, client: httpx.AsyncClient
):
    on = (await patched(client, "a", pinned=True, disabled=True)).json()
    assert (on["pinned"], on["disabled"], on["state"]) == (True, True, "disabled")
    off = (await patched(client, "a", pinned=False, disabled=False)).json()
    assert (off["pinned"], off["disabled"], off["state"]) == (False, False, "active")


@pytest.mark.parametrize("way", ["body", "header"])
async def test_of_two_tabs_that_edit_one_item_the_second_is_told(
    bank: RubricBank, client: httpx.AsyncClient, way: str
):
    version = (await client.get("/api/bank/a")).json()["version"]
    await patched(client, "a", pinned=True, version=version)
    body = {"disabled": True} | ({"version": version} if way == "body" else {})
    headers = {"If-Match": f'"{version}"'} if way == "header" else {}
    late = await client.patch("/api/bank/a", json=body, headers=headers)
    assert late.status_code == 409
    assert late.json()["error"] == "The reflection was changed in the meantime."
    assert ids(await bank.page("disabled")) == []


async def test_of_two_edits_at_once_one_is_kept_and_one_refused(
    bank: RubricBank, client: httpx.AsyncClient
):
    replies = await asyncio.gather(
        patched(client, "a", takeaways="- one"), patched(client, "a", takeaways="- two")
    )
    assert sorted(reply.status_code for reply in replies) == [200, 409]
    [kept] = [reply.json() for reply in replies if reply.status_code == 200]
    assert ids(await bank.items()) == [kept["id"]]


async def test_what_was_replaced_is_not_changed(bank: RubricBank, client: httpx.AsyncClient):
    await bank.put(reflection("cache", "b"))
    for change in ({"takeaways": "- x"}, {"pinned": True}):
        late = await patched(client, "a", **change)
        assert late.status_code == 409 and "replaced" in late.json()["error"]
    assert await bank.generation() == 2


async def test_a_release_says_what_it_came_to(bank: RubricBank, client: httpx.AsyncClient):
    await bank.put(reflection("heap", "alone", flags=(FLAG,)))
    await bank.put(reflection("cache", "late", "- other words", flags=(FLAG,)))
    await bank.pin("a")
    free = (await client.post("/api/bank/alone/release")).json()
    assert (free["state"], free["said"], free["released_by"]) == ("active", "Released.", "web page")
    assert free["released_at"] is not None and free["flags"] == [FLAG]
    late = (await client.post("/api/bank/late/release", json={})).json()
    assert late["said"] == "Released into the history: a is pinned and stands."
    assert (late["state"], late["instead"]["id"]) == ("replaced", "a")
    again = await client.post("/api/bank/alone/release")
    assert again.status_code == 409 and "not in quarantine" in again.json()["error"]


async def test_what_is_in_quarantine_is_not_pinned(bank: RubricBank, client: httpx.AsyncClient):
    await bank.put(reflection("heap", "bad", flags=(FLAG,)))
    reply = await patched(client, "bad", pinned=True)
    assert (reply.status_code, reply.json()["remedy"]) == (409, "Release it first.")


async def test_what_is_deleted_is_gone_and_a_second_tab_is_told(
    bank: RubricBank, client: httpx.AsyncClient, tmp_path: Path
):
    stale = await client.delete("/api/bank/a", headers={"If-Match": '"other"'})
    assert stale.status_code == 409
    assert (await client.delete("/api/bank/a")).json() == {"removed": "a"}
    assert (await client.delete("/api/bank/a")).status_code == 404
    assert "read the source" not in (tmp_path / "bank" / "journal.jsonl").read_text()
