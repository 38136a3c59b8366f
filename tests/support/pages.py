"""The web page and the server behind it, as their tests use them.

A real server on loopback answers over a scripted model, which chooses what it writes by words of
the question: `slowly`: in small pieces; `forever`: it falls silent after the plan; `unmarked`:
a review without marks; `rich`: a table, code and formulas, of which the last does not come with
`halfway`; `arabic`: an answer in Arabic; `hostile`: markup of every kind. As a lead it has the two
of `PARTS` investigated. It also plays the checker of claims and the stage judge. Further on: what
is done in a browser in the words of who uses it, a client that reads a run's events, routers alone
with errors told as the server tells them, and the whole behind clients of OpenAI's interface.
"""

import asyncio
import json
import os
import pty
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal
from urllib.parse import quote

import httpx
from axe_playwright_python.sync_playwright import Axe
from fastapi import APIRouter, FastAPI
from openai import OpenAI
from playwright.sync_api import Browser, Page, ViewportSize, expect

from rubricem.agent.serve.app import create_app, tell_errors
from rubricem.agent.serve.desk import Capacity, RunDesk
from rubricem.agent.serve.security import Security
from rubricem.agent.settings import Settings
from tests.conftest import COMMAND, ROOT
from tests.support.banks import bank_in, reflection
from tests.support.collected import written_run
from tests.support.scripted_server import Json, Reply, Script, Scripted, ScriptedServer
from tests.support.tool_servers import serving_http
from tests.support.waiting import PATIENCE, Process, wait_for

DOCUMENTS = {
    "lru_cache": (
        "# functools.lru_cache\n\nIf maxsize is set to None, the LRU feature is disabled and the "
        "cache can grow without bound. Otherwise the least recently used entry is discarded first."
    ),
    "cache": (
        "# functools.cache\n\nSimple lightweight unbounded function cache, sometimes called "
        "memoize. Because it never needs to evict old values, it is smaller and faster."
    ),
    "report": (
        "# Caches in our services\n\nIn 2023 a bounded cache of 128 entries kept 82 percent of "
        "the hits of an unbounded one, measured over a week."
    ),
    "hostile": (
        "# Hostile <img src=x onerror=alert(1)>\n\nThe hostile page says <script>alert(2)</script>"
        " and <svg onload=alert(3)> [here](javascript:alert(4)) <style>*{display:none}</style>."
    ),
}
PAYLOADS = (
    "<script>alert(5)</script>",
    "<img src=x onerror=alert(6)>",
    "<svg/onload=alert(7)>",
    "[press](javascript:alert(8))",
    "<style>main{display:none}</style>",
    '<a href="javascript:alert(9)">link</a>',
    "<iframe srcdoc='<script>alert(10)</script>'></iframe>",
    "![](https://elsewhere.example/x.png)",
)
"""written in the question, the plan and the answer of a hostile run"""
PLAN = (
    "<think>Two facts are asked for: what an unbounded cache does, and how a bounded one "
    "evicts. The documentation settles both; a figure needs a measurement.</think>\n"
    "<structured_plan>\n<deep_analysis>Two facts and a figure; two searches should do."
    "</deep_analysis>\n<rubric>\n- Says what happens to the size when maxsize is None\n"
    "- Says which entry is discarded first otherwise\n- Gives a measured figure for the hits\n"
    "</rubric>\n<research_plan>1. Read the documentation of lru_cache.\n"
    "2. Look for a measurement.</research_plan>\n</structured_plan>\n"
    '<call_tool name="search">{query}</call_tool>'
)
NEXT = (
    "<think>The documentation settles the size and the order. The figure is open.</think>\n"
    "<state_evaluation>The first two items are settled by S1; the measurement is open."
    '</state_evaluation>\n<call_tool name="search">{query}</call_tool>'
)
LAST = (
    "<think>All that can be found is found.</think>\n<state_evaluation>Enough to answer."
    "</state_evaluation>\n<review>\n<rubric_review>\n- Says what happens to the size when "
    "maxsize is None [met: S1]\n- Says which entry is discarded first otherwise [met: S1]\n- A "
    "measured figure for the hits: one service alone [partly: S2]\n</rubric_review>\n"
    "<writing_plan>The size, then the order, then the figure.</writing_plan>\n</review>\n"
    "<answer>{answer}</answer>"
)
ANSWER = (
    'With `maxsize=None` the cache <cite id="S1">can grow without bound</cite>. Otherwise '
    '<cite id="S1">the least recently used entry is discarded first</cite>.\n\n'
    "## What a bound costs\n\n"
    'In one measurement a bounded cache <cite id="S2">kept 90 percent of the hits</cite>.\n\n'
    "- Use `functools.cache` where the arguments are few.\n"
    "- Use `lru_cache` where they are not, and memory matters.\n"
)
RICH = r"""It <cite id="S1">can grow without bound</cite>, see [the manual](https://docs.python.org/3/).

| Chemist | Number | What the discovery rested on, in a sentence |
|---|---:|---|
| Marie Curie | 84 | Radioactivity of pitchblende ![seen](https://a.test/seen.png) |

- [x] Size told

```python
return 1
```

A hit rate of $h = \frac{n}{m}$ for $5.

$$\sum_{i=1}^{n} x_i$$
"""
"""an answer with all that a report is made of"""
ARABIC = (
    '<cite id="S1">بدون حد أقصى تنمو الذاكرة المخبأة</cite> '
    "كما في `lru_cache`.\n\n- أولاً\n- ثانياً\n"
)
CRITERIA = json.dumps(
    {
        stage: {
            "positive": [
                {"title": "Covers the question", "description": whole, "weight": 3},
                {"title": "Says what is open", "description": honest, "weight": 2},
            ]
        }
        for stage, whole, honest in (
            ("plan", "Plans for the size, the order and the figure", "Says what may not be found"),
            ("research", "Finds the documentation and a measurement", "Says what is still missing"),
            ("review", "Holds every item against a passage", "Says which item is met in part"),
            ("answer", "Answers both parts of the question", "Says how far the figure reaches"),
        )
    }
)
"""the stage judge's rubrics"""
_KINDS = (("Both parts have their place.", 2), ("Only in passing.", 1))
VERDICTS = json.dumps(
    {
        "verdicts": [
            {"number": number, "justification": said, "points": points}
            for number, (said, points) in enumerate(_KINDS * 4, start=1)
        ]
    }
)
PARTS = ("Which size has a cache without bound? slowly", "What does a bound cost? slowly")
"""what a lead asks for; the second falls silent where its question says `silently`"""
OUTLINE = (
    "<think>All is there.</think><state_evaluation>Enough.</state_evaluation><review>"
    "<rubric_review>- The size [met: S1]</rubric_review><writing_plan>\n## The size\nits size [S1]"
    "\n## What a bound costs\nits hits [S1]\n</writing_plan></review>"
)
WRONG = "90 percent"
"""a claim with it is held by no source"""
_MARK = re.compile(r" \[(?:met|partly): S\d\]")
_CLAIM = re.compile(r"^Claim \d+, .*?(?=^Claim \d+, |\Z)", re.S | re.M)


