"""What checking the citations came to, in a reader's words and for programs.

The counts are of the pairs of claim and source as they were written; a repair comes after them.
"""

from collections import Counter
from html import escape
from typing import Any

from agent.reports.cited import CitedAnswer
from agent.reports.printable import one_line
from memory.schema import CitationSupport, Trajectory, Verification

_SAID: dict[CitationSupport, str] = {
    "supported": "supported",
    "partial": "in part",
    "unsupported": "not supported",
    "unchecked": "not checked",
}


def checked(trajectory: Trajectory) -> str:
    """Who checked the citations and with what result, as a short phrase; "" if none was."""
    found = trajectory.verification
    if found is None or not found.checks:
        return ""
    return f"citations checked by {one_line(found.checker)}: {check_counts(trajectory)}"


def check_counts(trajectory: Trajectory) -> str:
    """`3 supported, 1 not supported`; "" where nobody checked."""
    found = trajectory.verification
    if found is None:
        return ""
    counts = Counter(check.verdict for check in found.checks)
    named = [f"{counts[name]} {_SAID[name]}" for name in _SAID if counts[name]]
    return ", ".join(named) or "none"


def doubts(trajectory: Trajectory, answer: CitedAnswer) -> list[str]:
    """Sentences for the reader: claims that stand in doubt, what repair did, who had to check."""
    found = trajectory.verification
    if found is None:
        return []
    bad = len({c.claim for c in answer.citations if c.verdict == "unsupported"})
    said = [f"Marked below: {_claims(bad)} not supported by a cited source."] if bad else []
    note = [f"{one_line(found.note)}."] if found.note else []
    return [*said, *_repaired(found), *note]


def _repaired(found: Verification) -> list[str]:
    became = [repair.became for repair in found.repairs]
    rewritten, removed = sum(map(bool, became)), became.count("")
    return [
        f"{_claims(count)} not supported by any cited source, and {what}."
        for count, what in ((rewritten, "rewritten from the source"), (removed, "removed"))
        if count
    ]


def _claims(count: int) -> str:
    return "1 claim was" if count == 1 else f"{count} claims were"


def verified_json(trajectory: Trajectory) -> dict[str, Any] | None:
    """Everything that checking came to; None where nobody checked."""
    found = trajectory.verification
    return found.model_dump(mode="json") if found else None


def removed_section(trajectory: Trajectory) -> str:
    """The claims that repair took out or rewrote, for the page; "" where there are none."""
    repairs = trajectory.verification.repairs if trajectory.verification else ()
    if not repairs:
        return ""
    items = "\n".join(f'<li dir="auto">{escape(one_line(r.claim))}</li>' for r in repairs)
    return (
        '<section aria-labelledby="removed-title">\n<h2 id="removed-title">Claims that no source '
        f'holds, as they were written</h2>\n<ul class="removed">\n{items}\n</ul>\n</section>'
    )
