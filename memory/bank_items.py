"""A bank's items put together: the reflection, its standing, and who had a hand in it."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime

from memory.bank_events import Decided, Put, event_of
from memory.bank_journal import BankJournal
from memory.bank_rules import Version
from memory.items import BankItem
from memory.reflections import Reflection

Uses = Mapping[str, tuple[int, float | None]]
"""id -> how many runs were given it, and the mean score of those that were scored"""


def item_of(version: Version, put: Put, journal: BankJournal, uses: Uses) -> BankItem:
    release = _release(journal, version)
    recalled, mean_score = uses.get(version.id, (0, None))
    return BankItem(
        reflection=put.reflection,
        since=version.since,
        until=version.until,
        pinned=version.pinned,
        disabled=version.disabled,
        released=version.released,
        released_by=release.by if release else "",
        released_at=release.at if release else None,
        edited_by=put.by,
        recalled=recalled,
        mean_score=mean_score,
    )


def edited(old: Reflection, rubrics: str, takeaways: str) -> Reflection:
    """A version in a person's words; the same words in its place always have the same id."""
    text = "\0".join((old.id, rubrics, takeaways))
    return old.model_copy(
        update={
            "id": hashlib.sha256(text.encode()).hexdigest()[:12],
            "rubrics": rubrics,
            "takeaways": takeaways,
            "origin": "hand",
            "replaces": old.id,
            "flags": (),
            "written_at": datetime.now(UTC),
        }
    )


def _release(journal: BankJournal, version: Version) -> Decided | None:
    """The line that let it out of quarantine, where there is one."""
    if not version.let_out:
        return None
    try:
        event = event_of(journal.line_at(version.let_out))
    except ValueError:
        return None
    return event if isinstance(event, Decided) and event.id == version.id else None
