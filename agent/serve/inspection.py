"""What of a server's data directory is looked at: its bank, judgements, reports, uploads, results.

What was collected and trained is told by the room to the left, and therefore named by string.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from fastapi import APIRouter

from agent.banking import open_bank
from agent.learning import local_model
from agent.serve import routes_bank, routes_exports, routes_judge, routes_uploads
from agent.serve.desk import RunDesk
from judge.building import LocalModel

RESULTS = "training.serve_routes"
"""its `router` takes the data directory and further folders"""


def router(desk: RunDesk, results: Sequence[Path] = ()) -> APIRouter:
    """All of these routes; `results`: further folders with collected or trained runs."""
    settings = desk.settings
    bank = open_bank(settings)

    def shared() -> LocalModel | None:
        policy = desk.researchers.policy
        return local_model(policy) if policy else None

    routes = APIRouter()
    routes.include_router(routes_bank.router(bank))
    routes.include_router(routes_judge.router(settings, bank, shared))
    routes.include_router(routes_exports.router(settings))
    routes.include_router(routes_uploads.router(settings.data_dir))
    routes.include_router(import_module(RESULTS).router(settings.data_dir, results))
    return routes
