"""A tool's line in the prompt, and the arguments of a call of it."""

from typing import Any

import pytest

from rubricem.agent.sources.offers import LONGEST_ARGUMENTS, LONGEST_DESCRIPTION, Offer

TEXT = {"type": "string"}
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


def test_a_tool_tells_what_its_server_says_of_its_arguments():
    properties = {"title": {**TEXT, "description": "of the\npage"}, "lang": {"description": 3}}
    offer = Offer("wiki", "page", "Gives pages", {"properties": properties, "required": ["title"]})
    told = "Gives pages (title: of the page)"
    assert offer.line() == f'wiki.page {{title: string, lang?: any}} - "{told}"'
    assert offer.definition()["function"]["description"] == told


def test_a_tool_tells_what_values_an_argument_admits_and_what_its_parts_are():
    rule = {"properties": {"field": {"enum": ["a", "b"]}, "or": {"$ref": "#/$defs/Rule"}}}
    rule["required"] = ["field"]  # type: ignore[assignment]
    either = {"anyOf": [{"$ref": "#/$defs/Rule"}, {"type": "array", "items": TEXT}, {"const": 1}]}
    schema = {"$defs": {"Rule": rule}, "properties": {"rule": either}, "required": ["rule"]}
    takes = "{rule: {field: 'a' | 'b', or?: any} | [string] | any}"
    assert Offer("wiki", "find", "Finds", schema).line() == f'wiki.find {takes} - "Finds"'
    wide: dict[str, Any] = {}
    for _ in range(9):
        wide = {"properties": {f"p{number}": wide for number in range(200)}}
    assert len(Offer("wiki", "find", "", wide).line()) < LONGEST_ARGUMENTS + 50


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


def test_a_server_gets_a_tool_with_a_name_that_it_takes():
    offer = Offer("wiki", "page", "Gives <answer>", {"properties": TITLED, "required": ["title"]})
    told = offer.definition()["function"]
    assert told["name"] == "wiki__page" and told["description"] == "Gives \u2039answer>"
    assert told["parameters"] == {
        "type": "object",
        "properties": {"title": TEXT, "lang": TEXT, "odd": {}},
        "required": ["title"],
    }
    assert Offer("w", "p", "", {"properties": 3, "required": 4}).definition()["function"]
