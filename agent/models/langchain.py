"""A `ChatModel` over any chat model of LangChain, named as `provider:model` or made by a program.

It keeps its own sampling, length, retries and key; a reply that it cuts is gone on with. The
packages of its provider are imported when it is opened.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from importlib import import_module
from typing import Any

from pydantic import SecretStr

from rubricem.agent.models.chat_server import TOOL_WORDS, OpenAIChat, calls_in, text_of
from rubricem.agent.models.limits import Endpoint, Fault, Server
from rubricem.agent.models.replies import Delta, ReplyReading
from rubricem.agent.models.tracing import untold
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import Message, Sampling
from rubricem.memory.text import one_line


def open_by_name(name: str, options: Mapping[str, Any]) -> Any:
    """The `BaseChatModel` of a name such as `anthropic:claude-...`. Raises SettingsError."""
    try:
        return import_module("langchain.chat_models").init_chat_model(name, **options)
    except Exception as cause:  # each provider has errors of its own
        said = f"LangChain cannot open {name!r}: {one_line(str(cause), 300)}"
        remedy = "Install the package that it names, set its provider's key, or correct the name."
        raise SettingsError(said, remedy) from cause


class LangChainChat(OpenAIChat):
    """A `BaseChatModel`; `options` are those of `OpenAIChat`."""

    def __init__(self, model: Any, **options: Any) -> None:
        kind = type(model).__name__
        told = (getattr(model, field, None) for field in ("model_name", "model", "model_id"))
        named = next((each for each in told if isinstance(each, str)), kind)
        values = (getattr(model, field) for field in type(model).model_fields)
        key = next((v.get_secret_value() for v in values if isinstance(v, SecretStr)), "")
        super().__init__(named, "http://langchain", key, **options)
        self.name = f"{named}@langchain"
        self._server = Server(Endpoint(kind, kind, loopback=False), named, key)
        self._chat, self._calls_tools = model, True

    async def _read(
        self, reading: ReplyReading, messages: Sequence[Message], sampling: Sampling
    ) -> None:
        model = self._chat
        if sampling.tools and self._calls_tools:
            with suppress(NotImplementedError):
                model = model.bind_tools(json.loads(sampling.tools))
        now, used = asyncio.get_running_loop().time, Counter[str]()
        said = [(message.role, message.content) for message in messages]
        try:
            with untold():
                async with (
                    asyncio.timeout(self._timeout) as silence,
                    aclosing(model.astream(said)) as arriving,
                ):
                    async for chunk in arriving:
                        reading.begun = True
                        reading.take(_delta(chunk, used))
                        silence.reschedule(now() + self._timeout)
                        if reading.overdue:
                            break
        except TimeoutError:
            raise self._server.failed(Fault.SILENT, seconds=self._timeout) from None
        except Exception as cause:  # each provider has errors of its own
            failed = self._server.complaint(f"{type(cause).__name__}: {cause}", begun=False)
            if model is not self._chat and TOOL_WORDS & {*str(cause).lower().split()}:
                self._calls_tools, failed.again = False, True
            if not reading.ended:
                raise failed from cause
        reading.finish = reading.finish or "stop"


def _delta(chunk: Any, used: Counter[str]) -> Delta:
    """What one chunk adds; its tokens are added to those `used` so far."""
    text, thought = text_of(chunk.content)
    thought += "".join(text_of(chunk.additional_kwargs.get("reasoning_content")))
    told = chunk.response_metadata
    finish = told.get("finish_reason") or told.get("stop_reason") or told.get("done_reason")
    if spent := chunk.usage_metadata:
        used["prompt_tokens"] += spent["input_tokens"]
        used["completion_tokens"] += spent["output_tokens"]
        if (cached := (spent.get("input_token_details") or {}).get("cache_read")) is not None:
            used["cached_tokens"] += cached
    details = {"prompt_tokens_details": dict(used) if "cached_tokens" in used else None}
    # A model that does not stream sends a whole message.
    pieces = getattr(chunk, "tool_call_chunks", ()) or chunk.tool_calls
    calls = [{**p, "function": {"name": p["name"], "arguments": p["args"]}} for p in pieces]
    return Delta(
        text,
        thought,
        finish,
        {**used, **details} if used else None,
        tuple(calls_in({"tool_calls": calls})),
    )
