"""A run's folder put in order before it is gone on with: after damage, a kill, or a copy.

Some copies leave links out, and some follow them, so that a whole checkpoint lies where a link
was. Nothing is deleted here: what cannot be gone on from keeps its files under another name.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agent.weights.checkpoints import note_of
from memory.errors import WeightsError
from training.local.checkpoint_files import fault, read_step
from training.local.checkpoint_links import (
    BEST,
    LAST,
    linked,
    place_of,
    places,
    point,
    set_aside,
)

Better = Callable[[Mapping[str, Any], Mapping[str, Any]], bool]
"""Whether a step's metrics are better than those of the best one before."""
DAMAGED, COPY = "damaged", "copy"


def mended(run: Path, better: Better | None = None) -> str:
    """Let `last` be the newest whole checkpoint, and `best` a whole one or none.

    Where `best` is none, `better` chooses it among those that are left. Returns what was wrong, in
    a sentence; empty where nothing was.
    """
    told = [*_relinked(run / LAST), *_relinked(run / BEST), *_mended_last(run)]
    told += _mended_best(run, better)
    step = linked(run / LAST)
    begun = f"going on from step {step}" if step else "beginning anew"
    return f"{' and '.join(told)}: {begun}" if told else ""


def _relinked(link: Path) -> list[str]:
    """Have a link again where a copy followed it; it takes the place of one that is not whole."""
    if link.is_symlink() or not link.exists():
        return []
    place = _place_of_copy(link)
    if place is not None and fault(place) and not fault(link):
        if place.exists():
            set_aside(place, DAMAGED)
        place.parent.mkdir(exist_ok=True)
        link.rename(place)
        told = f"{link.name} was no link"
    else:
        told = f"{link.name} was no link (what it was is now {set_aside(link, COPY).name})"
    if place is not None:
        point(link, place)
    return [told]


def _place_of_copy(copy: Path) -> Path | None:
    """Where the checkpoint that this is a copy of belongs; None: it is no checkpoint."""
    try:
        return place_of(copy.parent, note_of(copy).step)
    except WeightsError:
        return None


def _mended_last(run: Path) -> list[str]:
    last, told = run / LAST, list[str]()
    step, found = linked(last), places(run)
    if step and not last.exists():
        told.append(f"the checkpoint of step {step} is missing")
    if found and not step:
        told.append(f"{LAST} is no link to a checkpoint")
    # A kill came before the link to a later one, or somebody went back: that step is done again.
    # Where nothing else is left, a later one is better than none.
    for place in sorted(found, key=lambda p: (int(p.name) <= step, int(p.name)), reverse=True):
        if not (wrong := fault(place)):
            point(last, place)
            return told
        told.append(_passed_by(place, wrong))
    last.unlink(missing_ok=True)
    return told


def _passed_by(place: Path, wrong: str) -> str:
    """Damaged checkpoints are put out of the way: they would be counted with the newest."""
    aside = set_aside(place, DAMAGED)
    return (
        f"the checkpoint of step {int(place.name)} is not whole ({wrong}; it is now {aside.name})"
    )


def _mended_best(run: Path, better: Better | None) -> list[str]:
    best, told = run / BEST, list[str]()
    step = linked(best)
    if step and not best.exists():
        told.append(f"{BEST} links to step {step}, which is missing")
    elif step and step != linked(run / LAST) and (wrong := fault(best)):
        told.append(f"{BEST} links to step {step}: {_passed_by(best.resolve(), wrong)}")
    if told:
        best.unlink()
    if better is None or best.exists() or not (chosen := _best_of(run, better)):
        return told
    point(best, chosen)
    return [*told, f"{BEST} links to step {int(chosen.name)} now"]


def _best_of(run: Path, better: Better) -> Path | None:
    """The best that is left: the best of all, if it is there, since it was kept for that."""
    chosen, before = None, dict[str, Any]()
    for place in places(run):
        if int(place.name) <= linked(run / LAST) and not fault(place):
            metrics = read_step(place)["metrics"]
            if better(metrics, before):
                chosen, before = place, metrics
    return chosen
