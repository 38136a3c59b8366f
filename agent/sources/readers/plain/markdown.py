"""Markdown as it is written: CommonMark, GitHub's, Pandoc's and Obsidian's.

markdown-it-py reads it (1.4 s of the 2.4 that a dense megabyte takes, and linear), with plugins for
notes, terms, formulas, superscripts and subscripts; what Obsidian and MDX add is told here.
"""

import re
import tomllib
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lxml.html import defs

from rubricem.agent.sources.readers.document import Block, BlockKind, Document, Input, Section
from rubricem.agent.sources.readers.formulas import linear_tex
from rubricem.agent.sources.readers.pages.seen import TEX_BETWEEN
from rubricem.agent.sources.readers.plain.data import load_yaml, told_lines
from rubricem.agent.sources.readers.plain.rst import drawn_table
from rubricem.agent.sources.readers.plain.writing import formula, sections_of, shown_formula, table

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_FRONT = re.compile(
    r"\A(---|\+\+\+)(?:json|yaml)?[ \t]*\n((?:(?!\1[ \t]*$|\.\.\.[ \t]*$).*\n)*+).*", re.M
)
_LONGEST_FRONT = 20_000
"""characters of the metadata at the beginning of a text"""
_WIKI = re.compile(r"!?\[\[(?! )([^\[\]|\n]{1,300})(?:\|([^\[\]\n]{1,300}))?\]\]")
_BEHIND_A_NUMBER = re.compile(
    r"(?<=\d)\$(?:\^\{?([-+\u2212\d]{1,9}|\\circ)\}?|(\\[a-zA-Z]{1,12}|\\%))\$"
)
_CALLOUT = re.compile(r"\A\[!(\w{1,40})(?:\|[^\]\n]{0,99})?\][-+]?[ \t]*(.*)")
_CODED = re.compile(r"(`+[^`]{1,2000}`+)")
_HIGHLIGHT = re.compile(r"==(?=\S)([^=\n]{1,400})(?<=\S)==")
_LITERAL = re.compile(r"(?<=\d)\*{1,2}(?=\d)|(?<![^\s(])\*(?=\.\w)|<(?=([a-zA-Z][\w-]{0,60})>)")
"""a star that multiplies, and what begins a placeholder or a type, such as List<Text>"""
_KEPT = {ord("*"): "\ufdd0", ord("<"): "\ufdd1"}
"""what stands for such signs until the page is written"""
_COMMENT = re.compile(r"%%[^%]{0,10000}%%|\{/\*[^*]{0,10000}\*/\}")
_GRID, _DASHES = (re.compile(each) for each in (r"\+(?:[-=:]+\+)+\s*\Z", r"\s*--+(?:\s+--+)+\s*\Z"))
_ATTRIBUTES = re.compile(r"[ \t]*\{[#.:][^{}\n]{0,200}\}[ \t]*$")
_IMPORTS = re.compile(r"^(?:import|export)\s.*$\n?", re.M)
_LONGEST_PARAGRAPH = 50_000
"""characters; no person wrote a longer one, in which brackets that never close take long"""
_MOST_BRACKETS = 2000
_TOO_DEEP = re.compile(r"^((?: {0,3}>){20})[> ]+|^( {50}) +(?=[-*+] |\d{1,9}[.)] )", re.M)
"""of quotes and lists in each other, what nobody reads, and its parser leaves out"""
_OPEN_TAG = re.compile(r"^ {0,3}<(?=[^>\n]{50000})", re.M)
"""one that nothing closes, told as code: its parser takes 300 bytes for each of its attributes"""
_PART = 200_000
"""characters of HTML read at a time, from heading to heading"""


def read_markdown(given: Input) -> Document:
    text, note = given.text()
    if given.suffix == ".mdx":
        text = _IMPORTS.sub("", text)
    fields, text = front_matter(text)
    about = "\n".join(told_lines(fields))
    first = [Section((), (Block(BlockKind.PARAGRAPH, about),))] if about else []
    sections = (*first, *markdown_sections(text, given.get_on))
    title = next((value for name, value in fields.items() if name.lower() == "title"), "")
    return Document.of(given, sections, str(title or ""), note)


