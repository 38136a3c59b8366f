"""A trajectory as one self-contained page, and as a file of every format.

The page loads nothing and runs no script: its content policy allows only the one style sheet in it,
by hash. Citation marks open native popovers with the cited passage. All text is escaped; the
answer's Markdown is rendered without HTML or images, its formulas as MathML, and nh3 lets only the
markup listed here pass. The server's page gets formulas as they were written.

For print, weasyprint makes a PDF of the page without the way to the answer; its fetcher refuses
whatever the page names. Cited sources are given to reference managers as BibTeX and RIS.
"""

import base64
import hashlib
import importlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC
from functools import cache, partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from rubricem.agent.reports import report
from rubricem.agent.reports.cited import Cited, CitedAnswer, Uncited, cited_answer, doubt
from rubricem.agent.transcript.scaffold import TaggedBlock, parse
from rubricem.memory.errors import SettingsError, StoreError, boundary, import_extra
from rubricem.memory.language import language_of
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import Source, Trajectory
from rubricem.memory.text import one_line, printable

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

Maths = Callable[[str, bool], str]
"""a formula in LaTeX, and whether it is a display formula -> HTML"""
SUFFIXES = (".md", ".html", ".pdf", ".json", ".bib", ".ris")
LONGEST_CODE, LONGEST_FORMULA = 50_000, 2_000
"""most characters that are coloured, and that are typeset"""
SHOWN = 20_000

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
"""characters of a passage shown on either side of the quoted part"""

_FORMULAS = ("math_inline", "math_inline_double", "math_block", "math_block_eqno")
_STYLE = re.compile(r"<style>(.*?)</style>", re.S)
UNCITED = '<sup class="cite"><i title="It named no source that was found">no source</i></sup>'
_TIED = re.compile(r'([^\s<>&;]{0,40})\s?(<sup class="cite">.*?</sup>[.,;:!?]?)')
"""a mark with the word before it, from which a line break must not part it"""
_VERDICTS = {
    "supported": "This passage supports the claim",
    "partial": "This passage supports the claim in part",
    "unsupported": "This passage does not support the claim",
    "unchecked": "Not checked",
}


@cache
def _drawing() -> "MarkdownIt":
    """The grammar, where it is rendered differently from markdown-it's defaults."""
    markdown = report.grammar()
    opened = '<div class="table-wrap" tabindex="0" role="region" aria-label="Table"><table>\n'
    renderer: Any = markdown.renderer
    renderer.rules |= {
        "table_open": lambda *_: opened,
        "table_close": lambda *_: "</table></div>\n",
        "fence": lambda tokens, at, *_: _render_fence(tokens[at]),
        **dict.fromkeys(_FORMULAS, lambda tokens, at, options, env: _typeset(tokens[at], env)),
    }
    return markdown


def html_of(text: str, maths: Maths) -> str:
    """The text as safe HTML: cleaned, with tables and code that can be scrolled by keyboard."""
    return sanitise(str(_drawing().render(text, {"maths": maths})))


def _typeset(token: "Token", env: Any) -> str:
    tag = "div" if token.block else "span"
    marks = "".join(place[0] for place in report.PLACE.finditer(token.content))
    made = env["maths"](report.PLACE.sub("", token.content).strip(), token.type != "math_inline")
    return f'<{tag} class="maths">{made}</{tag}>{marks}'


def _render_fence(token: "Token") -> str:
    language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
    return f'<pre tabindex="0"><code>{_highlight(token.content, language)}</code></pre>\n'