def reply(body: Json, number: int) -> Scripted:
    """Answer as whoever the system prompt speaks to."""
    system, *messages = [str(message["content"]) for message in body["messages"]]
    if "You are a research agent" in system:
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        return _researcher(messages[0].partition("\n\n")[0], turn)
    if system.startswith("You check claims"):
        return _checked(messages[0])
    if system.startswith("You lead a research"):
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        return OUTLINE if turn else _led(messages[0].partition("\n\n")[0])
    if system.startswith(("You write one section", "You edit a research report")):
        return ANSWER.partition("Otherwise")[0] if "section" in system else "<summary></summary>"
    return VERDICTS if '"verdicts"' in system else CRITERIA


def _researcher(question: str, turn: int) -> Scripted:
    if "forever" in question and turn == 1:
        return Reply(NEXT, hang_after=4)
    turns = _hostile() if "hostile" in question else _usual()
    text = turns[min(turn, len(turns) - 1)]
    text = _MARK.sub("", text) if "unmarked" in question else text
    text = text.replace(ANSWER, RICH) if "rich" in question else text
    text = text.replace(ANSWER, ARABIC) if "arabic" in question else text
    if "halfway" in question and turn == 2:
        return Reply(pieces=[text.partition("$$")[0]], hang_after=1)
    pieces = [text[i : i + 24] for i in range(0, len(text), 24)]
    return Reply(pieces=pieces, piece_seconds=0.05 if "slowly" in question else 0.0)


