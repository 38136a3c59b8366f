"""What changed between two reports on one question.

A model words the same fact anew each time, so that words are not compared: a claim is in the other
report if that has one with the same numbers and a source in common, or has it in parts, or as one.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from rubricem.agent.reports.cited import Cited, cited_answer
from rubricem.agent.reports.report import literal, web_address
from rubricem.agent.reports.rules import CELLS, numbers
from rubricem.memory.errors import StoreError
from rubricem.memory.runs import value_in
from rubricem.memory.schema import Status, Trajectory, Value
from rubricem.memory.text import one_line

Claims = Mapping[str, tuple[frozenset[str], tuple[str, ...]]]
"""each with its numbers, and the places of its sources"""


class ReportChange(Value):
    """A claim, or a source's place, that only one of two reports has."""

    text: str
    places: tuple[str, ...] = ()
    """of a claim: where its sources are"""
    gone: bool = False
    """whether only the earlier one has it"""


class Delivered(Value):
    """What was told of the report of a watched question."""

    since: str | None = None
    """the run that it was compared with; None: with none"""
    changes: tuple[ReportChange, ...] = ()
    not_compared: str = ""
    """why it was not compared with an earlier one that there is"""


FILE = "changes.json"
"""in the run's folder, once it was delivered"""
TITLES = {
    (True, False): "New", (True, True): "No longer said",
    (False, False): "New sources", (False, True): "Sources no longer cited",
}  # fmt: skip
"""by whether it is a claim, and whether it is gone"""


def told_changes(folder: Path) -> Delivered | None:
    """What was delivered of a watched run; None of others, of a first one, and if it is damaged."""
    told = None
    with suppress(StoreError):
        told = value_in(folder / FILE, Delivered)
    return told if told and (told.since or told.not_compared) else None


def why_not_compared(trajectory: Trajectory) -> str:
    """Why the report says nothing of what is gone or new: research was cut short; "": it does."""
    if trajectory.missed:
        return f"a search failed: {one_line(trajectory.missed[0])}"
    early = (Status.PARTIAL, Status.FAILED)
    cut = [part.reason for part in trajectory.investigations if part.status in early]
    # Doubt about an answer is no lack of research.
    doubted = trajectory.ended_by in ("uncertain", "not_found", "unsupported")
    if trajectory.status in early and not doubted:
        cut.append(trajectory.reason)
    return one_line(f"it ended early: {cut[-1]}") if cut else ""


def changes_between(before: Trajectory, now: Trajectory) -> tuple[ReportChange, ...]:
    """Nothing is gone where the later report is partial: it may only not have found it."""
    old, new = _claims(before), _claims(now)
    gone = () if now.status is Status.PARTIAL else _only_in(old, new, gone=True)
    return *_only_in(new, old), *gone


def changes_shown(changes: Sequence[ReportChange]) -> str:
    """A heading and a list in Markdown for each kind that there is."""
    kinds: dict[str, list[str]] = {}
    for each in changes:
        lines = kinds.setdefault(TITLES[bool(each.places), each.gone], [])
        at = f" ({', '.join(map(_shown, each.places))})" if each.places else ""
        lines.append(f"- {_shown(each.text)}{at}")
    parts = ("\n".join([f"### {title}", "", *lines]) for title, lines in kinds.items())
    return "\n\n".join(parts) or "Nothing changed."


def _claims(trajectory: Trajectory) -> Claims:
    """The claims that no check refuted, the cell of a table with its row and column."""
    found: dict[str, tuple[frozenset[str], tuple[str, ...]]] = {}
    for piece in cited_answer(trajectory).pieces:
        if isinstance(piece, Cited):
            where = piece.citations[0].context
            text = one_line(where if CELLS in where else piece.text)
            values, places = found.get(text, (numbers(piece.text), ()))
            held = [c.source.location for c in piece.citations if c.verdict != "unsupported"]
            found[text] = values, tuple(dict.fromkeys((*places, *held)))
    return {text: each for text, each in found.items() if each[1]}


def _only_in(claims: Claims, others: Claims, gone: bool = False) -> Iterator[ReportChange]:
    for text, (values, places) in claims.items():
        said = [held for held, at in others.values() if {*at} & {*places}]
        alike = [held for held in said if (held <= values or values <= held) and held]
        if not (values <= frozenset().union(*alike) if values else frozenset() in said):
            yield ReportChange(text=text, places=places, gone=gone)
    known = {place for _, places in others.values() for place in places}
    for place in dict.fromkeys(chain(*(places for _, places in claims.values()))):
        if place not in known:
            yield ReportChange(text=place, gone=gone)


def _shown(text: str) -> str:
    return f"<{address}>" if (address := web_address(text)) else literal(text)
