"""What a GPU needs for a step and for sampling, beside plain transformers; `train_speed` runs it.

A step is SS-GRPO's on 16 rows of 900 tokens, LoRA of rank 16 in bfloat16. Beside it is the same
loss by transformers and peft as anybody writes it, all rows at once and whole logits. Sampling is
of prompts of 200 tokens, half of which all share, by the sampler that rounds use, turns read as
they come; beside it transformers' continuous batching, with the attention that is installed.
"""

import asyncio
import gc
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch

from benchmarks.report import Value
from benchmarks.train_speed import RATE, Arm, window
from rubricem.agent.weights.store import WeightsStore, weights_dir
from rubricem.memory.schema import Sampling
from rubricem.training.local.learner import Learner
from rubricem.training.local.load import load_base, load_learner
from rubricem.training.local.local_config import EngineConfig
from rubricem.training.local.ranks import Ranks
from rubricem.training.local.sampler import TorchConfig, open_torch
from rubricem.training.objective.batch import Batch
from rubricem.training.objective.objective_config import ObjectiveConfig
from rubricem.training.rows.row import TrainRow

ROWS, LENGTH = 16, 900
WINDOW = Arm(hidden=0, layers=0, words=100, rows=ROWS, shortest=LENGTH, longest=LENGTH, steps=0)
ASKED, SHARED, WRITTEN = 200, 100, 160
"""tokens of a prompt to sample from, of them the same in all, and that are written to each"""
AT_ONCE = (16, 64, 256)
LEAST, MOST = {"sampled_tokens_s_256": 36_400}, {"step_of_plain": 0.4}
DTYPE: Literal["bfloat16"] = "bfloat16"


