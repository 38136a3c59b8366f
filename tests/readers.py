"""A reader of choices with one token per character, whose probabilities follow a rule."""

from collections.abc import Callable, Sequence

from memory.interfaces import Message


class FixedReader:
    """A `ChoiceReader`; the rule sees the whole prefix as text."""

    name = "reader"
    version = "1"

    def __init__(
        self, rule: Callable[[str], tuple[float, ...]], context_tokens: int = 100_000
    ) -> None:
        self.rule = rule
        self.context_tokens = context_tokens
        self.texts: list[str] = []
        self.options: list[tuple[str, ...]] = []

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return await self.encode("\n".join(message.content for message in messages))

    async def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    async def weigh(self, prefix: Sequence[int], options: Sequence[str]) -> tuple[float, ...]:
        self.texts.append("".join(map(chr, prefix)))
        self.options.append(tuple(options))
        return self.rule(self.texts[-1])
