"""What is done with runs that have ended: exported whole and clean, judged behind, and rated."""

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pypdf
import pytest
from pydantic import SecretStr

from rubricem.agent.learning.scoring import find_run
from rubricem.agent.serve.desk import MOST_JUDGING, JudgingJobs, RunDesk, desk_of
from rubricem.agent.serve.requests import RequestRefused, for_others
from rubricem.agent.serve.routes_ended import routes
from rubricem.agent.settings import Settings
from rubricem.agent.settings.door import stores_of
from rubricem.agent.sources.tool_server import ToolServer
from rubricem.judge.stage import StageJudge
from rubricem.memory.runs import RunStore, ratings_in
from rubricem.memory.schema import Criterion, GroupJudge, Source, Stage, Trajectory
from tests.agent.mcp.test_server import PASSWORD, SECRETS, SERVERS
from tests.support.pages import served
from tests.support.values import WHOLE, ScriptedProposer, ScriptedScorer, item, run_of

CRITERIA = {stage: (item(f"does {stage.value}", weight=3),) for stage in Stage}
CRITERIA[Stage.ANSWER] = (item("guesses", positive=False), item("names the rule", kept=True))
KEYS = {
    name: f"{name}-0123456789"
    for name, field in Settings.model_fields.items()
    if "SecretStr" in str(field.annotation)
}
HIDDEN = " ".join([*SECRETS, *KEYS.values()])
KINDS = {
    "md": "text/markdown",
    "html": "text/html",
    "pdf": "application/pdf",
    "json": "application/json",
}


class Judging:
    """A stage judge whose opening waits until it is let go on."""

    def __init__(self) -> None:
        self.points: float | None = 2.0
        self.go = asyncio.Event()
        self.go.set()
        self.opened = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[GroupJudge]:
        self.opened += 1
        await self.go.wait()
        yield StageJudge(ScriptedProposer(CRITERIA), ScriptedScorer(self._given))

    def _given(self, run: Trajectory, stage: Stage, criterion: Criterion) -> float | None:
        return 1.0 if not criterion.positive else self.points


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    servers = {name: ToolServer(**server) for name, server in SERVERS.items()}
    keys: dict[str, Any] = {name: SecretStr(key) for name, key in KEYS.items()}
    address = f"http://me:{PASSWORD}@127.0.0.1:1"
    return Settings(data_dir=tmp_path / "data", mcp_servers=servers, base_url=address, **keys)


@pytest.fixture
def store(settings: Settings) -> RunStore:
    store = RunStore(settings.data_dir)
    for name in ("a", "b"):
        keep(store, run_of(name=name))
    store.create("young", {"ask": {"question": "?"}, "choices": {}})
    return store


@pytest.fixture
def judging() -> Judging:
    return Judging()


@pytest.fixture
async def client(
    settings: Settings, store: RunStore, judging: Judging
) -> AsyncIterator[httpx.AsyncClient]:
    async def judge(run: str) -> None:
        found = find_run(str(store.folder / run), settings.data_dir)
        async with judging.open() as opened:
            await found.score(opened, stores_of(settings), None)

    desk = RunDesk(settings)
    desk.judging = JudgingJobs(judge)
    async with served(routes, {desk_of: desk}) as client:
        yield client


def keep(store: RunStore, trajectory: Trajectory) -> None:
    store.create(trajectory.thread, {"ask": {"question": trajectory.question}, "choices": {}})
    store.save(trajectory)


def text_of(reply: httpx.Response, kind: str) -> str:
    if kind != "pdf":
        return reply.text
    return "\n".join(
        page.extract_text() for page in pypdf.PdfReader(io.BytesIO(reply.content)).pages
    )


@pytest.mark.parametrize("kind", KINDS)
async def test_a_report_is_a_file_of_its_kind(
    client: httpx.AsyncClient, store: RunStore, kind: str
):
    reply = await client.get(f"/api/runs/a/export/{kind}")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith(KINDS[kind])
    assert reply.headers["content-disposition"] == f'attachment; filename="rubricem-a.{kind}"'
    assert "The least recently used entry goes first." in text_of(reply, kind)
    if kind == "json":
        assert Trajectory.model_validate_json(reply.content) == store.load("a")


@pytest.mark.parametrize("kind", KINDS)
async def test_no_folder_and_no_key_of_this_machine_is_in_an_export(
    client: httpx.AsyncClient, settings: Settings, store: RunStore, kind: str
):
    assert {"api_key", "tavily_key"} <= set(KEYS)
    told = f"{settings.data_dir}/uploads/x and {Path.home()}/y {HIDDEN} but Bearer stays"
    source = Source(id="S1", title=told, location=told, text=told, tool=told, query=told)
    answer = f'<answer>It is <cite id="S1">in {told}</cite>.</answer>'
    run = run_of({**WHOLE, Stage.ANSWER: answer}, "leaky", sources=(source,), reason=told)
    keep(store, run.model_copy(update={"policy": told, "question": told}))
    reply = await client.get(f"/api/runs/leaky/export/{kind}")
    whole = re.sub(r"\s+", "", text_of(reply, kind).replace("\\", ""))
    assert "uploads/x" in whole and "Bearerstays" in whole
    for hidden in (str(settings.data_dir), str(Path.home()), *HIDDEN.split()):
        assert hidden not in whole and hidden.encode() not in reply.content


LINES = json.dumps("in\n/srv/x")


