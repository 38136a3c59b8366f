"""Policies over replayed servers, opened as the product opens them, with short waits.

A loopback server that replays what model servers send: JSON by route, and streams of events.

    with RecordedServer(recorded()) as server:
        ...  # server.root, server.asked

Routes are named like `POST /tokenize`. What stands there is a value to be sent, a stream, a
failure, or a function of the request's JSON that gives one of them.

A vLLM that spells: one token a character, texts by script; it can be made to lie.

    with spelling(script) as server: ...  # a `RecordedServer`

The script is given all that was asked so far as text and the request; prompts are decoded from
the ids that come in.
"""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rubricem.agent.models.limits import Endpoint, Limiter, Retry, Server
from rubricem.agent.models.model_server import ModelServer
from rubricem.agent.models.tokens import TokenServer, open_tokens
from rubricem.memory.schema import Message
from tests.conftest import ROOT
from tests.support.scripted_server import Fault, LoopbackServer, Streaming

Json = dict[str, Any]
RECORDED = ROOT / "tests" / "data" / "recorded" / "vllm.json"


@dataclass(frozen=True)
class Events:
    """A stream of events; `broken` drops the connection instead of ending it."""

    events: Sequence[Json]
    broken: bool = False


Route = Json | Events | Fault | Callable[[Json], Any]


def recorded() -> dict[str, Route]:
    """The routes of a recorded vLLM; of several replies the first whose `asked` fits."""
    written: Json = json.loads(RECORDED.read_text(encoding="utf-8"))
    return {route: _route(value) for route, value in written["routes"].items()}


def _route(value: Any) -> Route:
    if isinstance(value, list):

        def reply(asked: Json) -> Any:
            fits = (one for one in value if one["asked"].items() <= asked.items())
            none = {"reply": Fault(400, f"nothing recorded for {asked}")}
            return next(fits, none)["reply"]

        return reply
    return Events(value["events"]) if "events" in value else value["reply"]


class RecordedServer(LoopbackServer):
    """Start and stop it with `with`; `root` has no `/v1`."""

    def __init__(self, routes: Mapping[str, Route], port: int = 0) -> None:
        self.routes = dict(routes)
        self.asked: list[tuple[str, Any]] = []
        super().__init__(_Answering, port)

    @property
    def base_url(self) -> str:
        return f"{self.root}/v1"

    def bodies(self, route: str) -> list[Json]:
        return [body for name, body in self.asked if name == route]


class _Answering(Streaming):
    def do_GET(self) -> None:
        self._answer(f"GET {self.path}", {})

    def do_POST(self) -> None:
        self._answer(f"POST {self.path}", self.read_json())

    def _answer(self, route: str, body: Json) -> None:
        self.server.owner.asked.append((route, body))
        reply = self.server.owner.routes.get(route, Fault(404, "no such path"))
        reply = reply(body) if callable(reply) else reply
        if isinstance(reply, Events):
            self._stream(reply)
        elif isinstance(reply, Fault):
            self.send_json(reply.status, {"error": {"message": reply.message}})
        else:
            self.send_json(200, reply)

    def _stream(self, reply: Events) -> None:
        self.begin_stream()
        for event in reply.events:
            self.event(event)
        if reply.broken:
            self.close_connection = True
        else:
            self.end_stream()


END = 0x10FFFF
"""the id of the end of a turn"""
Script = Callable[[str, Json], str]


def spelled(text: str) -> list[int]:
    return [ord(character) for character in text]


def read(ids: list[int]) -> str:
    return "".join(map(chr, ids))


def rendered(messages: list[Json]) -> str:
    return "".join(f"[{m['role']}] {m['content']}\n" for m in messages) + "[assistant] "


def spelling(script: Script, lie: int = 0, logprob: float | None = -0.5) -> RecordedServer:
    return RecordedServer(spelling_routes(script, lie, logprob))


