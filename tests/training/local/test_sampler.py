"""Rows side by side write what each would write by itself, and what llama.cpp writes."""

import asyncio
import math
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch

from rubricem.agent.models.llama import LlamaConfig, LlamaPolicy
from rubricem.memory.errors import PolicyError
from rubricem.memory.schema import Completion, Message, Sampling
from rubricem.training.local import sampler
from rubricem.training.local.load import load_base
from rubricem.training.local.logprobs import token_logprobs
from rubricem.training.local.sampler import (
    Draw,
    RowCache,
    TorchConfig,
    TorchPolicy,
    Vocabulary,
    draw_tokens,
    open_torch,
)
from tests.support.tiny import vocabulary, write_tiny

pytestmark = pytest.mark.usefixtures("one_thread")

GREEDY = Sampling(max_tokens=20, temperature=0.0)
CONFIG = TorchConfig(slots=3, context_tokens=2048, threads=1)


@pytest_asyncio.fixture
async def policy(tiny: Path, tmp_path: Path) -> AsyncIterator[TorchPolicy]:
    async with open_torch(str(tiny), tmp_path, CONFIG) as opened:
        yield opened


def chosen(tiny: Path, prefix: tuple[int, ...], written: tuple[int, ...]) -> torch.Tensor:
    """The log-probabilities of written tokens by one pass over all of them."""
    ids = torch.tensor([[*prefix, *written]])
    with torch.no_grad():
        logits = load_base(tiny)(ids).logits[0, len(prefix) - 1 : -1]
    return token_logprobs(logits, ids[0, len(prefix) :])


async def asked(policy: TorchPolicy, text: str) -> tuple[int, ...]:
    return await policy.render([Message("system", "Be brief."), Message("user", text)])


async def test_rows_of_any_length_write_what_each_writes_alone(tiny: Path, policy: TorchPolicy):
    prefixes = [await asked(policy, "x" * n) for n in (3, 40, 17, 1, 29)]
    hot = [Sampling(max_tokens=12 + n, seed=n) for n in range(5)]
    together = await asyncio.gather(*map(policy.complete, prefixes, hot))
    assert len({len(one.token_ids or ()) for one in together}) == 5, "they end one after another"
    for prefix, sampling, one in zip(prefixes, hot, together, strict=True):
        alone = await policy.complete(prefix, sampling)
        assert (alone.text, alone.token_ids) == (one.text, one.token_ids)
        assert one.token_ids and one.logprobs and one.token_ends
        assert one.token_ends[-1] == len(one.text)
        assert await policy.encode(one.text) == one.token_ids
        wanted = chosen(tiny, prefix, one.token_ids)
        assert torch.allclose(torch.tensor(one.logprobs), wanted, atol=1e-4)


async def test_llama_writes_the_same_by_its_likeliest_tokens(tiny: Path, policy: TorchPolicy):
    llama = await LlamaPolicy.load(tiny, "tiny", "v", LlamaConfig(context_tokens=1024, threads=1))
    try:
        for text in ("what", "which rule", "z"):
            prefix = await asked(policy, text)
            theirs, ours = (
                await llama.complete(prefix, GREEDY),
                await policy.complete(prefix, GREEDY),
            )
            assert theirs.token_ids == ours.token_ids
            assert theirs.logprobs == pytest.approx(ours.logprobs, abs=0.02)
    finally:
        await llama.aclose()


async def test_what_another_turn_has_read_is_not_read_again(tiny: Path, policy: TorchPolicy):
    prefix = await asked(policy, "y" * 60)
    first = await policy.complete(prefix, Sampling(max_tokens=30, seed=1))
    assert first.usage.cached_tokens == 0 and first.usage.prompt_tokens == len(prefix)
    same = await asyncio.gather(
        *(policy.complete(prefix, Sampling(max_tokens=30, seed=seed)) for seed in (2, 3, 4))
    )
    assert [one.usage.cached_tokens for one in same] == [len(prefix) - 1] * 3
    on = (*prefix, *(same[1].token_ids or ()), *(await policy.encode("and then?")))
    later = await policy.complete(on, Sampling(max_tokens=10, seed=5))
    # The last token that was written is read by the next turn alone.
    assert later.usage.cached_tokens == len(prefix) + 29
    wanted = chosen(tiny, on, later.token_ids or ())
    assert torch.allclose(torch.tensor(later.logprobs), wanted, atol=1e-4)


