"""A small sentence-transformers model in a folder, with prompts of its own for queries."""

import hashlib
import json
from pathlib import Path

import numpy as np

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


def as_repository(folder: Path) -> tuple[dict[str, bytes], bytes]:
    """The folder's files by name, and the hub's listing of a repository that holds them."""
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    entries = []
    for name, content in files.items():
        entry: dict[str, object] = {"rfilename": name, "size": len(content)}
        if name.endswith(".safetensors"):
            entry["lfs"] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        else:
            header = b"blob %d\0" % len(content)
            entry["blobId"] = hashlib.sha1(header + content).hexdigest()
        entries.append(entry)
    return files, json.dumps({"sha": "abc", "siblings": entries}).encode()
