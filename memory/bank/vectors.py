"""The bank's index: a vector for each question, in Chroma.

It is derived from the bank's journal and may be deleted at any time. It has a vector for each
question, whatever became of the reflections on it, and no text. The collection's metadata record
how far it has followed the bank (generation), the digest of the questions up to there, and the
embedder of its vectors. It stays open between queries; a process that is behind catches up under a
lock. Similarity is the inner product of unit vectors: the cosine, in [-1, 1].

It knows nothing of generations: it is asked for more than is wanted, the catalogue says which of
those are live, and if too few are left it is asked for more. Items that are recalled together
should teach different things: of two items about the same question the second is skipped, and each
next one is near the question and unlike those chosen (maximal marginal relevance, Carbonell and
Goldstein, SIGIR 1998).

In a folder it is a persistent Chroma and a mark beside it, which says where the vectors are, and of
which embedder. Chroma does not show an open client what another process has written, so the mark
changes with every write, and a process that sees a new mark opens the folder again. Within one
process Chroma shares what it has open by path; so do we, once for each folder. Chroma's native code
may crash on damaged files and take the process with it: opening a folder is recorded beforehand,
and if that record was left behind twice, the folder is given up. A new collection gets a folder of
its own, named by the mark: Chroma remembers a folder that it failed to open for as long as the
process lives.

Beside a folder's collection is a copy of its vectors, memory-mapped by its readers. All vectors are
compared, which is exact, and a process with few queries opens neither Chroma nor its graph; for a
large bank a process with many queries opens the graph. The copy is written after the collection,
and if it is missing, damaged or behind, it is rebuilt from the collection. The mark names its file
and how far it reaches.

On a Chroma server it is a collection with the bank's own name. Both are in this module, since the
index's demands on them follow from what can go wrong in each.
"""

import fcntl
import os
import shutil
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from rubricem.memory.bank.catalogue import Version
from rubricem.memory.bank.events import Match, question_key
from rubricem.memory.bank.store import BankStore
from rubricem.memory.embedder import MEANING
from rubricem.memory.errors import RubricemError, SettingsError, StoreError, import_extra
from rubricem.memory.runs import writable, write_atomically
from rubricem.memory.schema import Embedder, ItemKind, Value

HNSW: dict[str, str | int] = {
    "space": "ip",
    "max_neighbors": 16,
    "ef_construction": 200,
    "ef_search": 300,
    "sync_threshold": 100,
    "batch_size": 100,
}
"""Measured with 100,000 items (4,000 MiniLM vectors, the others within noise of them), 200
additional questions and an ef_construction of 100: of the two exact nearest, ef_search 100 found
0.988, 200 0.995 and 300 all, in 1.0, 1.1 and 1.5 ms; of the 16 nearest 0.983, 0.991 and 0.998.
Vectors that were not synced are added to the graph again at each opening, at 0.5 ms each: with
Chroma's threshold of 1,000 the first query took 0.7 s of a processor, without any 0.25 s."""


_MARK = "current.json"


class IndexMark(Value):
    """A small file beside an index, which changes with every write."""

    place: str = ""
    """the folder or the server of the vectors; "": unknown"""
    embedder: str = ""
    """whose vectors they are; "": there are none"""
    mark: str = ""
    file: str = ""
    """the copy of the vectors, beside the mark; "": there is none"""
    rows: int = 0
    """of the file; later ones are incomplete"""
    dimensions: int = 0
    generation: int = -1
    """of the bank, up to which the file has followed it"""
    digest: str = ""
    """of the questions up to there"""

    @classmethod
    def read(cls, folder: Path) -> "IndexMark":
        """An empty mark if there is none, or none that can be read."""
        path, unknown = folder / _MARK, (FileNotFoundError, NotADirectoryError, ValidationError)
        with writable(path), suppress(*unknown):
            return cls.model_validate_json(path.read_bytes())
        return cls()

    @classmethod
    def write(cls, folder: Path, **fields: Any) -> "IndexMark":
        mark = cls(**fields, mark=uuid.uuid4().hex)
        write_atomically(folder / _MARK, mark.model_dump_json())
        return mark


