"""The embedded policy on random weights: ids, log-probabilities, ends, grammars, cancellation."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from rubricem.agent.models.llama import LEAST_KEPT, LlamaConfig, LlamaPolicy
from rubricem.agent.transcript.scaffold import neutralise
from rubricem.memory.errors import PolicyError
from rubricem.memory.schema import Completion, Message, Sampling
from tests.support.tiny import vocabulary

pytestmark = pytest.mark.asyncio(loop_scope="module")

TURN_END = vocabulary().index("<|im_end|>")
CONFIG = LlamaConfig(context_tokens=1024, threads=1, slots=2)
"""one thread, since two stall on a busy machine"""
GREEDY = Sampling(max_tokens=24, temperature=0.0)
CHAT = [Message("system", "Be brief."), Message("user", "Count from one to ten.")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def policy(tiny: Path) -> AsyncIterator[LlamaPolicy]:
    loaded = await LlamaPolicy.load(tiny, "tiny", "v", CONFIG)
    yield loaded
    await loaded.aclose()


async def test_ids_logprobs_and_offsets_line_up_with_the_text(policy: LlamaPolicy):
    prefix = await policy.render(CHAT)
    written = await policy.complete(prefix, GREEDY)
    assert written.token_ids and written.logprobs and written.token_ends
    assert len(written.token_ids) == len(written.logprobs) == len(written.token_ends)
    assert written.token_ends[-1] == len(written.text)
    assert list(written.token_ends) == sorted(written.token_ends)
    assert all(logprob <= 0 for logprob in written.logprobs)
    assert await policy.encode(written.text) == written.token_ids
    assert written.usage.prompt_tokens == len(prefix)
    assert (written.usage.cost, written.usage.calls) == (0.0, 1)


async def test_special_tokens_in_plain_text_stay_text(policy: LlamaPolicy):
    assert TURN_END in await policy.render(CHAT)
    plain = await policy.encode("<|im_end|>")
    assert TURN_END not in plain and len(plain) > 1


async def test_a_neutralised_question_cannot_end_its_chat_turn(policy: LlamaPolicy):
    async def ends(text: str) -> int:
        return (await policy.render([Message("user", text)])).count(TURN_END)

    honest = await ends("x")
    assert await ends("x<|im_end|>") == honest + 1, "a chat template reads what it is given"
    assert await ends(neutralise("x<|im_end|>")) == honest


async def test_the_predicate_cuts_the_text_at_its_offset_also_inside_a_token(policy: LlamaPolicy):
    prefix = await policy.render(CHAT)
    long = Sampling(max_tokens=200, temperature=1.0, seed=0)
    await policy.complete(prefix, long)  # what is read and what is cached differ in last digits
    whole = await policy.complete(prefix, long)
    end = whole.text.index("th") + 1  # a token of its own

    def in_the_middle(text: str) -> int | None:
        return text.find("th") + 1 or None

    cut = await policy.complete(prefix, long, in_the_middle)
    assert (cut.text, cut.stop_reason) == (whole.text[:end], "stop")
    assert cut.token_ids and whole.token_ids and cut.token_ends and cut.logprobs
    assert cut.token_ids == whole.token_ids[: len(cut.token_ids)]
    assert len(cut.token_ids) == len(cut.logprobs) == len(cut.token_ends)
    assert cut.token_ends[-1] == end
    inside = await policy.complete(prefix, GREEDY, lambda text: 1 if text else None)
    assert (len(inside.text), inside.token_ends) == (1, (1,)), "that token is kept"
    assert inside.token_ids is not None and len(inside.token_ids) == 1


async def test_a_grammar_binds(policy: LlamaPolicy):
    prefix = await policy.render(CHAT)
    for number in ("S1", "S4"):
        grammar = f'root ::= "<cite id=\\"" ( "{number}" ) "\\">"'
        written = await policy.complete(
            prefix, Sampling(max_tokens=16, temperature=0.0, grammar=grammar)
        )
        assert written.text == f'<cite id="{number}">'
        assert written.logprobs and min(written.logprobs) < -1, "those of the model unbound"


async def test_one_seed_is_one_text(policy: LlamaPolicy):
    prefix = await policy.render([Message("user", "Invent a name for a boat.")])

    async def named(seed: int) -> str:
        sampling = Sampling(max_tokens=16, temperature=0.8, min_p=0.05, seed=seed)
        return (await policy.complete(prefix, sampling)).text

    await named(0)  # a prefix that is read and one from the cache differ in the last digits
    texts = [await named(seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("text", ["东京 🦜🧭", "a 龘 b"])
async def test_characters_of_several_tokens_come_whole_with_every_id(weights_05b: Path, text: str):
    policy = await LlamaPolicy.load(weights_05b, "0.5b", "v", CONFIG)
    assert len(await policy.encode(text)) > len(text) - 1
    pieces: list[str] = []
    sampling = Sampling(max_tokens=40, temperature=0.0, grammar=f'root ::= "{text}"')
    prefix = await policy.render([Message("user", f"Repeat: {text}")])
    written = await policy.complete(prefix, sampling, on_text=pieces.append)
    await asyncio.sleep(0)
    assert written.text == "".join(pieces) == text
    assert "\ufffd" not in "".join(pieces)
    assert written.token_ids and written.token_ends
    assert len(written.token_ids) == written.usage.completion_tokens == len(written.token_ends)
    assert written.logprobs is None, "those of the ids that were not named are not known"
    await policy.aclose()


async def test_a_cancelled_call_frees_its_slot(policy: LlamaPolicy):
    prefix = await policy.render([Message("user", "Write a very long story.")])
    begun = asyncio.Event()
    long = Sampling(max_tokens=900, temperature=0.8)
    calls = [
        asyncio.create_task(policy.complete(prefix, long, on_text=lambda text: begun.set()))
        for _ in range(2)
    ]
    await begun.wait()
    for call in calls:
        call.cancel()
    began = time.process_time()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(error) for error in ended] == [asyncio.CancelledError] * 2
    assert (await policy.complete(prefix, Sampling(max_tokens=2))).token_ids
    assert time.process_time() - began < 15, "far less than the story takes"


async def test_a_prefix_beyond_the_context_is_refused_in_a_sentence(policy: LlamaPolicy):
    prefix = await policy.encode("word " * 1100)
    with pytest.raises(PolicyError, match="refused the request") as caught:
        await policy.complete(prefix, GREEDY)
    assert "context" in str(caught.value)
    assert "shorter question" in caught.value.remedy
    assert (await policy.complete(prefix[:10], GREEDY)).token_ids, "the next call is served"


async def test_a_file_that_is_no_model_is_refused_in_a_sentence(tmp_path: Path):
    (tmp_path / "no.gguf").write_bytes(b"GGUF but nothing more")
    with pytest.raises(PolicyError, match=r"loading no\.gguf failed"):
        await LlamaPolicy.load(tmp_path / "no.gguf", "no", "v")


LONG_SYSTEM = [Message("system", "Answer from evidence alone. " * 40), Message("user", "Who?")]


async def first_call(tiny: Path, states: Path) -> Completion:
    """What a new process's first call takes of a long system prompt."""
    config = LlamaConfig(context_tokens=4096, threads=1, states=states)
    policy = await LlamaPolicy.load(tiny, "tiny", "tiny", config)
    try:
        prefix = await policy.render(LONG_SYSTEM)
        return await policy.complete(prefix, Sampling(max_tokens=4, temperature=0.0))
    finally:
        await policy.aclose()


async def test_what_was_made_of_a_system_prompt_is_brought_back_in_a_later_process(
    tiny: Path, tmp_path: Path
):
    made = await first_call(tiny, tmp_path)
    [kept] = tmp_path.glob("state-*.bin")
    size = kept.stat().st_size
    again = await first_call(tiny, tmp_path)
    assert again.text == made.text and again.usage.cached_tokens >= LEAST_KEPT
    kept.write_bytes(kept.read_bytes()[: size // 2])
    damaged = await first_call(tiny, tmp_path)
    assert damaged.text == made.text, "a damaged state is read anew, and kept anew"
    assert kept.stat().st_size == size
    for number in range(4):
        other = tmp_path / f"state-of-another-prompt-{number}.bin"
        other.write_bytes(b"old")
        os.utime(other, (number, number))
    kept.unlink()
    await first_call(tiny, tmp_path)
    others = {f"state-of-another-prompt-{number}" for number in (2, 3)}
    assert {path.stem for path in tmp_path.iterdir()} == {kept.stem, *others}
