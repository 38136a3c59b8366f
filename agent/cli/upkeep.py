"""`rubricem backup`, `restore`: the data directory saved and restored. And `rubricem models`.

A copy is made while others work on the directory: databases are copied by SQLite's own backup,
every other file as it was when it was opened. What can be made again is left out. A copy is
restored whole or not at all, and replaces nothing. Anybody may have made it: its runs are marked,
and go on under the settings here alone.

Weights are listed, fetched, checked and removed; how far a fetch is, is shown on standard error.
"""

import asyncio
import os
import shutil
import sqlite3
import tarfile
import tempfile
import zlib
from collections.abc import Set
from contextlib import closing
from pathlib import Path, PurePosixPath
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

import click

from rubricem.agent.cli.options import EXISTING, FILE, CommandGroup
from rubricem.agent.cli.terminal import show_progress
from rubricem.agent.models.opening import report_progress
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.users import Users
from rubricem.agent.transcript.events import Tell, hush
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.runs import RunStore, unusable, writable
from rubricem.memory.text import pluralise, printable

if TYPE_CHECKING:
    from rubricem.agent.weights.store import WeightsStore

DERIVED = (("pages",), ("indexes",), ("bank", "index"))
"""in a data directory: what is made again, and would be taken for what was made here"""
RESTORED = {
    "runs", "threads", "bank", "buffers", "replies", "standards", "evaluations", "uploads", "users",
    "users.json", "ledger.jsonl", "history.sqlite",
}  # fmt: skip
"""what is taken out of a copy, whoever made it: nothing of it opens or runs anything"""
RESULTS = ("manifest.json", "run.json")
"""what a folder of a collecting run or a training holds, whose name is anybody's"""
_SQLITE = b"SQLite format 3\0"
_LEFT_OUT = (".lock", "-wal", "-shm", "-journal")
"""ends of files that are of no use in a copy; a database's own backup holds what is beside it"""


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
    with writable(file):
        descriptor, partial = tempfile.mkstemp(dir=file.absolute().parent, prefix=".backup-")
        try:
            with (
                os.fdopen(descriptor, "wb") as raw,
                tarfile.open(fileobj=raw, mode="w:gz", compresslevel=3) as archive,
            ):
                kept = sum(_add(archive, path, data_dir) for path in _files(data_dir))
            os.replace(partial, file)
        finally:
            Path(partial).unlink(missing_ok=True)
    click.echo(f"{pluralise(kept, 'file')} of {data_dir} are in {file}")


def _files(data_dir: Path) -> list[Path]:
    """What is copied; threads come first, since they refer to runs that are made meanwhile."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise unusable(Path(error.filename), error) from error

    found = list[Path]()
    for place, folders, names in os.walk(data_dir, onerror=refuse):
        folders[:] = [
            each
            for each in folders
            if not each.startswith(".")
            and _inner(Path(place, each).relative_to(data_dir).parts) not in DERIVED
        ]
        plain = (each for each in names if not each.startswith("."))
        found += [Path(place, each) for each in plain if not each.endswith(_LEFT_OUT)]
    found = [path for path in found if path.is_file()]  # pipes and sockets hold nothing
    return sorted(found, key=lambda path: "threads" not in path.parts)


def _inner(parts: tuple[str, ...]) -> tuple[str, ...]:
    """The path in the data directory that it lies in: a user, and a training, has one of theirs."""
    theirs = parts[0] == "users" or (parts[0] not in RESTORED and parts[1:2] == ("data",))
    return parts[2:] if theirs and parts[2:] else parts


def _add(archive: tarfile.TarFile, path: Path, data_dir: Path) -> bool:
    """Whether the file was there to be added: one that is removed meanwhile is left out."""
    try:
        opened = path.open("rb")
    except FileNotFoundError:
        return False
    except OSError as error:
        raise unusable(path, error) from error
    with opened as file, NamedTemporaryFile() as copy:
        kept: Any = file
        if file.read(len(_SQLITE)) == _SQLITE:
            live = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
            try:
                with closing(live), closing(sqlite3.connect(copy.name)) as beside:
                    live.backup(beside)
            except sqlite3.DatabaseError as error:
                raise StoreError(
                    f"{path} cannot be copied: {error}.", "Move it away, and copy the rest."
                ) from error
            kept = copy
        kept.seek(0)
        name = path.relative_to(data_dir).as_posix()
        archive.addfile(archive.gettarinfo(arcname=name, fileobj=kept), kept)
    return True


@click.command()
@click.argument("file", type=EXISTING)
def restore(file: Path) -> None:
    """Unpack what `rubricem backup` wrote into FILE; the data directory must be empty or absent.

    Tokens, keys and settings are left in it: users get new tokens by `rubricem users add`. Runs
    that did not end go on with what the settings here name alone.
    """
    data_dir = load_settings().data_dir
    if data_dir.exists() and any(data_dir.iterdir()):
        raise SettingsError(
            f"{data_dir} is not empty.", "Stop its server, and move it away before."
        )
    data_dir.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(dir=data_dir.parent, prefix=".restoring-"))
    try:
        with tarfile.open(file, "r:gz") as archive:
            members = archive.getmembers()
            for each in members:
                tarfile.data_filter(each, str(staged))  # raises for what no copy of ours holds
            paths = [PurePosixPath(each.name).parts or (".",) for each in members]
            known = RESTORED | {path[0] for path in paths if path[1:] and path[-1] in RESULTS}
            left, kept = set[str](), list[tarfile.TarInfo]()
            for member, path in zip(members, paths, strict=True):
                if _is_wanted(path, known) and not member.issym():  # a link could lead elsewhere
                    kept.append(member)
                else:
                    left.add("/".join(path[: 3 if path[0] in known else 1]))
            archive.extractall(staged, kept, filter="data")
        for directory in (staged, *staged.glob("users/*/")):
            RunStore(directory).mark_restored()
        Users(staged).revoke()
        os.replace(staged, data_dir)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise SettingsError(f"{file} is not a whole copy: {error}.", "Take another one.") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    click.echo(f"{data_dir} is as it was when {file} was made")
    if left:
        click.echo(f"left in the copy: {', '.join(map(printable, sorted(left)))}")


def _is_wanted(parts: tuple[str, ...], known: Set[str]) -> bool:
    """Whether a path is restored; `known`: what may lie in the data directory, files excepted."""
    inner = _inner(parts)
    held = parts[0] in (known if parts[1:] else RESTORED) and ".." not in parts
    theirs = inner != parts and inner[0] not in RESTORED
    return held and not theirs and not any(inner[: len(each)] == each for each in DERIVED)


def _weights(tell: Tell = hush) -> "WeightsStore":
    from rubricem.agent.weights.store import WeightsStore

    return WeightsStore(load_settings().weights_dir, report_progress(tell))


@click.group(cls=CommandGroup)
def models() -> None:
    """List, fetch, check and remove model weights."""


@models.command("list")
def list_() -> None:
    """List the weights known by name."""
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
    """Fetch the weights of NAME; damaged ones are replaced."""
    from rubricem.agent.weights.store import known

    with show_progress(name, lines=True) as tell:
        folder = asyncio.run(_weights(tell).fetch(known(name), repair=True))
    click.echo(f"{name} is in {folder}")


@models.command()
@click.argument("name", required=False)
def check(name: str | None) -> None:
    """Hash the weights again: NAME, or all that are on disk."""
    with show_progress(name or "weights", lines=True) as tell:
        checked = _weights(tell).check(name)
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
