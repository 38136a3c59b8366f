"""No text, page or reply from outside can hold its reader up, or fail it in an unknown way.

Texts are of what our formats are made of, mostly one piece over and over: what an expensive
pattern or a quadratic loop needs. FOREIGN_TEXTS is their number for all readers, else 300.
"""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from pypdfium2 import PdfiumError

from rubricem.agent.cli.bank import _exported, _screen
from rubricem.agent.evaluate.questions import QuestionSet
from rubricem.agent.learning.reflect import Parsed
from rubricem.agent.models.chat_server import Dialect, delta_of
from rubricem.agent.models.model_server import UNREADABLE, complaint_of
from rubricem.agent.models.replies import looping
from rubricem.agent.models.tokens import piece_of
from rubricem.agent.reports import page, report, rules
from rubricem.agent.reports.cited import bare_answer, cited_answer
from rubricem.agent.research import lookups, reading
from rubricem.agent.research.recall import harmless
from rubricem.agent.serve.feed import checklist
from rubricem.agent.serve.openai import ChatAsked
from rubricem.agent.serve.requests import Answered, RunAsked
from rubricem.agent.serve.routes_uploads import document_name
from rubricem.agent.serve.security import CSRF_HEADER, Security
from rubricem.agent.sources import readers, web
from rubricem.agent.sources.fetch import addresses_in, normal
from rubricem.agent.sources.index import words
from rubricem.agent.sources.likeness import shingles
from rubricem.agent.sources.mcp_client import passages_of as tool_passages
from rubricem.agent.sources.readers.document import Input
from rubricem.agent.sources.readers.passages import split_passages
from rubricem.agent.sources.readers.plain.markdown import markdown_sections
from rubricem.agent.sources.sandbox.web_text import passages_of
from rubricem.agent.sources.sandbox.worker import Unread, decompress, prune
from rubricem.agent.sources.web import SearXNG, Tavily, Wikipedia, row, same_page
from rubricem.agent.transcript import scaffold
from rubricem.agent.transcript import words as language
from rubricem.agent.transcript.scaffold import ScaffoldDocument
from rubricem.agent.transcript.words import part_about
from rubricem.judge import evidence, pairwise
from rubricem.judge.buffers import FoundRubrics
from rubricem.judge.rubrics.llm import score_in
from rubricem.memory import asking, screening, text
from rubricem.memory.errors import RubricemError
from rubricem.memory.language import compared, hyphenless
from rubricem.memory.text import split_thinking
from tests.support.pdfs import pdf
from tests.support.values import source, trajectory

