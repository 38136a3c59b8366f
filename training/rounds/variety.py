"""How unlike one another the answers of a round's groups are, where that can be measured."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from memory.errors import RubricemError, SettingsError
from memory.interfaces import Embedder
from training.diversity import answers_of, meaning_apart, words_apart
from training.rounds.rows import JudgedGroup

WORDS, MEANING = "diversity/words", "diversity/meaning"


async def no_embedder() -> Embedder | None:
    """Where answers are not embedded."""
    return None


@dataclass
class Variety:
    """Measures groups; what cannot be measured is left out, and told once with its reason."""

    embedder: Callable[[], Awaitable[Embedder | None]] = no_embedder
    """the embedding model; None: none is loaded, and none is to be"""
    tell: Callable[[str], None] = lambda line: None
    _told: set[str] = field(default_factory=set, init=False)

    async def __call__(self, groups: Sequence[JudgedGroup]) -> dict[str, float]:
        """The means over the groups with two answers or more, by name."""
        answers = [answers_of(one.group.trajectories) for one in groups]
        answers = [group for group in answers if len(group) > 1]
        if not answers:
            return {}
        return await self._words(answers) | await self._meaning(answers)

    async def _words(self, answers: Sequence[Sequence[str]]) -> dict[str, float]:
        try:
            found = await asyncio.to_thread(lambda: list(map(words_apart, answers)))
        except SettingsError as error:
            return self._unmeasured(WORDS, error)
        return {WORDS: fmean(value for value in found if value is not None)}

    async def _meaning(self, answers: Sequence[Sequence[str]]) -> dict[str, float]:
        try:
            embedder = await self.embedder()
        except RubricemError as error:
            return self._unmeasured(MEANING, error)
        if embedder is None:
            return {}
        found = await asyncio.to_thread(lambda: [meaning_apart(a, embedder) for a in answers])
        return {MEANING: fmean(value for value in found if value is not None)}

    def _unmeasured(self, name: str, error: RubricemError) -> dict[str, float]:
        if name not in self._told:
            self._told.add(name)
            self.tell(f"{name} is not measured: {error} {error.remedy}")
        return {}
