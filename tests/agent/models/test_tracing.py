"""Spans of runs: their attributes, what is never in them, and what turns them on."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from rubricem import research
from rubricem.agent.models.tracing import EXPORTERS, trace_run
from rubricem.memory.errors import RubricemError
from rubricem.memory.schema import Trajectory
from tests.conftest import COMMAND, ENVIRONMENT, ROOT
from tests.support.policies import RUN, SUPPORTED
from tests.support.scripted_server import (
    Answering,
    Fault,
    LoopbackServer,
    Scripted,
    ScriptedServer,
)
from tests.support.sites import JsonSite, Sent

QUESTION = "What does lru_cache do with maxsize None?"


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    """A provider can be set once in a process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    exporter.clear()
    yield exporter
    exporter.clear()


@pytest.fixture(autouse=True)
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (*EXPORTERS, "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "cache.md").write_text("# lru_cache\n\nIf None, an unbounded cache.\n")
    return folder


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")


async def asked(documents: Path, *script: Scripted, **options: Any) -> None:
    with ScriptedServer(script) as server:
        await research(QUESTION, source=str(documents), base_url=server.base_url, **options)


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


async def test_a_run_is_a_span_below_whoever_asks_with_the_conventions_attributes_and_no_text(
    spans: InMemorySpanExporter, documents: Path, on: None
) -> None:
    with trace.get_tracer("app").start_as_current_span("request") as request:
        await asked(documents, *RUN, SUPPORTED, thread="mine")
    [run] = named(spans, "invoke_agent rubricem")
    assert run.parent is not None and run.status.status_code is StatusCode.UNSET
    assert run.parent.span_id == request.get_span_context().span_id
    whole = dict(run.attributes or {})
    assert str(whole["server.address"]).startswith("127.0.0.1")
    assert whole["gen_ai.request.model"] == "scripted"
    assert whole["gen_ai.conversation.id"] == "mine"
    assert whole["gen_ai.usage.input_tokens"] == 400
    assert (whole["rubricem.status"], whole["rubricem.tool_calls"]) == ("finished", 2)
    for text in (QUESTION, "unbounded", "structured_plan", "lru_cache"):
        assert text not in everything(spans)


def everything(spans: InMemorySpanExporter) -> str:
    return "".join(span.to_json() for span in spans.get_finished_spans())


async def test_a_run_that_fails_says_so_without_the_servers_words(
    spans: InMemorySpanExporter, documents: Path, on: None
) -> None:
    with pytest.raises(RubricemError, match="secret words"):
        await asked(documents, Fault(400, "secret words"))
    [run] = named(spans, "invoke_agent rubricem")
    assert (run.attributes or {})["error.type"] == "failure"
    assert run.status.status_code is StatusCode.ERROR
    assert "secret words" not in everything(spans)


@pytest.mark.parametrize(
    ("variables", "traced"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
async def test_the_standard_variables_turn_it_on(
    variables: dict[str, str],
    traced: bool,
    spans: InMemorySpanExporter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    async def answer() -> Trajectory:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await trace_run(answer, "small")
    failed = [span.attributes for span in spans.get_finished_spans()]
    assert bool(failed) is traced
    assert all((each or {})["error.type"] == "ZeroDivisionError" for each in failed)


def test_langsmith_is_told_nothing_though_its_variables_are_set(documents: Path) -> None:
    program = (
        "import asyncio, sys\nfrom rubricem import research_sync\n"
        "from rubricem.agent.sources.choice import Retrieved\n"
        "from tests.agent.models.test_langchain import ASKED, SAMPLING, Notes, over\n"
        "asyncio.run(Retrieved(Notes(), 'n').search('q', 1))\n"
        "asyncio.run(over([{'content': 'Yes'}]).chat(ASKED, SAMPLING))\n"
        "research_sync('What is it?', source=sys.argv[1], base_url=sys.argv[2])\n"
    )
    with JsonSite(Sent({})) as smith, ScriptedServer([*RUN, SUPPORTED]) as server:
        told = {"LANGSMITH_TRACING": "true", "LANGSMITH_ENDPOINT": smith.url}
        told["RUBRICEM_DATA_DIR"] = str(documents.parent / "data")
        done = subprocess.run(
            [sys.executable, "-c", program, str(documents), server.base_url],
            env={**ENVIRONMENT, **told, "LANGSMITH_API_KEY": "k", "PYTHONPATH": str(ROOT)},
            cwd=documents.parent, capture_output=True, text=True,
        )  # fmt: skip
    assert (done.returncode, smith.asked) == (0, []), done.stderr


def test_spans_are_sent_by_otlp_where_the_standard_variable_points(documents: Path) -> None:
    received: list[tuple[str, bytes]] = []

    class Collecting(Answering):
        def do_POST(self) -> None:
            received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send(200, b"")

    with LoopbackServer(Collecting) as collector, ScriptedServer([*RUN, SUPPORTED]) as server:
        chosen = {
            "RUBRICEM_BASE_URL": server.base_url,
            "RUBRICEM_DATA_DIR": str(documents.parent),
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.root,
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        }
        kept = {k: v for k, v in ENVIRONMENT.items() if not k.startswith(("RUBRICEM_", "OTEL_"))}
        command = [*COMMAND, "ask", QUESTION, "--source", str(documents), "--json"]
        done = subprocess.run(command, cwd=ROOT, env=kept | chosen, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["status"] == "finished"
    assert {path for path, _ in received} == {"/v1/traces"}
    sent = b"".join(body for _, body in received)
    assert b"invoke_agent rubricem" in sent and b"unbounded" not in sent
