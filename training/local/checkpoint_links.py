"""A run's numbered checkpoints, and the links that name two of them."""

import os
from itertools import count
from pathlib import Path

from training.local.checkpoint_files import sync

LAST, BEST, CHECKPOINTS = "last", "best", "checkpoints"


def places(run: Path) -> list[Path]:
    """The checkpoints, the first step first; none that is half written or was set aside."""
    found = (place for place in (run / CHECKPOINTS).glob("*") if place.name.isdecimal())
    return sorted(found, key=lambda place: int(place.name))


def place_of(run: Path, step: int) -> Path:
    """Where the checkpoint of a step belongs."""
    return run / CHECKPOINTS / f"{step:06d}"


def linked(link: Path) -> int:
    """The step that a link names, also where its checkpoint is gone; 0: it is no such link."""
    name = link.readlink().name if link.is_symlink() else ""
    return int(name) if name.isdecimal() else 0


def point(link: Path, place: Path) -> None:
    """Have a link name another checkpoint, at once."""
    temporary = link.with_name(f".{link.name}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(place.relative_to(link.parent))
    os.replace(temporary, link)
    sync(link.parent)


def set_aside(path: Path, ending: str) -> Path:
    """Rename to a name that nothing has yet, and that no checkpoint has; returns it."""
    names = (path.with_name(f"{path.name}.{ending}{number or ''}") for number in count())
    free = next(name for name in names if not os.path.lexists(name))
    path.rename(free)
    sync(path.parent)
    return free
