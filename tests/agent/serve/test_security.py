"""Who may ask the server what: hosts, origins, tokens, forms, sizes; what replies say."""

import json
import socket
import stat
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from rubricem.agent.serve.app import TOKEN_FILE_NAME, keep_token, secure
from rubricem.agent.serve.desk import RunDesk
from rubricem.agent.serve.requests import RequestRefused
from rubricem.agent.serve.security import COOKIE, MOST_HEAD, Guard, Security
from rubricem.memory.errors import SettingsError, StoreError
from tests.support.pages import RunSite, app_at, calling, run_settings, site
from tests.support.scripted_server import ScriptedServer
from tests.support.tool_servers import serving_http
from tests.support.waiting import PATIENCE

TOKEN, SECURITY = "t0ken-" * 6, "rubricem.agent.serve.security."
HERE = {"host": "localhost:8421"}
ASKED = {**HERE, "x-rubricem": "1"}


def refused(security: Security, method: str, path: str, headers: dict[str, str]) -> int | None:
    """The status with which a request is refused; None where it is carried out."""
    try:
        security.check(method, path, headers)
    except RequestRefused as error:
        assert str(error).endswith(".") and error.remedy
        return error.status
    return None


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", HERE, None),
        ("GET", "/api/status", {"host": "127.0.0.1:9"}, None),
        ("GET", "/", {"host": "evil.example"}, 403),
        ("GET", "/", {"host": "localhost.evil.example"}, 403),
        ("GET", "/", {}, 403),
        ("GET", "/api/runs", {"host": "10.0.0.7:8421"}, 403),
        ("POST", "/api/runs", ASKED, None),
        ("POST", "/api/runs", HERE, 403),
        ("POST", "/api/runs", {**ASKED, "origin": "http://localhost:8421"}, None),
        ("POST", "/api/runs", {**ASKED, "origin": "http://localhost:9999"}, 403),
        ("POST", "/api/runs", {**ASKED, "origin": "https://evil.example"}, 403),
        ("POST", "/api/runs", {**ASKED, "origin": "null"}, 403),
        ("GET", "/", {**HERE, "origin": "http://["}, 403),
        ("GET", "/api/runs", {**HERE, "sec-fetch-site": "cross-site"}, 403),
        ("GET", "/", {**HERE, "sec-fetch-site": "cross-site"}, None),
        ("OPTIONS", "/api/runs", HERE, 403),
        ("POST", "/v1/chat/completions", {**HERE, "content-type": "application/json"}, None),
        ("POST", "/v1/chat/completions", {**HERE, "content-type": "text/plain"}, 415),
        ("POST", "/mcp", {**HERE, "content-type": "application/json"}, None),
        ("POST", "/mcp", {**HERE, "sec-fetch-site": "cross-site"}, 403),
        ("POST", "/mcp", {**HERE, "content-type": "text/plain"}, 415),
    ],
)
def test_a_server_of_this_machine_alone(
    method: str, path: str, headers: dict[str, str], status: int | None
):
    assert refused(Security(), method, path, headers) == status


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {}, None),
        ("/static/app.js", {}, None),
        ("/api/status", {}, 401),
        ("/api/status", {"authorization": f"Bearer {TOKEN}"}, None),
        ("/api/status", {"authorization": "Bearer wrong"}, 401),
        ("/api/status", {"authorization": f"Basic {TOKEN}"}, 401),
        ("/api/status", {"authorization": "Bearer é"}, 401),
        ("/api/status", {"cookie": f"{COOKIE}={TOKEN}"}, 401),
        ("/v1/models", {}, 401),
        ("/v1/models", {"authorization": f"Bearer {TOKEN}"}, None),
        ("/mcp", {}, 401),
        ("/mcp", {"authorization": f"Bearer {TOKEN}"}, None),
    ],
)
def test_a_server_that_others_can_reach_asks_for_its_token(
    path: str, headers: dict[str, str], status: int | None
):
    security = Security("0.0.0.0", TOKEN)
    assert refused(security, "GET", path, {"host": "192.168.1.2:8421", **headers}) == status
    assert refused(security, "GET", path, {"host": "evil.example", **headers}) == 403


