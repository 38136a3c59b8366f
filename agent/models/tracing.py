"""LangSmith, which LangGraph and LangChain tell the texts of a run, is told nothing."""

from contextlib import AbstractContextManager


def untold() -> AbstractContextManager[None]:
    """Keeps what is done within from LangSmith, whose variables are set for other programs."""
    from langsmith import tracing_context

    return tracing_context(enabled=False)
