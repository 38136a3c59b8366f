"""A model's reply while it arrives: where it ends, and which text each token wrote.

Every piece is examined once, whichever model wrote it. The caller's predicate sees the text so far
and returns the offset at which the turn ends; endless repetition, to which small models are prone,
is looked for every 64 characters. What arrives after the end is counted but not kept. A turn longer
than its tokens can be is ended, since a server may ignore the limit. Thinking within the reply's
text is split off only if the caller asks for that: turns of the scaffold begin with a `<think>`
that belongs to them.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

from rubricem.memory.schema import Completion, OnText, StopPredicate, StopReason, Usage
from rubricem.memory.text import split_thinking

# A model that ends its turn by itself sends its usage at once, and a stream read to its end
# leaves the connection fit for the next turn. One that goes on writing is cut off.
LATE_PIECES = 3
CHECK_EVERY = 64
"""new characters between two looks for a loop"""
SHORTEST_BLOCK, LONGEST_BLOCK = 2, 120
SHORTEST_TAIL = 240
REPEATS = 4
SAME_CHARACTER = 200
KEY = 16
"""characters that must recur before a block is compared"""
CUT_SHORT = frozenset({"length", "max_tokens", "max_length", "model_length"})
"""reasons by which servers say that a reply met its limit"""
LONGEST_TOKENS, MOST_PIECES = 8, 4
"""characters and pieces for each token of a turn, over all of it: some servers cut tokens up"""
SLACK = 512
"""tokens that are let through beyond those of the turn, so that short turns may be uneven"""


@dataclass(slots=True)
class Reading:
    """One attempt's reply; `ended` once nothing that follows is wanted."""

    stop: StopPredicate | None = None
    on_text: OnText | None = None
    raw: str = ""
    """all text that came before the end was found; `text` may end sooner"""
    text: str = ""
    begun: bool = False
    """a model has taken the call, which costs even if nothing comes of it"""
    taken: bool = False
    """a piece of the reply has come"""
    finish: str | None = None
    ended: StopReason | None = None
    after_end: int = 0
    """pieces that came although the text had ended"""
    most_tokens: int = sys.maxsize // 16
    progress: int = 0
    """characters and ids that have come, of thinking as well"""
    _pieces: int = 0
    _shown: int = 0
    _unchecked: int = 0

    @property
    def complete(self) -> bool:
        """Whether a whole reply has arrived."""
        return self.ended is not None or self.finish is not None

    @property
    def overdue(self) -> bool:
        """Whether the model goes on writing although the text has ended."""
        return self.ended in ("repetition", "length") or self.after_end >= LATE_PIECES

    @property
    def reason(self) -> StopReason:
        return self.ended or ("length" if str(self.finish).lower() in CUT_SHORT else "eos")

    def take(self, event: Any) -> None:
        """Add what one event brought."""
        raise NotImplementedError

    def _write(self, piece: str) -> None:
        if not piece:
            return
        self.raw += piece
        self.text = self.extract_text()
        # Text that was shown may turn out to be thinking.
        self._shown = min(self._shown, len(self.text))
        if self.stop and (end := self.stop(self.text)) is not None:
            self.text, self.ended = self.text[:end], "stop"
        if self.on_text and len(self.text) > self._shown:
            self.on_text(self.text[self._shown :])
        self._shown = len(self.text)

    def extract_text(self) -> str:
        """What of `raw` is the reply."""
        return self.raw

    def _admit(self, piece: str) -> str:
        """As much of a piece as a turn of so many tokens may hold."""
        room = LONGEST_TOKENS * (self.most_tokens + SLACK) - self.progress
        self.progress += len(piece)
        self._pieces += bool(piece)
        return piece[: max(room, 0)]

    def _watch(self, written: str, new: int) -> None:
        """Look whether the turn is all too long, and for a loop once enough has come."""
        most = self.most_tokens + SLACK
        if not self.ended and (
            self.progress > LONGEST_TOKENS * most or self._pieces > MOST_PIECES * most
        ):
            self.ended = "length"
        self._unchecked += new
        if not self.ended and self._unchecked >= CHECK_EVERY:
            self._unchecked = 0
            self.ended = "repetition" if looping(written) else None


class Delta(NamedTuple):
    """What one event adds to a reply in messages."""

    content: str = ""
    reasoning: str = ""
    finish: str | None = None
    usage: Mapping[str, Any] | None = None
    calls: Sequence[Mapping[str, Any]] = ()
    """pieces of a server's own tool calls: `index`, and more of `name` or `arguments`"""


