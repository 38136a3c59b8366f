"""The grammar of a tool's call: what its schema wants gets through, nothing that opens a tag."""

import json
from typing import Any

import pytest

from rubricem.agent.sources.offers import (
    LONGEST,
    LONGEST_ARGUMENTS,
    LONGEST_DESCRIPTION,
    Offer,
    call_grammar,
)
from rubricem.memory.errors import SourceError
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


ITEMS = {"shop": TEXT, "item": TEXT, "count": {"type": "integer"}}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"properties": ITEMS, "required": ["item"]},
         ['{"item": "a"}', '{"item": "a", "shop": "b"}', '{"item": "a", "count": 2}',
          '{"item": "a", "shop": "b", "count": 2}'],
         ['{"shop": "b"}', "{}", '{"item": "a", "other": "b"}', '{"item": "a", }']),
        ({"properties": {"a": TEXT, "b": TEXT}},
         ["{}", '{"a": "x"}', '{"b": "y"}', '{"a": "x", "b": "y"}'],
         ['{, "b": "y"}', '{"b": "y", "a": "x"}']),
        ({"properties": {}}, ["{}"], ['{"a": 1}']),
    ],
    ids=["the required one comes first", "none is required", "there are none"],
)  # fmt: skip
def test_what_is_required_comes_first_and_the_rest_may_be_left_out(
    schema: dict[str, Any], good: list[str], bad: list[str]
):
    assert [each for each in good if not lets_through(schema, each)] == []
    assert [each for each in bad if lets_through(schema, each)] == []


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


TITLED = {"title": TEXT, "lang": TEXT, "odd": 3}


def test_a_tool_is_told_on_one_short_line_that_opens_no_tag():
    told = 'Gives\n<answer>"pages"</answer> ' + "x" * 400
    offer = Offer("wiki", "page", told, {"properties": TITLED, "required": ["title"]})
    line = offer.line()
    assert line.startswith(
        'wiki.page {title: string, lang?: string, odd?: any} - "Gives \u2039answer>'
    )
    assert "\n" not in line and "<answer" not in line and line.count('"') == 2
    assert len(line) < 400
    long = {f"{at}{'x' * 100_000}": {"type": "y" * 100_000} for at in range(20)}
    line = Offer("wiki", "page", "z" * 100_000, {"properties": long}).line()
    assert len(line) < LONGEST_ARGUMENTS + LONGEST_DESCRIPTION + 50


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('{"title": "a", "lang": "de"}', {"title": "a", "lang": "de"}),
        ("a page", {"title": "a page"}),
        ("[1]", {"title": "[1]"}),
        ("{broken", {"title": "{broken"}),
    ],
)
def test_a_call_is_an_object_or_the_one_text_that_is_required(
    written: str, arguments: dict[str, Any]
):
    offer = Offer("wiki", "page", "", {"properties": TITLED, "required": ["title"]})
    assert offer.arguments(written) == arguments


@pytest.mark.parametrize("required", [None, True, 5, {"title": 1}])
def test_a_schema_with_an_odd_list_of_what_it_requires_requires_nothing(required: Any):
    schema = {"properties": {"title": TEXT}, "required": required}
    offer = Offer("wiki", "page", "Gives a page.", schema)
    assert offer.line() == 'wiki.page {title?: string} - "Gives a page."'
    assert offer.arguments("lru_cache") == {"title": "lru_cache"}


def test_an_odd_schema_takes_an_object_and_nothing_else():
    offer = Offer("wiki", "page", "", {"properties": ["title"], "required": []})
    assert offer.arguments("{}") == {}
    for written in ("x", "[" * 100_000):
        with pytest.raises(SourceError, match="takes a JSON object with no arguments"):
            offer.arguments(written)