def logged_in(security: Security, headers: dict[str, str], before: str = "a=b") -> dict[str, str]:
    """The headers of a page that has logged in."""
    cookie = f"{before}; {security.cookie_name}={security.cookie()}"
    return {**headers, "cookie": cookie, "x-rubricem-key": security.key()}


def test_the_cookie_of_a_login_admits_and_does_not_hold_the_token():
    security = Security("192.168.1.2", TOKEN)
    headers = logged_in(security, {"host": "192.168.1.2"})
    assert refused(security, "GET", "/api/status", headers) is None
    assert TOKEN not in security.cookie()
    assert TOKEN not in repr(security)


@pytest.mark.parametrize(
    ("host", "alone"),
    [("localhost", True), ("127.0.0.9", True), ("::1", True), ("0.0.0.0", False), ("x.y", False)],
)
def test_a_token_is_asked_for_but_on_this_machine_where_none_is_wanted(
    tmp_path: Path, host: str, alone: bool
):
    security, made = secure(tmp_path, Security(host))
    assert made and security.token and security.alone is alone
    assert secure(tmp_path, Security(host)) == (security, False)
    if alone:
        assert secure(tmp_path, Security(host), with_token=False) == (Security(host), False)
    else:
        with pytest.raises(SettingsError, match="needs its token"):
            secure(tmp_path, Security(host), with_token=False)


@pytest.mark.parametrize(
    "value", ['"' + '\\"' * 30_000 + '"', '"' + "\\012" * 15_000 + '"', "=;" * 30_000]
)
def test_a_cookie_is_read_in_the_time_that_its_length_takes(value: str):
    security = Security("0.0.0.0", TOKEN)
    headers = logged_in(security, {"host": "192.168.1.2"}, f"a={value}")
    begun = time.process_time()
    assert refused(security, "GET", "/api/status", headers) is None
    assert time.process_time() - begun < 0.5


def test_a_ticket_enters_once_and_in_its_time_and_a_cookie_is_of_one_port():
    security = Security(token=TOKEN, port=8421)
    ticket, late = security.ticket(), security.ticket()
    security._tickets[late] = 0.0
    assert [security.enters(each) for each in (ticket, ticket, late, TOKEN)] == [
        "", None, None, "",
    ]  # fmt: skip
    assert security.whose(security.ticket()) is None, "it is no token"
    other = replace(security, port=8422)
    shown = logged_in(other, HERE)
    assert refused(security, "GET", "/api/status", shown) == 401
    assert refused(other, "GET", "/api/status", shown) is None
    # A browser sends its cookies to every port of this machine, whose servers can replay them.
    for key in ("", other.cookie(), security.key(), "é"):
        assert refused(other, "GET", "/api/status", shown | {"x-rubricem-key": key}) == 401
    keyed = logged_in(other, HERE) | {"cookie": ""}
    assert refused(other, "GET", "/api/status", keyed) == 401


def test_a_token_is_made_once_for_its_owner_alone(tmp_path: Path):
    token, made = keep_token(tmp_path / "new")
    assert made and len(token) >= 32
    assert keep_token(tmp_path / "new") == (token, False)
    path = tmp_path / "new" / TOKEN_FILE_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with pytest.raises(StoreError, match="can be read by others"):
        keep_token(tmp_path / "new")
    path.chmod(0o600)
    path.write_text("\n")
    with pytest.raises(StoreError, match="holds no token"):
        keep_token(tmp_path / "new")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, RunDesk]]:
    """A server that carries out nothing of what these tests ask of it."""
    folder = tmp_path_factory.mktemp("open")
    with ScriptedServer([]) as model, app_at(run_settings(folder, model)) as made:
        yield made