class Clock:
    """Seconds and memory of what a device does."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def time(self, work: Callable[[], Any], times: int = 4) -> tuple[float, float]:
        """Of the first time, and the least of the others."""
        taken = []
        for _ in range(times):
            self._wait()
            began = time.perf_counter()
            work()
            self._wait()
            taken.append(time.perf_counter() - began)
        return taken[0], min(taken[1:])

    def peak_gb(self) -> float:
        """Since the last time it was asked for; frees what is held for nobody."""
        if self.device.type != "cuda":
            return 0.0
        found = torch.cuda.max_memory_allocated(self.device) / 1e9
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)
        return round(found, 1)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def steps(path: Path, clock: Clock, tell: Callable[..., None]) -> None:
    """A step of the product, and of plain transformers and peft."""
    rows, device = window(WINDOW), clock.device
    with TemporaryDirectory() as folder:
        for name, beta in (("step", 0.0), ("step_with_reference", 0.01)):
            config = EngineConfig(
                out=Path(folder), model=str(path), dtype=DTYPE, max_row_tokens=LENGTH,
                micro_batch=ROWS, objective=ObjectiveConfig(beta=beta),
            )  # fmt: skip
            learner: Learner | None = load_learner(config, path, Ranks(device=device))
            clock.peak_gb()
            assert learner is not None
            first, least = clock.time(lambda one=learner: one.ss_grpo_step(rows, RATE))  # type: ignore[misc]
            learner = None
            tell(**{f"{name}_s": least, f"{name}_first_s": first, f"{name}_gb": clock.peak_gb()})
    plain = plain_step(path, rows, device)
    clock.peak_gb()
    first, least = clock.time(plain)
    tell(plain_step_s=least, plain_step_first_s=first, plain_step_gb=clock.peak_gb())


def plain_step(path: Path, rows: Sequence[TrainRow], device: torch.device) -> Callable[[], None]:
    """One update by transformers and peft alone."""
    from peft import LoraConfig, get_peft_model

    base = load_base(path, DTYPE).to(device)
    adapters = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(base, adapters).train()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=RATE, fused=True)
    batch = Batch.collate(list(rows)).to(device)
    mask, gains = batch.mask[:, 1:], batch.advantages[:, 1:]

    def step() -> None:
        optimizer.zero_grad()
        logits = model(input_ids=batch.ids, use_cache=False).logits[:, :-1]
        chosen = torch.stack(
            [
                own.float().gather(-1, ids[1:, None]).squeeze(-1) - own.float().logsumexp(-1)
                for own, ids in zip(logits, batch.ids, strict=True)
            ]
        )
        ratio = (chosen - chosen.detach()).exp()
        (-(ratio * gains * mask).sum() / batch.tokens).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()

    return step


def prompts(count: int) -> list[tuple[int, ...]]:
    dice = random.Random(1)
    shared = [dice.randrange(100) for _ in range(SHARED)]
    return [(*shared, *(dice.randrange(100) for _ in range(ASKED - SHARED))) for _ in range(count)]


async def sampling(
    model: str, clock: Clock, at_once: Sequence[int], tell: Callable[..., None]
) -> None:
    """Tokens a second of so many turns at once, prompts read anew and then known."""
    for count in at_once:
        config = TorchConfig(slots=count, context_tokens=4096, dtype=DTYPE, device=clock.device)
        async with open_torch(model, weights_dir(), config) as policy:

            async def turn(number: int, prompt: tuple[int, ...], tokens: int = WRITTEN) -> int:
                told = Sampling(max_tokens=tokens, temperature=1.0, seed=number)
                return (await policy.complete(prompt, told)).usage.completion_tokens

            await turn(0, prompts(1)[0], 4)  # what the first pass makes is made once for a round
            began = time.perf_counter()
            written = await asyncio.gather(*(turn(n, p) for n, p in enumerate(prompts(count))))
            took = time.perf_counter() - began
        tell(
            **{f"sampled_tokens_s_{count}": round(sum(written) / took), f"sampled_s_{count}": took}
        )


def continuous(path: Path, clock: Clock, count: int, tell: Callable[..., None]) -> None:
    """The same by transformers' continuous batching."""
    from transformers import GenerationConfig
    from transformers.generation.configuration_utils import ContinuousBatchingConfig

    model = load_base(path, DTYPE).to(clock.device)
    model.set_attn_implementation("paged|sdpa")
    told = GenerationConfig(
        max_new_tokens=WRITTEN, do_sample=True, temperature=1.0, top_k=0, eos_token_id=-1,
        pad_token_id=0,
    )  # fmt: skip
    how = ContinuousBatchingConfig(max_memory_percent=0.3, return_logprobs=True, seed=0)
    began = time.perf_counter()
    found = model.generate_batch(
        [list(p) for p in prompts(count)], told, how, progress_bar=False, warmup=True
    )
    took = time.perf_counter() - began
    stamps = [one for one in found.values() if one.generated_tokens]
    written = sum(len(one.generated_tokens) for one in stamps)
    tell(**{f"continuous_tokens_s_{count}": round(written / took), f"continuous_s_{count}": took})


def measure_on(model: str, device: str, at_once: Sequence[int] = AT_ONCE) -> dict[str, Value]:
    """All of it; what fails is told and left out."""
    clock, found = Clock(torch.device(device)), dict[str, Value]()
    path = asyncio.run(WeightsStore(weights_dir()).model_files(model)).path

    def tell(**values: float) -> None:
        found.update({name: round(value, 4) for name, value in values.items()})
        print(values, flush=True)

    works: dict[str, Callable[[], Any]] = {
        "steps": lambda: steps(path, clock, tell),
        "sampling": lambda: asyncio.run(sampling(model, clock, at_once, tell)),
        "continuous": lambda: continuous(path, clock, at_once[-1], tell),
    }
    for name, work in works.items():
        try:
            work()
        except (RuntimeError, ValueError, AttributeError, ImportError, TypeError) as error:
            found[f"{name}_failed"] = f"{type(error).__name__}: {str(error)[:300]}"
            print(found[f"{name}_failed"], flush=True)
        clock.peak_gb()
    if "step_s" in found and "plain_step_s" in found:
        found["step_of_plain"] = round(float(found["step_s"]) / float(found["plain_step_s"]), 3)  # type: ignore[arg-type]
    return found
