"""Transcripts as token sequences: token in, token out, never rendered again.

A sequence is the concatenated ids of all kept segments, exactly as the policy read and wrote them.
The tokenizer of a folder of safetensors encodes as llama.cpp does for a GGUF file: only the chat
template inserts special tokens. Rows carry a short hash of the vocabulary of their ids: over the
ordinary tokens, since GGUF files pad their list and fine-tuning adds special ones.
"""

import asyncio
import hashlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any

from rubricem.agent.models.policy import before_thought
from rubricem.agent.weights.checkpoints import gguf_fields
from rubricem.agent.weights.templates import ChatTemplate
from rubricem.memory.errors import SettingsError, WeightsError, boundary, import_extra
from rubricem.memory.schema import Author, Message, Segment, Stage, Trajectory

STAGES = tuple(Stage)
NO_STAGE = -1


@dataclass(frozen=True, slots=True)
class TokenSequence:
    ids: tuple[int, ...]
    written: tuple[bool, ...]
    logprobs: tuple[float, ...]
    """of the sampler; 0 for what it did not write, and where it is not known"""
    stages: tuple[int, ...]
    """0 to 3 as in `Stage`, -1 for none"""
    prompt: int
    """how many of them, at the beginning, are the prompt"""
    sampled: bool
    """the policy wrote exactly these ids, and its log-probability of each is known"""


def token_sequence(segments: Sequence[Segment]) -> TokenSequence | None:
    """The kept segments as one sequence; None where one of them has no ids."""
    ids: list[int] = []
    written: list[bool] = []
    logprobs: list[float] = []
    stages: list[int] = []
    sampled = True
    for segment in (s for s in segments if s.kept):
        if segment.token_ids is None:
            return None
        count, policy = len(segment.token_ids), segment.author is Author.POLICY
        known = policy and segment.logprobs is not None and all(map(isfinite, segment.logprobs))
        sampled &= not policy or (known and not segment.retokenised)
        ids += segment.token_ids
        written += [policy] * count
        logprobs += segment.logprobs if known and segment.logprobs else [0.0] * count
        stages += [STAGES.index(segment.stage) if segment.stage else NO_STAGE] * count
    prompt = len(segments[0].token_ids or ()) if segments else 0
    return TokenSequence(
        tuple(ids), tuple(written), tuple(logprobs), tuple(stages), prompt, sampled
    )


def without_scaffold(trajectory: Trajectory) -> Trajectory:
    """The same after the prompt without a scaffold; log-probabilities stay those under it."""
    scaffold = trajectory.scaffold
    if scaffold is None:
        return trajectory
    prompt = trajectory.segments[0].model_copy(update={"token_ids": scaffold.bare_ids})
    return trajectory.model_copy(
        update={
            "system": trajectory.system.removesuffix(scaffold.text),
            "segments": (prompt, *trajectory.segments[1:]),
            "scaffold": None,
        }
    )


_TOKENS, _KINDS = b"tokenizer.ggml.tokens", b"tokenizer.ggml.token_type"
_ORDINARY = (1, 6)


def vocabulary_hash(tokens: Iterable[tuple[int, bytes]]) -> str:
    """16 hexadecimal digits of ids and tokens in any order; empty of none."""
    text = b"".join(b"%d %s\n" % one for one in sorted(tokens))
    return hashlib.sha256(text).hexdigest()[:16] if text else ""


def gguf_vocabulary(path: Path) -> str:
    """The hash of a GGUF file's vocabulary; the package gguf takes seconds to read it."""
    with boundary(WeightsError, f"reading the vocabulary of {path.name}"), path.open("rb") as file:
        found = gguf_fields(file, (_TOKENS, _KINDS))
        tokens: list[bytes] = found.get(_TOKENS, [])
        kinds = array("i", found.get(_KINDS, b""))
        return vocabulary_hash(
            (number, token)
            for number, token in enumerate(tokens)
            if not kinds or kinds[number] in _ORDINARY
        )


class FolderTokeniser:
    def __init__(self, folder: Path, tokenizer: Any) -> None:
        self._folder, self.tokenizer = folder, tokenizer

    @cached_property
    def vocabulary(self) -> str:
        special = self.tokenizer.get_added_vocab()
        return vocabulary_hash(
            (number, token.encode(errors="surrogatepass"))
            for token, number in self.tokenizer.get_vocab().items()
            if token not in special
        )

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return await asyncio.to_thread(self.prompt, messages)

    async def encode(self, text: str) -> tuple[int, ...]:
        return await asyncio.to_thread(self.ids, text)

    def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Raises SettingsError where there is no template, WeightsError where it cannot be used."""
        if not self.tokenizer.chat_template:
            raise SettingsError(
                f"the tokenizer in {self._folder} has no chat template to write prompts by.",
                "Put the model's chat_template.jinja there, or train a model that has one.",
            )
        with boundary(SettingsError, f"the tokenizer in {self._folder}"):
            own = self.tokenizer.get_chat_template(), self.tokenizer.special_tokens_map
        text = before_thought(ChatTemplate(str(self._folder), *own).render(messages))
        return self.ids(text, plain=False)

    def ids(self, text: str, *, plain: bool = True) -> tuple[int, ...]:
        """`plain`: the names of special tokens in it are text."""
        found = self.tokenizer(text, add_special_tokens=False, split_special_tokens=plain)
        return tuple(found["input_ids"])


def is_folder(model: str) -> bool:
    """Whether a model's name is a folder of safetensors, which llama.cpp cannot load."""
    return (Path(model).expanduser() / "config.json").is_file()


def read_tokeniser(folder: Path) -> FolderTokeniser:
    """The tokenizer of a folder with a config.json. Raises SettingsError where it has none."""
    transformers = import_extra("transformers", "train", f"The tokenizer of {folder}")
    missing = SettingsError(
        f"{folder} has no tokenizer that can be read, and text has to be encoded for its model.",
        "Put the model's tokenizer.json, tokenizer_config.json and chat template there.",
    )
    try:
        # Code that a folder brings is never run, nor is anybody asked whether it may.
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
        found = FolderTokeniser(folder, tokenizer)
    except Exception as cause:
        raise missing from cause
    if not found.vocabulary:  # of some kinds transformers makes one that knows nothing
        raise missing
    return found
