"""Who may make which request, decided before any route sees it.

A foreign page whose name is pointed at this host is refused by its Host, other sites by their
Origin, and their forms by a header that none can send without permission. The server requires its
token, or the cookie of a login, even on loopback, which every user of the machine can reach. Every
response forbids the page everything that it does not need. FastAPI bounds the sizes of bodies,
uvicorn connections and heads, `PunctualProtocol` how long they take; rates are a proxy's affair.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import urlsplit

import uvicorn
from fastapi import Depends, Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, h11  # type: ignore[attr-defined]

from rubricem.agent.serve.requests import Hide, RequestRefused, forbidden, reply_of
from rubricem.agent.settings.users import User, Users

CSRF_HEADER = "X-Rubricem"
KEY_HEADER = "X-Rubricem-Key"
"""with what a login gave the page beside the cookie: the page's storage is of its port alone"""
COOKIE, BOUND = "rubricem", "__Host-"
"""a browser takes a cookie whose name begins so by TLS alone, from this very host"""
GUARDED = ("/api/", "/v1/", "/mcp", "/metrics")
"""what is neither a static file nor a health check"""
PROGRAMS = ("/v1/", "/mcp")
"""used by programs that do not send our header; their bodies are JSON, which no form sends"""
OPEN = ("/api/login",)
"""allowed without the token"""
OWNERS = ("/metrics",)
"""only for the server's own token"""
OWNER = ""
USER = "rubricem.user"
"""of a request's scope: the name of its user, `OWNER` for whoever runs the server"""
SAFE = ("GET", "HEAD")
LOOPBACK = ("localhost", "127.0.0.1", "::1")

TICKET_SECONDS = 3600
GRACE = 3
MOST_CONNECTIONS, IDLE_SECONDS, MOST_HEAD = 512, 5, 65_536
"""open at once; that one may wait for its next request; bytes of a request before its body"""
BODY_SECONDS, LEAST_RATE, LOOK_SECONDS = 20, 16_384, 1.0
"""for a body, and one more for each so many bytes; between two looks at a connection"""

HEADERS: Mapping[bytes, bytes] = {
    b"content-security-policy": (
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        b"img-src 'self' data:; font-src 'self'; form-action 'none'; frame-ancestors 'none'; "
        b"base-uri 'none'"
    ),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True)
