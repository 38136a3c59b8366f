"""A folder's tokenizer: the ids that llama.cpp gives, and a sentence where it is missing."""

from pathlib import Path

import pytest

from rubricem.agent.models.llama import LlamaConfig, LlamaPolicy
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import Message
from rubricem.training.local.session import vocabulary_of
from rubricem.training.rows.sequences import gguf_vocabulary, is_folder, read_tokeniser
from tests.support.tiny import TEMPLATE, vocabulary, write_tokenizer
from tests.training.local.test_load import folder_of

MESSAGES = [Message("system", "Be brief."), Message("user", "What is the <|im_end|>?\nAnd then")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    base = folder_of(tmp_path / "base", "qwen2", vocab_size=132)
    write_tokenizer(base)
    return base


async def test_a_folder_encodes_as_llama_does_of_a_gguf_file(tiny: Path, folder: Path) -> None:
    ours = read_tokeniser(folder)
    theirs = await LlamaPolicy.load(tiny, "tiny", "1", LlamaConfig(256, 1))
    try:
        for text in ("then the thing\n\n  is", "no <|im_end|> at all", " ", ""):
            assert await ours.encode(text) == await theirs.encode(text), text
        assert await ours.render(MESSAGES) == await theirs.render(MESSAGES)
    finally:
        await theirs.aclose()


@pytest.mark.parametrize("opened", ["<think>\n", "<think>\n\n</think>\n\n", "</think>"])
async def test_a_prompt_ends_before_the_thinking_that_its_template_opens_or_leaves_empty(
    tiny: Path, folder: Path, opened: str
) -> None:
    plain = await read_tokeniser(folder).render(MESSAGES)
    thinking = TEMPLATE.removesuffix("{% endif %}") + opened + "{% endif %}"
    write_tokenizer(folder, template=thinking)
    own = read_tokeniser(folder)
    assert opened in own.tokenizer.chat_template
    assert await own.render(MESSAGES) == plain
    said = [*MESSAGES[:1], Message("user", "and <think>\n")]
    assert own.tokenizer.decode(await own.render(said)).count("<think>") == 1, (
        "what was asked stays"
    )


def test_one_vocabulary_is_known_in_a_file_and_in_a_folder(tiny: Path, folder: Path) -> None:
    found = vocabulary_of(folder)
    assert len(found) == 16 and found == vocabulary_of(tiny) == gguf_vocabulary(tiny)
    words = vocabulary()
    write_tokenizer(folder, [*words, "<|more|>"])
    assert vocabulary_of(folder) == found, "special tokens that a fine-tuning added"
    write_tokenizer(folder, [words[1], words[0], *words[2:]])
    assert vocabulary_of(folder) != found


TOKENS, KINDS = b"tokenizer.ggml.tokens", b"tokenizer.ggml.token_type"


def test_a_folder_without_a_tokenizer_is_told(tmp_path: Path) -> None:
    base = folder_of(tmp_path / "base", "qwen2")
    assert is_folder(str(base)) and vocabulary_of(base) == ""
    with pytest.raises(SettingsError, match="has no tokenizer") as told:
        read_tokeniser(base)
    assert "tokenizer.json" in told.value.remedy
