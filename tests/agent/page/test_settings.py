"""Settings in the browser: the first visit, where nothing is chosen yet, and every later one."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from rubricem.agent.serve import routes_settings
from rubricem.agent.serve.app import create_app
from rubricem.agent.serve.desk import RunDesk
from rubricem.agent.serve.security import Security
from rubricem.agent.settings import load_settings
from tests.agent.page.conftest import faults
from tests.support import pages
from tests.support.scripted_server import Fault, ScriptedServer
from tests.support.tool_servers import serving_http

TOKEN, KEY = "t0ken-" * 6, "sk-secret-of-mine"


@pytest.fixture
def fresh(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pages.Site]:
    """A server as it is first started, by somebody who has a model server on their machine."""
    monkeypatch.setenv("RUBRICEM_WEIGHTS_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("RUBRICEM_TOOL_CALLS", "6")
    notes = tmp_path / "notes"
    notes.mkdir()
    for name, text in pages.DOCUMENTS.items():
        (notes / f"{name}.md").write_text(text)
    with ScriptedServer(pages.reply, ("scripted", "larger")) as model:
        monkeypatch.setattr(routes_settings, "NEARBY", {"Ollama": model.base_url})
        app = create_app(RunDesk(settings := load_settings()), Security(token=TOKEN))
        with serving_http(app) as address:
            yield pages.Site(f"{address}/", settings, model)


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_a_first_visit_offers_what_answers_on_this_machine_then_asks_of_it(
    browser: Browser, fresh: pages.Site, theme: str
):
    link = f"#token={TOKEN}"
    with pages.opened(browser, fresh, link, color_scheme=theme, reduced_motion="reduce") as page:
        expect(page.get_by_role("heading", name="First, which model answers?")).to_be_visible()
        expect(page.get_by_role("textbox", name="Question")).to_be_hidden()
        expect(page.get_by_role("button", name="Ollama answers on this machine")).to_be_visible()
        expect(page.get_by_role("combobox", name="Model")).to_have_value("scripted")
        assert faults(page) == []
        page.get_by_role("button", name="Test").click()
        expect(page.get_by_text("scripted answered after")).to_be_visible()
        page.get_by_role("button", name="Use this model").press("Enter")
        expect(page.get_by_role("textbox", name="Question")).to_be_focused()
        expect(page.locator("#side-foot")).to_contain_text("scripted")
        expect(page.get_by_role("radio", name="Deep")).to_be_visible()
        expect(page.get_by_text("300,000 tokens")).to_be_visible()
        page.goto(f"{fresh.url}#/settings")
        page.get_by_label("Sources", exact=True).fill(str(notes_of(fresh)))
        page.get_by_role("button", name="Keep").click()
        expect(page.get_by_text(re.compile("Kept in .*page.toml"))).to_be_visible()
        page.goto(f"{fresh.url}#/")
        expect(page.get_by_role("checkbox", name="notes")).to_be_checked()
        pages.ask(page)
        expect(page.get_by_role("article")).to_contain_text("can grow without bound")


def notes_of(site: pages.Site) -> Path:
    return site.settings.weights_dir.parent / "notes"


def test_the_embedded_model_is_chosen_without_a_server(
    browser: Browser, fresh: pages.Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(routes_settings, "NEARBY", {})
    with pages.opened(browser, fresh, f"#token={TOKEN}") as page:
        model = page.get_by_label("Embedded model")
        expect(model).to_contain_text("1.5b (1.1 GB, still to be fetched)")
        page.get_by_role("button", name="Test").click()
        expect(page.get_by_text("It is fetched with the first question.")).to_be_visible()
        page.get_by_role("button", name="Use this model").click()
        expect(page.get_by_role("textbox", name="Question")).to_be_visible()
        page.reload()
        expect(page.get_by_role("textbox", name="Question")).to_be_visible()
    assert load_settings().model == "1.5b"


def test_a_key_is_written_and_never_shown_and_a_wrong_one_is_told_before_it_is_kept(
    browser: Browser, fresh: pages.Site
):
    keys: list[str] = []

    def refusing(body: object, number: int) -> object:
        keys.append(guarded.requests[number].headers["authorization"])
        return "yes" if keys[-1] == f"Bearer {KEY}" else Fault(401, "no such key")

    with (
        ScriptedServer(refusing) as guarded,  # type: ignore[arg-type]
        pages.opened(browser, fresh, f"#token={TOKEN}") as page,
    ):
        page.get_by_role("link", name="Settings").click()
        pages.has_heading(page, "Settings")
        form = page.get_by_role("form", name="Model")
        form.get_by_text("On a server").click()
        form.get_by_label("Address").fill(guarded.base_url)
        form.get_by_label("Key").fill("sk-wrong")
        form.get_by_role("button", name="Test").click()
        expect(form.get_by_role("alert")).to_contain_text("refused the API key (401)")
        form.get_by_label("Key").fill(KEY)
        form.get_by_role("button", name="Test").click()
        expect(form.get_by_text("scripted answered after")).to_be_visible()
        form.get_by_role("button", name="Use this model").click()
        expect(page.get_by_text("A key is kept and is not shown.")).to_be_visible()
        expect(form.get_by_label("Key")).to_have_value("")
        assert KEY not in page.content()
        assert faults(page) == []
        row = page.locator(".setting").filter(has_text="api_key")
        expect(row).to_contain_text("page.toml")
        page.get_by_role("button", name="Take back api_key").click()
        expect(page.get_by_role("button", name="Take back api_key")).to_have_count(0)
    kept = load_settings()
    assert kept.api_key is None and kept.base_url == guarded.base_url


def test_a_budget_is_kept_and_what_is_set_elsewhere_says_where(browser: Browser, fresh: pages.Site):
    with pages.opened(browser, fresh, f"#token={TOKEN}") as page:
        page.get_by_role("link", name="Settings").click()
        pages.has_heading(page, "Settings")
        form = page.get_by_role("form", name="Sources and budgets")
        expect(form.get_by_label("Searches")).to_be_disabled()
        expect(form).to_contain_text("Set by RUBRICEM_TOOL_CALLS, and changed there.")
        form.get_by_label("Seconds").fill("-1")
        form.get_by_role("button", name="Keep").click()
        assert load_settings().max_seconds is None
        form.get_by_label("Seconds").fill("45")
        form.get_by_text("Quick").click()
        form.get_by_role("button", name="Keep").click()
        expect(page.get_by_text("It holds from the next question on.")).to_be_visible()
        page.reload()
        expect(form.get_by_label("Seconds")).to_have_value("45.0")
    assert (load_settings().max_seconds, load_settings().effort) == (45, "quick")


def test_a_server_without_a_token_says_why_nothing_is_set_here(page: Page, site: pages.Site):
    page.goto(f"{site.url}#/settings")
    expect(page.get_by_text("This server asks for no token")).to_be_visible()
    expect(page.get_by_role("button", name="Use this model")).to_have_count(0)
