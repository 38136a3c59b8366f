"""Named tokens: whose runs are whose, who sees them, and what a user may spend."""

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from rubricem.agent.serve.app import create_app
from rubricem.agent.serve.desk import RunDesk
from rubricem.agent.serve.security import Security
from rubricem.agent.settings import Settings
from rubricem.agent.settings.ledger import SpendingLedger
from rubricem.agent.settings.users import Granted, Outlay, UserBudget, Users
from rubricem.memory.errors import PolicyError, SettingsError
from rubricem.memory.schema import Usage
from tests.agent.serve.test_routes_mcp import client
from tests.conftest import refusal, rubricem
from tests.support.pages import PATIENCE, QUESTION, reply, run_settings, site
from tests.support.scripted_server import ScriptedServer
from tests.support.tool_servers import serving_http
from tests.support.waiting import wait_for

OWN = "t0ken-" * 6


class Asking:
    """A server with two users, and a client for each of its tokens."""

    def __init__(self, address: str, users: Users, tokens: dict[str, str]) -> None:
        self.users, self._address, self._tokens = users, address, tokens

    def ask(
        self, name: str, method: str, path: str, json: Any = None, headers: Any = ()
    ) -> httpx.Response:
        given = {
            "Authorization": f"Bearer {self._tokens[name]}",
            "X-Rubricem": "1",
            **dict(headers),
        }
        address = self._address + path
        return httpx.request(method, address, headers=given, json=json, timeout=PATIENCE)

    def grant(self, name: str, **budget: int) -> None:
        """Give a user another budget, and so another token."""
        self._tokens[name] = self.users.put(name, UserBudget.model_validate(budget))

    def spent(self, name: str) -> Outlay:
        return SpendingLedger(self.users.folder(name), UserBudget).spent()

    def judged(self, name: str, run: str) -> str:
        """Have a run judged; returns why it was not, or ""."""
        path = f"/api/runs/{run}/judge"
        assert self.ask(name, "POST", path).status_code == 202
        wait_for(lambda: self.ask(name, "GET", path).json()["state"] in ("done", "failed"))
        return str(self.ask(name, "GET", path).json()["error"])

    def runs(self, name: str) -> list[str]:
        found = self.ask(name, "GET", "/api/runs").json()["runs"]
        return [run["question"] for run in found]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Asking]:
    with ScriptedServer(reply) as model:
        sets = {"shared": (str(tmp_path / "documents"),), "own": (str(tmp_path / "data"),)}
        settings = run_settings(tmp_path, model, source=("@shared",), collections=sets)
        settings.data_dir.mkdir()
        users = Users(settings.data_dir)
        tokens = {"": OWN, "anna": users.put("anna", UserBudget())}
        tokens["ben"] = users.put("ben", UserBudget(day_runs=1))
        app = create_app(RunDesk(settings), Security(token=OWN, users=users))
        with serving_http(app) as address:
            yield Asking(address, users, tokens)


def asked(server: Asking, name: str, question: str) -> str:
    """The run of a question that was asked and has ended."""
    begun = server.ask(name, "POST", "/api/runs", json={"question": question})
    assert begun.status_code == 201, begun.text
    run = str(begun.json()["run"])
    assert "finished" in server.ask(name, "GET", f"/api/runs/{run}/events").text
    return run


def test_everybody_has_runs_of_their_own_and_the_owner_the_counts_of_all(server: Asking):
    annas = asked(server, "anna", f"Anna asks: {QUESTION}")
    asked(server, "", f"The owner asks: {QUESTION}")
    assert [len(server.runs(name)) for name in ("", "anna", "ben")] == [1, 1, 0]
    for method, path in (("GET", ""), ("GET", "/report"), ("GET", "/export/md"), ("DELETE", "")):
        assert server.ask("ben", method, f"/api/runs/{annas}{path}").status_code == 404
        assert server.ask("", method, f"/api/runs/{annas}{path}").status_code == 404
    assert [server.ask(n, "GET", "/metrics").status_code for n in ("", "anna")] == [200, 403]
    assert server.ask("anna", "GET", "/api/status").json()["user"] == "anna"
    assert (
        'rubricem_runs_ended_total{status="finished"} 2.0' in server.ask("", "GET", "/metrics").text
    )
    chat = {"model": "rubricem", "messages": [{"role": "user", "content": QUESTION}]}
    assert server.ask("anna", "POST", "/v1/chat/completions", json=chat).status_code == 200
    assert [len(server.runs(name)) for name in ("", "anna")] == [1, 2]


