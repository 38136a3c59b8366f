"""vLLM's completions of token ids: `/v1/completions` with `return_token_ids`, `/tokenize`.

Sampling parameters that vLLM would otherwise take from the model's `generation_config.json` are
all named: what is not sampled from the model's own distribution forms no ratio. The reply's last
id is that of the end of the turn, which has no text.
"""

from collections.abc import Sequence
from typing import Any

from agent.servers.dialects import (
    Piece,
    Reader,
    ServedModel,
    as_dicts,
    context_in,
    ids_in,
    numbers_in,
    text_in,
)
from agent.servers.model_server import Json, ModelServer
from memory.interfaces import Message, Sampling, StopReason

FINISHED: dict[Any, StopReason | None] = {None: None, "stop": "eos", "length": "length"}


class VLLM:
    """The `TokenDialect` of a vLLM server."""

    path = "/completions"

    def __init__(self, http: ModelServer, model: str) -> None:
        self._http = http
        self._model = model

    def body(self, prefix: Sequence[int], sampling: Sampling) -> Json:
        body: Json = {
            "model": self._model,
            "prompt": list(prefix),
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": -1,
            "min_p": sampling.min_p,
            "repetition_penalty": 1.0,
            "logprobs": 1,
            "return_token_ids": True,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
        }
        return body if sampling.seed is None else body | {"seed": sampling.seed}

    def reader(self) -> Reader:
        return _piece

    async def facts(self) -> ServedModel:
        found = next((m for m in await self._http.models() if m["id"] == self._model), {})
        return ServedModel(str(found.get("root") or self._model), context_in(found))

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return await self._tokens({"messages": as_dicts(messages), "add_generation_prompt": True})

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self._tokens({"prompt": text, "add_special_tokens": False})

    async def decode(self, ids: Sequence[int]) -> str:
        asked = {"model": self._model, "tokens": list(ids)}
        return str((await self._http.beside("/detokenize", asked))["prompt"])

    async def _tokens(self, asked: Json) -> tuple[int, ...]:
        reply = await self._http.beside("/tokenize", {"model": self._model, **asked})
        return ids_in(reply["tokens"])


def _piece(event: Any) -> Piece:
    details = (event.get("usage") or {}).get("prompt_tokens_details") or {}
    cached = int(details.get("cached_tokens") or 0)
    if not event["choices"]:
        return Piece(cached=cached)
    choice = event["choices"][0]
    told = choice.get("logprobs") or {}
    parts = told.get("tokens")
    return Piece(
        text=text_in(choice["text"]),
        ids=ids_in(choice.get("token_ids") or []),
        logprobs=numbers_in(told.get("token_logprobs")),
        parts=tuple(map(str, parts)) if parts else None,
        finish=FINISHED[choice.get("finish_reason")],
        cached=cached,
    )
