"""The body of a chat completion request, as far as this server understands it.

OpenAI-compatible servers differ in what they accept. Everything useful is asked for first;
what a server refuses by name is left out from then on, or given its other name.
"""

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from memory.interfaces import Message, Sampling

log = logging.getLogger(__name__)

NEEDED = frozenset({"model", "messages", "stream"})
SCHEMA_WORDS = frozenset({"response_format", "json_schema", "schema", "grammar", "guided"})
RENAMED = {"max_tokens": "max_completion_tokens"}

# A complaint about a parameter itself, unlike one about its value.
_UNKNOWN = re.compile(
    r"support|unrecogni[sz]ed|unknown|unexpected|extra|permitted|not allowed", re.IGNORECASE
)
_OUT_OF_RANGE = re.compile(r"at most|too (large|long|many)|maximum|less than|greater than|between")


@dataclass(slots=True)
class Dialect:
    """What one server has refused so far."""

    model: str
    refused: set[str] = field(default_factory=set)

    def body(self, messages: Sequence[Message], sampling: Sampling) -> dict[str, Any]:
        wished: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": m.role, "content": m.content} for m in messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        wished |= _sampling_extras(sampling)
        for name in self.refused & wished.keys():
            value = wished.pop(name)
            if name in RENAMED:
                wished[RENAMED[name]] = value
        return wished

    def learn(self, body: dict[str, Any], complaint: str) -> None:
        """Leave out from now on what is in `body` and what the complaint says is unknown."""
        named = set(re.findall(r"\w+", complaint))
        # Servers know different parts of schemas; none is needed, so any complaint ends its use.
        if "response_format" in body and named & SCHEMA_WORDS:
            named.add("response_format")
        elif not _UNKNOWN.search(complaint) or _OUT_OF_RANGE.search(complaint):
            return
        if "include_usage" in named:
            named.add("stream_options")
        for name in (body.keys() & named) - NEEDED - self.refused:
            log.info("the server of %s does not accept %s", self.model, name)
            self.refused.add(name)


def _sampling_extras(sampling: Sampling) -> dict[str, Any]:
    """What is asked for only when it is set, since hosted servers know none of it."""
    extras: dict[str, Any] = {}
    if sampling.seed is not None:
        extras["seed"] = sampling.seed
    if sampling.min_p > 0:
        extras["min_p"] = sampling.min_p
    if sampling.json_schema is not None:
        form = {"name": "reply", "schema": json.loads(sampling.json_schema)}
        extras["response_format"] = {"type": "json_schema", "json_schema": form}
    if sampling.grammar is not None:
        extras["grammar"] = sampling.grammar
    if sampling.dry:
        extras |= {"dry_multiplier": 0.8, "dry_base": 1.75, "dry_allowed_length": 4}
    return extras
