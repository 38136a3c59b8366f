"""Forced decoding: the runner writes every tag, a small model fills one slot after another.

Each slot ends at the first thing that looks like a tag, at its own end mark or at its cap, and
is trimmed to whole sentences; so the scaffold is valid by construction. Tags, choices and ids
are PROMPT text; slots are POLICY text with our own ids where they were trimmed. Rows of such
runs are good for SFT and never for a policy-gradient ratio.

A small model says of almost any evidence that nothing is missing. So code decides whether to
search again: as long as a name in the question stands in no passage that was found.

What the slots are and how they are sampled was found by measuring; see docs/benchmarks.md.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from agent.formats import EXACT_LINE
from agent.overlap import content_words
from agent.prompting import template
from agent.run import Found, Run
from agent.scaffold import neutralise
from agent.toolout import tool_output
from memory.interfaces import Completion, Sampling
from memory.schema import AnswerFormat, Author, Stage

PROSE = Sampling(temperature=0.2, top_p=0.9, min_p=0.05)
GREEDY = Sampling(temperature=0.0)

_TAG = re.compile(r"</?[A-Za-z_]|<\|")
_SENTENCE = re.compile(r"[.!?](?=\s|$)")
_WORD = re.compile(r"[\w.]+")
_NAME = re.compile(r"\w[._]\w|[a-z][A-Z]")
"""inside a word: it is an identifier"""


@dataclass(frozen=True, slots=True)
class Slot:
    """One place the model fills: where, how long in tokens, and how sampled."""

    name: str
    stage: Stage
    cap: int
    sampling: Sampling = PROSE
    end: str = "\n"
    """text at which the slot ends, beside anything like a tag"""


THINK = Slot("think", Stage.PLAN, 40, replace(PROSE, dry=4))
ANALYSIS = Slot("deep_analysis", Stage.PLAN, 60, replace(PROSE, dry=4))
RUBRIC = Slot("rubric", Stage.PLAN, 80, replace(PROSE, dry=4), end="\n\n")
RESEARCH_PLAN = Slot("research_plan", Stage.PLAN, 50, replace(PROSE, dry=4))
QUERY = Slot("query", Stage.RESEARCH, 20, GREEDY)
EVALUATION = Slot("state_evaluation", Stage.RESEARCH, 60, replace(PROSE, dry=12))
RUBRIC_REVIEW = Slot("rubric_review", Stage.REVIEW, 80, replace(PROSE, dry=12), end="\n\n")
WRITING_PLAN = Slot("writing_plan", Stage.REVIEW, 40, replace(PROSE, dry=12))
CLAIM = Slot("claim", Stage.ANSWER, 80, GREEDY, end="</cite>")
EXACT = Slot("exact", Stage.ANSWER, 24, GREEDY)

CLAIMS = {AnswerFormat.LONG: 4, AnswerFormat.SHORT: 3, AnswerFormat.EXACT: 2}
"""cited claims at most, by the answer's format"""

OnSlot = Callable[[Slot, str, Completion], None]
"""Told what a slot holds after trimming, and what the model wrote for it."""


