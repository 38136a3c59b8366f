"""A bare application around some routers, with errors told as the server tells them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse

from agent.serve.refusals import body_of, status_of
from memory.errors import RubricemError


@asynccontextmanager
async def served(*routers: APIRouter) -> AsyncIterator[httpx.AsyncClient]:
    """A client of these routers alone; their beginning and end are those of a server."""
    app = FastAPI()
    for router in routers:
        app.include_router(router)

    async def tell(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RubricemError)
        return JSONResponse(body_of(error), status_of(error))

    app.add_exception_handler(RubricemError, tell)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://server") as client,
    ):
        yield client
