"""Judge models whose replies are kept on disk, so that the same call is paid for once.

A call is named by the hash of everything that shapes its reply: the model, the messages or
tokens, and the sampling. A reply that the asker could not use is forgotten, so that a judge
that failed once does not fail for good. A kept reply costs nothing, and its usage says so.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from judge.building import JudgeModel, LocalModel
from memory.interfaces import (
    ChatModel,
    Completion,
    Message,
    OnText,
    Sampling,
    StopPredicate,
)
from memory.replies import ReplyStore


class KeptChat:
    """A `ChatModel` before another one. Calls with a predicate or a listener pass through."""

    def __init__(self, model: ChatModel, store: ReplyStore) -> None:
        self._model = model
        self._store = store

    @property
    def name(self) -> str:
        return self._model.name

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        if stop or on_text:
            return await self._model.chat(messages, sampling, stop, on_text)
        asked = self._asked(messages, sampling)
        kept = await asyncio.to_thread(self._store.load, asked)
        if kept and isinstance(kept.get("text"), str):
            return Completion(kept["text"], "eos", reasoning=str(kept.get("reasoning", "")))
        reply = await self._model.chat(messages, sampling)
        # One that its length cut off would read as whole when it is taken from disk.
        if reply.stop_reason != "length":
            saved = {"text": reply.text, "reasoning": reply.reasoning}
            await asyncio.to_thread(self._store.save, asked, saved)
        return reply

    async def forget(self, messages: Sequence[Message], sampling: Sampling) -> None:
        await asyncio.to_thread(self._store.forget, self._asked(messages, sampling))

    def _asked(self, messages: Sequence[Message], sampling: Sampling) -> Any:
        said = [asdict(message) for message in messages]
        return {"model": self._model.name, "messages": said, "sampling": asdict(sampling)}


class KeptLocal:
    """A `LocalModel` before another one; what is kept are its probabilities."""

    def __init__(self, model: LocalModel, store: ReplyStore) -> None:
        self._model = model
        self._store = store
        self.render = model.render
        self.encode = model.encode
        self.complete = model.complete

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def version(self) -> str:
        return self._model.version

    @property
    def context_tokens(self) -> int:
        return self._model.context_tokens

    async def weigh(self, prefix: Sequence[int], options: Sequence[str]) -> tuple[float, ...]:
        asked = {
            "model": [self._model.name, self._model.version],
            "prefix": list(prefix),
            "options": list(options),
        }
        kept = await asyncio.to_thread(self._store.load, asked)
        if kept and (chances := _chances(kept.get("chances"), len(options))):
            return chances
        given = await self._model.weigh(prefix, options)
        await asyncio.to_thread(self._store.save, asked, {"chances": list(given)})
        return given


def kept(model: JudgeModel, store: ReplyStore) -> JudgeModel:
    """The model with its replies kept."""
    return KeptLocal(model, store) if isinstance(model, LocalModel) else KeptChat(model, store)


def _chances(value: Any, count: int) -> tuple[float, ...]:
    """What was kept, or nothing if it cannot be what was asked for."""
    listed = value if isinstance(value, list) and len(value) == count else []
    good = all(isinstance(one, float | int) and 0 <= one <= 1.0001 for one in listed)
    return tuple(listed) if good else ()
