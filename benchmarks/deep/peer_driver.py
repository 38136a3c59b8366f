"""One peer asks the question of `benchmarks.deep`, in an environment of its own.

    python -P benchmarks/deep/peer_driver.py WHO ADDRESS QUESTION

Only Python's own library is imported before the peer, since its environment has nothing of ours.
The last line printed is JSON: the report.
"""

import asyncio
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

MODEL = "loopback"


def tiktoken_files() -> dict[str, str]:
    """Where LiteLLM keeps tiktoken's tables, which otherwise come from the network."""
    found = importlib.util.find_spec("litellm")
    folder = (
        Path(found.origin or "").parent / "litellm_core_utils" / "tokenizers" if found else None
    )
    return {"TIKTOKEN_CACHE_DIR": str(folder)} if folder and folder.is_dir() else {}


async def gpt_researcher(address: str, question: str) -> str:
    """Its deep mode, as it is installed."""
    models = {f"{size}_LLM": f"openai:{MODEL}" for size in ("FAST", "SMART", "STRATEGIC")}
    os.environ |= models | tiktoken_files() | {
        "OPENAI_API_KEY": "none", "OPENAI_BASE_URL": f"{address}/v1",
        "RETRIEVER": "searx", "SEARX_URL": address, "LANGSMITH_TRACING": "false",
        "EMBEDDING": "custom:text-embedding-3-small",
    }  # fmt: skip
    from gpt_researcher import GPTResearcher

    researcher = GPTResearcher(query=question, report_type="deep", verbose=False)
    await researcher.conduct_research()
    return str(await researcher.write_report())


async def open_deep_research(address: str, question: str) -> str:
    """Its graph with its own settings."""
    os.environ |= {
        "OPENAI_API_KEY": "none", "OPENAI_BASE_URL": f"{address}/v1", "LANGSMITH_TRACING": "false",
        "TAVILY_API_KEY": "tvly-none", "LANGCHAIN_TRACING_V2": "false",
    }  # fmt: skip
    import tavily

    # The client takes its service's address as an argument alone, which the peer does not give.
    given = tavily.AsyncTavilyClient.__init__

    def at_hand(self: Any, *positional: Any, **named: Any) -> None:
        given(self, *positional, **{"api_base_url": address, **named})

    tavily.AsyncTavilyClient.__init__ = at_hand
    from open_deep_research.deep_researcher import deep_researcher

    roles = ("research", "summarization", "compression", "final_report")
    ended = await deep_researcher.ainvoke(
        {"messages": [{"role": "user", "content": question}]},
        {"configurable": {f"{role}_model": f"openai:{MODEL}" for role in roles}},
    )
    return str(ended["final_report"])


PEERS: dict[str, Callable[[str, str], Coroutine[Any, Any, str]]] = {
    each.__name__: each for each in (gpt_researcher, open_deep_research)
}

if __name__ == "__main__":
    who, address, question = sys.argv[1:]
    print(json.dumps(asyncio.run(PEERS[who](address, question))), flush=True)
