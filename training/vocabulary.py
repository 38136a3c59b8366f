"""Which vocabulary token ids are of: a short hash that rows carry, and a model is compared by.

It is of the ordinary tokens and their ids. A GGUF file pads its list of tokens and a fine-tuning
adds special ones, so that with all of them a model's file and its folder would seem to differ.
"""

import hashlib
import struct
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from memory.errors import WeightsError, boundary

_TOKENS, _KINDS = b"tokenizer.ggml.tokens", b"tokenizer.ggml.token_type"
_ORDINARY = (1, 6)
"""kinds of tokens in a GGUF file: normal ones and single bytes"""
_STRING, _ARRAY = 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""bytes of a GGUF value by the number of its type"""


def vocabulary_hash(tokens: Iterable[tuple[int, bytes]]) -> str:
    """16 hexadecimal digits of ids and tokens in any order; empty of none."""
    ordered = sorted(tokens)
    text = b"".join(b"%d %s\n" % one for one in ordered)
    return hashlib.sha256(text).hexdigest()[:16] if ordered else ""


def gguf_vocabulary(path: Path) -> str:
    """The hash of a GGUF file's vocabulary. Raises WeightsError for what is no such file.

    Read here and not by the package gguf, which takes seconds for a list of 150,000 tokens.
    """
    with boundary(WeightsError, f"reading the vocabulary of {path.name}"), path.open("rb") as file:
        found = _fields(file)
    tokens: list[bytes] = found.get(_TOKENS, [])
    kinds = array("i", found.get(_KINDS, b""))
    return vocabulary_hash(
        (number, token)
        for number, token in enumerate(tokens)
        if not kinds or kinds[number] in _ORDINARY
    )


def _fields(file: BinaryIO) -> dict[bytes, Any]:
    """The two fields about tokens, as far as there are any; what stands behind is not read."""
    found: dict[bytes, Any] = {}
    _, _, count = struct.unpack("<8sQQ", file.read(24))
    for _ in range(count):
        name = _value(file, _STRING)
        value = _value(file, *struct.unpack("<I", file.read(4)))
        if name in (_TOKENS, _KINDS):
            found[name] = value
        if len(found) == 2:
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
