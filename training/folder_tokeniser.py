"""The tokenizer of a folder of safetensors, as transformers reads it.

It encodes as llama.cpp does of a GGUF file: what stands in a text is text, also where it is written
like a special token, and the chat template alone puts special ones in.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.weights.checkpoints import MODEL
from memory.errors import SettingsError, boundary
from memory.interfaces import Message
from training.vocabulary import gguf_vocabulary, vocabulary_hash


class FolderTokeniser:
    """A `training.sequences.Tokeniser` that needs no model."""

    def __init__(self, folder: Path, tokenizer: Any) -> None:
        """`tokenizer`: of transformers."""
        self._folder, self._tokenizer = folder, tokenizer
        special = tokenizer.get_added_vocab()
        self.vocabulary = vocabulary_hash(
            (number, token.encode(errors="surrogatepass"))
            for token, number in tokenizer.get_vocab().items()
            if token not in special
        )
        """its hash; empty where it knows no token"""

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Raises SettingsError where the template is missing or cannot write these messages."""
        return await asyncio.to_thread(self._rendered, messages)

    async def encode(self, text: str) -> tuple[int, ...]:
        return await asyncio.to_thread(self._encoded, text, split_special_tokens=True)

    def _rendered(self, messages: Sequence[Message]) -> tuple[int, ...]:
        if not self._tokenizer.chat_template:
            raise SettingsError(
                f"the tokenizer in {self._folder} has no chat template to write prompts by.",
                "Put the model's chat_template.jinja there, or train a model that has one.",
            )
        listed = [asdict(message) for message in messages]
        with boundary(SettingsError, f"the chat template in {self._folder}"):
            text = self._tokenizer.apply_chat_template(
                listed, tokenize=False, add_generation_prompt=True
            )
        return self._encoded(text, split_special_tokens=False)

    def _encoded(self, text: str, *, split_special_tokens: bool) -> tuple[int, ...]:
        found = self._tokenizer(
            text, add_special_tokens=False, split_special_tokens=split_special_tokens
        )
        return tuple(found["input_ids"])


def is_folder(model: str) -> bool:
    """Whether a model's name is a folder of safetensors that llama.cpp cannot load."""
    folder = Path(model).expanduser()
    return (folder / "config.json").is_file() and not (folder / MODEL).is_file()


def read_tokeniser(folder: Path) -> FolderTokeniser:
    """The tokenizer of a folder with a config.json. Raises SettingsError where it has none."""
    from transformers import AutoTokenizer

    missing = SettingsError(
        f"{folder} has no tokenizer that can be read, and text has to be encoded for its model.",
        "Put the model's tokenizer.json, tokenizer_config.json and chat template there.",
    )
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        found = FolderTokeniser(folder, tokenizer)
    except Exception as cause:
        raise missing from cause
    if not found.vocabulary:  # of some kinds transformers makes one that knows nothing
        raise missing
    return found


def vocabulary_of(path: Path) -> str:
    """The hash of a model's vocabulary, of a GGUF file or a folder; empty where it is not known."""
    if path.is_dir() and is_folder(str(path)):
        with suppress(SettingsError):
            return read_tokeniser(path).vocabulary
        return ""
    return gguf_vocabulary(path / MODEL if path.is_dir() else path)
