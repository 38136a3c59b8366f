"""A trajectory as one self-contained page, on paper, and as a file of every format.

Nothing outside the page is ever loaded and no script runs: the content policy allows the one
style sheet in it, by its hash, and nothing else; the pages of the room to the left stand in the
same frame, page.html. Marks open native popovers with the passage they stand on. All text is
escaped; the answer's Markdown is rendered without HTML, links or
images. The way to the answer, stage by stage, is folded.

On paper it is made a PDF by weasyprint, without that way. While it is made no address is asked
and no file is read but the fonts of the system: whatever the page names, the fetcher refuses.
"""

import base64
import hashlib
import importlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import cache, partial
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, select_autoescape
from markdown_it import MarkdownIt

from rubricem.agent.reports import report
from rubricem.agent.reports.cited import Cited, CitedAnswer, Uncited, cited_answer, doubt
from rubricem.agent.transcript.scaffold import Block, parse
from rubricem.judge.evaluation.report import Share
from rubricem.memory.errors import SettingsError, StoreError, boundary, needed
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import Source, Trajectory
from rubricem.memory.text import one_line, printable

SUFFIXES = (".md", ".html", ".pdf", ".json")
SHOWN = 20_000
"""characters of one block at most"""

_LABELS = {
    "think": "Thinking",
    "deep_analysis": "Analysis",
    "rubric": "Rubric",
    "research_plan": "Research plan",
    "call_tool": "Search",
    "tool_output": "Found",
    "state_evaluation": "Evaluation",
    "rubric_review": "Rubric, item by item",
    "writing_plan": "Writing plan",
    "answer": "As written, before its marks were resolved",
}


AROUND = 600
"""characters of a passage shown on either side of what is quoted from it"""

_OFF = ["reference", "html_block", "html_inline", "link", "image", "autolink", "entity", "code"]
_STYLE = re.compile(r"<style>(.*?)</style>", re.S)
UNCITED = '<sup class="cite"><i title="It named no source that was found">no source</i></sup>'
_TIED = re.compile(r'([^\s<>&;]{0,40})\s?(<sup class="cite">.*?</sup>[.,;:!?]?)')
"""a mark, and the word before it that it must not be parted from by the end of a line"""
_VERDICTS = {
    "supported": "This passage supports the claim",
    "partial": "This passage supports the claim in part",
    "unsupported": "This passage does not support the claim",
    "unchecked": "Not checked",
}


def page(trajectory: Trajectory) -> str:
    """The whole page."""
    answer = cited_answer(trajectory)
    checks = trajectory.verification
    return page_of(
        "rubricem.agent.reports",
        "report_page.html",
        trajectory=trajectory,
        answer=answer,
        html=answer_html(answer),
        when=f"{trajectory.started_at.astimezone(UTC):%d %B %Y, %H:%M} UTC".lstrip("0"),
        removed=[repair.claim for repair in checks.repairs] if checks else [],
        rubric=report.latest_rubric(parse(printable(trajectory.transcript()))),
        stages=[(s, list(_blocks(text))) for s, text in report.stage_texts(trajectory).items()],
        numbers=_numbers(trajectory),
        verdicts=_VERDICTS,
        report=report,
        around=_around,
    )


def page_of(package: str, template: str, **values: Any) -> str:
    """A template of a package with its values, all of them escaped, in the frame page.html.

    The package's page_style.html is the only style sheet that the page's policy allows.
    """
    style = filled(package, "page_style.html").strip()
    sheet = _STYLE.search(style)
    assert sheet, "there is a style sheet, which the page's policy names by its hash"
    digest = base64.b64encode(hashlib.sha256(sheet[1].encode()).digest()).decode()
    return filled(package, template, style=style, style_hash=f"sha256-{digest}", **values)


def filled(package: str, template: str, **values: Any) -> str:
    """A template of a package with its values; only .html and .svg have them escaped."""
    return _templates(package).get_template(template).render(values)


def cell(text: str) -> str:
    """One line for Markdown, in which nothing ends a table's cell or begins a tag."""
    return one_line(text, 400).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")