SECONDS = 2.0
"""of processor time for one text, on a busy machine"""
LONGEST = 6000
"""characters: more than a passage has"""
_WORDS = r"""
< > </ <! <!-- --> <? ?> <a <p> </p> <br> <pre> <table> <tr> <td> <div <script> </script> <style>
<answer> </answer> <think> </think> <review> <cite·id="S1"> <cite·id=" </cite> <call_tool·name="
"> </call_tool> <tool_output <tool_output·error=" <rubric> <structured_plan> <takeaways> <quote_A>
</quote_A> <eval> <justify> <item> <|im_end|> <| |> [INST] [ ] [[ ]] [S1] [1] [S1: ( ) { } {" ":
[met: [[A]] [x]: ![ ]( \boxed{ ` ``` ~~~ * ** _ - -- --- = === # ## + . .. ... , ; : ! ? / // \ |
|| & &amp; &#x41; &#27; % %41 $ @ ~ ^ " ' 0 1 12 1. 1) 1, 10% 1/2 a A ab The a. e.g. A. and ,·and
of def search search: question: answer: http:// https://a.test/ a.b a_b aB S1 s_1 id= hidden
style="display:none" :says that when 1999 May 3, born 0x41 \x41 \u0041 QUJD é 中 。 ﷐ ﷑
"""
"""pieces; a middle dot in them is a space"""
_BLANKS = (" ", "  ", "\n", "\n\n", "\t", "\r", "\v", "\u2028", "\xa0", " \n", "\n- ", "\n# ", "1 ")
_UNSEEN = ("\u200b", "\u202e", "\ud800", "\x1b[", "\x1b]", "\x07", "\x00", "\ue000", "\ufffd")
PIECES = (
    *(word.replace("\u00b7", " ") for word in _WORDS.split()),
    *_BLANKS,
    *_UNSEEN,
)
runs = st.builds(
    lambda before, piece, after: before + piece * (LONGEST // max(len(piece), 1)) + after,
    *(st.lists(st.sampled_from(PIECES), max_size=size).map("".join) for size in (3, 4, 3)),
)
mixed = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)
TEXTS = runs | mixed | st.text(max_size=200)
NAMES = ["choices", "delta", "content", "usage", "error", "message", "code", "text", "token_ids",
         "logprobs", "tokens", "stop", "stop_type", "meta_info", "finish_reason", "results", "url",
         "title", "prompt_tokens", "completion_tokens", "timings", "items", "id"]  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | mixed,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)
    ),
    max_leaves=12,
)
PARTS = {
    ".docx": [("word/document.xml", '<w:document xmlns:w="urn:w"><w:body>{}</w:body></w:document>'),
              ("word/styles.xml", '<w:styles xmlns:w="urn:w">{}</w:styles>')],
    ".pptx": [("ppt/presentation.xml", '<p xmlns:r="u"><sldId r:id="r1"/>{}</p>'),
              ("ppt/_rels/presentation.xml.rels", '<R><R Id="r1" Target="a.xml"/>{}</R>'),
              ("ppt/a.xml", "<s>{}</s>")],
    ".xlsx": [("xl/workbook.xml", '<w xmlns:r="u"><sheet name="{}" r:id="r1"/></w>'),
              ("xl/sharedStrings.xml", "<sst>{}</sst>"),
              ("xl/a.xml", "<sheet>{}</sheet>"),
              ("xl/_rels/workbook.xml.rels", '<R><R Id="r1" Target="a.xml"/>{}</R>')],
    ".odt": [("content.xml", "<d><body><text>{}</text></body></d>"), ("styles.xml", "<s>{}</s>")],
    ".ods": [("content.xml", "<d><body><spreadsheet><table>{}</table></spreadsheet></body></d>")],
    ".epub": [("META-INF/container.xml", '<c><rootfile full-path="a.opf"/>{}</c>'),
              ("a.opf", '<p><item id="a" href="a.html"/><itemref idref="a"/>{}</p>'),
              ("a.html", "{}")],
}  # fmt: skip
"""of packages: their parts, and what they are written around"""
SUFFIXES = st.sampled_from(
    [*PARTS, *PARTS, ".csv", ".rst", ".org", ".adoc", ".tex", ".txt", ".html", ".md"]
)
_TAGS = ("p", "r", "t", "pPr", "tbl", "tr", "tc", "sdt", "ins", "style", "row", "c", "v", "is",
         "si", "sp", "itemref", "footnote", "h", "list", "list-item", "table-row", "table-cell",
         "numPr", "f", "mergeCell", "numFmt", "xf")  # fmt: skip
_ATTRIBUTES = (
    "r t s type val styleId Id idref numFmtId number-columns-repeated number-rows-spanned ref "
    "formatCode"
)
XML = st.recursive(
    st.sampled_from(["text", "0", "1", "-1", "99999", "1e999", "44197.5", "&amp;", ""]),
    lambda inner: st.builds(
        lambda tag, name, value, within: f'<{tag} {name}="{value}">{"".join(within)}</{tag}>',
        st.sampled_from(_TAGS),
        st.sampled_from(_ATTRIBUTES.split()),
        st.sampled_from(["s", "str", "inlineStr", "A1", "XFD1048576", "ZZZZZZ9", "0", "-1", "d"]),
        st.lists(inner, max_size=4),
    ),
    max_leaves=30,
)
PDF = pdf(["One line.", "Another one.", ""])
DAMAGE = st.binary(min_size=1, max_size=8) | st.sampled_from(
    [b"/Kids", b"/Parent 1 0 R", b"99999999", b"-1", b"<<", b">>", b"[", b"/Filter /LZWDecode",
     b"3 0 R", b"/Length 0", b"BT", b"(", b"stream", b"endobj", b"/Count 9999999", b"startxref"]
)  # fmt: skip
_FIELDS = """
title url content text description extra_snippets page_age abstract tldr year venue authors name
openAccessPdf externalIds DOI index fullurl extract pages question rubrics takeaways score kind
flags written_at disabled lookups searches pointers names
"""
FIELDS = _FIELDS.split()
"""of replies of services, and of an exported bank"""