def _led(question: str) -> str:
    silent = " forever" if "silently" in question else ""
    asked = [f'<call_tool name="investigate">{part}</call_tool>' for part in PARTS]
    asked[1] = asked[1].replace("</", f"{silent}</")
    return PLAN.partition("<call_tool")[0] + "".join(asked)


def _usual() -> list[str]:
    return [
        PLAN.format(query="lru_cache maxsize None bound"),
        NEXT.format(query="measured hits of a bounded cache"),
        LAST.format(answer=ANSWER),
    ]


def _hostile() -> list[str]:
    written = " and ".join(PAYLOADS)
    planned = PLAN.replace("- Gives a measured figure", f"- Says {PAYLOADS[1]} and figure")
    answer = f'The <cite id="S1">hostile page says</cite> {written}'
    return [planned.format(query="hostile page"), LAST.format(answer=answer)]


def _checked(asked: str) -> str:
    claims = _CLAIM.findall(asked)
    verdicts = [
        {
            "number": number,
            "reason": "The passage gives 82 percent." if WRONG in claim else "It says so.",
            "verdict": "unsupported" if WRONG in claim else "supported",
        }
        for number, claim in enumerate(claims, start=1)
    ]
    return json.dumps({"verdicts": verdicts})


Memory = Literal["on", "off", "read-only"]
HOSTILE_TAG = "<img src=x onerror=alert(1)>"


@dataclass(frozen=True)
class Site:
    """A running server."""

    url: str
    settings: Settings
    model: ScriptedServer


def settings(folder: Path, model: ScriptedServer, memory: Memory = "off") -> Settings:
    documents = folder / "notes"
    documents.mkdir()
    for name, text in DOCUMENTS.items():
        (documents / f"{name}.md").write_text(text)
    return Settings(
        base_url=model.base_url,
        model="scripted",
        models=("larger",),
        source=(str(documents),),
        collections={"handbook": (str(documents), "upload:moon")},
        data_dir=folder / "data",
        weights_dir=folder / "weights",
        memory=memory,
    )


@contextmanager
def website(
    folder: Path,
    token: str | None = None,
    model_says: Callable[[Json, int], Scripted] = reply,
    memory: Memory = "off",
    running: int = 64,
) -> Iterator[Site]:
    """A server of the page while the context lasts; it shows results under `folder / "results"`."""
    with ScriptedServer(model_says) as model:
        chosen = settings(folder, model, memory)
        desk = RunDesk(chosen, Capacity(running))
        app = create_app(desk, Security(token=token), [folder / "results"])
        with serving_http(app) as address:
            yield Site(f"{address}/", chosen, model)


def seeded(folder: Path) -> None:
    """A bank with an item in each state, a collected run and a training, for a site to show."""
    _aside(lambda: _fill_bank(folder / "data"))
    written_run(folder / "results" / "september")
    trained = folder / "results" / "adapter"
    trained.mkdir()
    (trained / "run.json").write_text('{"method": "ss-grpo", "model": "tiny"}')
    steps = [{"step": n, "loss": 1 / n, "kl": 0.01 * n, "note": "x"} for n in range(1, 7)]
    (trained / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))


def _aside(work: Callable[[], Coroutine[Any, Any, object]]) -> None:
    with ThreadPoolExecutor(1) as aside:  # Playwright's own loop runs in the thread of the tests
        aside.submit(lambda: asyncio.run(work())).result()


async def _fill_bank(data_dir: Path) -> None:
    bank = bank_in(data_dir)
    await bank.put(reflection("How does the cache evict?", "kept", f"- read {HOSTILE_TAG} first"))
    await bank.put(reflection("What is a heap?", "held", flags=("It gives orders to the reader.",)))
    await bank.put(reflection("Where is Rome?", "rome"))


CHROMIUM = "/usr/bin/chromium"
PHONE: ViewportSize = {"width": 360, "height": 740}
QUESTION = "What does lru_cache do with maxsize None?"
CHANGING = {"X-Rubricem": "1"}
SOON = 60_000
"""milliseconds that are waited for what is to be on a page"""
expect.set_options(timeout=SOON)


