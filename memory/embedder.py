"""Embeddings by a sentence-transformers model, from its folder, without a network.

The default, all-MiniLM-L6-v2, runs on onnxruntime: `minilm.onnx` is the graph of its publication
without weights, which the runtime reads from the published safetensors by their offsets. So a
folder of weights contains only its publisher's files, and neither torch nor a converted copy is
needed. All other models run on sentence-transformers and torch. Code that a model brings is never
run (`trust_remote_code` stays off). The model is loaded by the first call that embeds something.

The graph was made by `examples/minilm_graph.py` from onnxruntime's fused nodes for BERT. It ends
with the mean over a text's tokens, at length 1 (Reimers and Gurevych, arXiv:1908.10084).
"""

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from numpy.typing import NDArray

from rubricem.memory.errors import RubricemError, WeightsError, import_extra
from rubricem.memory.schema import Embedder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

MEANING = "What searches and recalls by meaning"
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"
_LAYOUT = (
    "config.json",
    "modules.json",
    "1_Pooling/config.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    TOKENIZER,
)
_MINILM = "8f2fa7c14789a1906458e029cc3525455a871beb122dc3d38d3390a789c63f4b"
"""SHA-256 of where MiniLM's weights are in their file, and of the files of `_LAYOUT`"""
_WIDTH, _WINDOW = 384, 256
_BATCH = 32
"""Texts of similar length per batch; larger batches gain nothing on a CPU."""
_REMEMBERED = 4096
"""vectors of texts: 6 MB of the default model"""

Floats = NDArray[np.float32]


class MiniLM:
    """The loaded default model. Not safe to share between threads."""

    def __init__(self, folder: Path) -> None:
        ort, tokenizers = (
            import_extra(name, "memory", MEANING) for name in ("onnxruntime", "tokenizers")
        )
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / TOKENIZER))
        self._tokenizer.enable_padding()
        self._tokenizer.enable_truncation(_WINDOW)
        options = ort.SessionOptions()
        # Said, they are not tied to cores that this process may not have; and idle they sleep.
        affinity = getattr(os, "sched_getaffinity", None)  # not on every system
        options.intra_op_num_threads = len(affinity(0)) if affinity else os.cpu_count() or 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(folder)
        )
        graph = (files("rubricem.memory") / "minilm.onnx").read_bytes()
        self._session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a folder has this model, or weights that were trained on from it."""
        try:
            with (folder / WEIGHTS).open("rb") as weights:
                size = weights.read(8)
                digest = hashlib.sha256(size + weights.read(int.from_bytes(size, "little")))
            for name in _LAYOUT:
                digest.update((folder / name).read_bytes())
        except (OSError, OverflowError):
            return False
        return digest.hexdigest() == _MINILM

    def encode(self, texts: Sequence[str]) -> Floats:
        vectors = np.empty((len(texts), _WIDTH), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
        for start in range(0, len(order), _BATCH):
            rows = order[start : start + _BATCH]
            read = self._tokenizer.encode_batch([texts[row] for row in rows])
            seen = np.array([text.attention_mask for text in read], dtype=np.int32)
            ids = np.array([text.ids for text in read], dtype=np.int64)
            (vectors[rows],) = self._session.run(None, {"ids": ids, "seen": seen})
        return vectors


class SentenceEmbedder:
    """Unit vectors of texts. Threads may share it; they take turns."""

    def __init__(self, folder: Path, name: str = "") -> None:
        """`name` distinguishes its vectors from any other model's; by default the folder's name."""
        self._folder = folder
        self._name = name or folder.name
        self._loaded: MiniLM | SentenceTransformer | None = None
        self._known: dict[tuple[bool, str], Floats] = {}
        """the vectors of the texts that were embedded last: searches find much the same"""
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._name

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Floats:
        """(n, d) float32, each row of length 1; a text beyond the model's window is truncated.

        Queries and stored texts get the prompts that the model defines for them, if any.
        """
        with self._lock:
            if not texts:
                return self._encode([""], query)[:0]
            if new := [text for text in dict.fromkeys(texts) if (query, text) not in self._known]:
                for text, vector in zip(new, self._encode(new, query), strict=True):
                    self._known[query, text] = vector.copy()  # a view keeps all of its array
            vectors = np.stack([self._known[query, text] for text in texts])
            for oldest in [*self._known][: max(len(self._known) - _REMEMBERED, 0)]:
                del self._known[oldest]
        return vectors

    def _encode(self, texts: Sequence[str], query: bool) -> Floats:
        model: Any = self._loaded or self._load()
        self._loaded = model
        if isinstance(model, MiniLM):
            return model.encode(texts)
        encode = model.encode_query if query else model.encode_document
        vectors = encode(
            list(texts),
            batch_size=_BATCH,
            show_progress_bar=False,
            convert_to_numpy=True,
            normalize_embeddings=True,
        )
        return np.asarray(vectors, dtype=np.float32)

    def _load(self) -> Union["SentenceTransformer", MiniLM]:
        try:
            if MiniLM.is_in(self._folder):
                return MiniLM(self._folder)
            import_extra(
                "sentence_transformers", "embedders", f"The embedding model in {self._folder}"
            )
            from sentence_transformers import SentenceTransformer
            from transformers.utils.logging import disable_progress_bar

            disable_progress_bar()
            return SentenceTransformer(
                str(self._folder),
                device="cpu",
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"dtype": "float32"},
            )
        except RubricemError:
            raise
        except Exception as cause:
            said = " ".join(str(cause).split())
            raise WeightsError(
                f"The embedding model in {self._folder} could not be loaded: {said}",
                "Set embedder to the folder of a whole model, or do without: memory off.",
            ) from cause


class CountedEmbedder:
    """Another embedder, which also reports how many texts it has embedded so far."""

    def __init__(self, embedder: Embedder, on_embedded: Callable[[int], None]) -> None:
        self._embedder = embedder
        self._on_embedded = on_embedded
        self._count = 0

    @property
    def name(self) -> str:
        return self._embedder.name

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Floats:
        vectors = self._embedder.embed(texts, query=query)
        self._count += len(texts)
        self._on_embedded(self._count)
        return vectors
