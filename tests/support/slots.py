"""A small model as forced decoding sees one: it fills slots, and chooses of what a grammar offers.

A library that is searched by the names of its pages, and a run from its plan to its answer.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rubricem.agent.research.forced import ForcedDecoder
from rubricem.agent.research.graph import STEPS, Decoder
from rubricem.agent.research.reading import NOT_FOUND
from rubricem.agent.research.run import Run
from rubricem.agent.transcript.scaffold import parse
from rubricem.memory.schema import (
    Completion,
    Decoding,
    OnText,
    Passage,
    Sampling,
    Segment,
    StopPredicate,
)
from tests.support.policies import QUESTION, FixedSearch, ScriptedPolicy, new_run

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
GROWS = "the cache can grow without bound"
"""what the first passage of `FixedSearch` says"""


@dataclass
class Filling:
    """What is written into each slot."""

    plan: str = ""
    """the look-ups, without the first one's number"""
    rubric: str = " Says what happens"
    words: str = " Some words."
    """into every slot that has nothing of its own"""
    reading: str = f" {GROWS}"
    finds: Iterable[str] = ()
    """the candidates that it is sure of"""
    missing: Iterable[str] = ()
    """words of the rubric's items that it marks as missing"""
    claims: Sequence[str] = (f"{GROWS.capitalize()}.",)
    """in turn, then the last again"""
    expects: str = ""
    """behind a query, of the answer to it"""
    bare: str = ""
    """the exact answer, where it is offered"""
    offered: list[list[str]] = field(default_factory=list)
    """what the grammars offered, one after another"""

    def __post_init__(self) -> None:
        self._claims: Iterator[str] = iter(self.claims)
        self._claim = ""

    def __call__(self, before: str, sampling: Sampling) -> str:
        if sampling.grammar is not None:
            return self._chosen(before, options(sampling.grammar))
        if re.search(r'<cite id="S\d+">$', before):
            self._claim = next(self._claims, self._claim)
            return self._claim
        if before.endswith("<think>\n1."):
            return self.plan
        if before.endswith("<rubric>\n-"):
            return self.rubric
        if re.search(r'<call_tool name="search">[^<]*$', before):
            return self.expects
        reads = before.rpartition("<state_evaluation>")[2]
        return self.reading if re.match(r"\n\[\d+\] [^\n]*$", reads) else self.words

    def _chosen(self, before: str, offered: list[str]) -> str:
        self.offered.append(offered)
        wanted = {f" {text}" for text in self.finds}
        if " [missing]" in offered:
            item = before.rpartition("\n- ")[2]
            return " [missing]" if any(word in item for word in self.missing) else offered[0]
        if before.endswith("Answer:"):
            wanted = {f" {self.bare}"}
        else:
            offered = sorted(offered, key=lambda text: text != f" {NOT_FOUND}")
        return next((text for text in self.offered[-1] if text in wanted), offered[0])


def options(grammar: str) -> list[str]:
    """The texts that a grammar lets one be chosen of."""
    return [json.loads(text) for text in _TEXT.findall(grammar)]


class SmallModel(ScriptedPolicy):
    """Sure of what it finds, and of nothing else that is offered."""

    def __init__(self, filling: Filling | None = None, context_tokens: int | None = None) -> None:
        self.filling = filling or Filling()
        super().__init__(self.filling, context_tokens)

    async def write(
        self,
        system: str,
        transcript: Sequence[Segment],
        sampling: Sampling,
        stop: StopPredicate | None,
        on_text: OnText | None,
    ) -> Completion:
        written = await super().write(system, transcript, sampling, stop, on_text)
        unsure = sampling.grammar and written.text.strip() not in {*self.filling.finds, NOT_FOUND}
        return replace(written, logprobs=(-9.0,) * len(written.text)) if unsure else written


class Library(FixedSearch):
    """Finds the pages whose title a query names, case folded."""

    async def search(self, query: str, limit: int) -> list[Passage]:
        found = await super().search(query, len(self.passages))
        return [page for page in found if page.title.casefold() in query.casefold()][:limit]


def page(title: str, text: str) -> Passage:
    return Passage(title, title.casefold(), "", text)


async def walk(run: Run, decoder: Decoder) -> Run:
    """A run through all its stages as the graph leads it, without the graph."""
    query: str | None = None
    for name in ("recall", "plan"):
        query = await STEPS[name](run, decoder, query)
    while query:
        await STEPS["tools"](run, decoder, query)
        query = await STEPS["research"](run, decoder, None)
        query = query or await STEPS["review"](run, decoder, None)
    await STEPS["answer"](run, decoder, None)
    return run


async def forced(
    folder: Path,
    model: SmallModel | Filling | None = None,
    search: FixedSearch | None = None,
    question: str = QUESTION,
    **limits: object,
) -> Run:
    """A run through all its stages."""
    policy = model if isinstance(model, SmallModel) else SmallModel(model)
    run = new_run(folder, policy, search, Decoding.FORCED, **limits)
    run.ask = replace(run.ask, question=question)
    return await walk(run, ForcedDecoder())


def answer_of(run: Run) -> str:
    """The answer as it stands in the transcript, with its cites."""
    document = parse(run.text)
    return document.last("answer")


class Meanings:
    """Of unit vectors by one word; a `--soft` means undoing."""

    name = "meanings"

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        near = [[1.0, 0.0] if re.search("undo|--soft", t, re.I) else [0.0, 1.0] for t in texts]
        return np.array(near, dtype=np.float32)
