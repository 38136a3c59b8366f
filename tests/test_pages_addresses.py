"""Which addresses may be read: by what they resolve to, never by how they look."""

import socket

import pytest

from agent.pages.addresses import AddressGuard, addresses_in, normal
from memory.errors import SourceError
from tests.page_site import names

PUBLIC = "93.184.215.14"


async def target(address: str, *numbers: str, allowed: tuple[str, ...] = ()) -> tuple[str, ...]:
    guard = AddressGuard(allowed, names(site_test=numbers))
    return (await guard.target(address)).numbers


async def test_a_public_host_is_reached_at_the_numbers_it_has():
    assert await target("https://site.test/a", PUBLIC, "2606:2800:21f::1", PUBLIC) == (
        PUBLIC,
        "2606:2800:21f::1",
    )


@pytest.mark.parametrize(
    "number",
    [
        "127.0.0.1",
        "127.8.9.1",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "100.100.100.200",
        "169.254.169.254",
        "168.63.129.16",
        "192.0.0.192",
        "224.0.0.1",
        "255.255.255.255",
        "198.18.0.1",
        "::1",
        "::",
        "::7f00:1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "fe80::1%eth0",
        "fc00::1",
        "fd00:ec2::254",
        "fec0::1",
        "ff02::1",
        "no number",
    ],
)
async def test_what_only_this_machine_can_reach_is_refused(number: str):
    with pytest.raises(SourceError, match=r"site\.test is on this machine or in a private network"):
        await target("http://site.test/", number)
    with pytest.raises(SourceError):
        await target("http://site.test/", PUBLIC, number)


async def test_a_public_number_wrapped_in_a_newer_one_is_public():
    assert await target("http://site.test/", "64:ff9b::5db8:d70e", "::ffff:93.184.215.14")


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "127.0.0.1"])
async def test_every_spelling_of_loopback_that_a_c_library_reads_is_refused(host: str):
    async def resolve(host: str, port: int) -> list[str]:
        return [socket.inet_ntoa(socket.inet_aton(host))]

    with pytest.raises(SourceError, match=r"private network|no web address"):
        await AddressGuard((), resolve).target(f"http://{host}/")


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "LOCALHOST:8080"])
async def test_loopback_is_refused_by_the_system_s_resolver(host: str):
    with pytest.raises(SourceError, match="private network"):
        await AddressGuard().target(f"http://{host}/")


@pytest.mark.parametrize(
    "address",
    [
        "file:///etc/passwd",
        "ftp://site.test/",
        "gopher://site.test/",
        "javascript:alert(1)",
        "site.test/page",
        "http://",
        "",
        "http://user:secret@site.test/",
        "http://site.test/" + "a" * 2000,
        "http://[::1/",
    ],
)
async def test_only_plain_web_addresses_are_opened(address: str):
    with pytest.raises(SourceError):
        await target(address, PUBLIC)


async def test_an_unknown_host_is_said_to_be_unknown():
    with pytest.raises(SourceError, match=r"The host other\.test is not known"):
        await target("http://other.test/")
    with pytest.raises(SourceError, match="private network"):
        await target("http://site.test/")


@pytest.mark.parametrize("entry", ["site.test", "SITE.test.", "site.test:80"])
async def test_a_host_that_the_user_allowed_may_be_private(entry: str):
    assert await target("http://site.test/", "10.0.0.7", allowed=(entry,)) == ("10.0.0.7",)


async def test_allowing_a_port_allows_no_other():
    with pytest.raises(SourceError):
        await target("http://site.test:81/", "10.0.0.7", allowed=("site.test:80",))


@pytest.mark.parametrize("number", ["169.254.169.254", "fe80::1", "::ffff:169.254.169.254"])
async def test_an_allowed_name_does_not_lead_to_the_metadata_service(number: str):
    with pytest.raises(SourceError):
        await target("http://site.test/", number, allowed=("site.test",))


async def test_the_metadata_service_is_read_where_the_user_named_its_very_number():
    guard = AddressGuard(("169.254.169.254",), names())
    assert (await guard.target("http://169.254.169.254/")).numbers == ("169.254.169.254",)


def test_two_spellings_of_one_address_are_one():
    assert normal("HTTPS://Site.Test:443?q=1#part") == "https://site.test/?q=1"
    assert normal("https://site.test/?q=1") == "https://site.test/?q=1"
    assert normal("no address") == ""


def test_the_addresses_in_a_text_are_found_without_the_punctuation_around_them():
    text = "See https://a.test/x_(1), (http://b.test/y). <https://a.test/x_(1)> or ftp://c.test."
    assert addresses_in(text) == ["https://a.test/x_(1)", "http://b.test/y"]
