"""`rubricem ask` over a SearXNG instance and a site of the user's own, all real but the model."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rubricem.agent.cli import main
from tests.support.policies import BROWSED, answer, opening, plan
from tests.support.scripted_server import ScriptedServer
from tests.support.sites import PageSite, Sent, article

FACT = "The revenue of Acme in 2023 was 12.5 million dollars, its report says. "
CLAIM = "The revenue of Acme in 2023 was 12.5 million dollars."


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def asked(site: PageSite, *flags: str, opened: str = "S1", last: str = "S2") -> dict[str, Any]:
    """The JSON report of a question for which one page is opened."""
    row = {"title": "Acme", "url": site.address("/report"), "content": "Acme and its revenue ..."}
    site.pages["/search"] = Sent(json.dumps({"results": [row]}))
    site.pages["/healthz"] = Sent("OK")
    site.pages["/report"] = article("Acme report", FACT * 9)
    script = [
        plan("Acme revenue 2023"),
        opening(opened),
        answer(f'<cite id="{last}">{CLAIM}</cite>'),
    ]
    with ScriptedServer(script) as server:
        where = ("--base-url", server.base_url, "--source", f"searxng:{site.address('')}")
        done = CliRunner().invoke(
            main, ["ask", BROWSED, *where, "--verify", "off", "--json", *flags]
        )
    assert done.exit_code == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def paths(site: PageSite) -> list[str]:
    return [path.partition("?")[0] for _, path in site.asked if path != "/healthz"]


def test_a_private_search_engine_just_works_and_its_pages_are_read_where_allowed(data_dir: Path):
    with PageSite({}) as site:
        report = asked(site, "--allow-host", "127.0.0.1")
        assert paths(site) == ["/search", "/report"]
        assert report["citations"][0]["source"]["location"] == site.address("/report")
        assert report["answer"] == f"{CLAIM[:-1]} [1]."
        asked(site, "--allow-host", "127.0.0.1")
        assert paths(site) == ["/search", "/report", "/search"], "the page was kept"
    assert list((data_dir / "pages").glob("*.json"))


def test_the_pages_of_a_private_host_are_not_read_unless_allowed():
    with PageSite({}) as site:
        report = asked(site, last="S1")
        assert paths(site) == ["/search"]
    assert report["status"] == "finished"
    research = next(s["text"] for s in report["stages"] if s["stage"] == "research")
    assert "is not named in allow_hosts" in research
