"""The policy's weights in torch: a GGUF file, dequantised, or a folder as transformers saves it.

llama.cpp samples from the quantised file and the trainer differentiates through the same numbers
written out in full, so both are one policy up to rounding; the canary row measures the rest. Rows
carry token ids, so no tokenizer is loaded.

Any causal language model of transformers can be trained from a folder of safetensors; what
llama.cpp can then answer with is a GGUF file of the kinds in `SERVED`, as it is or with an adapter.

What can go wrong in a step though its configuration is sound, each in a sentence.
"""

import asyncio
import ctypes
import gc
import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rubricem.agent.weights.checkpoints import MODEL
from rubricem.agent.weights.resolve import base_sha256, resolve_model
from rubricem.memory.errors import PolicyError, SettingsError, WeightsError, boundary
from rubricem.training.rows.row import TrainRow

_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


def check_rows(rows: Sequence[TrainRow], model: Any) -> None:
    """Raises SettingsError for a row that the model cannot read: another tokenizer's, or too long.

    Ids below the vocabulary's end may still be another tokenizer's: see `check_tokenizer`; where a
    row carries the sampler's log-probabilities, those give it away in the step.
    """
    words = _words(model)
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


def check_tokenizer(rows: Sequence[TrainRow], own: str) -> None:
    """Raises SettingsError for a row whose ids are of another vocabulary, where both are known."""
    wrong = [row for row in rows if own and row.tokenizer not in ("", own)]
    if wrong:
        raise SettingsError(
            f"the ids of row {wrong[0].id} are of another tokenizer than the model's.",
            "Name the collected run itself under rows, or export it by --model with this model.",
        )


def check_output(model: Any) -> None:
    """Raises SettingsError for a model that scales or caps its logits.

    They are computed in pieces from the output layer, so that would be left out.
    """
    ids = torch.arange(2, 6, device=model.device).unsqueeze(0)
    with torch.no_grad():
        whole = model(input_ids=ids, use_cache=False).logits
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        plain = model.get_output_embeddings()(hidden)
    if not torch.allclose(whole.float(), plain.float(), rtol=1e-3, atol=1e-3):
        raise SettingsError(
            f"a {model.config.model_type} model scales or caps its logits, which is not done here.",
            "Train a model whose logits are those of its output layer, or by the engine trl.",
        )


def check_packing(model: Any) -> None:
    """Raises SettingsError for a model that does not tell packed rows from one another.

    Some read no borders from the position ids: those with a recurrent state or a convolution see
    across them, and so do some with attention whose positions are not given (OPT, BLOOM, MPT).
    """
    ids = (torch.arange(12, device=model.device) % _words(model)).unsqueeze(0)
    first, second = slice(5), slice(5, 12)
    position = torch.tensor([[*range(5), *range(7)]], device=model.device)

    def states(ids: Tensor, position: Tensor) -> Tensor:
        found = model.base_model(input_ids=ids, position_ids=position, use_cache=False)
        state: Tensor = found.last_hidden_state.float()
        return state

    with torch.no_grad():
        packed = states(ids, position)
        alone = torch.cat([states(ids[:, row], position[:, row]) for row in (first, second)], 1)
    apart = (packed - alone).norm(dim=-1).max() / alone.norm(dim=-1).mean()
    # Half of the digits: of the 0.5B in bfloat16 rounding comes to 0.02 and mixing to 1.
    if not float(apart) <= torch.finfo(model.dtype).eps ** 0.5:
        raise SettingsError(
            f"a {model.config.model_type} model mixes rows that are packed into one sequence.",
            "Leave pack_tokens out, and set micro_batch, by which rows are padded.",
        )


def _words(model: Any) -> int:
    return int(model.get_input_embeddings().num_embeddings)


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


SERVED = ("qwen2",)
"""architectures whose tensors are laid out in the same order here and in llama.cpp"""
DType = Literal["float32", "bfloat16"]


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
    return Base(name, folder, await asyncio.to_thread(_folder_sha256, folder), None)