MARKUP = TEXTS.map(lambda each: storable_bytes(f"<html><body>{each}"))


def storable_bytes(each: str) -> bytes:
    return each.encode("utf-8", "surrogatepass")


def of_page(content: bytes, name: str = "x") -> Any:
    with suppress(PdfiumError):  # told by the process that reads for others
        return passages_of(content, "text/html", f"https://a.test/{name}", 9.0, lambda: None)


def of_reply(value: Any) -> Any:
    block = SimpleNamespace(type="text", text=json.dumps(value))
    return tool_passages(SimpleNamespace(content=[block], structured_content=value), "wiki.search")


def of_run(each: str) -> None:
    each = text.storable(each)
    run = trajectory(
        f'{each}<cite id="S1">{each}</cite>', sources=(source(1, each[:4000], each[:200]),)
    )
    cited_answer(run)
    report.markdown(run)
    report.as_json(run)
    page.page(run)


def of_pair(each: str) -> None:
    for check in (rules.missing_numbers, rules.missing_names, rules.missing_quotations,
                  rules.contradiction, rules.shares, rules.evidence, language.find_support,
                  language.overlap, language.closest_sentence):  # fmt: skip
        check(each, each[:4000])
    rules.clauses(each)
    rules.statements_in(each)


def of_question(each: str) -> None:
    language.read_query(each)
    language.exact_names(each, each)
    lookups.read_parts(each, each)
    part_about(each, 60, each[:200])
    reading.span_grammar(each[:4000])


def of_turn(each: str) -> None:
    document = scaffold.parse(each)
    for read in (scaffold.citations, scaffold.answer_text, ScaffoldDocument.review_marks,
                 scaffold.stage_spans, scaffold.is_sent_back, report.latest_rubric):  # fmt: skip
        read(document)
    scaffold.turn_faults(each, 1)
    scaffold.tool_call(each)
    scaffold.rubric_items(each)
    scaffold.tool_error(each)
    scaffold.parse(f"<x>{scaffold.neutralise(each)}</x>")
    checklist(each)
    split_thinking(each), looping(each), bare_answer(each)


def of_judge(each: str) -> None:
    for read in (pairwise.verdict_of,
                 pairwise.without_tags, pairwise.verdict_end, score_in,
                 Parsed.of, evidence.repeated_share, asking.broken):  # fmt: skip
        read(each)
    list(asking.json_objects(each))
    with suppress(RubricemError):
        list(FoundRubrics.all_in(each))
    evidence.cited_in(each)
    evidence.copied_share(each, each)


def of_memory(each: str) -> None:
    screening.screen(each, each, [each])
    list(screening.orders(each)), harmless(each)


def of_text(each: str) -> None:
    for read in (text.printable, text.storable, text.without_markers, text.one_line, words,
                 shingles, split_passages, markdown_sections, addresses_in, normal, same_page,
                 report.prose, report.literal, report.web_address):  # fmt: skip
        read(each)
    text.fence({"a": each}), row(each, each, each), report.link(each, each)
    list(language.sentences(each)), compared(each), hyphenless(each)


def of_document(parts: tuple[str, list[str]]) -> None:
    """A package whose parts hold them, or one file of the first."""
    suffix, texts = parts
    packed = BytesIO(storable_bytes("".join(texts)))
    if suffix in PARTS:
        with ZipFile(packed, "w") as package:
            for (name, template), each in zip(PARTS[suffix], texts, strict=False):
                package.writestr(name, storable_bytes(template.replace("{}", each)))
    readers.read(Input(f"a{suffix}", packed))


def of_pdf(damage: list[tuple[int, bytes]]) -> None:
    """A whole PDF with other bytes at some places."""
    readers.read(Input.of_bytes("a.pdf", damaged(PDF, damage)))


