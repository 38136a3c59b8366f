"""The bank on disk, blocking: its journal, its catalogue and its uses as one.

It is used from worker threads, which take turns; other processes may use the folder at once.

The uses record which runs were given which items, and how these runs were scored:

    {"trajectory": ..., "ids": [...], "question": sha256}    items were put before its question
    {"trajectory": ..., "mean": 0.7}                         its mean stage score, in [0, 1]
    {"trajectory": ..., "item": ..., "use": "pointer",       what an episode did in it
     "shown": 2, "used": 1, "failed": 0}
                                                             or, by "lesson", which of a
                                                             reflection's lessons held up

They are not events of the bank, so that recalling makes no generations. Several lines about one run
count as one use, and its last score counts: writing needs no look-up. One fsynced line each.

A snapshot, for a training checkpoint or a backup, is a folder with `snapshot.json` (the bank's id,
its generation, the journal's length in bytes) and copies of both journals; derived files are not
copied. What a person has removed since stays removed when the bank is restored from a snapshot; the
snapshot itself still has its text.
"""

import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from statistics import fmean

from pydantic import TypeAdapter, ValidationError

from rubricem.memory.bank.catalogue import NOW, BankQuestion, Catalogue, Version, plain, standing
from rubricem.memory.bank.events import (
    NEVER,
    BankItem,
    BankJournal,
    Blank,
    Decided,
    Decision,
    EpisodeMatch,
    Event,
    Put,
    Record,
    Released,
    State,
    UseCount,
    event_of,
    line_of,
    question_key,
    words_key,
)
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.runs import writable, write_atomically
from rubricem.memory.schema import Episode, ItemKind, Value
from rubricem.memory.text import digest_of


class Used(Value):
    trajectory: str
    ids: tuple[str, ...]
    question: str
    """its key: no text is kept here that would have to be removed"""


class ScoredUse(Value):
    trajectory: str
    mean: float


class ItemUse(Value):
    """What one use of an item came to in one run; see `UseCount`."""

    trajectory: str
    item: str
    use: str
    shown: int = 0
    used: int = 0
    failed: int = 0


_LINE: TypeAdapter[Used | ScoredUse | ItemUse] = TypeAdapter(Used | ScoredUse | ItemUse)
FAILING = 5
"""runs in a row that an episode was of no use to, after which it is disabled"""


class BankUses:
    """The uses of one bank, read on as the file grows. Blocking; threads take turns."""

    def __init__(self, path: Path) -> None:
        self.file = BankJournal(path)
        self._lock = threading.RLock()
        self._state: State | None = None
        self._offset = 0
        self._lines = 0
        self._ids: dict[str, tuple[str, ...]] = {}
        self._means: dict[str, float] = {}
        self._uses: dict[str, dict[tuple[str, str], ItemUse]] = {}

    def note_use(self, trajectory: str, ids: Sequence[str], question: str) -> None:
        key = question_key(question)
        self._append(Used(trajectory=trajectory, ids=tuple(ids), question=key))

    def note_score(self, trajectory: str, mean: float) -> None:
        self._append(ScoredUse(trajectory=trajectory, mean=mean))

    def note(self, uses: Sequence[ItemUse]) -> None:
        if uses:
            self._append(*uses)

    def of_item(self, identifier: str) -> tuple[UseCount, ...]:
        """What came of an item, by use; of a run told of twice the last word counts."""
        with self._lock:
            self._read_on()
            told = list(self._uses.get(identifier, {}).values())
        return tuple(
            UseCount(
                use=use,
                runs=sum(one.use == use for one in told),
                **{
                    field: sum(getattr(one, field) for one in told if one.use == use)
                    for field in ("shown", "used", "failed")
                },
            )
            for use in dict.fromkeys(one.use for one in told)
        )

    def of_use(self, use: str) -> tuple[int, int]:
        """What all items came to by one use, in all runs: shown, and of use."""
        with self._lock:
            self._read_on()
            told = [u for each in self._uses.values() for u in each.values() if u.use == use]
        return sum(one.shown for one in told), sum(one.used for one in told)

    def fails(self, identifier: str) -> bool:
        """Whether the last runs that were offered its passages had no use for any."""
        with self._lock:
            self._read_on()
            told = [u for u in self._uses.get(identifier, {}).values() if u.use == "pointer"]
        return len(told) >= FAILING and not any(one.used for one in told[-FAILING:])

    def count(self) -> int:
        """Runs that were given something."""
        with self._lock:
            self._read_on()
            return len(self._ids)

    def by_item(self) -> dict[str, tuple[int, float | None]]:
        """Id -> how many runs were given it, and the mean score of those that were scored."""
        means: defaultdict[str, list[float | None]] = defaultdict(list)
        with self._lock:
            self._read_on()
            for trajectory, ids in self._ids.items():
                for identifier in ids:
                    means[identifier].append(self._means.get(trajectory))
        known = {i: [mean for mean in given if mean is not None] for i, given in means.items()}
        return {i: (len(means[i]), fmean(k) if k else None) for i, k in known.items()}

    def _append(self, *lines: Value) -> None:
        block = b"".join(line.model_dump_json().encode() + b"\n" for line in lines)
        with self.file.hold() as descriptor:
            self.file.append(descriptor, block)

    def _read_on(self) -> None:
        state = self.file.state()
        if state is None or self._state is None or state[:2] != self._state[:2]:
            self._offset = self._lines = 0
            self._ids, self._means, self._uses = {}, {}, {}
        self._state = state
        for offset, line in self.file.lines(self._offset):
            self._take(line)
            self._offset, self._lines = offset + len(line), self._lines + 1

    def _take(self, line: bytes) -> None:
        try:
            told = _LINE.validate_json(line)
        except ValidationError as error:
            raise StoreError(
                f"line {self._lines + 1} of the bank's uses {self.file.path} is damaged",
                "Remove that line, or move the file away to count from nought.",
            ) from error
        if isinstance(told, Used):
            self._ids.setdefault(told.trajectory, told.ids)
        elif isinstance(told, ItemUse):
            self._uses.setdefault(told.item, {})[told.trajectory, told.use] = told
        else:
            self._means[told.trajectory] = told.mean


