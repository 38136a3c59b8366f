"""Whatever is written: spans nest, tags are neutralised, an XML parser agrees, time is linear."""

import time
from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lxml import etree

from agent.reading import answer_text, citations, render, rubric_items, stage_spans
from agent.reports.printable import printable
from agent.scaffold import (
    ALIASES,
    CHILDREN,
    STAGE_OF,
    TOP,
    Block,
    Document,
    malformed,
    neutralise,
    parse,
    tool_call,
    turn_faults,
)
from tests.scaffold_texts import FIRST, LAST, OUTPUT, shape


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("</tool_output><answer>", "‹/tool_output>‹answer>"),  # noqa: RUF001
        ("<\u200banswer><\x1b[0mcite>", "‹answer>‹cite>"),  # noqa: RUF001
        ("< / Think>", "‹ / Think>"),  # noqa: RUF001
        ("<|im_end|><|im_start|>system", "‹|im_end|>‹|im_start|>system"),  # noqa: RUF001
        ("[INST] x [/INST]", "‹INST] x ‹/INST]"),  # noqa: RUF001
        ("<end_of_turn><tool_call>", "‹end_of_turn>‹tool_call>"),  # noqa: RUF001
        ("if a < b: List<int>; x <| f <|> g", "if a < b: List<int>; x <| f <|> g"),
        ("a[0] < [INSTANCE]", "a[0] < [INSTANCE]"),
    ],
)
def test_our_tags_and_chat_markers_are_broken_and_code_stays(text: str, safe: str):
    assert neutralise(text) == safe


NAMES = [*STAGE_OF, *ALIASES]
FRAGMENTS = [
    *(f"<{name}>" for name in NAMES),
    *(f"</{name}>" for name in NAMES),
    *("<", ">", "&", "</", "/>", '"', "&amp;", "]]>", "<!--", "<?x?>", "\r\n", "\x00", "\ufffe"),
    *(
        "a < b",
        "<class 'x'>",
        "List<int>",
        "<cite id='S1, S2'>",
        '<cite ids="S1">',
        "<cite id=S1/>",
    ),
    *('<call_tool name="a&b<c">', "<call_tool tool=x xmlns='y'>", "<snippet id=S1>", "<|im_end|>"),
]
MIXED = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=5)).map("".join)


@given(MIXED)
def test_spans_nest_and_are_exact(text: str):
    document = parse(text)
    for block in document.root.walk():
        at = block.inner_start
        for child in block.children:
            assert child.tag in CHILDREN[block.tag]
            assert at <= child.start < child.inner_start <= child.inner_end <= child.end
            assert text[child.start] == "<" and text[child.inner_start - 1] == ">"
            assert not child.closed or text[child.end - 1] == ">"
            at = child.end
        assert at <= block.inner_end <= block.end


@given(MIXED)
def test_any_text_can_be_asked_anything(text: str):
    document = parse(text)
    tool_call(text), citations(document), answer_text(document), rubric_items(text)
    assert turn_faults(text, 1) or tool_call(text)
    bounds = [bound for span in stage_spans(text).values() for bound in span]
    assert bounds[1:-1:2] == bounds[2::2]
    assert not bounds or (bounds[0], bounds[-1]) == (0, len(text))


@given(MIXED)
def test_neutralised_text_holds_no_tag_and_stays_the_same(text: str):
    safe = neutralise(text)
    assert parse(safe).blocks == () and parse(safe).orphans == ()
    assert neutralise(safe) == safe
    assert len(safe) == len(printable(text))
    assert parse(printable(safe)).blocks == ()


Tree = tuple[str, Mapping[str, str], list["str | Tree"]]
ALLOWED = str.maketrans(dict.fromkeys([*range(9), 11, 12, *range(14, 32), 65534, 65535]))


def allowed(text: str) -> str:
    """The text without the characters that XML 1.0 has no way to write."""
    return "".join(c for c in text.translate(ALLOWED) if not 0xD800 <= ord(c) <= 0xDFFF)


def scanned(document: Document, block: Block) -> Tree:
    parts: list[str | Tree] = []
    at = block.inner_start
    for child in block.children:
        parts += [allowed(document.text[at : child.start]), scanned(document, child)]
        at = child.end
    parts.append(allowed(document.text[at : block.inner_end]))
    attributes = {k: allowed(v) for k, v in block.attributes.items() if k != "xmlns"}
    return block.tag, attributes, parts


def read(element: etree._Element) -> Tree:
    parts: list[str | Tree] = [element.text or ""]
    for child in element:
        parts += [read(child), child.tail or ""]
    return str(element.tag), {str(k): str(v) for k, v in element.attrib.items()}, parts


@given(MIXED)
@example('<cite id="a\tb">\r\n</cite>')
@example("<answer><cite id='x\"y'>\x85\u2028</cite>]]></answer>")
def test_an_xml_parser_reads_the_same_blocks_back(text: str):
    document = parse(text)
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=False)
    element = etree.fromstring(render(document).encode(), parser)
    assert read(element) == scanned(document, document.root)


PLAIN = st.text(alphabet="ab <>&/='\"\n", max_size=8)


@st.composite
def well_formed(draw: st.DrawFn) -> tuple[str, list[tuple[str, str]]]:
    """A text of whole blocks written in any accepted way, and its blocks."""
    text, blocks = "", list[tuple[str, str]]()

    def element(tag: str) -> str:
        inner, at = draw(PLAIN), len(blocks)
        blocks.append((tag, ""))
        for child in draw(st.lists(st.sampled_from(CHILDREN.get(tag, ("",))), max_size=3)):
            inner += element(child) + draw(PLAIN) if child else ""
        blocks[at] = (tag, inner)
        name = draw(st.sampled_from([tag, *(alias for alias, of in ALIASES.items() if of == tag)]))
        name = draw(st.sampled_from([name, name.upper(), name.title()]))
        return f"<{name}{draw(st.sampled_from(['', ' ', ' id=1', ' id = `x`']))}>{inner}</{name}>"

    for tag in draw(st.lists(st.sampled_from(list(TOP)), max_size=4)):
        text += draw(PLAIN) + element(tag)
    return text, blocks


@given(well_formed())
def test_whole_blocks_are_read_exactly_as_written(written: tuple[str, list[tuple[str, str]]]):
    text, blocks = written
    document = parse(text)
    assert shape(document) == blocks
    assert not malformed(document)


@pytest.mark.parametrize(
    "piece",
    [
        FIRST + OUTPUT + LAST,
        "< ",
        "<think>",
        "<answer><cite id='S1'>",
        "</review>",
        "<structured_plan><rubric>",
        '<cite id="',
        '<cite id="<cite a=" b="',
        "<call_tool a=",
        "<think " + " " * 30,
        "<|",
    ],
)
def test_no_100_kb_take_a_second_to_read_check_and_neutralise(piece: str):
    text = piece * (100_000 // len(piece))
    seconds = []
    for _ in range(3):
        began = time.process_time()
        parse(text), neutralise(text), turn_faults(text, 1)
        seconds.append(time.process_time() - began)
    assert min(seconds) < 1
