"""What a training has kept of its numbers, read from its folder without loading torch.

    run.json                        what it was told
    metrics.jsonl                   a line for each update
    rounds.jsonl                    a line for each round, where the policy collects by itself
    held_out/NNN/numbers.json       the held-out questions after NNN rounds
    held_out/NNN.json               of a judge: the held-out pairs after NNN rounds
    canary.json                     how far llama.cpp's log-probabilities are from the trainer's

A training in rounds is counted in rounds, since those are what is collected, judged and kept.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.trained_numbers import object_of, objects_of, training_record

RECORD, STEPS, ROUNDS, HELD_OUT = "run.json", "metrics.jsonl", "rounds.jsonl", "held_out"
NUMBERS, CANARY = "numbers.json", "canary.json"
Numbered = list[tuple[int, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class KeptNumbers:
    """One training's numbers, in order."""

    record: dict[str, Any] = field(default_factory=dict)
    unit: str = "step"
    """what `steps` counts: `step`, or `round`"""
    steps: Numbered = field(default_factory=list)
    held_out: Numbered = field(default_factory=list)
    """each under the number of rounds before it"""
    pairs: Numbered = field(default_factory=list)
    """of a judge: what its held-out pairs came to, likewise"""
    canary: dict[str, Any] = field(default_factory=dict)

    @property
    def last(self) -> dict[str, Any]:
        """The metrics of the last step."""
        return self.steps[-1][1] if self.steps else {}


def is_training(folder: Path) -> bool:
    """Whether a folder is a training's, begun at least."""
    return (folder / RECORD).is_file() and not (folder / "manifest.json").exists()


def kept_numbers(folder: Path) -> KeptNumbers:
    """Read a training; what it has not kept yet is empty. Raises StoreError for damaged files."""
    unit = "round" if (folder / ROUNDS).exists() else "step"
    lines = objects_of(folder / (ROUNDS if unit == "round" else STEPS))
    return KeptNumbers(
        record=training_record(folder),
        unit=unit,
        steps=[(int(line.get(unit, place)), line) for place, line in enumerate(lines, start=1)],
        held_out=_held_out(folder / HELD_OUT),
        pairs=_pairs(folder / HELD_OUT),
        canary=object_of(folder / CANARY),
    )


def _held_out(folder: Path) -> Numbered:
    paths = sorted(folder.glob(f"[0-9]*/{NUMBERS}"))
    return [(int(path.parent.name), object_of(path)) for path in paths]


def _pairs(folder: Path) -> Numbered:
    """The measures of `judge.evaluation.report.PairReport`, by their names."""
    paths = sorted(folder.glob("[0-9]*.json"))
    return [(int(path.stem), dict(object_of(path).get("measures", {}))) for path in paths]
