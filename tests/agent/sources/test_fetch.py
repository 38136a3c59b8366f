"""Fetching one page: pinned to what was checked, bounded in bytes, time and redirects.

Which addresses may be read: by what they resolve to, never by how they look.
"""

import asyncio
import gzip
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest

from rubricem.agent.research.evidence import reply_of
from rubricem.agent.sources.fetch import (
    AddressGuard,
    Fetched,
    Fetcher,
    FetchLimits,
    Outward,
    addresses_in,
)
from rubricem.memory.errors import SourceError
from rubricem.memory.schema import Passage
from tests.support.policies import FixedSearch
from tests.support.sites import PageSite, Sent, names

SMALL = FetchLimits(megabytes=1, seconds=10.0)
PUBLIC = "93.184.215.14"


def packed(encoding: str, body: bytes = b"not packed") -> Sent:
    return Sent(body, headers={"content-encoding": encoding})


def moved(where: str) -> Sent:
    return Sent(status=302, headers={"location": where})


async def fetched(
    site: PageSite, path: str, limits: FetchLimits = SMALL, allowed: Sequence[str] = ("site.test",)
) -> Fetched:
    guard = AddressGuard(allowed, names(site_test="127.0.0.1", evil_test="127.0.0.1"))
    return await Fetcher(guard, limits).fetch(site.address(path, "site.test"))


async def test_the_connection_goes_to_numbers_that_were_checked_whatever_comes_after():
    answers = iter([["2606:2800:21f::1", PUBLIC], ["127.0.0.1"]])
    seen: list[httpx2.Request] = []

    async def rebinding(host: str, port: int) -> Sequence[str]:
        return next(answers)

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        if len(seen) == 1:
            raise httpx2.ConnectError("no route")
        return httpx2.Response(200, stream=httpx2.ByteStream(b"public page"))

    fetcher = Fetcher(AddressGuard((), rebinding), SMALL, httpx2.MockTransport(answer))
    page = await fetcher.fetch("https://site.test:8443/x")
    assert (page.address, page.content) == ("https://site.test:8443/x", b"public page")
    tried = ["https://[2606:2800:21f::1]:8443/x", f"https://{PUBLIC}:8443/x"]
    assert [str(request.url) for request in seen] == tried, "the next where the first fails"
    assert {request.headers["host"] for request in seen} == {"site.test:8443"}
    assert {request.extensions["sni_hostname"] for request in seen} == {"site.test"}


async def test_a_redirect_is_followed_and_what_was_packed_stays_so_under_the_last_address():
    sent = packed("gzip", gzip.compress(b"the page"))
    with PageSite({"/old": moved("/new?b=1#part"), "/new?b=1": sent}) as site:
        page = await fetched(site, "/old")
        host = f"site.test:{site.port}"
        assert site.asked == [(host, "/old"), (host, "/new?b=1")], "under its own name"
    kind = "text/html; charset=utf-8"
    assert page == Fetched(site.address("/new?b=1", "site.test"), kind, page.content, "gzip")
    assert gzip.decompress(page.content) == b"the page"


@pytest.mark.parametrize("where", ["http://127.0.0.1:{}/secret", "//evil.test:{}/secret"])
async def test_a_redirect_to_a_private_address_is_refused(where: str):
    with PageSite({"/secret": "private"}) as site:
        site.pages["/old"] = moved(where.format(site.port))
        with pytest.raises(SourceError, match="private network"):
            await fetched(site, "/old")
        assert [path for _, path in site.asked] == ["/old"]


MEGABYTE = b"x" * (1 << 20)


@pytest.mark.parametrize(
    ("sent", "said", "asked", "most"),
    [
        (Sent(MEGABYTE, pieces=50), "is larger than 1 MB", 1, 8 << 20),
        (Sent(MEGABYTE, pieces=50, length=False), "is larger than 1 MB", 1, 12 << 20),
        (packed("br"), "packed as 'br'", 1, 99),
        (moved("file:///etc/passwd"), "not a web address", 1, 0),
        (moved("http://[::1"), "not a web address", 1, 0),
        (moved("https://u:p@site.test/"), "with a password", 1, 0),
        (moved("/a"), r"site\.test redirects without end", 6, 0),
        (Sent("gone", status=404), r"site\.test answered 404", 1, 99),
    ],
    ids=[
        "50 MB that say so: what the sockets hold is sent", "50 MB that do not say so",
        "a packing not asked for",
        "to a file", "to no host", "to a password", "in a circle", "an error of the server",
    ],
)  # fmt: skip
async def test_a_page_that_cannot_be_had_is_a_sentence_and_is_left_at_the_limit(
    sent: Sent, said: str, asked: int, most: int
):
    with PageSite({"/a": sent}) as site:
        with pytest.raises(SourceError, match=said):
            await fetched(site, "/a")
        assert (len(site.asked), site.sent <= most) == (asked, True)


