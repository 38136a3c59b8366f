"""The web application: routes over the desk, the page's static files, the guard before both."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from agent.protocols import openai_completions, openai_responses
from agent.serve import (
    inspection,
    routes_learning,
    routes_mcp,
    routes_runs,
    routes_status,
    routes_threads,
    routes_work,
)
from agent.serve.desk import RunDesk
from agent.serve.guard import Guard
from agent.serve.refusals import body_of, status_of
from agent.serve.security import Security
from memory.errors import RubricemError

ROUTERS: tuple[Callable[[RunDesk], APIRouter], ...] = (
    routes_runs.router,
    routes_work.router,
    routes_threads.router,
    routes_learning.router,
    openai_completions.router,
    openai_responses.router,
    routes_mcp.router,
)
"""what is served over the desk alone; a new module of routes is added here"""


def create_app(desk: RunDesk, security: Security, results: Sequence[Path] = ()) -> FastAPI:
    """The application; its lifespan opens and closes the desk.

    `results`: folders with collected or trained runs that are shown, too.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with desk.open():
            yield

    app = FastAPI(
        title="rubricem", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None
    )
    app.add_middleware(Guard, security=security)
    app.include_router(routes_status.router(desk, security))
    for router in ROUTERS:
        app.include_router(router(desk))
    app.include_router(inspection.router(desk, results))
    _tell_errors(app)
    _mount_page(app)
    return app


def _mount_page(app: FastAPI) -> None:
    folder = Path(str(files("agent.serve") / "static"))

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(folder / "index.html", headers={"Cache-Control": "no-cache"})

    app.mount("/static", StaticFiles(directory=folder), name="static")


def _tell_errors(app: FastAPI) -> None:
    """Every error is a sentence and a remedy, and never a trace."""

    @app.exception_handler(RubricemError)
    async def ours(request: Request, error: RubricemError) -> JSONResponse:
        return JSONResponse(body_of(error), status_of(error))

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            body = {"error": "The body is not valid JSON.", "remedy": "Send one JSON object."}
            return JSONResponse(body, HTTPStatus.BAD_REQUEST)
        place = ".".join(str(part) for part in first["loc"][1:]) or "the body"
        body = {"error": f"{place}: {first['msg']}.", "remedy": f"Correct {place}."}
        return JSONResponse(body, HTTPStatus.UNPROCESSABLE_ENTITY)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        phrase = HTTPStatus(error.status_code).phrase
        body = {"error": f"{phrase}.", "remedy": "See the list of addresses in the documentation."}
        return JSONResponse(body, error.status_code, headers=error.headers)

    @app.exception_handler(Exception)
    async def fault(request: Request, error: Exception) -> JSONResponse:
        body = {
            "error": "rubricem itself failed at this request.",
            "remedy": "What happened stands where rubricem serve was started; please report it.",
        }
        return JSONResponse(body, HTTPStatus.INTERNAL_SERVER_ERROR)
