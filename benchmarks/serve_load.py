"""`rubricem serve` under load: 50 runs and 500 watchers who keep losing their connection.

    python -m benchmarks.serve_load [--quick] [--looks N] [--runs N --watchers N]
    python -m benchmarks.serve_load --short N

The model and a SearXNG are one loopback process, the server another, the watchers this one. All
runs are asked at once and take a minute (12 s with --quick): three turns and a check of citations
written in pieces of a token, 15 a second for each run. Ten watchers follow each run, and each
breaks its connection off at random, every ten seconds or so, and comes back with the number of
the last event it has. Measured:

    lost, missing, doubled   runs that did not finish; numbers of events, of all watchers
    delay                    from when an event is told to when a connected watcher has it
    events in a second       the most that one run told before its last

Median of several looks, since the machine does other work as well. With --short as many short runs
are asked instead, some at once: what of memory and open files does the server keep of each?
"""

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from pathlib import Path

import aiohttp

from benchmarks.event_readers import Reader, most_in_a_second
from benchmarks.loopback import MODEL, serving
from benchmarks.report import emit

RUNS, WATCHERS = 50, 10
TOKENS_A_SECOND = 15
TURNS = 4.5
"""turns that a run takes: three, a check, and two searches of a quarter each"""
STAYS = 10.0
MOST_DELAY_MS, MOST_EVENTS = 100.0, 5
PARTS, AT_ONCE, SETTLING = 5, 10, 1.0
"""of short runs: parts that are looked at, those asked at once, seconds before a look"""
MOST_KB_A_RUN = 50.0
"""what an allocator's noise comes to over some hundred runs"""
ROOT = Path(__file__).parent.parent
COMMAND = (sys.executable, "-c", "from rubricem.agent.cli import main; main(prog_name='rubricem')")
CHANGING = {"X-Rubricem": "1"}


@dataclass(frozen=True, slots=True)
class Look:
    """What one minute showed."""

    lost: int
    missing: int
    doubled: int
    events: int
    reconnects: int
    dropped: int
    delays_ms: list[float]
    most_in_a_second: int
    server_cpu: float
    """cores that the server kept busy"""
    server_mb: float
    most_mb: float
    """that it held at any time"""
    most_files: int
    """that it had open at any time"""
    files_left: int
    """once nobody watched any more"""

    @property
    def p95_ms(self) -> float:
        return statistics.quantiles(self.delays_ms, n=20)[-1]


@contextmanager
def server(model: str, data_dir: str) -> Iterator[tuple[str, int]]:
    """A server process; gives its address and its process id."""
    searxng = f"searxng:{model.removesuffix('/v1')}"
    options = ["--port", "0", "--base-url", model, "--model", MODEL, "--source", searxng]
    environment = {**os.environ, "RUBRICEM_DATA_DIR": data_dir, "RUBRICEM_TIMEOUT": "300"}
    command = [*COMMAND, "serve", *options, "--memory", "off", "--no-token"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = next(line for line in process.stdout if line.startswith("Serving on "))
            yield line.split()[2], process.pid
        finally:
            process.terminate()


async def look(
    address: str, pid: int, seconds: float, seed: int, count: int, watchers: int
) -> Look:
    """Ask, watch to the end, and count."""
    drawn = random.Random(seed)
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None, sock_read=60)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        runs = [await ask(http, address, f"Which rule is number {n}?") for n in range(count)]
        readers = [
            Reader(run, began, min(STAYS, seconds / 3), random.Random(drawn.random()))
            for run, began in runs
            for _ in range(watchers)
        ]
        before, held = cpu_seconds(pid), [holding(pid)]
        start = asyncio.get_running_loop().time()
        beside = asyncio.create_task(watch(pid, held))
        await asyncio.gather(*(reader.read(http, address) for reader in readers))
        beside.cancel()
        took = asyncio.get_running_loop().time() - start
        used = (cpu_seconds(pid) - before) / took
    # Of connections that lie idle by the hundred the server ends some.
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
        ends = [await status_of(http, address, run) for run, _ in runs]
    await asyncio.sleep(SETTLING)
    return tally(readers, ends, used, [*held, holding(pid)], watchers)


async def watch(pid: int, held: list[tuple[float, int]]) -> None:
    """What a process holds, twice a second."""
    while True:
        held.append(holding(pid))
        await asyncio.sleep(0.5)


def holding(pid: int) -> tuple[float, int]:
    """Megabytes and open files of a process."""
    return resident_mb(pid), len(os.listdir(f"/proc/{pid}/fd"))


def tally(
    readers: list[Reader],
    ends: list[str],
    cpu: float,
    held: list[tuple[float, int]],
    watchers: int,
) -> Look:
    told = {reader.run: max(reader.numbers) for reader in readers}
    return Look(
        lost=sum(end != "finished" for end in ends),
        missing=sum(len(set(range(1, told[r.run] + 1)) - set(r.numbers)) for r in readers),
        doubled=sum(len(r.numbers) - len(set(r.numbers)) for r in readers),
        events=sum(len(r.numbers) for r in readers),
        reconnects=sum(r.reconnects for r in readers),
        dropped=sum(r.dropped for r in readers),
        delays_ms=[delay * 1e3 for r in readers for delay in r.delays],
        most_in_a_second=max(most_in_a_second(r.births) for r in readers[::watchers]),
        server_cpu=cpu,
        server_mb=held[-1][0],
        most_mb=max(mb for mb, _ in held),
        most_files=max(files for _, files in held),
        files_left=held[-1][1],
    )


