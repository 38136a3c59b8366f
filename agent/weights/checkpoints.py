"""A trained policy on disk: a folder with an adapter, and a note of the weights it belongs to.

    checkpoint.json             which weights, which step of which training (`Checkpoint`)
    adapter.gguf                the adapter as llama.cpp loads it
    adapter_model.safetensors   the same for torch (peft's names), with adapter_config.json

The trainer writes such folders; `--model FOLDER` answers with one.
"""

import hashlib
from pathlib import Path

from pydantic import ValidationError

from memory.errors import WeightsError
from memory.schema import Value

NOTE, ADAPTER = "checkpoint.json", "adapter.gguf"


class Checkpoint(Value):
    """What an adapter is, and of what."""

    schema_version: int = 1
    base: str
    """the name under which the weights were had: of the catalogue, a path or a hub name"""
    base_sha256: str
    adapter_sha256: str
    """of adapter.gguf"""
    method: str
    """`sft` or `ss-grpo`"""
    step: int
    rank: int
    alpha: float
    lineage: tuple[str, ...] = ()
    """the adapters it was started from, as `version`s, oldest first"""

    @property
    def version(self) -> str:
        return f"{self.method}-{self.step}-{self.adapter_sha256[:12]}"


def is_checkpoint(name: str) -> bool:
    """Whether a model's name is a folder with a trained adapter."""
    return (Path(name).expanduser() / NOTE).is_file()


def read_checkpoint(folder: Path) -> Checkpoint:
    """The folder's note; raises WeightsError when it or the adapter is missing or altered."""
    try:
        note = Checkpoint.model_validate_json((folder / NOTE).read_bytes())
        adapter = hashlib.sha256((folder / ADAPTER).read_bytes()).hexdigest()
    except (OSError, ValidationError) as cause:
        raise WeightsError(
            f"{folder} is not a whole checkpoint: {type(cause).__name__}.",
            "Name a checkpoint folder that `rubricem train` has written.",
        ) from cause
    if adapter != note.adapter_sha256:
        raise WeightsError(
            f"{folder / ADAPTER} is not the adapter that was trained: its hash differs.",
            "Go on with the training once more, or name another checkpoint.",
        )
    return note
