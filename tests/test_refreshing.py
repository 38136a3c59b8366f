"""A server is given a checkpoint by a command, which ends with whoever waits for it."""

import asyncio
from pathlib import Path

import pytest

from memory.errors import PolicyError
from training.refreshing import refreshed


async def test_the_last_line_that_is_printed_is_the_name_to_ask_for(tmp_path: Path) -> None:
    said = await refreshed(["echo", "loading\n{checkpoint}"], tmp_path, "[rounds]")
    assert said == str(tmp_path)
    with pytest.raises(PolicyError, match="was not given the checkpoint: No such file"):
        await refreshed([str(tmp_path / "none")], tmp_path, "[rounds]")


async def test_a_command_that_nobody_waits_for_any_more_is_ended(tmp_path: Path) -> None:
    late = tmp_path / "late"
    command = ["sh", "-c", f"sleep 0.4; touch {late}"]
    waiting = asyncio.ensure_future(refreshed(command, tmp_path, "[rounds]"))
    await asyncio.sleep(0.2)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0.5)
    assert not late.exists(), "it would give the server a checkpoint that is no more asked for"
