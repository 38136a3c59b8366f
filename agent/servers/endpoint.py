"""The address of an OpenAI-compatible server, apart from the credentials in it."""

import base64
import ipaddress
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from memory.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server is. `url` and `host` are fit to be shown: they carry no credentials."""

    url: str
    """scheme, host, port and path, without a last slash"""
    host: str
    """host and port"""
    loopback: bool
    basic: str | None = field(default=None, repr=False)
    """the Authorization header that a user name and password in the address ask for"""

    @classmethod
    def parse(cls, base_url: str) -> "Endpoint":
        """Raises SettingsError, without repeating the address, if it is no http(s) address."""
        parts, host, port = _split(base_url)
        if parts.scheme not in ("http", "https") or not host:
            raise SettingsError(
                "the address of the model server is not an http or https address",
                "Give it like http://localhost:8080/v1.",
            )
        shown = f"[{host}]" if ":" in host else host
        place = shown if port is None else f"{shown}:{port}"
        basic = _basic(parts.username, parts.password or "") if parts.username else None
        url = f"{parts.scheme}://{place}{parts.path.rstrip('/')}"
        return cls(url, place, _is_loopback(host), basic)


def _split(base_url: str) -> tuple[SplitResult, str | None, int | None]:
    try:
        parts = urlsplit(base_url.strip())
        return parts, parts.hostname, parts.port
    except ValueError:
        return urlsplit(""), None, None


def _basic(user: str, password: str) -> str:
    pair = f"{unquote(user)}:{unquote(password)}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
