"""Which addresses may be read, decided on what a name resolves to and not on how it looks.

A model chooses among addresses that strangers wrote, so a page must not lead to what only this
machine can reach: loopback, private and link-local networks, a cloud's metadata service. The
addresses that were checked are those connected to, since a name may resolve otherwise the next
time. A host that the user allowed may be private; link-local and metadata addresses are reached
only where the user named the very address.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import httpx

from memory.errors import SourceError

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""host and port -> its addresses as text; raises OSError where there is none"""
Address = IPv4Address | IPv6Address

PORTS = {"http": 80, "https": 443}
LONGEST = 2000
"""characters of an address"""

_ADDRESS = re.compile(r"https?://[^\s<>\"'`\\^{}|\[\]]+", re.I)
_TRAILING = ".,;:!?*"
_NAT64 = ip_network("64:ff9b::/96")
_PUBLIC_V6 = ip_network("2000::/3")
_PROTOCOLS = ip_network("192.0.0.0/24")
"""for protocols; some Pythons take most of it for public"""
_METADATA = frozenset(map(ip_address, ("169.254.169.254", "168.63.129.16", "fd00:ec2::254")))
"""metadata services; one of them has an address that is public by its number"""


@dataclass(frozen=True, slots=True)
class Target:
    """A page's address, and the checked numbers to connect to, in the order to try them."""

    url: httpx.URL
    numbers: tuple[str, ...]


def parsed(address: str) -> httpx.URL:
    """The address in its normal form, without fragment.

    Raises SourceError unless it is an http or https address of a host, without a password.
    """
    try:
        url = httpx.URL(address.strip()) if len(address) <= LONGEST else httpx.URL("")
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in PORTS or not url.host:
        raise SourceError("That is no web address.", "Give one that begins with https://.")
    if url.userinfo:
        raise SourceError("An address with a password in it is not opened.")
    return url.copy_with(fragment=None, path=url.path or "/")


@lru_cache(maxsize=1024)  # every passage that a search brings is asked for more than once
def normal(address: str) -> str:
    """What two spellings of one address have in common; "" for what is no web address."""
    try:
        return str(parsed(address))
    except SourceError:
        return ""


def addresses_in(text: str) -> list[str]:
    """The web addresses written in a text, each once."""
    found = (normal(_without_punctuation(match[0])) for match in _ADDRESS.finditer(text))
    return list(dict.fromkeys(filter(None, found)))


def _without_punctuation(address: str) -> str:
    """Without what ends the sentence it stands in; a bracket that it opens is its own."""
    address = address.rstrip(_TRAILING)
    while address.endswith(")") and address.count(")") > address.count("("):
        address = address[:-1].rstrip(_TRAILING)
    return address


async def resolved(host: str, port: int) -> Sequence[str]:
    """The `Resolve` of the system."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class AddressGuard:
    """Says where an address leads, or that it may not be read."""

    def __init__(self, allowed: Sequence[str] = (), resolve: Resolve = resolved) -> None:
        """`allowed`: hosts, or host:port, that may be private."""
        self._allowed = frozenset(entry.lower().rstrip(".") for entry in allowed)
        self._resolve = resolve

    async def target(self, address: str) -> Target:
        """The address with the numbers it may be reached at. Raises SourceError for none."""
        url = parsed(address)
        port = url.port or PORTS[url.scheme]
        try:
            texts = await self._resolve(url.raw_host.decode("ascii"), port)
        except (OSError, UnicodeError) as cause:
            raise SourceError(f"The host {url.host} is not known.") from cause
        numbers = tuple(dict.fromkeys(texts))
        # One private number among public ones is enough: it may be the one that answers.
        if not numbers or not all(self._may_reach(url.host, port, text) for text in numbers):
            raise SourceError(
                f"The host {url.host} is on this machine or in a private network, and is not named "
                "in allow_hosts.",
                "Name it there if it is yours and meant to be read.",
            )
        return Target(url, numbers)

    def _may_reach(self, host: str, port: int, text: str) -> bool:
        number = _number(text)
        if number is None:
            return False
        if all(_public(each) for each in _meant(number)):
            return True
        named = {host.lower().rstrip("."), f"{host.lower().rstrip('.')}:{port}"} & self._allowed
        own = any(map(_own, _meant(number)))
        return bool(named) and (not own or _number(host) == number)


def _number(text: str) -> Address | None:
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None


def _meant(number: Address) -> Iterator[Address]:
    """The number, and the older ones that are wrapped in it."""
    yield number
    if isinstance(number, IPv6Address):
        wrapped = [number.ipv4_mapped, number.sixtofour, *(number.teredo or ())]
        if number in _NAT64:
            wrapped.append(IPv4Address(int(number) & 0xFFFFFFFF))
        yield from (old for old in wrapped if old is not None)


def _public(number: Address) -> bool:
    if isinstance(number, IPv6Address) and (number.ipv4_mapped or number in _NAT64):
        return True  # what it wraps is looked at by itself
    if isinstance(number, IPv6Address) and number not in _PUBLIC_V6:
        return False
    if number in _PROTOCOLS or number in _METADATA:
        return False
    return number.is_global and not number.is_multicast


def _own(number: Address) -> bool:
    """Whether not even an allowed name may lead there."""
    return number.is_link_local or number in _METADATA
