"""Where a server can be opened from, and what is said of that when it starts.

One that listens on all addresses is told by those that this machine has in its networks: nobody
elsewhere can open 0.0.0.0 or a loopback address.
"""

import ipaddress
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent.serve.security import Security

ELSEWHERE = ((socket.AF_INET, "198.51.100.1"), (socket.AF_INET6, "2001:db8::1"))
"""kept for documentation, so nobody's: the routing table is asked, and nothing is sent"""
NOT_FOUND = "No address of this machine in a network was found; that one opens it here alone."
WARNING = (
    "Warning: others can reach this server. Whoever has its token can do everything here, and "
    "without TLS whoever is on the way can read the token."
)


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine as others can call it."""

    name: str = ""
    """"" where its name does not lead to one of its addresses"""
    addresses: tuple[str, ...] = ()
    """numbers, the one that is used most first"""

    @classmethod
    def found(cls) -> "Machine":
        name = socket.gethostname()
        return cls.of(name, _resolved(name), list(_routed()))

    @classmethod
    def of(cls, name: str, named: Sequence[str], routed: Sequence[str]) -> "Machine":
        """From what its name leads to, and the addresses that it shows to others."""
        addresses = tuple(dict.fromkeys(filter(_is_outward, [*routed, *named])))
        known = any(address in addresses for address in named)
        return cls(name.casefold() if known else "", addresses)


def listens_everywhere(host: str) -> bool:
    """Whether what listens there can be opened by any address of the machine."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_unspecified
    return not host


def places(host: str, port: int, machine: Machine) -> list[str]:
    """The addresses by which a server on `host` is opened; at least one."""
    if not listens_everywhere(host):
        return [_link("127.0.0.1" if host == "localhost" else host, port)]
    # What listens on :: mostly takes both families, what listens on 0.0.0.0 never does.
    own = [a for a in machine.addresses if ":" not in a or ":" in host]
    names = [machine.name] if machine.name and own else []
    return [_link(each, port) for each in [*own, *names]] or [here(host, port)]


def here(host: str, port: int) -> str:
    """The address by which this machine itself opens it."""
    if not listens_everywhere(host):
        return places(host, port, Machine())[0]
    return _link("::1" if ":" in host else "127.0.0.1", port)


def announced(
    security: Security, port: int, machine: Machine, kept: Path, made: bool
) -> Iterator[str]:
    """What is said when the server starts, line by line.

    `kept`: the file of its token; `made`: whether that is new, and so is shown this once.
    """
    first, *others = places(security.host, port, machine)
    yield f"Serving on {first} (^C ends it; runs go on when it starts again)"
    yield from (f"and on {other}" for other in others)
    if security.token is None:
        return
    if listens_everywhere(security.host) and first == here(security.host, port):
        yield NOT_FOUND
    if made:
        yield f"Token: {security.token} (it is kept in {kept})"
        yield f"This link holds it: {first}#token={security.token}"
    else:
        yield f"A token is asked for; it is kept in {kept}"
    yield WARNING


def _routed() -> Iterator[str]:
    """The address that this machine shows to what lies beyond its networks, of each family."""
    for family, elsewhere in ELSEWHERE:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((elsewhere, 9))
            yield str(probe.getsockname()[0])


def _resolved(name: str) -> list[str]:
    with suppress(OSError, UnicodeError):
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        return [str(address[0]) for *_, address in found]
    return []


def _is_outward(address: str) -> bool:
    with suppress(ValueError):
        number = ipaddress.ip_address(address)
        return not (number.is_loopback or number.is_link_local or number.is_unspecified)
    return False


def _link(host: str, port: int) -> str:
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