def spelling_routes(script: Script, lie: int = 0, logprob: float | None = -0.5) -> dict[str, Route]:
    """`lie` is added to every id that is given back; a None stands for no log-probability."""

    def tokenised(asked: Json) -> Json:
        text = rendered(asked["messages"]) if "messages" in asked else asked["prompt"]
        return {"tokens": spelled(text), "count": len(text), "max_model_len": 65_536}

    def completion(asked: Json) -> Events:
        text = script(read(asked["prompt"]), asked)
        pieces = [text[at : at + 40] for at in range(0, len(text), 40)]
        return Events([*(_event(p, spelled(p), None) for p in pieces), _event("", [END], "stop")])

    def _event(text: str, ids: list[int], finish: str | None) -> Json:
        told = {"tokens": [*text] or ["<|end|>"], "token_logprobs": [logprob] * len(ids)}
        own = [one + lie if one != END else one for one in ids]
        choice = {"text": text, "token_ids": own, "logprobs": told, "finish_reason": finish}
        return {"choices": [choice]}

    listed = {"id": "speller", "owned_by": "vllm", "root": "org/speller", "max_model_len": 65_536}
    return {
        "GET /v1/models": {"object": "list", "data": [listed]},
        "POST /tokenize": tokenised,
        "POST /detokenize": lambda asked: {"prompt": read(asked["tokens"])},
        "POST /v1/completions": completion,
    }


class Engine(RecordedServer):
    """A vLLM that is given adapters (docs/scale.md); `failing` are routes that it refuses."""

    def __init__(self, port: int = 0) -> None:
        self.failing = set[str]()
        self.adapters: dict[str, str] = {}
        routes = {
            **spelling_routes(lambda prompt, asked: "one two"),
            "GET /v1/models": self._models,
            "POST /v1/load_lora_adapter": self._load,
            "POST /v1/unload_lora_adapter": self._unload,
        }
        super().__init__({name: self._guarded(name, made) for name, made in routes.items()}, port)

    def _guarded(self, name: str, route: Any) -> Callable[[Json], Any]:
        def answer(asked: Json) -> Any:
            if name in self.failing:
                return Fault(500, "out of memory")
            model = asked.get("model") if isinstance(asked, dict) else None
            if model not in (None, "base", *self.adapters):
                return Fault(404, f"The model `{model}` does not exist.")
            return route(asked) if callable(route) else route

        return answer

    def _models(self, asked: Json) -> Json:
        base = {"id": "base", "owned_by": "vllm", "root": "org/base", "max_model_len": 65_536}
        loaded = [{"id": n, "root": p, "parent": "base"} for n, p in self.adapters.items()]
        return {"data": [base, *loaded]}

    def _load(self, asked: Json) -> Any:
        name, path = asked["lora_name"], asked["lora_path"]
        if name in self.adapters:
            return Fault(400, f"The lora adapter '{name}' has already been loaded.")
        if not Path(path, "adapter_config.json").exists():
            return Fault(404, f"No adapter found for '{name}'")
        self.adapters[name] = path
        return {"success": True}

    def _unload(self, asked: Json) -> Any:
        if self.adapters.pop(asked["lora_name"], None) is None:
            return Fault(404, f"The lora adapter '{asked['lora_name']}' cannot be found.")
        return {"success": True}


QUICK = Retry(tries=3, first=0.01, longest=0.02, total=1.0)
CHAT = [Message("system", "Be brief."), Message("user", "Count.")]


@asynccontextmanager
async def maybe_opened(
    server: RecordedServer,
    tell: Callable[[str], None] = lambda line: None,
    timeout: float = 5.0,
) -> AsyncIterator[TokenServer | None]:
    yield await open_tokens(
        ModelServer(Server(Endpoint.parse(server.base_url), "qwen")),
        context_tokens=2048, limiter=Limiter(8), timeout=timeout, tell=tell, retry=QUICK,
    )  # fmt: skip


@asynccontextmanager
async def opened(server: RecordedServer) -> AsyncIterator[TokenServer]:
    async with maybe_opened(server) as found:
        assert found is not None
        yield found


def changed(events: Events, change: Callable[[Json], Any]) -> Events:
    """Every event with something done to a copy of it."""
    import copy

    copies = [copy.deepcopy(event) for event in events.events]
    for event in copies:
        change(event)
    return replace(events, events=copies)


def without(routes: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: route for name, route in routes.items() if name not in names}
