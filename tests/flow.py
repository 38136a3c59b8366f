"""A researcher over real HTTP, and the turns that a scripted server writes for it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.events import Listener, ignore
from agent.free import FreeDecoder
from agent.policy import ChatWriter
from agent.researcher import Researcher
from agent.run import Ask
from memory.interfaces import SearchTool
from memory.journal import Journal
from memory.runs import RunStore
from memory.schema import Decoding, Trajectory
from tests.chat_clients import client
from tests.fakes import QUESTION, FixedSearch


def plan(query: str = "lru_cache maxsize None") -> str:
    return (
        "<think>Look it up.</think>\n<structured_plan>\n<deep_analysis>Simple.</deep_analysis>\n"
        "<rubric>\n- Says what happens to the size\n- Says what is evicted\n</rubric>\n"
        "<research_plan>Read the documentation.</research_plan>\n</structured_plan>\n"
        f'<call_tool name="search">{query}</call_tool>'
    )


def search(query: str) -> str:
    return (
        "<think>More is needed.</think>\n<state_evaluation>Size is open.</state_evaluation>\n"
        f'<call_tool name="search">{query}</call_tool>'
    )


def answer(text: str = 'It is <cite id="S1">an unbounded cache</cite>.') -> str:
    return (
        "<think>Enough.</think>\n<state_evaluation>All is settled by S1.</state_evaluation>\n"
        "<review>\n<rubric_review>Both items: S1.</rubric_review>\n"
        "<writing_plan>The size, then eviction.</writing_plan>\n</review>\n"
        f"<answer>{text}</answer>"
    )


RUN = (plan(), search("functools.cache unbounded"), answer())
SUPPORTED = json.dumps(
    {"verdicts": [{"number": 1, "reason": "It says so.", "verdict": "supported"}]}
)
"""the reply to the check of the one citation in `RUN`"""


@asynccontextmanager
async def researching(
    base_url: str,
    data_dir: Path,
    source: SearchTool | None = None,
    journal: Journal | None = None,
    chat: dict[str, Any] | None = None,
    **limits: Any,
) -> AsyncIterator[Researcher]:
    """The parts that `rubricem ask` puts together for a server, with a source of choice."""
    async with client(base_url, **(chat or {})) as model:
        yield Researcher(
            policy=ChatWriter(model),
            decoder=FreeDecoder(),
            decoding=Decoding.FREE,
            search_tool=source or FixedSearch(),
            store=RunStore(data_dir),
            template=Ask("", **limits),
            journal=journal,
        )


async def asked(
    base_url: str,
    data_dir: Path,
    question: str = QUESTION,
    thread: str = "t",
    listener: Listener = ignore,
    **options: Any,
) -> Trajectory:
    async with researching(base_url, data_dir, **options) as researcher:
        return await researcher.ask(
            replace(researcher.template, question=question), thread, listener
        )


def contents(body: dict[str, Any]) -> list[tuple[str, str]]:
    """The messages of a recorded request."""
    return [(message["role"], message["content"]) for message in body["messages"]]


def journalled(data_dir: Path, thread: str = "t") -> int:
    """Calls that finished."""
    lines = (data_dir / "runs" / thread / "journal.jsonl").read_text().splitlines()
    return sum(1 for line in lines if json.loads(line))
