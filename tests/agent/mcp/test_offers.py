"""The grammar of a tool's call: what its schema wants gets through, nothing that opens a tag."""

import json
from typing import Any

import pytest

from rubricem.agent.mcp.offers import LONGEST, Offer, call_grammar
from tests.agent.research.gbnf import accepts

ENDS = "<review>"
TEXT = {"type": "string"}


def lets_through(schema: dict[str, Any], arguments: str) -> bool:
    grammar = call_grammar([Offer("shop", "price", "", schema)], ENDS)
    assert accepts(grammar, ENDS), "no tool need be called"
    return accepts(grammar, f'<call_tool name="shop.price">{arguments}</call_tool>')


def one(schema: object, value: str) -> bool:
    whole = {"properties": {"item": schema}, "required": ["item"]}
    return lets_through(whole, f'{{"item": {value}}}')


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (TEXT, ['"blue widget"', '"größe 3, 日本"'], ['""', '"a<b"', '"a\\"b"', '"a\nb"', "3"]),
        ({"type": "integer"}, ["0", "-12"], ["1.5", '"1"', "01", "1e9"]),
        ({"type": "number"}, ["0", "-1.25"], ["1.", '"1"', "NaN"]),
        ({"type": "boolean"}, ["true", "false"], ["yes", "null"]),
        ({"enum": ["EUR", 'a "b"', 3]}, ['"EUR"', '"a \\"b\\""', "3"], ['"USD"', '"3"']),
        ({"const": "x", "type": "string"}, ['"x"'], ['"y"']),
        ({"enum": ["<answer>", "b"]}, ['"b"'], ['"<answer>"']),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, ["4", "null"], ['"x"']),
        ({"type": ["string", "null"]}, ['"x"', "null"], ["4"]),
        ({"type": "array", "items": TEXT}, ["[]", '["a", "b"]'], ["[1]", '"a"']),
        ({"type": "object"}, ['{"a": [1, true]}', "{}"], ["[]", '{"a": "<"}']),
        ({"type": "date"}, ['"x"', "1", "[]"], ["<x>", "today"]),
        (None, ['"x"', "1"], ["<x>"]),
    ],
    ids=lambda case: json.dumps(case)[:40],
)
def test_an_argument_is_held_to_its_type(schema: object, good: list[str], bad: list[str]):
    assert [value for value in good if not one(schema, value)] == []
    assert [value for value in bad if one(schema, value)] == []


def test_a_reference_to_a_definition_is_followed_and_one_that_goes_round_ends():
    colour = {"$defs": {"Colour": {"enum": ["red"]}, "Round": {"$ref": "#/$defs/Round"}}}
    for name, value, fit in (("Colour", '"red"', True), ("Colour", '"blue"', False)):
        schema = {**colour, "properties": {"c": {"$ref": f"#/$defs/{name}"}}, "required": ["c"]}
        assert lets_through(schema, f'{{"c": {value}}}') is fit
    schema = {**colour, "properties": {"c": {"$ref": "#/$defs/Round"}}, "required": ["c"]}
    assert lets_through(schema, '{"c": "anything"}')


@pytest.mark.parametrize(
    ("arguments", "fit"),
    [
        ('{"item": "a"}', True),
        ('{"item": "a", "shop": "b"}', True),
        ('{"item": "a", "count": 2}', True),
        ('{"item": "a", "shop": "b", "count": 2}', True),
        ('{"shop": "b"}', False),
        ("{}", False),
        ('{"item": "a", "other": "b"}', False),
        ('{"item": "a", }', False),
    ],
)
def test_what_is_required_comes_first_and_the_rest_may_be_left_out(arguments: str, fit: bool):
    properties = {"shop": TEXT, "item": TEXT, "count": {"type": "integer"}}
    assert lets_through({"properties": properties, "required": ["item"]}, arguments) is fit


@pytest.mark.parametrize(
    ("arguments", "fit"),
    [("{}", True), ('{"a": "x"}', True), ('{"b": "y"}', True), ('{"a": "x", "b": "y"}', True),
     ('{, "b": "y"}', False), ('{"b": "y", "a": "x"}', False)],
)  # fmt: skip
def test_where_nothing_is_required_any_may_be_given(arguments: str, fit: bool):
    assert lets_through({"properties": {"a": TEXT, "b": TEXT}}, arguments) is fit


def test_a_tool_without_arguments_takes_none():
    assert lets_through({"properties": {}}, "{}")
    assert not lets_through({"properties": {}}, '{"a": 1}')


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"properties": ["item"], "required": 3},
        {"properties": {"a<b": TEXT}},
        {"properties": {'a"b': TEXT}},
        {"properties": {"a\n": TEXT}},
        {"properties": {str(n): TEXT for n in range(40)}, "required": [str(n) for n in range(40)]},
        {"properties": {"x" * 10_000: TEXT}},
        {"properties": {"a": {"enum": [f"{n} {'x' * 190}" for n in range(9)]},
                        **{str(n): {"enum": [f"{n}{m}" + "y" * 90 for m in range(20)]}
                           for n in range(10)}}},
    ],
    ids=lambda schema: json.dumps(schema)[:40],
)  # fmt: skip
def test_a_schema_that_cannot_be_held_to_takes_any_object(schema: dict[str, Any]):
    assert lets_through(schema, '{"item": "a", "more": {"b": [1, null]}}')
    assert not lets_through(schema, "item")


def test_a_hostile_schema_makes_no_long_grammar():
    nested: Any = TEXT
    for _ in range(6):
        nested = {"anyOf": [nested, *({"enum": [f"{n}" * 20]} for n in range(11))]}
    schema = {"properties": {str(n): nested for n in range(100)}}
    grammar = call_grammar([Offer("shop", "price", "", schema)], ENDS)
    assert len(grammar) < 2 * LONGEST


def test_every_tool_is_offered_by_its_own_name_and_no_other():
    offers = [Offer("a", "one", "", {"properties": {}}), Offer("b.c", "two", "", {})]
    grammar = call_grammar(offers, ENDS)
    assert accepts(grammar, '<call_tool name="a.one">{}</call_tool>')
    assert accepts(grammar, '<call_tool name="b.c.two">{"x": 1}</call_tool>')
    assert not accepts(grammar, '<call_tool name="a.two">{}</call_tool>')
