"""The web page as a browser gets it: the real server on loopback, over a scripted model."""

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agent.serve.app import create_app
from agent.serve.desk import RunDesk
from agent.serve.security import Security
from agent.settings import Settings
from tests.bank_parts import bank_in, reflection
from tests.run_pages import written_run
from tests.scripted_server import Json, Scripted, ScriptedServer
from tests.tool_servers import serving_http
from tests.web_scripts import DOCUMENTS, reply

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
        source=(str(documents),),
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
) -> Iterator[Site]:
    """A server of the page while the context lasts; it shows results under `folder / "results"`."""
    with ScriptedServer(model_says) as model:
        chosen = settings(folder, model, memory)
        app = create_app(RunDesk(chosen), Security(token=token), [folder / "results"])
        with serving_http(app) as address:
            yield Site(f"{address}/", chosen, model)


def seeded(folder: Path) -> None:
    """A bank with an item in each state, a collected run and a training, for a site to show."""
    with ThreadPoolExecutor(1) as aside:  # Playwright's own loop runs in the thread of the tests
        aside.submit(lambda: asyncio.run(_fill_bank(folder / "data"))).result()
    written_run(folder / "results" / "september")
    trained = folder / "results" / "adapter"
    trained.mkdir()
    (trained / "run.json").write_text('{"method": "ss-grpo", "model": "tiny"}')
    steps = [{"step": n, "loss": 1 / n, "kl": 0.01 * n, "note": "x"} for n in range(1, 7)]
    (trained / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))


async def _fill_bank(data_dir: Path) -> None:
    bank = bank_in(data_dir)
    await bank.put(reflection("How does the cache evict?", "kept", f"- read {HOSTILE_TAG} first"))
    await bank.put(reflection("What is a heap?", "held", flags=("It gives orders to the reader.",)))
    await bank.put(reflection("Where is Rome?", "off"))
    await bank.disable("off", True)
