"""The middleware in front of all routes: checks a request, counts its body, sends our headers."""

import json
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.protocols.openai_errors import error_of
from agent.serve.refusals import Refused, body_of
from agent.serve.security import GUARDED, HEADERS, Security, too_large

OPENAI = "/v1/"


class Guard:
    """Lets through what `Security` lets through."""

    def __init__(self, app: ASGIApp, security: Security) -> None:
        self._app = app
        self._security = security

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sender = _Sender(send, data=scope["path"].startswith(GUARDED))
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        client = (scope.get("client") or ("",))[0]
        try:
            self._security.check(scope["method"], scope["path"], headers, client)
            counted = _Counted(receive, self._security.most(scope["path"]))
            await self._app(scope, counted, sender)
        except Refused as refused:
            if sender.begun:
                raise
            await _refuse(sender, refused, scope["path"])


class _Sender:
    """Sends on, with our headers."""

    def __init__(self, send: Send, data: bool) -> None:
        self._send = send
        self._added = [*HEADERS.items(), *([(b"cache-control", b"no-store")] if data else [])]
        self.begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            added = dict(self._added)
            kept = [(name, value) for name, value in message["headers"] if name not in added]
            message["headers"] = [*kept, *added.items()]
        await self._send(message)


class _Counted:
    """Receives a body up to its limit."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self._most = most
        self._read = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._read += len(message.get("body", b""))
        if self._read > self._most:
            raise too_large(self._most)
        return message


async def _refuse(send: _Sender, refused: Refused, path: str) -> None:
    openai = path.startswith(OPENAI)
    body = json.dumps({"error": error_of(refused)} if openai else body_of(refused)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if refused.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        # What is left of the body is not read.
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
