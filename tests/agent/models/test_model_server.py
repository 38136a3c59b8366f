from typing import Any

import pytest

from rubricem.agent.models.limits import AttemptError, Endpoint, Server
from rubricem.agent.models.model_server import ModelServer, complaint_of
from tests.support.scripted_server import Answering, LoopbackServer


class Echoing(Answering):
    """Answers with what it was sent."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.read_json()
        self.send_json(200, {"body": body, "key": self.headers.get("Authorization")})


async def test_callers_that_share_a_client_send_their_own_keys():
    with LoopbackServer(Echoing) as server:
        mine, yours = (
            ModelServer(Server(Endpoint.parse(server.root), "m", key)) for key in ("a", "b")
        )
        replies = [await one.get("/plain", {"n": "\u00fc"}) for one in (mine, yours, mine)]
    assert [reply["key"] for reply in replies] == ["Bearer a", "Bearer b", "Bearer a"]
    assert {reply["body"]["n"] for reply in replies} == {"\u00fc"}


class Moved(Answering):
    def do_POST(self) -> None:
        self.read_json()
        self.begin(307, {"Location": f"{self.server.owner.to}/plain", "Content-Length": "0"})


async def test_a_prompt_is_sent_to_no_other_host_that_its_server_names():
    with LoopbackServer(Echoing) as other, LoopbackServer(Moved) as server:
        asked = ModelServer(Server(Endpoint.parse(server.root), "m", "k3y-"))
        server.to = other.root.replace("127.0.0.1", "localhost")
        with pytest.raises(AttemptError, match="another host, localhost"):
            await asked.get("/plain", {"n": 1})
        server.to = other.root
        assert (await asked.get("/plain", {"n": 1}))["body"] == {"n": 1}, "of its own host"


async def test_a_connection_that_tls_refuses_is_no_server_that_is_off():
    with LoopbackServer(Echoing) as server:
        url = server.root.replace("http:", "https:")
        with pytest.raises(AttemptError, match="there is no TLS connection to https") as refused:
            await ModelServer(Server(Endpoint.parse(url), "m")).get("/plain", {})
    assert "http://" in refused.value.remedy and not refused.value.again


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "no", "code": "bad_thing", "param": "n"}}, "no bad_thing n"),
        ({"error": {"message": "no", "code": 400}}, "no"),
        ({"error": "just words"}, "just words"),
        ({"object": "error", "message": "no", "code": 404}, "no"),
        ({"detail": "not here"}, "not here"),
        ("<html>Bad gateway</html>", "<html>Bad gateway</html>"),
        ([1, 2], "[1, 2]"),
        ({}, ""),
    ],
)
def test_a_servers_words_are_found_wherever_it_puts_them(body: Any, words: str):
    assert complaint_of(body) == words
