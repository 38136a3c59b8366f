"""Forced decoding: the runner writes every tag, a small model fills one slot after another.

Each slot ends at the first thing that looks like a tag, at its own end mark or at its cap, and
is trimmed to whole sentences; so the scaffold is valid by construction. Tags, choices and ids
are PROMPT text; slots are POLICY text with our own ids where they were trimmed. Rows of such
runs are good for SFT and never for a policy-gradient ratio. Where the slots stand, how long they
are and how they are sampled was found by measuring; docs/progress.md says what was tried.

A small model says of almost any evidence that nothing is missing. So code decides whether to
search again: as long as a name in the question stands in no passage that was found. For the same
reason every source is read in a line of its own that begins with its name, and a claim its source
does not hold is not shown.

Nor does a small model call tools of MCP servers when it should, or it calls whatever it is
offered. So the question is always searched for first. After that a tool is due, once, where its
description shares two words with the question and no passage holds one of them: the model then
chooses among the tools that are due and writes the arguments. It is free to call or not to call
tools that come nearer to the question than that, or any where the search found little of it. A
grammar holds it to a whole call, or to what would have come without one.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from rubricem.agent.research.run import Run
from rubricem.agent.sources.offers import (
    CLOSING,
    NAMED,
    OPENING,
    Offer,
    call_grammar,
)
from rubricem.agent.transcript.question import Found, RunCut, tool_output
from rubricem.agent.transcript.scaffold import EXACT_LINE, neutralise, parse, rubric_items, template
from rubricem.agent.transcript.words import NAME, content_words, overlap
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import AnswerFormat, Author, Completion, Sampling, Source, Stage, Status

PROSE = Sampling(temperature=0.2, top_p=0.9, min_p=0.05)
GREEDY = Sampling(temperature=0.0)

_TAG = re.compile(r"</?[A-Za-z_]|<\|")
_SENTENCE = re.compile(r"[.!?](?=\s|$)")


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
TOOL_CALL = Slot("tool_call", Stage.RESEARCH, 120, GREEDY, end="</call_tool>")
READING = Slot("reading", Stage.RESEARCH, 60, GREEDY)
MISSING = Slot("missing", Stage.RESEARCH, 20, GREEDY)
RUBRIC_REVIEW = Slot("rubric_review", Stage.REVIEW, 80, replace(PROSE, dry=12), end="\n\n")
WRITING_PLAN = Slot("writing_plan", Stage.REVIEW, 40, replace(PROSE, dry=12))
CLAIM = Slot("claim", Stage.ANSWER, 80, GREEDY, end="</cite>")
EXACT = Slot("exact", Stage.ANSWER, 24, GREEDY)

OnSlot = Callable[[Slot, str, Completion], None]
"""Told what a slot holds after trimming, and what the model wrote for it."""


def slot_end(text: str, mark: str) -> int | None:
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


MOST_OFFERED = 6
"""tools of which a small model is told"""
MUCH = 2
"""words of the question that a tool's description holds, from which it is about the question"""
_CALL = re.compile(rf"{re.escape(OPENING)}([^\"]+){re.escape(NAMED)}([^<]*)")
_TOLD = "Tools that can be called now, for what is missing:\n"


@dataclass(frozen=True, slots=True)
class Fitting:
    """The tools that may give what the search has not found, best first."""

    offers: tuple[Offer, ...] = ()
    due: bool = False
    """one of them is to be called"""


def fitting(run: Run) -> Fitting:
    """What of the run's tools fits its question and what was read so far."""
    tools = run.equipped
    if tools is None:
        return Fitting()
    asked = content_words(run.evidence.alone(run.ask.question))
    unread = asked - content_words(" ".join(f"{s.title} {s.text}" for s in run.sources.values()))
    spoken: dict[str, frozenset[str]] = {}
    for name, offer in tools.offers.items():
        # Its own name, not its server's.
        about = [offer.tool, offer.description, *map(str, offer.properties)]
        spoken[name] = asked & content_words(" ".join(about))
    best = sorted(spoken, key=lambda name: -len(spoken[name]))
    fit = [name for name in best if len(spoken[name]) >= MUCH and spoken[name] & unread]
    due = [name for name in fit if f"{OPENING}{name}{NAMED}" not in run.text]
    if not due and 2 * len(unread) < len(asked):
        best = [name for name in best if len(spoken[name]) >= MUCH or spoken[name] & unread]
    chosen = [tools.offers[name] for name in due or best]
    return Fitting(tuple(chosen[:MOST_OFFERED]), due=bool(due))


