"""One participant asks its questions at the scripted server, in a process of its own.

    python -P benchmarks/peers/driver.py WHO ADDRESS DATA [--alone N] [--together N ...]

Only Python's own library is imported before the participant, since a peer's environment has nothing
of ours. The last line printed is JSON: seconds of the import, and for each question alone and each
lot at once begin and end on the monotonic clock, and the seconds of CPU of this process and all
below it. `--run` asks one question under a name, to be killed and asked again.
"""

import argparse
import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

MODEL = "loopback"
WARMED = 8
QUERIES = ("rule that decides the order", "exception to the rule")
Ask = Callable[[int, str], Awaitable[object]]
"""number of the question, and a name to go on with or ""; raises where there is no report"""


def question(number: int) -> str:
    return f"Which rule of the harbour is number {number}, and what is excepted from it?"


async def floor(address: str, data: Path, stack: AsyncExitStack) -> Ask:
    """The calls of our question through the usual clients, as a page of their own documentation
    makes them: nothing is thought about, checked or kept.
    """
    import httpx
    from openai import AsyncOpenAI

    limits = httpx.Limits(max_connections=1000, max_keepalive_connections=1000)
    http = await stack.enter_async_context(httpx.AsyncClient(limits=limits, timeout=600))
    client = await stack.enter_async_context(AsyncOpenAI(base_url=f"{address}/v1", api_key="none"))

    async def call(messages: list[dict[str, str]]) -> str:
        written = ""
        asked: Any = messages
        async for chunk in await client.chat.completions.create(
            model=MODEL, messages=asked, stream=True
        ):
            if chunk.choices:
                written += chunk.choices[0].delta.content or ""
        return written

    async def ask(number: int, thread: str) -> str:
        messages = [
            {"role": "system", "content": "Write structured_plan. " * 200},
            {"role": "user", "content": question(number)},
        ]
        for query in (*QUERIES, ""):
            messages.append({"role": "assistant", "content": await call(messages)})
            if query:
                asked = {"q": f"{query} {number}", "format": "json"}
                found = (await http.get(f"{address}/search", params=asked)).json()
                text = "\n".join(row["content"] for row in found["results"])
                messages.append({"role": "user", "content": text})
        answer, passages = messages[-1]["content"], messages[-2]["content"]
        check = {"role": "user", "content": answer + passages}
        await call([{"role": "system", "content": "You check claims."}, check])
        return answer

    return ask


def _settings(address: str, data: Path) -> dict[str, Any]:
    return {
        "base_url": f"{address}/v1", "model": MODEL, "source": f"searxng:{address}",
        "data_dir": data, "memory": "off", "concurrency": 1000,
    }  # fmt: skip


async def library(address: str, data: Path, stack: AsyncExitStack) -> Ask:
    """Each question a `research()` of its own."""
    from rubricem import research

    async def ask(number: int, thread: str) -> str:
        report = await research(question(number), thread=thread or None, **_settings(address, data))
        assert report.status == "finished", report.reason
        return report.markdown

    return ask


async def ours(address: str, data: Path, stack: AsyncExitStack) -> Ask:
    """One researcher for all questions, as a server has it."""
    from dataclasses import replace

    from rubricem.agent.research.setup import open_researcher
    from rubricem.agent.settings import load_settings
    from rubricem.agent.settings.door import setup_of

    setup = setup_of(load_settings(_settings(address, data)))
    researcher = await stack.enter_async_context(open_researcher(setup))

    async def ask(number: int, thread: str) -> str:
        asked = replace(researcher.template, question=question(number))
        trajectory = await researcher.ask(asked, thread or None)
        assert trajectory.status == "finished", trajectory.reason
        return trajectory.transcript()

    return ask


