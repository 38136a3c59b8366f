"""What the server refuses: a sentence, a remedy, and the HTTP status that says of what kind.

Under `/v1/` the same stands in the form in which clients of OpenAI's interface read errors.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any

from rubricem.memory.errors import RubricemError, SettingsError, StoreError
from rubricem.memory.runs import RunStore

OPENAI = "/v1/"


class RequestRefused(RubricemError):
    """A request that is not carried out; nothing was changed by it."""

    def __init__(
        self,
        status: int,
        message: str,
        remedy: str = "",
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        """`param` and `code` are told to clients of OpenAI: the field at fault, and the fault."""
        super().__init__(message, remedy)
        self.status = status
        self.param = param
        self.code = code


def missing(message: str, remedy: str) -> RequestRefused:
    return RequestRefused(HTTPStatus.NOT_FOUND, message, remedy)


def unknown_run(run: str) -> RequestRefused:
    message = f"There is no run {run[:80]!r}, or its folder was deleted."
    return missing(message, "GET /api/runs lists those that there are.")


def check_known(store: RunStore, run: str) -> None:
    """Raise Refused (404) where no run has this key. Reads files."""
    with suppress(SettingsError):
        if store.holds(run):
            return
    raise unknown_run(run)


@contextmanager
def refuse_as(status: int) -> Iterator[None]:
    """What cannot be here is the fault of what was asked: no such thread, an item just replaced."""
    try:
        yield
    except SettingsError as error:
        raise RequestRefused(status, str(error), error.remedy) from error


def conflict(message: str, remedy: str = "") -> RequestRefused:
    return RequestRefused(HTTPStatus.CONFLICT, message, remedy)


def too_many(message: str, remedy: str) -> RequestRefused:
    return RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, message, remedy)


def unfit(
    message: str,
    param: str | None = None,
    code: str | None = None,
    status: int = HTTPStatus.BAD_REQUEST,
) -> RequestRefused:
    """A request that this server cannot mean."""
    return RequestRefused(status, message, param=param, code=code)


def reply_of(error: RubricemError, path: str) -> tuple[dict[str, Any], int]:
    """The body and the status that end a request of this path."""
    status: int = HTTPStatus.BAD_GATEWAY
    if isinstance(error, RequestRefused):
        status = error.status
    elif isinstance(error, SettingsError):
        # What cannot be asked has one status in OpenAI's interface.
        openai = path.startswith(OPENAI)
        status = HTTPStatus.BAD_REQUEST if openai else HTTPStatus.UNPROCESSABLE_ENTITY
    elif isinstance(error, StoreError):
        status = HTTPStatus.INTERNAL_SERVER_ERROR
    if not path.startswith(OPENAI):
        return {"error": str(error), "remedy": error.remedy}, status
    kind = "invalid_request_error"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        kind = "rate_limit_error"
    elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        kind = "server_error"
    known = error if isinstance(error, RequestRefused) else None
    told = {
        "message": error.told(),
        "type": kind,
        "param": known.param if known else None,
        "code": known.code if known else None,
    }
    return {"error": told}, status
