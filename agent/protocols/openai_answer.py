"""A run's report as the content of a message, with its sources where clients look for them.

The content is Markdown: what a reader has to know first, the answer with its marks, the sources.
`citations` has an address for each number of a mark, in order; `annotations` say where in the
content each mark stands.
"""

import re
from dataclasses import dataclass
from typing import Any

from agent.reports.citations import cited_answer
from agent.reports.cited import Cited, CitedAnswer, Uncited, bracketed
from agent.reports.markdown_text import link, literal, prose
from agent.reports.printable import one_line
from agent.reports.report import NO_ANSWER, marked_in, notes
from memory.schema import NO_USAGE, Status, Trajectory, Usage

_PLACE = re.compile("\ufdd2(\\d+)\ufdd3")
"""where a mark will stand: noncharacters, which no text keeps"""


@dataclass(frozen=True, slots=True)
class Annotation:
    """A mark in the content: characters from `start` to before `end`."""

    start: int
    end: int
    title: str
    url: str

    def told(self) -> dict[str, Any]:
        return {
            "start_index": self.start,
            "end_index": self.end,
            "title": self.title,
            "url": self.url,
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """What a run came to, for a client."""

    run: str
    thread: str | None
    """its conversation"""
    status: str
    reason: str
    content: str = ""
    annotations: tuple[Annotation, ...] = ()
    citations: tuple[str, ...] = ()
    """addresses of the sources, in the order of their numbers from 1"""
    usage: Usage = NO_USAGE

    @property
    def whole(self) -> bool:
        """Whether nothing cut it short."""
        return self.status in (Status.FINISHED, Status.NO_EVIDENCE)

    def told(self) -> dict[str, Any]:
        """What is of no other field: which run it was, and how it came out."""
        told = {"run": self.run, "thread": self.thread, "status": self.status}
        return {**told, "reason": self.reason}


def answer_of(trajectory: Trajectory, thread: str | None) -> Answer:
    """The answer of a run that ended, well or early."""
    cited = cited_answer(trajectory)
    content, annotations = _content(trajectory, cited)
    return Answer(
        run=trajectory.thread,
        thread=thread,
        status=trajectory.status.value,
        reason=one_line(trajectory.reason),
        content=content,
        annotations=annotations,
        citations=tuple(one_line(source.location) for source in cited.sources),
        usage=trajectory.usage,
    )


def _content(trajectory: Trajectory, cited: CitedAnswer) -> tuple[str, tuple[Annotation, ...]]:
    pieces: list[Cited | Uncited] = []

    def hold(piece: Cited | Uncited) -> str:
        pieces.append(piece)
        return f"\ufdd2{len(pieces) - 1}\ufdd3"

    body = marked_in(cited, prose, hold) if cited.pieces else NO_ANSWER
    held = "\n\n".join([*map(literal, notes(trajectory, cited)), body])
    content, annotations, end = "", list[Annotation](), 0
    for place in _PLACE.finditer(held):
        content += held[end : place.start()]
        piece, end = pieces[int(place[1])], place.end()
        mark = bracketed(piece)
        if isinstance(piece, Cited):
            span = len(content), len(content) + len(mark)
            annotations += [
                Annotation(*span, one_line(c.source.title), one_line(c.source.location))
                for c in piece.citations
            ]
        content += mark
    parts = [content + held[end:], *_sources(cited), prose(cited.bare)]
    return "\n\n".join(filter(None, parts)), tuple(annotations)


def _sources(cited: CitedAnswer) -> list[str]:
    lines = [
        f"{number}. {link(source.title, source.location)} ({literal(one_line(source.location))})"
        for number, source in enumerate(cited.sources, start=1)
    ]
    return ["**Sources**", "\n".join(lines)] if lines else []