async def ask(http: aiohttp.ClientSession, address: str, question: str) -> tuple[str, float]:
    """The key of a new run, and when it was asked."""
    run = ""
    while not run:
        async with http.post(
            f"{address}api/runs", json={"question": question, "max_seconds": 0}, headers=CHANGING
        ) as response:
            if response.status == HTTPStatus.TOO_MANY_REQUESTS:
                await asyncio.sleep(1.0)  # of one client it takes so many in a while
                continue
            response.raise_for_status()
            run = (await response.json())["run"]
    async with http.get(f"{address}api/runs/{run}") as response:
        return run, datetime.fromisoformat((await response.json())["started_at"]).timestamp()


async def status_of(http: aiohttp.ClientSession, address: str, run: str) -> str:
    async with http.get(f"{address}api/runs/{run}") as response:
        return str((await response.json())["status"])


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def open_server(delay: float) -> Iterator[tuple[str, int]]:
    """A server over a model that takes so many seconds for a turn."""
    with (
        tempfile.TemporaryDirectory(prefix="serve_load.", dir=Path.cwd()) as folder,
        serving(delay, max(round(delay * TOKENS_A_SECOND), 1)) as model,
        server(model, folder) as one,
    ):
        yield one


def serve_and_look(seconds: float, seed: int, runs: int, watchers: int) -> Look:
    with open_server(seconds / TURNS) as (address, pid):
        return asyncio.run(look(address, pid, seconds, seed, runs, watchers))


async def many_short(address: str, pid: int, count: int) -> list[tuple[float, int]]:
    """Megabytes and open files of the server after each fifth of the runs."""
    after = []
    async with aiohttp.ClientSession() as http:
        for part in range(PARTS):
            for start in range(0, count // PARTS, AT_ONCE):
                some = range(start, min(start + AT_ONCE, count // PARTS))
                asked_now = (ask(http, address, f"Which rule is {part}.{n}?") for n in some)
                runs = await asyncio.gather(*asked_now)
                await asyncio.gather(*(wait_until_ended(http, address, run) for run, _ in runs))
            await asyncio.sleep(SETTLING)
            after.append(holding(pid))
            print(f"{(part + 1) * (count // PARTS)} runs: {after[-1]}", flush=True)
    return after


async def wait_until_ended(http: aiohttp.ClientSession, address: str, run: str) -> None:
    while (status := await status_of(http, address, run)) not in ("finished", "partial"):
        if status == "failed":
            raise RuntimeError(f"the run {run} failed")
        await asyncio.sleep(0.2)


def report_short(count: int) -> None:
    with open_server(0.02) as (address, pid):
        after = asyncio.run(many_short(address, pid, count))
    (first, files), (last, files_left) = after[0], after[-1]
    kb = (last - first) * 1e3 / (count - count // PARTS)
    values = {
        "runs": count, "mb_after_a_fifth": round(first, 1), "mb_after_all": round(last, 1),
        "kb_a_run": round(kb, 1), "files_after_a_fifth": files, "files_after_all": files_left,
    }  # fmt: skip
    targets = {"kb_a_run": f"<= {MOST_KB_A_RUN:g}", "files_after_all": f"<= {files} + {AT_ONCE}"}
    how = f"{AT_ONCE} at once, {SETTLING:g} s after the last of each fifth; nobody watches"
    holds = kb <= MOST_KB_A_RUN and files_left <= files + AT_ONCE
    emit("serve_short", values, targets, holds, how)


def report(looks: list[Look], seconds: float, runs: int, watchers: int) -> None:
    def median(name: str) -> float:
        return round(float(statistics.median(getattr(each, name) for each in looks)), 2)

    values = {
        "runs_lost": max(each.lost for each in looks),
        "events_missing": max(each.missing for each in looks),
        "events_doubled": max(each.doubled for each in looks),
        "delay_p95_ms": median("p95_ms"),
        "delay_p50_ms": round(statistics.median(d for look in looks for d in look.delays_ms), 2),
        "most_events_of_a_run_in_a_second": max(each.most_in_a_second for each in looks),
        "events_received": sum(each.events for each in looks),
        "reconnects": sum(each.reconnects for each in looks),
        "connections_dropped": sum(each.dropped for each in looks),
        "server_cores": median("server_cpu"),
        "server_mb": median("server_mb"),
        "server_mb_most": median("most_mb"),
        "files_most": max(each.most_files for each in looks),
        "files_left": max(each.files_left for each in looks),
    }
    faults = values["runs_lost"] + values["events_missing"] + values["events_doubled"]
    emit(
        "serve_load",
        values,
        {
            "runs_lost": "0",
            "events_missing": "0",
            "events_doubled": "0",
            "delay_p95_ms": f"<= {MOST_DELAY_MS:g}",
            "most_events_of_a_run_in_a_second": f"<= {MOST_EVENTS}",
        },
        not faults
        and values["delay_p95_ms"] <= MOST_DELAY_MS
        and values["most_events_of_a_run_in_a_second"] <= MOST_EVENTS,
        f"{runs} runs of {seconds:g} s and {runs * watchers} event streams, reconnecting at random "
        f"(seed 0 and on), {TOKENS_A_SECOND} tokens a second for each run; median of {len(looks)} "
        f"looks; load {os.getloadavg()[0]:.1f} at the end; {os.cpu_count()} cores, which model, "
        "server, watchers and whatever else ran shared",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="12 s instead of a minute")
    parser.add_argument("--looks", type=int, default=3, help="how often (3)")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"at once ({RUNS})")
    parser.add_argument("--watchers", type=int, default=WATCHERS, help=f"of each ({WATCHERS})")
    parser.add_argument("--short", type=int, metavar="N", help="so many short runs instead")
    options = parser.parse_args()
    if options.short:
        report_short(options.short)
        return
    seconds = 12.0 if options.quick else 60.0
    size = options.runs, options.watchers
    report([serve_and_look(seconds, seed, *size) for seed in range(options.looks)], seconds, *size)


if __name__ == "__main__":
    main()
