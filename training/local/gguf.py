"""What is trained, as llama.cpp reads it: GGUF files, laid out as its own converter does.

An adapter has two matrices for each adapted tensor: `<tensor>.lora_a` is (r, in) and
`<tensor>.lora_b` is (out, r), with `adapter.lora.alpha`; the scale alpha / r is llama.cpp's to
apply. Numbers stay float32. A whole model is trained weights under the metadata of what they began
as: tokenizer, chat template and sizes are copied from that file; matrices are written as float16
and all else as float32, and nothing is quantised.
"""

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
from torch import Tensor

from rubricem.memory.errors import SettingsError

TENSORS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""a block's layers in transformers, and their tensors in a GGUF file"""


def write_adapter(
    path: Path, state: Mapping[str, Tensor], alpha: float, architecture: str = "qwen2"
) -> None:
    """Write an adapter's state, named as by peft. Raises ValueError for a layer not in a block."""
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, alpha)
    for name, tensor in state.items():
        writer.add_tensor(tensor_name(name), np.ascontiguousarray(tensor.float().numpy()))
    _finish(writer)


def tensor_name(name: str) -> str:
    """`...layers.3.mlp.up_proj.lora_A.weight` -> `blk.3.ffn_up.weight.lora_a`."""
    _, found, inner = name.partition(".layers.")
    block, _, rest = inner.partition(".")
    layer, _, part = rest.removesuffix(".weight").rpartition(".")
    if not found or layer not in TENSORS or part not in ("lora_A", "lora_B"):
        raise ValueError(f"{name} is not a matrix of an adapter in a block")
    return f"blk.{block}.{TENSORS[layer]}.weight.{part.lower()}"


_WHOLE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
_LAYERS = _NORMS | {theirs: ours for ours, theirs in TENSORS.items()}


def write_model(path: Path, template: Path, state: Mapping[str, Tensor]) -> None:
    """Write all weights, named as by transformers. Raises SettingsError where one is missing."""
    reader = gguf.GGUFReader(template)
    architecture = reader.fields[gguf.Keys.General.ARCHITECTURE].contents()
    writer = gguf.GGUFWriter(str(path), architecture)
    keys = gguf.Keys.General
    own = (keys.ARCHITECTURE, keys.FILE_TYPE, keys.QUANTIZATION_VERSION)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in own:
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, _values(tensor.name, state))
    _finish(writer)


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def weight_name(tensor: str) -> str:
    """`blk.3.ffn_up.weight` -> `model.layers.3.mlp.up_proj.weight`."""
    stem, _, kind = tensor.rpartition(".")
    block, _, layer = stem.rpartition(".")
    if block.startswith("blk.") and layer in _LAYERS:
        return f"model.layers.{block[4:]}.{_LAYERS[layer]}.{kind}"
    if stem in _WHOLE:
        return f"{_WHOLE[stem]}.{kind}"
    raise SettingsError(
        f"the tensor {tensor} has no counterpart in transformers.",
        "Train an adapter, which llama.cpp applies to the file as it is.",
    )


def _values(tensor: str, state: Mapping[str, Tensor]) -> np.ndarray:
    name = weight_name(tensor)
    if name not in state:
        raise SettingsError(
            f"the trained model has no {name}, which {tensor} is made of.",
            "Export to the file that the training began with.",
        )
    values = state[name].float().numpy()
    return values.astype(np.float16) if values.ndim > 1 else values
