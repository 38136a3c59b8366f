"""A run's judgement and rating over HTTP, and judging that goes on in the background."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from rubricem.agent.serve.refusals import RequestRefused
from rubricem.agent.serve.routes_judge import MOST, JudgingJobs, router
from rubricem.agent.settings import Settings
from rubricem.agent.settings.door import setup_of
from rubricem.judge.composed import InnerJudge
from rubricem.judge.stage import StageJudge
from rubricem.memory.bank import RubricBank
from rubricem.memory.errors import JudgeError
from rubricem.memory.runs import RunStore, ratings_in
from rubricem.memory.schema import Criterion, Stage, Trajectory
from tests.support.pages import served
from tests.support.values import ScriptedProposer, ScriptedScorer, item, run_of

CRITERIA = {stage: (item(f"does {stage.value}", weight=3),) for stage in Stage}
CRITERIA[Stage.ANSWER] = (item("guesses", positive=False), item("names the rule", kept=True))


class Judging:
    """A stage judge whose opening waits until it is let go on."""

    def __init__(self) -> None:
        self.points: float | None = 2.0
        self.go = asyncio.Event()
        self.go.set()
        self.opened = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[InnerJudge]:
        self.opened += 1
        await self.go.wait()
        yield StageJudge(ScriptedProposer(CRITERIA), ScriptedScorer(self._given))

    def _given(self, run: Trajectory, stage: Stage, criterion: Criterion) -> float | None:
        return 1.0 if not criterion.positive else self.points


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    store = RunStore(tmp_path)
    for name in ("a", "b"):
        store.create(name, {"ask": {"question": "How does lru_cache evict?"}, "choices": {}})
        store.save(run_of(name=name))
    store.create("young", {"ask": {"question": "?"}, "choices": {}})
    return store


@pytest.fixture
def judging() -> Judging:
    return Judging()


@pytest.fixture
async def client(
    store: RunStore, judging: Judging, tmp_path: Path
) -> AsyncIterator[httpx.AsyncClient]:
    setup = setup_of(Settings(data_dir=tmp_path))
    async with served(router(setup, RubricBank(tmp_path), open_judge=judging.open)) as client:
        yield client


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
    assert (plan["score"], plan["criteria"][0]["text"]) == (1.0, "does plan")
    held, flaw = sorted(answer["criteria"], key=lambda criterion: -criterion["points"])
    assert (flaw["points"], flaw["positive"], flaw["weight"], flaw["why"]) == (1, False, 2, "seen")
    assert (held["points"], held["positive"], held["persistent"]) == (2, True, True)
    # Weights 2 and 2: the flaw holds in part, which leaves a half, and the other in full.
    assert answer["score"] == pytest.approx(0.75)
    assert (found["judge"], found["note"], found["ratings"]) == (
        "scripted judge", "", []
    )  # fmt: skip
    assert (store.folder / "a" / "judgement.json").exists()


async def test_asking_twice_while_it_is_judged_judges_once(
    client: httpx.AsyncClient, judging: Judging
):
    judging.go.clear()
    for _ in range(3):
        await client.post("/api/runs/a/judge")
    await comes_to(client, "a", "running")
    judging.go.set()
    await comes_to(client, "a", "done")
    assert judging.opened == 1
    await judged(client)
    assert judging.opened == 2


async def test_one_run_is_judged_after_another(client: httpx.AsyncClient, judging: Judging):
    judging.go.clear()
    for run in ("a", "b"):
        await client.post(f"/api/runs/{run}/judge")
    await comes_to(client, "a", "running")
    states = [(await client.get(f"/api/runs/{run}/judge")).json()["state"] for run in ("a", "b")]
    assert (states, judging.opened) == (["running", "waiting"], 1)


async def test_a_judge_that_failed_leaves_no_score_and_says_why(
    client: httpx.AsyncClient, judging: Judging
):
    judging.points = None
    state = await judged(client)
    assert state["state"] == "failed" and "the server is down" in state["error"]
    assert (await client.get("/api/runs/a/judgement")).status_code == 404
    judging.points = 2.0
    assert (await judged(client))["state"] == "done"


async def test_an_unscored_stage_has_its_reason_and_no_number(
    client: httpx.AsyncClient, store: RunStore
):
    await judged(client)
    path = store.folder / "a" / "judgement.json"
    kept = path.read_text().replace('"score": 1.0', '"score": null, "unscored_reason": "too long"')
    path.write_text(kept.replace(' "unscored_reason": ""', ' "missing": false'))
    plan = (await client.get("/api/runs/a/judgement")).json()["stages"][0]
    assert (plan["score"], plan["reason"]) == (None, "too long")


async def test_a_run_that_went_on_since_says_so(client: httpx.AsyncClient, store: RunStore):
    await judged(client)
    store.save(run_of(name="a").model_copy(update={"id": "later"}))
    found = (await client.get("/api/runs/a/judgement")).json()
    assert found["note"] == "The run has gone on since it was judged."


async def test_a_damaged_judgement_is_told(client: httpx.AsyncClient, store: RunStore):
    (store.folder / "a" / "judgement.json").write_text("{")
    reply = await client.get("/api/runs/a/judgement")
    assert reply.status_code == 500 and reply.json()["remedy"] == "Have the run judged anew."


@pytest.mark.parametrize("run", ["none", "%2e%2e", "x" * 80, ".hidden"])
async def test_an_unknown_run_is_a_404(client: httpx.AsyncClient, run: str):
    for path in ("judgement", "judge"):
        assert (await client.get(f"/api/runs/{run}/{path}")).status_code == 404
    assert (await client.post(f"/api/runs/{run}/judge")).status_code == 404
    rated = await client.post(f"/api/runs/{run}/rate", json={"rating": 5})
    assert rated.status_code == 404


async def test_a_run_that_goes_on_is_neither_judged_nor_rated(client: httpx.AsyncClient):
    assert (await client.post("/api/runs/young/judge")).status_code == 409
    rated = await client.post("/api/runs/young/rate", json={"rating": 5})
    assert rated.status_code == 409 and "not ended" in rated.json()["error"]


async def test_a_rating_is_kept_and_shown(client: httpx.AsyncClient, store: RunStore):
    given = await client.post("/api/runs/a/rate", json={"rating": 4, "note": "good \u202e"})
    assert given.status_code == 200 and "does not wait" in given.json()["said"]
    [kept] = ratings_in(store.folder / "a")
    assert (kept.score, kept.comment) == (4, "good \u202e")
    await judged(client)
    shown = (await client.get("/api/runs/a/judgement")).json()["ratings"]
    assert [(rating["score"], rating["comment"]) for rating in shown] == [(4, "good \u202e")]


@pytest.mark.parametrize(
    "body",
    [{}, {"rating": 0}, {"rating": 6}, {"rating": "5"}, {"rating": True}, {"rating": 4.5},
     {"rating": 3, "note": "x" * 2001}, {"rating": 3, "more": 1}],
)  # fmt: skip
async def test_a_rating_that_is_none_is_refused(
    client: httpx.AsyncClient, store: RunStore, body: dict[str, Any]
):
    assert (await client.post("/api/runs/a/rate", json=body)).status_code == 422
    assert ratings_in(store.folder / "a") == ()


async def test_too_many_judgings_are_refused_and_closing_ends_them():
    begun: list[str] = []

    async def never(run: str) -> None:
        begun.append(run)
        await asyncio.Event().wait()

    jobs = JudgingJobs(never)
    for number in range(MOST):
        jobs.start(f"r{number}")
    with pytest.raises(RequestRefused, match="wait to be judged") as caught:
        jobs.start("one more")
    assert caught.value.status == 429
    assert jobs.start("r0") is jobs.of("r0")
    await asyncio.sleep(0)
    await jobs.aclose()
    assert begun == ["r0"]


async def test_a_fault_in_judging_is_told_as_one():
    async def broken(run: str) -> None:
        raise JudgeError("it gave nothing", "Ask again.") if run == "a" else KeyError("x")

    jobs = JudgingJobs(broken)
    for run in ("a", "b"):
        jobs.start(run)
    while jobs.of("b").as_json()["state"] != "failed":
        await asyncio.sleep(0)
    assert jobs.of("a").as_json() == {
        "state": "failed", "error": "it gave nothing", "remedy": "Ask again."
    }  # fmt: skip
    assert "rubricem itself failed: KeyError" in jobs.of("b").error
