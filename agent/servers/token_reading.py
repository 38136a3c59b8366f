"""A reply of tokens as far as it has arrived, where it ends, and what each token wrote."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.servers.dialects import Piece
from agent.stops import CHECK_EVERY, looping
from memory.interfaces import OnText, StopPredicate, StopReason

LATE_PIECES = 3
PART = "\ufffd"
"""what stands for a part of a character in the text of a token"""


@dataclass(slots=True)
class TokenReading:
    """One attempt's reply; `ended` once nothing that follows is wanted."""

    stop: StopPredicate | None = None
    on_text: OnText | None = None
    raw: str = ""
    """all text that came before the end was found; `text` may end sooner"""
    text: str = ""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] | None = field(default_factory=list)
    """None once the server has left one out"""
    parts: list[str] | None = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    """the offset in `raw` at which each token had come, by the events' own texts"""
    finish: StopReason | None = None
    cached: int = 0
    ended: StopReason | None = None
    after_end: int = 0
    _unchecked: int = 0

    @property
    def complete(self) -> bool:
        return self.ended is not None or self.finish is not None

    @property
    def overdue(self) -> bool:
        return self.ended == "repetition" or self.after_end >= LATE_PIECES

    @property
    def reason(self) -> StopReason:
        return self.ended or self.finish or "eos"

    def take(self, piece: Piece) -> None:
        self.finish = piece.finish or self.finish
        self.cached = max(self.cached, piece.cached)
        if self.ended:
            self.after_end += bool(piece.ids)
            return
        before = len(self.raw)
        self.raw += piece.text
        self._keep(piece, before)
        self._write(before)

    def _keep(self, piece: Piece, before: int) -> None:
        if not (count := len(piece.ids)):
            return
        self.ids += piece.ids
        # Several tokens of one event: all begin where its text does.
        self.arrived += [before] * (count - 1) + [len(self.raw)]
        if self.logprobs is not None:
            whole = piece.logprobs is not None and len(piece.logprobs) == count
            self.logprobs = [*self.logprobs, *(piece.logprobs or ())] if whole else None
        if self.parts is not None:
            told = piece.parts is not None and len(piece.parts) == count
            self.parts = [*self.parts, *(piece.parts or ())] if told else None

    def _write(self, before: int) -> None:
        self.text = self.raw
        if self.stop and (end := self.stop(self.raw)) is not None:
            self.text, self.ended = self.raw[:end], "stop"
        if self.on_text and len(self.text) > before:
            self.on_text(self.text[before:])
        self._unchecked += len(self.raw) - before
        if not self.ended and self._unchecked >= CHECK_EVERY:
            self._unchecked = 0
            self.ended = "repetition" if looping(self.raw) else None

    def ends(self) -> list[int]:
        """The offset in `raw` after each token."""
        told = aligned(self.parts, self.raw) if self.parts is not None else None
        return self.arrived if told is None else told


def aligned(parts: Sequence[str], text: str) -> list[int] | None:
    """The offset in the text after each part; None where they did not write the text.

    Parts of characters are found by what follows them. A tokeniser that drops a leading space
    when it decodes a token alone is allowed for. Parts after the whole text, as of a text that
    lags behind its tokens, end where it ends.
    """
    ends: list[int] = []
    at = 0
    waiting: list[str] = []
    for part in parts:
        if PART in part:
            waiting.append(part)
            continue
        start = _found(part, text, at, room=sum(map(len, waiting)))
        if start is None:
            return None
        ends += [at] * (len(waiting) - 1) + [start] * bool(waiting)
        at = min(start + len(part), len(text))
        waiting.clear()
        ends.append(at)
    if len(text) - at > sum(map(len, waiting)):
        return None
    return ends + [at] * (len(waiting) - 1) + [len(text)] * bool(waiting)


def _found(part: str, text: str, at: int, room: int) -> int | None:
    """Where a part begins: at `at`, or after at most `room` characters of which parts came."""
    if text.startswith(part, at) and not room:
        return at
    left = text[at:]
    if len(left) < len(part) and part.startswith(left):
        return at
    start = text.find(part, at, at + room + len(part) + 1)
    if start < 0:
        return len(text) if len(left) <= room else None
    return start if room or text[at:start] == " " else None