@contextmanager
def opened(
    browser: Browser, site: Site, address: str = "", *, hostile: bool = False, **context: Any
) -> Iterator[Page]:
    """A page of the site; it fails at the end where a script did, or where the policy was broken.

    `hostile`: the test itself has the page parse what the policy forbids.
    """
    with browser.new_context(base_url=site.url, **context) as fresh:
        fresh.set_default_timeout(SOON)
        page = fresh.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: faults.append(f"a script ran: {dialog.message}"))
        if not hostile:
            page.on("console", lambda said: _keep_policy(faults, said.text))
        page.on("request", lambda request: _keep_home(faults, site, request.url))
        page.goto(f"{site.url}{address}")
        yield page
        # A route that still waits for its answer must not fail the next test.
        page.unroute_all(behavior="ignoreErrors")
        assert not faults, faults


def _keep_policy(faults: list[str], said: str) -> None:
    if "Content Security Policy" in said:
        faults.append(said)


def _keep_home(faults: list[str], site: Site, address: str) -> None:
    if not address.startswith(site.url):
        faults.append(f"it asked {address}")


def ask(page: Page, question: str = QUESTION) -> str:
    """Ask on the first page; returns the run's key."""
    page.get_by_role("textbox", name="Question").fill(question)
    page.get_by_role("button", name="Ask", exact=True).click()
    page.wait_for_url("**/#/run/*")
    return page.url.rpartition("/")[2]


def begun(site: Site, question: str = QUESTION, **more: Any) -> dict[str, str]:
    """A run that is asked for without a page: its key and its thread's."""
    body = {"question": question, **more}
    reply = httpx.post(f"{site.url}api/runs", json=body, headers=CHANGING, timeout=PATIENCE)
    assert reply.status_code == 201, reply.text
    said: dict[str, str] = reply.json()
    return said


def finished(site: Site, question: str = QUESTION, **more: Any) -> dict[str, str]:
    """The same, come to its end."""
    asked = begun(site, question, **more)
    # Without certificates, which take 20 ms to read and are of no use on loopback.
    with httpx.Client(base_url=site.url, timeout=PATIENCE, verify=False) as http:
        wait_for(lambda: http.get(f"api/runs/{asked['run']}").json()["status"])
    return asked


def run_address(run: str, tab: str = "") -> str:
    return f"#/run/{quote(run)}{tab}"


def grave_faults(page: Page) -> list[tuple[str, str]]:
    """What keeps people from using the page as it stands: each fault and where it is."""
    faults = Axe().run(page).response["violations"]
    grave = [fault for fault in faults if fault["impact"] in ("serious", "critical")]
    return [(fault["id"], fault["nodes"][0]["html"][:120]) for fault in grave]


def has_heading(page: Page, text: str) -> None:
    expect(page.get_by_role("heading", level=1, name=text)).to_be_visible()


def is_told(site: Site, words: str) -> None:
    """The model is told these words, now or soon."""
    wait_for(lambda: any(words in str(told.body["messages"]) for told in site.model.requests))


@dataclass(frozen=True)
class Said:
    """One event as it came."""

    id: int
    name: str
    data: dict[str, Any]


@dataclass(frozen=True)
class RunSite:
    """A running server and a client of it."""

    http: httpx.AsyncClient
    desk: RunDesk

    async def ask(self, question: str = QUESTION, **asked: Any) -> str:
        """The key of a new run."""
        reply = await self.http.post("/api/runs", json={"question": question, **asked})
        assert reply.status_code == 201, reply.text
        return str(reply.json()["run"])

    async def one(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.http.get(f"/api/runs/{run}")).json()
        return found

    async def events(self, run: str, after: int | None = None) -> AsyncIterator[Said]:
        """What is told of a run, to its end."""
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        async with self.http.stream("GET", f"/api/runs/{run}/events", headers=headers) as reply:
            assert reply.status_code in (200, 204), reply.status_code
            async for event in read(reply):
                yield event

    async def ended(self, run: str) -> list[Said]:
        return [event async for event in self.events(run)]

    async def until(self, run: str, name: str) -> Said:
        """The first event of a name."""
        async for event in self.events(run):
            if event.name == name:
                return event
        raise AssertionError(f"{name} was never told")


async def read(reply: httpx.Response) -> AsyncIterator[Said]:
    """The events of a stream."""
    number, name = 0, ""
    async for line in reply.aiter_lines():
        field, _, value = line.partition(": ")
        if field == "id":
            number = int(value)
        elif field == "event":
            name = value
        elif field == "data":
            yield Said(number, name, json.loads(value))


