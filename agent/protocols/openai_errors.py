"""Errors in the form in which clients of OpenAI's interface read them."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from agent.serve.refusals import Refused, status_of
from memory.errors import RubricemError, SettingsError


class Unfit(Refused):
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
        "message": f"{error} {error.remedy}".strip(),
        "type": kind,
        "param": known.param if known else None,
        "code": known.code if known else None,
    }


def openai_status(error: RubricemError) -> int:
    """What cannot be asked is 400 here."""
    asked_wrongly = isinstance(error, SettingsError) and not isinstance(error, Refused)
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
                body = {"error": error_of(_malformed(error))}
                return JSONResponse(body, HTTPStatus.BAD_REQUEST)

        return told


def _malformed(error: RequestValidationError) -> Unfit:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:])
    if first["type"] == "json_invalid" or not place:
        return Unfit("The body must be a JSON object.")
    return Unfit(f"{place}: {first['msg']}.", place)
