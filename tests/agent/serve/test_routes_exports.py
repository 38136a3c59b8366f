"""Reports exported over HTTP: each form whole, nothing of the machine in them."""

import io
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pypdf
import pytest
from pydantic import SecretStr

from rubricem.agent.serve.routes_exports import file_name, router
from rubricem.agent.settings import Settings
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Segment, Source, Stage, Trajectory
from tests.support.pages import served
from tests.support.values import WHOLE, run_of

KEY = "sk-not-to-be-seen-0123"
NASTY = (
    '</style><script>alert(1)</script><img src="file:///etc/passwd">@import "http://127.0.0.1:9/x"'
)
KINDS = {"md": "text/markdown", "html": "text/html", "pdf": "application/pdf"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", api_key=SecretStr(KEY))


@pytest.fixture
def store(settings: Settings) -> RunStore:
    return RunStore(settings.data_dir)


@pytest.fixture
async def client(settings: Settings, store: RunStore) -> AsyncIterator[httpx.AsyncClient]:
    keep(store, run_of(name="a"))
    async with served(router(settings)) as client:
        yield client


def keep(store: RunStore, trajectory: Trajectory) -> None:
    store.create(trajectory.thread, {"ask": {"question": trajectory.question}, "choices": {}})
    store.save(trajectory)


def leaky(data_dir: Path) -> Trajectory:
    """A run that names this machine's folders and a key wherever it has words."""
    path = f"{data_dir}/uploads/x and {Path.home()}/y {KEY}"
    source = Source(id="S1", title=path, location=path, text=path, tool="search", query=path)
    answer = f'<answer>It is <cite id="S1">in {path}</cite>.</answer>'
    run = run_of({**WHOLE, Stage.ANSWER: answer}, "leaky", sources=(source,), reason=path)
    segments: tuple[Segment, ...] = run.segments
    return run.model_copy(update={"policy": path, "question": path, "segments": segments})


@pytest.mark.parametrize("kind", KINDS)
async def test_a_report_is_a_file_of_its_kind(client: httpx.AsyncClient, kind: str):
    reply = await client.get(f"/api/runs/a/export/{kind}")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith(KINDS[kind])
    assert reply.headers["content-disposition"] == f'attachment; filename="rubricem-a.{kind}"'
    text = pdf_text(reply.content) if kind == "pdf" else reply.text
    assert "The least recently used entry goes first." in text


async def test_json_is_the_whole_run_and_can_be_read_back(
    client: httpx.AsyncClient, store: RunStore
):
    reply = await client.get("/api/runs/a/export/json")
    assert Trajectory.model_validate_json(reply.content) == store.load("a")


@pytest.mark.parametrize("kind", [*KINDS, "json"])
async def test_no_folder_and_no_key_of_this_machine_is_in_an_export(
    client: httpx.AsyncClient, settings: Settings, store: RunStore, kind: str
):
    keep(store, leaky(settings.data_dir))
    reply = await client.get(f"/api/runs/leaky/export/{kind}")
    text = pdf_text(reply.content) if kind == "pdf" else reply.text
    whole = re.sub(r"\s+", "", text.replace("\\", ""))
    assert "uploads/x" in whole
    for hidden in (str(settings.data_dir), str(Path.home()), KEY):
        assert hidden not in whole and hidden.encode() not in reply.content


@pytest.mark.parametrize("kind", ["html", "pdf"])
async def test_what_models_and_pages_wrote_stays_text(
    client: httpx.AsyncClient, store: RunStore, kind: str
):
    answer = f"<answer>It goes first. {NASTY}</answer>"
    nasty = run_of({**WHOLE, Stage.ANSWER: answer}, "nasty")
    keep(store, nasty.model_copy(update={"question": NASTY}))
    reply = await client.get(f"/api/runs/nasty/export/{kind}")
    assert reply.status_code == 200
    if kind == "html":
        assert "<script" not in reply.text and "<img" not in reply.text
        assert "&lt;script&gt;" in reply.text
    else:
        assert "alert(1)" in pdf_text(reply.content)
        assert b"/EmbeddedFile" not in reply.content and b"/JavaScript" not in reply.content


@pytest.mark.parametrize("path", ["none/export/md", "%2e%2e/export/md", "a%2fb/export/md"])
async def test_an_unknown_run_is_a_404(client: httpx.AsyncClient, path: str):
    assert (await client.get(f"/api/runs/{path}")).status_code == 404


async def test_an_unknown_form_is_refused(client: httpx.AsyncClient):
    assert (await client.get("/api/runs/a/export/exe")).status_code == 422


async def test_a_run_that_goes_on_has_no_report_yet(client: httpx.AsyncClient, store: RunStore):
    store.create("young", {"ask": {"question": "?"}, "choices": {}})
    assert (await client.get("/api/runs/young/export/md")).status_code == 409


@pytest.mark.parametrize("run", ['a".exe', "a\r\nSet-Cookie: x=1", "日本", "../x", "a;b", ""])
def test_a_file_name_is_plain_whatever_the_run_is_called(run: str):
    assert re.fullmatch(r"rubricem-[A-Za-z0-9_-]+\.pdf", file_name(run, "pdf"))


def pdf_text(content: bytes) -> str:
    text = "\n".join(page.extract_text() for page in pypdf.PdfReader(io.BytesIO(content)).pages)
    return json.loads(json.dumps(text))