class ForcedDecoder:
    """Writes the four stages slot by slot. Needs a policy that continues tokens."""

    def __init__(self, searches: int = 3, on_slot: OnSlot | None = None) -> None:
        self._searches = searches
        self._on_slot = on_slot

    def system(self, run: Run) -> str:
        return template("forced")

    def message(self, run: Run) -> str:
        return f"Question: {neutralise(' '.join(run.ask.question.split()))}"

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
        return await self._call(run, neutralise(" ".join(run.ask.question.split())))

    async def observe(self, run: Run, found: Found) -> None:
        text = tool_output(found, run.ask.passage_words)
        await run.prompt(Stage.RESEARCH, text, Author.TOOL)

    async def research(self, run: Run) -> str | None:
        """Evaluate the evidence; return another query, or None to go on to the review."""
        await run.prompt(Stage.RESEARCH, f"{self.message(run)}\n<state_evaluation>")
        await self._fill(run, EVALUATION)
        await run.prompt(Stage.RESEARCH, "</state_evaluation>\n")
        missing = _missing_names(run)
        if not missing or run.turn > min(self._searches, run.ask.tool_calls):
            return None
        return await self._call(run, " ".join(missing))

    async def review(self, run: Run) -> None:
        await run.prompt(Stage.REVIEW, "<review>\n<rubric_review>")
        await self._fill(run, RUBRIC_REVIEW)
        await run.prompt(Stage.REVIEW, "</rubric_review>\n<writing_plan>")
        await self._fill(run, WRITING_PLAN)
        await run.prompt(Stage.REVIEW, "</writing_plan>\n</review>\n")

    async def answer(self, run: Run) -> None:
        """Cited claims, each adding something; without any source, one that cites none."""
        await run.prompt(Stage.ANSWER, "<answer>")
        if run.sources:
            await self._claims(run)
        else:
            await run.prompt(Stage.ANSWER, "\nThe sources searched hold nothing on this question.")
        if run.ask.answer_format is AnswerFormat.EXACT:
            await run.prompt(Stage.ANSWER, f"\n{EXACT_LINE}")
            await self._fill(run, EXACT)
        await run.prompt(Stage.ANSWER, "\n</answer>\n")

    async def _claims(self, run: Run) -> None:
        said: frozenset[str] = frozenset()
        for number in range(CLAIMS[run.ask.answer_format]):
            grammar = _claim_grammar(list(run.sources), may_end=number > 0)
            sampling = replace(CLAIM.sampling, max_tokens=CLAIM.cap, grammar=grammar)
            written = await run.write(Stage.ANSWER, sampling)
            identifier, _, rest = written.text.partition('">')
            claim = trim(rest.partition("</cite>")[0], capped="</cite>" not in rest)
            if self._on_slot and identifier:
                self._on_slot(CLAIM, claim, written)
            words = content_words(claim)
            if not words - said:
                break
            said |= words
            identifier = identifier.rpartition('"')[2]
            await run.prompt(Stage.ANSWER, f'\n<cite id="{identifier}">')
            await run.keep_edited(Stage.ANSWER, claim)
            await run.prompt(Stage.ANSWER, "</cite>")

    async def _call(self, run: Run, begin: str) -> str:
        """A tool call whose query begins with given words and goes on with the model's."""
        await run.prompt(Stage.RESEARCH, f'<call_tool name="search">{begin} ')
        words = await self._fill(run, QUERY)
        await run.prompt(Stage.RESEARCH, "</call_tool>\n")
        return f"{begin} {words}".strip()

    async def _fill(self, run: Run, slot: Slot) -> str:
        sampling = replace(slot.sampling, max_tokens=slot.cap)
        written = await run.write(slot.stage, sampling, lambda text: _end(text, slot.end))
        text = trim(written.text, capped=written.stop_reason in ("length", "repetition"))
        if text:
            await run.keep_edited(slot.stage, text)
        if self._on_slot:
            self._on_slot(slot, text, written)
        return text


def _claim_grammar(identifiers: list[str], *, may_end: bool) -> str:
    """A cite of an id that was really returned, so that none can be invented, or the end."""
    ids = " | ".join(f'"{identifier}"' for identifier in identifiers)
    claim = r'"\n<cite id=\"" id "\">" [^<\n]+ "</cite>"'
    root = f'{claim} | "\\n</answer>"' if may_end else claim
    return f"root ::= {root}\nid ::= {ids}\n"


def _missing_names(run: Run) -> list[str]:
    """Identifiers of the question that no passage holds and no further search was made for."""
    sought = " ".join(run.queries[1:]).casefold()
    read = " ".join(f"{source.title} {source.text}" for source in run.sources.values()).casefold()
    words = dict.fromkeys(word.strip(".") for word in _WORD.findall(run.ask.question))
    names = [word for word in words if _NAME.search(word)]
    lasts = {name: name.casefold().rpartition(".")[2] for name in names}
    return [name for name, last in lasts.items() if last not in read and last not in sought]


def _end(text: str, mark: str) -> int | None:
    """Where a slot's text ends; an end mark before the first word does not count."""
    lead = len(text) - len(text.lstrip())
    tag = _TAG.search(text)
    marked = text.find(mark, lead)
    return min([at for at in (tag.start() if tag else -1, marked) if at >= 0], default=None)


def trim(text: str, *, capped: bool) -> str:
    """The text without loose ends: up to its last whole sentence or line where it was cut."""
    text = text.strip()
    if not capped:
        return text
    ends = [match.end() for match in _SENTENCE.finditer(text)]
    end = max([*ends, text.rfind("\n")])
    return text[:end].rstrip() if end > 0 else text
