"""Sentence vectors of BERT encoders by onnxruntime, straight from their safetensors.

The same vectors as sentence-transformers gives for such a model (Devlin et al. 2019; mean pooling,
Reimers and Gurevych 2019) without torch: the graph is built here and passed to the runtime in
memory, so that a folder contains only its publisher's files. Its nodes are onnxruntime's fused ones
for BERT, of the domain `com.microsoft`. Only models of exactly this kind are read; for all others
`BertEncoder.can_read` is false.

An ONNX file is a protocol buffer, of which so little is used that it is encoded here: a field is a
key, `number << 3 | wire type`, and its value; the numbers are those of onnx.proto3.
"""

import json
import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rubricem.memory.errors import import_extra

Floats = NDArray[np.float32]
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"
_OPSET, _FUSED = 17, "com.microsoft"
_FLOAT, _INT32 = 1, 6
_WHAT = "The embedding model"


class BertEncoder:
    """A loaded model. Not safe to share between threads."""

    def __init__(self, folder: Path) -> None:
        """Raises SettingsError if a package is missing, and whatever a damaged file causes."""
        ort, tokenizers = (
            import_extra(name, "memory", _WHAT) for name in ("onnxruntime", "tokenizers")
        )
        held = import_extra("safetensors.numpy", "memory", _WHAT).load_file(folder / WEIGHTS)
        weights = {name.removeprefix("bert."): held[name].astype(np.float32) for name in held}
        config = _read(folder / "config.json")
        window = int(config["max_position_embeddings"])
        said = _read_if(folder / "sentence_bert_config.json").get("max_seq_length")
        said = said or _read_if(folder / "tokenizer_config.json").get("model_max_length")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / TOKENIZER))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(min(window, int(said or window)))
        self._words = weights["embeddings.word_embeddings.weight"]
        self._places = weights["embeddings.position_embeddings.weight"]
        self._places = self._places + weights["embeddings.token_type_embeddings.weight"][0]
        options = ort.SessionOptions()
        # Said, they are not tied to cores that this process may not have; and idle they sleep.
        affinity = getattr(os, "sched_getaffinity", None)  # not on every system
        options.intra_op_num_threads = len(affinity(0)) if affinity else os.cpu_count() or 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = ort.InferenceSession(
            _model(weights, config), options, providers=["CPUExecutionProvider"]
        )

    @staticmethod
    def can_read(folder: Path) -> bool:
        """Whether a folder is such an encoder, with mean pooling and no prompts."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            bert, pooling = (
                _read(folder / "config.json"),
                _read(folder / "1_Pooling" / "config.json"),
            )
            kinds = [part["type"].rpartition(".")[2] for part in _read(folder / "modules.json")]
            prompts = _read_if(folder / "config_sentence_transformers.json").get("prompts", {})
            modes = {name for name, on in pooling.items() if name.startswith("pooling_mode") and on}
            return (
                kinds in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
                and (bert["model_type"], bert["hidden_act"]) == ("bert", "gelu")
                and bert.get("position_embedding_type", "absolute") == "absolute"
                and modes in ({"pooling_mode_mean_tokens"}, {"pooling_mode"})
                and pooling.get("pooling_mode", "mean") == "mean"
                and bert.get("dtype", bert.get("torch_dtype", "float32")) in ("float32", "float16")
                and not any(prompts.values())
                and not _read_if(folder / "sentence_bert_config.json").get("do_lower_case")
                and all((folder / name).is_file() for name in (WEIGHTS, TOKENIZER))
            )
        return False

    @property
    def size(self) -> int:
        return int(self._words.shape[1])

    def encode(self, texts: Sequence[str], batch: int) -> Floats:
        """(n, d): the mean of each text's tokens, at length 1. Similar lengths share a batch."""
        ids = [found.ids for found in self._tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
        vectors = np.empty((len(ids), self.size), dtype=np.float32)
        for first in range(0, len(order), batch):
            rows = order[first : first + batch]
            vectors[rows] = self._read_batch([ids[row] for row in rows])
        lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        units: Floats = np.divide(vectors, lengths, dtype=np.float32)
        return units

    def _read_batch(self, ids: Sequence[Sequence[int]]) -> Floats:
        lengths = np.array([len(row) for row in ids])
        widest = int(lengths.max())
        seen = np.arange(widest) < lengths[:, None]
        padded = np.zeros(seen.shape, dtype=np.int64)
        padded[seen] = np.concatenate(ids)
        read = self._words[padded] + self._places[:widest]
        (states,) = self._session.run(None, {"x": read, "seen": seen.astype(np.int32)})
        sums = np.einsum("btd,bt->bd", states, seen.astype(np.float32))
        means: Floats = np.divide(sums, lengths[:, None], dtype=np.float32)
        return means


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def _read_if(file: Path) -> dict[str, Any]:
    """A file's JSON value, or {} if a model lacks the file."""
    return dict(_read(file)) if file.exists() else {}


def _model(weights: dict[str, Floats], config: dict[str, Any]) -> bytes:
    """The encoder: (batch, tokens, d) sums of embeddings "x" and a mask "seen" to the states."""
    nodes, tensors = bytearray(), bytearray()

    def tensor(name: str, values: Floats) -> str:
        shape = b"".join(_number(1, size) for size in values.shape)
        raw = np.ascontiguousarray(values).tobytes()
        tensors.extend(_field(5, shape + _number(2, _FLOAT) + _field(8, name) + _field(9, raw)))
        return name

    def weight(name: str) -> str:
        values = weights[name]
        return tensor(name, values.T if values.ndim == 2 else values)

    def node(op: str, domain: str, inputs: Sequence[str], out: str, attributes: bytes = b"") -> str:
        names = b"".join(_field(1, name) for name in inputs) + _field(2, out)
        nodes.extend(_field(1, names + _field(4, op) + attributes + _field(7, domain)))
        return out

    def norm(prefix: str, op: str, domain: str, inputs: Sequence[str], *bias: str) -> str:
        scale = (weight(f"{prefix}.weight"), weight(f"{prefix}.bias"))
        return node(op, domain, (*inputs, *scale, *bias), f"{prefix}.out", epsilon)

    eps = struct.pack("<Bf", 2 << 3 | 5, config["layer_norm_eps"])
    epsilon = _attribute("epsilon", 1, eps)
    heads = _attribute("num_heads", 2, _number(3, config["num_attention_heads"]))
    x = norm("embeddings.LayerNorm", "LayerNormalization", "", ["x"])
    for n in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{n}"
        parts = [f"{at}.attention.self.{part}" for part in ("query", "key", "value")]
        qkv = tensor(f"{at}.qkv.weight", np.concatenate([weights[f"{p}.weight"] for p in parts]).T)
        bias = tensor(f"{at}.qkv.bias", np.concatenate([weights[f"{p}.bias"] for p in parts]))
        seen = node("Attention", _FUSED, [x, qkv, bias, "seen"], f"{at}.seen", heads)
        for inner, skip in ((f"{at}.attention.output", x), (f"{at}.output", "")):
            if not skip:
                wide = f"{at}.intermediate.dense"
                up = node("MatMul", "", [x, weight(f"{wide}.weight")], f"{wide}.up")
                seen = node("BiasGelu", _FUSED, [up, weight(f"{wide}.bias")], f"{wide}.out")
            down = node("MatMul", "", [seen, weight(f"{inner}.dense.weight")], f"{inner}.down")
            ends = f"{inner}.LayerNorm"
            added = [down, skip or x]
            x = norm(ends, "SkipLayerNormalization", _FUSED, added, weight(f"{inner}.dense.bias"))
    axes = ("batch", "tokens", config["hidden_size"])
    faces = _value(11, "x", _FLOAT, axes) + _value(11, "seen", _INT32, axes[:2])
    graph = bytes(nodes) + _field(2, "bert") + bytes(tensors) + faces + _value(12, x, _FLOAT, axes)
    opsets = b"".join(
        _field(8, _field(1, domain) + _number(2, version))
        for domain, version in (("", _OPSET), (_FUSED, 1))
    )
    return _number(1, 8) + opsets + _field(7, graph)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes((*made, value))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _field(field: int, content: bytes | str) -> bytes:
    held = content.encode() if isinstance(content, str) else content
    return _varint(field << 3 | 2) + _varint(len(held)) + held


def _attribute(name: str, kind: int, value: bytes) -> bytes:
    return _field(5, _field(1, name) + value + _number(20, kind))


def _value(field: int, name: str, element: int, axes: Sequence[int | str]) -> bytes:
    """A graph's input or output; a named axis has any size."""
    dims = b"".join(
        _field(1, _field(2, axis) if isinstance(axis, str) else _number(1, axis)) for axis in axes
    )
    tensor = _field(1, _number(1, element) + _field(2, dims))
    return _field(field, _field(1, name) + _field(2, tensor))
