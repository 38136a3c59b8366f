"""A server is given a checkpoint by a command, which ends with whoever waits for it."""

import asyncio
import os
from pathlib import Path

import pytest

from rubricem.memory.errors import PolicyError
from rubricem.training.rounds.rollouts import refresh_server
from tests.support.waiting import wait_for


async def test_the_last_line_that_is_printed_is_the_name_to_ask_for(tmp_path: Path) -> None:
    said = await refresh_server(["echo", "loading\n{checkpoint}"], tmp_path, "[rounds]")
    assert said == str(tmp_path)
    with pytest.raises(PolicyError, match="was not given the checkpoint: No such file"):
        await refresh_server([str(tmp_path / "none")], tmp_path, "[rounds]")


async def test_a_command_that_nobody_waits_for_any_more_is_ended(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    command = ["sh", "-c", f"echo $$ > {begun}.part; mv {begun}.part {begun}; exec sleep 3600"]
    waiting = asyncio.ensure_future(refresh_server(command, tmp_path, "[rounds]"))
    await asyncio.to_thread(wait_for, begun.exists)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    # It would give the server a checkpoint that is no more asked for.
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)