async def call_chosen(
    run: Run, fit: Fitting, otherwise: str, on_slot: OnSlot | None = None
) -> str | None:
    """A call of one of the tools, if it was not made before and the model chooses one.

    `otherwise`: how the transcript goes on where it chooses none.
    """
    told = "".join(f"- {offer.line()}\n" for offer in fit.offers)
    if told not in run.text:
        await run.prompt(Stage.RESEARCH, _TOLD + told)
    grammar = call_grammar(fit.offers, "" if fit.due else otherwise)
    sampling = replace(TOOL_CALL.sampling, max_tokens=TOOL_CALL.cap, grammar=grammar)
    written = await run.write(Stage.RESEARCH, sampling, live=False)
    chosen = _CALL.match(written.text)
    name, arguments = (chosen[1], " ".join(chosen[2].split())) if chosen else ("", "")
    if on_slot:
        on_slot(TOOL_CALL, f"{name} {arguments}".strip(), written)
    call = f"{name}{NAMED}{arguments}"
    if name not in {offer.name for offer in fit.offers} or f"{OPENING}{call}{CLOSING}" in run.text:
        return None
    await run.prompt(Stage.RESEARCH, OPENING)
    await run.keep_edited(Stage.RESEARCH, call)
    await run.prompt(Stage.RESEARCH, f"{CLOSING}\n")
    return f"{name} {arguments}"


SUPPORT = 0.5
"""share of a claim's words that its source must hold"""

WORD = re.compile(r"[\w.]+")
_EXACT = re.compile(rf"{NAME.pattern}|\d")
"""in a word of a claim: it must stand in the source as it is"""


_CONSTANTS = frozenset({"none", "true", "false"})


def claim_grammar(identifiers: list[str], begin: str = "", *, may_end: bool) -> str:
    """A cite of an id that was really returned, so that none can be invented, or the end.

    `begin`: words that the claim opens with.
    """
    ids = " | ".join(f'"{identifier}"' for identifier in identifiers)
    opening = json.dumps(f'">{begin}', ensure_ascii=False)
    claim = rf'"\n<cite id=\"" id {opening} [^<\n]+ "</cite>"'
    root = f'{claim} | "\\n</answer>"' if may_end else claim
    return f"root ::= {root}\nid ::= {ids}\n"


def holds(source: Source, claim: str) -> bool:
    """Whether a source has most words of a claim, and every name and number in it."""
    text = f"{source.title}\n{source.text}"
    exact = [word.strip(".") for word in WORD.findall(claim) if _EXACT.search(word)]
    # Whole: 12 is not in 128.
    patterns = [rf"(?<!\w){re.escape(word)}(?!\w)" for word in exact]
    return overlap(claim, text) >= SUPPORT and all(re.search(p, text, re.I) for p in patterns)


def adds(claim: str, said: list[str]) -> bool:
    """Whether a claim has a content word that was not said yet."""
    return bool(content_words(claim) - content_words(" ".join(said)))


def touches(claim: str, asked: str) -> bool:
    """Whether a claim shares a content word with what was asked; constants are no content."""
    return bool((content_words(claim) & content_words(asked)) - _CONSTANTS)


CLAIMS = {AnswerFormat.LONG: 4, AnswerFormat.SHORT: 3, AnswerFormat.EXACT: 2}
"""cited claims at most, by the answer's format"""
ROOM = 2000
"""tokens that must still fit before another search"""
QUESTION_SHARE = 1 / 12
"""of the context that a question may fill, since it is repeated; at three characters a token"""
NAME_CHARACTERS = 60
"""of a source's title, put before its reading"""
MORE_WORDS = 4
"""words that the model may add to a query"""
SEARCH, REVIEW = '<call_tool name="search">', "<review>"


