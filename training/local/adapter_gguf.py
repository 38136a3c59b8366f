"""A LoRA adapter as llama.cpp reads it: a GGUF file with two matrices for each adapted tensor.

The layout is that of llama.cpp's own converter: `<tensor>.lora_a` is (r, in) and
`<tensor>.lora_b` is (out, r), with `adapter.lora.alpha`; the scale alpha / r is llama.cpp's
to apply. Numbers stay float32.
"""

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
from torch import Tensor

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
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensor_name(name: str) -> str:
    """`...layers.3.mlp.up_proj.lora_A.weight` -> `blk.3.ffn_up.weight.lora_a`."""
    _, found, inner = name.partition(".layers.")
    block, _, rest = inner.partition(".")
    layer, _, part = rest.removesuffix(".weight").rpartition(".")
    if not found or layer not in TENSORS or part not in ("lora_A", "lora_B"):
        raise ValueError(f"{name} is not a matrix of an adapter in a block")
    return f"blk.{block}.{TENSORS[layer]}.weight.{part.lower()}"