def test_a_user_asks_a_collection_only_of_those_that_the_server_was_started_with(server: Asking):
    named = {n: server.ask(n, "GET", "/api/status").json()["sources"] for n in ("", "anna")}
    assert {"@own", "@shared"} <= {*named[""]}
    assert "@shared" in named["anna"] and "@own" not in named["anna"]
    wanted = {"question": QUESTION, "source": ["@own"]}
    refused = server.ask("anna", "POST", "/api/runs", wanted)
    assert refused.status_code == 422 and "no source '@own'" in refused.json()["error"]
    asked(server, "anna", QUESTION)


async def test_users_are_shown_a_source_without_its_password_and_may_ask_it(tmp_path: Path):
    web = "searxng:http://ann:hunter2@127.0.0.1:9"
    with ScriptedServer(reply) as model:
        settings = run_settings(tmp_path, model, source=(str(tmp_path / "documents"), web))
        async with site(settings) as here:
            told = (await here.http.get("/api/status")).json()
            wanted = {"question": QUESTION, "source": [told["sources"][1]]}
            begun = await here.http.post("/api/runs", json=wanted)
    shown = [f"{tmp_path.name}/documents", "searxng:http://127.0.0.1:9"]  # "documents" says nothing
    assert told["source"] == told["sources"][:2] == shown
    assert begun.status_code == 201


def log_in(browser: httpx.Client, token: str) -> None:
    """As the page does."""
    reply = browser.post("/api/login", json={"token": token})
    browser.headers["X-Rubricem-Key"] = reply.json()["key"]


async def test_why_a_question_is_refused_names_no_folder_of_the_server_to_others(
    server: Asking, tmp_path: Path
):
    shutil.rmtree(tmp_path / "documents")
    for name in ("anna", ""):
        refused = server.ask(name, "POST", "/api/runs", {"question": QUESTION})
        assert refused.status_code == 422 and "There is no folder" in refused.text
        assert (str(tmp_path) in refused.text) is (name == "")
        chat = {"messages": [{"role": "user", "content": QUESTION}]}
        told = [server.ask(name, "POST", "/v1/chat/completions", chat).text]
        token = f"Bearer {server._tokens[name]}"
        async with client(server._address, Authorization=token) as tools:
            failed = await tools.call_tool("research", {"question": QUESTION})
        told.append(failed.model_dump_json())
        for text in told:
            assert "There is no folder 'FOLDER'" in text and str(tmp_path) not in text


def test_a_token_logs_in_as_its_user_and_one_taken_back_admits_nobody(server: Asking):
    with httpx.Client(base_url=server._address, headers={"X-Rubricem": "1"}) as browser:
        assert browser.get("/api/status").status_code == 401
        for name in ("anna", ""):
            log_in(browser, server._tokens[name])
            assert browser.get("/api/status").json()["user"] == name
        log_in(browser, server._tokens["anna"])
        server.users.drop("anna")
        assert browser.get("/api/status").status_code == 401
    assert server.ask("anna", "GET", "/api/runs").status_code == 401
    assert server.ask("ben", "GET", "/api/runs").status_code == 200


def test_one_who_gets_the_name_of_a_removed_user_sees_nothing_of_theirs(server: Asking):
    run = asked(server, "anna", QUESTION)
    folder = server.users.folder("anna")
    assert server.users.drop("anna") == folder and (folder / "runs" / run).is_dir()
    server.grant("anna")
    assert server.runs("anna") == []
    assert server.ask("anna", "GET", f"/api/runs/{run}/report").status_code == 404
    assert server.users.folder("anna").parent == folder.parent != server.users.folder("anna")
    server.grant("anna")  # another token for the same person
    asked(server, "anna", QUESTION)
    server.grant("anna")
    assert server.runs("anna") == [QUESTION]


def test_who_has_spent_a_day_is_told_so_also_at_a_resume(server: Asking):
    run = asked(server, "ben", QUESTION)
    refused = server.ask("ben", "POST", "/api/runs", json={"question": QUESTION})
    assert refused.status_code == 429 and "for a day" in refused.json()["error"]
    path = server.users.folder("ben") / "runs" / run / "trajectory.json"
    held = json.loads(path.read_text()) | {"status": "partial", "reason": "spent"}
    path.write_text(json.dumps(held))
    again = server.ask("ben", "POST", f"/api/runs/{run}/resume", json={"max_total_tokens": 0})
    assert again.status_code == 429


