"""A trajectory as a report: Markdown for people, one JSON object for programs, files of each.

The source list is rendered here from what was fetched, never from what a model wrote; only
sources that the answer cites are in it, each with the sentence its claims stand on. Titles,
paths, quotes and the answer are untrusted text and are escaped for where they go.

Untrusted text as Markdown: its structure may stay, but no markup, link or image comes alive.

`prose` keeps what an answer is written in (headings, lists, emphasis, code); `literal` keeps
nothing, for titles, paths and quotes. HTML is escaped as entities in both, and brackets by a
backslash, so that neither links nor link definitions can be formed. Only `link` makes one, and
only to http and https.

A trajectory as a PDF: its page on paper, made by weasyprint.

While it is made no address is asked and no file is read but the fonts of the system: whatever the
page names, the fetcher refuses. The way to the answer, folded on the page, is left out.

A trajectory as one self-contained page: every mark opens the passage it stands on.

Nothing outside the file is ever loaded and no script runs: the content policy allows the one
style sheet in it, by its hash, and nothing else. Marks open native popovers. All text is
escaped; the answer's Markdown is rendered without HTML, links or images.

The way to an answer on its page: the rubric as a checklist and the stages, folded.

What a run was given of the bank, as a report shows it: a line for each reflection.
"""

import base64
import hashlib
import importlib
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt

from rubricem.agent.reports.cited import (
    Citation,
    Cited,
    CitedAnswer,
    Mark,
    Uncited,
    bracketed,
    check_counts,
    checked,
    cited_answer,
    doubt,
    doubts,
    removed_section,
    told,
    verified_json,
)
from rubricem.agent.research.scaffold import Block, ScaffoldDocument, parse, rubric_items
from rubricem.memory.errors import SettingsError, StoreError, boundary
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import Recollection, Source, Stage, Status, Trajectory
from rubricem.memory.text import fill, one_line, printable

_FENCE = re.compile(r"(`{3,})[^`]*$")
_CODE = re.compile(r"(?<![\\`])`([^`\n]+)`(?!`)")
_INERT_CODE = re.compile(r"(?!.*[<&]|.*\]\(|.*!\[)")
_SPECIAL = re.compile(r"[\\`*\[\]~|]|(?<!\w)_|_(?!\w)|^[#+=-]|(?<=^\d)[.)]|(?<=^\d\d)[.)]")
_URL_UNSAFE = re.compile(r"[\s<>\"'\\^`{|}()]|[^\x21-\x7e]")


def prose(text: str) -> str:
    """A printable text with its structure kept and everything else of Markdown taken away."""
    lines, fence = [], ""
    for line in text.splitlines():
        # A fence is trusted only at the margin: elsewhere its end depends on the block around it.
        mark = _FENCE.match(line)
        if fence:
            lines.append(line)
            fence = "" if re.fullmatch(rf" {{0,3}}{fence}`*[ \t]*", line) else fence
        elif mark:
            fence = mark[1]
            lines.append(line)
        else:
            lines.append(_spans(line))
    return "\n".join([*lines, fence] if fence else lines)


def literal(text: str) -> str:
    """The text on one line, with every character escaped that means something there."""
    return _entities(_SPECIAL.sub(r"\\\g<0>", one_line(text)))


def web_address(location: str) -> str | None:
    """The location as an address that is safe to link, or None where it is no http(s) url."""
    try:
        parts = urlsplit(location)
    except ValueError:
        return None
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname:
        return None
    return _URL_UNSAFE.sub(lambda c: "".join(f"%{b:02X}" for b in c[0].encode()), location.strip())


def link(title: str, location: str) -> str:
    """The title, linked where the location is a web address."""
    address = web_address(location)
    return f"[{literal(title)}]({address})" if address else literal(title)


def _spans(line: str) -> str:
    parts, at = [], 0
    for code in _CODE.finditer(line):
        parts += [_text(line[at : code.start()]), _code(code)]
        at = code.end()
    return "".join([*parts, _text(line[at:])])


def _code(code: re.Match[str]) -> str:
    """Code as it is, or as an element where a renderer that sees no code could be misled."""
    if _INERT_CODE.match(code[1]):
        return code[0]
    return f"<code>{literal(code[1])}</code>"


def _text(text: str) -> str:
    return _entities(re.sub(r"[\[\]]", r"\\\g<0>", text))


