"""A checkpoint as a model of its own: whole weights, for transformers and for llama.cpp.

    model.safetensors, config.json   for transformers, in float32
    model.gguf                       for llama.cpp, where the training began with a GGUF file
    checkpoint.json                  so that `--model FOLDER` answers with it

The tokenizer's files are copied along from a folder of safetensors; a GGUF file carries its own.
"""

import asyncio
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from agent.weights.checkpoints import MODEL, NOTE, Checkpoint
from memory.errors import SettingsError, WeightsError, boundary
from memory.runs import writable
from training.local.base_model import Base, find_base, load_base
from training.local.checkpoint_files import CONFIG, WEIGHTS, fault, hashed, read_weights, seal
from training.local.lora import Adapter
from training.local.model_gguf import write_model

_TOKENIZER = ("*token*", "vocab.*", "merges.txt", "chat_template*", "generation_config.json")


async def export_checkpoint(checkpoint: Path, out: Path, weights_dir: Path | None = None) -> Path:
    """Write the whole model of a checkpoint into a new folder; returns the folder.

    Raises WeightsError for a checkpoint that is not whole or other base weights, SettingsError
    for a folder that is there already.
    """
    note = await asyncio.to_thread(_checked, checkpoint, out)
    base = await find_base(note.base, weights_dir)
    if base.sha256 != note.base_sha256:
        raise WeightsError(
            f"{checkpoint} was trained on other weights than {base.path.name}.",
            f"Put back the weights whose SHA-256 is {note.base_sha256}.",
        )
    await asyncio.to_thread(_write, checkpoint, out, note, base)
    return out


def merged(model: torch.nn.Module, adapter: Adapter) -> dict[str, Tensor]:
    """All weights of a model with its adapter in them, float32, named as without an adapter."""
    found = {name: weight.detach().float() for name, weight in model.named_parameters()}
    for name, layer in adapter.layers.items():
        a, b = found.pop(f"{name}.lora_a"), found.pop(f"{name}.lora_b")
        found[f"{name}.weight"] = found.pop(f"{name}.linear.weight") + layer.scale * b @ a
        if layer.linear.bias is not None:
            found[f"{name}.bias"] = found.pop(f"{name}.linear.bias")
    return found


def _checked(checkpoint: Path, out: Path) -> Checkpoint:
    if wrong := fault(checkpoint):
        raise WeightsError(
            f"{checkpoint} is not a whole checkpoint: {wrong}.",
            "Name a checkpoint folder that `rubricem train` has written.",
        )
    if out.exists():
        raise SettingsError(f"{out} is there already.", "Name a new folder.")
    with boundary(WeightsError, f"reading {checkpoint / NOTE}"):
        return Checkpoint.model_validate_json((checkpoint / NOTE).read_bytes())


def _write(checkpoint: Path, out: Path, note: Checkpoint, base: Base) -> None:
    model = load_base(base.path)
    if note.adaptation == "lora":
        adapter = Adapter.attach(model, note.rank, note.alpha, seed=0)
        adapter.load(read_weights(checkpoint, "lora"))
        weights = merged(model, adapter)
    else:
        weights = read_weights(checkpoint, "full")
    temporary = out.with_name(f".{out.name}.part")
    with writable(out):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        save_file(weights, temporary / WEIGHTS["full"], metadata={"format": "pt"})
        config = model.config.to_dict() | {"dtype": "float32"}
        (temporary / CONFIG["full"]).write_text(json.dumps(config, indent=1), encoding="utf-8")
        _write_gguf(temporary, weights, base)
        _write_note(temporary, note)
        seal(temporary)
        temporary.rename(out)


def _write_gguf(folder: Path, weights: dict[str, Tensor], base: Base) -> None:
    if base.gguf is not None:
        write_model(folder / MODEL, base.gguf, weights)
        return
    for pattern in _TOKENIZER:
        for path in base.path.glob(pattern):
            shutil.copy2(path, folder / path.name)


def _write_note(folder: Path, note: Checkpoint) -> None:
    """Of all weights now, which the adapter's sampler would call by the same lineage."""
    whole = folder / MODEL
    changed = {
        "adaptation": "full",
        "adapter_sha256": hashed(folder / WEIGHTS["full"]),
        "model_sha256": hashed(whole) if whole.exists() else "",
        "lineage": (*note.lineage, note.version),
    }
    text = note.model_copy(update=changed).model_dump_json(indent=1)
    (folder / NOTE).write_text(text, encoding="utf-8")
