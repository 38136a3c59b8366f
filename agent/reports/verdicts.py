"""What verification found, put on the pieces of an answer: verdicts, and in repair mode changes.

Repair takes marks off a claim that another of its sources holds, puts in the claim as it was
rewritten, and removes what could not be rewritten: a whole line goes, and within a line a note
is left, so that no sentence closes up over a gap. An exact answer is marked and never changed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from agent.reports.cited import REMOVED
from agent.reports.printable import one_line
from memory.schema import AnswerFormat, CitationCheck, Trajectory

Written = tuple[str, list[str] | None]
"""a piece of text and its known ids; None: plain text; empty: it had ids, all unknown"""

_MARKER = re.compile(r"\s*(?:(?:[-*+\u2022]|\d+[.)]|#{1,6}|>)\s+)*")
_LINE_END = re.compile(r"[ \t.]*(?:\n|\Z)")
_LINE_START = re.compile(r"(?:^|\n)[ \t]*(?:(?:[-*+\u2022]|\d+[.)]|>)[ \t]+)*$")


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The checks of an answer, by source and claim, and what repair made of its claims."""

    checks: Mapping[tuple[str, str], CitationCheck] = field(default_factory=dict)
    repairs: Mapping[str, str] = field(default_factory=dict)
    repairing: bool = False

    @classmethod
    def of_run(cls, trajectory: Trajectory) -> "Verdicts":
        """Those of a run; none where nobody checked it."""
        found = trajectory.verification
        if found is None:
            return cls()
        repairing = found.mode == "repair" and trajectory.answer_format is not AnswerFormat.EXACT
        return cls(
            {(check.source, check.claim): check for check in found.checks},
            {repair.claim: repair.became for repair in found.repairs} if repairing else {},
            repairing,
        )

    def of(self, source: str, claim: str) -> CitationCheck:
        """The check of a claim on a source; `unchecked` where there was none."""
        unchecked = CitationCheck(source=source, claim=claim, verdict="unchecked")
        return self.checks.get((source, claim), unchecked)

    def repaired(self, pieces: Iterable[Written]) -> Iterator[Written]:
        """The pieces as they are shown."""
        if not self.repairing:
            yield from pieces
            return
        written, shown = list(pieces), list[Written]()
        for place, (text, ids) in enumerate(written):
            piece = self._repaired(text, ids) if ids else (text, ids)
            after = written[place + 1][0] if place + 1 < len(written) else ""
            _put(shown, piece, after)
        yield from shown

    def _repaired(self, text: str, ids: list[str]) -> Written | None:
        """A cited claim with the sources that hold it, or rewritten; None: it is removed."""
        claim = claim_of(text)
        if (became := self.repairs.get(claim)) is not None:
            return (text[: end_of_marker(text)] + became, ids) if became else None
        held = [i for i in ids if self.of(i, claim).verdict != "unsupported"]
        return text, held or ids


def claim_of(text: str) -> str:
    """The claim of a cited piece: on one line, without a list mark before it."""
    return one_line(text[end_of_marker(text) :])


def end_of_marker(text: str) -> int:
    """Where a list mark, heading or quote mark at the beginning ends."""
    match = _MARKER.match(text)
    return match.end() if match and match.end() < len(text) else 0


def _put(shown: list[Written], piece: Written | None, after: str) -> None:
    """Add a piece; one that was removed takes its line with it if it was all that stood there."""
    if piece is not None:
        shown.append(piece)
        return
    before, ids = shown.pop() if shown else ("", None)
    alone = ids is None and _LINE_START.search(before) and _LINE_END.match(after)
    shown.append((_LINE_START.sub("", before) if alone else before, ids))
    shown.append(("" if alone else REMOVED, None))