class ForcedDecoder:
    """Writes the four stages slot by slot. Needs a policy that continues tokens."""

    def __init__(self, searches: int = 3, on_slot: OnSlot | None = None) -> None:
        self._searches = searches
        self._on_slot = on_slot

    def system(self, run: Run) -> str:
        return template("forced")

    def message(self, run: Run) -> str:
        question = neutralise(" ".join(run.ask.question.split()))
        context = run.policy.context_tokens
        if context is not None and len(question) / 3 > context * QUESTION_SHARE:
            raise SettingsError(
                f"The question has {len(question):,} characters, too many for a context of "
                f"{context:,} tokens.",
                "Shorten it, put its material into a folder named by --source, or raise "
                "context_tokens.",
            )
        return f"Question: {question}"

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
        return await self._call(
            run, neutralise(" ".join(run.evidence.alone(run.ask.question).split()))
        )

    async def observe(self, run: Run, found: Found) -> None:
        text = tool_output(found, run.ask.passage_words)
        await run.prompt(Stage.RESEARCH, text, Author.TOOL)

    async def research(self, run: Run) -> str | None:
        """Evaluate the evidence; return a query or a tool's call, or None to go on to review."""
        await run.prompt(Stage.RESEARCH, f"{self.message(run)}\n<state_evaluation>")
        unread = [s for s in run.sources.values() if f"\n{_named(s)} says" not in run.text]
        for source in unread:
            await run.prompt(Stage.RESEARCH, f"\n{_named(source)} says:")
            await self._fill(run, READING)
        await self._read_again(run)
        await run.prompt(Stage.RESEARCH, "\nMissing:")
        await self._fill(run, MISSING)
        await run.prompt(Stage.RESEARCH, "\n</state_evaluation>\n")
        missing = _missing_names(run)
        room = run.room()
        if room is not None and room < ROOM:
            return None
        if missing and run.turn > run.ask.tool_calls:
            run.ended_by = run.ended_by or "tool_calls"
        fit = fitting(run)
        spent = run.turn > min(self._searches, run.ask.tool_calls)
        if spent or not (missing or fit.offers) or await run.runs_low():
            return None
        if fit.offers:
            otherwise = SEARCH if missing else REVIEW
            if call := await call_chosen(run, fit, otherwise, self._on_slot):
                return call
        return await self._call(run, " ".join(missing)) if missing else None

    async def _read_again(self, run: Run) -> None:
        """Read the first source once more for each part of the question no reading speaks of.

        Of a question with two parts a small model reads one into every source.
        """
        for first in list(run.sources.values())[:1]:
            read = run.text[run.text.rfind("<state_evaluation>") :]
            for part in _unspoken(run, read):
                begin = f"\n{_named(first)} on {part}:"
                if begin not in run.text:
                    await run.prompt(Stage.RESEARCH, begin)
                    await self._fill(run, READING)

    async def review(self, run: Run) -> None:
        await run.prompt(Stage.REVIEW, f"{REVIEW}\n<rubric_review>")
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
            nothing = "The sources hold nothing on this question."
            said = "The search failed." if run.search_error else nothing
            await run.prompt(Stage.ANSWER, f"\n{said}")
        if run.ask.answer_format is AnswerFormat.EXACT:
            await run.prompt(Stage.ANSWER, f"\n{EXACT_LINE}")
            await self._fill(run, EXACT)
        await run.prompt(Stage.ANSWER, "\n</answer>\n")

    async def _claims(self, run: Run) -> None:
        """Claims until the model ends, says nothing new, or leaves its sources."""
        said: list[str] = []
        sources = dict(run.sources)
        asked = "\n".join([run.evidence.alone(run.ask.question), *_rubric(run)])
        opened: set[str] = set()
        while sources and len(said) < CLAIMS[run.ask.answer_format]:
            # The model would end with one part of the question; the runner opens the others.
            left = _unspoken(run, " ".join(said)) if said else []
            part = next((part for part in left if part not in opened), "")
            opened.add(part)
            begin = f"{part[:1].upper()}{part[1:]}: " if part else ""
            may_end = bool(said) and not part
            identifier, claim = await self._claim(run, list(sources), begin, may_end=may_end)
            if not identifier or not adds(claim, said):
                break
            said_of_it = claim.removeprefix(begin)
            if not (holds(sources[identifier], said_of_it) and touches(claim, asked)):
                # What a source does not say is not shown under its name; others may say it.
                del sources[identifier]
                continue
            said.append(claim)
            await run.prompt(Stage.ANSWER, f'\n<cite id="{identifier}">')
            await run.keep_edited(Stage.ANSWER, claim)
            await run.prompt(Stage.ANSWER, "</cite>")
        if not said:
            await run.prompt(Stage.ANSWER, "\nThe passages found do not settle this question.")
            reason = "no claim of the model stands in the source it named"
            run.end_early(reason, Status.NO_EVIDENCE, by=run.ended_by)

    async def keep_cut(self, run: Run, cut: RunCut) -> None:
        """Nothing: a slot in progress is neither trimmed nor checked."""

    async def _claim(
        self, run: Run, identifiers: list[str], begin: str, *, may_end: bool
    ) -> tuple[str, str]:
        """An id and what is claimed of it; ("", "") where the model ends the answer."""
        grammar = claim_grammar(identifiers, begin, may_end=may_end)
        sampling = replace(CLAIM.sampling, max_tokens=CLAIM.cap, grammar=grammar)
        written = await run.write(Stage.ANSWER, sampling, live=False)
        opening, _, rest = written.text.partition('">')
        claim = trim(rest.partition("</cite>")[0], capped="</cite>" not in rest)
        if self._on_slot and rest:
            self._on_slot(CLAIM, claim, written)
        return (opening.rpartition('"')[2], claim) if rest else ("", "")

    async def _call(self, run: Run, begin: str) -> str:
        """A tool call whose query begins with given words and goes on with the model's.

        Of the model's only words that are new are kept: small models add numbers and guesses.
        """
        await run.prompt(Stage.RESEARCH, f"{SEARCH}{begin}")
        sampling = replace(QUERY.sampling, max_tokens=QUERY.cap)
        written = await run.write(
            QUERY.stage, sampling, lambda text: slot_end(text, QUERY.end), live=False
        )
        found = [w for w in WORD.findall(written.text) if len(w) > 2 and not w[0].isdigit()]
        words = " ".join([w for w in found if w.casefold() not in begin.casefold()][:MORE_WORDS])
        if words:
            await run.keep_edited(QUERY.stage, f" {words}")
        if self._on_slot:
            self._on_slot(QUERY, words, written)
        await run.prompt(Stage.RESEARCH, "</call_tool>\n")
        return f"{begin} {words}".strip()

    async def _fill(self, run: Run, slot: Slot) -> str:
        sampling = replace(slot.sampling, max_tokens=slot.cap)
        written = await run.write(
            slot.stage, sampling, lambda text: slot_end(text, slot.end), live=False
        )
        text = trim(written.text, capped=written.stop_reason in ("length", "repetition"))
        if text:
            # The space that parts it from the words the runner put before it.
            lead = " " if written.text[0] == " " else ""
            await run.keep_edited(slot.stage, lead + text)
        if self._on_slot:
            self._on_slot(slot, text, written)
        return text


