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
from agent.overlap import content_words, overlap
from agent.prompting import template
from agent.run import Found, Run
from agent.scaffold import neutralise
from agent.toolout import tool_output
from memory.interfaces import Completion, Sampling
from memory.schema import AnswerFormat, Author, Source, Stage

PROSE = Sampling(temperature=0.2, top_p=0.9, min_p=0.05)
GREEDY = Sampling(temperature=0.0)

_TAG = re.compile(r"</?[A-Za-z_]|<\|")
_SENTENCE = re.compile(r"[.!?](?=\s|$)")
_WORD = re.compile(r"[\w.]+")
_NAME = re.compile(r"\w[._]\w|[a-z][A-Z]")
"""inside a word: it is an identifier"""
_EXACT = re.compile(rf"{_NAME.pattern}|\d")
"""in a word of a claim: it must stand in the source as it is"""


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
READING = Slot("reading", Stage.RESEARCH, 60, GREEDY)
MISSING = Slot("missing", Stage.RESEARCH, 20, GREEDY)
RUBRIC_REVIEW = Slot("rubric_review", Stage.REVIEW, 80, replace(PROSE, dry=12), end="\n\n")
WRITING_PLAN = Slot("writing_plan", Stage.REVIEW, 40, replace(PROSE, dry=12))
CLAIM = Slot("claim", Stage.ANSWER, 80, GREEDY, end="</cite>")
EXACT = Slot("exact", Stage.ANSWER, 24, GREEDY)

CLAIMS = {AnswerFormat.LONG: 4, AnswerFormat.SHORT: 3, AnswerFormat.EXACT: 2}
"""cited claims at most, by the answer's format"""
SUPPORT = 0.5
"""share of a claim's words that its source must hold; see agent/overlap.py"""
NAME_CHARACTERS = 60
"""of a source's title, put before its reading"""
MORE_WORDS = 4
"""words that the model may add to a query"""

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
        await run.prompt(Stage.PLAN, "</deep_analysis>\n<rubric>\n- Says")
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
        for source in self._unread(run):
            await run.prompt(Stage.RESEARCH, f"\n{_reading_of(source)}")
            await self._fill(run, READING)
        await run.prompt(Stage.RESEARCH, "\nMissing:")
        await self._fill(run, MISSING)
        await run.prompt(Stage.RESEARCH, "\n</state_evaluation>\n")
        missing = _missing_names(run)
        if not missing or run.turn > min(self._searches, run.ask.tool_calls):
            return None
        return await self._call(run, " ".join(missing))

    def _unread(self, run: Run) -> list[Source]:
        """Sources that no evaluation has spoken of yet."""
        return [s for s in run.sources.values() if _reading_of(s) not in run.text]

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
        """Claims until the model ends, says nothing new, or leaves its sources."""
        said: list[str] = []
        sources = dict(run.sources)
        for _ in range(CLAIMS[run.ask.answer_format]):
            identifier, claim = await self._claim(run, list(sources), may_end=bool(said))
            if not identifier or not _adds(claim, said):
                break
            if not _holds(sources[identifier], claim) and len(sources) > 1:
                # What a source does not say is not shown under its name; others may say it.
                del sources[identifier]
                continue
            said.append(claim)
            await run.prompt(Stage.ANSWER, f'\n<cite id="{identifier}">')
            await run.keep_edited(Stage.ANSWER, claim)
            await run.prompt(Stage.ANSWER, "</cite>")

    async def _claim(self, run: Run, identifiers: list[str], *, may_end: bool) -> tuple[str, str]:
        """An id and what is claimed of it; ("", "") where the model ends the answer."""
        if not identifiers:
            return "", ""
        grammar = _claim_grammar(identifiers, may_end=may_end)
        sampling = replace(CLAIM.sampling, max_tokens=CLAIM.cap, grammar=grammar)
        written = await run.write(Stage.ANSWER, sampling)
        opening, _, rest = written.text.partition('">')
        claim = trim(rest.partition("</cite>")[0], capped="</cite>" not in rest)
        if self._on_slot and rest:
            self._on_slot(CLAIM, claim, written)
        return (opening.rpartition('"')[2], claim) if rest else ("", "")

    async def _call(self, run: Run, begin: str) -> str:
        """A tool call whose query begins with given words and goes on with the model's.

        Of the model's only words that are new are kept: small models add numbers and guesses.
        """
        await run.prompt(Stage.RESEARCH, f'<call_tool name="search">{begin}')
        sampling = replace(QUERY.sampling, max_tokens=QUERY.cap)
        written = await run.write(QUERY.stage, sampling, lambda text: _end(text, QUERY.end))
        words = _new_words(written.text, begin)
        if words:
            await run.keep_edited(QUERY.stage, f" {words}")
        if self._on_slot:
            self._on_slot(QUERY, words, written)
        await run.prompt(Stage.RESEARCH, "</call_tool>\n")
        return f"{begin} {words}".strip()

    async def _fill(self, run: Run, slot: Slot) -> str:
        sampling = replace(slot.sampling, max_tokens=slot.cap)
        written = await run.write(slot.stage, sampling, lambda text: _end(text, slot.end))
        text = trim(written.text, capped=written.stop_reason in ("length", "repetition"))
        if text:
            # The space that parts it from the words the runner put before it.
            lead = " " if written.text[0] == " " else ""
            await run.keep_edited(slot.stage, lead + text)
        if self._on_slot:
            self._on_slot(slot, text, written)
        return text


def _reading_of(source: Source) -> str:
    """What stands before the reading of a source; its name keeps the model to its subject."""
    name = neutralise(" ".join(source.title.split())[:NAME_CHARACTERS])
    return f"{source.id} ({name}) says:"


def _holds(source: Source, claim: str) -> bool:
    """Whether a source has most words of a claim, and every name and number in it."""
    text = f"{source.title}\n{source.text}"
    exact = [word.strip(".") for word in _WORD.findall(claim) if _EXACT.search(word)]
    held = text.casefold()
    return overlap(claim, text) >= SUPPORT and all(word.casefold() in held for word in exact)


def _adds(claim: str, said: list[str]) -> bool:
    return bool(content_words(claim) - content_words(" ".join(said)))


def _new_words(written: str, begin: str) -> str:
    """At most four words that the query does not hold yet."""
    known = begin.casefold()
    words = [word for word in _WORD.findall(written) if len(word) > 2 and not word[0].isdigit()]
    return " ".join([word for word in words if word.casefold() not in known][:MORE_WORDS])


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
