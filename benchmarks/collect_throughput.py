"""What collecting itself costs, with 256 rollouts in flight at a server of 2 s a turn.

    python -m benchmarks.collect_throughput [--quick | --full]

One step of groups of four goes the whole way of `rubricem collect` beside a server process whose
three turns take exactly 2 s each, in 20 pieces: graph, free decoding, one journal with fsync for
all, every rollout kept in its folder, the step committed. The source holds fixed passages in
memory. Four times as many rollouts as are in flight (twice with --quick) are collected with 16 and
with 256 in flight, and last 256 again with the stage judge at the same server. Measured:

    share of the ideal   rollouts / in flight * turns * delay, of the wall time
    CPU per turn         CPU time of the collecting process / (rollouts * turns)
    memory per rollout   growth of the resident size while they are in flight / in flight
"""

import asyncio
import gc
import os
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.loopback import MODEL, TURNS, serving
from benchmarks.report import Value, emit, sized_parser
from benchmarks.scripted_judge import buffer_of
from rubricem.agent.models.chat_server import OpenAIChat
from rubricem.agent.models.limits import Limiter
from rubricem.agent.models.policy import ChatWriter, JournaledCalls, JournaledChat
from rubricem.agent.research.free import FreeDecoder
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.transcript.question import Ask
from rubricem.judge.build import stage_judge
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.schema import Decoding, Passage
from rubricem.training.collect.collector import Collector
from rubricem.training.collect.directory import Manifest, RunDirectory, hash_of
from rubricem.training.collect.gate import GatedPolicy, Meter, RunGate
from rubricem.training.collect.questions import Question
from rubricem.training.show.collected import run_numbers

FEW, MANY = 16, 256
DELAY, CHUNKS, GROUP = 2.0, 20, 4
LEAST_SHARE, MOST_CPU_MS, MOST_MB = 0.85, 6.0, 3.0
TEXT = "The rule decides the order, and its one exception is named beside it. " * 12


class FixedPassages:
    """A source in memory: the same five passages of about 140 words for every query."""

    name = "fixed"

    async def prepare(self) -> tuple[str, ...]:
        return ()

    async def search(self, query: str, limit: int) -> list[Passage]:
        return [Passage(f"Rule {i}", "memory", f"part {i}", TEXT) for i in range(min(limit, 5))]


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: seconds, CPU seconds, growth of the resident size in MB."""

    rollouts: int
    in_flight: int
    wall: float
    cpu: float
    growth: float

    def values(self, name: str) -> dict[str, float]:
        ideal = self.rollouts / self.in_flight * len(TURNS) * DELAY
        turns = self.rollouts * len(TURNS)
        return {
            f"share_of_ideal_{name}": round(ideal / self.wall, 3),
            f"cpu_ms_per_turn_{name}": round(self.cpu / turns * 1e3, 3),
            f"mb_per_rollout_{name}": round(max(self.growth, 0.0) / self.in_flight, 3),
        }


def begin_run(folder: Path, questions: int, judge: str) -> RunDirectory:
    """A run of so many questions, all in one step."""
    asked = [Question(id=f"{n}", question=f"Which rule is number {n}?") for n in range(questions)]
    run = RunDirectory(folder)
    manifest = Manifest(
        policy=MODEL, policy_version="", decoding=Decoding.FREE, judge=judge, group_size=GROUP,
        step_size=questions, reflections=0, memory="off", seed=0, tool_calls=10, settings={},
        questions_sha256=hash_of(asked),
    )  # fmt: skip
    run.begin(manifest, asked)
    return run


async def collect(address: str, folder: Path, rollouts: int, at_once: int, judge: bool) -> None:
    """Collect so many rollouts."""
    chat = OpenAIChat(MODEL, address, None, limiter=Limiter(at_once), timeout=60)
    run, meter = begin_run(folder, rollouts // GROUP, MODEL if judge else ""), Meter()
    journal = run.journal(meter.hear)
    buffers = BufferStore(folder / "rubrics")
    for question in run.questions() if judge else ():
        buffers.save(buffer_of(question.question).model_copy(update={"version": 1}))
    gate = RunGate(journal, meter)
    researcher = Researcher(
        policy=GatedPolicy(ChatWriter(chat), gate), decoder=FreeDecoder(), decoding=Decoding.FREE,
        search_tool=FixedPassages(), store=run.store, template=Ask(""), journal=journal,
    )  # fmt: skip
    calls = JournaledCalls(journal, lambda call: gate.call(MODEL, call))
    collector = Collector(
        run, researcher, buffers, gate,
        judge=stage_judge(JournaledChat(chat, calls)) if judge else None,
        at_once=at_once, judged_at_once=at_once // GROUP,
    )  # fmt: skip
    try:
        await collector.collect()
    finally:
        journal.close()


async def measure(
    address: str, folder: Path, rollouts: int, at_once: int, judge: bool = False
) -> Measured:
    """Raises AssertionError where a rollout was not finished or judged."""
    gc.collect()
    before, sizes = resident_mb(), [0.0]
    sampler = asyncio.create_task(sample(sizes))
    wall, cpu = time.perf_counter(), time.process_time()
    await collect(address, folder, rollouts, at_once, judge)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    sampler.cancel()
    found = run_numbers(RunDirectory(folder))
    assert found.finished == rollouts and not found.whole.why["unscored"], found
    return Measured(rollouts, at_once, wall, cpu, max(sizes) - before)


async def sample(sizes: list[float]) -> None:
    while True:
        sizes.append(resident_mb())
        await asyncio.sleep(DELAY / 4)


async def all_measured(address: str, folder: Path, waves: int) -> dict[str, Value]:
    # What is loaded once belongs to no rollout.
    await collect(address, folder / "warm", 2 * GROUP, GROUP, judge=True)
    few = await measure(address, folder / "few", waves * FEW, FEW)
    many = await measure(address, folder / "many", waves * MANY, MANY)
    judged = await measure(address, folder / "judged", waves * MANY, MANY, judge=True)
    # Judging takes two calls a group of its own after its rollouts, the proposal and the scores.
    longer = replace(judged, wall=judged.wall - many.wall)
    values: dict[str, Value] = {**few.values(f"{FEW}"), **many.values(f"{MANY}")}
    values |= {
        "growth_of_memory_mb": round(many.growth, 1),
        f"growth_of_memory_mb_{FEW}": round(few.growth, 1),
        "judging_adds_s": round(longer.wall, 2),
        "judging_after_the_last_rollout_s": 2 * DELAY,
        "cpu_s_judged": round(judged.cpu, 2),
    }
    return values


def main() -> None:
    parser = sized_parser(__doc__, "twice what is in flight (default)", "four times that")
    waves = 4 if parser.parse_args().full else 2
    with (
        tempfile.TemporaryDirectory(prefix="collect_throughput.", dir=Path.cwd()) as folder,
        serving(DELAY, CHUNKS) as address,
    ):
        values = asyncio.run(all_measured(address, Path(folder), waves))
    most = {f"cpu_ms_per_turn_{MANY}": MOST_CPU_MS, f"mb_per_rollout_{MANY}": MOST_MB}
    emit(
        "collect_throughput",
        values,
        f"{waves} times {FEW} and {MANY} rollouts of {len(TURNS)} turns, groups of {GROUP}, "
        f"{DELAY:g} s a turn in {CHUNKS} pieces; {os.cpu_count()} cores, which the server shares",
        least={f"share_of_ideal_{MANY}": LEAST_SHARE},
        most=most,
    )


if __name__ == "__main__":
    main()
