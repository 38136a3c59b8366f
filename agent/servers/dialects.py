"""How a server is asked for tokens: one adapter for each kind of server, behind one seam.

Token ids go in and come out, so that what a policy wrote is trained on exactly as it was
sampled. The adapters know paths, bodies and events; connections, tries and the check of what
comes are the same for all (`token_server`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agent.servers.model_server import Json, ModelServer
from memory.interfaces import Message, Sampling, StopReason


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event adds to a reply."""

    text: str = ""
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] | None = None
    """natural, one for each id; None: the server sent none"""
    parts: tuple[str, ...] | None = None
    """the text of each token as the server tells it; U+FFFD stands for part of a character"""
    finish: StopReason | None = None
    cached: int = 0
    """prompt tokens that the server says it read from its cache"""


Reader = Callable[[Any], Piece]
"""An event's JSON value -> what it adds. Raises LookupError, TypeError, ValueError or
AttributeError where the event is not what the dialect says."""


class TokenDialect(Protocol):
    """One kind of server. Methods raise AttemptError where a call fails."""

    @property
    def path(self) -> str:
        """Where completions are asked for."""
        ...

    def body(self, prefix: Sequence[int], sampling: Sampling) -> Json: ...

    def reader(self) -> Reader:
        """What reads the events of one reply, in their order."""
        ...

    async def facts(self) -> "ServedModel": ...
    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]: ...
    async def encode(self, text: str) -> tuple[int, ...]: ...
    async def decode(self, ids: Sequence[int]) -> str: ...


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What a server says of its model."""

    version: str
    """which weights it serves, as far as it says"""
    context_tokens: int | None


MakeDialect = Callable[[ModelServer, str], TokenDialect]
"""an open server and the model's name on it"""


def as_dicts(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]


def text_in(value: Any) -> str:
    """Raises ValueError if it is none."""
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


def ids_in(value: Any) -> tuple[int, ...]:
    """Token ids of a reply. Raises ValueError if it is no list of them."""
    if not isinstance(value, list) or not all(type(one) is int and one >= 0 for one in value):
        raise ValueError("not a list of token ids")
    return tuple(value)


def numbers_in(value: Any) -> tuple[float, ...] | None:
    """Log-probabilities; None where one of them is missing or none."""
    if not isinstance(value, list):
        return None
    known = [float(one) for one in value if isinstance(one, int | float)]
    return tuple(known) if len(known) == len(value) else None


def context_in(model: Mapping[str, Any]) -> int | None:
    """The context length of an entry of `/v1/models`, where the server tells it there."""
    length = model.get("max_model_len")
    return length if isinstance(length, int) and length > 0 else None
