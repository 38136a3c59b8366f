"""The files of the reading benchmark are what it says, and values come out as they should."""

import json
import zipfile
from io import BytesIO

import pytest
from lxml import etree

from benchmarks.reading.__main__ import Outcome, Text, items_of
from benchmarks.reading.cases import Value, files
from benchmarks.reading.formats import repeated
from rubricem.agent.sources.readers import read
from rubricem.agent.sources.readers.document import Input

FILES = {file.name: file for file in files()}


def test_there_are_enough_files_and_values_of_every_kind():
    assert len(FILES) == len(files()) >= 40
    assert sum(len(file.values) for file in files()) >= 150
    for file in files():
        assert file.values and file.content
        assert {value.mark for value in file.values} <= set("+~=n-/ht?!@|0"), file.name


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("trial.")])
def test_every_kind_of_file_marks_its_powers_and_packages_are_well_formed(name: str):
    content = FILES[name].content
    if zipfile.is_zipfile(BytesIO(content)):
        with zipfile.ZipFile(BytesIO(content)) as package:
            inner = {n: package.read(n) for n in package.namelist() if n != "mimetype"}
        texts = ["".join(etree.fromstring(xml).itertext()) for xml in inner.values()]
        assert any("It ran at 105 Pa" in text for text in texts), "only its form tells the power"
    else:
        assert b"It ran at 10" in content and b"105 Pa" not in content
    assert b"\xc2\xb6" not in content and b"{NOTE}" not in content
    assert Value("+", "at 10^5 Pa, 10^-3 m and 2^20 bytes.") in FILES[name].values


READ = {name: [v for v in file.values if v.mark in "+~=n-/ht"] for name, file in FILES.items()}


@pytest.mark.parametrize("name", [name for name, values in READ.items() if values])
def test_what_a_file_says_is_read(name: str):
    """The search and the list of what was not read are left to the benchmark itself."""
    document = read(Input.of_bytes(name, FILES[name].content))
    headings = [section.heading for section in document.sections]
    text = Text((), document.title, headings, [section.text for section in document.sections])
    assert [value for value in READ[name] if text.becomes(value) is not Outcome.RIGHT] == []


def test_texts_are_in_the_encoding_that_they_are_named_for():
    assert "密封圈老化" in FILES["gbk.txt"].content.decode("gbk")
    assert FILES["utf16bare.txt"].content.startswith(b"T\0h\0")
    assert FILES["utf16be.md"].content.startswith(b"\xfe\xff\0#")
    assert len(json.loads(FILES["trial.ipynb"].content)["cells"]) == 2
    assert repeated("{repeat 3|a#,}") == "a1,a2,a3,"


@pytest.mark.parametrize(
    ("line", "passages", "notes", "became"),
    [
        ("+ a 42[1] b", ["so a 42[1] b"], (), Outcome.RIGHT),
        ("+ a b", ["a\nb"], (), Outcome.SHAPED),
        ("~ a b", ["a\nb"], (), Outcome.RIGHT),
        ("n a⏎  b", ["a\n  b"], (), Outcome.RIGHT),
        ("= (1)/(2)", ["x (1) / (2)"], (), Outcome.RIGHT),
        ("~ seal lost", ["a rotor"], (), Outcome.LOST),
        ("~ seal lost", [], ("a.txt",), Outcome.TOLD),
        ("- 421", ["it gave 421 litres"], (), Outcome.CHANGED),
        ("- 421", [], (), Outcome.LOST),
        ("@ seal", ["Ã¦Â"], (), Outcome.CHANGED),
        ("0", ["Ã¦Â"], ("a.txt",), Outcome.CHANGED),
        ("0", [], ("a.txt",), Outcome.RIGHT),
        ("| seal", [], ("a.txt",), Outcome.RIGHT),
        ("! 3 of 4", ["x"], ("a.txt: 3 of 4 pages",), Outcome.RIGHT),
        ("! 3 of 4", ["x"], (), Outcome.LOST),
        ("t A", ["x"], (), Outcome.RIGHT),
        ("h B", ["x"], (), Outcome.SHAPED),
    ],
)
def test_what_becomes_of_a_value(
    line: str, passages: list[str], notes: tuple[str, ...], became: Outcome
):
    told = Text(notes, "A", ["page 1"], passages)
    assert told.becomes(Value.of_line(line)) is became


def test_items_are_those_that_few_pages_repeat_outside_of_navigation():
    page = b"<nav><ul><li>home page</li></ul></nav><ul><li>all of them</li><li>%s kind</li></ul>"
    names = [b"first", b"second", b"third", b"fourth"]
    assert items_of([page % name for name in names]) == [[f"{n.decode()} kind"] for n in names]
