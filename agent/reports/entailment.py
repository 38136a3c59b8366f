"""Published classifiers as checkers: the probability they give that a text supports a claim.

Three forms are recognised by a checkpoint's configuration. A classifier with two unnamed labels
(MiniCheck, arXiv:2404.10774) reads text and claim joined by its end token, and its second label
means support; one with a single output (the HHEM of 2023) or with named labels (any NLI model)
reads the two as a pair; a T5 (also of MiniCheck) continues with 1 or 0. A long text is read in
pieces of whole sentences, and the piece that supports the claim best counts, as in MiniCheck.

No rule overrides such a checker: it is measured as published. A model that brings its own code
(HHEM 2.1) is refused.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rubricem.agent.models.opening import report_progress
from rubricem.agent.reports.rules import ClaimFinding, Findings, Pair
from rubricem.agent.transcript.events import Tell, hush
from rubricem.agent.weights.checkpoints import is_checkpoint
from rubricem.memory.errors import WeightsError
from rubricem.memory.language import sentences

LONGEST = 2048
"""most tokens of text and claim together, unless the model's window is smaller"""
LEAST = 64
"""tokens reserved for the text beside a long claim"""
SUPPORTED = 0.5
_SUPPORT = re.compile(r"^(?:entail|support|consist|attribut|factual|true|yes)", re.I)
_UNNAMED = {"LABEL_0", "LABEL_1"}
_REMEDY = (
    "Name a MiniCheck, an NLI classifier or another of two labels with safetensors weights, by its "
    "folder or its name on the hub (lytang/MiniCheck-RoBERTa-Large)."
)


class EntailmentChecker:
    """A `Checker` over a checkpoint in a folder, which is loaded at once: that takes seconds.

    Raises WeightsError if the folder has no such checkpoint.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        try:
            self._load(folder)
        except (OSError, ValueError, KeyError, RuntimeError, ImportError) as cause:
            said = " ".join(str(cause).split())[:300]
            raise WeightsError(f"No checker can be read from {folder}: {said}", _REMEDY) from cause

    def _load(self, folder: Path) -> None:
        import transformers
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # type: ignore[no-untyped-call]
        safe: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        config = transformers.AutoConfig.from_pretrained(folder, **safe)
        if getattr(config, "auto_map", None):
            raise ValueError("it brings code of its own, which is not run")
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **safe)
        self._t5 = bool(config.is_encoder_decoder)
        kind = "AutoModelForSeq2SeqLM" if self._t5 else "AutoModelForSequenceClassification"
        load = getattr(transformers, kind).from_pretrained
        # Weights that are made up where the file has none would give scores that mean nothing.
        self._model, told = load(
            folder, **safe, use_safetensors=True, dtype="float32", output_loading_info=True
        )
        if missing := sorted(told["missing_keys"]):
            raise ValueError(f"it has no weights for {', '.join(missing[:3])}")
        self._model.eval()
        self._labels = {} if self._t5 else dict(config.id2label)
        self._joined = self._t5 or set(self._labels.values()) == _UNNAMED
        self._support = self._place_of_support()
        # RoBERTa numbers its positions from 2 on.
        held = (getattr(config, "max_position_embeddings", None) or LONGEST + 2) - 2
        self._window = min(LONGEST, self._tokenizer.model_max_length, held)

    def _place_of_support(self) -> int:
        if self._joined or len(self._labels) == 1:
            return int(self._joined)
        named = [place for place, label in self._labels.items() if _SUPPORT.match(str(label))]
        if len(named) != 1:
            raise ValueError(
                f"which of {', '.join(self._labels.values())} means support is unclear"
            )
        return int(named[0])

    async def check(self, pairs: Sequence[Pair]) -> Findings:
        chances = tuple([await asyncio.to_thread(self.probability, pair) for pair in pairs])
        return Findings(tuple(map(_finding, chances)), chances=chances)

    def probability(self, pair: Pair) -> float:
        """Probability in [0, 1] that the text supports the claim, by its best piece."""
        text = "\n".join(part for part in (pair.source.title, pair.source.text) if part)
        return max(self._read(piece, pair.claim) for piece in self.pieces(text, pair.claim))

    def pieces(self, text: str, claim: str) -> Iterator[str]:
        """The text in pieces of whole sentences that fit into the window with the claim."""

        def ids(part: str) -> list[int]:
            return list(self._tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"])

        room = max(self._window - len(ids(claim)) - 8, LEAST)
        held, used = list[str](), 0
        for sentence in sentences(text):
            whole = ids(sentence)
            # One that is longer than the window (a table, a list) would push the claim out of it.
            for at in range(0, max(len(whole), 1), room):
                piece = whole[at : at + room]
                if held and used + len(piece) > room:
                    yield " ".join(held)
                    held, used = [], 0
                held.append(sentence if len(whole) <= room else str(self._tokenizer.decode(piece)))
                used += len(piece)
        yield " ".join(held)

    def _read(self, text: str, claim: str) -> float:
        import torch

        end = self._tokenizer.eos_token or self._tokenizer.sep_token
        given = (f"{'predict: ' if self._t5 else ''}{text}{end}{claim}",)
        cut: dict[str, Any] = {"return_tensors": "pt", "truncation": True,
                               "max_length": self._window}  # fmt: skip
        with torch.inference_mode():
            if not self._joined:
                read = self._tokenizer(text, claim, **cut | {"truncation": "only_first"})
            else:
                read = self._tokenizer(*given, **cut)
            if self._t5:
                start = torch.tensor([[self._model.config.decoder_start_token_id or 0]])
                logits = self._model(**read, decoder_input_ids=start).logits[0, 0]
                logits = logits[[self._tokenizer(digit)["input_ids"][0] for digit in "01"]]
            else:
                logits = self._model(**read).logits[0]
            shares = torch.sigmoid(logits) if len(logits) == 1 else torch.softmax(logits, -1)
        return float(shares[self._support])


def _finding(probability: float) -> ClaimFinding:
    if probability >= SUPPORTED:
        return ClaimFinding("supported")
    said = f"the checker holds it {probability:.0%} likely that the source says this"
    return ClaimFinding("unsupported", said)


@dataclass(frozen=True, slots=True)
class EntailmentChoice:
    """A classifier by the folder of its checkpoint, or by its name on the hub."""

    name: str
    weights_dir: Path | None = None
    embedded: ClassVar[bool] = True
    at_once: ClassVar[int] = 1

    @classmethod
    def from_name(cls, name: str, weights_dir: Path | None) -> "EntailmentChoice | None":
        """None if the name is no classifier's: a GGUF, or a checkpoint of a policy."""
        folder = Path(name).expanduser()
        if folder.is_dir():
            held = (folder / "config.json").is_file() and not is_checkpoint(name)
            return cls(str(folder.resolve())) if held else None
        hub = re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name) and "gguf" not in name.lower()
        return cls(name, weights_dir) if hub else None

    @asynccontextmanager
    async def open(self, tell: Tell = hush) -> AsyncIterator[EntailmentChecker]:
        """The checker; its weights are fetched if necessary."""
        from rubricem.agent.weights.store import WeightsStore

        folder = Path(self.name)
        if not folder.is_dir():
            folder = await WeightsStore(self.weights_dir, report_progress(tell)).classifier(
                self.name
            )
        yield await asyncio.to_thread(EntailmentChecker, folder, self.name)