async def test_a_turn_ends_where_its_text_its_tokens_or_the_context_do(
    tiny: Path, tmp_path: Path, policy: TorchPolicy
):
    prefix = await asked(policy, "when")
    whole = await policy.complete(prefix, Sampling(max_tokens=40, seed=3))
    assert (whole.stop_reason, len(whole.token_ids or ())) == ("length", 40)
    shown = list[str]()
    cut = await policy.complete(
        prefix, Sampling(max_tokens=40, seed=3), lambda text: 7 if len(text) > 7 else None,
        shown.append,
    )  # fmt: skip
    assert (cut.text, cut.stop_reason) == (whole.text[:7], "stop")
    assert cut.token_ids == (whole.token_ids or ())[: len(cut.token_ids or ())]
    await asyncio.sleep(0)
    assert "".join(shown) == cut.text
    async with open_torch(
        str(tiny), tmp_path, replace(CONFIG, context_tokens=len(prefix) + 5)
    ) as p:
        assert len((await p.complete(prefix, Sampling(max_tokens=40, seed=3))).token_ids or ()) == 5
        with pytest.raises(PolicyError, match="the context holds") as refused:
            await p.complete((*prefix, *prefix), GREEDY)
    assert "context_tokens" in refused.value.remedy


async def test_the_end_of_a_turn_is_no_token_of_it(tmp_path: Path):
    """A model that writes the end of the turn whatever it has read."""
    base = load_base(write_tiny(tmp_path / "tiny.gguf"))
    words = Vocabulary.of(tmp_path / "tiny.gguf")
    end = vocabulary().index("<|im_end|>")
    assert end in words.ends and words.pieces[end] == b""
    with torch.no_grad():
        base.get_output_embeddings().weight[end, 0] = 400.0
    told = LlamaConfig(context_tokens=256, threads=1)
    tokeniser = await LlamaPolicy.load(tmp_path / "tiny.gguf", "tiny", "v", told)
    policy = TorchPolicy(base, words, CONFIG, tokeniser, "tiny", "v")
    try:
        said = await policy.complete(await asked(policy, "x"), GREEDY)
    finally:
        await policy.aclose()
        await tokeniser.aclose()
    assert (said.text, said.stop_reason, said.token_ids, said.logprobs) == ("", "eos", (), ())


