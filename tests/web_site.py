"""The web page as a browser gets it: the real server on loopback, over a scripted model."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from agent.serve.app import create_app
from agent.serve.desk import RunDesk
from agent.serve.security import Security
from agent.settings import Settings
from tests.scripted_server import ScriptedServer
from tests.web_scripts import DOCUMENTS, reply


@dataclass(frozen=True)
class Site:
    """A running server."""

    url: str
    settings: Settings
    model: ScriptedServer


def settings(folder: Path, model: ScriptedServer) -> Settings:
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
        memory="off",
    )


@contextmanager
def website(folder: Path, token: str | None = None) -> Iterator[Site]:
    """A server of the page, in a thread with a loop of its own, while the context lasts."""
    with ScriptedServer(reply) as model:
        chosen = settings(folder, model)
        desk = RunDesk(chosen)
        app = create_app(desk, Security(token=token))
        config = uvicorn.Config(
            app, port=0, log_level="error", lifespan="on", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=asyncio.run, args=(server.serve(),), daemon=True)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the server did not start"
                thread.join(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            yield Site(f"http://127.0.0.1:{port}/", chosen, model)
        finally:
            desk.closing.set()
            server.should_exit = True
            thread.join()
