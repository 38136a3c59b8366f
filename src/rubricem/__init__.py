"""A deep-research agent that checks its citations and learns from its own research.

    from rubricem import research

    report = await research("What does functools.lru_cache evict?", source="python")

`research` and what belongs to it come from `rubricem.agent.library`, loaded when one is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rubricem.agent.library import Report as Report
    from rubricem.agent.library import learnt as learnt
    from rubricem.agent.library import research as research
    from rubricem.agent.library import research_graph as research_graph
    from rubricem.agent.library import research_stream as research_stream
    from rubricem.agent.library import research_sync as research_sync
    from rubricem.memory.errors import RubricemError as RubricemError
    from rubricem.memory.errors import SettingsError as SettingsError

__all__ = (
    "Report",
    "RubricemError",
    "SettingsError",
    "learnt",
    "research",
    "research_graph",
    "research_stream",
    "research_sync",
)


def __dir__() -> list[str]:
    return [*__all__]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("rubricem.agent.library"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
