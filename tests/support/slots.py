"""A small model as forced decoding sees one: it plans, drafts, points, and weighs yes or no.

A library that is searched by the names of its pages, and a run from its plan to its answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rubricem.agent.research.forced import ForcedDecoder
from rubricem.agent.research.graph import STEPS, Decoder
from rubricem.agent.research.run import Run
from rubricem.agent.transcript.scaffold import parse, template
from rubricem.memory.schema import (
    Completion,
    Decoding,
    Message,
    OnText,
    Passage,
    Sampling,
    Segment,
    StopPredicate,
    Usage,
)
from tests.support.gbnf import accepts
from tests.support.policies import QUESTION, FixedSearch, ScriptedPolicy, new_run

GROWS = "The cache can grow without bound."
"""what the first passage of `FixedSearch` says"""
SURE, UNSURE = 0.98, 0.02


@dataclass
class Filling:
    """What a small model writes, and what it is sure of."""

    plan: str = " What does it do?\n"
    """behind the first part's number"""
    known: Sequence[str] = ()
    """what it is sure of, where that stands in what it is asked"""
    chances: Mapping[str, float] = field(default_factory=dict)
    """part of what it is asked -> its probability of Yes; of others it is sure where it
    knows what stands there"""
    drafts: str = GROWS
    rewords: str = "unbounded cache"
    concludes: Sequence[str] = ()
    """the bare answer, where that is offered"""

    def chance(self, asked: str) -> float:
        for part, chance in self.chances.items():
            if part in asked:
                return chance
        known = [*self.known, self.drafts.strip(" .")]
        return SURE if any(span and span in asked for span in known) else UNSURE


@dataclass
class Beside:
    """The model as it is asked beside the transcript: a `LocalModel`."""

    filling: Filling
    name: str = "scripted"
    version: str = "1"
    context_tokens: int | None = None
    asked: list[tuple[str, str]] = field(default_factory=list)
    """the prompts and messages of its calls, in order"""

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return tuple(map(ord, "\0".join(message.content for message in messages)))

    async def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    async def weigh(self, prefix: Sequence[int], options: Sequence[str]) -> tuple[float, ...]:
        _, asked = self._heard(prefix)
        chance = self.filling.chance(asked)
        return chance, 0.0, 1 - chance, 0.0

    async def complete(
        self,
        prefix: Sequence[int],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        prompt, _ = self._heard(prefix)
        text = {template("draft"): self.filling.drafts, template("reword"): self.filling.rewords}
        told = text.get(prompt, "")
        logprob = -0.05
        if sampling.grammar is not None:
            fit = [span for span in self.filling.concludes if accepts(sampling.grammar, span)]
            told = next(iter(fit), "")
        return Completion(
            text=told,
            stop_reason="eos",
            logprobs=(logprob,) * len(told),
            usage=Usage(prompt_tokens=len(prefix), completion_tokens=len(told), calls=1),
        )

    def _heard(self, prefix: Sequence[int]) -> tuple[str, str]:
        prompt, _, asked = "".join(map(chr, prefix)).partition("\0")
        self.asked.append((prompt, asked))
        return prompt, asked


class SmallModel(ScriptedPolicy):
    """Writes its plan into the transcript; all else it is asked beside it."""

    def __init__(self, filling: Filling | None = None, context_tokens: int | None = None) -> None:
        self.filling = filling or Filling()
        super().__init__(lambda before, sampling: self.filling.plan, context_tokens)
        self.beside = Beside(self.filling)
        self.reader = self.beside  # type: ignore[assignment]

    async def write(self, system: str, transcript: Sequence[Segment], *how: Any) -> Completion:
        if len(transcript) > 1:
            return await super().write(system, transcript, *how)
        asked = [Message("system", system), Message("user", transcript[0].text)]
        return await self.beside.complete(await self.beside.render(asked), *how)


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
        near = [[1.0, 0.0] if "undo" in t.lower() or "--soft" in t else [0.0, 1.0] for t in texts]
        return np.array(near, dtype=np.float32)
