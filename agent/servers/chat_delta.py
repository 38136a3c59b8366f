"""One event of a streamed chat completion."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Delta:
    """What one event adds to the reply."""

    content: str = ""
    reasoning: str = ""
    finish: str | None = None
    usage: Mapping[str, Any] | None = None


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
        )
    except (AttributeError, KeyError, IndexError, TypeError) as error:
        raise ValueError(f"not a chunk of a chat completion: {error}") from error
