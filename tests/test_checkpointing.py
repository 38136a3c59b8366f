"""Checkpoints in a real PostgreSQL: a position and a pending decision outlive their process."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.checkpointing import open_saver
from agent.graph import build_graph
from agent.run import Ask
from memory.errors import SettingsError, StoreError
from tests.fakes import QUESTION, FixedSearch
from tests.flow import RUN, researching
from tests.scripted_server import ScriptedServer
from tests.waiting import PATIENCE, Process

pytest.importorskip("langgraph.checkpoint.postgres", reason="the extra `postgres` is not installed")


def program(name: str) -> str:
    """A program of the server, which Debian keeps off the path."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *map(str, folders)]))
    if found is None:
        pytest.skip(f"there is no {name}: install PostgreSQL's server to run this")
    return found


def unprivileged() -> str | None:
    """Whom the server runs as: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    import pwd

    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """The address of an empty database on a server of its own."""
    initdb, postgres = program("initdb"), program("postgres")
    user, port = unprivileged(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        if user:
            shutil.chown(folder, user)
        options: dict[str, Any] = {"user": user, "cwd": folder, "stderr": subprocess.STDOUT}
        made = subprocess.run(
            [initdb, "-D", f"{folder}/data", "-U", "tester", "-A", "trust", "-N"],
            stdout=subprocess.PIPE, text=True, check=False, **options,
        )  # fmt: skip
        assert made.returncode == 0, made.stdout
        command = [postgres, "-D", f"{folder}/data", "-p", str(port), "-k", folder, "-F",
                   "-c", "listen_addresses=127.0.0.1"]  # fmt: skip
        with Process(command, stdout=subprocess.DEVNULL, **options) as server:
            try:
                wait_for(port, server)
                yield f"postgresql://tester@127.0.0.1:{port}/postgres"
            finally:
                server.terminate()


def wait_for(port: int, server: Process) -> None:
    from psycopg import OperationalError, connect

    until = time.monotonic() + PATIENCE
    while True:
        try:
            with connect(f"postgresql://tester@127.0.0.1:{port}/postgres"):
                return
        except OperationalError:
            assert server.poll() is None and time.monotonic() < until, "the server did not start"
            time.sleep(0.05)


async def test_a_position_in_postgresql_goes_on_with_another_researcher(
    database: str, tmp_path: Path
):
    config: Any = {"configurable": {"thread_id": "position"}}
    source = FixedSearch()
    with ScriptedServer(RUN) as server:
        async with (
            open_saver(database) as saver,
            researching(server.base_url, tmp_path, source) as first,
        ):
            graph = build_graph(first, saver)
            await graph.ainvoke({"question": QUESTION}, config, interrupt_after=["research"])
            run = await first.find((await graph.aget_state(config)).values["run"])
            assert run is not None
            run.journal.close()
        async with (
            open_saver(database) as saver,
            researching(server.base_url, tmp_path, source) as second,
        ):
            ended = await build_graph(second, saver).ainvoke(None, config)
        assert len(server.requests) == len(RUN)
    assert ended["status"] == "finished"
    assert source.queries == ["lru_cache maxsize None", "functools.cache unbounded"]


async def test_a_run_leaves_its_way_in_postgresql_and_can_be_asked_again(
    database: str, tmp_path: Path
):
    config: Any = {"configurable": {"thread_id": "t"}}
    with ScriptedServer(RUN) as server:
        for _ in range(2):
            async with (
                open_saver(database) as saver,
                researching(server.base_url, tmp_path) as researcher,
            ):
                researcher.saver = saver
                run = await researcher.ask(Ask(QUESTION), "t")
                state = await build_graph(researcher, saver).aget_state(config)
        assert len(server.requests) == len(RUN)
    assert run.status == "finished"
    assert (state.values["path"][-1], state.next) == ("verify", ())
    assert QUESTION not in str(state.values), "the transcript is the journal's"


async def test_a_database_that_does_not_answer_is_one_sentence_without_its_password():
    address = f"postgresql://tester:secret@127.0.0.1:{free_port()}/postgres"
    with pytest.raises(StoreError, match="database of the checkpoints") as told:
        async with open_saver(address):
            pass
    assert "secret" not in str(told.value) + told.value.remedy


async def test_an_address_of_another_kind_is_refused():
    with pytest.raises(SettingsError, match="names no PostgreSQL database"):
        async with open_saver("sqlite:///runs.db"):
            pass