def of_rows(value: Any) -> None:
    """A file of questions, and a body of each request that the server reads."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "a.jsonl")
        path.write_text(json.dumps(value), encoding="utf-8")
        with suppress(RubricemError):
            QuestionSet.read(path)
    for kind in (RunAsked, Answered, ChatAsked):
        with suppress(ValidationError):
            kind.model_validate(value)


def of_service(value: Any) -> None:
    """The reply of each service that is searched."""

    async def reply(*asked: Any, **more: Any) -> Any:
        return value if isinstance(value, dict) else {"results": value, "data": value}

    for service in SERVICES:
        service._service = SimpleNamespace(get=reply, url="https://a.test")
        with suppress(StopIteration):
            service.search("acme", 5).send(None)
    web._paper_passage(value if isinstance(value, dict) else {"abstract": value, "year": value})


SERVICES: Any = (SearXNG("http://a.test"), Tavily("k"), Wikipedia())


def of_import(value: Any) -> None:
    """Two lines of an export of a bank."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "a.jsonl")
        line = {"id": "a", "question": "Why?", "rubrics": "a", "takeaways": "b", "score": 1.0,
                "trajectory_id": "t", "policy": "p", "policy_version": "1",
                "written_at": "2026-01-01T00:00:00Z"}  # fmt: skip
        line |= value if isinstance(value, dict) else {"question": value, "takeaways": value}
        lines = ({"rubricem_bank": 1, "items": 1}, line)
        path.write_text("".join(f"{json.dumps(one)}\n" for one in lines), encoding="utf-8")
        [_screen(path, 1, one) for one in _exported(path, path.read_text(encoding="utf-8"))]


def damaged(content: bytes, damage: list[tuple[int, bytes]]) -> bytes:
    changed = bytearray(content)
    for at, piece in damage:
        place = at % len(changed)
        changed[place : place + len(piece)] = piece
    return bytes(changed)


def of_head(each: str) -> None:
    """The head of a request: its path and what it says of itself."""
    security = Security(token="token", port=8421)
    for name in ("host", "origin", "authorization", "cookie", "content-length", "x-forwarded-for"):
        told = {"host": "localhost", name: each, CSRF_HEADER.casefold(): "1"}
        with suppress(RubricemError):
            security.check("POST", f"/api/{each[:200]}", told)
    with suppress(RubricemError):
        document_name(each)


def of_event(value: Any) -> None:
    for read in (delta_of, piece_of):
        with suppress(*UNREADABLE):
            read(value)
    Dialect("m").learn({"seed": 1}, complaint_of(value)), prune(value)
    with suppress(Unread):
        decompress(storable_bytes(json.dumps(value)), "gzip", 1000)


READERS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "text": (of_text, TEXTS),
    "page": (of_page, MARKUP | TEXTS.map(storable_bytes) | st.binary(max_size=400)),
    "markdown": (lambda each: of_page(storable_bytes(each), "a.md"), TEXTS),
    "turn": (of_turn, TEXTS),
    "question": (of_question, TEXTS.map(lambda each: each[:2000])),
    "claim": (of_pair, TEXTS),
    "report": (of_run, TEXTS),
    "memory": (of_memory, TEXTS),
    "judge": (of_judge, TEXTS),
    "document": (of_document, st.tuples(SUFFIXES, st.lists(TEXTS | XML, min_size=1, max_size=4))),
    "pdf": (of_pdf, st.lists(st.tuples(st.integers(0, 10**4), DAMAGE), max_size=6)),
    "rows": (of_rows, VALUES),
    "head": (of_head, TEXTS.map(lambda each: each[:4000])),
    "event": (of_event, VALUES),
    "tool": (of_reply, VALUES),
    "service": (
        of_service,
        VALUES
        | st.dictionaries(
            st.sampled_from(["results", "data", "web", "query", "pages", "unresponsive_engines"]),
            VALUES | st.lists(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6)),
        ),
    ),
    "import": (of_import, VALUES | st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6)),
}


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fails what takes more processor time, also in a pattern."""

    def late(number: int, frame: object) -> None:
        raise AssertionError(f"more than {seconds} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@pytest.mark.parametrize("name", READERS)
def test_no_text_holds_its_reader_up_or_fails_it(name: str) -> None:
    read, given_texts = READERS[name]
    texts = int(os.environ.get("FOREIGN_TEXTS", 300)) // len(READERS)

    @settings(max_examples=texts, deadline=None, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(given_texts)
    def reads(each: Any) -> None:
        with within(SECONDS), suppress(RubricemError):
            read(each)

    reads()
