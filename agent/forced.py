"""Forced decoding: the runner writes every tag, a small model fills one slot after another.

Each slot ends at the first thing that looks like a tag, at its own end mark or at its cap, and
is trimmed to whole sentences; so the scaffold is valid by construction. Tags, choices and ids
are PROMPT text; slots are POLICY text with our own ids where they were trimmed. Rows of such
runs are good for SFT and never for a policy-gradient ratio.

What the slots are and how they are sampled was found by measuring; see docs/benchmarks.md.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.prompting import template
from agent.run import Found, Run
from agent.scaffold import neutralise
from agent.toolout import tool_output
from memory.interfaces import Sampling
from memory.schema import Author, Stage

PROSE = Sampling(temperature=0.2, top_p=0.9, min_p=0.05)
GREEDY = Sampling(temperature=0.0)

_TAG = re.compile(r"</?[A-Za-z_]|<\|")
_SENTENCE = re.compile(r"[.!?](?=\s|$)")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Slot:
    """One place the model fills: where, how long in tokens, and how sampled."""

    stage: Stage
    cap: int
    sampling: Sampling = PROSE
    end: str = "\n\n"
    """text at which the slot ends, beside anything like a tag"""
    dry: bool = False


THINK = Slot(Stage.PLAN, 40, end="\n", dry=True)
ANALYSIS = Slot(Stage.PLAN, 60, end="\n", dry=True)
RUBRIC = Slot(Stage.PLAN, 80, dry=True)
RESEARCH_PLAN = Slot(Stage.PLAN, 50, end="\n", dry=True)
QUERY = Slot(Stage.RESEARCH, 20, sampling=GREEDY, end="\n")
EVALUATION = Slot(Stage.RESEARCH, 60, end="\n")
RUBRIC_REVIEW = Slot(Stage.REVIEW, 80)
WRITING_PLAN = Slot(Stage.REVIEW, 40, end="\n")
CLAIM = Slot(Stage.ANSWER, 70, end="\n")
EXACT = Slot(Stage.ANSWER, 24, sampling=GREEDY, end="\n")


class ForcedDecoder:
    """Writes the four stages slot by slot. Needs a policy that continues tokens."""

    def __init__(self, searches: int = 2, claims: int = 3) -> None:
        self._searches = searches
        self._claims = claims

    def system(self, run: Run) -> str:
        return template("forced")

    def message(self, run: Run) -> str:
        return f"Question: {neutralise(run.ask.question)}"

    async def plan(self, run: Run) -> str:
        """Write the plan and return the first query, which begins with the question itself."""
        await run.prompt(Stage.PLAN, "<think>")
        await self._fill(run, THINK)
        await run.prompt(Stage.PLAN, "</think>\n<structured_plan>\n<deep_analysis>")
        await self._fill(run, ANALYSIS)
        await run.prompt(Stage.PLAN, "</deep_analysis>\n<rubric>\n- ")
        await self._fill(run, RUBRIC)
        await run.prompt(Stage.PLAN, "\n</rubric>\n<research_plan>")
        await self._fill(run, RESEARCH_PLAN)
        await run.prompt(Stage.PLAN, "</research_plan>\n</structured_plan>\n")
        question = neutralise(" ".join(run.ask.question.split()))
        await run.prompt(Stage.RESEARCH, f'<call_tool name="search">{question} ')
        words = await self._fill(run, QUERY)
        await run.prompt(Stage.RESEARCH, "</call_tool>\n")
        return f"{question} {words}"

    async def observe(self, run: Run, found: Found) -> None:
        text = tool_output(found, run.ask.passage_words)
        await run.prompt(Stage.RESEARCH, text, Author.TOOL)

    async def research(self, run: Run) -> str | None:
        """Evaluate the evidence; return another query, or None to go on to the review."""
        await run.prompt(Stage.RESEARCH, f"{self.message(run)}\n<state_evaluation>")
        await self._fill(run, EVALUATION)
        await run.prompt(Stage.RESEARCH, "</state_evaluation>\n")
        if run.tool_calls >= min(self._searches, run.ask.tool_calls):
            return None
        await run.prompt(Stage.RESEARCH, '<call_tool name="search">')
        query = await self._fill(run, QUERY)
        await run.prompt(Stage.RESEARCH, "</call_tool>\n")
        return query

    async def review(self, run: Run) -> None:
        await run.prompt(Stage.REVIEW, "<review>\n<rubric_review>")
        await self._fill(run, RUBRIC_REVIEW)
        await run.prompt(Stage.REVIEW, "</rubric_review>\n<writing_plan>")
        await self._fill(run, WRITING_PLAN)
        await run.prompt(Stage.REVIEW, "</writing_plan>\n</review>\n")

    async def answer(self, run: Run) -> None:
        await run.prompt(Stage.ANSWER, "<answer>")
        written: list[str] = []
        for _ in range(self._claims):
            await self._choose(run, list(run.sources))
            claim = await self._fill(run, CLAIM)
            await run.prompt(Stage.ANSWER, "</cite>")
            written.append(claim)
        await run.prompt(Stage.ANSWER, "\n</answer>")

    async def _choose(self, run: Run, options: Sequence[str]) -> str:
        """One of the ids really returned, by grammar, so that none can be invented."""
        await run.prompt(Stage.ANSWER, '\n<cite id="')
        grammar = "root ::= " + " | ".join(f'"{option}\\""' for option in options)
        sampling = Sampling(max_tokens=8, temperature=0.0, grammar=grammar)
        chosen = (await run.write(Stage.ANSWER, sampling)).text.rstrip('"')
        await run.prompt(Stage.ANSWER, f'{chosen}">')
        return chosen

    async def _fill(self, run: Run, slot: Slot) -> str:
        sampling = replace(slot.sampling, max_tokens=slot.cap, dry=slot.dry)
        written = await run.write(slot.stage, sampling, lambda text: _end(text, slot.end))
        text = trim(written.text, capped=written.stop_reason != "stop")
        if text:
            await run.keep_edited(slot.stage, text)
        return text


def _end(text: str, mark: str) -> int | None:
    found = _TAG.search(text)
    body = text.lstrip()
    at = body.find(mark)
    ends = [found.start()] if found else []
    if at >= 0:
        ends.append(at + len(text) - len(body))
    return min(ends, default=None)


def trim(text: str, *, capped: bool) -> str:
    """The text without loose ends: to the last whole sentence where the cap cut it."""
    text = text.strip()
    if not capped:
        return text
    ends = [match.end() for match in _SENTENCE.finditer(text)]
    lines = text.rfind("\n")
    end = max([*ends, lines])
    return text[:end].rstrip() if end > 0 else text
