"""What the docs say of the server and the chat is what these have: addresses, limits, commands."""

import re
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Match, Route

from agent.chat.commands import COMMANDS
from agent.serve import routes_uploads, streams, uploads
from agent.serve.app import create_app
from agent.serve.desk import Capacity, RunDesk
from agent.serve.security import Security
from agent.settings import Settings
from agent.sources.documents import MOST_BYTES
from tests.test_docs import DOCS

SERVING = (DOCS / "serving.md").read_text(encoding="utf-8")
CHAT = (DOCS / "chat.md").read_text(encoding="utf-8")
TOLD = re.compile(r"`(GET|POST) (/[^`?]*)")


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    desk = RunDesk(Settings(data_dir=tmp_path_factory.mktemp("data")))
    return [*create_app(desk, Security()).routes]


def known(routes: list[Any], method: str, address: str) -> bool:
    scope = {"type": "http", "method": method, "path": address, "headers": [], "root_path": ""}
    return any(route.matches(scope)[0] is Match.FULL for route in routes if matched(route))


def matched(route: object) -> bool:
    return not isinstance(route, Route) or route.path != "/"


def test_every_address_that_is_told_is_served(routes: list[Any]) -> None:
    addresses = [(m, a.replace("/KIND", "/md")) for m, a in TOLD.findall(SERVING)]
    assert ("POST", "/api/runs/RUN/resume") in addresses
    assert len(addresses) > 15
    assert [each for each in addresses if not known(routes, *each)] == []


def test_an_address_that_is_not_served_is_found(routes: list[Any]) -> None:
    assert not known(routes, "GET", "/api/nothing")
    assert not known(routes, "POST", "/api/status")


def test_the_limits_that_are_told_are_those_in_force(tmp_path: Path) -> None:
    security = Security()
    reading, changing = security.rates.reading, security.rates.changing
    capacity = Capacity.of(Settings(data_dir=tmp_path, base_url="http://localhost:1/v1"))
    said = [
        f"bodies over {security.most_body >> 20} MiB",
        f"over {routes_uploads.REQUEST_BYTES // 10**6} MB or {routes_uploads.REQUEST_FILES} files",
        f"{MOST_BYTES // 10**6} MB a document, {uploads.ALL_BYTES // 10**9} GB in all",
        f"over {reading.at_once:,} readings at once and {reading.a_second} a second",
        f"over {changing.at_once:,} changes and {changing.a_second} a second",
        f"at most {capacity.running}",
        f"Up to {capacity.waiting} more wait",
        f"{streams.MOST_OPEN:,} event streams",
    ]
    page = " ".join(SERVING.split())
    assert [phrase for phrase in said if phrase not in page] == []


def test_the_commands_of_the_chat_are_all_told_with_what_they_take() -> None:
    rows = re.findall(r"^\| `/(\w+) ?(.*?)` \|", CHAT, re.MULTILINE)
    listed = {name: takes.replace("\\|", "|") for name, takes in rows}
    assert listed == {name: command.takes for name, command in COMMANDS.items()}
