"""What hosted models cost, in US dollars per million tokens.

The table is what OpenAI published for its standard tier as of March 2026; prices change, so the
user's own table goes first. It holds for OpenAI's own address alone: the same model name on
another server says nothing about that server's price, and a server of one's own costs
electricity that nobody counted. No price is None, never 0. Models whose price depends on the
hour or on the length of the prompt are left out.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from rubricem.memory.schema import Usage


class Price(NamedTuple):
    """US dollars per million tokens; `cached` is for prompt tokens read from a cache."""

    prompt: float
    cached: float
    completion: float


PUBLISHED: Mapping[str, Mapping[str, Price]] = MappingProxyType(
    {
        "api.openai.com": {
            "gpt-5": Price(1.25, 0.125, 10.0),
            "gpt-5-mini": Price(0.25, 0.025, 2.0),
            "gpt-5-nano": Price(0.05, 0.005, 0.4),
            "gpt-4.1": Price(2.0, 0.5, 8.0),
            "gpt-4.1-mini": Price(0.4, 0.1, 1.6),
            "gpt-4.1-nano": Price(0.1, 0.025, 0.4),
            "gpt-4o": Price(2.5, 1.25, 10.0),
            "gpt-4o-mini": Price(0.15, 0.075, 0.6),
        }
    }
)

_SNAPSHOT_DATE = re.compile(r"-\d{4}-\d{2}-\d{2}$")


class Prices:
    """The published prices and, before them, the user's own by model name."""

    def __init__(self, own: Mapping[str, tuple[float, float, float]] | None = None) -> None:
        self._own = {model: Price(*price) for model, price in (own or {}).items()}

    def of(self, model: str, host: str) -> Price | None:
        """The price of a model on a host; a dated name falls back on the name without date."""
        published = PUBLISHED.get(host, {})
        for name in (model, _SNAPSHOT_DATE.sub("", model)):
            if price := self._own.get(name) or published.get(name):
                return price
        return None


def cost(usage: Usage, price: Price | None) -> float | None:
    """Dollars that the usage's tokens cost; None without a price."""
    if price is None:
        return None
    fresh = usage.prompt_tokens - usage.cached_tokens
    return (
        fresh * price.prompt
        + usage.cached_tokens * price.cached
        + usage.completion_tokens * price.completion
    ) / 1e6
