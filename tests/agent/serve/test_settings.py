"""Settings that the page sets: tried first, kept beside the user's own file, in force at once."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rubricem.agent.serve import routes_settings
from rubricem.agent.serve.app import create_app
from rubricem.agent.serve.desk import RunDesk
from rubricem.agent.serve.security import Security
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.users import UserBudget, Users
from tests.support.pages import PATIENCE, QUESTION, reply
from tests.support.scripted_server import Fault, ScriptedServer
from tests.support.tool_servers import serving_http

TOKEN, KEY = "t0ken-" * 6, "sk-secret-of-mine"


class Owner:
    """A server as it starts with nothing set, and a client that has its token."""

    def __init__(self, url: str, desk: RunDesk, token: str = TOKEN) -> None:
        self.url, self.desk, self.token = url, desk, token

    def ask(self, method: str, path: str = "", body: Any = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}", "X-Rubricem": "1"}
        address = f"{self.url}/api/{path}"
        return httpx.request(method, address, json=body, headers=headers, timeout=PATIENCE)

    def change(self, **values: Any) -> httpx.Response:
        return self.ask("PATCH", "settings", {"values": values})

    def shown(self) -> dict[str, dict[str, Any]]:
        told = self.ask("GET", "settings").json()["settings"]
        return {each["name"]: each for each in told}


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer(reply) as found:
        yield found


@pytest.fixture
def own(home: Path) -> Path:
    """The user's folder of settings."""
    path = home / "config" / "rubricem"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "cache.md").write_text("# lru_cache\n\nWith maxsize None it can grow unbounded.\n")
    return folder


@pytest.fixture
def owner(own: Path) -> Iterator[Owner]:
    desk = RunDesk(load_settings())
    users = Users(desk.settings.data_dir)
    with serving_http(create_app(desk, Security(token=TOKEN, users=users))) as url:
        yield Owner(url, desk)


def test_a_model_that_is_set_answers_the_next_question_and_its_key_is_never_told(
    owner: Owner, own: Path, notes: Path, model: ScriptedServer, tmp_path: Path
):
    (own / "rubricem.toml").write_text("# mine\nseed = 3\nmax_seconds = 50\n")
    assert not owner.ask("GET", "status").json()["ready"]
    set_here = {"base_url": model.base_url, "api_key": KEY, "source": [str(notes)]}
    told = owner.change(**set_here, max_seconds=70, effort="quick")
    assert told.status_code == 200, told.text
    kept = own / "page.toml"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 and KEY in kept.read_text()
    assert (own / "rubricem.toml").read_text() == "# mine\nseed = 3\nmax_seconds = 50\n"
    found = owner.shown()
    assert {found[name]["origin"] for name in (*set_here, "max_seconds")} == {str(kept)}
    assert (found["max_seconds"]["value"], found["seed"]["value"]) == ("70.0", "3")
    assert found["api_key"]["value"] == "set, and not shown" and KEY not in told.text
    run = owner.ask("POST", "runs", {"question": QUESTION}).json()["run"]
    assert '"finished"' in owner.ask("GET", f"runs/{run}/events").text
    assert model.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert owner.ask("GET", "status").json()["ready"]
    # What other ways in start with is the same; taken back, the user's own value holds again.
    assert load_settings().max_seconds == 70
    assert owner.change(max_seconds=None).status_code == 200
    assert owner.shown()["max_seconds"]["origin"] == str(own / "rubricem.toml")


