"""`rubricem backup`, `restore`, `uninstall`: the whole data directory saved, restored, removed.

A copy is made while others work on the directory. Databases are copied by SQLite's own backup,
journals up to the last complete line, every other file as it was when it was opened, since files
are replaced and not changed. References are read before what they refer to: threads before their
runs, an index before its journal, which may then contain more. The bank's vectors are left out, as
the bank can recompute them.

Restoring a copy loses nothing: the existing files are moved aside.

And `rubricem models`: weights listed, fetched, checked and removed. A fetch is shown on standard
error: a bar on a terminal, a plain line at each new step elsewhere.
"""

import asyncio
import errno
import gzip
import hashlib
import io
import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from rubricem.agent.cli.options import FILE, YES, CommandGroup, confirm
from rubricem.agent.settings import load_settings
from rubricem.agent.weights.catalogue import OnProgress, unseen
from rubricem.memory.errors import RubricemError, SettingsError, StoreError
from rubricem.memory.runs import RunStore, hold_lock, unusable, writable
from rubricem.memory.text import one_line, pluralise

if TYPE_CHECKING:
    from rubricem.agent.weights.store import WeightsStore

FORMAT, MANIFEST = 1, "rubricem-backup.json"
LOCK, ASIDE, STAGED = "serve.lock", "before-restore-", ".restoring-"
FIRST = "threads"
"""read first, as it refers to other files"""
VECTORS = "bank/index"
KNOWN = (
    "bank", "buffers", "chat_history", "evaluations", "history.sqlite", "history.sqlite-shm",
    "history.sqlite-wal", "indexes", "pages", "replies", "runs", "serve-token", "standards",
    "threads", "trusted", "uploads", "users", "users.json",
)  # fmt: skip
"""what rubricem writes into a data directory: no other file in it is ever removed"""
_SQLITE = b"SQLite format 3\0"
_BESIDE = ("-wal", "-shm", "-journal")
"""files beside an open database; a copy made by its backup includes them"""


@contextmanager
def lock_data(data_dir: Path) -> Iterator[None]:
    """Nobody else works on the directory meanwhile; SettingsError if somebody does."""
    busy = SettingsError(f"rubricem serve is using {data_dir}.", "End it first.")
    with hold_lock(data_dir / LOCK, busy):
        store = RunStore(data_dir)
        if running := [thread for thread in store.threads() if store.running(thread)]:
            raise SettingsError(f"The run {running[0]} goes on.", "Wait until it ends, or stop it.")
        yield


@click.command()
@click.argument("file", type=FILE)
def backup(file: Path) -> None:
    """Copy the whole data directory into FILE (.tar.gz), also while a server runs.

    The copy holds the server's tokens and all that was asked: it is readable for its owner alone.
    """
    data_dir = load_settings().data_dir
    if not data_dir.is_dir():
        raise SettingsError(f"There is no data directory {data_dir}.", "Ask something first.")
    if file.exists():
        raise SettingsError(f"{file} exists already.", "Name another file.")
    kept = write_backup(data_dir, file)
    size = file.stat().st_size
    told = f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:,.0f} kB"
    click.echo(f"{pluralise(kept, 'file')} of {data_dir} are in {file} ({told})")


def write_backup(data_dir: Path, file: Path) -> int:
    """Write the copy of a data directory; returns the number of files in it."""
    partial = file.with_name(f".{file.name}.partial")
    hashes = dict[str, str]()
    made = {"format": FORMAT, "version": version("rubricem"), "files": hashes}
    made["made_at"] = datetime.now(UTC).isoformat(timespec="seconds")
    with writable(file):
        try:
            # Beside others' files a name may be taken, by a link, or by what they can read.
            partial.unlink(missing_ok=True)
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as raw:
                with tarfile.open(fileobj=raw, mode="w:gz", compresslevel=3) as archive:
                    for path in _files(data_dir):
                        if path not in (file.absolute(), partial.absolute()):
                            _add(archive, path, path.relative_to(data_dir).as_posix(), hashes)
                    text = json.dumps(made).encode()
                    _put(archive, MANIFEST, len(text), io.BytesIO(text))
                raw.flush()
                os.fsync(raw.fileno())
            os.replace(partial, file)
        finally:
            partial.unlink(missing_ok=True)
    return len(hashes)


