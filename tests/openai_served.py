"""The whole served app behind real uvicorn, for clients of OpenAI's interface."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openai import OpenAI

from agent.serve.app import create_app
from agent.serve.desk import RunDesk
from agent.serve.security import Security
from agent.settings import Settings
from tests.scripted_server import Script, ScriptedServer
from tests.tool_servers import serving_http

QUESTION = "What does lru_cache do with maxsize None?"
REPORT = "It is an unbounded cache [1]."


@contextmanager
def served(
    script: Script, folder: Path, security: Security | None = None, **more: Any
) -> Iterator[tuple[str, RunDesk, ScriptedServer]]:
    """Address of the interface, the desk, and the model's server with its requests."""
    documents = folder / "documents"
    documents.mkdir(exist_ok=True)
    (documents / "cache.md").write_text(
        "# lru_cache\n\nIf maxsize is None, lru_cache is an unbounded cache.\n"
    )
    with ScriptedServer(script) as model:
        chosen = {"base_url": model.base_url, "model": "scripted", "source": (str(documents),)}
        settings = Settings(**{**chosen, "data_dir": folder / "data", **more})
        desk = RunDesk(settings)
        with serving_http(create_app(desk, security or Security())) as address:
            yield f"{address}/v1", desk, model


@contextmanager
def client(script: Script, folder: Path, **more: Any) -> Iterator[OpenAI]:
    """An unmodified client of a server; with none of its own tries over again."""
    with (
        served(script, folder, **more) as (address, _, _),
        OpenAI(base_url=address, api_key="none", max_retries=0) as made,
    ):
        yield made