async def gpt_researcher(address: str, data: Path, stack: AsyncExitStack) -> Ask:
    models = {f"{size}_LLM": f"openai:{MODEL}" for size in ("FAST", "SMART", "STRATEGIC")}
    os.environ |= models | {
        "OPENAI_API_KEY": "none", "OPENAI_BASE_URL": f"{address}/v1",
        "RETRIEVER": "searx", "SEARX_URL": address,
        "EMBEDDING": "openai:text-embedding-3-small",
    }  # fmt: skip
    from gpt_researcher import GPTResearcher

    async def ask(number: int, thread: str) -> str:
        researcher = GPTResearcher(query=question(number), verbose=False)
        await researcher.conduct_research()
        report = str(await researcher.write_report())
        assert report.strip(), "no report"
        return report

    return ask


async def open_deep_research(address: str, data: Path, stack: AsyncExitStack) -> Ask:
    os.environ |= {
        "OPENAI_API_KEY": "none", "OPENAI_BASE_URL": f"{address}/v1",
        "TAVILY_API_KEY": "tvly-none", "TAVILY_BASE_URL": address,
    }  # fmt: skip
    import tavily
    from open_deep_research.deep_researcher import deep_researcher

    # The client takes its service's address as an argument alone, which the peer does not give.
    given = tavily.AsyncTavilyClient.__init__

    def at_hand(self: Any, *positional: Any, **named: Any) -> None:
        given(self, *positional, **{"api_base_url": address, **named})

    tavily.AsyncTavilyClient.__init__ = at_hand
    roles = ("research", "summarization", "compression", "final_report")
    configured = {f"{role}_model": f"openai:{MODEL}" for role in roles}

    async def ask(number: int, thread: str) -> str:
        ended = await deep_researcher.ainvoke(
            {"messages": [{"role": "user", "content": question(number)}]},
            {"configurable": configured},
        )
        report = str(ended["final_report"])
        assert not report.startswith("Error"), report
        return report

    return ask


PARTICIPANTS = (floor, ours, library, gpt_researcher, open_deep_research)


def cpu_below(process: int) -> float:
    """Seconds of CPU, user and system, of a process and of all below it."""
    stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    seconds = sum(map(int, stat[11:15])) / os.sysconf("SC_CLK_TCK")
    for task in Path(f"/proc/{process}/task").iterdir():
        below = (task / "children").read_text().split()
        seconds += sum(cpu_below(int(child)) for child in below)
    return seconds


async def measure(who: str, options: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        opening = next(each for each in PARTICIPANTS if each.__name__ == who)
        ask = await opening(options.address, options.data, stack)
        imported = time.monotonic() - began
        if options.run:
            await ask(0, options.run)
            return {"import_s": imported}
        # What is loaded and started once belongs to no question.
        await asyncio.gather(*(ask(number, "") for number in range(WARMED)))
        alone, together = [], []
        for number in range(options.alone):
            alone.append(await time_requests(ask, number, 1))
        for count in options.together:
            together.append(await time_requests(ask, 100, count))
    return {"import_s": imported, "alone": alone, "together": together}


async def time_requests(ask: Ask, first: int, count: int) -> dict[str, float]:
    cpu, began = cpu_below(os.getpid()), time.monotonic()
    await asyncio.gather(*(ask(first + number, "") for number in range(count)))
    ended = time.monotonic()
    return {"count": count, "begin": began, "end": ended, "cpu": cpu_below(os.getpid()) - cpu}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("who", choices=[each.__name__ for each in PARTICIPANTS])
    parser.add_argument("address", help="of the server, without a path")
    parser.add_argument("data", type=Path, help="folder that the participant may write into")
    parser.add_argument("--alone", type=int, default=0, help="questions one after another")
    parser.add_argument("--together", type=int, nargs="*", default=[], help="questions at once")
    parser.add_argument("--run", default="", help="one question under a name")
    options = parser.parse_args()
    print(json.dumps(asyncio.run(measure(options.who, options))), flush=True)


if __name__ == "__main__":
    main()
