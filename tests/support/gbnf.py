"""A grammar of llama.cpp (GBNF) as a regular expression, so that tests can say what it accepts.

Rules that name themselves are followed a few levels deep, which is deeper than any test writes.
"""

import re

_PART = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*")|(?P<set>\[(?:[^\]\\]|\\.)*\])|(?P<rule>[a-z]+\d*)|(?P<mark>[()|?*+]|\{\d+(?:,\d*)?\})'
)
DEPTH = 10


def accepts(grammar: str, text: str) -> bool:
    """Whether the whole text is one that the grammar lets through."""
    rules = dict(line.split(" ::= ", 1) for line in grammar.strip().splitlines())
    return re.fullmatch(_pattern(rules["root"], rules, DEPTH), text) is not None


def _pattern(expression: str, rules: dict[str, str], depth: int) -> str:
    return "".join(_part(found, rules, depth) for found in _PART.finditer(expression))


def _part(found: re.Match[str], rules: dict[str, str], depth: int) -> str:
    if text := found["text"]:
        plain = text[1:-1].replace('\\"', '"').replace("\\\\", "\\").replace("\\n", "\n")
        return f"(?:{re.escape(plain)})"
    if rule := found["rule"]:
        inner = _pattern(rules[rule], rules, depth - 1) if depth else "(?!)"
        return f"(?:{inner})"
    return found["mark"].replace("(", "(?:") if found["mark"] else found["set"]
