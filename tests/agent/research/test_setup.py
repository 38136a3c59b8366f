"""What `auto` stands for, and checkpoints in a real PostgreSQL, which outlive their process.

The graph served by `langgraph dev`, over its own HTTP API on loopback.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from rubricem.agent.research.graph import NODES
from rubricem.agent.research.researcher import open_saver
from rubricem.agent.research.setup import Answers, Setup, open_researcher, reserve, settle
from rubricem.agent.serve.desk import Researchers
from rubricem.agent.serve.langgraph_server import ServedResearcher, graph
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of, with_default_source
from rubricem.agent.sources.choice import web_answers
from rubricem.agent.transcript.question import Ask, Budgets
from rubricem.memory.errors import SettingsError, SourceError, StoreError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import AnswerFormat, Passage
from tests.conftest import ROOT
from tests.support.policies import QUESTION, RUN, SUPPORTED, FixedSearch, answer, plan, researching
from tests.support.scripted_server import Fault, ScriptedServer
from tests.support.sites import JsonSite, Sent
from tests.support.waiting import PATIENCE, Process, free_port

SERVER = "http://127.0.0.1:9/v1"


def auto(tmp_path: Path, *source: str) -> Setup:
    flags: dict[str, Any] = {"base_url": SERVER, "data_dir": tmp_path, "source": source}
    return setup_of(load_settings(flags))


async def online() -> bool:
    return True


async def offline() -> bool:
    return False


async def never() -> bool:
    raise AssertionError("the web was probed")


async def test_sources_that_get_ready_late_hold_up_neither_their_budget_nor_other_researchers(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.md").write_text("Bees dance.")
    with JsonSite(Sent("", delay=60)) as slow:
        flags: dict[str, Any] = {"base_url": SERVER, "model": "m", "data_dir": tmp_path}
        late, soon = (
            setup_of(load_settings({**flags, "source": (name,)}))
            for name in (f"searxng:{slow.url}", str(tmp_path))
        )
        researchers = Researchers(late.model)
        bounded = replace(late, budgets=Budgets(seconds=0.3))
        with pytest.raises(SourceError, match=r"not read within the run's 0\.3 s"):
            async with researchers.of(bounded):
                pass
        waiting = asyncio.create_task(researchers.of(late).__aenter__())
        await asyncio.sleep(0)
        async with asyncio.timeout(20), researchers.of(soon):
            assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await researchers.aclose()


async def test_sources_that_are_read_whole_for_many_questions_have_the_budget_of_none(
    tmp_path: Path,
) -> None:
    with JsonSite(Sent({"results": []}, delay=2)) as slow:
        source = (f"searxng:{slow.url}",)
        flags: dict[str, Any] = {"base_url": SERVER, "model": "m", "data_dir": tmp_path}
        setup = setup_of(load_settings({**flags, "source": source}))
        setup = replace(setup.over_whole_sources(), budgets=Budgets(seconds=0.1))
        async with open_researcher(setup):
            assert slow.asked


@pytest.mark.parametrize(
    ("flags", "source"),
    [
        ({"base_url": SERVER}, ("auto",)),
        ({"model": "gpt-x", "api_key": "k"}, ("auto",)),
        ({}, ("python",)),
        ({"model": "0.5b"}, ("python",)),
        ({"base_url": SERVER, "source": ("python",)}, ("python",)),
    ],
)
def test_auto_is_the_default_where_a_server_answers(
    flags: dict[str, Any], source: tuple[str, ...]
) -> None:
    assert with_default_source(load_settings(flags)).source == source


@pytest.mark.parametrize(
    ("names", "answers", "taken", "said"),
    [
        (("auto",), online, ("web",), "source: the web, which answered in 0.0 s"),
        (
            ("auto",),
            offline,
            ("python",),
            "source: the Python libraries installed here, since the web did not answer in 0.0 s; "
            "name another with --source",
        ),
        (("papers", "auto", "web"), online, ("papers", "web"), "source: the web, which answered"),
    ],
    ids=["web", "libraries", "joins the others once"],
)
async def test_auto_takes_the_web_where_it_answers_else_the_libraries_and_says_so(
    names: tuple[str, ...], answers: Answers, taken: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    told: list[str] = []
    setup = await settle(auto(tmp_path, *names), None, told.append, answers)
    assert setup.sources.names == taken
    (line,) = told
    assert line.startswith(said)


async def test_nothing_is_probed_where_sources_are_named(tmp_path: Path) -> None:
    setup = auto(tmp_path, "python", "web")
    assert await settle(setup, None, answers=never) == setup


async def test_a_thread_goes_on_with_what_it_took_whatever_the_web_does_now(
    tmp_path: Path,
) -> None:
    first = await settle(auto(tmp_path, "auto"), "mine", answers=online)
    reserve(first, "mine", "How?")
    again = await settle(auto(tmp_path, "auto"), "mine", answers=never)
    assert again.sources.names == ("web",)
    with pytest.raises(SettingsError, match="cannot name a thread"):
        await settle(auto(tmp_path, "auto"), "a/b", answers=never)


async def test_one_address_that_answers_or_sends_elsewhere_is_enough() -> None:
    away = Sent(b"", 301, {"location": "https://elsewhere.example/"})
    with JsonSite(Sent({}, 503)) as bad, JsonSite(Sent(b"", 200)) as good:
        assert await web_answers([bad.url, good.url])
        assert not await web_answers([bad.url])
    assert not await web_answers([good.url])
    with JsonSite(away) as site:
        assert await web_answers([site.url])


async def test_silence_is_waited_for_no_longer_than_allowed() -> None:
    with JsonSite(Sent(b"", delay=60.0)) as site:
        began = time.monotonic()
        assert not await web_answers([site.url, site.url], seconds=0.1)
        assert time.monotonic() - began < 30


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
            graph = first.graph(saver)
            await graph.ainvoke({"question": QUESTION}, config, interrupt_after=["research"])
            stood = (await graph.aget_state(config)).values
            run = await first.at(stood["run"], stood["path"])
            run.journal.close()
        async with (
            open_saver(database) as saver,
            researching(server.base_url, tmp_path, source) as second,
        ):
            ended = await second.graph(saver).ainvoke(None, config)
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
                state = await researcher.graph(saver).aget_state(config)
        assert len(server.requests) == len(RUN)
    assert run.status == "finished"
    assert (state.values["path"][-1], state.next) == ("verify", ())
    assert QUESTION not in str(state.values), "the transcript is the journal's"


async def test_a_database_of_checkpoints_names_no_class_that_is_imported(database: str):
    page = Passage("A page", "a.md", "", "Its text.")
    written = JsonPlusSerializer().dumps_typed({"held": page})
    async with open_saver(database) as saver:
        assert saver.serde.loads_typed(written) == {"held": asdict(page)}


async def test_a_database_that_is_none_or_silent_is_one_sentence_without_its_password():
    address = f"postgresql://tester:secret@127.0.0.1:{free_port()}/postgres"
    with pytest.raises(StoreError, match="database of the checkpoints") as told:
        async with open_saver(address):
            pass
    assert "secret" not in str(told.value) + told.value.remedy
    with pytest.raises(SettingsError, match="names no PostgreSQL database"):
        async with open_saver("sqlite:///runs.db"):
            pass


SERVED = ("agent", "judge", "memory", "training", "langgraph.json", "pyproject.toml", "README.md")


def test_the_served_graph_has_the_seven_nodes():
    assert set(graph.get_graph().nodes) == {"__start__", *NODES, "__end__"}


async def test_settings_are_read_at_the_first_question(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RUBRICEM_SOURCE", "/nowhere")
    monkeypatch.setenv("RUBRICEM_BASE_URL", "http://127.0.0.1:9/v1")
    with pytest.raises(SettingsError, match="Unknown source"):
        await (await ServedResearcher().obtain()).begin("What?", AnswerFormat.LONG, {})


def test_the_served_graph_says_what_it_takes_gives_and_may_be_told():
    asked, told = graph.get_input_jsonschema(), graph.get_output_jsonschema()
    assert [*asked["properties"]] == ["question", "answer_format", "messages"]
    assert [*told["properties"]] == ["report", "status", "run", "messages"]
    assert "HumanMessage" in asked["$defs"]
    limits = graph.get_context_jsonschema()["properties"]
    assert limits["tool_calls"]["maximum"] == 1000 and "max_cost" in limits


@contextmanager
def served(folder: Path, **model: str) -> Iterator[httpx.Client]:
    """A `langgraph dev` in a copy of the project, with a folder of documents beside it."""
    for name in SERVED:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.exists():
            shutil.copy(path, folder / name)
    (folder / "documents").mkdir()
    (folder / "documents" / "cache.md").write_text(
        "# lru_cache\n\nIf maxsize is None, lru_cache is an unbounded cache that never evicts.\n"
    )
    port = free_port()
    environment = {
        **os.environ,
        "LANGSMITH_TRACING": "false",
        "LANGCHAIN_TRACING_V2": "false",
        "LANGGRAPH_CLI_NO_ANALYTICS": "1",
        "RUBRICEM_SOURCE": "documents",
        "RUBRICEM_DATA_DIR": str(folder / "data"),
        **model,
    }
    dev = ["-m", "langgraph_cli", "dev", "--no-browser", "--no-reload", "--host", "127.0.0.1"]
    command = [sys.executable, *dev, "--port", str(port)]
    with (folder / "log").open("w") as log:
        process = Process(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as http:
                ended(http, process, folder / "log")
                yield http
        finally:
            process.terminate()
            process.wait()


def ended(http: httpx.Client, process: Process, log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < until:
        try:
            if http.get("/ok").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(f"langgraph dev did not start:\n{log.read_text()[-3000:]}")


def waited(http: httpx.Client, thread: str, question: str) -> dict[str, Any]:
    """What a run in a thread of the server gives."""
    asked = {"question": question}
    body = {"assistant_id": "research", "input": asked, "context": {"tool_calls": 3}}
    reply = http.post(f"/threads/{thread}/runs/wait", json=body)
    reply.raise_for_status()
    state: dict[str, Any] = reply.json()
    return state


def talked(http: httpx.Client, thread: str, question: str) -> dict[str, Any]:
    """The last values that a chat page is streamed, which asks in messages of parts."""
    content = [{"type": "text", "text": question}]
    said = {"id": str(uuid4()), "type": "human", "content": content}
    body = {
        "assistant_id": "research", "input": {"messages": [said]}, "context": {"tool_calls": 3},
        "stream_mode": ["values"], "stream_subgraphs": True, "on_disconnect": "continue",
    }  # fmt: skip
    reply = http.post(f"/threads/{thread}/runs/stream", json=body)
    reply.raise_for_status()
    events = re.findall(r"^event: (\S+)\r?\ndata: (.*)$", reply.text, re.MULTILINE)
    assert {name for name, _ in events} == {"metadata", "values"}, events
    state: dict[str, Any] = json.loads(events[-1][1])
    return state


@pytest.mark.slow
def test_runs_complete_over_the_api_of_langgraph_dev(tmp_path: Path):
    turns = [*RUN, SUPPORTED, plan(), answer(), SUPPORTED, Fault(401), *RUN, SUPPORTED]
    turns += [*RUN, SUPPORTED, plan(), answer(), SUPPORTED]
    with (
        ScriptedServer(turns) as model,
        served(tmp_path, RUBRICEM_BASE_URL=model.base_url) as http,
    ):
        thread = http.post("/threads", json={}).json()["thread_id"]
        first = waited(http, thread, "What does lru_cache do with maxsize None?")
        second = waited(http, thread, "And what is evicted?")
        failed = waited(http, thread, "Will it fail?")
        third = waited(http, thread, "And after a failure?")
        kept = http.get(f"/threads/{thread}/state").json()["values"]
        chat = http.post("/threads", json={}).json()["thread_id"]
        talked(http, chat, "What does lru_cache do with maxsize None?")
        second_told = talked(http, chat, "And what is evicted?")
        [newest, *_] = http.post(f"/threads/{chat}/history", json={"limit": 10}).json()
    log = (tmp_path / "log").read_text()
    assert "BlockingError" not in log
    assert first["status"] == "finished", log[-3000:]
    assert kept["path"][-1] == "verify"
    assert "It is an unbounded cache [1]." in first["report"]
    assert "never evicts" in first["report"]
    assert second["run"] != first["run"] and "And what is evicted?" in second["report"]
    assert failed["__error__"]["error"] == "PolicyError", "the server keeps its words to the log"
    assert "requires an API key and none is set (401)" in log
    assert third["status"] == "finished" and kept["report"] == third["report"]
    store = RunStore(tmp_path / "data")
    assert [store.load(name).status for name in store.threads()] == [
        "finished", "finished", "failed", "finished", "finished", "finished",
    ]  # fmt: skip
    assert [said["type"] for said in second_told["messages"]] == ["human", "ai", "human", "ai"]
    assert "It is an unbounded cache" in second_told["messages"][1]["content"]
    assert newest["values"]["messages"] == second_told["messages"], "shown again"
    last = store.request(second_told["run"])["ask"]
    assert (last["earlier"], last["tool_calls"]) == ([store.threads()[-2]], 3)


@pytest.mark.slow
@pytest.mark.model
def test_the_embedded_model_never_holds_up_the_loop_of_langgraph_dev(
    tmp_path: Path, real_weights: Path
):
    # That refuses each call that blocks: one was `os.access` of the folder of the weights.
    with served(tmp_path, RUBRICEM_MODEL="0.5b") as http:
        thread = http.post("/threads", json={}).json()["thread_id"]
        told = talked(http, thread, "What does lru_cache do with maxsize None?")
    log = (tmp_path / "log").read_text()
    assert "Blocking call" not in log
    assert [said["type"] for said in told["messages"]] == ["human", "ai"], log[-3000:]
