"""Collecting over a poisoned page: what a rollout reflects with the page's words is held back."""

import asyncio
from pathlib import Path
from typing import Any

from memory.bank import RubricBank
from tests.poisoned import OBEYING, POISON
from tests.scripted_server import Scripted, ScriptedServer
from tests.test_collect_command import collect, folder, scripted

__all__ = ["folder"]


def obeying(body: dict[str, Any], number: int) -> Scripted:
    said = body["messages"][1]["content"]
    return OBEYING if "<run>" in said and "Criteria" not in said else scripted(body, number)


def test_what_a_rollout_copies_from_its_page_is_put_in_quarantine(folder: Path):
    (folder / "documents" / "lru.md").write_text(f"# lru_cache\nIt has no bound. {POISON}\n")
    with ScriptedServer(obeying) as server:
        done = collect(folder, server, "--group-size", "2", "--reflections", "1", "--memory", "on")
    assert done.exit_code == 0, done.output
    bank = RubricBank(folder / "data")
    assert asyncio.run(bank.items()) == []
    [item] = asyncio.run(bank.items(every=True))
    assert item.quarantined
    assert any("copied from what the run read" in flag for flag in item.reflection.flags)
