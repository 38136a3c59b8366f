"""Tools as they are offered to the policy, and parsing its calls of them.

Names, descriptions and schemas come from a server: in a prompt they are data, one line each, and
whatever they say, only the user's allow-list decides what can be called.

A grammar (GBNF) can restrict a call to the tool's name, and to arguments that follow its JSON
schema. Strings, numbers, booleans, choices and lists of these follow the schema, required ones come
first, and anything else is any JSON value. No string can contain `<`, so that none opens a tag.
What a grammar cannot express (lengths, patterns, ranges) the tool itself refuses.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rubricem.agent.transcript.scaffold import neutralise
from rubricem.memory.errors import SourceError
from rubricem.memory.text import one_line

LONGEST_DESCRIPTION = 300
"""characters"""
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
    """JSON schema of its arguments"""

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
        required = self.schema.get("required")
        named = required if isinstance(required, list) else []
        return list(dict.fromkeys(name for name in named if isinstance(name, str)))

    def line(self) -> str:
        """Its line in the prompt."""
        arguments = [
            f"{name}{'' if name in self.required else '?'}: {_type_of(schema)}"
            for name, schema in list(self.properties.items())[:MOST_ARGUMENTS]
        ]
        told = neutralise(one_line(self.description, LONGEST_DESCRIPTION)).replace('"', "'")
        takes = neutralise(one_line(", ".join(arguments), LONGEST_ARGUMENTS))
        return f'{self.name} {{{takes}}} - "{told}"'

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


def _type_of(schema: object) -> str:
    found = schema.get("type") if isinstance(schema, Mapping) else None
    return found if isinstance(found, str) else "any"


MOST_CHOICES = 50
"""of one argument"""
LONGEST_CHOICES = 2000
"""characters of all together"""
LONGEST_NAME = 60
DEEPEST = 2
"""nested schemas; below that any JSON value is accepted"""
LONGEST = 8000
"""characters of one tool's rules; a schema that takes more is not enforced"""
_RULES = r"""
object ::= "{" (pair (", " pair)*)? "}"
pair ::= string ": " value
array ::= "[" (value (", " value)*)? "]"
value ::= object | array | string | number | boolean | null
string ::= "\"" [^"\\<\x00-\x1F\x7F]+ "\""
integer ::= "-"? ("0" | [1-9] [0-9]*)
number ::= integer ("." [0-9]+)?
boolean ::= "true" | "false"
null ::= "null"
"""
OPENING, NAMED, CLOSING = '<call_tool name="', '">', "</call_tool>"
_PLAIN = frozenset({"string", "integer", "number", "boolean", "null", "object"})


def call_grammar(offers: Sequence[Offer], otherwise: str) -> str:
    """The rules of a call of one of the tools, or of `otherwise`, if there is one."""
    calls = " | ".join(f"{_literal(offer.name + NAMED)} {_arguments(offer)}" for offer in offers)
    call = f'{_literal(OPENING)} ({calls}) "{CLOSING}"'
    root = f"{call} | {_literal(otherwise)}" if otherwise else call
    return f"root ::= {root}\n{_RULES.strip()}\n"


def _arguments(offer: Offer) -> str:
    """The object of its arguments; any object if the schema does not list them properly."""
    schema, required = offer.schema, len(offer.required)
    names = list(dict.fromkeys([*offer.required, *list(offer.properties)[:MOST_ARGUMENTS]]))
    listed = isinstance(schema.get("properties"), Mapping)
    if not listed or required > MOST_ARGUMENTS or not all(map(_fits, names)):
        return "object"
    pairs = [_literal(f'"{n}": ') + " " + _value(offer.properties.get(n), schema) for n in names]
    # All that are required and any of the others, in their order, with commas between.
    optional = pairs[required:]
    then = [" ".join(f'(", " {pair})?' for pair in optional[i:]) for i in range(len(optional) + 1)]
    begun = " | ".join(f"{pair} {then[i]}" for i, pair in enumerate(optional, start=1))
    written = f"({begun})?" if begun else ""
    if required:
        written = ' ", " '.join(pairs[:required]) + f" {then[0]}"
    written = f'"{{" {written} "}}"'
    return written if len(written) <= LONGEST else "object"


def _value(schema: object, root: Mapping[str, Any], depth: int = 0) -> str:
    """The rules of a value, as an expression of the grammar."""
    # A reference to a definition of the same schema is followed one step, as they may go round.
    named = schema.get("$ref") if isinstance(schema, Mapping) else None
    prefix, _, name = named.rpartition("/") if isinstance(named, str) else ("", "", "")
    definitions = root.get("$defs") if prefix == "#/$defs" else None
    schema = definitions.get(name) if isinstance(definitions, Mapping) else schema
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return "value"
    if choices := _choices(schema):
        return choices
    options = schema.get("anyOf", schema.get("oneOf"))
    kinds = schema.get("type")
    if isinstance(kinds, list):
        options = [{**schema, "type": kind} for kind in kinds]
    if isinstance(options, list) and 0 < len(options) <= MOST_ARGUMENTS:
        held = dict.fromkeys(_value(option, root, depth + 1) for option in options)
        return f"({' | '.join(held)})"
    if kinds == "array":
        item = _value(schema.get("items"), root, depth + 1)
        return f'"[" ({item} (", " {item})*)? "]"'
    return kinds if isinstance(kinds, str) and kinds in _PLAIN else "value"


def _choices(schema: Mapping[str, Any]) -> str:
    """The listed values; "" if there are none, or too many to enforce."""
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(listed, list) or len(listed) > MOST_CHOICES:
        return ""
    written = [json.dumps(each, ensure_ascii=False) for each in listed]
    fit = [each for each in written if "<" not in each and each.isprintable()]
    if not fit or sum(map(len, fit)) > LONGEST_CHOICES:
        return ""
    return f"({' | '.join(map(_literal, fit))})"


def _fits(name: object) -> bool:
    """Whether an argument's name can be written in a call unescaped."""
    fit = isinstance(name, str) and name.isprintable() and not {'"', "\\", "<"} & set(name)
    return fit and 0 < len(str(name)) <= LONGEST_NAME


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
