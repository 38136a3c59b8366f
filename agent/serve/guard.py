"""The middleware in front of all routes: checks a request, counts its body, sends our headers."""

import json
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.protocols.openai_errors import error_of
from agent.serve.refusals import Refused, body_of
from agent.serve.security import GUARDED, HEADERS, Security, too_large

OPENAI = "/v1/"
"""what is refused there is told as clients of OpenAI's interface read it"""
DISCARDED = 16
"""times its limit of a body is read and thrown away before the connection is closed"""


class Guard:
    """Lets through what `Security` lets through."""

    def __init__(self, app: ASGIApp, security: Security) -> None:
        self._app = app
        self._security = security

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sender = _Sender(send, scope["path"])
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        client = (scope.get("client") or ("",))[0]
        try:
            self._security.check(scope["method"], scope["path"], headers, client)
        except Refused as refused:
            if refused.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                await _discard(receive, DISCARDED * self._security.most(scope["path"]))
            await sender.refuse(refused)
            return
        await self._app(
            scope, _Counted(receive, self._security.most(scope["path"]), sender), sender
        )


class _Sender:
    """Sends on, with our headers."""

    def __init__(self, send: Send, path: str) -> None:
        data = path.startswith(GUARDED)
        self._openai = path.startswith(OPENAI)
        self._send = send
        self._added = [*HEADERS.items(), *([(b"cache-control", b"no-store")] if data else [])]
        self._begun = False
        self._refused = False

    async def __call__(self, message: Message) -> None:
        if self._refused:
            return
        if message["type"] == "http.response.start":
            self._begun = True
            added = dict(self._added)
            kept = [(name, value) for name, value in message["headers"] if name not in added]
            message["headers"] = [*kept, *added.items()]
        await self._send(message)

    async def refuse(self, refused: Refused) -> None:
        """Say why, in the place of whatever the application has to say, if it has not begun."""
        if self._begun or self._refused:
            return
        told = {"error": error_of(refused)} if self._openai else body_of(refused)
        body = json.dumps(told).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if refused.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            # What is left of the body is not read.
            headers.append((b"connection", b"close"))
        start = {"type": "http.response.start", "status": refused.status, "headers": headers}
        await self(start)
        await self({"type": "http.response.body", "body": body})
        self._refused = True


class _Counted:
    """Receives a body up to its limit; beyond, the client is as good as gone."""

    def __init__(self, receive: Receive, most: int, sender: _Sender) -> None:
        self._receive = receive
        self._most = most
        self._sender = sender
        self._read = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._read += len(message.get("body", b""))
        if self._read <= self._most:
            return message
        if message.get("more_body"):
            await _discard(self._receive, DISCARDED * self._most)
        await self._sender.refuse(too_large(self._most))
        return {"type": "http.disconnect"}


async def _discard(receive: Receive, most: int) -> None:
    """Read on without keeping anything: who is cut off while they send does not hear why."""
    read = 0
    while read < most:
        message = await receive()
        read += len(message.get("body", b""))
        if not message.get("more_body"):
            return
