"""What a `rubricem.toml` of the working directory may do: a folder from elsewhere may bring one.

Settings that read, send, load or spend beyond its folder count once a person has said yes to them.
That is kept in the user's data folder, one SHA-256 a line, of the file's place, the setting and its
value: another value, or the same file elsewhere, is asked about again.
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
import httpx
import platformdirs

from rubricem.agent.weights.catalogue import known
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.parts import offered
from rubricem.memory.text import one_line

ALWAYS = (
    "scholar_key", "tavily_key", "exa_key", "brave_key", "allow_hosts", "data_dir", "weights_dir",
    "bank_server", "embedder", "checkpoints", "mcp_servers",
)  # fmt: skip
LIFTED = {"max_cost": 1, "max_total_tokens": 200_000}
"""budgets above which, or at 0, a person's money is spent without their word"""
OF_A_SERVER = ("api_key", "prices")
"""which with an address concern that server; a key without one is of somebody who could then read
what is sent, and by prices without one what a person pays for would cost nothing"""
BUILT_IN = ("python", "web", "scholar", "wikipedia", "auto")
PAID = ("tavily", "exa", "brave")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
PASSWORD = re.compile(r"//[^/@\s]*@")


def acting(said: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Those of a file's settings, as it has them, that act outside of the folder it lies in."""
    return {name: value for name, value in said.items() if _acts(name, value, said, folder)}


def _acts(name: str, value: Any, said: Mapping[str, Any], folder: Path) -> bool:
    if name in LIFTED:
        return bool(value == 0 or value > LIFTED[name])
    if not value:
        return False
    if name == "base_url":
        return str(httpx.URL(value.strip()).host) not in LOOPBACK
    if name == "more_servers":
        names = value.split(",") if isinstance(value, str) else value
        return any(str(httpx.URL(each.strip()).host) not in LOOPBACK for each in names)
    if name in OF_A_SERVER:
        return "base_url" not in said
    if name == "model":  # what is fetched, read or paid for; to a named server it is a word
        return "base_url" not in said and known(value.strip()) is None
    if name == "models":
        names = value.split(",") if isinstance(value, str) else value
        return "base_url" not in said and not all(known(each.strip()) for each in names)
    if name == "reflect_model":
        return known(value.strip()) is None
    if name == "source":
        names = value.split(",") if isinstance(value, str) else value
        return any(_lies_outside(each.strip(), folder) for each in names)
    return name in ALWAYS


def _lies_outside(source: str, folder: Path) -> bool:
    if source in BUILT_IN:
        return False
    if source in PAID or source in offered("sources"):
        return True
    place = os.path.realpath(folder / os.path.expanduser(source))
    return ":" in source or not Path(place).is_relative_to(os.path.realpath(folder))


@dataclass(frozen=True, slots=True)
class Untrusted:
    """What a file's settings do outside of its folder and nobody has said yes to."""

    path: Path
    wanted: Mapping[str, Any]
    """by the names of the settings; empty: nothing is to be asked"""

    @classmethod
    def of(cls, said: Mapping[str, Any], path: Path) -> "Untrusted":
        wanted = acting(said, path.parent)
        kept = _kept().read_text(encoding="ascii").split() if wanted and _kept().exists() else ()
        return cls(path, {n: v for n, v in wanted.items() if _digest(n, v, path) not in kept})

    def require(self) -> None:
        """Ask at a terminal, once, whether it may; SettingsError where it may not."""
        if not self.wanted:
            return
        if sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty():
            try:
                yes = click.confirm(f"{self.shown()}\nMay it?", err=True)
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

    def shown(self) -> str:
        """It for a person: no key, and nothing that a terminal would act on."""
        lines = [f"{one_line(str(self.path))} acts outside of its folder:"]
        for name, value in self.wanted.items():
            if name == "checkpoints" or name.endswith("_key"):
                value = "(not shown)"
            elif name == "mcp_servers":
                value = {n: one.get("command") or one.get("url") for n, one in value.items()}
            text = PASSWORD.sub("//", json.dumps(value, default=str, ensure_ascii=False))
            lines.append(f"  {name} = {one_line(text, 300)}")
        return "\n".join(lines)

    def keep(self) -> None:
        """Keep a person's yes."""
        place = _kept()
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


def _kept() -> Path:
    # Not in `data_dir`, which the file itself may name.
    return platformdirs.user_data_path("rubricem", appauthor=False) / "trusted"


def _digest(name: str, value: Any, path: Path) -> str:
    told = json.dumps([os.path.realpath(path), name, value], sort_keys=True, default=str)
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()
