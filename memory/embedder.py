"""Embeddings by sentence-transformers: MiniLM by default, from a folder, without a network.

The model is loaded by the first call that embeds something, as loading it takes seconds and
most runs of the program never need it.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from memory.errors import WeightsError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_BATCH = 32
"""Texts of like length per batch; larger ones gain nothing on a processor."""


class SentenceEmbedder:
    """Unit vectors of texts. Safe to share between threads, which then take turns."""

    def __init__(self, model: str | Path, name: str = "") -> None:
        """`model` is a folder, or a name that the hub (or its local cache) knows."""
        self._model = str(model)
        self._name = name or Path(self._model).name
        self._loaded: SentenceTransformer | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._name

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """(n, d) float32, each row of length 1; a text beyond the model's window is cut.

        Queries and kept texts get the prompts that the model itself names for them, if any.
        """
        with self._lock:
            model = self._loaded = self._loaded or self._load()
            if not texts:
                size = model.get_embedding_dimension() or 0
                return np.empty((0, size), dtype=np.float32)
            encode = model.encode_query if query else model.encode_document
            vectors = encode(
                list(texts),
                batch_size=_BATCH,
                show_progress_bar=False,
                convert_to_numpy=True,
                normalize_embeddings=True,
            )
        return np.asarray(vectors, dtype=np.float32)

    def _load(self) -> "SentenceTransformer":
        from sentence_transformers import SentenceTransformer
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # type: ignore[no-untyped-call]
        local = Path(self._model).is_dir()
        try:
            return SentenceTransformer(self._model, device="cpu", local_files_only=local)
        except Exception as cause:
            raise WeightsError(
                f"The embedding model {self._model} could not be loaded: {cause}",
                "Name a folder with the whole model, or set retrieval to lexical.",
            ) from cause
