"""The rules of a bank: which reflection is its word on a question after each event.

At most one version of a question stands. A new one replaces the one that stood, unless it is
in quarantine, came only for the history, or meets one that a person pinned. An edited version
takes the place of the one that was edited, and what was decided about it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from memory.bank_events import Blank, Decided, Put
from memory.items import NEVER


@dataclass(slots=True)
class Version:
    """One reflection of a question as the events so far have left it."""

    since: int
    """the generation of its put"""
    id: str
    key: str
    offset: int
    """of its line in the journal, in bytes"""
    until: int = NEVER
    flagged: bool = False
    pinned: bool = False
    disabled: bool = False
    released: bool = False
    removed: bool = False
    let_out: int = 0
    """offset in the journal of the line that released it, in bytes; 0: nobody did"""

    @property
    def quarantined(self) -> bool:
        return self.flagged and not self.released

    @property
    def stands(self) -> bool:
        """It is what the bank holds on its question, be it disabled or not."""
        return self.until == NEVER and not self.removed and not self.quarantined

    @property
    def live(self) -> bool:
        return self.stands and not self.disabled


def standing(versions: Sequence[Version]) -> Version | None:
    return next((version for version in versions if version.stands), None)


def put(event: Put | Blank, since: int, offset: int, versions: Sequence[Version]) -> Version:
    """The new version among the others of its question, which are changed where it says so."""
    new = Version(since, event.id, event.key, offset, flagged=event.flagged)
    edited = next((v for v in versions if event.replaces and v.id == event.replaces), None)
    held = standing(versions)
    if edited is not None and edited.until == NEVER:
        edited.until = since
        new.pinned, new.disabled = edited.pinned, edited.disabled
    if event.flagged:
        return new
    if event.history or (held is not None and held is not edited and held.pinned):
        new.until = since
    elif held is not None:
        held.until = since
    return new


def decide(event: Decided, at: int, version: Version, versions: Sequence[Version]) -> None:
    """Change the version that the event is about, and what follows from it for the others."""
    if event.event == "pin":
        version.pinned = event.on
    elif event.event == "disable":
        version.disabled = event.on
    elif event.event == "remove":
        version.removed = True
        version.until = min(version.until, at)
    elif version.quarantined:
        _release(at, version, standing(versions))


def _release(at: int, version: Version, held: Version | None) -> None:
    version.released = True
    if version.until != NEVER or held is None:
        return
    newer = held.pinned or held.since > version.since
    (version if newer else held).until = at
