"""A server follows the weights: by vLLM's interface, or by a command of one's own."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rubricem.agent.weights.checkpoints import NOTE, Checkpoint, note_of
from rubricem.memory.errors import PolicyError
from rubricem.training.rounds.rollouts import VllmServer, refresh_server
from rubricem.training.rounds.update import RoundFolders
from tests.support.rows import quiet
from tests.support.token_servers import Engine
from tests.support.waiting import wait_for

VERSION = "ss-grpo-3-abcdef012345"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoints" / "000003"
    folder.mkdir(parents=True)
    note = Checkpoint(base="base", base_sha256="", adapter_sha256="abcdef012345", method="ss-grpo",
                      step=3, rank=4, alpha=8.0)  # fmt: skip
    (folder / "checkpoint.json").write_text(note.model_dump_json())
    (folder / "adapter_config.json").write_text("{}")
    return folder


def test_what_a_round_samples_from_knows_its_base_from_where_it_lies(
    checkpoint: Path, tmp_path: Path
) -> None:
    base = tmp_path / "base.gguf"
    note = note_of(checkpoint).model_copy(update={"base": str(base)}).beside(checkpoint)
    (checkpoint / NOTE).write_text(note.model_dump_json())
    folders = RoundFolders(tmp_path / "out", tmp_path / "data")
    folders.keep_policy(0, checkpoint)
    assert note_of(folders.policy(0)).base == note_of(checkpoint).base == str(base)
    assert note_of(folders.policy(0)).version == VERSION
    assert (folders.policy(0) / "adapter_config.json").samefile(checkpoint / "adapter_config.json")


def test_a_round_goes_on_with_the_checkpoint_that_it_began_with(
    checkpoint: Path, tmp_path: Path
) -> None:
    folders = RoundFolders(tmp_path / "out", tmp_path / "data")
    folders.keep_policy(0, checkpoint)
    note = note_of(checkpoint).model_copy(update={"step": 4})
    (checkpoint / NOTE).write_text(note.model_dump_json())
    folders.keep_policy(0, checkpoint)
    assert note_of(folders.policy(0)).version == VERSION, "another one would be another run"


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as started:
        yield started


async def test_who_begins_with_one_checkpoint_shares_it_until_the_last_has_ended(
    engine: Engine, checkpoint: Path, tmp_path: Path
) -> None:
    """As a round and the held-out questions do, also while a third lets it go."""
    told: list[str] = []
    # As people copy it; nothing of a password is told.
    address = engine.base_url.replace("//", "//user:secret@") + "/"
    server = VllmServer(address, tmp_path, None, told.append)
    used, place = asyncio.Event(), tmp_path / "served" / VERSION

    async def sampling() -> None:
        async with server.serving(checkpoint) as name:
            assert name == VERSION and engine.adapters == {VERSION: str(place)}
            await used.wait()
            assert engine.adapters == {VERSION: str(place)} and place.is_dir()

    begun = [asyncio.create_task(sampling()) for _ in range(2)]
    await asyncio.to_thread(wait_for, lambda: bool(told))
    used.set()
    await asyncio.gather(*begun, sampling())
    assert told[0].startswith(f"the server has {VERSION}")
    assert not engine.adapters, "what nobody samples is forgotten"
    assert not place.exists()


async def test_a_server_that_refuses_or_is_away_is_told(
    engine: Engine, checkpoint: Path, tmp_path: Path
) -> None:
    engine.failing = {"POST /v1/load_lora_adapter"}
    away = "http://127.0.0.1:9/v1"
    for address, said in (
        (engine.base_url, r"was not given the checkpoint: .*out of memory.* \(500\)"),
        (away, r"was not given the checkpoint: .*127.0.0.1:9/v1"),
    ):
        with pytest.raises(PolicyError, match=said):
            async with VllmServer(address, tmp_path, None, quiet).serving(checkpoint):
                raise AssertionError("nobody serves it")
    assert not (tmp_path / "served" / VERSION).exists()


async def test_a_server_that_dies_in_a_round_is_given_its_checkpoint_anew(
    engine: Engine, checkpoint: Path, tmp_path: Path
) -> None:
    server, ways = VllmServer(engine.base_url, tmp_path, None, quiet), set(engine.routes)
    with pytest.raises(PolicyError, match="it broke off"):
        async with server.serving(checkpoint):
            assert list(engine.adapters) == [VERSION]
            engine.adapters.clear()
            engine.failing = ways
            raise PolicyError("it broke off")
    assert not (tmp_path / "served" / VERSION).exists()
    engine.failing = set()
    async with server.serving(checkpoint) as name:
        assert engine.adapters == {name: str(tmp_path / "served" / VERSION)}


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
