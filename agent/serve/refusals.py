"""What the server refuses: a sentence, a remedy, and the HTTP status that says of what kind.

Under `/v1/` the same stands in the form in which clients of OpenAI's interface read errors.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from rubricem.memory.errors import RubricemError, SettingsError, StoreError


class RequestRefused(RubricemError):
    """A request that is not carried out; nothing was changed by it."""

    def __init__(self, status: int, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.status = status


def unknown_run(run: str) -> RequestRefused:
    message = f"There is no run {run[:80]!r}, or its folder was deleted."
    return RequestRefused(
        HTTPStatus.NOT_FOUND, message, "GET /api/runs lists those that there are."
    )


@contextmanager
def unknown_thread() -> Iterator[None]:
    """Whoever asks for a thread that is not there is told that there is none (404)."""
    try:
        yield
    except SettingsError as error:
        raise RequestRefused(HTTPStatus.NOT_FOUND, str(error), error.remedy) from error


def conflict(message: str, remedy: str = "") -> RequestRefused:
    return RequestRefused(HTTPStatus.CONFLICT, message, remedy)


def too_many(message: str, remedy: str) -> RequestRefused:
    return RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, message, remedy)


def status_of(error: RubricemError) -> int:
    """The status of any of our errors: what was asked wrongly, or what failed here."""
    if isinstance(error, RequestRefused):
        return error.status
    if isinstance(error, SettingsError):
        return HTTPStatus.UNPROCESSABLE_ENTITY
    if isinstance(error, StoreError):
        return HTTPStatus.INTERNAL_SERVER_ERROR
    return HTTPStatus.BAD_GATEWAY


def body_of(error: RubricemError) -> dict[str, str]:
    return {"error": str(error), "remedy": error.remedy}


class Unfit(RequestRefused):
    """A request that this server cannot mean; `param` names the field at fault."""

    def __init__(
        self,
        message: str,
        param: str | None = None,
        code: str | None = None,
        status: int = HTTPStatus.BAD_REQUEST,
    ) -> None:
        super().__init__(status, message)
        self.param = param
        self.code = code


def error_of(error: RubricemError) -> dict[str, Any]:
    """`{"message", "type", "param", "code"}`."""
    status = openai_status(error)
    kind = "invalid_request_error"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        kind = "rate_limit_error"
    elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        kind = "server_error"
    known = error if isinstance(error, Unfit) else None
    return {
        "message": error.told(),
        "type": kind,
        "param": known.param if known else None,
        "code": known.code if known else None,
    }


def openai_status(error: RubricemError) -> int:
    """What cannot be asked is 400 here."""
    asked_wrongly = isinstance(error, SettingsError) and not isinstance(error, RequestRefused)
    return HTTPStatus.BAD_REQUEST if asked_wrongly else status_of(error)


class OpenAIRoute(APIRoute):
    """A route whose refusals are told in OpenAI's form."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        handle = super().get_route_handler()

        async def told(request: Request) -> Response:
            try:
                return await handle(request)
            except RubricemError as error:
                body = {"error": error_of(error)}
                return JSONResponse(body, openai_status(error))
            except RequestValidationError as error:
                first = error.errors()[0]
                place = ".".join(str(part) for part in first["loc"][1:])
                unfit = Unfit(f"{place}: {first['msg']}.", place)
                if first["type"] == "json_invalid" or not place:
                    unfit = Unfit("The body must be a JSON object.")
                return JSONResponse({"error": error_of(unfit)}, HTTPStatus.BAD_REQUEST)

        return told
