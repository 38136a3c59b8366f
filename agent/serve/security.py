"""Who may ask the server what, decided before any route sees a request.

Host       only names of this host: a page elsewhere whose name is pointed here is refused
Origin     only our own, where one is sent; other sites' requests of data are refused
CSRF       changing requests carry a header that no other site can send without being let to
token      where the server can be reached from elsewhere: a bearer token, or the cookie of a login
limits     sizes of bodies, and requests of one address within a time

A refusal is a sentence and a remedy. Every reply forbids the page all that it does not need.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from agent.serve.rates import Rates
from agent.serve.refusals import Refused, too_many

CSRF_HEADER = "X-Rubricem"
COOKIE = "rubricem"
GUARDED = ("/api/", "/v1/", "/mcp")
"""what is not a static file"""
PROGRAMS = ("/v1/", "/mcp")
"""what programs speak that know no header of ours; their bodies are JSON, which no form sends"""
OPEN = ("/api/login",)
"""what can be asked without the token"""
SAFE = ("GET", "HEAD")
LOOPBACK = ("localhost", "127.0.0.1", "::1")

HEADERS: Mapping[bytes, bytes] = {
    b"content-security-policy": (
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        b"img-src 'self' data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
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
    """What one server requires of those who ask it."""

    host: str = "127.0.0.1"
    """what it listens on"""
    token: str | None = field(default=None, repr=False)
    """None: only this machine can reach it, and no token is asked for"""
    names: tuple[str, ...] = ()
    """what this machine is called in its networks, where the server listens in all of them"""
    most_body: int = 1 << 20
    """bytes"""
    bodies: Mapping[str, int] = field(default_factory=lambda: {"/api/uploads": 201_000_000})
    """paths whose bodies may have another size"""
    rates: Rates = field(default_factory=Rates)

    def admits(self, token: str) -> bool:
        """Whether this is the token; takes as long for any of the same length."""
        return self.token is None or hmac.compare_digest(token.encode(), self.token.encode())

    def cookie(self) -> str:
        """What a browser is given that has shown the token; it says nothing of the token."""
        return hmac.new((self.token or "").encode(), b"rubricem cookie", hashlib.sha256).hexdigest()

    def most(self, path: str) -> int:
        """Bytes that the body of a request may have."""
        return self.bodies.get(path, self.most_body)

    def check(self, method: str, path: str, headers: Mapping[str, str], client: str) -> None:
        """Raise Refused where the request is not to be carried out."""
        self._check_host(headers.get("host", ""))
        self._check_origin(path, headers)
        if not self.rates.allow(client, changing=method not in SAFE):
            raise too_many("Too many requests came at once.", "Wait a few seconds.")
        if not path.startswith(GUARDED):
            return
        self._check_form(method, path, headers)
        self._check_token(path, headers)
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self.most(path):
            raise too_large(self.most(path))

    def _check_host(self, host: str) -> None:
        name = _name_in(host)
        if name in (*LOOPBACK, *self.names, self.host.casefold()):
            return
        # A name can be pointed at any address by its owner, a number cannot.
        if self.token is not None and _is_address(name):
            return
        raise Refused(
            HTTPStatus.FORBIDDEN,
            f"This server is not called {name[:80]!r}.",
            "Open it by the address that rubricem serve printed, or name this one by --host.",
        )

    def _check_origin(self, path: str, headers: Mapping[str, str]) -> None:
        origin = headers.get("origin")
        foreign = origin is not None and _place_of(origin) != headers.get("host", "")
        asked_elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if foreign or (asked_elsewhere and path.startswith(GUARDED)):
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "A page of another site asked for this.",
                "Use the page that this server shows.",
            )

    def _check_form(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        if method in SAFE:
            return
        if path.startswith(PROGRAMS):
            kind = headers.get("content-type", "").partition(";")[0].strip().casefold()
            if method == "POST" and kind != "application/json":
                raise Refused(
                    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                    "The body is not said to be JSON.",
                    "Send Content-Type: application/json.",
                )
        elif headers.get(CSRF_HEADER.casefold()) != "1":
            raise Refused(
                HTTPStatus.FORBIDDEN,
                f"The header {CSRF_HEADER} is missing.",
                f"Send {CSRF_HEADER}: 1 with every request that changes something.",
            )

    def _check_token(self, path: str, headers: Mapping[str, str]) -> None:
        if self.token is None or path in OPEN:
            return
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.casefold() == "bearer" and self.admits(given.strip()):
            return
        if hmac.compare_digest(_cookie_in(headers.get("cookie", "")), self.cookie()):
            return
        raise Refused(
            HTTPStatus.UNAUTHORIZED,
            "This server asks for its token.",
            "Log in with what rubricem serve printed, or send Authorization: Bearer and it.",
        )


def too_large(most: int) -> Refused:
    return Refused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"The body is too large: at most {most:,} bytes are read here.",
        "Put long material into a folder and name it as a source.",
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    if host in LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _name_in(host: str) -> str:
    """The name or address in a Host header, without its port and brackets."""
    name = host.strip().casefold()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0]


def _place_of(origin: str) -> str | None:
    """Host and port of an origin; None for what is none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _cookie_in(header: str) -> str:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    value = found.value if found else ""
    return value if value.isascii() else ""