@pytest.mark.parametrize(
    ("allowance", "live", "left"),
    [
        (UserBudget(), [], (500, 0, 60)),
        (UserBudget(max_total_tokens=300, max_cost=2), [], (300, 2, 60)),
        (UserBudget(day_tokens=1500), [], (220, 0, 60)),
        (UserBudget(day_tokens=1500), [Granted(100, 0)], (120, 0, 60)),
        (UserBudget(day_cost=1, max_seconds=9), [Granted(0, 0.5)], (500, 0.4979, 9)),
        (UserBudget(day_tokens=1280), [], None),
        (UserBudget(day_cost=1), [Granted(0, 1)], None),
        (UserBudget(day_runs=1), [], None),
        (UserBudget(day_runs=2), [], (500, 0, 60)),
    ],
)
def test_a_question_gets_the_least_of_what_is_asked_allowed_and_left(
    tmp_path: Path, allowance: UserBudget, live: list[Granted], left: tuple[float, ...] | None
):
    """1,280 tokens and $0.0021 were spent today; the question wants 500 tokens and 60 s."""
    settings = Settings(data_dir=tmp_path, max_total_tokens=500, max_cost=0, max_seconds=60)
    spent = Outlay(1, 1280, 0.0021)
    if left is None:
        with pytest.raises(SettingsError, match="for a day"):
            allowance.within(settings, spent, live)
        return
    got = allowance.within(settings, spent, live)
    assert (got.max_total_tokens, got.max_cost, got.max_seconds) == pytest.approx(left)


async def test_what_is_deleted_was_paid_and_whatever_calls_a_model_is_counted(server: Asking):
    server.grant("anna", day_runs=2)
    run = asked(server, "anna", QUESTION)
    assert server.ask("anna", "DELETE", f"/api/runs/{run}").status_code == 204
    assert server.spent("anna").runs == 1 and server.spent("anna").tokens > 0
    kept = asked(server, "anna", QUESTION)
    for path in ("/api/runs", f"/api/runs/{kept}/judge", "/api/learning"):
        refused = server.ask("anna", "POST", path, {"question": QUESTION})
        assert refused.status_code == 429 and "for a day" in refused.json()["error"], path
    task = {"messages": [{"role": "user", "content": "### Task:\nName it."}]}
    refused = server.ask("anna", "POST", "/v1/chat/completions", task)
    assert refused.status_code == 429 and "for a day" in refused.json()["error"]["message"]
    bearer = {"Authorization": f"Bearer {server._tokens['anna']}"}
    async with client(server._address, **bearer) as tools:
        told = await tools.call_tool("research", {"question": QUESTION})
        assert told.is_error and "for a day" in str(told.content)
    server.grant("anna", day_runs=3)
    before = server.spent("anna")
    server.judged("anna", kept)
    assert server.spent("anna").runs == 3 and server.spent("anna").tokens > before.tokens
    assert server.ask("anna", "POST", f"/api/runs/{kept}/judge").status_code == 429
    assert server.ask("ben", "POST", "/api/runs", json={"question": QUESTION}).status_code == 201


def test_no_call_is_made_once_a_day_is_spent_whatever_it_is_for(server: Asking):
    kept = asked(server, "anna", QUESTION)
    entered = server.users.folder("anna") / "ledger.jsonl"
    before, calls = server.spent("anna").tokens, entered.read_text().count('"runs": 0')
    server.grant("anna", day_tokens=before + 1)
    assert "for a day" in server.judged("anna", kept)
    assert server.spent("anna").tokens > before + 1
    assert entered.read_text().count('"runs": 0') == calls + 1
    assert server.ask("anna", "POST", f"/api/runs/{kept}/judge").status_code == 429


async def test_a_ledger_reads_what_a_kill_left_and_is_not_refunded_by_a_clock_set_back(
    tmp_path: Path,
):
    ledger = SpendingLedger(tmp_path, UserBudget)
    ledger.pay(Usage(prompt_tokens=100, completion_tokens=20, cost=0.5, calls=1))
    later = datetime.now(UTC) + timedelta(days=1)
    past = datetime.now(UTC) - timedelta(days=1, seconds=1)
    with (tmp_path / "ledger.jsonl").open("a") as file:
        for at, tokens in ((later, 7), (past, 1000)):
            file.write(f'{{"at": "{at.isoformat()}", "runs": 0, "tokens": {tokens}, "cost": 0}}\n')
        file.write('{"at": "2026-')
    again = SpendingLedger(tmp_path, UserBudget)
    assert again.spent() == Outlay(0, 127, 0.5)
    again.begin()
    assert SpendingLedger(tmp_path, UserBudget).spent() == again.spent() == Outlay(1, 127, 0.5)
    assert (tmp_path / "ledger.jsonl").stat().st_mode & 0o077 == 0
    broke = SpendingLedger(tmp_path, lambda: UserBudget(day_cost=0.5))
    with pytest.raises(PolicyError, match="for a day"):
        async with broke.call(Usage()):
            raise AssertionError("a call was made")


