"""A trajectory as one self-contained page, on paper, and as a file of every format.

Nothing outside the page is ever loaded and no script runs: the content policy allows the one
style sheet in it, by its hash, and nothing else. Marks open native popovers with the passage
they stand on. All text is escaped; the answer's Markdown is rendered without HTML, links or
images. The way to the answer, stage by stage, is folded.

On paper it is made a PDF by weasyprint, without that way. While it is made no address is asked
and no file is read but the fonts of the system: whatever the page names, the fetcher refuses.
"""

import base64
import hashlib
import importlib
import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from rubricem.agent.reports.cited import Citation, Cited, CitedAnswer, Uncited, cited_answer, doubt
from rubricem.agent.reports.report import (
    NO_ANSWER,
    TITLE,
    check_counts,
    duration,
    latest_rubric,
    markdown,
    marked_in,
    notes,
    quotes,
    recalled_lines,
    stage_texts,
    web_address,
    whereabouts,
)
from rubricem.agent.research.scaffold import Block, ScaffoldDocument, parse
from rubricem.memory.errors import SettingsError, StoreError, boundary
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import Source, Stage, Trajectory
from rubricem.memory.text import fill, one_line, printable

SUFFIXES = (".md", ".html", ".pdf", ".json")
SHOWN = 20_000
"""characters of one block at most"""

_TITLES = {
    Stage.PLAN: "Plan",
    Stage.RESEARCH: "Research",
    Stage.REVIEW: "Review",
    Stage.ANSWER: "Answer",
}
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
    "supported": "This passage supports the claim.",
    "partial": "This passage supports the claim in part.",
    "unsupported": "This passage does not support the claim.",
    "unchecked": "Not checked.",
}


def page(trajectory: Trajectory) -> str:
    """The whole page."""
    answer = cited_answer(trajectory)
    values = {
        "style_hash": _style_hash(_template()),
        "title": escape(one_line(trajectory.question)),
        "when": f"{trajectory.started_at.astimezone(UTC):%d %B %Y, %H:%M} UTC".lstrip("0"),
        "notes": "\n".join(
            f'<p class="note">{escape(note)}</p>' for note in notes(trajectory, answer)
        ),
        "answer": answer_html(answer),
        "sources": _sources(answer) + _removed(trajectory),
        "rubric": _section(
            "rubric",
            "Rubric written for this question",
            _list("checklist", latest_rubric(parse(printable(trajectory.transcript())))),
        )
        + _section("recalled", TITLE, _list("recalled", recalled_lines(trajectory))),
        "stages": _section("stages", "How it was found", _stages(trajectory)),
        "numbers": "\n".join(_numbers(trajectory)),
        "footer": escape(f"Run {trajectory.id}, thread {trajectory.thread}. Made by rubricem."),
        "popovers": "\n".join(_popover(i, c) for i, c in enumerate(answer.citations, 1)),
    }
    return fill(_template(), values)


@cache
def _template() -> str:
    return (files("rubricem.agent.reports") / "report_page.html").read_text(encoding="utf-8")


def _style_hash(template: str) -> str:
    style = _STYLE.search(template)
    assert style, "the template has a style sheet"
    return "sha256-" + base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()


def answer_html(answer: CitedAnswer) -> str:
    """The answer with its marks: the button of citation n (from 1) opens the popover `cN`."""
    if not answer.pieces:
        return f'<p class="none">{NO_ANSWER}</p>'
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

    body = marked_in(answer, _rendered, mark)
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


def _popover(index: int, citation: Citation) -> str:
    said = _VERDICTS[citation.verdict]
    if citation.reason:
        said = f"{said[:-1]}: {escape(citation.reason)}."
    percent = f"{citation.overlap:.0%} of the claim's words occur in it."
    return (
        f'<aside popover id="c{index}" aria-label="Source {citation.number}">'
        f'<button type="button" class="close" popovertarget="c{index}" '
        'popovertargetaction="hide" aria-label="Close">\u00d7</button>'
        f"{_head(citation.source)}"
        f"{_passage(citation.source, [citation.quote])}"
        f'<p class="support">{said} {escape(percent)} '
        f'<a href="#s{citation.number}">In the list of sources</a></p></aside>'
    )


def _sources(answer: CitedAnswer) -> str:
    items = "\n".join(_source(answer, source) for source in answer.sources)
    listed = f'<ol class="sources">\n{items}\n</ol>' if items else ""
    return _section("sources", "Sources", listed)


def _removed(trajectory: Trajectory) -> str:
    """The claims that repair took out or rewrote."""
    repairs = trajectory.verification.repairs if trajectory.verification else ()
    title = "Claims that no source holds, as they were written"
    return _section("removed", title, _list("removed", (repair.claim for repair in repairs)))


