"""How near judging comes to the ideal with 64 calls in flight at a server of one second.

    python -m benchmarks.judge_throughput [--quick | --full]

Runs are judged by stages on criteria that are there already, one call a run, 64 runs at once: the
ideal is calls / 64 seconds. Then whole groups of eight, which must be proposed for before they
can be scored: their ideal is one second more. The server is a process of its own.
"""

import argparse
import asyncio
import math
import os
import time
from collections.abc import Sequence

from benchmarks.judged import buffer_of, run_of
from benchmarks.loopback import MODEL, serving
from benchmarks.report import emit
from rubricem.agent.models.chat_server import OpenAIChat
from rubricem.agent.models.limits import Limiter
from rubricem.judge.build import stage_judge
from rubricem.memory.schema import GroupJudgement, TrajectoryGroup

AT_ONCE, DELAY, CHUNKS = 64, 1.0, 20
CHARACTERS = 20_000
GROUP = 8
LEAST = 0.9


async def judge_all(
    address: str, groups: Sequence[TrajectoryGroup], at_once: int
) -> tuple[float, float]:
    """Seconds for all groups, so many at once, and of this process's CPU.

    Raises AssertionError where one was not judged whole.
    """
    model = OpenAIChat(MODEL, address, None, limiter=Limiter(AT_ONCE))
    judge, places = stage_judge(model), asyncio.Semaphore(at_once)

    async def judge_one(group: TrajectoryGroup) -> GroupJudgement:
        async with places:
            return await judge.judge(group, buffer_of(group.question))

    # The first call opens what later ones reuse.
    await judge_one(groups[0])
    began, cpu = time.monotonic(), time.process_time()
    done = await asyncio.gather(*map(judge_one, groups))
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    assert not [note for one in done for note in one.notes]
    return seconds, cpu


def groups_of(count: int, size: int) -> list[TrajectoryGroup]:
    runs = [run_of(number, CHARACTERS) for number in range(count * size)]
    return [
        TrajectoryGroup(question=runs[0].question, trajectories=tuple(runs[i : i + size]))
        for i in range(0, len(runs), size)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="640 runs, then 320 in groups (default)")
    size.add_argument("--full", action="store_true", help="1280 runs, then 640 in groups")
    full = parser.parse_args().full
    alone, grouped = (1280, 640) if full else (640, 320)
    with serving(DELAY, CHUNKS) as address:
        seconds, cpu = asyncio.run(judge_all(address, groups_of(alone, 1), AT_ONCE))
        in_groups, _ = asyncio.run(judge_all(address, groups_of(grouped // GROUP, GROUP), AT_ONCE))
    ideal = math.ceil(alone / AT_ONCE) * DELAY
    ideal_groups = (1 + math.ceil(grouped / AT_ONCE)) * DELAY
    share = ideal / seconds
    emit(
        "judge_throughput",
        {
            "calls": alone,
            "share_of_ideal": round(share, 3),
            "seconds": round(seconds, 2),
            "cpu_ms_per_call": round(cpu / alone * 1e3, 2),
            "calls_in_groups": grouped + grouped // GROUP,
            "share_of_ideal_in_groups": round(ideal_groups / in_groups, 3),
            "seconds_in_groups": round(in_groups, 2),
        },
        {"share_of_ideal": f">= {LEAST}"},
        share >= LEAST,
        f"{AT_ONCE} in flight, {DELAY:g} s a call in {CHUNKS} pieces, runs of {CHARACTERS} "
        f"characters; {os.cpu_count()} cores, which the server shares",
    )


if __name__ == "__main__":
    main()
