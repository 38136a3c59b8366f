"""A Qwen2 of 0.1 million random weights as a GGUF file, which torch and llama.cpp both load."""

from pathlib import Path

import gguf
import numpy as np

HIDDEN, INNER, BLOCKS, HEADS, KV_HEADS = 64, 96, 2, 4, 2
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def letters() -> list[str]:
    """The 256 characters by which byte-level BPE writes bytes, in the order of the bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(rest)) for byte in range(256)]


def vocabulary() -> list[str]:
    return [*letters(), "th", "<|im_start|>", "<|im_end|>", "<|endoftext|>"]


def write_tiny(path: Path, seed: int = 0) -> Path:
    """Write the model; weights are large enough that its probabilities are far from uniform."""
    writer = gguf.GGUFWriter(str(path), "qwen2")
    writer.add_name("tiny")
    writer.add_context_length(2048)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(BLOCKS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    _add_tokenizer(writer)
    random = np.random.default_rng(seed)
    for name, shape in shapes().items():
        writer.add_tensor(name, _values(name, shape, random))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def shapes() -> dict[str, tuple[int, ...]]:
    words, kv = len(vocabulary()), HIDDEN * KV_HEADS // HEADS
    found: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (words, HIDDEN),
        "output.weight": (words, HIDDEN),
        "output_norm.weight": (HIDDEN,),
    }
    for block in range(BLOCKS):
        parts: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (HIDDEN,),
            "ffn_norm.weight": (HIDDEN,),
            "attn_q.weight": (HIDDEN, HIDDEN),
            "attn_q.bias": (HIDDEN,),
            "attn_k.weight": (kv, HIDDEN),
            "attn_k.bias": (kv,),
            "attn_v.weight": (kv, HIDDEN),
            "attn_v.bias": (kv,),
            "attn_output.weight": (HIDDEN, HIDDEN),
            "ffn_gate.weight": (INNER, HIDDEN),
            "ffn_up.weight": (INNER, HIDDEN),
            "ffn_down.weight": (HIDDEN, INNER),
        }
        found |= {f"blk.{block}.{name}": shape for name, shape in parts.items()}
    return found


def _values(name: str, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    if name.endswith("norm.weight"):
        return np.ones(shape, dtype=np.float32)
    size = 0.1 if name.endswith("bias") else 1.5 * shape[-1] ** -0.5
    return (random.standard_normal(shape) * size).astype(np.float32)


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    words = vocabulary()
    kinds = [
        gguf.TokenType.CONTROL if word.startswith("<|") else gguf.TokenType.NORMAL for word in words
    ]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(words)
    writer.add_token_types(kinds)
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(words.index("<|im_end|>"))
    writer.add_bos_token_id(words.index("<|endoftext|>"))
    writer.add_pad_token_id(words.index("<|endoftext|>"))
    writer.add_chat_template(TEMPLATE)
