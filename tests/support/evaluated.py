"""A server that answers in every arm of an evaluation, and the questions that it is asked."""

import json
from pathlib import Path
from typing import Any

from tests.support.policies import SUPPORTED, answer, plan
from tests.support.scripted_server import Fault, Scripted

QUESTIONS = (
    {"id": "cache", "question": "What is lru_cache with maxsize None?", "answer": "unbounded cache",
     "gold": ["cache.md"], "type": "cache"},
    {"id": "heap", "question": "Where is the smallest element of a heap?", "pattern": r"heap\[0\]",
     "gold": ["heap.md"], "type": "heap"},
    {"question": "Who wrote the first novel of 2031?", "unanswerable": True, "type": "none"},
)  # fmt: skip
EXACT = '<cite id="S1">It is an unbounded cache.</cite>\nunbounded cache'
PLAIN = "Answer: It is an unbounded cache [S1]."


def answers(body: dict[str, Any], number: int) -> Scripted:
    """One search in stages, one in the plain loop; the model alone does not know."""
    system, last = (body["messages"][at]["content"] for at in (0, -1))
    last = last.removesuffix("\n</tool_response>")
    said = sum(message["role"] == "assistant" for message in body["messages"])
    if 'begins with "Search:"' in system:
        return "a cache without bound" if last.endswith("Answer:") else PLAIN
    if "from what you know" in system:
        return "unknown" if last.endswith("Answer:") else "I have not found it."
    if "research agent" not in system:
        return SUPPORTED
    return answer(EXACT) if said else plan()


def failing(body: dict[str, Any], number: int) -> Scripted:
    return Fault(401)


def written(path: Path, rows: Any = QUESTIONS) -> Path:
    """The rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
