"""SGLang's own `/generate`: token ids in, ids with log-probabilities out, and `/tokenize`.

By default each event repeats the whole reply so far; with `--incremental-streaming-output` it
brings what is new alone. The number of tokens that every event tells says which. The text lags
behind the ids, so what each token wrote is asked for beside its log-probability. A server in its
deterministic mode (`--enable-deterministic-inference`) writes each reply to one prompt alike
unless each has a seed, so there it is sent; others heed none, and old ones refuse it.
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
from agent.servers.retrying import AttemptError
from memory.interfaces import Message, Sampling, StopReason

FINISHED: dict[str, StopReason] = {"stop": "eos", "length": "length"}


class SGLang:
    """The `TokenDialect` of an SGLang server."""

    def __init__(self, http: ModelServer, model: str) -> None:
        self._http = http
        self._model = model
        self._seeded = False
        self.path = f"{http.root}/generate"

    def body(self, prefix: Sequence[int], sampling: Sampling) -> Json:
        seed = (
            {"sampling_seed": sampling.seed} if self._seeded and sampling.seed is not None else {}
        )
        return {
            "input_ids": list(prefix),
            "stream": True,
            "return_logprob": True,
            "return_text_in_logprobs": True,
            "sampling_params": {
                "max_new_tokens": sampling.max_tokens,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": -1,
                "min_p": sampling.min_p,
                "repetition_penalty": 1.0,
                "skip_special_tokens": False,
                "spaces_between_special_tokens": False,
                **seed,
            },
        }

    def reader(self) -> Reader:
        return Whole().new

    async def facts(self) -> ServedModel:
        """The model's path, with the version of its weights where they were updated."""
        info = await self._http.get(f"{self._http.root}/get_model_info")
        self._seeded = await self._deterministic()
        parts = (info.get("model_path") or self._model, info.get("weight_version"))
        listed = [context_in(model) for model in await self._http.models()]
        return ServedModel("@".join(map(str, filter(None, parts))), next(iter(listed), None))

    async def _deterministic(self) -> bool:
        try:
            told = await self._http.get(f"{self._http.root}/get_server_info")
        except AttemptError as failed:
            if failed.away:
                raise
            return False  # it does not tell its settings
        return told.get("enable_deterministic_inference") is True

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return await self._tokens({"messages": as_dicts(messages)})

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self._tokens({"prompt": text, "add_special_tokens": False})

    async def decode(self, ids: Sequence[int]) -> str:
        asked = {"model": self._model, "tokens": list(ids), "skip_special_tokens": False}
        return str((await self._http.beside("/detokenize", asked))["text"])

    async def _tokens(self, asked: Json) -> tuple[int, ...]:
        reply = await self._http.beside("/tokenize", {"model": self._model, **asked})
        return ids_in(reply["tokens"])


class Whole:
    """What has come of one reply, so that what is new in an event can be told."""

    def __init__(self) -> None:
        self._text = ""
        self._tokens = 0

    def new(self, event: Any) -> Piece:
        """Raises ValueError where an event takes back what an earlier one said."""
        told = event["meta_info"]
        ids, entries = event.get("output_ids"), told.get("output_token_logprobs") or []
        ids = ids_in([entry[1] for entry in entries] if ids is None else ids)
        text, known = text_in(event["text"]), 0
        if len(ids) == told["completion_tokens"]:
            if not text.startswith(self._text):
                raise ValueError("an event contradicts an earlier one")
            text, known = text[len(self._text) :], self._tokens
        elif self._tokens + len(ids) != told["completion_tokens"]:
            raise ValueError("tokens are missing between two events")
        self._text += text
        self._tokens = told["completion_tokens"]
        parts = [entry[2] for entry in entries[known:] if isinstance(entry[2], str)]
        return Piece(
            text=text,
            ids=ids[known:],
            logprobs=numbers_in([entry[0] for entry in entries[known:]]),
            parts=tuple(parts),
            finish=_finish(told.get("finish_reason")),
            cached=int(told.get("cached_tokens") or 0),
        )


def _finish(reason: Any) -> StopReason | None:
    return None if reason is None else FINISHED[reason["type"]]
