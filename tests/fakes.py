"""Fakes behind the seams: a policy that writes by script, and a source with fixed passages."""

from collections.abc import Callable, Sequence
from pathlib import Path

from agent.run import Ask, Run
from memory.errors import SourceError
from memory.interfaces import Completion, OnText, Passage, Sampling, StopPredicate, StopReason
from memory.journal import Journal
from memory.schema import Decoding, Segment, Usage

PASSAGES = [
    Passage("functools.lru_cache(maxsize=128)", "python:functools", "functools.lru_cache",
            "Least-recently-used cache. If maxsize is None the cache can grow without bound."),
    Passage("functools.cache(f)", "python:functools", "functools.cache",
            "Simple lightweight unbounded function cache."),
    Passage("heapq", "python:heapq", "heapq", "The smallest element is always heap[0]."),
]  # fmt: skip


class FixedSearch:
    """Answers every query with the same passages, and remembers the queries."""

    name = "search"

    def __init__(self, passages: Sequence[Passage] = PASSAGES, error: str = "") -> None:
        self.passages = list(passages)
        self.error = error
        self.queries: list[str] = []

    async def prepare(self) -> tuple[str, ...]:
        return ()

    async def search(self, query: str, limit: int) -> list[Passage]:
        self.queries.append(query)
        if self.error:
            raise SourceError(self.error)
        return self.passages[:limit]


class ScriptedPolicy:
    """A `Policy` with one token per character that continues by script.

    The script is a list of texts, or a function of the transcript's text and the sampling.
    """

    name = "scripted"
    version = "1"
    retokenised = False

    def __init__(
        self,
        script: Sequence[str] | Callable[[str, Sampling], str],
        context_tokens: int | None = None,
    ) -> None:
        self.script = script
        self.context_tokens = context_tokens
        self.calls: list[tuple[str, Sampling]] = []

    async def open(self, system: str, question: str) -> tuple[int, ...]:
        return tuple(map(ord, system + question))

    async def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    async def write(
        self,
        system: str,
        transcript: Sequence[Segment],
        sampling: Sampling,
        stop: StopPredicate | None,
        on_text: OnText | None,
    ) -> Completion:
        before = "".join(segment.text for segment in transcript[1:])
        self.calls.append((before, sampling))
        text = (
            self.script(before, sampling)
            if callable(self.script)
            else self.script[len(self.calls) - 1]
        )
        reason: StopReason = "eos"
        for at in range(1, len(text) + 1):
            if stop and (end := stop(text[:at])) is not None:
                text, reason = text[:end], "stop"
                break
        if reason == "eos" and len(text) >= sampling.max_tokens:
            text, reason = text[: sampling.max_tokens], "length"
        return Completion(
            text=text,
            stop_reason=reason,
            token_ids=tuple(map(ord, text)),
            logprobs=(-0.5,) * len(text),
            token_ends=tuple(range(1, len(text) + 1)),
            usage=Usage(prompt_tokens=len(before), completion_tokens=len(text), calls=1),
        )


QUESTION = "What does functools.lru_cache do with maxsize=None?"


def new_run(
    tmp_path: Path,
    policy: ScriptedPolicy,
    search: FixedSearch | None = None,
    decoding: Decoding = Decoding.FREE,
    **limits: object,
) -> Run:
    """A run over fakes, with a journal in a temporary directory."""
    ask = Ask(QUESTION, **limits)  # type: ignore[arg-type]
    journal = Journal(tmp_path / "journal.jsonl")
    return Run(ask, "thread", decoding, policy, search or FixedSearch(), journal)
