"""A trajectory as one self-contained page: every mark opens the passage it stands on.

Nothing outside the file is ever loaded and no script runs: the content policy allows the one
style sheet in it, by its hash, and nothing else. Marks open native popovers. All text is
escaped; the answer's Markdown is rendered without HTML, links or images.
"""

import base64
import hashlib
import re
from datetime import UTC
from functools import cache
from html import escape
from importlib.resources import files

from markdown_it import MarkdownIt

from agent.prompting import fill
from agent.reports.citations import cited_answer
from agent.reports.cited import Citation, Cited, CitedAnswer, Uncited, doubt
from agent.reports.markdown_text import web_address
from agent.reports.page_stages import rubric_section, stages_section
from agent.reports.printable import one_line, printable
from agent.reports.recalled import recalled_section
from agent.reports.report import NO_ANSWER, duration, marked_in, notes, quotes, whereabouts
from agent.reports.verified import check_counts, removed_section
from memory.schema import Source, Trajectory

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
        "sources": _sources(answer) + removed_section(trajectory),
        "rubric": rubric_section(trajectory) + recalled_section(trajectory),
        "stages": stages_section(trajectory),
        "numbers": "\n".join(_numbers(trajectory)),
        "footer": escape(f"Run {trajectory.id}, thread {trajectory.thread}. Made by rubricem."),
        "popovers": "\n".join(_popover(i, c) for i, c in enumerate(answer.citations, 1)),
    }
    return fill(_template(), values)


@cache
def _template() -> str:
    return (files("agent.reports") / "report_page.html").read_text(encoding="utf-8")


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
            f'<button type="button"{_doubtful(c)} popovertarget="c{index[id(c)]}" '
            f'aria-label="Source {c.number}: {escape(one_line(c.source.title, 80))}">'
            f"{c.number}{doubt(c)}</button>"
            for c in piece.citations
        )
        return f'<sup class="cite">{"".join(buttons)}</sup>'

    body = marked_in(answer, _rendered, mark)
    body = _TIED.sub(r'<span class="tied">\1\2</span>', body)
    return body + (f'<p class="bare">{escape(answer.bare)}</p>' if answer.bare else "")


def _doubtful(citation: Citation) -> str:
    return f' class="{citation.verdict}"' if doubt(citation) else ""


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
    percent = f"{citation.overlap:.0%} of the claim's words occur in it."
    return (
        f'<aside popover id="c{index}" aria-label="Source {citation.number}">'
        f'<button type="button" class="close" popovertarget="c{index}" '
        'popovertargetaction="hide" aria-label="Close">\u00d7</button>'
        f"{_head(citation.source)}"
        f"{_passage(citation.source, [citation.quote])}"
        f'<p class="support">{_verdict(citation)} {escape(percent)} '
        f'<a href="#s{citation.number}">In the list of sources</a></p></aside>'
    )


def _verdict(citation: Citation) -> str:
    said = _VERDICTS[citation.verdict]
    return f"{said[:-1]}: {escape(citation.reason)}." if citation.reason else said


def _sources(answer: CitedAnswer) -> str:
    if not answer.sources:
        return ""
    items = "\n".join(_source(answer, source) for source in answer.sources)
    return (
        '<section aria-labelledby="sources-title">\n<h2 id="sources-title">Sources</h2>\n'
        f'<ol class="sources">\n{items}\n</ol>\n</section>'
    )


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
