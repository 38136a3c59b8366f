"""A reply as far as it has arrived, and where it ends.

Every piece is looked at once: the caller's predicate sees the text so far and names the offset
at which the turn is over; endless repetition is looked for every 64 characters, in the text as
in the reasoning. What comes after the end is counted but not kept.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.servers.chat_delta import Delta
from agent.servers.reasoning import split_thinking
from agent.stops import CHECK_EVERY, looping
from memory.interfaces import Completion, OnText, StopPredicate, StopReason
from memory.schema import Usage

# A model that ends its turn by itself sends its usage at once, and a stream read to its end
# leaves the connection fit for the next turn. One that goes on writing is cut off.
LATE_PIECES = 3
BYTES_A_TOKEN = 3
"""of UTF-8; most texts have more"""


@dataclass(slots=True)
class Reading:
    """One attempt's reply; `ended` once nothing that follows is wanted."""

    stop: StopPredicate | None = None
    on_text: OnText | None = None
    think_is_reasoning: bool = False
    raw: str = ""
    text: str = ""
    reasoning: str = ""
    finish: str | None = None
    usage: Mapping[str, Any] | None = None
    ended: StopReason | None = None
    after_end: int = 0
    """pieces that came although the text had ended"""
    _thought: str = ""
    _shown: int = 0
    _unchecked: int = 0

    @property
    def complete(self) -> bool:
        return self.ended is not None or self.finish is not None

    @property
    def overdue(self) -> bool:
        """Whether the model goes on writing although the text has ended."""
        return self.ended == "repetition" or self.after_end >= LATE_PIECES

    def take(self, delta: Delta) -> None:
        self.usage = delta.usage or self.usage
        self.finish = delta.finish or self.finish
        if self.ended:
            self.after_end += bool(delta.content or delta.reasoning)
            return
        self.reasoning += delta.reasoning
        if delta.content:
            self._write(delta.content)
        self._watch(len(delta.content) + len(delta.reasoning))

    def _write(self, piece: str) -> None:
        self.raw += piece
        if self.think_is_reasoning:
            self._thought, self.text = split_thinking(self.raw)
            # A closing tag without an opening one turns text that was shown into reasoning.
            self._shown = min(self._shown, len(self.text))
        else:
            self.text = self.raw
        if self.stop and (end := self.stop(self.text)) is not None:
            self.text, self.ended = self.text[:end], "stop"
        if self.on_text and len(self.text) > self._shown:
            self.on_text(self.text[self._shown :])
        self._shown = len(self.text)

    def _watch(self, new: int) -> None:
        self._unchecked += new
        if self.ended or self._unchecked < CHECK_EVERY:
            return
        self._unchecked = 0
        if looping(self.raw or self.reasoning):
            self.ended = "repetition"

    def completion(self, usage: Usage) -> Completion:
        return Completion(
            text=self.text,
            stop_reason=self.ended or ("length" if self.finish == "length" else "eos"),
            reasoning="\n".join(filter(None, (self.reasoning.strip(), self._thought))),
            usage=usage,
        )


def reckoned(read: Iterable[str], written: str) -> Usage:
    """What a call must have used that its server says nothing of; rather too much."""
    prompt, completion = (
        math.ceil(len(text.encode(errors="replace")) / BYTES_A_TOKEN)
        for text in ("".join(read), written)
    )
    return Usage(prompt_tokens=prompt, completion_tokens=completion, calls=1)


def tokens_of(usage: Mapping[str, Any] | None) -> Usage:
    """What the server says one call used; a call without a word on it is still a call."""
    if not usage:
        return Usage(calls=1)
    prompt = int(usage.get("prompt_tokens") or 0)
    details = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0
    return Usage(
        prompt_tokens=prompt,
        cached_tokens=min(int(cached), prompt),
        completion_tokens=int(usage.get("completion_tokens") or 0),
        calls=1,
    )
