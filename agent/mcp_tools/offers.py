"""A tool as it is offered to the policy, and what the policy writes as a call of it.

Names, descriptions and schemas come from a server: they are data in a prompt, one line each, and
whatever they say, only the user's allow-list decides what can be called.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.reports.printable import one_line
from agent.scaffold import neutralise
from memory.errors import SourceError

LONGEST_DESCRIPTION = 300
"""characters"""
MOST_ARGUMENTS = 12
"""that are named in the prompt"""
LONGEST_ARGUMENTS = 600
"""characters of them all"""


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool of one server; the policy calls it `server.tool`."""

    server: str
    tool: str
    description: str
    schema: Mapping[str, Any]
    """JSON schema of its arguments"""

    @property
    def name(self) -> str:
        return f"{self.server}.{self.tool}"

    def line(self) -> str:
        """What the prompt says of it."""
        required = required_of(self.schema)
        arguments = [
            f"{name}{'' if name in required else '?'}: {_type_of(schema)}"
            for name, schema in list(properties_of(self.schema).items())[:MOST_ARGUMENTS]
        ]
        told = neutralise(one_line(self.description, LONGEST_DESCRIPTION)).replace('"', "'")
        takes = neutralise(one_line(", ".join(arguments), LONGEST_ARGUMENTS))
        return f'{self.name} {{{takes}}} - "{told}"'

    def arguments(self, written: str) -> dict[str, Any]:
        """What a call's text means: a JSON object, or the one text that the tool asks for.

        Raises SourceError, in a sentence for the policy.
        """
        try:
            value = json.loads(written)
        except (ValueError, RecursionError):
            value = written
        if isinstance(value, dict):
            return value
        properties, required = properties_of(self.schema), required_of(self.schema)
        wanted = [name for name in properties if name in required] or list(properties)
        broken = written.startswith('{"')
        if not broken and len(wanted) == 1 and _type_of(properties[wanted[0]]) == "string":
            return {wanted[0]: written}
        named = ", ".join(wanted) or "no arguments"
        is_not = ", and what was written is no valid one" if broken else ""
        raise SourceError(f"{self.name} takes a JSON object with {named}{is_not}.")


def properties_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments by name; none where a server lists them in no way that can be meant."""
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def required_of(schema: Mapping[str, Any]) -> Sequence[str]:
    """The names of those that a call must have."""
    required = schema.get("required")
    named = required if isinstance(required, list) else []
    return list(dict.fromkeys(name for name in named if isinstance(name, str)))


def _type_of(schema: object) -> str:
    found = schema.get("type") if isinstance(schema, Mapping) else None
    return found if isinstance(found, str) else "any"
