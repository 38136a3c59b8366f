"""The checks of first_gpu.sh: what was never run on a GPU, each reported as pass or fail.

    device      torch finds the GPU (with --cpu: no check)
    ids         the sampler's ids of a chat and of a text are those of the trainer's tokenizer
    logprobs    the sampler's log-probabilities of what it wrote are the trainer's
    refresh     a trained adapter is served: what it samples has the trainer's log-probabilities
                after the step, and what was sampled before has not
    round       one round of SS-GRPO by `rubricem train`, to its end
    fsdp        loss and gradient of a step on one and on two ranks match those of one process;
                without two GPUs, two ranks are two processes on the CPU

A check that fails does not stop the others.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rubricem.agent.models.opening import EmbeddedChoice, PolicyChoice, ServerChoice
from rubricem.memory.schema import Message, Sampling
from rubricem.training.local.learner import Learner
from rubricem.training.local.load import Base, load_learner
from rubricem.training.local.local_config import EngineConfig
from rubricem.training.local.ranks import Ranks
from rubricem.training.local.session import TrainingSession, open_session
from rubricem.training.rounds.rollouts import VllmServer
from rubricem.training.rows.row import TrainRow
from rubricem.training.rows.sequences import is_folder, read_tokeniser

CHAT = [Message("system", "You answer in one sentence."), Message("user", "What is a cache for?")]
ROWS, TOKENS, RATE = 4, 48, 1e-3
MOST_GAP = 0.05
"""nats a token between sampler and trainer, on average"""
MOVED = 3.0
"""so many times as far from the trainer is what was sampled before the step"""
ALIKE = 2e-3
"""relative, between numbers of ranks in float32"""
LIMIT = 420.0
"""seconds of one check"""


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    passed: bool
    told: str


class Checks:
    """What the checks share: where they run, and what one leaves for the next."""

    def __init__(self, told: argparse.Namespace) -> None:
        self.cpu, self.work = told.cpu, Path(told.work).absolute()
        there = Path(told.model).expanduser()
        self.model = str(there.absolute()) if there.exists() else told.model
        self.base_url, self.tokenizer = told.base_url, told.tokenizer
        self.most_gap, self.judge, self.limit = told.most_gap, told.judge_base_url, told.limit
        self.lines: list[Line] = []

    @property
    def config(self) -> EngineConfig:
        return EngineConfig.model_validate({
            "out": str(self.work / "out"), "model": self.model, "rank": 8, "alpha": 16.0,
            "max_row_tokens": 8192,
            "dtype": "float32" if self.cpu else "bfloat16",
        })  # fmt: skip

    def sampler(self, model: str) -> PolicyChoice:
        if self.base_url:
            return ServerChoice(model, self.base_url, in_tokens=True)
        return EmbeddedChoice(model)

    async def run(self) -> bool:
        """All checks in order, and the table; whether every one passed."""
        await self._check("device", self.device)
        await self._check("ids", self.ids)
        await self._check("logprobs, refresh", self.sampled)
        await self._check("round", self.round)
        await self._check("fsdp", self.fsdp)
        width = max(len(line.name) for line in self.lines)
        for line in self.lines:
            print(f"{line.name:<{width}}  {'pass' if line.passed else 'FAIL'}  {line.told}")
        return all(line.passed for line in self.lines)

    async def _check(self, name: str, check: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(self.limit):
                await check()
        except TimeoutError:
            self.note(name, False, f"not done in {self.limit:.0f} s; --limit says how long to wait")
        except Exception as error:  # the others are still to be seen
            self.note(name, False, f"{type(error).__name__}: {error}".replace("\n", " ")[:300])

    def note(self, name: str, passed: bool, told: str) -> None:
        print(f"... {name}: {told}", file=sys.stderr, flush=True)
        self.lines.append(Line(name, passed, told))

    async def device(self) -> None:
        if self.cpu:
            self.note("device", True, f"no GPU is asked for; torch {torch.__version__}")
            return
        found = torch.cuda.is_available()
        name = torch.cuda.get_device_name() if found else "none"
        self.note("device", found, f"{name}, {torch.cuda.device_count()} of them")

    async def ids(self) -> None:
        folder = self.tokenizer or (self.model if is_folder(self.model) else "")
        if not folder:
            self.note("ids", True, "a GGUF file has one tokenizer: there is nothing to compare")
            return
        own = read_tokeniser(Path(folder))
        async with self.sampler("policy" if self.base_url else self.model).open_tokens() as served:
            text = "A cache keeps <|what|> it was asked for.\n\n  42 times.\t"
            pairs = [
                (await own.render(CHAT), await served.render(CHAT)),
                (await own.encode(text), await served.encode(text)),
            ]
        same = all(tuple(ours) == tuple(theirs) for ours, theirs in pairs)
        counts = ", ".join(f"{len(ours)} and {len(theirs)}" for ours, theirs in pairs)
        self.note("ids", same, f"ids of a chat and of a text, trainer and sampler: {counts}")

    async def sampled(self) -> None:
        """Sample, compare, train a step, have it served, sample and compare again."""
        first = await self._rows("policy" if self.base_url else self.model)
        async with open_session(self.config, "ss-grpo", lambda line: None) as session:
            gap = self._gap(session, first)
            self.note("logprobs", gap <= self.most_gap, f"{gap:.4f} nats a token apart")
            session.step(first, RATE)
            checkpoint = session.save()
            second = await self._refreshed(checkpoint.resolve())
            fresh, stale = self._gap(session, second), self._gap(session, first)
        served = fresh <= self.most_gap and stale >= MOVED * fresh
        told = f"{fresh:.4f} nats a token apart; what was sampled before it, {stale:.4f}"
        self.note("refresh", served, told)

    def _gap(self, session: TrainingSession, rows: Sequence[TrainRow]) -> float:
        return float(session.learner.ss_grpo_step(rows, 0.0)["sampler_gap"])

    async def _refreshed(self, checkpoint: Path) -> list[TrainRow]:
        if not self.base_url:
            return await self._rows(str(checkpoint))
        server = VllmServer(self.base_url, self.work, None, lambda line: None)
        async with server.serving(checkpoint) as model:
            return await self._rows(model)

    async def _rows(self, model: str) -> list[TrainRow]:
        """What a model writes by several seeds, half of it liked."""
        async with self.sampler(model).open_tokens() as served:
            prompt = await served.render(CHAT)
            found = []
            for number in range(ROWS):
                sampling = Sampling(max_tokens=TOKENS, temperature=1.0, seed=number)
                said = await served.complete(prompt, sampling)
                found.append(row_of(number, prompt, said.token_ids, said.logprobs))
        return found

    async def round(self) -> None:
        documents = self.work / "documents"
        documents.mkdir(parents=True, exist_ok=True)
        (documents / "cache.md").write_text("# Caches\n\nA cache keeps what was read before.\n")
        (self.work / "questions.txt").write_text("What does a cache keep?\nWhy is one used?\n")
        table: dict[str, Any] = {
            "questions": "questions.txt", "rounds": 1, "questions_per_round": 2, "group_size": 4,
            "source": ["documents"], "tool_calls": 1, "max_tokens": 512 if not self.cpu else 64,
            "reflections": 2, "ahead": 0,
        }  # fmt: skip
        if self.base_url:
            table |= {"base_url": self.base_url, "model": "policy", "refresh": "vllm-lora"}
        if self.judge:
            table |= {"judge_base_url": self.judge, "judge_model": "judge"}
        engine = self.config.model_dump(mode="json", exclude_unset=True) | {"out": "round"}
        path = self.work / "rounds.toml"
        lines = [f"{name} = {json.dumps(value)}" for name, value in engine.items()]
        lines += ["[rounds]", *(f"{name} = {json.dumps(value)}" for name, value in table.items())]
        path.write_text("\n".join(lines) + "\n")
        rubricem = "from rubricem.agent.cli import main; main()"
        command = [sys.executable, "-c", rubricem, "train", "ss-grpo", str(path)]
        code, said = await told_by(command, self.limit, on_cpu=self.cpu)
        kept = self.work / "round" / "rounds.jsonl"
        rounds = kept.read_text().splitlines() if kept.is_file() else []
        told = said.strip().splitlines()[-1][:200] if said.strip() else ""
        if rounds:
            found = json.loads(rounds[0])
            rows = found["rows/policy"] + found["rows/reflect"]
            told = f"{found['rollouts']:.0f} rollouts, {rows:.0f} rows were trained"
        self.note("round", code == 0 and len(rounds) == 1, told)

    async def fsdp(self) -> None:
        base = await Base.find(self.model)
        several = not self.cpu and torch.cuda.device_count() > 1
        alone = await self._step(base.path, 0, "cuda" if several else "cpu")
        for ranks in (1, 2):
            device = "cpu" if self.cpu or (ranks == 2 and not several) else "cuda"
            against = alone if device == ("cuda" if several else "cpu") else None
            against = against or await self._step(base.path, 0, device)
            found = await self._step(base.path, ranks, device)
            apart = max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(found, against, strict=True))
            told = f"{device}: loss {found[0]:.6f}, gradient {found[1]:.6f}; {apart:.1e} apart"
            self.note(f"fsdp, {ranks} ranks", apart <= ALIKE, told)

    async def _step(self, model: Path, ranks: int, device: str) -> tuple[float, float]:
        launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        own = [__file__, "--step", "--model", str(model)]
        command = [sys.executable, *(launch if ranks else []), *own]
        code, said = await told_by(command, self.limit, on_cpu=device == "cpu")
        if code:
            raise RuntimeError(said.strip().splitlines()[-1])
        loss, norm = json.loads(said.strip().splitlines()[-1])
        return loss, norm


async def told_by(command: Sequence[str], limit: float, on_cpu: bool) -> tuple[int, str]:
    """The exit status and what a command printed; it ends with the check."""
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    if on_cpu:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=environment
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), limit)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, said.decode(errors="replace")


def row_of(
    number: int, prompt: Sequence[int], ids: Sequence[int], logprobs: Sequence[float] | None
) -> TrainRow:
    mask = (0,) * len(prompt) + (1,) * len(ids)
    liked = 1.0 if number % 2 else -1.0
    return TrainRow(
        id=f"row{number}", group=f"group{number // 2}", trajectory=f"t{number}",
        objective="policy", policy_version="", ids=(*prompt, *ids), prompt_tokens=len(prompt),
        loss_mask=mask, advantages=tuple(liked * on for on in mask),
        behaviour_logprobs=(*(0.0,) * len(prompt), *(logprobs or ())),
        stages=tuple(0 if on else -1 for on in mask),
    )  # fmt: skip


def step(model: Path) -> None:
    """One step of all weights, as torchrun or nobody started it; prints loss and gradient."""
    config = EngineConfig.model_validate({
        "out": "unused", "dtype": "float32", "adaptation": "full", "parallel": "fsdp",
    })  # fmt: skip
    prompt, written = range(2, 18), range(20, 52)
    rows = [row_of(n, prompt, [i + n for i in written], [-2.0] * len(written)) for n in range(ROWS)]
    ranks = Ranks.join()
    learner: Learner = load_learner(config, model, ranks)
    found = learner.ss_grpo_step(rows, 1e-6)
    if ranks.first:
        print(json.dumps([found["loss"], found["grad_norm"]]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--work", default="first_gpu")
    parser.add_argument("--cpu", action="store_true", help="llama.cpp samples, and no GPU is asked")
    parser.add_argument("--base-url", default="", help="of the vLLM server")
    parser.add_argument("--judge-base-url", default="", help="another server that judges")
    parser.add_argument("--tokenizer", default="", help="its folder, where MODEL is a GGUF file")
    parser.add_argument("--most-gap", type=float, default=MOST_GAP, help="nats a token")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of one check")
    parser.add_argument("--step", action="store_true", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.step:
        step(Path(told.model))
        return
    Path(told.work).mkdir(parents=True, exist_ok=True)
    sys.exit(0 if asyncio.run(Checks(told).run()) else 1)


if __name__ == "__main__":
    main()