def load_base(path: Path, dtype: str = "float32") -> Any:
    """The model as a transformers causal LM in evaluation mode, frozen, on the CPU.

    The 0.5B takes half a minute and 4 GB at the peak. Raises WeightsError for weights that cannot
    be read as a model, PolicyError where they do not fit into memory, SettingsError for a GGUF
    file of a kind that cannot be trained.
    """
    model = _from_gguf(path) if path.is_file() else _from_folder(path, dtype)
    _without_dropout(model)
    for parameter in model.parameters():
        # Weights alone: the rotary frequencies are buffers, and rounded they put far tokens wrong.
        parameter.data = parameter.data.to(getattr(torch, dtype))
    return model.requires_grad_(False).eval()


def _from_gguf(path: Path) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    # The reader draws a bar of its own that has no switch.
    with _reading(path.name), redirect_stderr(StringIO()):
        model = AutoModelForCausalLM.from_pretrained(
            str(path.parent), gguf_file=path.name, dtype=torch.float32, **_written_out()
        )
    if model.config.model_type not in SERVED:
        raise SettingsError(
            f"{path.name} is a GGUF file of a {model.config.model_type} model, "
            "whose tensors llama.cpp orders in another way than transformers.",
            f"Name a GGUF file of the kind {', '.join(SERVED)}, such as 0.5b, or a folder of "
            "safetensors; llama.cpp cannot serve what is trained of a folder.",
        )
    return model


def _written_out() -> dict[str, Any]:
    """What has a transformers that can compute with a file's own blocks write them out instead."""
    import transformers

    blocks = getattr(transformers, "GgufConfig", None)
    return {"quantization_config": blocks(dequantize=True)} if blocks else {}


def _from_folder(folder: Path, dtype: str) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with _reading(str(folder)):
        return AutoModelForCausalLM.from_pretrained(
            str(folder), dtype=getattr(torch, dtype), local_files_only=True, use_safetensors=True
        )


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Weights are read on the CPU; too little memory is no fault of theirs."""
    with boundary(WeightsError, f"reading {what} for training"), memory_told(torch.device("cpu")):
        yield


def _without_dropout(model: nn.Module) -> None:
    """Passes over one row must agree, also where a layer is told to train for checkpointing."""
    for module in model.modules():
        for name, value in vars(module).items():
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def checkpoint_activations(model: Any) -> None:
    """Have each block's activations computed again on the way back instead of kept."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    if not model.supports_gradient_checkpointing:
        raise SettingsError(
            f"a {model.config.model_type} model cannot compute its activations again.",
            "Leave gradient_checkpointing out, and set a smaller pack_tokens.",
        )
    old = model.gradient_checkpointing_enable  # the name before transformers 5.20
    getattr(model, "activation_checkpointing_enable", old)({"use_reentrant": False})
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.training = True  # only a block that trains is checkpointed


def _folder_sha256(folder: Path) -> str:
    """Of the hashes of the configuration and the weights, by name."""
    digest = hashlib.sha256()
    for path in sorted([folder / "config.json", *folder.glob("*.safetensors")]):
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def give_back() -> None:
    """Return the memory of what was let go to the system; a model holds itself in cycles.

    Without the trim, glibc keeps three gigabytes of the 0.5B's for itself.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def faster_dtype() -> DType:
    """bfloat16 where this processor multiplies it clearly faster than float32.

    Measured on a layer of the 0.5B's size, since not every processor has instructions for it.
    """
    seconds = {dtype: _seconds(dtype) for dtype in (torch.float32, torch.bfloat16)}
    return "bfloat16" if seconds[torch.bfloat16] < seconds[torch.float32] / 1.3 else "float32"


def _seconds(dtype: torch.dtype) -> float:
    x, weight = torch.ones(512, 896, dtype=dtype), torch.ones(4864, 896, dtype=dtype)
    times = []
    for _ in range(4):
        began = time.perf_counter()
        nn.functional.linear(x, weight)
        times.append(time.perf_counter() - began)
    return min(times)
