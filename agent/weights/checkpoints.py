"""A trained policy on disk: a folder with trained weights, and a note of their origin.

    checkpoint.json             which weights, which step of which training (`Checkpoint`)
    adapter.gguf                an adapter for llama.cpp
    adapter_model.safetensors   the same for torch (peft's names), with adapter_config.json
    model.gguf                  instead of an adapter: all weights, as written by ec15fe0e
    model.safetensors           the same for torch, with config.json

Of a GGUF file single fields are read (`gguf_fields`).
"""

import os
import struct
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO, Literal

from pydantic import ValidationError

from rubricem.memory.errors import WeightsError
from rubricem.memory.runs import hash_of
from rubricem.memory.schema import Value

NOTE, ADAPTER, MODEL = "checkpoint.json", "adapter.gguf", "model.gguf"


class Checkpoint(Value):
    """What was trained, from which weights, and how."""

    schema_version: int = 1
    base: str
    """the name of the base weights: of the catalogue, or a path; on disk, a path is
        relative to the note's folder"""
    base_sha256: str
    adapter_sha256: str
    """of adapter.gguf; if there is none, of the weights for torch"""
    model_sha256: str = ""
    """of model.gguf, which earlier versions wrote where all weights were trained"""
    adaptation: Literal["lora", "full"] = "lora"
    served: bool = True
    method: str
    """`sft`, `ss-grpo` or `judge-grpo`"""
    step: int
    rank: int
    alpha: float
    judge: Literal["full"] | None = None
    """the form in which it was trained to compare two replies; None: it is no judge"""
    lineage: tuple[str, ...] = ()
    """the adapters it was continued from, as `version`s, oldest first"""

    def beside(self, folder: Path) -> "Checkpoint":
        """The note as written into a folder: a base that is a path becomes relative to it.

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
        """The note of a folder that llama.cpp can run.

        Raises WeightsError if a file is missing or altered, or is not for llama.cpp.
        """
        note = note_of(folder)
        if not note.served or (note.adaptation != "lora" and not note.model_sha256):
            raise WeightsError(
                f"llama.cpp cannot answer with the checkpoint {folder}: it is for torch alone.",
                "Load it by transformers or peft, or name a server that has it.",
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
    """Whether a model's name is a folder with a trained checkpoint."""
    return (Path(name).expanduser() / NOTE).is_file()


def note_of(folder: Path) -> Checkpoint:
    """The folder's note; the weights are not checked. Raises WeightsError."""
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


_STRING, _ARRAY = 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""size in bytes of a GGUF value by the number of its type"""


def gguf_fields(file: BinaryIO, wanted: Collection[bytes]) -> dict[bytes, Any]:
    """Those of the wanted fields that a GGUF file has; reading stops after the last one.

    A string is bytes, as is an array of numbers. Raises various errors if the file is no GGUF.
    """
    found: dict[bytes, Any] = {}
    _, _, count = struct.unpack("<8sQQ", file.read(24))
    for _ in range(count):
        name = _value(file, _STRING)
        value = _value(file, *struct.unpack("<I", file.read(4)))
        if name in wanted:
            found[name] = value
        if len(found) == len(wanted):
            break
    return found


def _value(file: BinaryIO, kind: int) -> Any:
    """A value: bytes, or a list of them for an array of strings or arrays."""
    if kind == _STRING:
        return file.read(*struct.unpack("<Q", file.read(8)))
    if kind != _ARRAY:
        return file.read(_SIZES[kind])
    inner, count = struct.unpack("<IQ", file.read(12))
    if inner in _SIZES:
        return file.read(count * _SIZES[inner])
    return [_value(file, inner) for _ in range(count)]
