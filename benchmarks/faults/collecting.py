"""A collecting run killed at random points and gone on with: is anything lost or done twice?

`rubricem collect` runs as a process against a loopback server that is its model, its stage judge
and its SearXNG, and counts every request: three steps of one question, four rollouts each, all of
them in flight at once. First one run is left alone. Then runs are killed (SIGKILL) when the server
has sent the k-th piece of text, k drawn evenly over the whole run, and the same command goes on.
A call is finished when its reply is in the journal. Calls after the kill, as the server counts
them, beyond those that were not finished yet, are finished calls that were repeated. What a run
leaves, and the training rows it gives (over bytes as tokens), is compared line by line with the run
that was left alone, but for names and times. All runs are served at one port: seeds come from the
calls' digests, in which the policy is named with its address.
"""

import asyncio
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.faults.asking import COMMAND, count_kept, counts, kill
from benchmarks.loopback import serving
from benchmarks.scripted_judge import buffer_of
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.schema import Message, Value
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.rows.compile import each_row

CHUNKS, DELAY = 20, 0.4
JITTER = 2 * DELAY / CHUNKS
"""seconds that a kill may come after its piece: into the time when replies and parts are kept"""
QUESTIONS = tuple(f"Which rule is number {number}?" for number in range(3))
GROUP = 4
NAMES = ("id", "trajectory_id", "trajectory", "trajectories", "reflected")
TIMES = ("started_at", "seconds", "spent", "usage")
"""fields that no two runs share; tokens estimated as cached depend on which call came first"""


class Bytes:
    """A tokeniser for text of a server that gives no ids: its bytes."""

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return await self.encode("".join(message.content for message in messages))

    async def encode(self, text: str) -> tuple[int, ...]:
        return tuple(text.encode())


def wait_until_settled(address: str) -> dict[str, int]:
    """The counts once nothing more comes of a client that is gone: it may just have asked."""
    before = counts(address)
    while True:
        time.sleep(DELAY)
        if (now := counts(address)) == before:
            return now
        before = now


@dataclass(frozen=True, slots=True)
class Place:
    """A folder with everything that one run needs, and the server it asks."""

    folder: Path
    address: str

    @property
    def run(self) -> RunDirectory:
        return RunDirectory(self.folder / "run")

    def begin(self) -> "subprocess.Popen[bytes]":
        searxng = f"searxng:{self.address.removesuffix('/v1')}"
        named = [str(self.folder / "questions.txt"), "--out", str(self.run.folder)]
        where = ["--base-url", self.address, "--source", searxng, "settings.memory=off"]
        shape = ["--group-size", str(GROUP), "step_size=1", "reflections=0", "--quiet"]
        environment = {**os.environ, "RUBRICEM_DATA_DIR": str(self.folder / "data")}
        return subprocess.Popen(
            [*COMMAND, "collect", *named, *where, *shape],
            env=environment, stdout=subprocess.DEVNULL,
        )  # fmt: skip

    def lines(self) -> dict[str, list[dict[str, Any]]]:
        """What the run's finished steps hold, without what no two runs share."""
        run = self.run
        products = {
            "trajectories": run.trajectories(), "groups": run.groups(),
            "judgements": run.judgements(),
        }  # fmt: skip

        async def rows() -> list[Value]:
            found = [row async for row in each_row(run, Bytes())]
            return [row for row in found if isinstance(row, Value)]

        return {
            name: [self._bare(value) for value in values]
            for name, values in (*products.items(), ("rows", asyncio.run(rows())))
        }

    @staticmethod
    def _bare(value: Value) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(value.model_dump_json())
        return {name: part for name, part in fields.items() if name not in NAMES + TIMES}


@dataclass(frozen=True, slots=True)
class Trial:
    """One kill and what came of it."""

    repeated: int
    in_flight: int
    """calls and searches that had begun and were not in the journal"""
    finished: int
    """rollouts of the whole run in the end"""
    same: bool


@cache
def _port() -> int:
    """One that was free when the first server was started."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        number: int = free.getsockname()[1]
    return number


@contextmanager
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as folder, serving(DELAY, CHUNKS, _port()) as address:
        made = Place(Path(folder), address)
        (made.folder / "questions.txt").write_text("".join(f"{q}\n" for q in QUESTIONS))
        buffers = BufferStore(made.folder / "data" / "buffers")
        for question in QUESTIONS:
            buffers.save(buffer_of(question).model_copy(update={"version": 1}))
        yield made


def run_undisturbed() -> tuple[dict[str, int], dict[str, list[dict[str, Any]]]]:
    """What the server counted of a whole run, and what the run left."""
    with place() as whole:
        if whole.begin().wait() != 0:
            raise RuntimeError("the run that was left alone failed")
        return counts(whole.address), whole.lines()


def trial(
    at: int, wait: float, total: dict[str, int], whole: dict[str, list[dict[str, Any]]]
) -> Trial:
    """Kill after piece `at` and a little, then go on to the end."""
    with place() as killed:
        kill(killed.begin(), killed.address, at, wait)
        before, held = wait_until_settled(killed.address), count_kept(killed.run.folder)
        done = killed.begin().wait()
        after = counts(killed.address)
        names = ("calls", "searches")
        return Trial(
            repeated=sum(
                max(after[name] - before[name] - (total[name] - held[name]), 0) for name in names
            ),
            in_flight=sum(before[name] - held[name] for name in names),
            finished=len(killed.lines()["trajectories"]) if done == 0 else 0,
            same=done == 0 and killed.lines() == whole,
        )
