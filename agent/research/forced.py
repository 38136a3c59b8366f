"""Forced decoding: the runner writes every tag, a small model fills one slot after another.

Each slot ends at the first thing that looks like a tag, at its own end mark or at its cap, and
is trimmed to whole sentences; so the scaffold is valid by construction. Tags, choices and ids
are PROMPT text; slots are POLICY text with our own ids where they were trimmed. Rows of such
runs are good for SFT and never for a policy-gradient ratio. Where the slots stand, how long they
are and how they are sampled was found by measuring; docs/progress.md says what was tried.

The plan is numbered look-ups (`lookups`), and code follows it: each is searched in its own words,
its answer read out of the passages by a grammar of what they hold, and put into the look-ups that
refer to it. One that finds nothing is searched once more in other words. What is still open at
the end is named in the review and in the answer; a small model says of almost any evidence that
nothing is missing, so it is not asked.

Nor does a small model call tools of MCP servers when it should, or it calls whatever it is
offered. So the question is always searched for first. After that a tool is due, once, where its
description shares two words with the question and no passage holds one of them: the model then
chooses among the tools that are due and writes the arguments. It is free to call or not to call
tools that come nearer to the question than that, or any where the search found little of it. A
grammar holds it to a whole call, or to what would have come without one.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rubricem.agent.research.lookups import (
    Finding,
    Lookups,
    SideBySide,
    asks_for,
    candidates,
    compare,
    expects_words,
    names_stand,
    retry,
    subject_stands,
)
from rubricem.agent.research.plans import (
    Lookup,
    asks_one_thing,
    complete,
    covered,
    numbered,
    outline,
    read_plan,
)
from rubricem.agent.research.run import Run
from rubricem.agent.sources.choice import by_meaning
from rubricem.agent.sources.offers import (
    CLOSING,
    NAMED,
    OPENING,
    Offer,
    call_grammar,
)
from rubricem.agent.transcript.question import (
    CUT,
    Found,
    RunCut,
    cut_words,
    snippet,
    tool_output,
)
from rubricem.agent.transcript.scaffold import EXACT_LINE, neutralise, parse, rubric_items, template
from rubricem.agent.transcript.words import (
    NAME,
    SIGNATURE,
    STOP_WORDS,
    closest_sentence,
    content_words,
    names,
    overlap,
    phrase,
    sentences,
)
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import (
    AnswerFormat,
    Author,
    Completion,
    Embedder,
    Message,
    Sampling,
    Source,
    Stage,
    Status,
)

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


THINK = Slot("think", Stage.PLAN, 120, GREEDY, end="The same")
RUBRIC = Slot("rubric", Stage.PLAN, 64, end="\n\n")
QUERY = Slot("query", Stage.RESEARCH, 20, GREEDY, end="</call_tool>")
TOOL_CALL = Slot("tool_call", Stage.RESEARCH, 120, GREEDY, end="</call_tool>")
READING = Slot("reading", Stage.RESEARCH, 56, GREEDY)
RUBRIC_REVIEW = Slot("rubric_review", Stage.REVIEW, 12, GREEDY)
CLAIM = Slot("claim", Stage.ANSWER, 72, GREEDY, end="</cite>")
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


MOST_CALLS = 2
"""of tools in one run; a small model that is offered more calls for ever"""
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
    written = await run.write(Stage.RESEARCH, sampling, live=False, slot=TOOL_CALL.name)
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
NOT_FOUND = "not found"
DOUBT = 2.5
"""nats by which "not found" must be likelier than the best of what a passage offers: one that was
not found makes a small model say so of the next"""
QUOTE_CHARACTERS = 300
NEARLY = 0.75
"""share of a look-up's words beside the title's, from which a sentence is what was asked for"""
LEAST_TOLD, TOLD = 3, 0.4
"""words and share of a look-up's words beside the title's, from which a sentence may answer it"""
LEAD = 6
"""words of a sentence by which it is chosen"""
LEAST_WHOLE = 8
"""words, below which a sentence tells little without the next one ("1000-59999:")"""
OFFERED = 6
"""sentences, the nearest in meaning, of which the model is asked"""
LEAST_CHANCE, LIKELY, SURE = 0.3, 0.45, 0.7
"""that a sentence answers: for it to be shown where nothing else is found, to be taken for the
answer, and to look no further"""
EXPECTED, LEANING = 0.25, 0.15
"""added to that where all that was expected is there, and taken off where it leans on another"""
MOST_QUOTED = 2
"""sentences for one look-up"""
FAITHFUL = 0.7
"""share of a claim's words that its look-up, what was found and the source's title must hold"""
WHOLE = 0.4
"""share of what was found that its claim must say"""
RELATED = 0.5
"""share of a look-up's words that a passage holds which is taken for what the model expected"""
LEAST_SAID = 3
"""content words of a claim; what says less ("git reset") helps nobody"""


