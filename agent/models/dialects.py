"""How a server is asked for tokens: one adapter for each kind of server, behind one seam.

Token ids go in and come out, so that what a policy wrote is trained on exactly as it was
sampled. The adapters know paths, bodies and events; connections, tries and the check of what
comes are the same for all (`tokens`). What they know of their servers:

- vLLM, `/v1/completions` with `return_token_ids`: sampling parameters that it would otherwise take
  from the model's `generation_config.json` are all named, as what is not sampled from the model's
  own distribution forms no ratio. The last id is that of the end of the turn, without text.
- SGLang, `/generate`: each event repeats the whole reply so far, or with
  `--incremental-streaming-output` brings what is new alone; the number of tokens that every event
  tells says which. The text lags behind the ids, so what each token wrote is asked for as well. In
  its deterministic mode (`--enable-deterministic-inference`) it writes each reply to one prompt
  alike unless each has a seed, so there one is sent; others heed none, and old ones refuse it.
- llama.cpp, `/completion`: log-probabilities are of the raw model. Of a character that takes
  several tokens the last one's id alone is streamed, which the check of the ids against the text
  finds. `stop` is never sent: its tokens come without probabilities.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rubricem.agent.models.limits import AttemptError
from rubricem.agent.models.llama import completion_request
from rubricem.agent.models.openai_client import Json, ModelServer
from rubricem.agent.models.reading import Piece
from rubricem.memory.interfaces import Message, Sampling, StopReason

Reader = Callable[[Any], Piece]
"""An event's JSON value -> what it adds. Raises LookupError, TypeError, ValueError or
AttributeError where the event is not what the dialect says."""


class TokenDialect(Protocol):
    """One kind of server. Methods raise AttemptError where a call fails."""

    @property
    def path(self) -> str:
        """Where completions are asked for."""
        ...

    def body(self, prefix: Sequence[int], sampling: Sampling) -> Json: ...

    def reader(self) -> Reader:
        """What reads the events of one reply, in their order."""
        ...

    async def facts(self) -> "ServedModel": ...
    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]: ...
    async def encode(self, text: str) -> tuple[int, ...]: ...
    async def decode(self, ids: Sequence[int]) -> str: ...


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What a server says of its model."""

    version: str
    """which weights it serves, as far as it says"""
    context_tokens: int | None


MakeDialect = Callable[[ModelServer, str], TokenDialect]
"""an open server and the model's name on it"""


def as_dicts(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]


def text_in(value: Any) -> str:
    """Raises ValueError if it is none."""
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


def ids_in(value: Any) -> tuple[int, ...]:
    """Token ids of a reply. Raises ValueError if it is no list of them."""
    if not isinstance(value, list) or not all(type(one) is int and one >= 0 for one in value):
        raise ValueError("not a list of token ids")
    return tuple(value)


def numbers_in(value: Any) -> tuple[float, ...] | None:
    """Log-probabilities; None where one of them is missing or none."""
    if not isinstance(value, list):
        return None
    known = [float(one) for one in value if isinstance(one, int | float)]
    return tuple(known) if len(known) == len(value) else None


def context_in(model: Mapping[str, Any]) -> int | None:
    """The context length of an entry of `/v1/models`, where the server tells it there."""
    length = model.get("max_model_len")
    return length if isinstance(length, int) and length > 0 else None


VLLM_FINISHED: dict[Any, StopReason | None] = {None: None, "stop": "eos", "length": "length"}


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
        finish=VLLM_FINISHED[choice.get("finish_reason")],
        cached=cached,
    )


SGLANG_FINISHED: dict[str, StopReason] = {"stop": "eos", "length": "length"}


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
        return WholeReply().new

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


class WholeReply:
    """What has come of one reply, so that what is new in an event can be told."""

    def __init__(self) -> None:
        self._text = ""
        self._tokens = 0

    def new(self, event: Any) -> Piece:
        """Raises ValueError where an event takes back what an earlier one said."""
        told = event["meta_info"]
        reason = told.get("finish_reason")
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
            finish=None if reason is None else SGLANG_FINISHED[reason["type"]],
            cached=int(told.get("cached_tokens") or 0),
        )


LLAMA_FINISHED: dict[str, StopReason] = {"eos": "eos", "limit": "length"}


class LlamaServer:
    """The `TokenDialect` of llama-server."""

    def __init__(self, http: ModelServer, model: str) -> None:
        self._http = http
        self._model = model
        self.path = f"{http.root}/completion"

    def body(self, prefix: Sequence[int], sampling: Sampling) -> Json:
        return completion_request(prefix, sampling) | {"return_tokens": True, "model": self._model}

    def reader(self) -> Reader:
        return _llama_piece

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


def _llama_piece(event: Any) -> Piece:
    entries = event.get("completion_probabilities") or []
    parts = [bytes(entry["bytes"]).decode("utf-8", "replace") for entry in entries]
    finish = LLAMA_FINISHED[event["stop_type"]] if event["stop"] else None
    return Piece(
        text=text_in(event["content"]),
        ids=ids_in(event["tokens"]),
        logprobs=numbers_in([entry["logprob"] for entry in entries]),
        parts=tuple(parts),
        finish=finish,
        cached=int((event.get("timings") or {}).get("cache_n") or 0),
    )
