"""Tools as they are offered to the policy, and parsing its calls of them.

Names, descriptions and schemas come from a server: in a prompt they are data, one line each, and
whatever they say, only the user's allow-list decides what can be called.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rubricem.agent.models.turns import as_function
from rubricem.agent.transcript.scaffold import neutralise
from rubricem.memory.errors import SourceError
from rubricem.memory.text import one_line

LONGEST_DESCRIPTION = 300
"""characters"""
LONGEST_NAME = 64
MOST_ARGUMENTS = 12
"""named in the prompt"""
LONGEST_ARGUMENTS = 600
"""characters of all together"""


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool of one server; the policy calls it `server.tool`."""

    server: str
    tool: str
    description: str
    schema: Mapping[str, Any]
    acts: bool = True
    """whether it may change something: its server does not say that it only reads"""

    @property
    def name(self) -> str:
        return f"{self.server}.{self.tool}"

    @property
    def properties(self) -> Mapping[str, Any]:
        """The arguments by name; empty if the server lists them in a form that is no schema."""
        properties = self.schema.get("properties")
        return properties if isinstance(properties, Mapping) else {}

    @property
    def required(self) -> Sequence[str]:
        """The names of the required arguments."""
        return _required(self.schema)

    @property
    def told(self) -> str:
        """What its server says of it and of its arguments."""
        told, some = one_line(self.description, LONGEST_DESCRIPTION), list(self.properties.items())
        each = ((n, p.get("description")) for n, p in some if isinstance(p, Mapping))
        said = "; ".join(f"{n}: {text}" for n, text in each if isinstance(text, str))
        said = one_line(said, LONGEST_ARGUMENTS)
        return neutralise(f"{told} ({said})".strip() if said else told)

    def line(self) -> str:
        """Its line in the prompt."""
        defined = self.schema.get("$defs") or self.schema.get("definitions")
        takes: Any = {"properties": self.properties, "required": self.required}
        takes = _shape(takes, defined if isinstance(defined, Mapping) else {})
        told = self.told.replace('"', "'")
        takes = neutralise(one_line(takes, LONGEST_ARGUMENTS)).replace('"', "'")
        return f'{self.name} {takes} - "{told}"'

    def definition(self) -> dict[str, Any]:
        """The same in the form in which servers take tools."""
        some = list(self.properties)[:MOST_ARGUMENTS]
        named = {neutralise(one_line(n, LONGEST_NAME)): _type_of(self.properties[n]) for n in some}
        return as_function(self.name, self.told, named, [n for n in self.required if n in named])

    def arguments(self, written: str) -> dict[str, Any]:
        """The arguments in a call's text: a JSON object, or the one string that the tool needs.

        Raises SourceError of one sentence for the policy.
        """
        try:
            value = json.loads(written)
        except (ValueError, RecursionError):
            value = written
        if isinstance(value, dict):
            return value
        properties = self.properties
        wanted = [name for name in properties if name in self.required] or list(properties)
        broken = written.startswith('{"')
        if not broken and len(wanted) == 1 and _type_of(properties[wanted[0]]) == "string":
            return {wanted[0]: written}
        named = ", ".join(wanted) or "no arguments"
        is_not = ", and what was written is no valid one" if broken else ""
        raise SourceError(f"{self.name} takes a JSON object with {named}{is_not}.")


def _required(schema: Mapping[str, Any]) -> list[str]:
    required = schema.get("required")
    named = required if isinstance(required, list) else []
    return list(dict.fromkeys(name for name in named if isinstance(name, str)))


def _shape(schema: Any, defined: Mapping[str, Any], depth: int = 5) -> str:
    """What a schema admits, as a type is written; "any" where it says nothing or lies deeper."""

    def inner(part: object) -> str:
        return _shape(part, defined, depth - 1)

    match schema if depth else None:
        case {"$ref": str(place)}:
            return inner(defined.get(place.rpartition("/")[2]))
        case {"enum": [*values]}:
            return " | ".join(json.dumps(v, ensure_ascii=False) for v in values[:MOST_ARGUMENTS])
        case {"anyOf": [*kinds]} | {"oneOf": [*kinds]}:
            return " | ".join(dict.fromkeys(map(inner, kinds[: 2 * depth + 2])))
        case {"properties": {**named}}:
            required, some = _required(schema), list(named.items())[: 2 * depth + 2]
            told = (f"{n}{'' if n in required else '?'}: {inner(each)}" for n, each in some)
            return f"{{{', '.join(told)}}}"
        case {"items": items}:
            return f"[{inner(items)}]"
    return _type_of(schema)


def _type_of(schema: object) -> str:
    found = schema.get("type") if isinstance(schema, Mapping) else None
    return found if isinstance(found, str) else "any"