@pytest.fixture
async def open_here(server: tuple[str, RunDesk]) -> AsyncIterator[RunSite]:
    async with calling(*server) as made:
        yield made


async def test_a_login_lets_a_browser_in_and_every_reply_forbids_what_its_page_does_not_need(
    tmp_path: Path,
):
    with ScriptedServer([]) as model:
        async with site(run_settings(tmp_path, model), Security(token=TOKEN)) as here:
            for path in ("/", "/api/status", "/static/nothing.js", "/api/nothing"):
                reply = await here.http.get(path)
                policy = reply.headers["content-security-policy"]
                assert (
                    "default-src 'none'" in policy and "unsafe" not in policy and "*" not in policy
                )
                assert reply.headers["x-content-type-options"] == "nosniff"
                assert reply.headers["referrer-policy"] == "no-referrer"
                assert "access-control-allow-origin" not in reply.headers
                assert "server" not in reply.headers or "uvicorn" in reply.headers["server"]
            assert (await here.http.get("/api/status")).status_code == 401
            for _ in range(200):  # which keep nobody out who has the right one
                wrong = await here.http.post("/api/login", json={"token": "wrong"})
            assert wrong.status_code == 401 and "set-cookie" not in wrong.headers
            reply = await here.http.post("/api/login", json={"token": TOKEN})
            cookie = reply.headers["set-cookie"].lower()
            assert "httponly" in cookie and "samesite=strict" in cookie and TOKEN not in cookie
            assert (await here.http.get("/api/status")).status_code == 401
            keyed = {"X-Rubricem-Key": reply.json()["key"]}
            assert (await here.http.get("/api/status", headers=keyed)).json()["login"] is True


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"{}", 422),
        (b'{"question": ""}', 422),
        (b'{"question": "x?", "colour": "red"}', 422),
        (b'{"question": "x?", "tool_calls": 100000}', 422),
        (b'{"question": "x?", "max_cost": NaN}', 422),
        (b'{"question": "x?", "source": ["/etc"]}', 422),
        (b'{"question": "x?", "thread": "nothing"}', 404),
        (b'{"question": "x?", "thread": "../../etc"}', 404),
        (json.dumps({"question": "x" * 20_001}).encode(), 422),
    ],
)
async def test_what_cannot_be_asked_is_a_sentence_and_leaves_nothing(
    open_here: RunSite, body: bytes, status: int
):
    reply = await open_here.http.post(
        "/api/runs", content=body, headers={"content-type": "application/json"}
    )
    assert reply.status_code == status, reply.text
    told = reply.json()
    assert set(told) == {"error", "remedy"} and told["error"].endswith(".")
    assert "Traceback" not in reply.text
    assert (await open_here.http.get("/api/runs")).json()["runs"] == []


async def test_a_body_that_is_too_large_is_refused_also_where_it_does_not_say_so(
    open_here: RunSite,
):
    said = json.dumps({"question": "x" * 2_000_000}).encode()
    kind = {"content-type": "application/json"}
    reply = await open_here.http.post("/api/runs", content=said, headers=kind)
    assert reply.status_code == 413

    async def endless() -> AsyncIterator[bytes]:
        yield b'{"question": "'
        for _ in range(64):
            yield b"x" * 65_536

    chunked = await open_here.http.post("/api/runs", content=endless())
    for each in (reply, chunked):
        assert each.json()["error"] == "Content Too Large."
        assert each.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/runs/nothing"),
        ("GET", "/api/runs/nothing/events"),
        ("GET", "/api/runs/nothing/report"),
        ("GET", "/api/runs/..%2F..%2Fetc/report"),
        ("GET", "/api/runs/" + "x" * 300),
        ("GET", "/api/threads/nothing"),
        ("GET", "/static/../app.py"),
        ("GET", "/static/%2e%2e/app.py"),
        ("GET", "/nothing"),
    ],
)
async def test_what_is_not_there_is_said_to_be_so(open_here: RunSite, method: str, path: str):
    body = {"title": "x"} if method == "PATCH" else None
    reply = await open_here.http.request(method, path, json=body)
    assert reply.status_code == 404, reply.text
    assert set(reply.json()) == {"error", "remedy"}


