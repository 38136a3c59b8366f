"""The base of all stored values, what a call to a model costs, and a prompt with a scaffold."""

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """A frozen value; unknown fields of newer versions are ignored when read.

    In JSON, what is no finite number is written as a text ("NaN"), and read back from it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings")


class Usage(Value):
    """Tokens and money of one call or of many; `cost` is None where no price is known."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    """in US dollars"""
    calls: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        costs = [usage.cost for usage in (self, other) if usage.calls and usage.cost is not None]
        unknown = any(usage.calls and usage.cost is None for usage in (self, other))
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cost=None if unknown or not costs else sum(costs),
            calls=self.calls + other.calls,
        )


NO_USAGE = Usage()


class ScaffoldedPrompt(Value):
    """What a rollout was shown of its question's rubric, and its prompt without that."""

    text: str
    """the end of the trajectory's system prompt"""
    shown: int
    """criteria in it"""
    bare_ids: tuple[int, ...] | None = None
    """of the whole chat prompt without the text; those with it stand in the first segment"""
