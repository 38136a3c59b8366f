"""The weights that a training begins with: a GGUF file, dequantised, or a folder of safetensors.

llama.cpp samples from the quantised file and the trainer differentiates through the same numbers
written out in full, so both are one policy up to rounding; the canary row measures the rest. Rows
carry token ids, so no tokenizer is loaded. Any causal language model of transformers can be
trained from a folder; what llama.cpp can then answer with is a GGUF file of the kinds in `SERVED`,
as it is or with an adapter.
"""

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rubricem.agent.weights.checkpoints import MODEL
from rubricem.agent.weights.resolve import base_sha256, resolve_model
from rubricem.memory.errors import PolicyError, SettingsError, WeightsError, boundary
from rubricem.training.rows.row import TrainRow

SERVED = ("qwen2",)
"""architectures whose tensors are laid out in the same order here and in llama.cpp"""


@dataclass(frozen=True, slots=True)
class Base:
    """Weights that a training begins with."""

    name: str
    """under which llama.cpp's weights are had again, or the folder's"""
    path: Path
    """a GGUF file, or a folder"""
    sha256: str
    gguf: Path | None
    """what llama.cpp loads of it; None where it can serve nothing that is trained of it"""


async def find_base(name: str, weights_dir: Path | None = None) -> Base:
    """The weights of a model's name, fetched where they are not on disk.

    A folder with a model.gguf, as full training leaves, is served as that. Raises SettingsError
    for a name that means nothing, WeightsError for weights that are damaged or cannot be had.
    """
    folder = Path(name).expanduser()
    if not (folder / "config.json").is_file():
        path = await resolve_model(name, directory=weights_dir)
        return Base(name, path, await base_sha256(name, path), path)
    gguf = folder / MODEL
    if gguf.is_file():
        return Base(str(gguf), folder, await base_sha256(str(gguf), gguf), gguf)
    return Base(name, folder, await asyncio.to_thread(_hash_folder, folder), None)


def _hash_folder(folder: Path) -> str:
    """Of the hashes of the configuration and the weights, by name."""
    digest = hashlib.sha256()
    for path in sorted([folder / "config.json", *folder.glob("*.safetensors")]):
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def load_base(path: Path, dtype: str = "float32") -> Any:
    """The model as a transformers causal LM in evaluation mode, frozen, on the CPU.

    The 0.5B takes half a minute and 4 GB at the peak. Raises WeightsError for weights that cannot
    be read as a model, PolicyError where they do not fit into memory, SettingsError for a GGUF
    file of a kind that cannot be trained.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    model = _from_gguf(path) if path.is_file() else _from_folder(path, dtype)
    for module in model.modules():
        # Passes over one row must agree, also where a layer is told to train for checkpointing.
        for name, value in vars(module).items():
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    for parameter in model.parameters():
        # Weights alone: the rotary frequencies are buffers, and rounded they put far tokens wrong.
        parameter.data = parameter.data.to(getattr(torch, dtype))
    return model.requires_grad_(False).eval()


def _from_gguf(path: Path) -> Any:
    import transformers

    # A transformers that can compute with a file's own blocks is to write them out instead.
    blocks = getattr(transformers, "GgufConfig", None)
    more = {"quantization_config": blocks(dequantize=True)} if blocks else {}
    # The reader draws a bar of its own that has no switch.
    with _reading(path.name), redirect_stderr(StringIO()):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            str(path.parent), gguf_file=path.name, dtype=torch.float32, **more
        )
    if model.config.model_type not in SERVED:
        raise SettingsError(
            f"{path.name} is a GGUF file of a {model.config.model_type} model, "
            "whose tensors llama.cpp orders in another way than transformers.",
            f"Name a GGUF file of the kind {', '.join(SERVED)}, such as 0.5b, or a folder of "
            "safetensors; llama.cpp cannot serve what is trained of a folder.",
        )
    return model


def _from_folder(folder: Path, dtype: str) -> Any:
    from transformers import AutoModelForCausalLM

    with _reading(str(folder)):
        return AutoModelForCausalLM.from_pretrained(
            str(folder), dtype=getattr(torch, dtype), local_files_only=True, use_safetensors=True
        )


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Weights are read on the CPU; too little memory is no fault of theirs."""
    with boundary(WeightsError, f"reading {what} for training"), memory_told(torch.device("cpu")):
        yield


_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


@contextmanager
def memory_told(device: torch.device) -> Iterator[None]:
    """Say in a sentence that the memory was not enough."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(t in str(error) for t in _NO_MEMORY):
            raise
        where = "the GPU's memory" if device.type == "cuda" else "the memory"
        raise PolicyError(
            f"{where} is not enough for this training.",
            "Set a smaller pack_tokens or micro_batch, gradient_checkpointing = true, a smaller "
            'max_row_tokens, or the adaptation "lora"; then go on by the same command.',
        ) from error


def check_rows(rows: Sequence[TrainRow], model: Any) -> None:
    """Raises SettingsError for a row that the model cannot read: another tokenizer's, or too long.

    Ids below the vocabulary's end may still be another tokenizer's, as a session tells; where a row
    carries the sampler's log-probabilities, those give it away in the step.
    """
    words = vocabulary_size(model)
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    for row in rows:
        if row.ids and not 0 <= min(row.ids) <= max(row.ids) < words:
            wrong = max(row.ids) if max(row.ids) >= words else min(row.ids)
            raise SettingsError(
                f"row {row.id} has the token id {wrong}, and the model knows {words:,} tokens: "
                "the row is of another tokenizer.",
                "Train the model that the rows were collected with.",
            )
        if context and len(row.ids) > context:
            raise SettingsError(
                f"row {row.id} has {len(row.ids):,} tokens, and the model reads {context:,}.",
                f"Set max_row_tokens to {context} or less.",
            )


def vocabulary_size(model: Any) -> int:
    return int(model.get_input_embeddings().num_embeddings)
