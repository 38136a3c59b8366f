"""llama.cpp's own `/completion`: token ids in, ids with log-probabilities of the raw model out.

Of a character that takes several tokens llama.cpp streams the last one's id alone; the check of
the ids against the text finds that. `stop` is never sent: its tokens come without probabilities.
"""

from collections.abc import Sequence
from typing import Any

from agent.llama import completion_request
from agent.servers.dialects import Piece, Reader, ServedModel, as_dicts, ids_in, numbers_in, text_in
from agent.servers.model_server import Json, ModelServer
from memory.interfaces import Message, Sampling, StopReason

FINISHED: dict[str, StopReason] = {"eos": "eos", "limit": "length"}


class LlamaServer:
    """The `TokenDialect` of llama-server."""

    def __init__(self, http: ModelServer, model: str) -> None:
        self._http = http
        self._model = model
        self.path = f"{http.root}/completion"

    def body(self, prefix: Sequence[int], sampling: Sampling) -> Json:
        return completion_request(prefix, sampling) | {"return_tokens": True, "model": self._model}

    def reader(self) -> Reader:
        return _piece

    async def facts(self) -> ServedModel:
        props = await self._http.get(f"{self._http.root}/props")
        context = (props.get("default_generation_settings") or {}).get("n_ctx")
        return ServedModel(str(props.get("model_path") or self._model), context)

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        asked: Json = {"messages": as_dicts(messages)}
        rendered = await self._http.beside("/apply-template", asked)
        return await self._tokens(rendered["prompt"], special=True)

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self._tokens(text, special=False)

    async def decode(self, ids: Sequence[int]) -> str:
        return str((await self._http.beside("/detokenize", {"tokens": list(ids)}))["content"])

    async def _tokens(self, text: str, *, special: bool) -> tuple[int, ...]:
        asked = {"content": text, "parse_special": special, "add_special": special}
        return ids_in((await self._http.beside("/tokenize", asked))["tokens"])


def _piece(event: Any) -> Piece:
    entries = event.get("completion_probabilities") or []
    parts = [bytes(entry["bytes"]).decode("utf-8", "replace") for entry in entries]
    finish = FINISHED[event["stop_type"]] if event["stop"] else None
    return Piece(
        text=text_in(event["content"]),
        ids=ids_in(event["tokens"]),
        logprobs=numbers_in([entry["logprob"] for entry in entries]),
        parts=tuple(parts),
        finish=finish,
        cached=int((event.get("timings") or {}).get("cache_n") or 0),
    )
