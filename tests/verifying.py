"""A model whose opinion is given, answers to check, and the journal they are checked through."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from agent.journaled import Calls
from agent.verifying.pairs import Pair
from agent.verifying.verifier import AnswerVerifier
from memory.errors import PolicyError
from memory.interfaces import (
    Completion,
    Message,
    OnText,
    Sampling,
    StopPredicate,
)
from memory.journal import Journal
from memory.schema import Source, Trajectory, Usage, Verification

GROWS = "If maxsize is None the cache grows without bound. Otherwise it holds 128 calls."


class GivenModel:
    """An embedded model, one token a character: a given probability of yes, a given text."""

    name, version, context_tokens = "given", "1", 8192

    def __init__(self, yes: float | Callable[[str], float] = 1.0, text: str = "NONE") -> None:
        self.yes = yes
        self.text = text
        self.read: list[str] = []

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return await self.encode("\n".join(message.content for message in messages))

    async def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    async def weigh(self, prefix: Sequence[int], options: Sequence[str]) -> tuple[float, ...]:
        assert options == ("Yes", "yes", "No", "no")
        self.read.append("".join(map(chr, prefix)))
        yes = self.yes(self.read[-1]) if callable(self.yes) else self.yes
        return yes / 2, yes / 2, 1 - yes, 0.0

    async def complete(
        self,
        prefix: Sequence[int],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        self.read.append("".join(map(chr, prefix)))
        return Completion(self.text, "eos", usage=Usage(completion_tokens=3, calls=1))


class GivenChat:
    """A chat server's model that answers by a list of replies, or raises them."""

    name = "given-chat"

    def __init__(self, *replies: str | PolicyError) -> None:
        self.replies = list(replies)
        self.asked: list[list[Message]] = []

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        self.asked.append(list(messages))
        reply = self.replies.pop(0)
        if isinstance(reply, PolicyError):
            raise reply
        return Completion(reply, "eos", usage=Usage(prompt_tokens=10, calls=1))


def verdicts(*each: str) -> str:
    """A server's reply with these verdicts, for the claims from 1."""
    listed = [{"number": i, "reason": "So.", "verdict": v} for i, v in enumerate(each, start=1)]
    return json.dumps({"verdicts": listed})


def pair(claim: str, text: str = GROWS, number: int = 1) -> Pair:
    return Pair(claim, source(text, number))


def source(text: str = GROWS, number: int = 1) -> Source:
    return Source(
        id=f"S{number}", title="lru_cache", location="lib.py", text=text, tool="t", query="q"
    )


@asynccontextmanager
async def calls(tmp_path: Path) -> AsyncIterator[Calls]:
    journal = Journal(tmp_path / "journal.jsonl")
    try:
        yield Calls(journal)
    finally:
        journal.close()


async def verified(
    verifier: AnswerVerifier, trajectory: Trajectory, tmp_path: Path
) -> tuple[Verification, Usage]:
    async with calls(tmp_path) as through:
        return await verifier.verify(trajectory, through)