COMPARED = 131_072
"""most questions for which a copy of the vectors is kept, so that all of them can be compared"""
QUICK, ASKED = 16_384, 64
"""questions up to which that costs no more than the graph; and how often one process compares more,
until opening the graph would have cost as much

Measured with 100,000 of 384 dimensions, CPU: opening and the first question take 0.03 s by the
copy, 0.3 to 0.6 s by Chroma and half a second more if it is not imported; each additional one 17 ms
by the copy, 4.4 ms by Chroma. With 1,000 it is 1.3 and 3.4 ms.
"""
_FILE = "vectors-"


def vector_rows(numbers: Sequence[int], vectors: NDArray[np.float32]) -> NDArray[Any]:
    """Questions with their vectors (n, d), in the format of `VectorFile`."""
    kind = [("number", "<i8"), ("vector", "<f4", (vectors.shape[1],))]
    rows: NDArray[Any] = np.zeros(len(numbers), kind)
    rows["number"], rows["vector"] = numbers, vectors
    return rows


class VectorFile:
    """Unit vectors of questions, in an append-only file.

    Raises OSError if it cannot be used, ValueError if its contents are inconsistent.
    """

    def __init__(self, path: Path, count: int, dimensions: int) -> None:
        """`count`: number of its complete rows, at least one."""
        self.path, self.count, self.dimensions = path, count, dimensions
        kind = vector_rows((), np.zeros((0, dimensions), np.float32)).dtype
        self.rows: NDArray[Any] = np.asarray(np.memmap(path, kind, "r", shape=(count,)))
        # Damaged files are no error by themselves.
        some = self.rows["vector"][:: max(1, count // _PROBES)]
        if not np.allclose(np.linalg.norm(some, axis=1), 1.0, atol=0.01):
            raise ValueError("its vectors are damaged")

    def nearest(self, vector: NDArray[np.float32], most: int) -> "list[Near]":
        """Those most similar to a unit vector (d,), the nearest first; ties by the lowest number.

        All of it is read: at 100,000 questions of MiniLM 154 MB.
        """
        numbers, vectors = self.rows["number"], self.rows["vector"]
        similar = vectors @ vector
        if not np.abs(similar).max() <= 1.01:  # of unit vectors; what is no number is not, either
            raise ValueError("its vectors are damaged")
        least = -np.inf
        if most < self.count:
            least = np.partition(similar, self.count - most)[self.count - most]
        among = np.flatnonzero(similar >= least)
        best = among[np.lexsort((numbers[among], -similar[among]))][:most]
        return [Near(int(numbers[at]), float(similar[at]), vectors[at].copy()) for at in best]

    def more(self, rows: NDArray[Any]) -> "VectorFile":
        """The file with more rows, on disk."""
        with self.path.open("r+b") as file:
            file.truncate(self.rows.nbytes)  # what a kill left is none of it
            file.seek(0, os.SEEK_END)
            file.write(rows.tobytes())
            file.flush()
            os.fsync(file.fileno())
        return VectorFile(self.path, self.count + len(rows), self.dimensions)

    @classmethod
    def new(cls, folder: Path, rows: NDArray[Any]) -> "VectorFile":
        path = folder / f"{_FILE}{uuid.uuid4().hex[:12]}"
        write_atomically(path, rows.tobytes())
        return cls(path, len(rows), rows.dtype["vector"].shape[0])


class Chroma(ABC):
    """One collection, kept open between uses. For one thread at a time, which holds `lock`."""

    def __init__(self, folder: Path) -> None:
        self.lock = threading.RLock()
        self.at = -1
        """the generation up to which the open collection has followed the bank; -1: unknown"""
        self.embedder = ""
        """the embedder of the open collection's vectors; "": unknown"""
        self.compared = 0
        """how often all vectors of the copy were compared"""
        self._folder = folder
        self._client: Any = None
        self._collection: Any = None

    def __del__(self) -> None:
        self.close()

    def stale(self) -> bool:
        """Whether it is not open, or another process has written since it was opened."""
        return self._collection is None

    @abstractmethod
    def collection(self) -> Any:
        """The collection, opened again if stale; None if there is none."""

    @abstractmethod
    def create(self, metadata: dict[str, Any]) -> Any:
        """An empty collection, which replaces the current one."""

    @abstractmethod
    def writing(self, embedder: str) -> None:
        """To be called before anything is written: others will open it again."""

    def confirm_opening(self) -> None:
        """To be called when the opened collection was read without harm."""
        return

    copies: Path | None = None
    """the folder for a copy of the vectors; None: no copy"""

    def open_copy(self, embedder: str) -> tuple[IndexMark, VectorFile] | None:
        """The copy of this embedder's vectors and how far it goes; None if there is none."""
        return None

    def keep_copy(self, file: VectorFile | None, position: dict[str, Any]) -> None:
        """Make this file the copy from now on, as of a position; None: there is no copy."""
        return

    def spoil_copy(self) -> None:
        """Ignore the copy from now on: it cannot be used."""
        return

    def close(self) -> None:
        client, self._client, self._collection = self._client, None, None
        self.at, self.embedder = -1, ""
        if client is not None:
            self._shut(client)

    def give_up(self) -> None:
        """The collection cannot be used: have it rebuilt, if nothing else can be the cause."""
        self.close()

    @abstractmethod
    def fault(self, error: Exception) -> StoreError:
        """The sentence for a persistent error."""

    def _shut(self, client: Any) -> None:
        client.close()

    def _find_collection(self, name: str) -> Any:
        """The collection of a name; None if there is none."""
        from chromadb.errors import NotFoundError

        try:
            return self._client.get_collection(name, embedding_function=None)
        except NotFoundError:
            return None

    def _create(self, name: str, metadata: dict[str, Any]) -> Any:
        return self._client.create_collection(
            name, embedding_function=None, configuration={"hnsw": HNSW}, metadata=metadata
        )


def settings() -> Any:
    """Chroma's own settings, with its telemetry off.

    By default it would read the `.env` of the working directory, and a folder from elsewhere could
    send the bank's vectors to a server of its choice.
    """
    from chromadb.config import Settings

    return Settings(_env_file=None, anonymized_telemetry=False)  # type: ignore[call-arg]


SAME = 0.95
"""similarity from which two questions are the same in nearly the same words"""
RELEVANCE = 0.8
"""weight of similarity to the question against dissimilarity to those chosen

Measured with MiniLM on 4,000 sentences of the standard library's documentation and 199 others that
have two neighbours: at 1 (no diversity) the second that is chosen has the mean similarity 0.705 to
the question and 0.689 to the first; at 0.9 0.703 and 0.661, at 0.8 0.698 and 0.628, at 0.7 0.682
and 0.581, at 0.5 0.594 and 0.463.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Near:
    """A question by its number, its similarity to the query, its unit vector."""

    number: int
    similarity: float
    vector: NDArray[np.float32]


def diverse(near: Sequence[Near], k: int, taken: Sequence[NDArray[np.float32]] = ()) -> list[Near]:
    """At most k of them, the nearest first; `taken`: vectors of those chosen already."""
    chosen: list[Near] = []
    held = list(taken)
    while len(chosen) < k:
        likeness = {n.number: max((float(n.vector @ v) for v in held), default=0.0) for n in near}
        left = [n for n in near if n not in chosen and likeness[n.number] < SAME]
        if not left:
            break
        best = max(
            left,
            key=lambda n: RELEVANCE * n.similarity - (1 - RELEVANCE) * likeness[n.number],
        )
        chosen.append(best)
        held.append(best.vector)
    return chosen


_BATCH = 2048
"""questions added before the progress is recorded; Chroma syncs once for each batch"""
_EMBEDDED = 256
"""questions embedded at once"""
_PROBES = 16
"""vectors checked when an index is opened"""


FETCHED = 16
"""candidates for recall; also the least number that the index is asked for"""
_WIDER = 4
"""factor on the number asked for if too few were left"""


class BankIndex:
    """Searches one bank with one embedder. Blocking: call it from a worker thread.

    Raises SettingsError if the vectors are another embedder's, StoreError if they cannot be read,
    and whatever the embedder raises.
    """

    def __init__(self, store: BankStore, embedder: Embedder, chroma: Chroma) -> None:
        self._store = store
        self.embedder = embedder
        self._chroma = chroma

    def nearest(
        self,
        text: str,
        k: int,
        floor: float,
        generation: int,
        besides: str = "",
        kind: ItemKind = "reflection",
    ) -> list[Match]:
        """The k nearest live items; `besides`: the key of a question that is left out."""
        vector = self.embedder.embed([text], query=True)[0]
        near, live = self._live(vector, k, floor, generation, besides, kind)
        return self._matches(near[:k], live)

    def diverse(
        self,
        question: str,
        k: int,
        floor: float,
        generation: int,
        own: bool,
        kind: ItemKind = "reflection",
    ) -> list[Match]:
        """At most k live items on other questions, no two of them about the same one."""
        vector = self.embedder.embed([question], query=True)[0]
        besides = question_key(question)
        near, live = self._live(vector, FETCHED, floor, generation, besides, kind)
        chosen = [self.embedder.embed([question])[0]] if own else []
        return self._matches(diverse(near, k, chosen), live)

    def _live(
        self,
        vector: Any,
        count: int,
        floor: float,
        generation: int,
        besides: str,
        kind: ItemKind,
    ) -> tuple[list[Near], dict[int, Version]]:
        """The nearest `count` live questions that reach the floor, and their versions."""
        asked = max(count, FETCHED)
        while True:
            found = self.near(vector, asked)
            live = self._store.catalogue.live_among([n.number for n in found], generation, kind)
            near = [
                n
                for n in found
                if n.similarity >= floor and n.number in live and live[n.number].key != besides
            ]
            if len(near) >= count or len(found) < asked or found[-1].similarity < floor:
                return near[:count], live
            asked *= _WIDER

    def _matches(self, near: Sequence[Near], live: dict[int, Version]) -> list[Match]:
        read = [(self._store.read(live[n.number]), n.similarity) for n in near]
        return [Match(record, s) for record, s in read if record is not None]

    def near(self, vector: NDArray[np.float32], count: int) -> list[Near]:
        """The nearest questions, the nearest first; `vector` is a unit vector (d,)."""
        with self._chroma.lock:
            # Opening it again is tried before it is made again.
            for mend in (self._chroma.close, self._chroma.give_up):
                try:
                    return self._query(vector, count)
                except RubricemError:
                    raise
                except Exception:
                    mend()
            with self._translate_errors():
                return self._query(vector, count)

    def rebuild(self) -> None:
        """Embed every question again, by this index's embedder."""
        with self._chroma.lock, self._lock(fcntl.LOCK_EX), self._translate_errors():
            self._catch_up(self._chroma.create(self._position(0)))

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Turn Chroma's errors into one sentence."""
        try:
            yield
        except RubricemError:
            raise
        except Exception as error:
            self._chroma.close()
            raise self._chroma.fault(error) from error

    def _query(self, vector: NDArray[np.float32], count: int) -> list[Near]:
        with self._lock(fcntl.LOCK_SH):
            if (near := self._near_in_copy(vector, count)) is not None:
                return near
        same = not self._chroma.stale() and self._chroma.embedder == self.embedder.name
        if same and self._chroma.at >= self._store.catalogue.last_change():
            with self._lock(fcntl.LOCK_SH):
                if not self._chroma.stale():
                    return self._find_nearest(vector, count)
        # The first query after a writing may write, too: Chroma then takes up what was added.
        with self._lock(fcntl.LOCK_EX):
            collection = self._chroma.collection()
            if collection is not None and self._fits(collection):
                self._prove(collection)
            else:
                collection = self._chroma.create(self._position(0))
            self._catch_up(collection)
            near = self._near_in_copy(vector, count)
            return self._find_nearest(vector, count) if near is None else near

    def _near_in_copy(self, vector: NDArray[np.float32], count: int) -> list[Near] | None:
        """By comparing all; None if there is no copy that has followed the bank."""
        copy = self._copy(lambda at: at >= self._store.catalogue.last_change())
        if copy is None or (copy.count > QUICK and self._chroma.compared >= ASKED):
            return None
        try:
            self._chroma.compared += 1
            return copy.nearest(vector, count)
        except ValueError:
            self._chroma.spoil_copy()
            return None

    def _copy(self, reaches: Callable[[int], bool]) -> VectorFile | None:
        """The copy of this bank's vectors, if its generation suffices."""
        found = self._chroma.open_copy(self.embedder.name)
        if found is None:
            return None
        (mark, file), catalogue = found, self._store.catalogue
        known = mark.generation <= catalogue.generation() and reaches(mark.generation)
        return file if known and mark.digest == catalogue.digest(mark.generation) else None

    def _find_nearest(self, vector: NDArray[np.float32], count: int) -> list[Near]:
        collection = self._chroma.collection()
        found = collection.query(
            query_embeddings=[vector], n_results=count, include=["distances", "embeddings"]
        )
        rows = zip(found["ids"][0], found["distances"][0], found["embeddings"][0], strict=True)
        # Chroma's distance is 1 - inner product. Equal ones stand in a fixed order.
        near = [Near(int(i), 1.0 - d, np.asarray(v)) for i, d, v in rows]
        if len(near) < count and len(near) < (questions := self._store.catalogue.count_questions()):
            # A graph of many equal vectors has parts that no way leads to.
            near = self._compare_all(collection, vector)
            if 2 * len(near) < questions:
                raise ValueError(f"it finds {len(near)} of the bank's questions")
        return sorted(near, key=lambda n: (-n.similarity, n.number))[:count]

    def _compare_all(self, collection: Any, vector: NDArray[np.float32]) -> list[Near]:
        """Every question with its similarity, without the graph."""
        near: list[Near] = []
        for rows in self._read_vectors(collection):
            each = zip(rows["number"], rows["vector"] @ vector, rows["vector"], strict=True)
            near += [Near(int(number), float(s), v) for number, s, v in each]
        return near

    def _read_vectors(self, collection: Any) -> Iterator[NDArray[Any]]:
        """Everything in a collection."""
        got = 0
        while (batch := collection.get(limit=_BATCH, offset=got, include=["embeddings"]))["ids"]:
            got += len(batch["ids"])
            vectors = np.asarray(batch["embeddings"], dtype=np.float32)
            yield vector_rows(list(map(int, batch["ids"])), vectors)

    def _prove(self, collection: Any) -> None:
        """Check that some questions' vectors are there and complete: damage may cause no error."""
        numbers = self._store.catalogue.some_questions(collection.metadata["generation"], _PROBES)
        if numbers:
            ids = [str(number) for number in numbers]
            held = collection.get(ids=ids, include=["embeddings"])
            lengths = np.linalg.norm(np.asarray(held["embeddings"]), axis=1)
            if len(lengths) < len(ids) or not np.allclose(lengths, 1.0, atol=0.01):
                raise ValueError("its files are damaged")
        self._chroma.confirm_opening()

    def _fits(self, collection: Any) -> bool:
        """Whether its contents are this bank's; raises if they are another embedder's."""
        held = collection.metadata or {}
        at = held.get("generation", -1)
        catalogue = self._store.catalogue
        if not 0 <= at <= catalogue.generation() or held.get("digest") != catalogue.digest(at):
            return False
        if at and held.get("embedder") != self.embedder.name:
            # It was opened without harm: a refusal is no crash, however often it comes.
            self._chroma.confirm_opening()
            raise SettingsError(
                f"The bank was indexed by {held.get('embedder')}, not by {self.embedder.name}.",
                "Use that embedder, or have the bank embedded again: rubricem bank rebuild",
            )
        return True

    def _catch_up(self, collection: Any) -> None:
        at = collection.metadata["generation"]
        generation, new, gone = self._store.catalogue.changes(at)
        copy, added = self._copy(lambda reached: reached == at), list[NDArray[Any]]()
        if new or gone:
            self._chroma.writing(self.embedder.name)
        if gone:
            collection.delete(ids=[str(number) for number in gone])
        for start in range(0, len(new), _BATCH):
            batch = new[start : start + _BATCH]
            texts = {str(question.number): self._store.question(question) for question in batch}
            held = {number: text for number, text in texts.items() if text is not None}
            if held:
                vectors = self._embed(list(held.values()))
                collection.upsert(ids=list(held), embeddings=vectors)
                added.append(vector_rows(list(map(int, held)), vectors))
            collection.modify(metadata=self._position(batch[-1].number))
        if new or gone:
            collection.modify(metadata=self._position(generation))
        self._chroma.at, self._chroma.embedder = generation, self.embedder.name
        # Where it cannot be written, as on a full disk, all else works.
        with suppress(OSError, StoreError, ValueError):
            if new or gone or copy is None:
                whole = copy is None and at > 0
                self._write_copy(
                    copy, self._read_vectors(collection) if whole else added, gone, generation
                )

    def _write_copy(
        self,
        copy: VectorFile | None,
        more: Iterable[NDArray[Any]],
        gone: Sequence[int],
        generation: int,
    ) -> None:
        """Bring the copy of the vectors up to a generation; `more`: the rows that it lacks.

        An empty or too large bank has none, nor has one on a server.
        """
        held, file, folder = self._store.catalogue.count_questions(), None, self._chroma.copies
        if folder is not None and 0 < held <= COMPARED:
            rows = [*([copy.rows[~np.isin(copy.rows["number"], gone)]] if copy else ()), *more]
            if sum(map(len, rows)) != held:
                raise ValueError("some vectors are missing")
            if copy is None or gone:
                file = VectorFile.new(folder, np.concatenate(rows))
            else:
                file = copy.more(np.concatenate(rows[1:])) if rows[1:] else copy
        self._chroma.keep_copy(file, self._position(generation))

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        starts = range(0, len(texts), _EMBEDDED)
        return np.vstack([self.embedder.embed(texts[s : s + _EMBEDDED]) for s in starts])

    def _position(self, generation: int) -> dict[str, Any]:
        digest = self._store.catalogue.digest(generation)
        return {"generation": generation, "digest": digest, "embedder": self.embedder.name}

    @contextmanager
    def _lock(self, kind: int) -> Iterator[None]:
        """Lock among processes: for one that writes, or many that read."""
        path = self._store.folder / "index.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(
                f"the bank's index in {path.parent} cannot be used: {error.strerror}",
                "Make the data directory writable, or use --memory off.",
            ) from error
        try:
            fcntl.flock(descriptor, kind)
            yield
        finally:
            os.close(descriptor)


_REFLECTIONS, _OPENING = "reflections", "opening"
_DEATHS = 2
"""processes in a row that died while opening a folder: one may have been killed"""


_OPEN: "WeakValueDictionary[str, FolderChroma]" = WeakValueDictionary()
_OPEN_LOCK = threading.Lock()


class FolderChroma(Chroma):
    """A persistent Chroma in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.copies = folder
        self._mark = IndexMark()
        self._place = ""
        self._spoilt = ""
        self._copy: tuple[IndexMark, VectorFile] | None = None
        self._spoilt_copy = ""

    @classmethod
    def of(cls, folder: Path) -> "FolderChroma":
        """This process's object for a folder."""
        with _OPEN_LOCK:
            return _OPEN.setdefault(str(folder.resolve()), cls(folder))

    def stale(self) -> bool:
        return super().stale() or self._mark != IndexMark.read(self._folder)

    def collection(self) -> Any:
        if self.stale():
            self.close()
            self._mark = IndexMark.read(self._folder)
            place = self._place = self._mark.place or self._only_one()
            usable = place and place != self._spoilt and (self._folder / place).is_dir()
            if usable and (deaths := self._deaths(place)) < _DEATHS:
                # Where it cannot be written, as on a full disk, there is no guard, all else works.
                with suppress(OSError):
                    self._opening.write_text(f"{place} {deaths + 1}", encoding="ascii")
                self._open(place)
                self._collection = self._find_collection(_REFLECTIONS)
        return self._collection

    def confirm_opening(self) -> None:
        with suppress(OSError):
            self._opening.unlink(missing_ok=True)

    def create(self, metadata: dict[str, Any]) -> Any:
        self.close()
        place = self._place = uuid.uuid4().hex[:12]
        try:
            self._open(place)
            self._collection = self._create(_REFLECTIONS, metadata)
            self._mark = IndexMark.write(
                self._folder, place=place, embedder=str(metadata["embedder"])
            )
        except BaseException:
            self.close()
            shutil.rmtree(self._folder / place, ignore_errors=True)
            raise
        for path in self._folder.iterdir():
            if path.is_dir() and path.name != place:
                shutil.rmtree(path, ignore_errors=True)
        self._tidy()
        return self._collection

    def writing(self, embedder: str) -> None:
        copy = self._mark.model_dump(exclude={"place", "embedder", "mark"})
        self._mark = IndexMark.write(self._folder, place=self._place, embedder=embedder, **copy)

    def open_copy(self, embedder: str) -> tuple[IndexMark, VectorFile] | None:
        mark = IndexMark.read(self._folder)
        if not mark.file or mark.file == self._spoilt_copy or mark.embedder != embedder:
            self._copy = None
        elif self._copy is None or self._copy[0] != mark:
            try:
                file = VectorFile(self._folder / mark.file, mark.rows, mark.dimensions)
                self._copy = mark, file
            except (OSError, ValueError):
                self._copy, self._spoilt_copy = None, mark.file
        return self._copy

    def keep_copy(self, file: VectorFile | None, position: dict[str, Any]) -> None:
        if file is None and not self._mark.file:
            return
        copy: dict[str, Any] = {}
        if file is not None:
            copy = {"file": file.path.name, "rows": file.count, "dimensions": file.dimensions}
            copy |= {"generation": position["generation"], "digest": position["digest"]}
        self._mark = IndexMark.write(
            self._folder, place=self._place, embedder=position["embedder"], **copy
        )
        self._tidy()

    def spoil_copy(self) -> None:
        self._copy, self._spoilt_copy = None, IndexMark.read(self._folder).file

    def _tidy(self) -> None:
        """Remove copies that no mark names any more; a process reading one still has it."""
        for path in self._folder.glob(f"{_FILE}*"):
            if path.name != self._mark.file:
                path.unlink(missing_ok=True)

    def give_up(self) -> None:
        self.close()
        self._spoilt = IndexMark.read(self._folder).place or self._only_one()

    def fault(self, error: Exception) -> StoreError:
        return StoreError(
            f"the index of the bank in {self._folder} cannot be used: {error}",
            "See that its disk is writable and not full; what lies there may be removed, as it is "
            "made again. Or use --memory off.",
        )

    def _only_one(self) -> str:
        """The folder to use if the mark is lost."""
        try:
            places = [path.name for path in self._folder.iterdir() if path.is_dir()]
        except OSError:
            return ""
        return places[0] if len(places) == 1 else ""

    def _deaths(self, place: str) -> int:
        """How many processes in a row died while opening it."""
        try:
            opened, deaths = self._opening.read_text(encoding="ascii").split()
        except (OSError, ValueError):
            return 0
        return int(deaths) if opened == place and deaths.isdigit() else 0

    @property
    def _opening(self) -> Path:
        return self._folder / _OPENING

    def _open(self, place: str) -> None:
        chromadb = import_extra("chromadb", "memory", MEANING)
        self._client = chromadb.PersistentClient(self._folder / place, settings=settings())


_SECONDS = 30.0
"""for which a server may stay silent"""


class ServerChroma(Chroma):
    """A collection of a Chroma server, the same for all its clients.

    Its files are the server's own business, and embedding everything again would not repair them.
    """

    def __init__(self, url: str, name: str, folder: Path) -> None:
        super().__init__(folder)
        self._url = url
        self._name = name

    def collection(self) -> Any:
        if self._collection is None:
            self._open()
            self._collection = self._find_collection(self._name)
        return self._collection

    def create(self, metadata: dict[str, Any]) -> Any:
        self._open()
        if self._find_collection(self._name) is not None:
            self._client.delete_collection(self._name)
        self._collection = self._create(self._name, metadata)
        return self._collection

    def writing(self, embedder: str) -> None:
        """Others see it without being told; the mark names the embedder of the server's vectors."""
        IndexMark.write(self._folder, place=self._url, embedder=embedder)

    def _shut(self, client: Any) -> None:
        # Its own closing leaves its connections open, and those of a client inside it.
        for part in (client, client._admin_client):
            part._server._session.close()
        client.close()

    def fault(self, error: Exception) -> StoreError:
        return StoreError(
            f"the Chroma server {self._url} cannot be used: {str(error) or type(error).__name__}",
            "See that it runs, or take the bank_server setting away to index in a folder.",
        )

    def _open(self) -> None:
        if self._client is not None:
            return
        import httpx

        chromadb = import_extra("chromadb", "memory", MEANING)
        # By itself the client waits for a silent server for ever.
        httpx.get(f"{self._url}/api/v2/heartbeat", timeout=_SECONDS).raise_for_status()
        url = urlsplit(self._url)
        ssl = url.scheme == "https"
        self._client = chromadb.HttpClient(
            url.hostname or "localhost",
            url.port or (443 if ssl else 80),
            ssl=ssl,
            settings=settings(),
        )
        self._client._server._session.timeout = _SECONDS
