"""What a token of a rollout costs by llama.cpp and by torch, read and written, in CPU time.

    python -m benchmarks.sampling [--quick | --full] [--out FILE]

Both open the 0.5B, llama.cpp its quantised file and torch the same numbers in the type that this
processor multiplies faster, and take turns: so many prompts of their own, of which one token is
written, which is what reading costs; then the same prompts, which are read already, and so many
tokens at temperature 1. One thread each, in one process, by the process's CPU time, which what else
the machine does hardly changes. `--full` has 32 texts beside 16 and one, and more turns.
"""

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.report import Value, emit
from rubricem.agent.models.llama import LlamaConfig, LlamaPolicy
from rubricem.agent.settings import load_settings
from rubricem.agent.weights.store import WeightsStore
from rubricem.memory.schema import Sampling, TokenPolicy
from rubricem.training.local.local_config import EngineConfig
from rubricem.training.local.sampler import TorchConfig, open_torch
from rubricem.training.local.session import settle_dtype

MODEL, READ, WRITTEN = "0.5b", 64, 24
"""the model, tokens of a prompt, and of what is written after it"""
ORDINARY = range(1_000, 50_000)
"""ids of tokens that are text, of which prompts are drawn"""


async def spent(policy: TokenPolicy, prompts: Sequence[tuple[int, ...]], most: int) -> float:
    """Milliseconds of CPU for each text of so many tokens after its prompt."""
    began = time.process_time()
    told = [Sampling(max_tokens=most, seed=number) for number in range(len(prompts))]
    said = await asyncio.gather(*map(policy.complete, prompts, told))
    taken = 1000 * (time.process_time() - began)
    return taken / sum(len(one.token_ids or ()) or 1 for one in said)


async def turn(policy: TokenPolicy, texts: int, seed: int) -> tuple[float, float]:
    """Milliseconds of CPU for a token read and a token written."""
    draw = random.Random(seed)
    prompts = [tuple(draw.choices(ORDINARY, k=READ)) for _ in range(texts)]
    one = await spent(policy, prompts, 1)
    written = await spent(policy, prompts, WRITTEN)
    return (one - written) / READ, written


async def measure(counts: Sequence[int], turns: int, weights: Path) -> dict[str, Value]:
    dtype = settle_dtype(EngineConfig(out=Path("unused")))
    path = await WeightsStore(weights).model(MODEL)
    values: dict[str, Value] = {"dtype": dtype, "turns": turns}
    for texts in counts:
        room = READ + 2 * WRITTEN
        config = LlamaConfig(context_tokens=room, threads=1, slots=texts)
        llama = await LlamaPolicy.load(path, MODEL, "v", config)
        own = TorchConfig(slots=texts, context_tokens=room, dtype=dtype, threads=1)
        async with open_torch(MODEL, weights, own) as ours:
            policies: dict[str, TokenPolicy] = {"llama": llama, "torch": ours}
            for policy in policies.values():
                await turn(policy, texts, turns)  # what is made once
            found = {name: list[tuple[float, float]]() for name in policies}
            for number in range(turns):
                for name in sorted(policies, reverse=bool(number % 2)):
                    found[name].append(await turn(policies[name], texts, number))
        await llama.aclose()
        for place, what in enumerate(("read", "written")):
            taken = {name: statistics.median(t[place] for t in of) for name, of in found.items()}
            values |= {f"{what}_ms_{name}_{texts}": round(v, 2) for name, v in taken.items()}
            values[f"{what}_speedup_{texts}"] = round(taken["llama"] / taken["torch"], 2)
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="16 texts (the default)")
    size.add_argument("--full", action="store_true", help="1, 16 and 32 texts, and more turns")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    counts, turns = ((1, 16, 32), 4) if asked.full else ((16,), 2)
    values = asyncio.run(measure(counts, turns, load_settings().weights_dir))
    emit(
        "sampling",
        values,
        {},
        True,
        f"{MODEL}: prompts of {READ} tokens, {WRITTEN} written at temperature 1, one thread each; "
        f"CPU time, medians of {turns} turns taken one after the other; no targets",
        asked.out,
    )


if __name__ == "__main__":
    main()
