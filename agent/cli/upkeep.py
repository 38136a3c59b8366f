"""`rubricem backup`, `restore`: the data directory saved and restored. And `rubricem models`.

A copy is made while others work on the directory. Databases are copied by SQLite's own backup,
journals up to the last complete line, every other file as it was when it was opened. References are
read before what they refer to: threads before their runs. The bank's vectors are left out, as the
bank can recompute them. Restoring a copy loses nothing: the existing files are moved aside.

Weights are listed, fetched, checked and removed. A fetch is shown on standard error: a bar on a
terminal, a plain line at each new step elsewhere.
"""

import asyncio
import errno
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
from rubricem.memory.runs import RunStore, hold_lock, writable
from rubricem.memory.text import one_line, pluralise

if TYPE_CHECKING:
    from rubricem.agent.weights.store import WeightsStore

FORMAT, MANIFEST = 1, "rubricem-backup.json"
LOCK, ASIDE, STAGED = "serve.lock", "before-restore-", ".restoring-"
FIRST = "threads"
"""read first, as it refers to other files"""
VECTORS = "bank/index"
KNOWN = (
    "bank", "buffers", "chat_history", "evaluations", "history.sqlite", "indexes", "pages",
    "replies", "runs", "serve-token", "standards", "threads", "trusted", "uploads", "users",
    "users.json",
)  # fmt: skip
"""what rubricem writes into a data directory, `trusted` up to 0.1.0"""
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
    partial, kept = file.with_name(f".{file.name}.partial"), 0
    with writable(file):
        try:
            # Beside others' files a name may be taken, by a link, or by what they can read.
            partial.unlink(missing_ok=True)
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as raw:
                with tarfile.open(fileobj=raw, mode="w:gz", compresslevel=3) as archive:
                    for path in _files(data_dir):
                        kept += _add(archive, path, path.relative_to(data_dir).as_posix())
                    now = datetime.now(UTC).isoformat(timespec="seconds")
                    made = {"format": FORMAT, "files": kept, "made_at": now}
                    made["version"] = version("rubricem")
                    text = json.dumps(made).encode()
                    _put(archive, MANIFEST, len(text), io.BytesIO(text))
                raw.flush()
                os.fsync(raw.fileno())
            os.replace(partial, file)
        finally:
            partial.unlink(missing_ok=True)
    return kept


def _files(data_dir: Path) -> Iterator[Path]:
    found = [data_dir / name for name in KNOWN if (data_dir / name).is_file()]
    for name in KNOWN:
        for place, folders, names in os.walk(data_dir / name):
            folders[:] = [each for each in folders if f"{place}/{each}" != f"{data_dir}/{VECTORS}"]
            kept = (each for each in names if not each.startswith("."))
            found += [Path(place, each) for each in kept if not each.endswith(_BESIDE)]
    yield from sorted(found, key=lambda path: (FIRST not in path.parts, path.suffix == ".jsonl"))


def _add(archive: tarfile.TarFile, path: Path, name: str) -> bool:
    """Whether the file was there to be added."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return False  # removed meanwhile
    with file:
        if file.read(len(_SQLITE)) == _SQLITE:
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".backup-") as copy:
                with (
                    closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as live,
                    closing(sqlite3.connect(copy.name)) as kept,
                ):
                    live.backup(kept)
                _put(archive, name, os.path.getsize(copy.name), copy)
        else:
            size = os.fstat(file.fileno()).st_size
            size = _whole(file, size) if path.suffix == ".jsonl" else size
            file.seek(0)
            _put(archive, name, size, file)
    return True


def _whole(file: IO[bytes], size: int) -> int:
    """The bytes of a journal up to the end of its last whole line."""
    while size:
        start = max(0, size - 65536)
        file.seek(start)
        if (end := file.read(size - start).rfind(b"\n")) >= 0:
            return start + end + 1
        size = start
    return 0


def _put(archive: tarfile.TarFile, name: str, size: int, file: Any) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = size, 0o600, int(datetime.now(UTC).timestamp())
    archive.addfile(entry, file)


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
            held = [path for path in data_dir.iterdir() if path.name in KNOWN]
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


def unpack(file: Path, folder: Path) -> tuple[list[str], str]:
    """Unpack a copy into an empty folder: its files' names, and when it was made.

    It holds plain files of the names in `KNOWN` alone. Raises SettingsError for a file that is no
    copy, or an incomplete one.
    """
    wrong = SettingsError(f"{file} is not a complete backup of rubricem.", "Take another copy.")
    found, made = list[str](), dict[str, Any]()
    try:
        with tarfile.open(file, "r:gz") as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            for entry in archive:
                if entry.name == MANIFEST and (read := archive.extractfile(entry)):
                    made = json.loads(read.read(1 << 28))
                elif _fits(entry) and entry.name not in found:
                    entry.mode = 0o600
                    archive.extract(entry, folder)
                    found.append(entry.name)
                else:
                    raise wrong
        listed = made["files"]
        if len(found) != (listed if isinstance(listed, int) else len(listed)):
            raise wrong
        if made["format"] > FORMAT:
            version = one_line(str(made["version"]), MOST_SHOWN)
            raise SettingsError(
                f"{file} was written by rubricem {version}.", "Install that version first."
            )
        return found, one_line(str(made["made_at"]), MOST_SHOWN)
    except FileNotFoundError as error:
        raise SettingsError(f"There is no file {file}.", "Name a backup.") from error
    except RubricemError:
        raise
    except (tarfile.TarError, OSError, EOFError, ValueError, LookupError, TypeError,
            RecursionError, zlib.error) as error:  # fmt: skip
        if getattr(error, "errno", None) == errno.ENOSPC:
            raise
        raise wrong from error


def _fits(entry: tarfile.TarInfo) -> bool:
    """Whether it is a plain file that a copy may hold."""
    name = PurePosixPath(entry.name)
    plain = entry.isreg() and not entry.issparse() and entry.size >= 0
    within = name.parts[0] in KNOWN and ".." not in name.parts
    return plain and within and not name.is_relative_to(VECTORS)


MOST_SHOWN = 60


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


@models.command("rm")
@click.argument("name")
def rm(name: str) -> None:
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
