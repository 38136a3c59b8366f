"""Where the rounds of a training run keep what they collected, beside its checkpoints.

OUT/rounds.json             what shapes the rounds; going on with others is refused
OUT/rounds/NNN/             one round: a collecting run of one step
OUT/rounds/NNN/policy/      the checkpoint that its rollouts and reflections are sampled from
OUT/held_out/NNN/           the held-out questions after NNN updates, a collecting run too
OUT/data/                   the bank and the rubrics that the rounds share

A round's policy is a copy, since the training removes its older checkpoints while rollouts go on.
"""

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from memory.runs import writable
from training.run_directory import JOURNAL, RunDirectory


@dataclass(frozen=True, slots=True)
class RoundFolders:
    """The folder of one training run. Raises StoreError where it cannot be used."""

    out: Path
    data: Path

    def round(self, number: int) -> RunDirectory:
        return RunDirectory(self.out / "rounds" / f"{number:03d}")

    def held_out(self, updates: int) -> RunDirectory:
        return RunDirectory(self.out / "held_out" / f"{updates:03d}")

    @property
    def held_out_data(self) -> Path:
        """The rubrics of the held-out questions, made at their first asking and kept."""
        return self.out / "held_out" / "data"

    def journals(self) -> list[Path]:
        """Of all rounds and askings so far."""
        kept = (path for part in ("rounds", "held_out") for path in (self.out / part).glob("*/"))
        return sorted(path / JOURNAL for path in kept if (path / JOURNAL).exists())

    def policy(self, number: int) -> Path:
        """The checkpoint of a round; there is none where the base model is sampled."""
        return self.round(number).folder / "policy"

    def keep_policy(self, number: int, checkpoint: Path) -> None:
        """Keep a checkpoint for a round: the training removes its own while rollouts go on."""
        place = self.policy(number)
        with writable(place):
            if place.exists() or self.round(number).finished_steps():
                return
            temporary = place.with_suffix(".part")
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            for file in checkpoint.resolve().iterdir():
                if file.is_file():
                    _share(file, temporary / file.name)
            temporary.rename(place)

    def release_policy(self, number: int) -> None:
        """A round that is kept samples no more."""
        shutil.rmtree(self.policy(number), ignore_errors=True)


def round_seed(seed: int, number: int) -> int:
    """A seed of 32 bits for each round, so that no two sample alike."""
    return int(hashlib.sha256(f"{seed}\0round {number}".encode()).hexdigest()[:8], 16)


def _share(source: Path, target: Path) -> None:
    """The same file under another name where the disk can, else a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