async def test_a_slow_drip_ends_at_the_time_limit_and_nobody_there_is_said():
    with PageSite({"/": Sent(b"x", pieces=1000, seconds=0.1)}) as site:
        began = time.monotonic()
        with pytest.raises(SourceError, match=r"did not send the page within 0\.4 s"):
            await fetched(site, "/", FetchLimits(seconds=0.4))
        assert time.monotonic() - began < 60
    with pytest.raises(SourceError, match="could not be read: ConnectError"):
        await fetched(site, "/")


def certificate(folder: Path, name: str) -> tuple[Path, ssl.SSLContext]:
    """A certificate of its own authority for a name, and a server's context with it."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    today = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return path, context


@pytest.mark.parametrize(("name", "well"), [("site.test", True), ("other.test", False)])
async def test_the_certificate_must_be_of_the_name_and_not_of_the_number(
    name: str, well: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, context = certificate(tmp_path, name)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    site = PageSite({"/": "over TLS"})
    site.wrap(lambda plain: context.wrap_socket(plain, server_side=True))
    guard = AddressGuard(("site.test",), names(site_test="127.0.0.1"))
    fetcher = Fetcher(guard, SMALL)
    with site:
        address = f"https://site.test:{site.port}/"
        if well:
            assert (await fetcher.fetch(address)).content == b"over TLS"
        else:
            with pytest.raises(SourceError, match="could not be read: ConnectError"):
                await fetcher.fetch(address)


async def target(address: str, *numbers: str, allowed: tuple[str, ...] = ()) -> tuple[str, ...]:
    guard = AddressGuard(allowed, names(site_test=numbers))
    return (await guard.target(address))[1]


@pytest.mark.parametrize(
    "number",
    [
        "127.0.0.1", "127.8.9.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1",
        "100.64.0.1", "100.100.100.200", "169.254.169.254", "168.63.129.16", "192.0.0.192",
        "224.0.0.1", "255.255.255.255", "198.18.0.1", "::1", "::", "::7f00:1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1",
        "no number",
    ],
)  # fmt: skip
async def test_what_only_this_machine_can_reach_is_refused(number: str):
    with pytest.raises(SourceError, match=r"site\.test is on this machine or in a private network"):
        await target("http://site.test/", number)
    with pytest.raises(SourceError):
        await target("http://site.test/", PUBLIC, number)


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "127.0.0.1"])
async def test_every_spelling_of_loopback_that_a_c_library_reads_is_refused(host: str):
    async def resolve(host: str, port: int) -> list[str]:
        return [socket.inet_ntoa(socket.inet_aton(host))]

    with pytest.raises(SourceError, match=r"private network|not a web address"):
        await AddressGuard((), resolve).target(f"http://{host}/")


@pytest.mark.parametrize(
    "address",
    ["file:///etc/passwd", "ftp://site.test/", "gopher://site.test/", "javascript:alert(1)",
     "site.test/page", "http://", "", "http://user:secret@site.test/",
     "http://site.test/" + "a" * 2000, "http://[::1/", "http://site.test:99999/",
     "http://site.test/\ud800", "http://site.test/a\rb", "http://xn--a/", "http://a.xn--.test/"],
)  # fmt: skip
async def test_only_plain_web_addresses_are_opened(address: str):
    with pytest.raises(SourceError):
        await target(address, PUBLIC)


@pytest.mark.parametrize("entry", ["site.test", "SITE.test.", "site.test:80"])
async def test_a_host_that_the_user_allowed_may_be_private_at_its_port_but_no_metadata_service(
    entry: str,
):
    assert await target("http://site.test/", "10.0.0.7", allowed=(entry,)) == ("10.0.0.7",)
    with pytest.raises(SourceError):
        await target("http://site.test:81/", "10.0.0.7", allowed=("site.test:80",))
    for number in ("169.254.169.254", "fe80::1", "::ffff:169.254.169.254"):
        with pytest.raises(SourceError):
            await target("http://site.test/", number, allowed=(entry,))
    guard = AddressGuard(("169.254.169.254",), names())
    _, numbers = await guard.target("http://169.254.169.254/")
    assert numbers == ("169.254.169.254",), "the user named its very number"


def test_the_addresses_in_a_text_are_found_without_the_punctuation_around_them():
    text = "See https://a.test/x_(1), (http://b.test/y). <https://a.test/x_(1)> or ftp://c.test."
    assert addresses_in(text) == ["https://a.test/x_(1)", "http://b.test/y"]


class Pages:
    """Pages by address; counts how many are read at once, in all and of one host."""

    def __init__(self, texts: dict[str, list[tuple[str, str]]]) -> None:
        self.texts = texts
        self.reading: list[str] = []
        self.most = self.most_of_host = 0
        self.late = ""
        self.asked = list[str]()

    async def read(self, address: str) -> list[Passage]:
        self.asked.append(address)
        self.reading.append(address)
        hosts = [each.split("/")[2] for each in self.reading]
        self.most = max(self.most, len(hosts))
        self.most_of_host = max(self.most_of_host, *map(hosts.count, hosts))
        await asyncio.sleep(9 if address == self.late else 0.02)
        self.reading.remove(address)
        if address not in self.texts:
            raise SourceError("That page is gone.")
        title = "file-3" if "file-3" in address else "Page"
        return [Passage(title, address, *piece) for piece in self.texts[address]]


def hit(address: str, text: str, date: str = "") -> Passage:
    return Passage("Hit", address, "", text, date=date)


async def test_a_search_reads_its_hits_and_ranks_what_their_pages_say():
    page = [("Pump", "It stands in Kiel."), ("Pump", "The rotor lasts 900 hours."),
            ("Pump", "It weighs 3 kg."), ("Sales", "None were sold.")]  # fmt: skip
    pages = Pages({"https://a.org/1": page})
    hits = [hit("https://a.org/1", "A pump.", "published 2024-05-01"),
            hit("https://a.org/2", "How long a rotor lasts")]  # fmt: skip
    tool = Outward(FixedSearch(hits), pages=pages)
    found = await tool.search("how many hours does the rotor last", 3)
    assert found[0].text == "The rotor lasts 900 hours."
    assert (found[0].place, found[0].date) == ("Pump", "published 2024-05-01")
    assert hits[1].text in [p.text for p in found], "of a page that is gone its excerpt is left"
    wide = await tool.around(found, 9)
    assert wide[0].text == "The rotor lasts 900 hours.\n\nIt weighs 3 kg."
    assert (wide[0].begun_before, wide[0].goes_on) == (True, False)
    whole = await tool.around(found[:1], 100)
    assert whole[0].text.endswith("It weighs 3 kg.\n\nSales\nNone were sold.")
    [shown] = reply_of(whole)["passages"]
    assert shown["place"] == "Pump - Sales, published 2024-05-01", "told once"
    own = replace(found[0], text="A private file of its name.", public=False)
    assert not (await tool.around([own, *found], 9))[0].public


async def test_no_search_waits_again_for_a_page_or_shows_an_excerpt_of_one_that_it_read(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("rubricem.agent.sources.fetch.HIT_SECONDS", 0.5)
    a, b = "https://a.org/file-3.pdf", "https://b.org/"
    pages = Pages({a: [("", "The rotor lasts 900 hours.")], b: []})
    pages.late = b
    web = FixedSearch([hit(a, "A rotor"), hit(b, "Rotors")])
    tool = Outward(web, (), pages, most=2)
    started = time.monotonic()
    found = await asyncio.gather(*(tool.search("rotor", 3) for _ in range(9)))
    assert time.monotonic() - started < 1.5, "nine searches, two at a time"
    assert {p.text for p in found[8]} == {"The rotor lasts 900 hours.", "Rotors"}
    assert {p.title for p in found[8]} == {"Hit"}, (
        "as the search calls it: its own is the name of the file"
    )
    web.passages[:0] = [hit("https://c.org/1", "Nothing"), hit("https://c.org/2", "Of it")]
    again = await tool.search("rotor", 4)
    assert {p.text for p in again} == {"The rotor lasts 900 hours.", "Rotors"}
    assert pages.asked.count(a) == 1, "what is known is neither waited for nor indexed again"


async def test_a_page_that_is_no_longer_remembered_is_read_anew(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rubricem.agent.sources.fetch.MOST_REMEMBERED", 1)
    texts = {f"https://{host}.org/": f"The rotor of {host} lasts." for host in "ab"}
    pages = Pages({address: [("", text)] for address, text in texts.items()})
    tool = Outward(FixedSearch([hit(each, "A rotor") for each in texts]), (), pages)
    for _ in range(2):
        found = await tool.search("rotor", 3)
        assert {p.text for p in found} == {*texts.values()}, "and not its excerpt"


async def test_hits_are_read_at_once_though_few_of_one_host():
    addresses = [f"https://{host}.org/{n}" for host in "abcd" for n in range(4)]
    pages = Pages({each: [("", f"pump {each}")] for each in addresses})
    tool = Outward(FixedSearch([hit(each, "pump") for each in addresses]), (), pages, most=16)
    assert len(await tool.search("pump", 16)) == 16
    assert (pages.most, pages.most_of_host) == (8, 2)


async def test_a_search_waits_for_no_place_of_a_host_for_a_page_that_another_one_reads():
    hits = [hit(f"https://a.org/{n}", "pump") for n in range(8)]
    pages = Pages({each.location: [("", "pump")] for each in hits})
    web = FixedSearch(hits)
    tool = Outward(web, (), pages)
    whole = asyncio.create_task(tool.search("pump", 8))
    while not pages.reading:
        await asyncio.sleep(0)
    web.passages = hits[:1]
    assert await tool.search("pump", 1)
    assert not whole.done()
    assert len(pages.asked) <= 4, "the other six wait"
    await whole