def _source(answer: CitedAnswer, source: Source) -> str:
    number = answer.of(source)[0].number
    quoted = [citation.quote for citation in answer.of(source)]
    shown = "".join(
        f'<p class="passage" dir="auto">{escape(quote)}</p>' for quote in quotes(answer, source)
    )
    return (
        f'<li id="s{number}"><span class="number">{number}</span>{_head(source)}{shown}'
        f"<details><summary>Passage</summary>{_passage(source, quoted)}</details></li>"
    )


def _head(source: Source) -> str:
    title, location = escape(one_line(source.title)), escape(one_line(source.location))
    if address := web_address(source.location):
        link = f'<a rel="noopener noreferrer nofollow" href="{escape(address)}">'
        title, location = f"{link}{title}</a>", f"{link}{location}</a>"
    rest = [escape(part) for part in whereabouts(source) if part != one_line(source.location)]
    where = " \u00b7 ".join(filter(None, (location, *rest)))
    return f'<p class="source-title">{title}</p><p class="where">{where}</p>'


def _passage(source: Source, quoted: list[str]) -> str:
    """The passage around the quoted sentences, which are highlighted."""
    text = printable(source.text).strip()
    found = {quote: text.find(quote) for quote in map(printable, quoted) if quote}
    spans = sorted((at, at + len(quote)) for quote, at in found.items() if at >= 0)
    start = max(0, spans[0][0] - AROUND) if spans else 0
    end = min(len(text), (max(end for _, end in spans) if spans else AROUND) + AROUND)
    parts, at = ["\u2026" if start else ""], start
    for first, last in spans:
        if first >= at:
            parts += [escape(text[at:first]), f"<mark>{escape(text[first:last])}</mark>"]
            at = last
    parts += [escape(text[at:end]), "\u2026" if end < len(text) else ""]
    return f'<p class="passage" dir="auto">{"".join(parts)}</p>'


def _numbers(trajectory: Trajectory) -> list[str]:
    usage = trajectory.usage
    shown = {
        "Time": duration(trajectory.seconds),
        "Searches": str(trajectory.tool_calls),
        "Citations checked": check_counts(trajectory) or "no",
        "Passages found": str(len(trajectory.sources)),
        "Tokens read": f"{usage.prompt_tokens:,}",
        "of them cached": f"{usage.cached_tokens:,}",
        "Tokens written": f"{usage.completion_tokens:,}",
        "Cost": f"${usage.cost:.4f}" if usage.cost is not None else "no price known",
        "Policy": one_line(trajectory.policy, 60),
    }
    return [f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in shown.items()]


def _section(name: str, title: str, content: str) -> str:
    """A titled part of the page; "" without content."""
    if not content:
        return ""
    return (
        f'<section aria-labelledby="{name}-title">\n'
        f'<h2 id="{name}-title">{title}</h2>\n{content}\n</section>'
    )


def _list(kind: str, texts: Iterable[str]) -> str:
    items = "\n".join(f'<li dir="auto">{escape(one_line(text))}</li>' for text in texts)
    return f'<ul class="{kind}">\n{items}\n</ul>' if items else ""


def _stages(trajectory: Trajectory) -> str:
    """Every stage that was reached, each in a fold."""
    folds = "\n".join(_stage(stage, text) for stage, text in stage_texts(trajectory).items())
    return f'<div class="stages">\n{folds}\n</div>' if folds else ""


def _stage(stage: Stage, text: str) -> str:
    document = parse(printable(text))
    blocks = list(_leaves(document.blocks))
    shown = "".join(_block(document, block) for block in blocks)
    searches = sum(block.tag == "call_tool" for block in blocks)
    count = f"<small>{searches} search{'' if searches == 1 else 'es'}</small>" if searches else ""
    body = shown or f'<div class="block">{_shown(document.text)}</div>'
    return f"<details><summary>{_TITLES[stage]}{count}</summary>{body}</details>"


def _leaves(blocks: tuple[Block, ...]) -> Iterator[Block]:
    """The blocks that hold text: a plan and a review are only their parts."""
    for block in blocks:
        if block.tag in ("structured_plan", "review"):
            yield from _leaves(block.children)
        else:
            yield block


def _block(document: ScaffoldDocument, block: Block) -> str:
    text = _shown(document.inner(block).strip())
    label = _LABELS.get(block.tag, block.tag)
    if block.tag == "tool_output":
        ids = (one_line(b.attributes.get("id", ""), 12) for b in block.children)
        named = ", ".join(filter(None, ids)) or "nothing"
        text = f"<details><summary>{escape(named)}</summary>{text}</details>"
    kind = " search" if block.tag == "call_tool" else ""
    return f'<div class="block{kind}"><h3>{label}</h3>{text}</div>'


def _shown(text: str) -> str:
    cut = text if len(text) <= SHOWN else text[:SHOWN] + "\u2026"
    return f'<p dir="auto">{escape(cut)}</p>'


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
        return importlib.import_module("weasyprint")
    except ImportError as cause:
        raise SettingsError(
            "A PDF needs weasyprint, which is not installed.",
            "Install it: pip install 'rubricem[pdf]'",
        ) from cause
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
            return markdown(trajectory)
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
