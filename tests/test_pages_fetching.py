"""Fetching one page: pinned to what was checked, bounded in bytes, time and redirects."""

import gzip
import ssl
import time
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from agent.pages.addresses import AddressGuard
from agent.pages.fetching import Fetched, Fetcher, FetchLimits
from memory.errors import SourceError
from tests.page_site import PageSite, Sent, names

SMALL = FetchLimits(megabytes=1, seconds=1.0)
PUBLIC = "93.184.215.14"


async def fetched(
    site: PageSite, path: str, limits: FetchLimits = SMALL, allowed: Sequence[str] = ("site.test",)
) -> Fetched:
    guard = AddressGuard(allowed, names(site_test="127.0.0.1", evil_test="127.0.0.1"))
    return await Fetcher(guard, limits).fetch(site.address(path, "site.test"))


async def test_a_page_is_fetched_under_its_own_name():
    with PageSite({"/a?b=1": Sent("hello", "text/plain")}) as site:
        page = await fetched(site, "/a?b=1")
        assert site.asked == [(f"site.test:{site.port}", "/a?b=1")]
    assert page == Fetched(site.address("/a?b=1", "site.test"), "text/plain", b"hello")


async def test_the_connection_goes_to_the_number_that_was_checked_whatever_comes_after():
    answers = iter([[PUBLIC], ["127.0.0.1"]])
    seen: list[httpx.Request] = []

    async def rebinding(host: str, port: int) -> Sequence[str]:
        return next(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, stream=httpx.ByteStream(b"public page"))

    fetcher = Fetcher(AddressGuard((), rebinding), SMALL, httpx.MockTransport(answer))
    page = await fetcher.fetch("https://site.test:8443/x")
    assert page.address == "https://site.test:8443/x"
    assert [str(request.url) for request in seen] == [f"https://{PUBLIC}:8443/x"]
    assert seen[0].headers["host"] == "site.test:8443"
    assert seen[0].extensions["sni_hostname"] == "site.test"


async def test_the_next_number_is_tried_where_the_first_cannot_be_connected_to():
    tried: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        tried.append(request.url.host)
        if len(tried) == 1:
            raise httpx.ConnectError("no route")
        return httpx.Response(200, stream=httpx.ByteStream(b"page"))

    guard = AddressGuard((), names(site_test=["2606:2800:21f::1", PUBLIC]))
    page = await Fetcher(guard, SMALL, httpx.MockTransport(answer)).fetch("https://site.test/")
    assert page.content == b"page"
    assert tried == ["2606:2800:21f::1", PUBLIC]


async def test_a_redirect_is_followed_and_the_last_address_is_the_page_s():
    with PageSite(
        {"/old": Sent(status=301, headers={"location": "/new#part"}), "/new": "the page"}
    ) as site:
        page = await fetched(site, "/old")
    assert page.address == site.address("/new", "site.test")
    assert page.content == b"the page"


@pytest.mark.parametrize("where", ["http://127.0.0.1:{}/secret", "//evil.test:{}/secret"])
async def test_a_redirect_to_a_private_address_is_refused(where: str):
    with PageSite({"/secret": "private"}) as site:
        site.pages["/old"] = Sent(status=302, headers={"location": where.format(site.port)})
        with pytest.raises(SourceError, match="private network"):
            await fetched(site, "/old")
        assert [path for _, path in site.asked] == ["/old"]


@pytest.mark.parametrize("where", ["file:///etc/passwd", "http://", "https://u:p@site.test/"])
async def test_a_redirect_to_no_web_address_is_refused(where: str):
    with (
        PageSite({"/old": Sent(status=302, headers={"location": where})}) as site,
        pytest.raises(SourceError),
    ):
        await fetched(site, "/old")


async def test_redirects_in_a_circle_come_to_an_end():
    with PageSite({"/a": Sent(status=302, headers={"location": "/a"})}) as site:
        with pytest.raises(SourceError, match=r"site\.test redirects without end"):
            await fetched(site, "/a")
        assert len(site.asked) == 6


async def test_a_page_of_50_mb_that_says_so_is_not_read_at_all():
    with PageSite({"/big": Sent(b"x" * (1 << 20), pieces=50)}) as site:
        with pytest.raises(SourceError, match=r"site\.test is larger than 1 MB"):
            await fetched(site, "/big")
        assert site.sent < 8 << 20, "what the sockets hold, not the page"


async def test_a_page_of_50_mb_that_does_not_say_so_is_left_at_the_limit():
    with PageSite({"/big": Sent(b"x" * (1 << 20), pieces=50, length=False)}) as site:
        with pytest.raises(SourceError, match="larger than 1 MB"):
            await fetched(site, "/big")
        assert site.sent < 12 << 20


async def test_a_packed_page_is_unpacked():
    packed = Sent(gzip.compress(b"hello"), headers={"content-encoding": "gzip"})
    with PageSite({"/": packed}) as site:
        assert (await fetched(site, "/")).content == b"hello"


async def test_a_small_pack_that_holds_much_is_left_at_the_limit():
    bomb = zlib.compress(bytes(100 << 20), 9)
    assert len(bomb) < 1 << 18
    with (
        PageSite({"/": Sent(bomb, headers={"content-encoding": "deflate"})}) as site,
        pytest.raises(SourceError, match="larger than 1 MB"),
    ):
        await fetched(site, "/")


@pytest.mark.parametrize(
    ("encoding", "reason"), [("br", "packed as 'br'"), ("gzip", "its packing is damaged")]
)
async def test_a_packing_that_cannot_be_read_is_said(encoding: str, reason: str):
    with (
        PageSite({"/": Sent("not packed", headers={"content-encoding": encoding})}) as site,
        pytest.raises(SourceError, match=reason),
    ):
        await fetched(site, "/")


async def test_a_slow_drip_ends_at_the_time_limit():
    with PageSite({"/": Sent(b"x", pieces=1000, seconds=0.1)}) as site:
        began = time.monotonic()
        with pytest.raises(SourceError, match=r"did not send the page within 0\.4 s"):
            await fetched(site, "/", FetchLimits(seconds=0.4))
        assert time.monotonic() - began < 60


async def test_an_error_of_the_server_is_a_result():
    with PageSite({}) as site, pytest.raises(SourceError, match=r"site\.test answered 404"):
        await fetched(site, "/")


async def test_a_server_that_is_not_there_is_said():
    guard = AddressGuard(("site.test",), names(site_test="127.0.0.1"))
    with pytest.raises(SourceError, match="could not be read: ConnectError"):
        await Fetcher(guard, SMALL).fetch("http://site.test:9/")


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
    name: str, well: bool, tmp_path: Path
):
    path, context = certificate(tmp_path, name)
    site = PageSite({"/": "over TLS"})
    site.wrap(lambda plain: context.wrap_socket(plain, server_side=True))
    guard = AddressGuard(("site.test",), names(site_test="127.0.0.1"))
    fetcher = Fetcher(guard, SMALL, verify=str(path))
    with site:
        address = f"https://site.test:{site.port}/"
        if well:
            assert (await fetcher.fetch(address)).content == b"over TLS"
        else:
            with pytest.raises(SourceError, match="could not be read: ConnectError"):
                await fetcher.fetch(address)
