"""One event of a streamed chat completion, and the tokens that came with it.

Token ids and log-probabilities (natural log) come in two shapes: llama.cpp puts an `id` on
each entry of `logprobs.content`; vLLM sends `token_ids` beside the delta, in the same order.
"""

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Spans = tuple[tuple[int, ...], tuple[float, ...], tuple[int, ...]]
"""token ids, log-probabilities and the offsets in the text after each token"""


@dataclass(frozen=True, slots=True)
class Token:
    """One sampled token as its bytes; `id` is None where the server did not say."""

    id: int | None
    written: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class Delta:
    """What one event adds to the reply."""

    content: str = ""
    reasoning: str = ""
    finish: str | None = None
    usage: Mapping[str, Any] | None = None
    tokens: tuple[Token, ...] = ()


def delta_of(event: Any) -> Delta:
    """Raises ValueError if the event is no chunk of a chat completion."""
    try:
        choices = event.get("choices") or ()
        usage = event.get("usage")
        if not choices:
            return Delta(usage=usage)
        choice = choices[0]
        delta = choice.get("delta") or {}
        return Delta(
            content=delta.get("content") or "",
            reasoning=delta.get("reasoning_content") or delta.get("reasoning") or "",
            finish=choice.get("finish_reason"),
            usage=usage,
            tokens=_tokens(choice) if choice.get("logprobs") else (),
        )
    except (AttributeError, KeyError, IndexError, TypeError) as error:
        raise ValueError(f"not a chunk of a chat completion: {error}") from error


def _tokens(choice: Mapping[str, Any]) -> tuple[Token, ...]:
    entries = choice["logprobs"].get("content") or ()
    ids = choice.get("token_ids") or ()
    beside = ids if len(ids) == len(entries) else [None] * len(entries)
    return tuple(
        Token(entry.get("id", other), _bytes(entry), float(entry["logprob"]))
        for entry, other in zip(entries, beside, strict=True)
    )


def _bytes(entry: Mapping[str, Any]) -> bytes:
    listed = entry.get("bytes")
    return str(entry["token"]).encode() if listed is None else bytes(listed)


@dataclass(slots=True)
class TokenTrace:
    """The tokens of one reply, in order."""

    tokens: list[Token] = field(default_factory=list)

    def spans(self, whole: str, kept: int) -> Spans | None:
        """The tokens that wrote the first `kept` characters of `whole`.

        A token that ends inside a character ends before it; the last token's end is cut to
        `kept`. None unless every token has an id and together they wrote `whole` (tokens of
        reasoning kept apart, say, did not); only an end-of-turn token may follow it.
        """
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        written = ""
        ids: list[int] = []
        ends: list[int] = []
        for token in self.tokens:
            if len(written) >= kept:
                break
            if token.id is None:
                return None
            written += decode(token.written)
            ids.append(token.id)
            ends.append(min(len(written), kept))
        if not ids or not written.startswith(whole[:kept]) or not whole.startswith(written):
            return None
        return tuple(ids), _logprobs(self.tokens[: len(ids)]), tuple(ends)


def _logprobs(tokens: Sequence[Token]) -> tuple[float, ...]:
    return tuple(token.logprob for token in tokens)