@contextmanager
def attacked(security: Security) -> Iterator[tuple[str, int]]:
    """Host and port of a server that says who asked it and how much they sent."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        read, more = 0, True
        while more and (message := await receive())["type"] == "http.request":
            read, more = read + len(message["body"]), message.get("more_body", False)
        said = f"{scope['client'][0]} {read}".encode()
        length = (b"content-length", b"%d" % len(said))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": said})

    config = security.config(Guard(app, security), port=0, lifespan="off")
    with serving_http(app, config=config) as address:
        yield "127.0.0.1", int(address.rpartition(":")[2])


def test_a_head_without_end_is_cut_off():
    with attacked(Security()) as place, socket.create_connection(place) as connection:
        connection.settimeout(PATIENCE)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + 2 * MOST_HEAD * b"a")
        assert b"400 Bad" in connection.recv(65536)


LOGIN = b"POST /api/login HTTP/1.1\r\nHost: localhost\r\nX-Rubricem: 1\r\n"
RUNS = LOGIN.replace(b"login", b"runs") + b"Authorization: Bearer " + TOKEN.encode() + b"\r\n"
LONG = b"Content-Length: 1000\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "then", "said", "seconds"),
    [
        (b"", b"", b"", 0.3),
        (b"GET / HTTP/1.1\r\nA: ", b"a", b"", 0.3),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"", b"200 OK", 0.3),
        (LOGIN + LONG, b"{", b"The body came too slowly.", 0.3),
        (LOGIN + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n{\r\n", b"too slowly", 0.3),
        (LOGIN.replace(b"login", b"runs") + LONG, b"{", b"401 Unauthorized", 0.3),
        (RUNS + LONG, b"{", b"The body came too slowly.", 0.9),
    ],
)
def test_what_trickles_is_cut_off(
    first: bytes, then: bytes, said: bytes, seconds: float, monkeypatch: pytest.MonkeyPatch
):
    for name, value in (("IDLE_SECONDS", 0.3), ("BODY_SECONDS", 0.9), ("LOOK_SECONDS", 0.05)):
        monkeypatch.setattr(SECURITY + name, value)
    begun, heard = time.monotonic(), b""
    with attacked(Security(token=TOKEN)) as place, socket.create_connection(place) as connection:
        connection.sendall(first)
        connection.settimeout(0.1)
        while time.monotonic() - begun < PATIENCE:
            # What was said before the connection was reset is still there to be read.
            with suppress(OSError):
                connection.sendall(then)
            try:
                if not (piece := connection.recv(65536)):
                    break
                heard += piece
            except TimeoutError:
                continue
            except ConnectionError:
                break
    assert seconds <= time.monotonic() - begun < PATIENCE and said in heard


def test_those_who_send_slowly_keep_nobody_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(SECURITY + "MOST_CONNECTIONS", 20)
    with attacked(Security(token=TOKEN)) as place, ExitStack() as held:
        for number in range(30):
            slow = held.enter_context(socket.create_connection(place))
            slow.sendall((b"", LOGIN + LONG + b"{")[number % 2])
        assert httpx.get(f"http://localhost:{place[1]}/healthz").status_code == 200


@pytest.mark.parametrize(("proxies", "client"), [((), "127.0.0.1"), (("127.0.0.1",), "9.9.9.9")])
def test_forwarded_headers_are_believed_of_a_named_proxy_alone(
    proxies: tuple[str, ...], client: str
):
    with attacked(Security(proxies=proxies)) as (host, port):
        forwarded = {"X-Forwarded-For": "9.9.9.9", "X-Forwarded-Proto": "https"}
        said = httpx.get(f"http://{host}:{port}/", headers=forwarded).text
    assert said == f"{client} 0"