async def test_a_pass_that_fails_ends_its_turns_in_a_sentence_and_no_others(
    policy: TorchPolicy, monkeypatch: pytest.MonkeyPatch
):
    prefix = await asked(policy, "why")
    honest = await policy.complete(prefix, GREEDY)
    whole = RowCache.write
    failures = iter([RuntimeError("not enough memory: 9 GB"), ValueError("?")])

    def write(rows: RowCache, *more: Any) -> dict[int, tuple[int, float]]:
        for failure in failures:
            raise failure
        return whole(rows, *more)

    with pytest.raises(PolicyError, match="ZeroDivisionError"):
        await policy.complete(prefix, GREEDY, lambda text: 1 // 0)
    monkeypatch.setattr(RowCache, "write", write)
    with pytest.raises(PolicyError, match="memory is not enough for this sampling") as told:
        await policy.complete(prefix, GREEDY)
    assert "concurrency" in told.value.remedy
    with pytest.raises(PolicyError, match=r"torch could not sample: ValueError: \?"):
        await policy.complete(prefix, GREEDY)
    again: Completion = await policy.complete(prefix, GREEDY)
    assert again.token_ids == honest.token_ids and again.usage.cached_tokens == 0


async def test_a_turn_that_is_left_during_a_pass_ends_no_other(policy: TorchPolicy):
    prefix, begun = await asked(policy, "why"), asyncio.Event()
    honest = await policy.complete(prefix, GREEDY)

    def stop(text: str) -> None:
        if begun.is_set():
            raise ValueError("it is asked though nobody waits")
        begun.set()

    left = asyncio.create_task(policy.complete(prefix, GREEDY, stop))
    other = asyncio.create_task(policy.complete(prefix, GREEDY))
    await begun.wait()
    left.cancel()
    assert (await other).token_ids == honest.token_ids


async def test_a_closed_sampler_leaves_nobody_waiting(tiny: Path, tmp_path: Path):
    async with open_torch(str(tiny), tmp_path, CONFIG) as opened:
        prefix = await asked(opened, "x")
        task = asyncio.create_task(opened.complete(prefix, Sampling(max_tokens=1900)))
        await asyncio.sleep(0.1)
    with pytest.raises(PolicyError, match="closed"):
        await task


def test_tokens_are_drawn_by_their_probabilities():
    logits = torch.tensor([[0.0, 1.0, 2.0, -30.0]]).repeat(20_000, 1)
    dice = random.Random(0)
    lucks = torch.tensor([dice.random() for _ in logits], dtype=torch.float64)
    heats = torch.full((len(logits),), 0.7, dtype=torch.float64)
    tokens, logprobs = draw_tokens(logits, heats, lucks)
    shares = tokens.long().bincount(minlength=4) / len(tokens)
    # Three standard deviations of a share of so many draws are 0.011 at most.
    assert torch.allclose(shares, (logits[0] / 0.7).softmax(-1), atol=0.011) and not shares[3]
    wanted = logits.log_softmax(-1)[range(len(tokens)), tokens.long()]
    assert torch.allclose(logprobs.float(), wanted, atol=1e-5)
    cold, _ = draw_tokens(logits[:9], torch.zeros(9, dtype=torch.float64), lucks[:9])
    assert cold.tolist() == [2] * 9
    ends = torch.tensor([0.0, math.nextafter(1, 0)], dtype=torch.float64)
    assert draw_tokens(torch.zeros(2, 4), heats[:2], ends)[0].tolist() == [0, 3], (
        "no token beyond the last"
    )


@torch.inference_mode()
def test_the_pass_of_a_gpu_writes_what_rows_of_their_own_do(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
):
    """All rows in one pass and prefixes read together, but for the recording, which takes a GPU."""
    texts = [
        [n % 90 + start for n in range(length)] for start, length in ((1, 30), (5, 3), (9, 11))
    ]
    alone = RowCache(load_base(tiny), 4)
    monkeypatch.setattr(sampler, "ROOM", 64)
    beside = RowCache(load_base(tiny), 4)
    beside._on_gpu = True  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(sampler, "record", lambda of, given: of)
    for row, text in enumerate(texts):
        alone.extend([row], [text[:-1]])
    beside.extend(range(3), [text[:-1] for text in texts])
    for _ in range(120):  # beyond the room that rows have at first
        draws = {n: Draw(t[-1], len(t) - 1, 0.0, 0.0) for n, t in enumerate(texts) if n != 1}
        mine, other = alone.write(draws), beside.write(draws)
        for row, (token, logprob) in mine.items():
            assert other[row] == (token, pytest.approx(logprob, abs=1e-4))
            texts[row].append(token)


@pytest.mark.model
@pytest.mark.slow
async def test_the_real_model_writes_what_llama_does(weights_05b: Path, tmp_path: Path):
    """In float32; its texts have characters of several tokens."""
    config = replace(CONFIG, slots=2)
    async with open_torch(str(weights_05b), tmp_path, config) as ours:
        llama = await LlamaPolicy.load(
            weights_05b, "0.5b", "v", LlamaConfig(context_tokens=512, threads=1)
        )
        try:
            for text in ("Name the capital of France.", "Write three emojis: 🦜"):
                prefix = await ours.render([Message("user", text)])
                told = replace(GREEDY, max_tokens=12)
                one, other = await ours.complete(prefix, told), await llama.complete(prefix, told)
                assert one.text == other.text and one.stop_reason == other.stop_reason
                assert one.logprobs and "\ufffd" not in one.text
        finally:
            await llama.aclose()
