"""A trajectory as a report: Markdown for people, one JSON object for programs, files of each.

The source list is rendered here from what was fetched, never from what a model wrote; only
sources that the answer cites are in it, each with the sentence its claims stand on. Titles,
paths, quotes and the answer are untrusted text and are escaped for where they go.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent.reports.citations import cited_answer
from agent.reports.cited import Citation, Cited, CitedAnswer, Mark, Uncited, bracketed
from agent.reports.conflicts import told
from agent.reports.markdown_text import link, literal, prose
from agent.reports.printable import one_line
from agent.reports.recalled import TITLE, recalled_lines
from agent.reports.verified import checked, doubts, verified_json
from memory.errors import SettingsError, StoreError
from memory.runs import write_atomically
from memory.schema import Source, Stage, Status, Trajectory

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
            from agent.reports.report_page import page

            return page(trajectory)
        case ".pdf":
            from agent.reports.pdf import pdf

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
        from agent.reports.pdf import check_pdf

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
