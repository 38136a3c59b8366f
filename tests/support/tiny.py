"""A model of 0.1 million random weights as a GGUF file, which torch and llama.cpp both load.

Beside it a small sentence-transformers model in a folder, with prompts of its own for queries.
"""

from pathlib import Path
from typing import Any

import gguf
import numpy as np

HIDDEN, INNER, BLOCKS, HEADS, KV_HEADS = 64, 96, 2, 4, 2
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def vocabulary() -> list[str]:
    """The bytes of ASCII as byte-level BPE writes them, one longer token, and the special ones.

    No byte of a longer character: llama.cpp would hold such tokens back until it is whole.
    """
    ascii_bytes = [chr(byte) if 33 <= byte < 127 else chr(256 + byte) for byte in range(127)]
    ascii_bytes.append(chr(256 + 33))  # byte 127 is the 34th that has no letter of its own
    return [*ascii_bytes, "th", "<|im_start|>", "<|im_end|>", "<|endoftext|>"]


def write_tiny(path: Path, seed: int = 0, kind: str = "qwen2") -> Path:
    """Write the model; weights are large enough that its probabilities are far from uniform.

    `kind`: qwen2, qwen3 or llama.
    """
    writer = gguf.GGUFWriter(str(path), kind)
    writer.add_name("tiny")
    writer.add_context_length(16384)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(BLOCKS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    if kind != "qwen2":
        writer.add_rope_dimension_count(HIDDEN // HEADS)
        writer.add_key_length(HIDDEN // HEADS)
        writer.add_value_length(HIDDEN // HEADS)
    _add_tokenizer(writer)
    random = np.random.default_rng(seed)
    for name, shape in shapes(kind).items():
        writer.add_tensor(name, _values(name, shape, random))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def shapes(kind: str = "qwen2") -> dict[str, tuple[int, ...]]:
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
        if kind != "qwen2":
            parts = {name: shape for name, shape in parts.items() if not name.endswith("bias")}
        if kind == "qwen3":
            parts |= {f"attn_{part}_norm.weight": (HIDDEN // HEADS,) for part in "qk"}
        found |= {f"blk.{block}.{name}": shape for name, shape in parts.items()}
    return found


def _values(name: str, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Random weights, but the first hidden value is the same everywhere and bars special tokens.

    So what the model samples is always text.
    """
    if name.endswith("norm.weight"):
        return np.ones(shape, dtype=np.float32)
    size = 0.1 if name.endswith("bias") else 1.5 * shape[-1] ** -0.5
    values = (random.standard_normal(shape) * size).astype(np.float32)
    if name == "token_embd.weight":
        values[:, 0] = 1.0
    elif name.endswith(("attn_output.weight", "ffn_down.weight")):
        values[0] = 0.0
    elif name == "output.weight":
        values[:, 0] = [-40.0 if word.startswith("<|") else 0.0 for word in vocabulary()]
    return values


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


def write_tokenizer(folder: Path, words: list[str] | None = None, template: str = TEMPLATE) -> None:
    """The same tokenizer as transformers keeps it beside a folder's weights."""
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    words = words or vocabulary()
    special = [word for word in words if word.startswith("<|")]
    plain = {word: number for number, word in enumerate(words) if word not in special}
    bare = Tokenizer(BPE(plain, [("t", "h")]))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    bare.add_special_tokens([AddedToken(word, special=True) for word in special])
    fast: Any = PreTrainedTokenizerFast  # untyped in some versions of transformers
    whole = fast(tokenizer_object=bare, chat_template=template or None)
    whole.save_pretrained(folder)


WORDS = ("cache", "heap", "rome", "find", "[UNK]")


def write_small_embedder(folder: Path, prompts: dict[str, str] | None = None) -> Path:
    """One axis for each word, and the prompts that the model names for what it reads."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer = Tokenizer(WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    module = StaticEmbedding(tokenizer, embedding_weights=np.eye(len(WORDS), dtype=np.float32))
    model = SentenceTransformer(modules=[module], prompts=prompts, device="cpu")
    model.save(str(folder), create_model_card=False)
    return folder