def _files(data_dir: Path) -> Iterator[Path]:
    """Every file to save, those that refer to others first."""
    yield from _below(data_dir / FIRST)
    rest = [path for path in _below(data_dir) if path.relative_to(data_dir).parts[0] != FIRST]
    yield from sorted(rest, key=lambda path: (path.suffix == ".jsonl", path))


def _below(folder: Path) -> Iterator[Path]:
    # Links are followed, as somebody may have moved a part to another disk; loops are not.
    seen = set[str]()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        skipped = real in seen
        seen.add(real)
        kept = [each for each in folders if not each.startswith((ASIDE, "."))]
        kept = [each for each in kept if not f"{place}/{each}".endswith(f"/{VECTORS}")]
        folders[:] = [] if skipped else sorted(kept)
        for name in sorted(() if skipped else names):
            if not name.startswith(".") and not name.endswith(_BESIDE) and name != LOCK:
                yield Path(place, name)


def _add(archive: tarfile.TarFile, path: Path, name: str, hashes: dict[str, str]) -> None:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return  # removed meanwhile
    with file:
        if file.read(len(_SQLITE)) == _SQLITE:
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".backup-") as copy:
                with (
                    closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as live,
                    closing(sqlite3.connect(copy.name)) as kept,
                ):
                    live.backup(kept)
                hashes[name] = _put(archive, name, os.path.getsize(copy.name), copy)
        else:
            size = os.fstat(file.fileno()).st_size
            size = _whole(file, size) if path.suffix == ".jsonl" else size
            file.seek(0)
            when = os.fstat(file.fileno()).st_mtime
            hashes[name] = _put(archive, name, size, file, when)


def _whole(file: IO[bytes], size: int) -> int:
    """The size of a journal up to the end of its last complete line."""
    at = size
    while at > 0:
        begin = max(0, at - 65_536)
        file.seek(begin)
        if (end := file.read(at - begin).rfind(b"\n")) >= 0:
            return begin + end + 1
        at = begin
    return 0


class _Hashed:
    """A file whose bytes are hashed as they are read."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.sha = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block: bytes = self._file.read(size)
        self.sha.update(block)
        return block


def _put(
    archive: tarfile.TarFile, name: str, size: int, file: Any, when: float | None = None
) -> str:
    """Add so many bytes of a file; returns their hash."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o600
    entry.mtime = int(when if when is not None else datetime.now(UTC).timestamp())
    hashed = _Hashed(file)
    archive.addfile(entry, hashed)
    return hashed.sha.hexdigest()


@click.command()
@click.argument("file", type=FILE)
@YES
def restore(file: Path, yes: bool) -> None:
    """Bring back what `rubricem backup` wrote into FILE; what is there now is moved aside."""
    data_dir = load_settings().data_dir
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_data(data_dir):
        staged = Path(tempfile.mkdtemp(dir=data_dir, prefix=STAGED))
        try:
            found, made = unpack(file, staged)
            held = [path for path in data_dir.iterdir() if _own(path)]
            click.echo(f"{file} was made {made} and holds {pluralise(len(found), 'file')}.")
            if not KEYS.isdisjoint(found):
                click.echo(KNOWN_TO_OTHERS)
            if held and not confirm(f"Replace the contents of {data_dir} with it?", yes):
                click.echo("nothing was changed")
                return
            aside = data_dir / f"{ASIDE}{datetime.now(UTC):%Y%m%d-%H%M%S}"
            exchange(held, staged, aside)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
    click.echo(f"{data_dir} is as it was then")
    if held:
        click.echo(f"what was there is in {aside}; remove it when you are sure")


KEYS = frozenset({"serve-token", "users.json"})
KNOWN_TO_OTHERS = (
    "It brings the tokens of its server: whoever had the file can log in with them. "
    "Of a file that is not yours remove serve-token and users.json afterwards."
)