def any_of(texts: Sequence[str]) -> str:
    """A grammar of one of several texts."""
    return "root ::= " + " | ".join(json.dumps(text, ensure_ascii=False) for text in texts) + "\n"


def holds(source: Source, claim: str) -> bool:
    """Whether a source has most words of a claim, and every name and number in it."""
    text = f"{source.title}\n{source.text}"
    exact = [word.strip(".") for word in WORD.findall(claim) if _EXACT.search(word)]
    # Whole: 12 is not in 128.
    patterns = [rf"(?<!\w){re.escape(word)}(?!\w)" for word in exact]
    exact_stand = all(re.search(p, text, re.I) for p in patterns)
    return exact_stand and names_stand(claim, text) and overlap(claim, text) >= SUPPORT


def _relates(source: Source, question: str, guess: str) -> bool:
    """Whether a source speaks of what is asked, whatever it has of what was expected."""
    asked = content_words(question) - content_words(guess)
    there = content_words(f"{source.title} {source.text}")
    return len(asked & there) >= RELATED * len(asked)


def _hoped(source: Source, said: str, question: str, guess: str) -> float:
    """Share of what was expected of the answer, beside the question's words, in a sentence, 0 to 1.

    None of it counts in a source that does not speak of what is asked.
    """
    hoped = content_words(guess) - content_words(question) - content_words(source.title)
    if not hoped or not _relates(source, question, guess):
        return 0.0
    return len(hoped & content_words(said)) / len(hoped)


_LEANING = re.compile(
    r"\W*(?:(?:in|to|with|by|for) (?:such|this|that|these|those)|this|these|those|it|such|or,|thus|"
    r"hence|so|also|then|otherwise|therefore|they|he|she)\b|[^.]*\bthe above\b",
    re.I,
)


def _leans(said: str) -> bool:
    """Whether a sentence says little without the one before it."""
    return bool(_LEANING.match(said))


def _told(text: str) -> Iterator[str]:
    """The sentences of a text, where short ones and those that lead to the next are part of it."""
    held = ""
    for said in sentences(text):
        held = f"{held} {said}".strip()
        if not held.endswith(":") and len(held.split()) >= LEAST_WHOLE:
            yield held
            held = ""
    if held:
        yield held


def _is_prose(text: str) -> bool:
    """Whether a text says something: code and headings have none of the words that bind."""
    return any(word in STOP_WORDS for word in text.casefold().split())


def adds(claim: str, said: list[str]) -> bool:
    """Whether a claim has a content word that was not said yet."""
    return bool(content_words(claim) - content_words(" ".join(said)))


SAYS = ("says", "names", "gives", "tells", "states", "identifies")
"""how an item of a rubric begins"""
_OF_SIGNATURE = re.compile(r"\b(?:what|which) (?:is|are) (?:the )?|\bsignature\b", re.I)


def _only_signature(text: str, question: str) -> bool:
    """Whether a text is how something is called, and that is not what is asked."""
    return bool(SIGNATURE.fullmatch(text.strip())) and not _OF_SIGNATURE.search(question)


ROOM = 2000
"""tokens that must still fit before another search"""
QUESTION_SHARE = 1 / 12
"""of the context that a question may fill, since it is repeated; at three characters a token"""
BEGINNING = 35
"""words of a passage that are shown first"""
PART = 60
"""words of a passage, about what is asked, that are shown where it is known what to look for"""
TRIES = 2
"""searches for one look-up"""
SEARCH, REVIEW = '<call_tool name="search">', "<review>"


