"""What the server refuses: a sentence, a remedy, and the HTTP status that says of what kind."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from memory.errors import RubricemError, SettingsError, StoreError


class Refused(RubricemError):
    """A request that is not carried out; nothing was changed by it."""

    def __init__(self, status: int, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.status = status


def unknown_run(run: str) -> Refused:
    message = f"There is no run {run[:80]!r}, or its folder was deleted."
    return Refused(HTTPStatus.NOT_FOUND, message, "GET /api/runs lists those that there are.")


@contextmanager
def unknown_thread() -> Iterator[None]:
    """Whoever asks for a thread that is not there is told that there is none (404)."""
    try:
        yield
    except SettingsError as error:
        raise Refused(HTTPStatus.NOT_FOUND, str(error), error.remedy) from error


def conflict(message: str, remedy: str = "") -> Refused:
    return Refused(HTTPStatus.CONFLICT, message, remedy)


def too_many(message: str, remedy: str) -> Refused:
    return Refused(HTTPStatus.TOO_MANY_REQUESTS, message, remedy)


def status_of(error: RubricemError) -> int:
    """The status of any of our errors: what was asked wrongly, or what failed here."""
    if isinstance(error, Refused):
        return error.status
    if isinstance(error, SettingsError):
        return HTTPStatus.UNPROCESSABLE_ENTITY
    if isinstance(error, StoreError):
        return HTTPStatus.INTERNAL_SERVER_ERROR
    return HTTPStatus.BAD_GATEWAY


def body_of(error: RubricemError) -> dict[str, str]:
    return {"error": str(error), "remedy": error.remedy}