def test_short_folders_are_cut_where_they_are_whole_and_what_looks_like_one_stays(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Path, "home", lambda: Path("/anna"))
    cited = tmp_path / "Acme" / "plan.md"
    cited.parent.mkdir()
    (tmp_path / "Named").mkdir()
    named = {"data_dir": Path("/srv"), "source": (str(tmp_path / "Named"),)}
    short = settings.model_copy(update=named)
    source = Source(id="S1", title="x", location=str(cited), text="", tool="folder", query="")
    said = (
        "/srv/x, file:///srv, (/anna/y): see https://a.test/srv/x, ./srv, /srv.d/x, /srvs, "
        f"/annabel, {cited.parent}, {cited} and {tmp_path}/Named/b.md; {LINES}"
    )
    told = for_others(run_of(sources=(source,)).model_copy(update={"question": said}), short)
    assert told.question == (
        "DATA/x, file://DATA, (~/y): see https://a.test/srv/x, ./srv, /srv.d/x, /srvs, "
        '/annabel, FOLDER, FOLDER/plan.md and FOLDER/b.md; "in\\nDATA/x"'
    )
    assert told.sources[0].location == "FOLDER/plan.md"


PATHS = ("judgement", "judge", "export/md")


async def test_a_run_that_goes_on_is_neither_exported_judged_nor_rated(client: httpx.AsyncClient):
    for path in PATHS:
        assert (await client.get(f"/api/runs/young/{path}")).status_code == 409
    assert (await client.post("/api/runs/young/judge")).status_code == 409
    rated = await client.post("/api/runs/young/rate", json={"rating": 5})
    assert rated.status_code == 409 and "not ended" in rated.json()["error"]


async def judged(client: httpx.AsyncClient, run: str = "a") -> dict[str, Any]:
    """The last state of judging a run."""
    begun = await client.post(f"/api/runs/{run}/judge")
    assert begun.status_code == 202
    while True:
        state: dict[str, Any] = (await client.get(f"/api/runs/{run}/judge")).json()
        if state["state"] not in ("waiting", "running"):
            return state
        await asyncio.sleep(0.01)


async def comes_to(client: httpx.AsyncClient, run: str, state: str) -> None:
    while (await client.get(f"/api/runs/{run}/judge")).json()["state"] != state:
        await asyncio.sleep(0.01)


async def test_a_run_is_judged_in_the_background_and_its_scores_are_shown(
    client: httpx.AsyncClient, judging: Judging, store: RunStore
):
    assert (await client.get("/api/runs/a/judgement")).status_code == 404
    assert (await client.get("/api/runs/a/judge")).json()["state"] == "none"
    judging.go.clear()
    assert (await client.post("/api/runs/a/judge")).json()["state"] == "waiting"
    await comes_to(client, "a", "running")
    judging.go.set()
    assert await judged(client) == {"state": "done", "error": "", "remedy": ""}
    found = (await client.get("/api/runs/a/judgement")).json()
    assert [stage["stage"] for stage in found["stages"]] == [stage.value for stage in Stage]
    plan, answer = found["stages"][0], found["stages"][3]
    assert plan["score"] == 1 and plan["verdicts"][0]["criterion"]["description"] == "does plan"
    held, flaw = sorted(answer["verdicts"], key=lambda verdict: -verdict["points"])
    assert (flaw["points"], flaw["justification"], held["points"]) == (1, "seen", 2)
    assert held["criterion"]["positive"] and not flaw["criterion"]["positive"]
    # Weights 2 and 2: the flaw holds in part, which leaves a half, and the other in full.
    assert answer["score"] == pytest.approx(0.75)
    assert (found["judge"], found["note"], found["ratings"]) == (
        "scripted judge", "", []
    )  # fmt: skip
    assert (store.folder / "a" / "judgement.json").exists()


async def test_a_judge_that_failed_leaves_no_score_and_says_why(
    client: httpx.AsyncClient, judging: Judging
):
    judging.points = None
    state = await judged(client)
    assert state["state"] == "failed" and "the server is down" in state["error"]
    assert (await client.get("/api/runs/a/judgement")).status_code == 404
    judging.points = 2.0
    assert (await judged(client))["state"] == "done"


async def test_a_rating_is_kept_and_shown(client: httpx.AsyncClient, store: RunStore):
    given = await client.post("/api/runs/a/rate", json={"rating": 4, "note": "good \u202e"})
    assert given.status_code == 200 and "does not wait" in given.json()["said"]
    [kept] = ratings_in(store.folder / "a")
    assert (kept.score, kept.comment) == (4, "good \u202e")
    await judged(client)
    shown = (await client.get("/api/runs/a/judgement")).json()["ratings"]
    assert [(rating["score"], rating["comment"]) for rating in shown] == [(4, "good \u202e")]


async def test_too_many_judgings_are_refused_and_closing_ends_them():
    begun: list[str] = []

    async def never(run: str) -> None:
        begun.append(run)
        await asyncio.Event().wait()

    jobs = JudgingJobs(never)
    for number in range(MOST_JUDGING):
        jobs.start(f"r{number}")
    with pytest.raises(RequestRefused, match="wait to be judged") as caught:
        jobs.start("one more")
    assert caught.value.status == 429
    assert jobs.start("r0") == jobs.state("r0") == {"state": "waiting", "error": "", "remedy": ""}
    await asyncio.sleep(0)
    await jobs.aclose()
    assert begun == ["r0"]