def _highlight(code: str, language: str) -> str:
    """The code as HTML, highlighted for the named language; no language is guessed."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language, stripnl=False) if language else None
    except ClassNotFound:
        lexer = None
    if lexer is None or len(code) > LONGEST_CODE:
        return escape(code)
    return str(highlight(code, lexer, HtmlFormatter(nowrap=True, classprefix="c-")))


def as_source(formula: str, alone: bool) -> str:
    """A formula as it was written, for paper and for a page that typesets it itself."""
    return f'<code class="{"alone" if alone else "within"}">{escape(formula)}</code>'


def as_mathml(formula: str, alone: bool) -> str:
    """A formula as MathML; as it was written if it is not understood."""
    from latex2mathml.converter import convert

    if len(formula) > LONGEST_FORMULA:
        return as_source(formula, alone)
    try:
        # A command that it does not know is left in the formula by its name.
        made: str = convert(formula, display="block" if alone else "inline")
    except Exception:
        return as_source(formula, alone)
    return made


_MATHML = {
    "math", "mi", "mo", "mn", "ms", "mtext", "mrow", "mfrac", "msqrt", "mroot", "msup", "msub",
    "msubsup", "munder", "mover", "munderover", "mtable", "mtr", "mtd", "mspace", "mstyle",
    "mpadded", "mphantom", "menclose", "mmultiscripts",
}  # fmt: skip
_TAGS = _MATHML | {
    "a", "blockquote", "br", "code", "del", "div", "em", "h2", "h3", "h4", "h5", "h6",
    "hr", "li", "ol", "p", "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead",
    "tr", "ul",
}  # fmt: skip
_ATTRIBUTES: dict[str, set[str]] = {
    "a": {"href"}, "ol": {"start"}, "div": {"class", "tabindex", "role", "aria-label"},
    "td": {"class"}, "th": {"class"}, "pre": {"tabindex"}, "span": {"class"}, "code": {"class"},
    "math": {"display"},
    "mo": {"stretchy", "fence", "form"}, "mfrac": {"linethickness"}, "mi": {"mathvariant"},
    "mtable": {"columnalign"}, "mover": {"accent"}, "munder": {"accentunder"},
}  # fmt: skip


def sanitise(html: str) -> str:
    """The HTML reduced to the markup that answers consist of."""
    import nh3

    return nh3.clean(
        html, tags=_TAGS, attributes=_ATTRIBUTES, url_schemes={"http", "https"},
        link_rel="noopener noreferrer nofollow",
    )  # fmt: skip


def _turn(trajectory: Trajectory, tag: str, maths: Maths) -> dict[str, Any]:
    """A question and its answer on a page; `tag` makes its ids differ from those of other turns."""
    answer, checks = cited_answer(trajectory), trajectory.verification
    asked = trajectory.started_at.astimezone(UTC)
    texts = report.stage_texts(trajectory)
    return {
        "trajectory": trajectory,
        "answer": answer,
        "tag": tag,
        "html": answer_html(answer, maths, tag),
        "language": language_of(trajectory.question),
        "when": f"{asked:%d %B %Y, %H:%M} UTC".lstrip("0"),
        "removed": [repair.claim for repair in checks.repairs] if checks else [],
        "rubric": report.checklist(trajectory.transcript()),
        "stages": [(stage, list(_blocks(text))) for stage, text in texts.items()],
        "numbers": _numbers(trajectory),
    }


def page(*trajectories: Trajectory, title: str = "", maths: Maths = as_mathml) -> str:
    """The whole page: of one run, or of the runs of a thread, which has its own title."""
    one = len(trajectories) == 1
    turns = [
        _turn(each, "" if one else f"{number}-", maths)
        for number, each in enumerate(trajectories, start=1)
    ]
    style = fill_template("page_style.html").strip()
    sheet = _STYLE.search(style)
    assert sheet, "there is a style sheet, which the page's policy names by its hash"
    digest = base64.b64encode(hashlib.sha256(sheet[1].encode()).digest()).decode()
    return fill_template(
        "report_page.html",
        style=style,
        style_hash=f"sha256-{digest}",
        turns=turns,
        title=title or trajectories[0].question,
        verdicts=_VERDICTS,
        report=report,
        around=_around,
    )


def fill_template(name: str, **values: Any) -> str:
    """A template beside this file with its values, which are escaped only in .html."""
    return _templates().get_template(name).render(values)


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("rubricem.agent", "reports"), autoescape=select_autoescape(("html",)),
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters |= {"line": one_line, "tex": _tex}
    return environment


def answer_html(answer: CitedAnswer, maths: Maths = as_source, tag: str = "") -> str:
    """The answer with its marks: the button of citation n (from 1) opens the popover `cN`.

    `tag` precedes the number on a page that holds several answers.
    """
    if not answer.pieces:
        return f'<p class="none">{report.NO_ANSWER}</p>'
    index = {id(citation): i for i, citation in enumerate(answer.citations, 1)}

    def mark(piece: Cited | Uncited) -> str:
        if isinstance(piece, Uncited):
            return UNCITED
        buttons = (
            f'<button type="button"{doubtful} popovertarget="c{tag}{index[id(c)]}" '
            f'aria-label="Source {c.number}: {escape(one_line(c.source.title, 80))}">'
            f"{c.number}{doubt(c)}</button>"
            for c in piece.citations
            for doubtful in (f' class="{c.verdict}"' if doubt(c) else "",)
        )
        return f'<sup class="cite">{"".join(buttons)}</sup>'

    body = report.render_marked(answer, partial(html_of, maths=maths), mark)
    body = _TIED.sub(r'<span class="tied">\1\2</span>', body)
    return body + (f'<p class="bare">{escape(answer.bare)}</p>' if answer.bare else "")


_CITE = re.compile(r'<cite\s[^<>]*?id="([^"<>]{0,200})"[^<>]*>(.*?)(?:</cite>|\Z)', re.S)
_TAG_BEGUN = re.compile(r"<[/a-z][^<>]*\Z")


def draft_html(written: str) -> str:
    """An answer that is still being written: the text of its turn so far, with ids as written."""
    _, begun, rest = printable(written).rpartition("<answer>")
    text = rest.partition("</answer>")[0] if begun else ""
    ids: list[str] = []

    def hold(cite: re.Match[str]) -> str:
        ids.append(cite[1])
        return f"{cite[2].strip()} \ufdd0{len(ids) - 1}\ufdd1"

    html = html_of(_CITE.sub(hold, _TAG_BEGUN.sub("", text)), as_source)
    return report.PLACE.sub(
        lambda place: f'<sup class="cite">{escape(ids[int(place[1])])}</sup>', html
    )


def _around(source: Source, quoted: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """The passage around the quoted sentences in pieces, and whether each piece is quoted."""
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
        "Searches": str(report.searches(trajectory)),
        "Citations checked": report.check_counts(trajectory) or "no",
        "Passages found": str(len(trajectory.sources)),
        "Tokens read": f"{usage.prompt_tokens:,}",
        "of them cached": f"{usage.cached_tokens:,}",
        "Tokens written": f"{usage.completion_tokens:,}",
        "Cost": report.price(usage),
        "Policy": one_line(trajectory.policy, 60),
    }


def _blocks(text: str) -> Iterator[dict[str, Any]]:
    """The parts of a stage, each with its label; without tags, the whole text as it was written.

    `found`: for a tool's output the ids of its passages; it is folded.
    """
    document = parse(printable(text))
    blocks = list(_leaves(document.blocks))
    for block in blocks:
        found = ""
        if block.tag == "tool_output":
            ids = (one_line(b.attributes.get("id", ""), 12) for b in block.children)
            found = ", ".join(filter(None, ids)) or "nothing"
        label = _LABELS.get(block.tag, block.tag)
        shown = {"text": _cut(document.inner(block).strip()), "label": label, "found": found}
        yield {**shown, "search": block.tag == "call_tool"}
    if not blocks:
        yield {"text": _cut(document.text), "label": "", "found": "", "search": False}


def _leaves(blocks: tuple[TaggedBlock, ...]) -> Iterator[TaggedBlock]:
    """The blocks that hold text; a plan and a review consist of such blocks."""
    for block in blocks:
        if block.tag in ("structured_plan", "review"):
            yield from _leaves(block.children)
        else:
            yield block


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}\u2026"


def write_report(trajectory: Trajectory, path: Path) -> None:
    """Write a file of one of `SUFFIXES`, atomically; .json holds the whole trajectory.

    Raises SettingsError for another suffix, StoreError if the file cannot be written.
    """
    check_report_path(path)
    try:
        write_atomically(path.resolve(), render(trajectory, path.suffix.lower()))
    except StoreError as error:
        raise StoreError(str(error), "Choose another folder, or change its rights.") from error


def render(trajectory: Trajectory, suffix: str) -> str | bytes:
    """The content of a file with this suffix, one of `SUFFIXES`."""
    match suffix:
        case ".md":
            return report.markdown(trajectory)
        case ".html":
            return page(trajectory)
        case ".pdf":
            return pdf(trajectory)
        case ".bib" | ".ris":
            return _references(trajectory, suffix)
        case _:
            return trajectory.model_dump_json(indent=2) + "\n"


def check_report_path(path: Path) -> None:
    """Raise what `write_report` would raise for the path, before any work is done."""
    if path.suffix.lower() not in SUFFIXES:
        raise SettingsError(
            f"{path.name!r} names no format that a report can be written in",
            f"Give a file name that ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}.",
        )
    if path.suffix.lower() == ".pdf":
        _weasyprint()
    if os.path.isdir(path):
        raise StoreError(f"{path} is a directory", "Name a file inside it.")
    folder = next(parent for parent in path.absolute().parents if os.path.exists(parent))
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise StoreError(
            f"no file can be written in {folder}", "Choose another folder, or change its rights."
        )


_PAPER = """
<style>
@page { size: A4; margin: 18mm 16mm; @bottom-right { content: counter(page); font-size: 8pt } }
@page wide { size: A4 landscape }
h1 { font-size: 20pt } .figures { display: table } .table-wrap table { width: auto }
.table-wrap:has(tr > :nth-child(7)) { page: wide; font-size: 8pt }
.table-wrap :is(th, td) { max-width: none; padding: 2pt 3pt; overflow-wrap: anywhere }
pre { white-space: pre-wrap }
.numbers { grid-template-columns: 1fr 1fr 1fr } .sources details > :not(summary) { display: none }
.sources summary, [aria-labelledby="stages-title"] { display: none }
</style></head>"""
"""in print nothing scrolls or unfolds, and passages are quoted rather than shown whole"""


def pdf(trajectory: Trajectory) -> bytes:
    """The document as bytes. Blocks for about a second.

    Raises SettingsError if no PDF can be made on this machine.
    """
    weasyprint = _weasyprint()
    fetcher = _refusing()
    with boundary(StoreError, "making the PDF"):
        # Behind the page's own style, which wins over what weasyprint is given beside it.
        html = page(trajectory, maths=as_source).replace("</head>", _PAPER, 1)
        made: bytes = weasyprint.HTML(string=html, url_fetcher=fetcher).write_pdf()
    return made


def _weasyprint() -> Any:
    try:
        return import_extra("weasyprint", "pdf", "A PDF")
    except OSError as cause:
        # It looks for its libraries while it is imported.
        raise SettingsError(
            "A PDF needs the Pango library, which this system does not have.",
            "Install it (on Debian: apt install libpango-1.0-0 libpangoft2-1.0-0), or write .html.",
        ) from cause


def _refusing() -> Any:
    """A fetcher that refuses every request."""
    fetchers: Any = importlib.import_module("weasyprint.urls")

    class Refusing(fetchers.URLFetcher):  # type: ignore[misc]
        def fetch(self, url: str, headers: Any = None) -> Any:
            raise ValueError("nothing is loaded into a report")

    return Refusing()


_DOI = re.compile(r"doi\.org/(10\.\d{4,9}/[^\s?#]+)", re.I)
_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def _tex(text: str) -> str:
    return re.sub(r"[\\~^{}$&#%_]", lambda found: _TEX.get(found[0], f"\\{found[0]}"), text)


def _cited_sources(trajectory: Trajectory) -> Iterator[tuple[str, str, str, str]]:
    """Of each cited source the title, web address, DOI, and the place of the passage in it."""
    for source in cited_answer(trajectory).sources:
        address = report.web_address(source.location) or ""
        doi = _DOI.search(address)
        where = "" if address else one_line(source.location)
        place = ", ".join(filter(None, (where, one_line(source.place))))
        yield one_line(source.title), address, doi[1] if doi else "", place


def _references(trajectory: Trajectory, suffix: str) -> str:
    """The cited sources for reference managers: `.bib` for BibTeX, `.ris` for RIS."""
    read = trajectory.started_at.astimezone(UTC)
    found, run = _cited_sources(trajectory), trajectory.id[:8]
    text = fill_template(f"sources{suffix}", sources=found, run=run, read=read)
    return text.replace("\n", "\r\n") if suffix == ".ris" else text
