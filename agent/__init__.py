"""How a question is answered: scaffold, graph, policies, sources, citations, reports.

    from agent import research

    report = await research("What does functools.lru_cache evict?", source="python")

`research` and what belongs to it come from `agent.library`, which is loaded when one is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.library import Report as Report
    from agent.library import learnt as learnt
    from agent.library import research as research
    from agent.library import research_sync as research_sync

__all__ = ("Report", "learnt", "research", "research_sync")


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("agent.library"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