def run_settings(
    folder: Path,
    model: ScriptedServer,
    says: str = "If maxsize is None, it is unbounded.",
    **more: Any,
) -> Settings:
    """Those of a server over a scripted model and one document that `says` something."""
    documents = folder / "documents"
    documents.mkdir(exist_ok=True)
    (documents / "cache.md").write_text(f"# lru_cache\n\n{says}\n")
    chosen = {"base_url": model.base_url, "model": "scripted", "source": (str(documents),)}
    return Settings(**{**chosen, "data_dir": folder / "data", "memory": "off", **more})


@contextmanager
def begun_server(
    folder: Path,
    *options: str,
    until: str = "Serving",
    log: IO[str] | None = None,
    terminal: bool = False,
    **variables: str,
) -> Iterator[tuple[list[str], Process]]:
    """The command over a folder, and what it says up to a line that begins with `until`.

    Its log goes into `log`; it may say it on a `terminal`, with `variables` in its environment.
    """
    command = [*COMMAND, "serve", "--port", "0", *options]
    environment = {**os.environ, "RUBRICEM_DATA_DIR": str(folder / "data"), **variables}
    reading, writing = pty.openpty() if terminal else os.pipe()
    with (
        open(reading) as heard,
        Process(command, cwd=ROOT, env=environment, stdout=writing, stderr=log) as process,
    ):
        os.close(writing)
        told: list[str] = []
        try:
            while not told or not told[-1].startswith(until):
                assert process.poll() is None, told
                told.append(heard.readline().rstrip("\n"))
            yield told, process
        finally:
            process.kill()


@contextmanager
def app_at(
    chosen: Settings, security: Security | None = None, capacity: Capacity | None = None
) -> Iterator[tuple[str, RunDesk]]:
    desk = RunDesk(chosen, capacity)
    with serving_http(create_app(desk, security or Security())) as address:
        yield address, desk


@asynccontextmanager
async def site(
    chosen: Settings, security: Security | None = None, capacity: Capacity | None = None
) -> AsyncIterator[RunSite]:
    with app_at(chosen, security, capacity) as served_at:
        async with calling(*served_at) as made:
            yield made


@asynccontextmanager
async def calling(address: str, desk: RunDesk) -> AsyncIterator[RunSite]:
    """A client of a server that goes on."""
    given: dict[str, Any] = {"headers": CHANGING, "timeout": PATIENCE, "verify": False}
    async with httpx.AsyncClient(base_url=address, **given) as http:
        yield RunSite(http, desk)


@asynccontextmanager
async def scripted_site(
    script: Script, folder: Path, capacity: Capacity | None = None, **more: Any
) -> AsyncIterator[RunSite]:
    """A site over a model of its own, with the settings of `run_settings`."""
    with ScriptedServer(script) as model:
        async with site(run_settings(folder, model, **more), capacity=capacity) as made:
            yield made


def _giving(value: object) -> Callable[[], object]:
    return lambda: value


_APPS = dict[int, FastAPI]()
"""by their routes, which FastAPI takes 100 ms to look at where they are in a new one"""


@asynccontextmanager
async def served(
    routes: APIRouter, instead: Mapping[Callable[..., Any], object]
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of these routes alone; `instead`: values in the place of dependencies."""
    if (app := _APPS.get(id(routes))) is None:
        app = _APPS[id(routes)] = FastAPI()
        app.include_router(routes)
        tell_errors(app)
    app.dependency_overrides = {name: _giving(value) for name, value in instead.items()}
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://server") as client,
    ):
        yield client


REPORT = "It is an unbounded cache [1]."


@dataclass(frozen=True)
class Programs:
    """What programs find: the address, and an unmodified client that tries nothing over again."""

    url: str
    desk: RunDesk
    model: ScriptedServer
    client: OpenAI


@contextmanager
def openai_served(
    script: Script, folder: Path, security: Security | None = None, **more: Any
) -> Iterator[Programs]:
    """OpenAI's interface over a scripted model, which keeps its requests."""
    says = "If maxsize is None, lru_cache is an unbounded cache."
    with ScriptedServer(script) as model:
        chosen = run_settings(folder, model, says, **{"memory": "read-only", **more})
        with app_at(chosen, security) as (address, desk):
            url = f"{address}/v1"
            with OpenAI(base_url=url, api_key="none", max_retries=0) as made:
                yield Programs(url, desk, model, made)


@contextmanager
def client(script: Script, folder: Path, **more: Any) -> Iterator[OpenAI]:
    with openai_served(script, folder, **more) as here:
        yield here.client
