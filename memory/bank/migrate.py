"""A bank written by rubricem up to commit ec15fe0e, brought into today's file once.

Such a bank is a folder with `journal.jsonl`, one JSON line for each event; `uses.jsonl`, which runs
were given which items; and `id`. Line n makes generation n. The whole folder is kept beside the new
one as `bank.ec15fe0e`. What the present bank does not have becomes what is nearest to it: a pinned
item is one that a person wrote, a disabled one waits in quarantine, episodes stay in the copy.

The new bank is made in a folder of its own, and two renames put it in place; a process that is
killed in between leaves what the next one finishes.
"""

import json
import os
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rubricem.memory.errors import StoreError
from rubricem.memory.runs import folder_locked, sync, writable
from rubricem.memory.schema import Reflection
from rubricem.memory.text import digest_of

JOURNAL, USES, ID, SNAPSHOT = "journal.jsonl", "uses.jsonl", "id", "snapshot.json"
COMMIT = "ec15fe0e"
_NEVER = 2**31
_DISABLED = "A person had disabled it."


def migrate(folder: Path, file: str, open_bank: Callable[[Path], sqlite3.Connection]) -> None:
    """Bring the bank of a folder into today's `file` of it, if it is an older one."""
    new, old = folder.with_name(f"{folder.name}.new"), folder.with_name(f"{folder.name}.{COMMIT}")
    if not ((folder / JOURNAL).exists() or new.exists()) or (folder / file).exists():
        return
    with writable(folder), folder_locked(folder.parent):
        if (folder / JOURNAL).exists():
            if old.exists():
                raise StoreError(
                    f"{folder} is a bank of an older rubricem, and {old} already has a copy of one",
                    "Move the one of them away that you do not need.",
                )
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            with closing(open_bank(new / file)) as db:
                convert(folder, db)
            sync(new)
            os.rename(folder, old)
        if old.exists() and not folder.exists():
            os.rename(new, folder)
            sync(folder.parent)


@dataclass(slots=True)
class _Version:
    """One item as the events so far have left it; `reflection`: None where it was removed."""

    since: int
    key: str
    reflection: dict[str, Any] | None
    until: int = _NEVER
    waits: bool = False
    pinned: bool = False
    disabled: bool = False
    told: dict[str, Any] = field(default_factory=dict)
    """where it was released or edited, and when"""

    @property
    def stands(self) -> bool:
        return self.until == _NEVER and not self.waits


class _Replay:
    """What the events of a journal come to."""

    def __init__(self) -> None:
        self.versions: dict[str, _Version] = {}
        self.removals: dict[str, str] = {}
        """id of a removed item -> hash of its words"""
        self._of_key: defaultdict[str, list[_Version]] = defaultdict(list)

    def take(self, number: int, event: dict[str, Any]) -> None:
        kind = event.get("event", "put")
        if kind in ("put", "blank"):
            self._put(event, number)
        elif kind == "remove":
            self.removals[event["id"]] = event.get("words", "")
        if (version := self.versions.get(event.get("id", ""))) is None:
            return
        if kind == "remove":
            version.reflection, version.until = None, min(version.until, number)
        elif kind in ("pin", "disable"):
            setattr(version, "pinned" if kind == "pin" else "disabled", event["on"])
        elif kind == "release" and version.waits:
            self._release(version, event, number)

    def _standing(self, key: str) -> _Version | None:
        return next((version for version in self._of_key[key] if version.stands), None)

    def _put(self, event: dict[str, Any], number: int) -> None:
        """Add a reflection, or what removing one has left of it, and end what it replaced."""
        if event.get("episode") or event.get("kind") == "episode":
            return
        told = event.get("reflection") or (event if "event" not in event else None)
        read = Reflection.model_validate(told) if told else None
        identifier = read.id if read else event["id"]
        if identifier in self.versions:
            return
        key = digest_of(read.question.strip()) if read else event["key"]
        flagged = bool(read.flags) if read else event.get("flagged", False)
        new = _Version(number, key, read.model_dump(mode="json") if read else None, waits=flagged)
        new.told["edited_by"] = event.get("by", "")
        held = self._standing(key)
        edited = self.versions.get(read.replaces if read else event.get("replaces", ""))
        if edited is not None and edited.until == _NEVER:
            edited.until = number
            new.pinned, new.disabled = edited.pinned, edited.disabled
        if not flagged:
            if event.get("history") or (held and held is not edited and held.pinned):
                new.until = number
            elif held:
                held.until = number
        self.versions[identifier] = new
        self._of_key[key].append(new)

    def _release(self, version: _Version, event: dict[str, Any], number: int) -> None:
        held = self._standing(version.key)
        version.waits = False
        version.told.update(released_by=event.get("by", ""), released_at=event.get("at"))
        if version.until == _NEVER and held is not None:
            (version if held.pinned or held.since > version.since else held).until = number


def convert(folder: Path, db: sqlite3.Connection) -> None:
    """Fill an empty bank with what the journals of a folder come to; raises StoreError."""
    replay, uses, means = _Replay(), list[tuple[str, str]](), dict[str, float]()

    def use(_: int, line: dict[str, Any]) -> None:
        uses.extend((name, line["trajectory"]) for name in line.get("ids", ()))
        if "mean" in line:
            means[line["trajectory"]] = float(line["mean"])

    number = _read_lines(folder / JOURNAL, replay.take)
    _read_lines(folder / USES, use)
    bank = next((path for path in (folder / ID, folder / SNAPSHOT) if path.exists()), None)
    text = bank.read_text(encoding="utf-8") if bank else ""
    identity = json.loads(text)["bank"] if text.startswith("{") else text.strip()
    db.execute("BEGIN IMMEDIATE")
    for identifier, version in replay.versions.items():
        _insert(db, identifier, version)
    rows = [(name, words, bool(words)) for name, words in replay.removals.items()]
    db.executemany("INSERT INTO removals VALUES (?, ?, ?)", rows)
    db.executemany("INSERT OR IGNORE INTO uses VALUES (?, ?)", uses)
    db.executemany("INSERT INTO scores VALUES (?, ?)", means.items())
    state = {"generation": number, "changes": number} | ({"id": identity} if identity else {})
    db.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", state.items())
    db.execute("COMMIT")


def _read_lines(path: Path, take: Callable[[int, dict[str, Any]], None]) -> int:
    """Take each whole line of a file, and count them; the last may have been cut by a crash."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            take(number, json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StoreError(
                f"line {number} of the bank's {path.name} in {path.parent} is damaged",
                "Remove that line, or move the folder away to begin an empty bank.",
            ) from error
    return len(lines)


def _insert(db: sqlite3.Connection, identifier: str, version: _Version) -> None:
    if version.reflection is None:
        return
    waits = version.waits or (version.disabled and version.until == _NEVER)
    if version.disabled and waits:
        version.reflection["flags"] = [*version.reflection["flags"], _DISABLED]
    row = {
        "added": version.since,
        "id": identifier,
        "key": version.key,
        "since": _NEVER if waits else version.since,
        "until": version.until,
        "fixed": version.pinned or version.reflection["origin"] == "hand",
        "edited_by": version.told.get("edited_by", ""),
        "released_by": version.told.get("released_by", ""),
        "released_at": version.told.get("released_at"),
        "reflection": json.dumps(version.reflection),
    }
    columns, marks = ", ".join(row), ", ".join("?" * len(row))
    db.execute(f"INSERT INTO items ({columns}) VALUES ({marks})", tuple(row.values()))
