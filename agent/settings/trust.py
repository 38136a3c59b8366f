"""What a `rubricem.toml` in the working directory may do: a folder from elsewhere may bring one.

Settings that read, send, load or spend beyond its folder take effect only once a person has agreed.
The consent is stored in the user's data folder, as one SHA-256 per line over the file's place, the
setting and its value: another value, or the same file elsewhere, is asked about again.
"""

import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import platformdirs

from rubricem.agent.models.limits import Endpoint
from rubricem.agent.weights.catalogue import lookup
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.parts import parts_of
from rubricem.memory.text import one_line

WITHIN = frozenset({
    "dialect", "tool_calls", "review_returns", "max_seconds", "answer_format", "decoding",
    "retrieval", "verify", "checker", "approve_plan", "clarify", "threads",
    "temperature", "max_tokens", "least_reflection_score",
    "reflection_tokens", "similarity_floor", "attempts", "system_prompt", "passages",
    "passage_words", "timeout", "concurrency", "seed",
})  # fmt: skip
"""settings that never affect anything beyond their own run; a new setting is not among them"""
LIFTED = {"max_cost": 1, "max_total_tokens": 200_000, "context_tokens": 32_768, "slots": 4}
"""values above which, or at 0, money is spent or memory filled without a person's consent"""
BUILT_IN = ("python", "web", "scholar", "wikipedia", "auto")
PAID = ("tavily", "exa", "brave")
PASSWORD = re.compile(r"//[^/@\s]*@")


def acting(meant: Mapping[str, Any], folder: Path) -> list[str]:
    """The settings of a file that act outside of its folder.

    `meant`: the file's settings with the values in force: of a folder the validated path, since an
    empty string is no address but is a folder.
    """
    return [name for name, value in meant.items() if _acts(name, value, meant, folder)]


def _acts(name: str, value: Any, meant: Mapping[str, Any], folder: Path) -> bool:
    if name in WITHIN or value is None or value is False or value in ((), {}):
        return False
    match name:
        case _ if name in LIFTED:
            return bool(value == 0 or value > LIFTED[name])
        case "base_url":
            return not Endpoint.parse(value).loopback
        case "more_servers":
            return not all(Endpoint.parse(each).loopback for each in value)
        case "api_key" | "prices":
            # With an address they concern that server. A key without one is of somebody who could
            # then read what is sent, and by prices without one a person's money would not count.
            return meant.get("base_url") is None
        case (
            "model" | "models"
        ):  # what is fetched, read or paid for; to a named server it is a word
            names = (value,) if name == "model" else value
            return meant.get("base_url") is None and not all(lookup(each.strip()) for each in names)
        case "reflect_model":
            return lookup(value) is None
        case "source":
            return any(_lies_outside(each, folder) for each in value)
        case "memory":
            return bool(value == "on")  # what is learnt here is told to runs elsewhere
        case _:
            return True


def _lies_outside(source: str, folder: Path) -> bool:
    if source in BUILT_IN:
        return False
    if source in PAID or source in parts_of("sources") or "\0" in source:
        return True  # no path of a file holds a zero
    place = os.path.realpath(folder / os.path.expanduser(source))
    return ":" in source or not Path(place).is_relative_to(os.path.realpath(folder))


@dataclass(frozen=True, slots=True)
class Untrusted:
    """The settings of a file that act outside of its folder without consent."""

    path: Path
    wanted: Mapping[str, Any]
    """by the names of the settings; empty: no consent is needed"""

    @classmethod
    def of(cls, said: Mapping[str, Any], meant: Mapping[str, Any], path: Path) -> "Untrusted":
        """`said`: the values in the file; `meant`: the values in force (see `acting`)."""
        wanted = {name: said[name] for name in acting(meant, path.parent)}
        kept = (
            _folder().read_text(encoding="ascii").split() if wanted and _folder().exists() else ()
        )
        return cls(path, {n: v for n, v in wanted.items() if _digest(n, v, path) not in kept})

    def require(self) -> None:
        """Ask for consent at a terminal, once; SettingsError without it."""
        if not self.wanted:
            return
        if sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty():
            try:
                yes = click.confirm(f"{self.describe()}\nMay it?", err=True)
            except click.Abort:
                yes = False
            if yes:
                self.keep()
                return
        raise SettingsError(
            f"{one_line(str(self.path))} may not set {', '.join(self.wanted)} unasked: it acts "
            "outside of its folder.",
            "Look at it; then allow it by `rubricem trust`, or remove it from the file.",
        )

    def describe(self) -> str:
        """For a person: without keys, and without anything that a terminal would obey."""
        lines = [f"{one_line(str(self.path))} acts outside of its folder:"]
        for name, value in self.wanted.items():
            if name == "checkpoints" or name.endswith("_key"):
                value = "(not shown)"
            elif name == "mcp_servers":
                # What a program is told decides what it does: `sh` alone says nothing.
                value = {
                    n: [one["command"], *one.get("args", ())] if "command" in one else one["url"]
                    for n, one in value.items()
                }
            text = PASSWORD.sub("//", json.dumps(value, default=str, ensure_ascii=False))
            lines.append(f"  {name} = {one_line(text, 300)}")
        return "\n".join(lines)

    def keep(self) -> None:
        """Store a person's consent."""
        place = _folder()
        try:
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.writelines(f"{_digest(n, v, self.path)}\n" for n, v in self.wanted.items())
        except OSError as error:
            raise StoreError(
                f"{place} cannot be written: {error.strerror}",
                "Make it writable, or set what the file sets by flags or RUBRICEM_* variables.",
            ) from error


def _folder() -> Path:
    # Not in `data_dir`, which the file itself may name.
    return platformdirs.user_data_path("rubricem", appauthor=False) / "trusted"


def _digest(name: str, value: Any, path: Path) -> str:
    told = json.dumps([os.path.realpath(path), name, value], sort_keys=True, default=str)
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()