_MARKER = "snapshot.json"


class Snapshot(Value):
    """What a folder with copies of both journals says of itself."""

    bank: str
    generation: int
    journal_bytes: int


class BankStore:
    """Everything of a bank but its embeddings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = BankJournal(folder / "journal.jsonl")
        self.uses = BankUses(folder / "uses.jsonl")
        self.catalogue = Catalogue(folder / "catalogue.db", self.journal)
        self.lock = self.catalogue.lock

    def identity(self) -> str:
        """The bank's own id, which it gets when it is first asked for."""
        path = self.folder / "id"
        with self.lock, self.journal.hold(), writable(path):
            if not path.exists():
                write_atomically(path, uuid.uuid4().hex)
            return path.read_text(encoding="ascii").strip()

    def put(self, record: Record) -> bool:
        """A reflection takes the place of the last; an episode only of one that found no more."""
        with self.lock, self.journal.hold() as descriptor:
            if self.catalogue.by_id(record.id) is not None:
                return False
            if record.origin == "run" and self.catalogue.is_barred(words_key(record)):
                return False
            found_less = False
            if isinstance(record, Episode):
                held = self.within(record.question, NOW, "episode")
                found_less = held is not None and held.score > record.score
            self.journal.append(descriptor, line_of(Put.of(record, history=found_less)))
        return True

    def edit(self, identifier: str, rubrics: str, takeaways: str, by: str = "") -> BankItem:
        """Put a version that a person wrote in the place of the one that is current."""
        with self.lock, self.journal.hold() as descriptor:
            old = self.read(self._current(identifier))
            assert old is not None, "nothing is removed while the lock is held"
            if isinstance(old, Episode):
                raise SettingsError(
                    f"The episode {identifier} is a record of what a run did, and is not reworded.",
                    f"Disable or remove it: rubricem bank disable {identifier}",
                )
            # The same words in its place always have the same id.
            text = "\0".join((old.id, rubrics, takeaways))
            new = old.model_copy(
                update={
                    "id": digest_of(text, 12),
                    "rubrics": rubrics,
                    "takeaways": takeaways,
                    "origin": "hand",
                    "replaces": old.id,
                    "rests_on": (),
                    "flags": (),
                    "written_at": datetime.now(UTC),
                }
            )
            if self.catalogue.by_id(new.id) is None:
                self.journal.append(descriptor, line_of(Put.of(new, by=by)))
        return self.item(new.id)

    def decide(
        self, decision: Decision, identifier: str, on: bool = True, by: str = "", note: str = ""
    ) -> None:
        """Write down what a person decided, or code with a note; nothing where it is so already."""
        with self.lock, self.journal.hold() as descriptor:
            version = self._current(identifier)
            if decision == "pin" and version.quarantined:
                raise SettingsError(
                    f"The {version.kind} {identifier} is in quarantine.",
                    f"Read it, then: rubricem bank release {identifier}",
                )
            if decision == "release":
                is_so = not version.quarantined
            else:
                is_so = on == (version.pinned if decision == "pin" else version.disabled)
            if is_so:
                return
            event = Decided(event=decision, id=identifier, on=on, note=note)
            if decision == "release":
                told = {"words": self._words(version), "by": by, "at": datetime.now(UTC)}
                event = event.model_copy(update=told)
            self.journal.append(descriptor, line_of(event))

    def release(self, identifier: str, by: str = "") -> Released:
        """Let it out of quarantine, and say what stands on its question then."""
        with self.lock:
            self.decide("release", identifier, by=by)
            version = self.find_version(identifier)
            held = standing(self.catalogue.by_key(version.key, version.kind))
            other = held if held is not None and held.id != identifier else None
            return Released(self.item(identifier), self.item(other.id) if other else None)

    def remove(self, identifier: str) -> None:
        with self.lock, self.journal.hold():
            version = self.find_version(identifier)
            lines = (
                Blank.of_line(line) if offset == version.offset else line
                for offset, line in self.journal.lines()
            )
            words = self._words(version)
            removal = line_of(Decided(event="remove", id=identifier, words=words))
            self.journal.replace(chain(lines, [removal]))

    def note_uses(self, uses: Sequence[ItemUse]) -> None:
        """Count what episodes did in a run; one that keeps failing is disabled, unless pinned."""
        self.uses.note(uses)
        for identifier in {one.item for one in uses}:
            version = self.catalogue.by_id(identifier)
            live = version is not None and version.live and not version.pinned
            if live and self.uses.fails(identifier):
                note = f"the last {FAILING} runs that were led to its sources had no use for them"
                self.decide("disable", identifier, note=note)

    def sharing(self, text: str, generation: int, besides: str, most: int) -> list[EpisodeMatch]:
        """Live episodes that have a name of the text, those with the rarest words first."""
        words, found = f" {plain(text)} ", list[EpisodeMatch]()
        for version in self.catalogue.sharing(text, generation, besides, 4 * most):
            episode = self.read(version)
            names = episode.names if isinstance(episode, Episode) else ()
            shared = tuple(name for name in names if f" {plain(name)} " in words)
            if isinstance(episode, Episode) and shared:
                found.append(EpisodeMatch(episode, shared=shared))
        return found[:most]

    def episodes_of_form(
        self, question: str, generation: int, besides: str, most: int
    ) -> list[EpisodeMatch]:
        """Live episodes on questions of the same form; those whose plans served best come first."""
        versions = self.catalogue.versions_of_form(question, generation, besides, most)
        episodes = [e for e in map(self.read, versions) if isinstance(e, Episode)]
        episodes.sort(key=lambda episode: -self.sinks(episode.id, "plan"))
        return [EpisodeMatch(episode, formed=True) for episode in episodes]

    def sinks(self, identifier: str, by: str = "pointer") -> float:
        """How useful an episode has been by a use, in (0, 1]; 1: nothing is known."""
        told = [one for one in self.uses.of_item(identifier) if one.use == by]
        return (2 * told[0].used + 1) / (2 * told[0].shown + 1) if told else 1.0

    def live_items(
        self, generation: int, every: bool, kind: ItemKind | None = None
    ) -> Iterator[BankItem]:
        """The live items of each question at a generation, or every item there is."""
        catalogue = self.catalogue
        return self.items(
            catalogue.everything(kind) if every else catalogue.live_versions(generation, kind)
        )

    def within(
        self, question: str, generation: int, kind: ItemKind = "reflection"
    ) -> Record | None:
        with self.lock:
            version = self.catalogue.live_version(question_key(question), generation, kind)
            return self.read(version) if version else None

    def item(self, identifier: str) -> BankItem:
        with self.lock:
            return next(self.items([self.find_version(identifier)]))

    def items(self, versions: Sequence[Version]) -> Iterator[BankItem]:
        """Read from the journal one by one; what is removed in the meantime is left out."""
        uses = self.uses.by_item()
        for version in versions:
            if (put := self._put(version)) is None:
                continue
            release = self._event_at(version.let_out, version.id) if version.let_out else None
            by, at = (release.by, release.at) if isinstance(release, Decided) else ("", None)
            decided = self._event_at(version.decided, version.id) if version.decided else None
            recalled, mean_score = uses.get(version.id, (0, None))
            yield BankItem(
                record=put.record,
                since=version.since,
                until=version.until,
                pinned=version.pinned,
                disabled=version.disabled,
                released=version.released,
                released_by=by,
                released_at=at,
                edited_by=put.by,
                recalled=recalled,
                mean_score=mean_score,
                counts=self.uses.of_item(version.id),
                note=decided.note if isinstance(decided, Decided) else "",
            )

    def read(self, version: Version) -> Record | None:
        """None where its text was removed in the meantime."""
        put = self._put(version)
        return put.record if put else None

    def question(self, question: BankQuestion) -> str | None:
        """The words of a question; None where they were removed in the meantime."""
        versions = self.catalogue.by_key(question.key)
        read = next((r for r in map(self.read, versions) if r is not None), None)
        return read.question if read else None

    def find_version(self, identifier: str) -> Version:
        version = self.catalogue.by_id(identifier)
        if version is None or version.removed:
            raise SettingsError(
                f"There is no item {identifier!r} in the bank.",
                "Give an id from: rubricem bank list",
            )
        return version

    def snapshot(self, folder: Path) -> int:
        """Write the bank as it stands into a folder; returns the generation.

        Raises SettingsError for a folder with a journal that is no snapshot's.
        """
        bank = self.identity()
        journal, uses = _files(folder)
        begun = folder / "snapshot.begun"
        with writable(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if journal.path.exists() and not ((folder / _MARKER).exists() or begun.exists()):
                raise SettingsError(
                    f"{folder} holds a journal that is not a snapshot's.", "Name an empty folder."
                )
            # It has no marker until it is whole, so a kill leaves none that looks so.
            begun.touch()
            (folder / _MARKER).unlink(missing_ok=True)
            with self.lock, self.journal.hold():
                generation, size = self.catalogue.position()
                journal.replace(line for _, line in self.journal.lines())
                uses.replace(line for _, line in self.uses.file.lines())
        held = Snapshot(bank=bank, generation=generation, journal_bytes=size)
        write_atomically(folder / _MARKER, held.model_dump_json())
        begun.unlink()
        return generation

    def restore(self, folder: Path, foreign: bool = False) -> int:
        """Go back to a snapshot; returns the generation, which counts what is removed again.

        An empty bank takes the snapshot's id; another bank's snapshot is refused unless `foreign`.
        """
        held = _whole_snapshot(folder)
        if not self.catalogue.generation():
            write_atomically(self.folder / "id", held.bank)
        elif not foreign and held.bank != self.identity():
            raise SettingsError(
                f"The snapshot is of another bank ({held.bank[:8]}).",
                "Say that it may take this bank's place, or restore it into an empty data "
                "directory.",
            )
        journal, uses = _files(folder)
        with self.lock, self.journal.hold():
            lines = _without(journal, self.catalogue.removals())
            # The catalogue goes first: a kill between the two leaves none that does not fit.
            self.catalogue.drop()
            self.journal.replace(lines)
            with self.uses.file.hold():
                self.uses.file.replace(line for _, line in uses.lines())
            return self.catalogue.generation()

    def _current(self, identifier: str) -> Version:
        """The version of this id, if nothing has replaced it."""
        version = self.find_version(identifier)
        if version.until != NEVER:
            held = standing(self.catalogue.by_key(version.key, version.kind))
            by = f" by {held.id}" if held else ""
            raise SettingsError(
                f"The {version.kind} {identifier} was replaced{by}.",
                f"Decide on {held.id if held else 'another one'} instead.",
            )
        return version

    def _words(self, version: Version) -> str:
        read = self.read(version)
        return words_key(read) if read else ""

    def _put(self, version: Version) -> Put | None:
        put = self._event_at(version.offset, version.id)
        if put is None or isinstance(put, Decided):
            # The catalogue says where it stands, and is wrong: it is made again.
            with self.lock:
                self.catalogue.drop()
                found = self.catalogue.by_id(version.id)
            put = self._event_at(found.offset, found.id) if found else None
        return put if isinstance(put, Put) else None

    def _event_at(self, offset: int, identifier: str) -> Event | None:
        """What stands at a place in the journal; None where it is about another item."""
        try:
            event = event_of(self.journal.line_at(offset))
        except ValueError:
            return None
        return event if event.id == identifier else None


def _without(journal: BankJournal, removed: Mapping[str, str]) -> Iterator[bytes]:
    """The journal's lines, with the text of these ids removed; each has the key of its words."""
    untold = set(removed)
    for number, (_, line) in enumerate(journal.lines(), start=1):
        try:
            event = event_of(line)
        except ValueError as error:
            raise SettingsError(
                f"Line {number} of the snapshot's journal {journal.path} is damaged.",
                "Name the folder of another snapshot; the bank was left as it is.",
            ) from error
        if isinstance(event, Decided) and event.event == "remove":
            untold.discard(event.id)
        yield Blank.of_line(line) if isinstance(event, Put) and event.id in removed else line
    # Also of those that this snapshot does not know: a later one may hold them.
    for identifier in sorted(untold):
        yield line_of(Decided(event="remove", id=identifier, words=removed[identifier]))


def _whole_snapshot(folder: Path) -> Snapshot:
    """What it says of itself."""
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