def _entities(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


TITLE = "Recalled from earlier runs"
QUESTION = 200
"""characters of a question at most"""


def recalled_lines(trajectory: Trajectory) -> list[str]:
    """One printable line for each; of runs that kept the ids alone, these."""
    items = trajectory.recollections or [Recollection(id=name) for name in trajectory.recalled]
    return [_line(item) for item in items]


def recalled_section(trajectory: Trajectory) -> str:
    """The same as a section of the page; "" for nothing."""
    if not trajectory.recalled:
        return ""
    shown = "\n".join(f'<li dir="auto">{escape(line)}</li>' for line in recalled_lines(trajectory))
    return (
        '<section aria-labelledby="recalled-title">\n'
        f'<h2 id="recalled-title">{TITLE}</h2>\n<ul class="recalled">\n{shown}\n</ul>\n</section>'
    )


def _line(item: Recollection) -> str:
    how = "this very question" if item.own else "a similar question"
    if item.similarity is not None:
        how = f"{how} ({item.similarity:.2f})"
    if not item.question:
        return item.id
    said = [f"{how}: {one_line(item.question, QUESTION)}"]
    said += [f"scored {item.score:.2f}"] if item.score is not None else []
    return " \u00b7 ".join([*said, item.id])


SUFFIXES = (".md", ".html", ".pdf", ".json")
NO_ANSWER = "No answer was written."
QUOTE_LIMIT = 400
"""characters of a quoted sentence"""

_ENDED = {
    Status.PARTIAL: "Ended early",
    Status.NO_EVIDENCE: "No evidence",
    Status.FAILED: "Failed",
}
_PLACE = re.compile("\ufdd0(\\d+)\ufdd1")
"""holds a mark's place while the text is escaped: noncharacters, which no text keeps"""


def markdown(trajectory: Trajectory) -> str:
    """The report as Markdown; in the format `exact` its last line is the bare answer."""
    answer = cited_answer(trajectory)
    body = marked_in(answer, prose, bracketed) if answer.pieces else NO_ANSWER
    parts = [f"# {literal(trajectory.question)}", *map(literal, notes(trajectory, answer)), body]
    if answer.sources:
        parts += ["## Sources", *(_source(answer, source) for source in answer.sources)]
    if recalled := recalled_lines(trajectory):
        parts += [f"## {TITLE}", "\n".join(f"- {literal(line)}" for line in recalled)]
    parts += ["---", literal(" · ".join(facts(trajectory)))]
    if answer.bare:
        parts.append(prose(answer.bare))
    return "\n\n".join(part for part in parts if part) + "\n"


def as_json(trajectory: Trajectory) -> dict[str, Any]:
    """The answer and everything it stands on, for programs; text is as written, not escaped."""
    answer = cited_answer(trajectory)
    return {
        "question": trajectory.question,
        "answer": answer.text(),
        "citations": [_citation(citation) for citation in answer.citations],
        "dropped_citations": answer.dropped,
        "verification": verified_json(trajectory),
        "conflicts": list(told(trajectory, answer)),
        "stages": [
            {"stage": stage.value, "text": text} for stage, text in stage_texts(trajectory).items()
        ],
        "usage": trajectory.usage.model_dump(mode="json"),
        "status": trajectory.status.value,
        "reason": trajectory.reason,
        "ended_by": trajectory.ended_by,
        "trajectory_id": trajectory.id,
        "thread": trajectory.thread,
        "recalled": list(trajectory.recalled),
        "recollections": [item.model_dump(mode="json") for item in trajectory.recollections],
    }


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
            # Here, since the page alone needs a Markdown renderer.

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


def marked_in(answer: CitedAnswer, escape: Callable[[str], str], mark: Mark) -> str:
    """The body of the answer through `escape`, with marks that `escape` has not seen."""
    places: list[Cited | Uncited] = []

    def hold(piece: Cited | Uncited) -> str:
        places.append(piece)
        return f"\ufdd0{len(places) - 1}\ufdd1"

    return _PLACE.sub(lambda place: mark(places[int(place[1])]), escape(answer.body(hold)))


def stage_texts(trajectory: Trajectory) -> dict[Stage, str]:
    """What was written in each stage that was reached, by whomever, in the order of stages."""
    kept = [s for s in trajectory.segments if s.kept]
    texts = {stage: "".join(s.text for s in kept if s.stage is stage) for stage in Stage}
    return {stage: text.strip() for stage, text in texts.items() if text.strip()}


def notes(trajectory: Trajectory, answer: CitedAnswer) -> list[str]:
    """What a reader has to know before the answer: an early end, dropped ids, doubts, conflicts."""
    said = []
    if trajectory.status is not Status.FINISHED:
        said.append(f"{_ENDED[trajectory.status]}: {_reason(trajectory)}")
    if answer.dropped:
        one = answer.dropped == 1
        marks = "1 citation mark" if one else f"{answer.dropped} citation marks"
        said.append(f"{marks} named no retrieved source and {'was' if one else 'were'} removed.")
    return [*said, *doubts(trajectory, answer), *told(trajectory, answer)]


def facts(trajectory: Trajectory) -> list[str]:
    """Numbers of the run, each as a short phrase."""
    usage, calls = trajectory.usage, trajectory.tool_calls
    recalled = len(trajectory.recalled)
    phrases = [
        trajectory.status.value,
        one_line(trajectory.policy),
        f"{calls} search{'' if calls == 1 else 'es'}",
        checked(trajectory),
        f"{recalled} reflection{'' if recalled == 1 else 's'} recalled" if recalled else "",
        f"{usage.prompt_tokens:,} tokens read, {usage.completion_tokens:,} written",
        f"${usage.cost:.4f}" if usage.cost is not None else "",
        duration(trajectory.seconds),
    ]
    return [phrase for phrase in phrases if phrase]


def _reason(trajectory: Trajectory) -> str:
    reason = one_line(trajectory.reason) or "no reason was given."
    if trajectory.status is Status.NO_EVIDENCE and not trajectory.sources:
        return f"{reason}; what follows rests on no source."
    return reason


def duration(seconds: float) -> str:
    """`0.4 s`, `41 s`, `2 min 5 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def quotes(answer: CitedAnswer, source: Source) -> list[str]:
    """What the claims on a source stand on, on one line each: sentences, or how it begins."""
    found = dict.fromkeys(c.quote for c in answer.of(source) if c.quote)
    return [one_line(quote, QUOTE_LIMIT) for quote in found or [source.text]]


def whereabouts(source: Source) -> list[str]:
    """Where a source stands: its address, the place in it, and where copies of it stand."""
    also = f"also at {', '.join(source.copies)}" if source.copies else ""
    return [one_line(part) for part in (source.location, source.place, also) if part]


def _source(answer: CitedAnswer, source: Source) -> str:
    number = answer.of(source)[0].number
    where = [literal(part) for part in whereabouts(source)]
    head = " · ".join([f"**[{number}]** {link(source.title, source.location)}", *where])
    return "\n\n".join([head, *(f"> {literal(quote)}" for quote in quotes(answer, source))])


def _citation(citation: Citation) -> dict[str, Any]:
    source = citation.source
    return {
        "id": citation.id,
        "number": citation.number,
        "claim": citation.claim,
        "support": {
            "verdict": citation.verdict,
            "reason": citation.reason,
            "overlap": citation.overlap,
        },
        "source": {
            "id": source.id,
            "title": source.title,
            "location": source.location,
            "place": source.place,
            "passage": source.text,
            "copies": list(source.copies),
        },
    }


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


def rubric_section(trajectory: Trajectory) -> str:
    """The last rubric written for the question; "" where there is none."""
    items = latest_rubric(parse(printable(trajectory.transcript())))
    if not items:
        return ""
    shown = "\n".join(f'<li dir="auto">{escape(one_line(item))}</li>' for item in items)
    return (
        '<section aria-labelledby="rubric-title">\n'
        '<h2 id="rubric-title">Rubric written for this question</h2>\n'
        f'<ul class="checklist">\n{shown}\n</ul>\n</section>'
    )


def latest_rubric(document: ScaffoldDocument) -> list[str]:
    """The items of the last rubric that holds any."""
    found = (rubric_items(document.inner(block)) for block in reversed(document.find("rubric")))
    return next((items for items in found if items), [])


def stages_section(trajectory: Trajectory) -> str:
    """Every stage that was reached, each in a fold."""
    folds = "\n".join(_stage(stage, text) for stage, text in stage_texts(trajectory).items())
    if not folds:
        return ""
    return (
        '<section aria-labelledby="stages-title">\n<h2 id="stages-title">How it was found</h2>\n'
        f'<div class="stages">\n{folds}\n</div>\n</section>'
    )


def _stage(stage: Stage, text: str) -> str:
    document = parse(printable(text))
    blocks = list(_leaves(document.blocks))
    shown = "".join(_block(document, block) for block in blocks)
    searches = sum(block.tag == "call_tool" for block in blocks)
    count = f"<small>{searches} search{'' if searches == 1 else 'es'}</small>" if searches else ""
    body = shown or f'<div class="block"><p dir="auto">{escape(_cut(document.text))}</p></div>'
    return f"<details><summary>{_TITLES[stage]}{count}</summary>{body}</details>"


def _leaves(blocks: tuple[Block, ...]) -> Iterator[Block]:
    """The blocks that hold text: a plan and a review are only their parts."""
    for block in blocks:
        if block.tag in ("structured_plan", "review"):
            yield from _leaves(block.children)
        else:
            yield block


def _block(document: ScaffoldDocument, block: Block) -> str:
    text = f'<p dir="auto">{escape(_cut(document.inner(block).strip()))}</p>'
    label = _LABELS.get(block.tag, block.tag)
    if block.tag == "tool_output":
        ids = (one_line(b.attributes.get("id", ""), 12) for b in block.children)
        named = ", ".join(filter(None, ids)) or "nothing"
        text = f"<details><summary>{escape(named)}</summary>{text}</details>"
    kind = " search" if block.tag == "call_tool" else ""
    return f'<div class="block{kind}"><h3>{label}</h3>{text}</div>'


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else text[:SHOWN] + "\u2026"


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
    items = "\n".join(_page_source(answer, source) for source in answer.sources)
    return (
        '<section aria-labelledby="sources-title">\n<h2 id="sources-title">Sources</h2>\n'
        f'<ol class="sources">\n{items}\n</ol>\n</section>'
    )


def _page_source(answer: CitedAnswer, source: Source) -> str:
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
