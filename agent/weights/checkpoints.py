"""A trained policy on disk: a folder with trained weights, and a note of what they began as.

    checkpoint.json             which weights, which step of which training (`Checkpoint`)
    adapter.gguf                an adapter as llama.cpp loads it
    adapter_model.safetensors   the same for torch (peft's names), with adapter_config.json
    model.gguf                  instead of an adapter: all weights, as llama.cpp loads them
    model.safetensors           the same for torch, with config.json

The trainer writes such folders; `--model FOLDER` answers with one.
"""

import os
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from rubricem.memory.errors import WeightsError
from rubricem.memory.runs import hash_of
from rubricem.memory.schema import Value

NOTE, ADAPTER, MODEL = "checkpoint.json", "adapter.gguf", "model.gguf"


class Checkpoint(Value):
    """What an adapter is, and of what."""

    schema_version: int = 1
    base: str
    """the name under which the weights were had: of the catalogue, a path or a hub name; on disk a
    path from the folder that the note lies in"""
    base_sha256: str
    adapter_sha256: str
    """of adapter.gguf; where there is none, of the weights for torch"""
    model_sha256: str = ""
    """of model.gguf, where all weights were trained and written for llama.cpp"""
    adaptation: Literal["lora", "full"] = "lora"
    served: bool = True
    """whether llama.cpp can answer with it"""
    method: str
    """`sft`, `ss-grpo` or `judge-grpo`"""
    step: int
    rank: int
    alpha: float
    adapted_blocks: int | None = None
    """how many of the last blocks have an adapter; None: all"""
    judge: Literal["full", "no-types", "no-rubric"] | None = None
    """the form in which it was trained to compare two replies; None: it is no judge"""
    lineage: tuple[str, ...] = ()
    """the adapters it was started from, as `version`s, oldest first"""

    def beside(self, folder: Path) -> "Checkpoint":
        """The note as it is written into a folder: a base that is a path is told from there.

        Folder and base may then be moved or mounted elsewhere together; `note_of` reads it.
        """
        base = Path(self.base)
        told = os.path.relpath(base, folder.resolve()) if base.is_absolute() else self.base
        return self.model_copy(update={"base": told})

    @property
    def version(self) -> str:
        return f"{self.method}-{self.step}-{self.adapter_sha256[:12]}"

    @staticmethod
    def for_llama(folder: Path) -> "Checkpoint":
        """The folder's note, of something that llama.cpp can answer with.

        Raises WeightsError when a file is missing or altered, or is not for llama.cpp.
        """
        note = note_of(folder)
        if not note.served or (note.adaptation != "lora" and not note.model_sha256):
            raise WeightsError(
                f"llama.cpp cannot answer with the checkpoint {folder}: it is for torch alone.",
                "Load it by transformers; where it was trained from a GGUF file, export it by "
                "`rubricem train export`.",
            )
        try:
            full = note.adaptation == "full"
            file, expected = (MODEL, note.model_sha256) if full else (ADAPTER, note.adapter_sha256)
            found = hash_of(folder / file)
        except OSError as cause:
            raise _not_whole(folder, cause) from cause
        if found != expected:
            raise WeightsError(
                f"{folder / file} is not what was trained: its hash differs.",
                "Go on with the training once more, or name another checkpoint.",
            )
        return note


def is_checkpoint(name: str) -> bool:
    """Whether a model's name is a folder with a trained adapter."""
    return (Path(name).expanduser() / NOTE).is_file()


def note_of(folder: Path) -> Checkpoint:
    """The folder's note, whose weights are not looked at. Raises WeightsError."""
    try:
        note = Checkpoint.model_validate_json((folder / NOTE).read_bytes())
    except (OSError, ValidationError) as cause:
        raise _not_whole(folder, cause) from cause
    if note.base.startswith(f"..{os.sep}"):
        base = os.path.normpath(folder.resolve() / note.base)
        return note.model_copy(update={"base": base})
    return note


def _not_whole(folder: Path, cause: Exception) -> WeightsError:
    return WeightsError(
        f"{folder} is not a whole checkpoint: {type(cause).__name__}.",
        "Name a checkpoint folder that `rubricem train` has written.",
    )
