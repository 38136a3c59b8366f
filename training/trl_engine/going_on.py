"""What TRL goes on from, known to be whole: its files are listed in the session's checkpoint.

TRL keeps two of its folders by itself, and reads what it finds there: without its moments it would
take other steps and not say so.
"""

from pathlib import Path
from typing import Any

from memory.errors import StoreError
from training.local.checkpoint_files import fault, listed, read_trainer, unlike
from training.local.checkpoint_links import point
from training.local.checkpointing import TrainingFolder
from training.local.session import TrainingSession

FILES = "trl"


def as_kept(run: Path, folder: Path) -> dict[str, Any]:
    """What the session's checkpoint keeps in the place of a trainer's state: sizes and hashes."""
    return {FILES: listed(folder, run)}


def stand(session: TrainingSession) -> None:
    """Have the session stand at its newest checkpoint for which TRL's files are whole too.

    Raises StoreError where there is none, and leaves the session at its newest.
    """
    told = _gone_back(session.folder) if session.done and session.ranks.first else ""
    if session.ranks.gathered(told)[0]:
        session.tell(told)
        session.stand()
        session.go_back()


def _gone_back(run: TrainingFolder) -> str:
    told: list[str] = []
    for place in reversed(run.so_far()):
        # The newest itself has been found whole as the session was opened.
        if not (wrong := (fault(place) if told else "") or _missed(run, place)):
            point(run.newest, place)
            return f"{' and '.join(told)}: going on from step {run.step()}" if told else ""
        told.append(f"TRL cannot go on from step {int(place.name)} ({wrong})")
    raise StoreError(
        " and ".join(told),
        f"Put the files back, or begin anew in another folder than {run.folder}.",
    )


def _missed(run: TrainingFolder, place: Path) -> str:
    """What is wrong with TRL's files of a step; nothing is known of those that have no list."""
    return unlike(run.folder, read_trainer(place).get(FILES, {}))
