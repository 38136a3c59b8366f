"""What llama.cpp streams while it writes, gathered into a completion.

Chunks arrive on llama.cpp's own thread. The end is found by our predicate, or where the text
begins to loop; the ids, log-probabilities and offsets of all tokens are kept.
"""

import codecs
from dataclasses import dataclass, field
from typing import Any

from agent.stops import looping
from memory.errors import PolicyError
from memory.interfaces import Completion, OnText, StopPredicate, StopReason
from memory.schema import Usage


@dataclass
class TokenStream:
    """What arrives from the callback thread, up to the predicate's end."""

    stop: StopPredicate | None
    emit: OnText
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    token_ends: list[int] = field(default_factory=list)
    reason: StopReason | None = None
    error: str = ""
    """what llama.cpp refused the request with"""
    fault: Exception | None = None
    """what our own reading raised"""
    cached: int = 0
    sampled: int = 0
    """tokens that llama.cpp says it has sampled"""
    unnamed: list[int] = field(default_factory=list)
    """places in `token_ids` of tokens before which others were sampled whose ids did not come"""
    cancelled: bool = False

    def __post_init__(self) -> None:
        # A token may end inside a character; the decoder holds its bytes back until it is whole.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._looked_at = 0

    def take(self, chunk: dict[str, Any]) -> bool:
        """Called by llama.cpp for each chunk; True ends the request.

        xllamacpp drops what a callback raises, so a failure is kept and raised afterwards.
        """
        try:
            return self._take(chunk)
        except Exception as fault:
            self.fault = fault
            return True

    def _take(self, chunk: dict[str, Any]) -> bool:
        if "error" in chunk:
            self.error = str(chunk["error"].get("message", chunk["error"]))
            return True
        if self.reason in ("stop", "repetition") or self.cancelled:
            return True
        choice = (chunk.get("choices") or [{}])[0]
        before, named = len(self.text), len(self.token_ids)
        for token in ((choice.get("logprobs") or {}).get("content")) or []:
            self._token(token)
        if choice.get("finish_reason"):
            self.reason = "length" if choice["finish_reason"] == "length" else "eos"
        self._count(chunk, len(self.token_ids) - named)
        self._end(before)
        return self.reason in ("stop", "repetition")

    def _token(self, token: dict[str, Any]) -> None:
        if not token["bytes"] and not token["token"]:
            return  # the end-of-turn token: an action without text, told by `reason`
        self.text += self._decoder.decode(bytes(token["bytes"]))
        self.token_ids.append(token["id"])
        self.logprobs.append(float(token["logprob"]))
        self.token_ends.append(len(self.text))

    def _count(self, chunk: dict[str, Any], named: int) -> None:
        timings = chunk.get("timings", {})
        self.cached = timings.get("cache_n", self.cached)
        before, self.sampled = self.sampled, timings.get("predicted_n", self.sampled)
        if named and self.sampled - before > named:
            self.unnamed.append(len(self.token_ids) - 1)

    def _end(self, before: int) -> None:
        if len(self.text) == before:
            return
        self.emit(self.text[before:])
        if self.stop and (end := self.stop(self.text)) is not None:
            self.text, self.reason = self.text[:end], "stop"
        elif len(self.text) - self._looked_at >= 64:
            self._looked_at = len(self.text)
            if looping(self.text):
                self.reason = "repetition"

    def completion(self, prompt_tokens: int) -> Completion:
        """The finished text; tokens that begin at or after its end are left out."""
        if self.fault:
            told = f"{type(self.fault).__name__}: {self.fault}"
            raise PolicyError(
                f"the embedded model's text could not be read: {told}"
            ) from self.fault
        if self.error:
            raise refused(self.error)
        starts = [0, *self.token_ends][: len(self.token_ends)]
        kept = sum(1 for start in starts if start < len(self.text))
        usage = Usage(
            prompt_tokens=prompt_tokens,
            cached_tokens=self.cached,
            completion_tokens=len(self.token_ids),
            cost=0.0,
            calls=1,
        )
        return Completion(
            text=self.text,
            stop_reason=self.reason or "eos",
            token_ids=tuple(self.token_ids[:kept]),
            logprobs=tuple(self.logprobs[:kept]),
            token_ends=tuple(min(end, len(self.text)) for end in self.token_ends[:kept]),
            usage=usage,
        )


def refused(error: str) -> PolicyError:
    return PolicyError(
        f"the embedded model refused the request: {error}",
        "Ask a shorter question, allow fewer tool calls, or raise context_tokens.",
    )
