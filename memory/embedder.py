"""Embeddings by a sentence-transformers model, from its folder, without a network.

Models of MiniLM's kind run on onnxruntime (`bert`), all others on sentence-transformers and torch.
Code that a model brings is never run (`trust_remote_code` stays off). The model is loaded by the
first call that embeds something, as loading takes seconds and most runs of the program never need
it.
"""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Union

import numpy as np
from numpy.typing import NDArray

from rubricem.memory import bert
from rubricem.memory.errors import RubricemError, WeightsError, import_extra
from rubricem.memory.schema import Embedder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

MEANING = "What searches and recalls by meaning"

_BATCH = 32
"""Texts of similar length per batch; larger batches gain nothing on a CPU."""


class SentenceEmbedder:
    """Unit vectors of texts. Threads may share it; they take turns."""

    def __init__(self, folder: Path, name: str = "") -> None:
        """`name` distinguishes its vectors from any other model's; by default the folder's name."""
        self._folder = folder
        self._name = name or folder.name
        self._loaded: bert.BertEncoder | SentenceTransformer | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._name

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """(n, d) float32, each row of length 1; a text beyond the model's window is truncated.

        Queries and stored texts get the prompts that the model defines for them, if any.
        """
        with self._lock:
            model = self._loaded = self._loaded or self._load()
            if isinstance(model, bert.BertEncoder):
                return model.encode(texts, _BATCH)
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

    def _load(self) -> Union["SentenceTransformer", bert.BertEncoder]:
        try:
            if bert.BertEncoder.can_read(self._folder):
                return bert.BertEncoder(self._folder)
            import_extra(
                "sentence_transformers", "embedders", f"The embedding model in {self._folder}"
            )
            from sentence_transformers import SentenceTransformer
            from transformers.utils.logging import disable_progress_bar

            disable_progress_bar()  # type: ignore[no-untyped-call]
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
                "Set embedder to the folder of a whole model, or do without: retrieval lexical, "
                "memory off.",
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

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        vectors = self._embedder.embed(texts, query=query)
        self._count += len(texts)
        self._on_embedded(self._count)
        return vectors
