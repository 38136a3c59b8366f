"""What the asking process itself costs, beside a model server that takes a known time per turn.

    python -m benchmarks.ask_overhead [--quick | --full]

Questions go the whole way of `rubricem ask` against a server: graph, free decoding, the
OpenAI client, a journal with fsync on disk, a kept trajectory. The server is a process of its
own whose turns take exactly 1 s (64 questions at once) or 200 ms (one alone) and arrive in 20
pieces; the source holds fixed passages in memory. Measured for N questions of T turns:

    share of the ideal   T * delay / wall time of all N together
    CPU per turn         CPU time of the asking process / (N * T)
    own time per turn    (wall time of one question - T * delay) / T, alone
    memory per question  growth of the peak resident size while N are in flight / N
"""

import argparse
import asyncio
import gc
import os
import resource
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.loopback import MODEL, TURNS, serving
from benchmarks.report import Value, emit
from rubricem.agent.models.chat_server import OpenAIChat
from rubricem.agent.models.limits import Limiter
from rubricem.agent.models.policy import ChatWriter
from rubricem.agent.research.free import FreeDecoder
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.transcript.question import Ask
from rubricem.memory.runs import Journal, RunStore
from rubricem.memory.schema import Decoding, Passage, Status

AT_ONCE, SLOW = 64, 1.0
ALONE, FAST = 10, 0.2
LEAST_SHARE, MOST_CPU_MS, MOST_OWN_MS, MOST_MB = 0.9, 8.0, 15.0, 5.0
TEXT = "The rule decides the order, and its one exception is named beside it. " * 12


class FixedPassages:
    """A source in memory: the same five passages of about 140 words for every query."""

    name = "fixed"

    async def prepare(self) -> tuple[str, ...]:
        return ()

    async def search(self, query: str, limit: int) -> list[Passage]:
        return [Passage(f"Rule {i}", "memory", f"part {i}", TEXT) for i in range(min(limit, 5))]


@asynccontextmanager
async def researcher(address: str, folder: Path) -> AsyncIterator[Researcher]:
    chat = OpenAIChat(MODEL, address, None, limiter=Limiter(AT_ONCE))
    journal = Journal(folder / "journal.jsonl")
    try:
        yield Researcher(
            policy=ChatWriter(chat),
            decoder=FreeDecoder(),
            decoding=Decoding.FREE,
            search_tool=FixedPassages(),
            store=RunStore(folder),
            template=Ask(""),
            journal=journal,
        )
    finally:
        journal.close()


async def ask(agent: Researcher, number: int) -> float:
    """Seconds of one finished question."""
    began = time.perf_counter()
    trajectory = await agent.ask(
        replace(agent.template, question=f"Which rule is number {number}?")
    )
    assert trajectory.status is Status.FINISHED, trajectory.reason
    assert trajectory.usage.calls == len(TURNS), "every turn was accepted"
    return time.perf_counter() - began


async def together(agent: Researcher, count: int) -> dict[str, float]:
    """`count` questions at once."""
    gc.collect()
    before, wall, cpu = resident_mb(), time.perf_counter(), time.process_time()
    sizes: list[float] = []
    sampler = asyncio.create_task(sample(sizes))
    await asyncio.gather(*(ask(agent, number) for number in range(count)))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    sampler.cancel()
    return {"wall_s": wall, "cpu_s": cpu, "growth_mb": max(sizes) - before}


async def sample(sizes: list[float]) -> None:
    while True:
        sizes.append(resident_mb())
        await asyncio.sleep(SLOW / 4)


async def alone(agent: Researcher, count: int) -> list[float]:
    """Seconds of each of `count` questions, one after another."""
    return [await ask(agent, number) for number in range(count)]


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure_together(chunks: int, folder: Path) -> dict[str, float]:
    async def run(address: str) -> dict[str, float]:
        async with researcher(address, folder) as agent:
            # What is loaded once belongs to no question.
            await ask(agent, AT_ONCE)
            gc.collect()
            gc.freeze()  # as the server and collecting do, which alone have so many at once
            return await together(agent, AT_ONCE)

    with serving(SLOW, chunks) as address:
        measured = asyncio.run(run(address))
    turns = AT_ONCE * len(TURNS)
    return {
        f"share_of_ideal_{chunks}_chunks": len(TURNS) * SLOW / measured["wall_s"],
        f"cpu_ms_per_turn_{chunks}_chunks": measured["cpu_s"] / turns * 1e3,
        f"mb_per_question_{chunks}_chunks": max(measured["growth_mb"], 0.0) / AT_ONCE,
    }


def measure_alone(chunks: int, folder: Path, count: int) -> dict[str, float]:
    async def run(address: str) -> list[float]:
        async with researcher(address, folder) as agent:
            await ask(agent, count)
            return await alone(agent, count)

    with serving(FAST, chunks) as address:
        seconds = asyncio.run(run(address))
    own = [second - len(TURNS) * FAST for second in seconds]
    return {
        "own_ms_per_turn_median": statistics.median(own) / len(TURNS) * 1e3,
        "own_ms_per_turn_max": max(own) / len(TURNS) * 1e3,
        "own_ms_per_question_median": statistics.median(own) * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help=f"{ALONE} questions alone (default)")
    size.add_argument("--full", action="store_true", help=f"{5 * ALONE} questions alone")
    full = parser.parse_args().full
    values: dict[str, Value] = {"questions_at_once": AT_ONCE, "turns_per_question": len(TURNS)}
    with tempfile.TemporaryDirectory(prefix="ask_overhead.", dir=Path.cwd()) as folder:
        for chunks in (20, 60):
            values |= round_all(measure_together(chunks, Path(folder) / str(chunks)))
        values |= round_all(measure_alone(20, Path(folder) / "alone", (5 if full else 1) * ALONE))
    values["peak_resident_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000
    targets, holds = compare_targets(values)
    emit("ask_overhead", values, targets, holds, how())


def round_all(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in values.items()}


def compare_targets(values: dict[str, Value]) -> tuple[dict[str, str], bool]:
    """The targets in words, and whether all of them were met; they are for 20 chunks."""
    limits = {
        "cpu_ms_per_turn_20_chunks": MOST_CPU_MS,
        "own_ms_per_turn_median": MOST_OWN_MS,
        "mb_per_question_20_chunks": MOST_MB,
    }
    share = "share_of_ideal_20_chunks"
    targets = {share: f">= {LEAST_SHARE}"} | {n: f"<= {limit:g}" for n, limit in limits.items()}
    met = [number(values[name]) <= limit for name, limit in limits.items()]
    return targets, all(met) and number(values[share]) >= LEAST_SHARE


def number(value: Value) -> float:
    assert isinstance(value, float)
    return value


def how() -> str:
    return (
        f"a loopback server in its own process, {AT_ONCE} at once at {SLOW:g} s a turn, one alone "
        f"at {FAST * 1e3:g} ms; in-memory source, one shared journal and kept runs on disk with "
        f"fsync; {os.cpu_count()} cores, which the server shares"
    )


if __name__ == "__main__":
    main()