def _rubric(run: Run) -> list[str]:
    """The items of the question's own rubric."""
    return rubric_items(parse(run.text).last("rubric"))


def _unspoken(run: Run, text: str) -> list[str]:
    """The rubric items that ask what the question asks, in words that a text has none of.

    The first source's name does not count: whatever is said of it may name it.
    """
    name = _heads(next(source.title for source in run.sources.values()))
    question, spoken = _heads(run.ask.question), _heads(text)
    parts = {item.removeprefix("Says").strip(): _heads(item[4:]) - name for item in _rubric(run)}
    return [
        part
        for part, asked in parts.items()
        if 2 * len(asked & question) >= len(asked) > 0 and not asked & spoken
    ]


def _heads(text: str) -> frozenset[str]:
    """The beginnings of its content words: "eviction" is then akin to "evict"."""
    return frozenset(word[:5] for word in content_words(text))


def _named(source: Source) -> str:
    """Id and name of a source; the name keeps the model to its subject."""
    name = neutralise(" ".join(source.title.split())[:NAME_CHARACTERS])
    return f"{source.id} ({name})"


def _missing_names(run: Run) -> list[str]:
    """Identifiers of the question that no passage holds and no further search was made for."""
    sought = " ".join(run.evidence.queries(run.search_tool.name)[1:]).casefold()
    read = " ".join(f"{source.title} {source.text}" for source in run.sources.values()).casefold()
    words = dict.fromkeys(word.strip(".") for word in WORD.findall(run.ask.question))
    names = [word for word in words if NAME.search(word)]
    lasts = {name: name.casefold().rpartition(".")[2] for name in names}
    return [name for name, last in lasts.items() if last not in read and last not in sought]