@dataclass(slots=True)
class ReplyReading(Reading):
    """A chat server's reply."""

    think_is_reasoning: bool = False
    reasoning: str = ""
    usage: Mapping[str, Any] | None = None
    _thought: str = ""
    _calls: dict[int, list[str]] = field(default_factory=dict)
    """the server's own tool calls by their index: name and arguments so far"""

    @property
    def called(self) -> str:
        """The server's own tool calls, written out as Hermes models do."""
        each = [{"name": name, "arguments": given} for name, given in self._calls.values()]
        return "".join(f"\n<tool_call>{json.dumps(call)}</tool_call>" for call in each)

    def take(self, delta: Delta) -> None:
        self.usage = delta.usage or self.usage
        self.finish = delta.finish or self.finish
        if self.ended:
            self.after_end += bool(delta.content or delta.reasoning)
            return
        if delta.reasoning:
            self.reasoning += self._admit(delta.reasoning)
        if delta.content:
            self._write(self._admit(delta.content))
        for call in delta.calls:
            held = self._calls.setdefault(int(call.get("index") or 0), ["", ""])
            name = str(call.get("name") or "")
            held[0] += self._admit(name) if name != held[0] else ""  # some repeat it in each piece
            held[1] += self._admit(str(call.get("arguments") or ""))
        self._watch(self.raw or self.reasoning, len(delta.content) + len(delta.reasoning))

    def extract_text(self) -> str:
        if not self.think_is_reasoning:
            return self.raw
        self._thought, text = split_thinking(self.raw)
        return text

    def completion(self, usage: Usage) -> Completion:
        return Completion(
            text=self.text if self.ended else self.text + self.called,
            stop_reason=self.reason,
            reasoning="\n".join(filter(None, (self.reasoning.strip(), self._thought))),
            usage=usage,
        )


class Piece(NamedTuple):
    """What one event adds to a reply in tokens."""

    text: str = ""
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] | None = None
    """natural, one for each id; None: none were told"""
    parts: tuple[str, ...] | None = None
    """the text of each token as the server tells it; U+FFFD stands for part of a character"""
    finish: StopReason | None = None
    cached: int = 0
    """prompt tokens that the server says it read from its cache"""


PART = "\ufffd"
"""what stands for a part of a character in the text of a token"""


@dataclass(slots=True)
class TokenReading(Reading):
    """A reply whose tokens are known."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] | None = field(default_factory=list)
    """None once one was left out"""
    ends: list[int] = field(default_factory=list)
    """the offset in `raw` after each token"""
    spelled: bool = True
    """whether the server told which text each of them wrote"""
    cached: int = 0

    def take(self, piece: Piece) -> None:
        self.finish = piece.finish or self.finish
        self.cached = max(self.cached, piece.cached)
        if self.ended:
            self.after_end += bool(piece.ids)
            return
        before = len(self.raw)
        self._write(self._admit(piece.text))
        if count := len(piece.ids):
            self.progress += count
            self.ids += piece.ids
            told = piece.parts or ()
            if len(told) == count and "".join(told) == piece.text:
                self.ends += accumulate(map(len, told[1:]), initial=before + len(told[0]))
            else:  # all tokens of the event begin where its text does
                self.ends += [before] * (count - 1) + [len(self.raw)]
                self.spelled = False
            if piece.logprobs is None or len(piece.logprobs) != count:
                self.logprobs = None
            elif self.logprobs is not None:
                self.logprobs += piece.logprobs
        self._watch(self.raw, len(piece.text))

    def completion(self, usage: Usage) -> Completion:
        """The text, and the tokens that begin before it ends.

        The id of the end of the turn is none of them: it has no text.
        """
        ends, length = self.ends, len(self.text)
        kept = sum(start < length for start in [0, *ends][: len(ends)])
        return Completion(
            text=self.text,
            stop_reason=self.reason,
            token_ids=tuple(self.ids[:kept]),
            logprobs=None if self.logprobs is None else tuple(self.logprobs[:kept]),
            token_ends=tuple(min(end, length) for end in ends[:kept]),
            usage=usage,
        )


def looping(text: str) -> bool:
    """Whether the text ends in one block written at least four times over 240 characters.

    Blocks are of 2 to 120 characters, and the last one may be cut short; one and the same
    character 200 times counts as well. Only the last 480 characters are looked at.
    """
    tail = text[-LONGEST_BLOCK * REPEATS :]
    if len(tail) >= SAME_CHARACTER and tail.endswith(tail[-1] * SAME_CHARACTER):
        return True
    if len(tail) < SHORTEST_TAIL:
        return False
    end = start = len(tail) - KEY
    # Where the last characters of the tail stood before: mostly nowhere.
    while (start := tail.rfind(tail[end:], max(0, end - LONGEST_BLOCK), start + KEY - 1)) >= 0:
        block = end - start
        span = max(SHORTEST_TAIL, block * REPEATS)
        if block < SHORTEST_BLOCK or len(tail) < span:
            continue
        if tail[-span:-block] == tail[block - span :]:
            return True
    return False