def front_matter(text: str) -> tuple[dict[str, Any], str]:
    """(the fields at the beginning, in YAML or TOML, the text below them)."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not (found := _FRONT.match(text[:_LONGEST_FRONT])) or not found[2].strip():
        return {}, text
    try:
        fields = tomllib.loads(found[2]) if found[1] == "+++" else load_yaml(found[2])[0]
    except (ValueError, RecursionError, IndexError):
        lines = (line.partition(":") for line in found[2].splitlines() if ":" in line)
        fields = {name.strip(): value.strip().strip("\"'") for name, _, value in lines}
    if not isinstance(fields, dict):
        return {}, text
    return {str(name): value for name, value in fields.items()}, text[found.end() :]


def markdown_sections(text: str, get_on: Callable[[], None] = lambda: None) -> tuple[Section, ...]:
    """Sections by heading, each named by its headings from the outermost in.

    They are read in parts that begin at a heading, under the ones above; `get_on` follows each.
    """
    text = _OPEN_TAG.sub("    <", _TOO_DEEP.sub(r"\1\2 ", text))
    reader, sections = _reader(), list[Section]()
    tokens = reader.parse(text, {})
    path, above, start, size = list[tuple[int, str]](), "", 0, 0

    def told(tokens: Any) -> str:
        page = str(reader.renderer.render(tokens, reader.options, {}))
        return page.replace("\ufdd0", "*").replace("\ufdd1", "&lt;")

    def read_part(end: int) -> None:
        page = told(tokens[start:end])
        sections.extend(sections_of(above + page))
        get_on()

    for at, token in enumerate(tokens):
        if token.type == "heading_open" and token.level == 0:
            path = [each for each in path if each[0] < int(token.tag[1])]
            if size > _PART:
                read_part(at)
                above = "".join(f"<h{level}>{name}</h{level}>" for level, name in path)
                start, size = at, 0
            path.append((int(token.tag[1]), told([tokens[at + 1]])))
        size += len(token.content)
    read_part(len(tokens))
    return tuple(sections)


@cache
def _reader() -> "MarkdownIt":
    from markdown_it import MarkdownIt
    from mdit_py_plugins.deflist import deflist_plugin
    from mdit_py_plugins.dollarmath import dollarmath_plugin
    from mdit_py_plugins.footnote import footnote_plugin
    from mdit_py_plugins.subscript import sub_plugin
    from mdit_py_plugins.superscript import superscript_plugin

    reader = MarkdownIt("commonmark", {"html": True, "maxNesting": 60})
    reader.enable(["table", "strikethrough"])
    reader.use(footnote_plugin).use(deflist_plugin).use(superscript_plugin).use(sub_plugin)
    reader.use(
        dollarmath_plugin,
        allow_space=False,
        allow_digits=False,
        double_inline=True,
        renderer=lambda tex, options: formula(tex, display=options["display_mode"]),
    )
    reader.block.ruler.before("table", "drawn", _drawn)
    reader.core.ruler.before("inline", "as_written", _as_written)
    reader.add_render_rule("fence", _fence)
    return reader


def _drawn(state: Any, begin: int, end: int, silent: bool) -> bool:
    """A table as Pandoc has it: drawn cell by cell, or in columns below or between dashes."""

    def line(at: int) -> str:
        return str(state.getLines(at, at + 1, state.blkIndent, False)) if at < end else ""

    first, last = line(begin), begin + 1
    grid, ruled = _GRID.match(first), _DASHES.match(first)
    rule = first if ruled else line(begin + 1)
    named = len(re.findall(r"\S(?:\s{2,}|\s*\Z)", first)) > 1
    if not (grid or (_DASHES.match(rule) and (ruled or named))):
        return False
    while line(last).strip():
        last += 1
    lines = [line(at) for at in range(begin, last)]
    if grid:
        lines = [each.replace(":", "-") if _GRID.match(each) else each for each in lines]
        page = drawn_table(lines, state.md.renderInline)
    elif ruled and not _DASHES.match(lines[-1]):
        return False
    else:
        starts = [found.start() for found in re.finditer("-+", rule)]
        told = [each for each in lines if not _DASHES.match(each)]
        rows = ([each[a:b].strip() for a, b in pairwise([*starts, None])] for each in told)
        page = table(([*map(state.md.renderInline, row)] for row in rows), int(not ruled))
    state.push("html_block", "", 0).content = page
    state.line = last
    return True


def _fence(renderer: Any, tokens: Any, at: int, *given: Any) -> str:
    if tokens[at].info.strip() == "math":
        return f"<p>{shown_formula(tokens[at].content)}</p>"
    return str(renderer.fence(tokens, at, *given))


def _as_written(state: Any) -> None:
    """Links of wikis, callouts, comments and marks of what is no Markdown, before it is read."""
    quoted = False
    for token in state.tokens:
        if token.type == "inline" and (
            len(token.content) > _LONGEST_PARAGRAPH or token.content.count("[") > _MOST_BRACKETS
        ):
            token.type = "text"
        elif token.type == "inline":
            text = token.content
            if quoted and (found := _CALLOUT.match(text)):
                text = f"{found[2] or found[1].capitalize()}: {text[found.end() :].lstrip()}"
            parts = _CODED.split(_ATTRIBUTES.sub("", text))
            parts[::2] = map(_without_marks, parts[::2])
            token.content = "".join(parts).rstrip(": ") if quoted else "".join(parts)
        quoted = token.type in ("blockquote_open", "paragraph_open") and (
            quoted or token.type == "blockquote_open"
        )


def _without_marks(text: str) -> str:
    if "[[" in text:
        text = _WIKI.sub(lambda m: m[2] or m[1], text)
    text = TEX_BETWEEN.sub(_between_dollars, text) if "\\" in text else text
    text = _BEHIND_A_NUMBER.sub(
        lambda m: f"<sup>{linear_tex(m[1])}</sup>" if m[1] else linear_tex(m[2]), text
    )
    markup = defs.tags.union(re.findall(r"</([\w-]{1,60})>", text.lower()))
    text = _LITERAL.sub(
        lambda m: m[0] if m[1] and m[1].lower() in markup else m[0].translate(_KEPT), text
    )
    return _HIGHLIGHT.sub(r"\1", _COMMENT.sub("", text))


def _between_dollars(found: re.Match[str]) -> str:
    """A formula, where what is no formula has its brackets typed so to be brackets."""
    tex = (found[1] or found[2] or "").strip()
    return f"${tex}$" if any(sign in tex for sign in "\\^_=") else found[0]