class Security:
    """What one server requires of its callers."""

    host: str = "127.0.0.1"
    token: str | None = field(default=None, repr=False)
    """None: no token is required"""
    port: int = 0
    """distinguishes its cookie from other servers' of this machine, as cookies ignore ports"""
    proxies: tuple[str, ...] = ()
    users: Users | None = field(default=None, repr=False)
    _tickets: dict[str, float] = field(default_factory=dict, repr=False)

    @property
    def alone(self) -> bool:
        """Whether only this machine can reach it."""
        number = address_in(self.host)
        return self.host in LOOPBACK or (number is not None and number.is_loopback)

    @property
    def cookie_name(self) -> str:
        return f"{COOKIE}-{self.port}" if self.port else COOKIE

    def ticket(self) -> str:
        """A single-use substitute for the token, to put in a link."""
        made = secrets.token_urlsafe(32)
        self._tickets[made] = time.monotonic() + TICKET_SECONDS
        return made

    def enters(self, given: str) -> str | None:
        """Whose token this is; "" also for a ticket, which is used up."""
        ticket = self._tickets.pop(given, 0.0) > time.monotonic()
        return OWNER if ticket else self.whose(given)

    def whose(self, token: str) -> str | None:
        """The user of a token, told in a time that depends on its length alone; None: nobody's."""
        if self.token is None or hmac.compare_digest(token.encode(), self.token.encode()):
            return OWNER
        return self.users.by_token(token) if self.users else None

    def cookie(self, name: str = OWNER) -> str:
        """The cookie for a browser that has shown a token; it reveals nothing of the token."""
        return self._derive(name, self.cookie_name)

    def key(self, name: str = OWNER) -> str:
        """What its page keeps and sends besides: a cookie goes to every port of this machine."""
        return self._derive(name, f"{self.cookie_name} page")

    def _derive(self, name: str, use: str) -> str:
        if name:
            return f"{name}:{self._known()[name].derive(use)}"
        return hmac.new((self.token or "").encode(), use.encode(), hashlib.sha256).hexdigest()

    def _known(self) -> Mapping[str, User]:
        return self.users.all() if self.users else {}

    def check(self, method: str, path: str, headers: Mapping[str, str]) -> str:
        """The user of the request; raises Refused if it is not allowed."""
        self._check_host(headers.get("host", ""))
        self._check_origin(path, headers)
        if not path.startswith(GUARDED):
            return OWNER
        self._check_form(method, path, headers)
        who = self._who(headers)
        if who is None and path not in OPEN:
            remedy = (
                "Log in with the token in serve-token of the data directory, "
                "or send it as Authorization: Bearer."
            )
            raise RequestRefused(401, "This server requires its token.", remedy)
        if who and path.startswith(OWNERS):
            raise forbidden("Only whoever runs the server may do this.", "Ask them for it.")
        return OWNER if path in OPEN else who or OWNER

    def _check_host(self, host: str) -> None:
        name = host.strip().casefold()
        name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
        # A name can be pointed at any address by its owner, a number cannot.
        elsewhere = not self.alone and address_in(name) is not None
        if name not in (*LOOPBACK, self.host.casefold()) and not elsewhere:
            raise forbidden(
                f"This server is not called {name[:80]!r}.",
                "Open it by the address that rubricem serve printed, or name this one by --host.",
            )

    def _check_origin(self, path: str, headers: Mapping[str, str]) -> None:
        origin = headers.get("origin")
        foreign = origin is not None
        with suppress(ValueError):
            foreign = foreign and urlsplit(str(origin)).netloc != headers.get("host", "")
        asked_elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if foreign or (asked_elsewhere and path.startswith(GUARDED)):
            said = "This request came from a page of another site."
            raise forbidden(said, "Use the page that this server shows.")

    def _check_form(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        if path.startswith(PROGRAMS):
            kind = headers.get("content-type", "").partition(";")[0].strip().casefold()
            if method == "POST" and kind != "application/json":
                said = "The body is not declared as JSON."
                raise RequestRefused(415, said, "Send Content-Type: application/json.")
        elif method not in SAFE and headers.get(CSRF_HEADER.casefold()) != "1":
            remedy = f"Send {CSRF_HEADER}: 1 with every request that changes something."
            raise forbidden(f"The header {CSRF_HEADER} is missing.", remedy)

    def _who(self, headers: Mapping[str, str]) -> str | None:
        """Whose token or cookie came with it; None: nobody's."""
        if self.token is None:
            return OWNER
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.casefold() == "bearer" and (named := self.whose(given.strip())) is not None:
            return named
        name = self.cookie_name
        shown = _cookie(headers, BOUND + name) or _cookie(headers, name)
        user, colon, _ = shown.partition(":")
        who = user if colon else OWNER
        proofs = (shown, headers.get(KEY_HEADER.casefold(), ""))
        if (colon and who not in self._known()) or not all(map(str.isascii, proofs)):
            return None
        fits = map(hmac.compare_digest, proofs, (self.cookie(who), self.key(who)))
        return who if all(fits) else None

    def config(self, app: ASGIApp, **more: Any) -> uvicorn.Config:
        """The configuration of uvicorn; forwarded headers count only from a named proxy."""
        return uvicorn.Config(
            app,
            http=PunctualProtocol,
            h11_max_incomplete_event_size=MOST_HEAD,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=IDLE_SECONDS,
            ws="none",
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=GRACE,
            proxy_headers=bool(self.proxies),
            forwarded_allow_ips=list(self.proxies),
            **more,
        )


async def security_of(request: Request) -> Security:
    """What the server requires."""
    found: Security = request.app.state.security
    return found


SecurityInForce = Annotated[Security, Depends(security_of)]


def _cookie(headers: Mapping[str, str], name: str) -> str:
    # Not by http.cookies, which takes the square of a value of quotation marks; ours has none.
    pairs = (each.strip().partition("=") for each in headers.get("cookie", "").split(";"))
    return next((value for key, _, value in pairs if key == name), "")


def address_in(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address if a host is given as one; None for a name."""
    with suppress(ValueError):
        return ipaddress.ip_address(host)
    return None


class PunctualProtocol(H11Protocol):
    """Ends a connection whose request comes too slowly, or whose place another one needs.

    uvicorn alone waits without end for a head, for a body, and for the rest of a refused one.
    """

    _stage: tuple[object, ...] = ()
    _since, _come = 0.0, 0
    """when what it waits for now began, and the bytes that came of it"""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        ours = (each for each in self.connections if isinstance(each, PunctualProtocol))
        strangers = [each for each in ours if each._is_strange]
        if len(self.connections) >= MOST_CONNECTIONS - 1 and strangers:
            longest = min(strangers, key=lambda each: each._since)
            # It would count, and could be chosen again, until the loop has closed it.
            self.connections.discard(longest)
            longest.transport.abort()
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        self._come += len(data)
        super().data_received(data)

    @property
    def _is_strange(self) -> bool:
        """Whether it waits for a request, or for a body that needs no token or was answered."""
        if self.conn.their_state is h11.IDLE:
            return True
        answered = self.cycle is not None and self.cycle.response_complete
        return self.conn.their_state is h11.SEND_BODY and (answered or self.scope["path"] in OPEN)

    def _look(self) -> None:
        if self.transport.is_closing():
            return
        now, state, strange = self.loop.time(), self.conn.their_state, self._is_strange
        if self._stage != (stage := (self.cycle, state, strange)):
            self._stage, self._since, self._come = stage, now, 0
        seconds = IDLE_SECONDS if strange else BODY_SECONDS + self._come / LEAST_RATE
        if state not in (h11.IDLE, h11.SEND_BODY) or now - self._since < seconds:
            self.loop.call_later(LOOK_SECONDS, self._look)
        elif self.conn.our_state is h11.SEND_RESPONSE:
            self.send_400_response("The body came too slowly.")
        else:
            self.transport.close()


LIMITS = "See the addresses and limits in the documentation."
TOO_LARGE, PLAIN = RequestRefused(413, "Content Too Large.", LIMITS), "text/plain"
"""what the framework says of a body in a form that is no client's"""


class Guard:
    """Passes on the requests that `Security` allows, and adds our headers to every response."""

    def __init__(self, app: ASGIApp, security: Security) -> None:
        self._app, self._security = app, security

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        added = {**HEADERS, b"cache-control": b"no-store"} if path.startswith(GUARDED) else HEADERS
        large = JSONResponse(*reply_of(TOO_LARGE, path))
        replaced = False

        async def send_guarded(message: Message) -> None:
            nonlocal replaced
            if message["type"] == "http.response.start":
                plain = Headers(raw=message["headers"]).get("content-type", "").startswith(PLAIN)
                if replaced := plain and message["status"] == TOO_LARGE.status:
                    message["headers"] = large.raw_headers
                kept = [(name, value) for name, value in message["headers"] if name not in added]
                message["headers"] = [*kept, *added.items()]
            elif replaced:
                message["body"] = large.body
            await send(message)

        app = self._app
        try:
            scope[USER] = self._security.check(scope["method"], path, Headers(scope=scope))
        except RequestRefused as refused:
            app = JSONResponse(*reply_of(refused, path))
        await app(scope, receive, send_guarded)


TEXTS = ("text/", "application/json")
NAMING = ("/api/status",)
"""what a question may name, which is sent back as it is: a model may be a file"""


class Redactor:
    """Tells whoever is not the server's owner no folder and no key of it, whatever they asked."""

    def __init__(self, app: ASGIApp, hides: Callable[[Scope], Hide]) -> None:
        self._app, self._hides = app, hides

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hide, path = list[Hide](), scope.get("path", "")

        async def send_hidden(message: Message) -> None:
            if message["type"] == "http.response.start":
                head = MutableHeaders(scope=message)
                if head.get("content-type", "").startswith(TEXTS):
                    hide.append(self._hides(scope))
                    del head["content-length"]
            elif hide and (body := message.get("body")):
                text = hide[0](body.decode("utf-8", "surrogateescape"))
                message["body"] = text.encode("utf-8", "surrogateescape")
            await send(message)

        told = (scope.get(USER) or path.startswith(PROGRAMS)) and path not in NAMING
        await self._app(scope, receive, send_hidden if told else send)
