"""Pages that scripts draw, by Debian's Chromium over real servers on loopback."""

import asyncio
from pathlib import Path

import pytest

from rubricem.agent.sources.fetch import WebPages
from rubricem.agent.sources.sandbox import browser
from rubricem.memory.errors import SourceError
from tests.support.sites import PageSite, Sent

pytestmark = pytest.mark.skipif(not browser.browser_path(), reason="there is no Chromium")
HEAD = "<html><head><title>Rotors</title></head><body>"
APP = f'{HEAD}<div id="a"></div><script src="/app.js"></script>'
SCRIPT = """
const drawn = document.getElementById("a");
const tries = [
  fetch("/hook", {method: "POST", body: "told"}), fetch("OTHER/secret"),
  new Promise((yes, no) => { const s = new WebSocket("ws://" + location.host + "/socket");
    s.onopen = yes; s.onerror = s.onclose = no; }),
  new Promise((yes, no) => { const i = new Image(); i.onload = yes; i.onerror = no;
    i.src = "/image.png"; }),
];
Promise.allSettled(tries).then(async (ended) => {
  const told = await (await fetch("/data.json")).json();
  const came = ended.filter((one) => one.status == "fulfilled").length;
  drawn.innerHTML = `<h1>Rotors</h1><p>A rotor costs ${told.price} euros.</p><p>${came} came</p>`;
});
"""


def pages(folder: Path, site: PageSite, *allowed: str) -> WebPages:
    return WebPages(folder, (f"127.0.0.1:{site.port}", *allowed))


async def test_a_page_that_a_script_draws_is_read_and_reaches_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(browser, "SECONDS", 100.0)  # of a busy machine
    with PageSite({"/secret": Sent("secret")}) as other:
        script = SCRIPT.replace("OTHER", other.address(""))
        kinds = {"/app.js": "text/javascript", "/data.json": "application/json"}
        bodies = {"/": APP, "/app.js": script, "/data.json": '{"price": 412}'}
        sent = {at: Sent(body, kind=kinds.get(at, "text/html")) for at, body in bodies.items()}
        with PageSite(sent) as site:
            # Another private host that may be opened is still none of a page's business.
            reader = pages(tmp_path, site, f"127.0.0.1:{other.port}")
            passages = await reader.read(site.address("/"))
            asked = [path for _, path in site.asked]
            assert await reader.read(site.address("/")) == passages, "it is kept"
            assert other.asked == []
    assert passages[0].title == "Rotors"
    assert "A rotor costs 412 euros." in passages[0].text and "0 came" in passages[0].text
    assert sorted(asked) == ["/", "/", "/app.js", "/data.json"]


@pytest.mark.parametrize(
    ("script", "seconds", "said"),
    [
        ("for (;;) {}", 2.0, "was not drawn within 2 s"),
        ("", 100.0, "The page has no text"),
        (
            "document.body.append(document.createComment('x'.repeat(3e7)))",
            100.0,
            "larger than 20 MB",
        ),
    ],
)
@pytest.mark.slow
async def test_what_is_not_drawn_costs_its_time_and_nothing_else(
    script: str, seconds: float, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    good = f"{HEAD}<script>document.body.innerText = 'Fine.'</script>"
    with PageSite({"/": f"{HEAD}<script>{script}</script>", "/good": good}) as site:
        reader = pages(tmp_path, site)
        monkeypatch.setattr(browser, "SECONDS", seconds)
        with pytest.raises(SourceError, match=said):
            await reader.read(site.address("/"))
        monkeypatch.setattr(browser, "SECONDS", 100.0)
        found = await asyncio.gather(*(reader.read(site.address("/good")) for _ in range(3)))
    assert {each[0].text for each in found} == {"Fine."}


async def test_without_a_browser_it_is_said_that_a_script_may_draw_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rubricem.agent.sources.fetch.browser_path", lambda: None)
    with PageSite({"/": APP}) as site, pytest.raises(SourceError, match="drawn by a script"):
        await pages(tmp_path, site).read(site.address("/"))
