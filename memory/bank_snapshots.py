"""Copies of a bank, for a training checkpoint or a backup, and the way back from one.

    snapshot.json    the bank's id, its generation, the journal's length in bytes
    journal.jsonl    the events up to that generation
    uses.jsonl       the uses by then

The catalogue and the index are derived and are not copied. What a person removed since a snapshot
stays removed when the bank goes back to it; the snapshot itself still has its text.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from memory.bank_events import Decided, Event, Put, event_of, line_of
from memory.bank_journal import BankJournal
from memory.bank_store import BankStore, blanked
from memory.bank_uses import BankUses
from memory.errors import SettingsError
from memory.runs import writable, write_atomically
from memory.values import Value

_MARKER, _BEGUN = "snapshot.json", "snapshot.begun"


class Snapshot(Value):
    bank: str
    generation: int
    journal_bytes: int


def snapshot(store: BankStore, folder: Path) -> int:
    """Write the bank as it stands into a folder; returns the generation.

    Raises SettingsError for a folder with a journal that is no snapshot's.
    """
    held = Snapshot(bank=store.identity(), generation=0, journal_bytes=0)
    journal, uses = _files(folder)
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _claim(folder)
        with store.lock, store.journal.locked():
            generation, size = store.catalogue.position()
            journal.replace(line for _, line in store.journal.lines())
            uses.replace(line for _, line in store.uses.file.lines())
    held = held.model_copy(update={"generation": generation, "journal_bytes": size})
    write_atomically(folder / _MARKER, held.model_dump_json())
    (folder / _BEGUN).unlink()
    return generation


def restore(store: BankStore, folder: Path, foreign: bool = False) -> int:
    """Go back to a snapshot; returns the generation, which counts what is removed again.

    An empty bank takes the snapshot's id; another bank's snapshot is refused unless `foreign`.
    """
    held = _read(folder)
    if store.generation():
        _check_bank(store, held, foreign)
    else:
        write_atomically(store.folder / "id", held.bank)
    journal, uses = _files(folder)
    with store.lock, store.journal.locked():
        lines = _without(journal, store.catalogue.removed())
        # The catalogue goes first: a kill between the two leaves none that does not fit.
        store.catalogue.drop()
        store.journal.replace(lines)
        with store.uses.file.locked():
            store.uses.file.replace(line for _, line in uses.lines())
        return store.generation()


def _claim(folder: Path) -> None:
    """Begin a copy: it has no marker until it is whole, so a kill leaves none that looks so."""
    ours = (folder / _MARKER).exists() or (folder / _BEGUN).exists()
    if not ours and _files(folder)[0].path.exists():
        raise SettingsError(
            f"{folder} holds a journal that is not a snapshot's.", "Name an empty folder."
        )
    (folder / _BEGUN).touch()
    (folder / _MARKER).unlink(missing_ok=True)


def _without(journal: BankJournal, removed: Mapping[str, str]) -> Iterator[bytes]:
    """The journal's lines, with the text of these ids removed; each has the key of its words."""
    untold = set(removed)
    for number, (_, line) in enumerate(journal.lines(), start=1):
        event = _event(journal, number, line)
        if isinstance(event, Decided) and event.event == "remove":
            untold.discard(event.id)
        yield blanked(line) if isinstance(event, Put) and event.id in removed else line
    # Also of those that this snapshot does not know: a later one may hold them.
    for identifier in sorted(untold):
        yield line_of(Decided(event="remove", id=identifier, words=removed[identifier]))


def _event(journal: BankJournal, number: int, line: bytes) -> Event:
    try:
        return event_of(line)
    except ValueError as error:
        raise SettingsError(
            f"Line {number} of the snapshot's journal {journal.path} is damaged.",
            "Name the folder of another snapshot; the bank was left as it is.",
        ) from error


def _check_bank(store: BankStore, held: Snapshot, foreign: bool) -> None:
    if not foreign and held.bank != store.identity():
        raise SettingsError(
            f"The snapshot is of another bank ({held.bank[:8]}).",
            "Say that it may take this bank's place, or restore it into an empty data directory.",
        )


def _read(folder: Path) -> Snapshot:
    """What a whole snapshot says of itself."""
    journal, uses = _files(folder)
    try:
        held = Snapshot.model_validate_json((folder / _MARKER).read_bytes())
        state = journal.state()
        if state is None or state.size != held.journal_bytes:
            raise ValueError("its journal is not whole")
        BankUses(uses.path).count()
    except (OSError, ValidationError, ValueError) as error:
        raise SettingsError(
            f"There is no whole snapshot of a bank in {folder}.", "Name the folder of another one."
        ) from error
    return held


def _files(folder: Path) -> tuple[BankJournal, BankJournal]:
    return BankJournal(folder / "journal.jsonl"), BankJournal(folder / "uses.jsonl")