class ForcedDecoder:
    """Writes the four stages slot by slot. Needs a policy that continues tokens."""

    def __init__(self, on_slot: OnSlot | None = None, embedder: Embedder | None = None) -> None:
        """With an embedder the sentences that may answer are those nearest in meaning."""
        self._on_slot = on_slot
        self._embedder = embedder

    async def _nearest(
        self, sources: Sequence[Source], question: str, guess: str
    ) -> list[tuple[Source, str]]:
        """The sentences of the sources and where they stand, best first; [] with no embedder."""
        told = [(source, said) for source in sources for said in _told(source.text)]
        if self._embedder is None or not told:
            return []
        texts = [f"{source.title}: {said}" for source, said in told]
        hoped = [question, f"{question} {guess}"]
        order = await asyncio.to_thread(by_meaning, self._embedder, hoped, texts)
        return [told[at] for at, _ in order]

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
        """Write the plan and return the query of its first look-up."""
        alone = run.evidence.alone(run.ask.question)
        await run.prompt(Stage.PLAN, "<think>\n1.")
        if expects_words(alone) and asks_one_thing(alone):
            thoughts = read_plan("", alone)
            await run.prompt(Stage.PLAN, f" {neutralise(thoughts[0].text)}")
        else:
            thoughts = read_plan(f"1. {await self._fill(run, THINK)}", alone)
        steps = complete(thoughts, alone)
        lead = f"\n</think>\n<structured_plan>\n<deep_analysis>{outline(steps)}</deep_analysis>"
        await run.prompt(Stage.PLAN, f"{lead}\n<rubric>\n-")
        await self._fill(run, RUBRIC)
        plan = f"\n</rubric>\n<research_plan>\n{neutralise(numbered(steps))}"
        await run.prompt(Stage.PLAN, f"{plan}\n</research_plan>\n</structured_plan>\n")
        run.lookups = Lookups(others=[s.text for s in thoughts if not s.refers])
        self._follow(run)
        return await self._call(run, self._question(run, run.lookups.steps[0]))

    def _follow(self, run: Run) -> None:
        """Take up the plan as it stands in the transcript last: a person may have changed it."""
        text = parse(run.text).last("research_plan")
        steps = read_plan(text, run.evidence.alone(run.ask.question))
        if steps != run.lookups.steps:
            run.lookups.begin(steps)

    def _question(self, run: Run, step: Lookup) -> str:
        """What a look-up asks; the only one of a plan asks what the person asked."""
        alone = neutralise(" ".join(run.evidence.alone(run.ask.question).split()))
        single = len([s for s in run.lookups.steps if not s.compares]) == 1
        return alone if single else run.lookups.resolved(step) or step.text

    async def observe(self, run: Run, found: Found) -> None:
        if run.turn == 1:
            self._follow(run)
            asked = self._question(run, run.lookups.steps[0])
            run.lookups.queries.setdefault(run.lookups.at, [asked])
        # What the thread before quoted is never found anew, but it may answer.
        quoted = (i for i in run.sources if i in run.evidence.background.by_id)
        run.lookups.show([*(source.id for source in found.sources), *quoted])
        words, about = self._begin(run, found), dict[str, str]()
        if guess := run.lookups.guesses.get(run.lookups.at):
            words = min(words, PART)
            asked = self._question(run, run.lookups.step(run.lookups.at))
            about = dict.fromkeys(found.new, f"{asked} {guess}")
            nearest = await self._nearest(found.sources, asked, guess)
            # Best last, so that the best of each source stays.
            about |= {source.id: said for source, said in reversed(nearest)}
        await run.prompt(Stage.RESEARCH, tool_output(found, words, about), Author.TOOL)

    def _begin(self, run: Run, found: Found) -> int:
        """Words shown of each passage: its beginning where a name, a place or a date is asked for.

        Most pages tell those first, and reading is half of what a small model's answer costs.
        """
        lookups, words = run.lookups, run.ask.passage_words
        asked = self._question(run, lookups.step(lookups.at))
        brief = asks_for(asked) != "words"
        begun = {s.id: cut_words(s.text, BEGINNING) for s in found.sources if s.id in found.new}
        cut = {i: text for i, text in begun.items() if text.endswith(CUT)}
        lookups.begun = cut if brief and words > BEGINNING else {}
        return BEGINNING if lookups.begun else words

    async def research(self, run: Run) -> str | None:
        """Read what was found; return the next query or a tool's call, or None to go on."""
        lookups = run.lookups
        step = lookups.step(lookups.at)
        await self._evaluate(run, step)
        if lookups.begun and step.number not in lookups.found:
            words = run.ask.passage_words - BEGINNING
            rest = [snippet(run.sources[i], words, after=BEGINNING) for i in lookups.begun]
            lookups.begun = {}
            text = f"<tool_output>\n{''.join(rest)}</tool_output>\n"
            await run.prompt(Stage.RESEARCH, text, Author.TOOL)
            await self._evaluate(run, step)
        room = run.room()
        if room is not None and room < ROOM:
            return None
        query = self._query(run, step)
        if query and run.turn > run.ask.tool_calls:
            run.ended_by = run.ended_by or "tool_calls"
        called = sum(tool != run.search_tool.name for tool, _ in run.evidence.answered)
        fit = fitting(run) if called < MOST_CALLS else Fitting()
        if run.turn > run.ask.tool_calls or not (query or fit.offers) or await run.runs_low():
            return None
        if fit.offers:
            otherwise = SEARCH if query else REVIEW
            if call := await call_chosen(run, fit, otherwise, self._on_slot):
                return call
        return await self._call(run, query) if query else None

    async def _evaluate(self, run: Run, step: Lookup) -> None:
        """Say what answers a look-up, and which are open."""
        lookups = run.lookups
        await run.prompt(Stage.RESEARCH, f"<state_evaluation>\n[{step.number}]")
        if step.number in lookups.found:
            # A tool was called although it was answered; what the tool gave can be cited.
            await run.prompt(Stage.RESEARCH, f" {neutralise(lookups.found[step.number].text)}")
        else:
            await self._read(run, step)
        told = ", ".join(f"[{s.number}]" for s in lookups.open()) or "nothing"
        await run.prompt(Stage.RESEARCH, f"\nOpen: {told}\n</state_evaluation>\n")

    def _query(self, run: Run, step: Lookup) -> str | None:
        """What is to be searched next: the look-up again, or the next one."""
        lookups = run.lookups
        asked, shown = self._question(run, step), [run.sources[i] for i in lookups.shown]
        # The page of just this name was read; others speak of other things.
        read = asks_for(asked) != "words" and any(phrase(s.title) in phrase(asked) for s in shown)
        tried = len(lookups.queries.get(step.number, ()))
        if step.number not in lookups.found and tried < TRIES and not read:
            # Not searched at all: a tool was called in its place.
            alone = run.evidence.alone(run.ask.question)
            again: str | None = asked
            if tried:
                other, before = retry(lookups, step, alone), lookups.queries[step.number]
                again = run.evidence.remembered.again(asked, before, other)
            if again:
                return again
        following = lookups.next()
        if following is None:
            return None
        lookups.at = following.number
        return self._question(run, following)

    async def _read(self, run: Run, step: Lookup) -> None:
        """Answer a look-up out of the passages that were found for it, or say: not found."""
        question = whole = self._question(run, step)
        queries = run.lookups.queries.get(step.number, ())
        if queries and queries[-1] in map(neutralise, run.lookups.others):
            # What the model's own words brought is read for them.
            question = queries[-1]
        await run.prompt(Stage.RESEARCH, f" {neutralise(question)}")
        shown = [run.sources[i] for i in run.lookups.shown]
        about = [
            s
            for s in shown
            if all(subject_stands(asked, f"{s.title} {s.text}") for asked in (question, whole))
        ]
        asked = asks_for(question)
        begun = run.lookups.begun
        read = {s.id: f"{s.title}. {begun.get(s.id, s.text)}" for s in about}
        fit = {i: candidates(text, asked, question) for i, text in read.items()}
        finding: Finding | None = None
        if about and asked == "words":
            guess = run.lookups.guesses.get(step.number, "")
            finding = await self._read_words(run, about, question, guess)
        elif any(fit.values()):
            finding = await self._read_candidate(run, fit)
        if finding is None:
            await run.prompt(Stage.RESEARCH, f" {NOT_FOUND}")
            return
        run.lookups.found[step.number] = finding
        await run.prompt(Stage.RESEARCH, f" ({finding.source})")

    async def _read_candidate(self, run: Run, fit: dict[str, list[str]]) -> Finding | None:
        offered = [
            f" {neutralise(s)}" for s in dict.fromkeys(s for each in fit.values() for s in each)
        ]
        text = await self._found_of(run, offered)
        source = next((i for i, spans in fit.items() if text.strip() in map(neutralise, spans)), "")
        if not source:
            return None
        await run.keep_edited(READING.stage, text)
        return Finding(text.strip(), source)

    async def _read_words(
        self, run: Run, about: Sequence[Source], question: str, guess: str
    ) -> Finding | None:
        sampling = replace(READING.sampling, max_tokens=READING.cap)
        written = await run.write(
            READING.stage,
            sampling,
            lambda text: slot_end(text, READING.end),
            live=False,
            slot=READING.name,
        )
        text = trim(written.text.partition(" (S")[0], capped=written.stop_reason == "length")
        if self._on_slot:
            self._on_slot(READING, text, written)
        standing = [s for s in about if holds(s, text)]
        if not adds(text, [question, guess]):
            # It says again what it expected: what holds that must speak of what is asked, too.
            related = [s for s in standing if _relates(s, question, guess)]
            standing = related if self._embedder is None else []
        bare = not adds(text, [question, "yes no"]) or _only_signature(text, question)
        if NOT_FOUND in text.casefold() or not standing or bare:
            if self._embedder is not None:
                return await self._nearest_of(run, about, question, guess)
            quote = await self._quote_of(run, about, question)
            return quote or await self._sentence_of(run, about, question, guess)
        await run.keep_edited(READING.stage, f" {text}")
        best = max(standing, key=lambda s: overlap(text, f"{s.title} {s.text}"))
        return Finding(text, best.id)

    async def _nearest_of(
        self, run: Run, about: Sequence[Source], question: str, guess: str
    ) -> Finding | None:
        """Of the sentences nearest in meaning the one of which the model says that it answers.

        It is asked of each by itself: to choose among several it takes what it has just read.
        """
        chances = dict[Finding, float]()
        for source, said in self._hopeful(
            await self._nearest(about, question, guess), question, guess
        ):
            text = neutralise(" ".join(said.split())[:QUOTE_CHARACTERS])
            bare = _only_signature(said, question) or len(content_words(said)) < LEAST_SAID
            if bare or any(text == other.text for other in chances):
                continue
            told = f"Question: {question}\nSentence: {neutralise(source.title)}: {text}"
            messages = [
                Message("system", template("answers")),
                Message("user", f"{told}\nDoes the sentence answer the question?"),
            ]
            chance = await run.chance(Stage.RESEARCH, messages, READING.name)
            # Of a model that cannot tell, the nearest.
            chance = 1.0 if chance is None else chance
            chance += EXPECTED * _hoped(source, said, question, guess) - LEANING * _leans(said)
            chances[Finding(text, source.id, quoted=True)] = chance
            if len(chances) == OFFERED or chance >= SURE:
                break
        # What the search before brought may still be the best.
        known = run.lookups.likely.setdefault(run.lookups.at, {})
        known |= chances
        order = sorted(known, key=lambda finding: -known[finding])[:MOST_QUOTED]
        best = [
            f for at, f in enumerate(order) if known[f] > LIKELY and (not at or _is_prose(f.text))
        ]
        if order and LIKELY >= known[order[0]] > LEAST_CHANCE:
            run.lookups.near[run.lookups.at] = order[0]
        if not best:
            return None
        await run.prompt(Stage.RESEARCH, f" {best[0].text}")
        return replace(best[0], more=tuple(best[1:]))

    @staticmethod
    def _hopeful(
        nearest: Sequence[tuple[Source, str]], question: str, guess: str
    ) -> list[tuple[Source, str]]:
        """The same, after the two of them that have most of what was expected."""
        hoped = {told: _hoped(*told, question, guess) for told in nearest}
        most = sorted((told for told in nearest if hoped[told] >= WHOLE), key=lambda t: -hoped[t])
        return [*dict.fromkeys([*most[:2], *nearest])]

    async def _found_of(self, run: Run, offered: Sequence[str]) -> str:
        """What of these the model takes for the answer; "" if it finds none."""
        if not offered:
            return ""
        written = await self._weighed(run, READING, any_of([*offered, f" {NOT_FOUND}"]))
        if written.text.strip() == NOT_FOUND:
            instead = await self._weighed(run, READING, any_of(offered))
            if written.logprobs and instead.logprobs:
                # Where there is more to read "not found" may be said more easily.
                doubt = 0 if run.lookups.begun else DOUBT
                doubtful = instead.logprobs[0] > written.logprobs[0] - doubt
                written = instead if doubtful else written
        return written.text if written.text in offered else ""

    async def _quote_of(self, run: Run, about: Sequence[Source], question: str) -> Finding | None:
        """The sentence that a look-up asks for nearly in its own words, where the model is lost."""
        for source in about:
            said = closest_sentence(question, source.text)
            # What the title has in common with the question tells of the page alone.
            asked = content_words(question) - content_words(source.title)
            near = len(asked & content_words(said)) >= NEARLY * len(asked)
            if asked and near and not _only_signature(said, question):
                quote = neutralise(" ".join(said.split())[:QUOTE_CHARACTERS])
                await run.prompt(Stage.RESEARCH, f" {quote}")
                return Finding(quote, source.id)
        return None

    async def _sentence_of(
        self, run: Run, about: Sequence[Source], question: str, guess: str
    ) -> Finding | None:
        """The sentence that the model takes for the answer, of those that are on what is asked.

        Asked to write, a small model says of many passages that nothing was found.
        """
        asked, offered = content_words(question), dict[str, tuple[str, str]]()
        for source in about:
            beside = asked - content_words(source.title)
            least = max(LEAST_TOLD, TOLD * len(beside))
            for said in sentences(source.text):
                words = content_words(said)
                near = len(beside & words) >= least or _hoped(source, said, question, guess) > 0.5
                if near and not _only_signature(said, question):
                    text = neutralise(" ".join(said.split())[:QUOTE_CHARACTERS])
                    offered.setdefault(f" {' '.join(text.split()[:LEAD])}", (text, source.id))
        if not offered:
            return None
        lead = (await self._weighed(run, READING, any_of(list(offered)))).text
        if lead not in offered:
            return None
        text, identifier = offered[lead]
        await run.prompt(Stage.RESEARCH, f" {text}")
        return Finding(text, identifier)

    async def review(self, run: Run) -> str | None:
        """Hold every item of the rubric against what was found; one that is missing is searched.

        What a look-up was made for and did not find was searched in other words already.
        """
        await run.prompt(Stage.REVIEW, f"{REVIEW}\n<rubric_review>")
        marked = [(item, await self._mark(run, item)) for item in _rubric(run)]
        # An item on something else comes from the worked examples.
        question = run.evidence.alone(run.ask.question)
        missing = [item for item, met in marked if not met and overlap(item, question) >= SUPPORT]
        await run.prompt(Stage.REVIEW, "\n</rubric_review>\n")
        if missing and run.sources and not run.lookups.open() and await self._may_return(run):
            await run.prompt(Stage.REVIEW, "</review>\n")
            return await self._call(run, run.lookups.add(missing[0]))
        found = ", ".join(f"[{n}] from {f.source}" for n, f in run.lookups.found.items())
        plan = f"<writing_plan>{found or 'What was not found'}.</writing_plan>\n</review>\n"
        await run.prompt(Stage.REVIEW, plan)
        return None

    async def _may_return(self, run: Run) -> bool:
        room = run.room()
        full = room is not None and room < ROOM
        left = run.returns < run.ask.review_returns and run.turn <= run.ask.tool_calls
        return left and not full and not await run.runs_low()

    async def _mark(self, run: Run, item: str) -> bool:
        """Whether an item of the rubric is met, by the mark that is put behind it."""
        await run.prompt(Stage.REVIEW, f"\n- {item}")
        found, left = run.lookups.found, run.lookups.open()
        asked = content_words(item)
        near = [len(asked & content_words(run.lookups.resolved(s) or s.text)) for s in left]
        told = {n: len(asked & content_words(run.lookups.step(n).text)) for n in found}
        best = max(told, key=lambda n: told[n], default=None)
        # What no look-up found cannot be met; a small model would say that it is.
        if best is None or (near and max(near) > told[best]):
            await run.prompt(Stage.REVIEW, " [missing]")
            return False
        known = [run.ask.question, *(step.text for step in run.lookups.steps if step.planned)]
        if told[best] and covered(item, [*known, *SAYS]):
            await run.prompt(Stage.REVIEW, f" [met: {found[best].source}]")
            return True
        ids = dict.fromkeys(f.source for f in found.values())
        marks = any_of([*(f" [met: {identifier}]" for identifier in ids), " [missing]"])
        mark = await self._choose(run, RUBRIC_REVIEW, marks)
        await run.keep_edited(Stage.REVIEW, mark)
        return "missing" not in mark

    async def answer(self, run: Run) -> None:
        """A cited claim for each look-up, and what is open; without any, one that cites none."""
        await run.prompt(Stage.ANSWER, "<answer>")
        lookups, question = run.lookups, run.evidence.alone(run.ask.question)
        said = await self._claims(run)
        compared = compare(lookups, question)
        if compared:
            await run.prompt(Stage.ANSWER, f"\n{neutralise(compared.note)}")
        # What rests on another that was not found needs no word of its own.
        left = [neutralise(text) for s in lookups.open() if (text := lookups.resolved(s))]
        if not run.sources and run.search_error:
            await run.prompt(Stage.ANSWER, "\nThe search failed.")
        elif left or not said:
            missing = left or [neutralise(question)]
            await run.prompt(Stage.ANSWER, "".join(f"\nNot found: {m}" for m in missing))
            for number, near in lookups.near.items():
                if number not in lookups.found:
                    quote = await self._quote(run, number, near)
                    told = f'\nNearest to it: <cite id="{near.source}">{quote}</cite>'
                    await run.prompt(Stage.ANSWER, told)
        answered = said and all(not step.planned for step in lookups.open())
        if not answered and not run.search_error:
            status = Status.PARTIAL if said else Status.NO_EVIDENCE
            run.end_early(f"not found: {[*left, question][0]}", status, by=run.ended_by)
        if run.ask.answer_format is AnswerFormat.EXACT:
            await run.prompt(Stage.ANSWER, f"\n{EXACT_LINE.strip()}")
            await self._exact(run, compared, answered=answered)
        await run.prompt(Stage.ANSWER, "\n</answer>\n")

    async def _exact(self, run: Run, compared: SideBySide | None, *, answered: bool) -> None:
        """The bare answer: what code compared, else one of the things found."""
        if compared and compared.answer:
            await run.prompt(Stage.ANSWER, f" {neutralise(compared.answer)}")
        elif not answered or not run.lookups.found:
            await run.prompt(Stage.ANSWER, f" {NOT_FOUND}")
        else:
            found = dict.fromkeys(f.text for f in run.lookups.found.values())
            named = names(run.ask.question) if len(found) > 1 else []
            grammar = any_of([f" {neutralise(text)}" for text in [*found, *named, "yes", "no"]])
            await run.keep_edited(Stage.ANSWER, await self._choose(run, EXACT, grammar))

    async def _claims(self, run: Run) -> bool:
        """One claim for each thing found, held by its source; whether there is any.

        Where a budget ends meanwhile the sources are quoted, as that asks no model.
        """
        ended: RunCut | None = None
        found, quoted = run.lookups.found.items(), set[str]()
        for number, finding in ((n, f) for n, first in found for f in (first, *first.more)):
            source, claim = run.sources[finding.source], ""
            quote = await self._quote(run, number, finding) if finding.quoted else ""
            if quote and quote in quoted:
                continue  # it answers another look-up as well
            quoted.add(quote)
            await run.prompt(Stage.ANSWER, f'\n<cite id="{source.id}">')
            if ended is None and not finding.quoted:
                try:
                    claim = await self._claim(run)
                except RunCut as cut:
                    ended = cut
            if claim and self._may_say(run, number, claim, source):
                await run.keep_edited(Stage.ANSWER, claim)
            else:
                # Code's, as what the model did not write is nothing to train it on.
                quote = quote or await self._quote(run, number, finding)
                await run.prompt(Stage.ANSWER, quote)
            await run.prompt(Stage.ANSWER, "</cite>")
        if ended:
            raise ended
        return bool(run.lookups.found)

    async def _claim(self, run: Run) -> str:
        sampling = replace(CLAIM.sampling, max_tokens=CLAIM.cap)
        written = await run.write(
            Stage.ANSWER,
            sampling,
            lambda text: slot_end(text, CLAIM.end),
            live=False,
            slot=CLAIM.name,
        )
        claim = trim(written.text, capped=written.stop_reason == "length")
        if self._on_slot:
            self._on_slot(CLAIM, claim, written)
        return claim

    def _may_say(self, run: Run, number: int, claim: str, source: Source) -> bool:
        """Whether a claim says what was found, and its source holds it."""
        lookups, words = run.lookups, content_words(claim)
        asked = lookups.resolved(lookups.step(number)) or ""
        basis = f"{lookups.found[number].text} {asked} {source.title}"
        turned = "not" in words and "not" not in content_words(basis)
        found = content_words(lookups.found[number].text)
        whole = len(found & words) >= WHOLE * len(found)
        said = len(words) >= LEAST_SAID and overlap(claim, basis) >= FAITHFUL
        signature = _only_signature(claim, asked)
        if not (said and whole) or turned or signature or not holds(source, claim):
            return False
        return _is_prose(claim) or asks_for(asked) != "words"

    async def _quote(self, run: Run, number: int, finding: Finding) -> str:
        """What a source says of a look-up, where the model's own claim does not stand there."""
        source = run.sources[finding.source]
        asked = run.lookups.resolved(run.lookups.step(number)) or ""
        told = [" ".join(said.split()) for said in _told(source.text)]
        holding = [said for said in told if finding.text in neutralise(said)]
        said = ""
        if holding and finding.quoted:
            said = holding[0]
        elif not holding and asks_for(asked) == "words":
            nearest = await self._nearest([source], asked, finding.text)
            said = " ".join(nearest[0][1].split()) if nearest else ""
        said = said or closest_sentence(f"{asked} {finding.text}", "\n\n".join(holding or told))
        return neutralise((said or finding.text)[:QUOTE_CHARACTERS])

    async def keep_cut(self, run: Run, cut: RunCut) -> None:
        """Nothing: a slot in progress is neither trimmed nor checked."""

    async def _call(self, run: Run, query: str) -> str:
        """A search in the words of a look-up, and in those that the model expects of the answer.

        A person's words are not the manual's ("undo", "--soft"), but the model often knows them;
        the answer rests alone on what is found by them.
        """
        lookups, query = run.lookups, neutralise(" ".join(query.split()))
        asked = lookups.queries.setdefault(lookups.at, [])
        await run.prompt(Stage.RESEARCH, f"{SEARCH}{query}")
        if not asked and expects_words(query):
            guess = " ".join((await self._fill(run, QUERY)).split())
            lookups.guesses[lookups.at] = guess
            query = f"{query} {guess}".strip()
        asked.append(query)
        await run.prompt(Stage.RESEARCH, "</call_tool>\n")
        return query

    async def _choose(self, run: Run, slot: Slot, grammar: str) -> str:
        """One of a few texts; the longest prefix that was written where it was cut."""
        return (await self._weighed(run, slot, grammar)).text

    async def _weighed(self, run: Run, slot: Slot, grammar: str) -> Completion:
        sampling = replace(slot.sampling, max_tokens=slot.cap, grammar=grammar)
        written = await run.write(slot.stage, sampling, live=False, slot=slot.name)
        if self._on_slot:
            self._on_slot(slot, written.text, written)
        return written

    async def _fill(self, run: Run, slot: Slot) -> str:
        sampling = replace(slot.sampling, max_tokens=slot.cap)
        written = await run.write(
            slot.stage,
            sampling,
            lambda text: slot_end(text, slot.end),
            live=False,
            slot=slot.name,
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