def figure(title: str, rows: Sequence[tuple[str, Share]]) -> str:
    """An SVG file with a bar for each share and its interval; the same rows give the same text."""
    return filled("rubricem.agent.reports", "share_figure.svg", title=title, rows=rows)


@cache
def _templates(package: str) -> Environment:
    def read(name: str) -> str:
        # The frame is the one beside this module.
        folder = files("rubricem.agent.reports" if name == "page.html" else package)
        return (folder / name).read_text(encoding="utf-8")

    environment = Environment(
        loader=FunctionLoader(read), autoescape=select_autoescape(("html", "svg")),
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters |= {
        "plain": printable,
        "line": one_line,
        "cell": cell,
        "as_json": partial(json.dumps, ensure_ascii=False),
        "duration": report.duration,
        "number": report.decimal,
        "percent": report.percent,
    }
    return environment


def answer_html(answer: CitedAnswer) -> str:
    """The answer with its marks: the button of citation n (from 1) opens the popover `cN`."""
    if not answer.pieces:
        return f'<p class="none">{report.NO_ANSWER}</p>'
    index = {id(citation): i for i, citation in enumerate(answer.citations, 1)}

    def mark(piece: Cited | Uncited) -> str:
        if isinstance(piece, Uncited):
            return UNCITED
        buttons = (
            f'<button type="button"{doubtful} popovertarget="c{index[id(c)]}" '
            f'aria-label="Source {c.number}: {escape(one_line(c.source.title, 80))}">'
            f"{c.number}{doubt(c)}</button>"
            for c in piece.citations
            for doubtful in (f' class="{c.verdict}"' if doubt(c) else "",)
        )
        return f'<sup class="cite">{"".join(buttons)}</sup>'

    body = report.marked_in(answer, _rendered, mark)
    body = _TIED.sub(r'<span class="tied">\1\2</span>', body)
    return body + (f'<p class="bare">{escape(answer.bare)}</p>' if answer.bare else "")


def _rendered(text: str) -> str:
    """Markdown as HTML, its headings one level below the page's own."""
    markdown = MarkdownIt("commonmark").enable("table").disable(_OFF)
    tokens = markdown.parse(text)
    for token in tokens:
        token.attrs.pop("style", None)
        if token.type.startswith("heading"):
            token.tag = f"h{min(6, int(token.tag[1]) + 1)}"
    return str(markdown.renderer.render(tokens, markdown.options, {}))


def _around(source: Source, quoted: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """The passage around the quoted sentences in pieces, and whether each is one of them."""
    text = printable(source.text).strip()
    found = {quote: text.find(quote) for quote in map(printable, quoted) if quote}
    spans = sorted((at, at + len(quote)) for quote, at in found.items() if at >= 0)
    start = max(0, spans[0][0] - AROUND) if spans else 0
    end = min(len(text), (max(end for _, end in spans) if spans else AROUND) + AROUND)
    at = start
    yield "\u2026" if start else "", False
    for first, last in spans:
        if first >= at:
            yield text[at:first], False
            yield text[first:last], True
            at = last
    yield text[at:end] + ("\u2026" if end < len(text) else ""), False


def _numbers(trajectory: Trajectory) -> dict[str, str]:
    usage = trajectory.usage
    return {
        "Time": report.duration(trajectory.seconds),
        "Searches": str(trajectory.tool_calls),
        "Citations checked": report.check_counts(trajectory) or "no",
        "Passages found": str(len(trajectory.sources)),
        "Tokens read": f"{usage.prompt_tokens:,}",
        "of them cached": f"{usage.cached_tokens:,}",
        "Tokens written": f"{usage.completion_tokens:,}",
        "Cost": report.price(usage),
        "Policy": one_line(trajectory.policy, 60),
    }


@dataclass(frozen=True, slots=True)
class _ShownBlock:
    """A part of a stage; without a label, the whole of it as it was written."""

    text: str
    label: str = ""
    search: bool = False
    found: str = ""
    """of a tool's output the ids of its passages; it is folded"""


def _blocks(text: str) -> Iterator[_ShownBlock]:
    document = parse(printable(text))
    blocks = list(_leaves(document.blocks))
    for block in blocks:
        found = ""
        if block.tag == "tool_output":
            ids = (one_line(b.attributes.get("id", ""), 12) for b in block.children)
            found = ", ".join(filter(None, ids)) or "nothing"
        shown = _cut(document.inner(block).strip())
        label = _LABELS.get(block.tag, block.tag)
        yield _ShownBlock(shown, label, block.tag == "call_tool", found)
    if not blocks:
        yield _ShownBlock(_cut(document.text))


def _leaves(blocks: tuple[Block, ...]) -> Iterator[Block]:
    """The blocks that hold text: a plan and a review are only their parts."""
    for block in blocks:
        if block.tag in ("structured_plan", "review"):
            yield from _leaves(block.children)
        else:
            yield block


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}\u2026"


_PAPER = """
@page { size: A4; margin: 18mm 16mm; @bottom-right { content: counter(page); font-size: 8pt } }
h1 { font-size: 20pt } table { display: table } pre { white-space: pre-wrap }
.numbers { grid-template-columns: 1fr 1fr 1fr } .sources details > :not(summary) { display: none }
.sources summary, [aria-labelledby="stages-title"] { display: none }
"""
"""on paper nothing is scrolled or folded out, and a passage is quoted rather than shown whole"""


def pdf(trajectory: Trajectory) -> bytes:
    """The whole document. Blocks, for about a second; raises what `check_pdf` raises."""
    weasyprint = _weasyprint()
    fetcher = _refusing()
    with boundary(StoreError, "making the PDF"):
        html = weasyprint.HTML(string=page(trajectory), url_fetcher=fetcher)
        style = weasyprint.CSS(string=_PAPER, url_fetcher=fetcher)
        made: bytes = html.write_pdf(stylesheets=[style])
    return made


def check_pdf() -> None:
    """Raise SettingsError where no PDF can be made here."""
    _weasyprint()


def _weasyprint() -> Any:
    try:
        return needed("weasyprint", "pdf", "A PDF")
    except OSError as cause:
        # It looks for its libraries while it is imported.
        raise SettingsError(
            "A PDF needs the Pango library, which this system does not have.",
            "Install it (on Debian: apt install libpango-1.0-0 libpangoft2-1.0-0), or write .html.",
        ) from cause


def _refusing() -> Any:
    """A fetcher that gives nothing, whatever is asked of it."""
    fetchers: Any = importlib.import_module("weasyprint.urls")

    class Refusing(fetchers.URLFetcher):  # type: ignore[misc]
        def fetch(self, url: str, headers: Any = None) -> Any:
            raise ValueError("nothing is loaded into a report")

    return Refusing()


def write_report(trajectory: Trajectory, path: Path) -> None:
    """Write .md, .html, .pdf or .json (the whole trajectory), all or nothing.

    Raises SettingsError for another suffix, StoreError where the file cannot be written.
    """
    check_report_path(path)
    content = rendered(trajectory, path.suffix.lower())
    try:
        write_atomically(path.resolve(), content)
    except StoreError as error:
        raise StoreError(str(error), "Choose another folder, or change its rights.") from error


def rendered(trajectory: Trajectory, suffix: str) -> str | bytes:
    """What a file of this suffix holds; suffix is one of `SUFFIXES`."""
    match suffix:
        case ".md":
            return report.markdown(trajectory)
        case ".html":
            return page(trajectory)
        case ".pdf":
            return pdf(trajectory)
        case _:
            return trajectory.model_dump_json(indent=2) + "\n"


def check_report_path(path: Path) -> None:
    """Raise what `write_report` would raise for the path, before any work is done for it."""
    if path.suffix.lower() not in SUFFIXES:
        raise SettingsError(
            f"{path.name!r} names no format that a report can be written in",
            f"Give a file name that ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}.",
        )
    if path.suffix.lower() == ".pdf":
        check_pdf()
    if os.path.isdir(path):
        raise StoreError(f"{path} is a directory", "Name a file inside it.")
    folder = next(parent for parent in path.absolute().parents if os.path.exists(parent))
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise StoreError(
            f"no file can be written in {folder}", "Choose another folder, or change its rights."
        )