@pytest.mark.parametrize("budget", [UserBudget(day_tokens=500), UserBudget(day_cost=5)])
async def test_calls_in_flight_together_overspend_a_day_by_one_call_at_most(
    tmp_path: Path, budget: UserBudget
):
    """Each uses 120 tokens and $1.20, of the 200 and $2 that are set aside for it."""
    ledger, live = SpendingLedger(tmp_path, lambda: budget), list[int]()
    most = Usage(prompt_tokens=100, completion_tokens=100, cost=2.0)

    async def call() -> None:
        async with ledger.call(most):
            live.append(live[-1] + 1 if live else 1)
            await asyncio.sleep(0.01)
            live.append(live[-1] - 1)
            ledger.pay(Usage(prompt_tokens=100, completion_tokens=20, cost=1.2, calls=1))

    done = await asyncio.gather(*(call() for _ in range(20)), return_exceptions=True)
    assert done.count(None) == 5 and max(live) == 3, (
        "they go together while that cannot be too much"
    )
    assert ledger.spent() == Outlay(0, 600, pytest.approx(6.0))
    assert {type(each) for each in done if each} == {PolicyError}


def test_a_token_is_shown_once_and_kept_by_its_hash(data: Path):
    token = rubricem("users", "add", "anna", "--day-cost", "2").stdout.split()[-1]
    held = (data / "users.json").read_text()
    assert token not in held and Users(data).by_token(token) == "anna"
    assert Users(data).by_token("") is None
    assert "day cost 2" in rubricem("users").stdout
    again = rubricem("users", "add", "anna", "--day-runs", "3").stdout
    assert "the one before no longer works" in again
    other = again.split()[-1]
    assert (Users(data).by_token(token), Users(data).by_token(other)) == (None, "anna")
    assert "day cost 2, day runs 3" in rubricem("users").stdout  # the limit of the first stays
    assert "cannot name" in refusal("users", "add", "../x")
    for none in ("0", "nan", "inf"):
        assert "--day-cost" in rubricem("users", "add", "ben", "--day-cost", none, code=2).stderr
    rubricem("users", "rm", "anna")
    assert "no user" in refusal("users", "rm", "anna")


@pytest.mark.parametrize(("people", "each"), [(4, 3), pytest.param(20, 10, marks=pytest.mark.slow)])
def test_a_hostile_user_holds_up_neither_the_owner_nor_others(
    tmp_path: Path, people: int, each: int
):
    """Its runs never end, and take every place that it gets; one of the others has 2,000 tokens."""
    with ScriptedServer(reply) as model:
        settings = run_settings(tmp_path, model, concurrency=4)
        settings.data_dir.mkdir()
        users = Users(settings.data_dir)
        tokens = {f"p{n}": users.put(f"p{n}", UserBudget()) for n in range(people)} | {"": OWN}
        tokens["p1"] = users.put("p1", UserBudget(day_tokens=2000))
        app = create_app(RunDesk(settings), Security(token=OWN, users=users))
        with serving_http(app) as address:
            server = Asking(address, users, tokens)

            def begun(name: str, question: str) -> str:
                reply = server.ask(name, "POST", "/api/runs", json={"question": question})
                assert reply.status_code in (201, 429 if name == "p1" else 201), reply.text
                return str(reply.json().get("run", ""))

            def seconds(numbers: range) -> float:
                began = time.monotonic()
                for number in numbers:
                    asked(server, "", f"{QUESTION} {number}")
                return time.monotonic() - began

            asked(server, "", "What is it?")
            alone = seconds(range(4))
            hostile = [begun("p0", f"Does {n} go on forever?") for n in range(each)]
            beside = seconds(range(4, 8))
            names = [f"p{n}" for n in range(1, people)]
            runs = [(name, begun(name, f"What of {n}?")) for n in range(each) for name in names]
            for name, run in runs:
                ended = run and server.ask(name, "GET", f"/api/runs/{run}/events").text
                assert name == "p1" or "finished" in ended
            spent = server.spent("p1").tokens
            for run in hostile:
                server.ask("p0", "POST", f"/api/runs/{run}/stop")
    assert spent <= 2000 + 400, "one call"
    assert beside <= 1.5 * alone, (beside, alone)