def _own(path: Path) -> bool:
    return path.name != LOCK and not path.name.startswith((ASIDE, STAGED))


def exchange(held: list[Path], staged: Path, aside: Path) -> None:
    """Move the files `held` to `aside`, and those staged into their place, or undo everything.

    By renaming within one folder, which may be a mount point.
    """
    moved: list[tuple[Path, Path]] = []
    into = aside.parent
    try:
        if held:
            aside.mkdir(mode=0o700)
        new = [(path, into / path.name) for path in staged.iterdir()]
        for origin, place in [*((path, aside / path.name) for path in held), *new]:
            os.rename(origin, place)
            moved.append((origin, place))
    except OSError as error:
        for origin, place in reversed(moved):
            os.rename(place, origin)
        raise StoreError(
            f"{into} cannot be exchanged: {error.strerror or error}.", "Everything is as it was."
        ) from error


MOST_FILES, MOST_MANIFEST, MOST_HEAD = 1_000_000, 256_000_000, 1 << 20
"""files of a copy; bytes of its list of them; bytes of an entry's header, which a stranger may
declare to be of any length"""
RATIO, LEAST_BYTES = 250, 100_000_000
"""how often its own size a copy may unpack to, if that is more than this"""
SPARED = 256_000_000
"""bytes of the disk left free for others, whose journals are on it, too"""


class _Packed:
    """The uncompressed bytes of a copy for tarfile, which reads the headers of entries whole."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable
        self.left = 0
        """bytes that may be read before this is reset"""

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self.left:
            raise tarfile.ReadError("more than was said")
        self.left -= size
        block: bytes = self._file.read(size)
        return block


def unpack(file: Path, folder: Path) -> tuple[dict[str, str], str]:
    """Unpack a copy into an empty folder, verified: its files' hashes, and when it was made.

    It may be a stranger's, so whatever it declares is bounded. Raises SettingsError for a file that
    is no copy, or an incomplete one, StoreError if it does not fit on the disk.
    """
    wrong = SettingsError(f"{file} is not a complete backup of rubricem.", "Take another copy.")
    found = dict[str, str]()
    try:
        listed = b""
        for entry, read in _entries(file, wrong):
            if entry.name == MANIFEST:
                listed = _manifest(entry, read, wrong)
            else:
                found[entry.name] = _unpack(entry, read, folder, wrong)
        made = json.loads(listed)
        if made["format"] > FORMAT:
            version = one_line(str(made["version"]), MOST_SHOWN)
            raise SettingsError(
                f"{file} was written by rubricem {version}.", "Install that version first."
            )
        if made["files"] != found:
            raise wrong
    except FileNotFoundError as error:
        raise SettingsError(f"There is no file {file}.", "Name a backup.") from error
    except (tarfile.TarError, EOFError, ValueError, LookupError, TypeError, RecursionError,
            zlib.error, gzip.BadGzipFile) as error:  # fmt: skip
        if isinstance(error, RubricemError):
            raise
        raise wrong from error
    return found, one_line(str(made["made_at"]), MOST_SHOWN)


MOST_SHOWN = 60
"""characters of a copy's own text in a message"""


def _entries(file: Path, wrong: SettingsError) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """Every entry and its content, each a plain file within the folder, of a copy's names."""
    most = max(RATIO * file.stat().st_size, LEAST_BYTES)
    with gzip.open(file) as unpacked:
        packed = _Packed(unpacked)
        packed.left = MOST_HEAD
        archive: Any = tarfile.TarFile(fileobj=packed)  # type: ignore[arg-type]
        for _ in range(MOST_FILES):
            packed.left += MOST_HEAD
            if (entry := archive.next()) is None:
                return
            archive.members.clear()  # else it holds the heads of all
            plain = entry.isreg() and not entry.issparse() and entry.size >= 0
            held = plain and unpacked.tell() + entry.size <= most
            read = archive.extractfile(entry) if held else None
            if read is None or not _may_name(PurePosixPath(entry.name)):
                raise wrong
            packed.left = entry.size
            yield entry, read
    raise wrong


