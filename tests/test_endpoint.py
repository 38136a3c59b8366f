import pytest

from agent.servers.endpoint import Endpoint
from memory.errors import SettingsError


@pytest.mark.parametrize(
    ("address", "url", "host"),
    [
        ("http://localhost:8080/v1", "http://localhost:8080/v1", "localhost:8080"),
        ("https://API.example.com/v1/", "https://api.example.com/v1", "api.example.com"),
        ("http://ann:pw@host:1/v1?key=secret#x", "http://host:1/v1", "host:1"),
        ("http://[::1]:8080", "http://[::1]:8080", "[::1]:8080"),
    ],
)
def test_an_address_is_shown_without_credentials(address: str, url: str, host: str) -> None:
    endpoint = Endpoint.parse(address)
    assert (endpoint.url, endpoint.host) == (url, host)


def test_credentials_become_a_header_that_repr_hides() -> None:
    endpoint = Endpoint.parse("http://ann:p%40ss@host/v1")
    assert endpoint.basic == "Basic YW5uOnBAc3M="
    assert "YW5u" not in repr(endpoint)
    assert Endpoint.parse("http://host/v1").basic is None


@pytest.mark.parametrize("address", ["localhost:8080", "ftp://host/v1", "http://", "http://h:x/"])
def test_what_is_no_http_address_is_refused_without_repeating_it(address: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Endpoint.parse(address)
    assert address not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("127.0.0.9", True),
        ("[::1]", True),
        ("10.0.0.1", False),
        ("a.b", False),
    ],
)
def test_loopback_is_known_by_name_and_number(host: str, loopback: bool) -> None:
    assert Endpoint.parse(f"http://{host}/v1").loopback is loopback