def test_a_key_does_not_go_along_to_another_server(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, model: ScriptedServer
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-ambient")
    with ScriptedServer(["yes", "yes"]) as other:
        assert owner.change(base_url=model.base_url, api_key=KEY).status_code == 200
        tested = owner.ask("POST", "settings/test", {"values": {"base_url": other.base_url}})
        assert tested.status_code == 200, tested.text
        assert "authorization" not in other.requests[0].headers
        assert owner.change(base_url=other.base_url, model="scripted").status_code == 200
    assert load_settings().api_key is None
    assert owner.change(base_url="", api_key=None, model="0.5b").status_code == 200
    settings = load_settings()
    assert (settings.base_url, settings.model) == (None, "0.5b")
    assert settings.origin("api_key") == "OPENAI_API_KEY"


@pytest.mark.parametrize("held", ["RUBRICEM_API_KEY", "the file"])
@pytest.mark.parametrize("elsewhere", ["", "another"])
def test_a_key_that_the_page_did_not_set_stays_with_its_server(
    owner: Owner,
    own: Path,
    model: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
    held: str,
    elsewhere: str,
):
    written = f'base_url = "{model.base_url}"\nmodel = "scripted"\n'
    if held == "the file":
        written += f'api_key = "{KEY}"\n'
    else:
        monkeypatch.setenv(held, KEY)
    (own / "rubricem.toml").write_text(written)
    owner.desk.settings = load_settings()
    with ScriptedServer(["yes"]) as other:
        values = {"base_url": elsewhere and other.base_url, "model": "scripted"}
        told = owner.ask("POST", "settings/test", {"values": values})
        assert not any("authorization" in each.headers for each in other.requests)
    why = "is not an embedded one" if held == "the file" else "not sent to another server"
    if (held, elsewhere) == ("the file", "another"):
        assert told.status_code == 200, told.text
    else:
        assert told.status_code == 422 and why in told.json()["error"], told.text
    assert owner.change(model="0.5b", base_url="").status_code == 200, "which sends it nowhere"


@pytest.mark.parametrize(
    ("values", "status", "said"),
    [
        (
            {"base_url": "localhost"},
            422,
            "base_url cannot be 'localhost': must be an address such as",
        ),
        ({"max_cost": -1}, 422, "max_cost cannot be -1"),
        ({"source": ["no/such/folder"]}, 422, "no/such/folder"),
        ({"seed": 3}, 422, "seed is not set on the page"),
        ({"tool_calls": 3}, 422, "tool_calls is set by RUBRICEM_TOOL_CALLS"),
        ({"base_url": "http://me:***@127.0.0.1/v1"}, 422, "stands for what is not shown"),
        ({"model": "gone", "base_url": ""}, 422, "is not an embedded one, and no server is named"),
        ({"model": {"a": 1}}, 422, "values.model"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    owner: Owner, own: Path, values: Any, status: int, said: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RUBRICEM_TOOL_CALLS", "4")
    owner.desk.settings = load_settings()
    before = owner.desk.setup
    refused = owner.ask("PATCH", "settings", {"values": values})
    assert refused.status_code == status and said in refused.json()["error"], refused.text
    assert refused.json()["remedy"]
    assert not (own / "page.toml").exists() and owner.desk.setup is before


def test_a_folder_that_cannot_be_written_is_told_and_nothing_is_changed(owner: Owner, own: Path):
    (own / "page.toml").mkdir()
    refused = owner.change(effort="quick")
    assert refused.status_code in (422, 500) and str(own / "page.toml") in refused.json()["error"]
    assert owner.desk.settings.effort == "standard"


@pytest.mark.parametrize("case", ["user", "tokenless", "named"])
def test_nobody_but_the_owner_changes_anything(
    case: str, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if case == "named":
        (tmp_path / "mine.toml").write_text("seed = 4\n")
        monkeypatch.setenv("RUBRICEM_CONFIG", str(tmp_path / "mine.toml"))
    desk = RunDesk(load_settings())
    users = Users(desk.settings.data_dir)
    desk.settings.data_dir.mkdir(parents=True)
    token = users.put("anna", UserBudget()) if case == "user" else TOKEN
    security = Security(token=None if case == "tokenless" else TOKEN, users=users)
    with serving_http(create_app(desk, security)) as url:
        somebody = Owner(url, desk, token)
        for method, path in (("PATCH", ""), ("POST", "/test"), ("GET", "/nearby")):
            body = None if method == "GET" else {"values": {"effort": "quick"}}
            refused = somebody.ask(method, f"settings{path}", body)
            assert refused.status_code == 403, refused.text
        told = somebody.ask("GET", "settings").json()
        assert told["why"] and not any(each["changeable"] for each in told["settings"])
        assert somebody.ask("GET", "status").json()["ready"] is (case == "user")
    assert not (own / "page.toml").exists()


def test_where_others_reach_the_server_the_page_names_no_folder(own: Path, notes: Path):
    desk = RunDesk(load_settings())
    with serving_http(create_app(desk, Security("0.0.0.0", TOKEN))) as url:
        owner = Owner(url, desk)
        for name in (str(notes), f"git:{notes}", f"python, {notes}"):
            refused = owner.change(source=name)
            assert refused.status_code == 403 and "names no folder" in refused.json()["error"]
        assert owner.change(source=["python", "wikipedia"]).status_code == 200


QUOTA = Fault(429, "You exceeded your current quota", code="insufficient_quota")


@pytest.mark.parametrize(
    ("script", "models", "named", "said"),
    [
        (["yes"], ("scripted",), None, ""),
        (["yes"], None, "scripted", ""),
        (["yes"], None, None, "lists no models"),
        (["yes"], (), None, "lists no models"),
        ([Fault(401, "no such key")], ("scripted",), None, "refused the API key (401)"),
        ([QUOTA], ("scripted",), None, "has no quota left (429)"),
        ([Fault(404, "no such model")], ("other",), "gone", "has no model 'gone' (404)"),
    ],
)
def test_a_model_is_tried_before_it_is_kept(
    owner: Owner, own: Path, script: Any, models: Any, named: str | None, said: str
):
    with ScriptedServer(script, models) as server:
        values = {"base_url": server.base_url, "api_key": KEY, "model": named}
        told = owner.ask("POST", "settings/test", {"values": values})
    if said:
        assert told.status_code >= 400 and said in told.json()["error"], told.text
        assert told.json()["remedy"]
    else:
        assert told.json()["model"] == "scripted" and told.json()["models"] == list(models or ())
        assert server.requests[0].body["max_tokens"] == routes_settings.TEST_TOKENS
    assert KEY not in told.text and not (own / "page.toml").exists()
    assert json.dumps(owner.shown()["base_url"]["value"]) == '""'


def test_runs_in_progress_end_as_they_began_and_users_get_the_new_model(
    owner: Owner, model: ScriptedServer, notes: Path
):
    assert owner.change(base_url=model.base_url, source=[str(notes)]).status_code == 200
    users = Users(owner.desk.settings.data_dir)
    anna = Owner(owner.url, owner.desk, users.put("anna", UserBudget()))
    assert anna.ask("GET", "status").json()["model"] == model.base_url
    slow = owner.ask("POST", "runs", {"question": f"{QUESTION} slowly"}).json()["run"]
    former = owner.desk.researchers
    with ScriptedServer(reply, ("newer",)) as other:
        told = owner.change(base_url=other.base_url, model="newer")
        assert told.status_code == 200, told.text
        ended = owner.ask("GET", f"runs/{slow}/events").text
        assert '"finished"' in ended and not other.requests
        run = anna.ask("POST", "runs", {"question": QUESTION}).json()["run"]
        assert '"finished"' in anna.ask("GET", f"runs/{run}/events").text
        assert {each.body["model"] for each in other.requests} == {"newer"}
    assert owner.ask("GET", "status").json()["model"].startswith("newer@")
    assert former.policy is None, "its model is closed"