def _may_name(name: PurePosixPath) -> bool:
    """Whether a copy may contain it: nothing elsewhere, nothing that a copy never has."""
    derived = name.is_relative_to(VECTORS)  # the bank's vectors, which are made again
    inside = bool(name.parts) and not name.is_absolute() and ".." not in name.parts
    return inside and not derived and _own(Path(name.parts[0]))


def _manifest(entry: tarfile.TarInfo, read: IO[bytes], wrong: SettingsError) -> bytes:
    if entry.size > MOST_MANIFEST:
        raise wrong
    return b"".join(iter(lambda: read.read(1 << 16), b""))


def _unpack(entry: tarfile.TarInfo, read: IO[bytes], folder: Path, wrong: SettingsError) -> str:
    """Write one file; returns its hash."""
    if entry.size > shutil.disk_usage(folder).free - SPARED:
        raise StoreError(
            f"The disk of {folder.parent} has no room for what is in the copy.",
            "Make room there; everything is as it was.",
        )
    path = folder / entry.name
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        hashed = _Hashed(read)
        with path.open("xb") as written:
            shutil.copyfileobj(hashed, written)
        os.utime(path, (entry.mtime, entry.mtime))
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise wrong from error  # two files of one name, or one in another
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise wrong from error
        raise unusable(path, error) from error
    return hashed.sha.hexdigest()


def _weights(on_progress: OnProgress = unseen) -> "WeightsStore":
    from rubricem.agent.weights.store import WeightsStore

    return WeightsStore(load_settings().weights_dir, on_progress)


@click.group(cls=CommandGroup)
def models() -> None:
    """List, fetch, check and remove model weights."""


@models.command("list")
def list_() -> None:
    """List the weights known by name and those fetched from the hub."""
    store = _weights()
    for row in store.list_weights():
        weights = row.weights
        names = ", ".join((weights.name, *weights.aliases))
        size = f"{weights.size / 1e6:,.0f} MB"
        click.echo(f"{names:40} {size:>10}  {weights.licence:12} {row.state}")
    click.echo(f"in {store.directory}")


@models.command()
@click.argument("name")
def fetch(name: str) -> None:
    """Fetch NAME (known, or org/repo[:file.gguf] of the hub); damaged weights are replaced."""
    with show_fetch(name) as on_progress:
        folder = asyncio.run(_weights(on_progress).fetch_named(name))
    click.echo(f"{name} is in {folder}")


@models.command()
@click.argument("name", required=False)
def check(name: str | None) -> None:
    """Hash the weights again: NAME, or all that are on disk."""
    with show_fetch(name or "weights") as on_progress:
        checked = _weights(on_progress).check(name)
    for weights, damage in checked:
        verdict = "damaged" if damage else f"whole (SHA-256 {weights.files[0].sha256})"
        click.echo(f"{weights.name}: {verdict}")
    for damage in filter(None, (damage for _, damage in checked)):
        raise damage


@models.command()
@click.argument("name")
def remove(name: str) -> None:
    """Delete the weights of NAME from the disk."""
    freed = _weights().remove(name)
    click.echo(f"{name}: {freed / 1e6:,.0f} MB freed" if freed else f"{name} was not on disk")


@contextmanager
def show_fetch(name: str, console: Console | None = None) -> Iterator[OnProgress]:
    """An `OnProgress` that draws; it draws nothing if nothing has to be fetched."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield _plain_lines(name, console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, TransferSpeedColumn(), console=console, transient=True) as bar:
        yield _bar(name, bar)


def _plain_lines(name: str, console: Console) -> OnProgress:
    said = ""

    def on_progress(done: int, total: int, doing: str) -> None:
        nonlocal said
        if doing != said:
            said = doing
            console.print(f"{name}: {doing} ({done >> 20} of {total >> 20} MiB)", soft_wrap=True)

    return on_progress


def _bar(name: str, bar: Progress) -> OnProgress:
    task = bar.add_task(name, total=None, visible=False)

    def on_progress(done: int, total: int, doing: str) -> None:
        description = f"{name}: {doing}"
        bar.update(task, completed=done, total=total, description=description, visible=True)

    return on_progress
