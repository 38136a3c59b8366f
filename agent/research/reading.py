"""The slots that a small model fills, and how look-ups are answered from their passages.

A slot ends at the first thing that looks like a tag, at its own end mark or at its cap, and is
trimmed to whole sentences. For a name, place or date the passages provide candidates: code takes
the one that the page about that thing states explicitly; among others the model chooses by a
grammar. An answer in words is drafted by the model outside the transcript, and used if a passage
supports it; if none does, the model is asked about the sentences nearest in meaning one by one, and
one is quoted. What code knows about a sentence without a model is in `quoting`.
"""

import asyncio
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from rubricem.agent.reports.rules import Pair, bids, contradiction, statements_in, statements_of
from rubricem.agent.reports.verifier import SUPPORTED, judge_support
from rubricem.agent.research.candidates import (
    asks_for,
    candidates,
    is_always_told,
    may_tell,
    own_pages,
)
from rubricem.agent.research.lookups import Finding
from rubricem.agent.research.quoting import (
    LEAST_SAID,
    QUOTE_CHARACTERS,
    REPEATED,
    WHOLE,
    Inquiry,
    entries_named,
    excerpts,
    heading_of,
    holds,
    in_context,
    is_made_up,
    piece_around,
    quotable_sentences,
    with_neighbours,
)
from rubricem.agent.research.run import Run
from rubricem.agent.sources.choice import by_meaning
from rubricem.agent.transcript.scaffold import neutralise, template
from rubricem.agent.transcript.words import (
    closest_sentence,
    content_words,
    dotted_names,
    names_page,
    overlap,
    part_about,
)
from rubricem.memory.language import (
    beginning,
    is_foreign,
    is_prose,
    language_of,
    sentences,
    stands,
)
from rubricem.memory.schema import (
    AnswerFormat,
    Completion,
    Embedder,
    Message,
    Sampling,
    Source,
    Stage,
)

PROSE = Sampling(temperature=0.2, top_p=0.9, min_p=0.05)
GREEDY = Sampling(temperature=0.0)

_TAG = re.compile(r"</?[A-Za-z_]|<\|")
_NUMBERED = re.compile(r" \[\d+\](?=[\s.,;]|$)")
"""a passage by its place in the prompt, which a reader would take for a citation; no `heap[0]`"""
_SENTENCE = re.compile(r"[.!?\u061f\u0964](?=\s|$)|[\u3002\uff01\uff1f]")


@dataclass(frozen=True, slots=True)
class Slot:
    """One place the model fills: where, how long in tokens, and how sampled."""

    name: str
    stage: Stage
    cap: int
    sampling: Sampling = PROSE
    end: str = "\n"
    """text at which the slot ends, beside anything like a tag"""


READING = Slot("reading", Stage.RESEARCH, 56, GREEDY)
DRAFT = Slot("draft", Stage.RESEARCH, 72, GREEDY)

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


class Slots:
    """Has a model fill slots of a run's transcript."""

    def __init__(self, on_slot: OnSlot | None = None) -> None:
        self._on_slot = on_slot

    async def write(self, run: Run, slot: Slot) -> tuple[str, Completion]:
        """What the model writes into a slot, without loose ends; the transcript is as it was."""
        sampling = replace(slot.sampling, max_tokens=slot.cap)
        written = await run.write(
            slot.stage,
            sampling,
            lambda text: slot_end(text, slot.end),
            live=False,
            slot=slot.name,
        )
        text = trim(written.text, capped=written.stop_reason in ("length", "repetition"))
        if self._on_slot:
            self._on_slot(slot, text, written)
        return text, written

    async def choose(self, run: Run, slot: Slot, texts: Sequence[str]) -> str:
        """One of a few texts; the longest prefix that was written where it was cut."""
        return (await self.write_by(run, slot, any_of(texts))).text

    async def write_by(self, run: Run, slot: Slot, grammar: str) -> Completion:
        """What the model writes by a grammar; the transcript is as it was."""
        sampling = replace(slot.sampling, max_tokens=slot.cap, grammar=grammar)
        written = await run.write(slot.stage, sampling, live=False, slot=slot.name)
        if self._on_slot:
            self._on_slot(slot, written.text, written)
        return written

    async def fill(
        self, run: Run, slot: Slot, edit: Callable[[str], str] = lambda text: text
    ) -> str:
        """Put what the model writes into the transcript, as it is after `edit`."""
        text, written = await self.write(run, slot)
        if text := edit(text):
            # The space that parts it from the words the runner put before it.
            lead = " " if written.text[:1] in (" ", "") else ""
            await run.keep_edited(slot.stage, lead + text)
        return text


NOT_FOUND = "not found"
DOUBT = 2.5
"""nats by which "not found" must be likelier than the best of what a passage offers: one that was
not found makes a small model say so of the next"""
NEARLY = 0.75
"""share of a look-up's words beside the title's, from which a sentence is what was asked for"""
LEAST_TOLD, TOLD = 3, 0.4
"""words and share of a look-up's words beside the title's, from which a sentence may answer it"""
LEAD = 6
"""words of a sentence by which it is chosen"""
OFFERED = 6
"""sentences, the nearest in meaning, of which the model is asked: of 35 everyday look-ups the best
two of these answer as many as the best two of nine, 28"""
OFFERED_AGAIN = 3
"""of them, where an answer was drafted from the same passages in vain"""
MOST_FIRST = 2
"""of these what pages say first, where a thing is asked for by what it does"""
LEAST_CHANCE, LIKELY, SURE = 0.3, 0.45, 0.7
"""that a sentence answers: for it to be shown where nothing else is found, to be taken for the
answer, and to look no further"""
SURE_ALONE = 0.8
"""the second of these where an answer was drafted in vain: of seven sentences with 0.7 to 0.8 one
answered"""
RATHER = 0.55
"""the least for the last of these that the model itself has to say, whatever code adds"""
LIKELY_ABROAD = 0.25
"""the second of these for a bare answer in another language, to which a small model says Yes less
readily: of `benchmarks.languages` sentences that answer had 0.29 to 0.73; of 12 questions that
nothing answers the nearest had 0.11 to 0.37, three of them above this. Where an answer was drafted
it is never needed: what answers is drafted. A second one is quoted by the bar of English"""
MOST_QUOTED = 2
"""sentences for one look-up"""
SHARED, FOUND_FIRST = 0.3, 0.05
"""cosine that it is worth to a sentence to have all words that are asked about or expected, and to
be of the passage that is found first (half of it of the second): of 109 everyday look-ups the key
fact is among the first two sentences for 62, among three for 74; by cosine alone for 49 and 65"""
OF_NAMED = 0.1
"""the same of the page of what the question names: git-blame's own options, not git-config's"""
DRAFTED_WORDS, READ_WORDS = 110, 220
"""words of a passage, and of all pieces, that an answer is drafted from: the best pieces of all
four passages have the key fact for 92 of 109 everyday look-ups, the best two passages for 85"""
READ_TWICE = 2
"""times that pieces are drafted from where no embedder puts them in order"""
BORNE_OUT = 0.7
"""that a passage says what was drafted from it, as the model says: right drafts had 0.77 to 0.91
beside the sentence that they rest on, some 0.47 to 0.74, wrong ones 0.23 to 0.74, and one 0.78; by
0.75 what maxsize=None does to `lru_cache`, which is drafted rightly, is not found"""
HELD = 0.77
"""how likely the verifier must hold a draft to be shown as certain: of 12 drafts below it ten were
wrong, of 29 above it four were, or told too little"""
UNSURE, UNSURE_QUOTE = 0.5, 0.4
"""the same for a draft to be shown as not certain, and that a sentence answers: of 11 drafts with
0.5 to 0.7 seven were right, of six below one; of eight sentences from 0.4 up five"""
MOST_ENTRIES = 2
"""entries of options and parameters that are quoted beside an answer since it, its question or what
was expected names them: of 21 everyday questions that name one they have the key fact for 15"""
BESIDE_ANSWER, BESIDE_SOME, BESIDE_NONE = 1, 2, 3
"""what is quoted beside an answer; beside none or one that is not certain for each of several
look-ups, and for a single one: of 109 everyday look-ups three quotes have the key fact for 86, two
for 80, but below ten quotes nobody finds it"""
LEAST_NEAR, NEAR = 0.4, 0.8
"""the least cosine of such a sentence, and its share of the nearest one's: those that have the key
fact and are among the first two have 0.46 to 0.86, and 0.86 of it or more"""


def _cut_quote(said: str) -> str:
    """A sentence in one line that can stand in a transcript."""
    return neutralise(" ".join(said.split())[:QUOTE_CHARACTERS])


def any_of(texts: Sequence[str]) -> str:
    """A grammar of one of several texts."""
    return "root ::= " + " | ".join(json.dumps(text, ensure_ascii=False) for text in texts) + "\n"


def adds(claim: str, said: list[str]) -> bool:
    """Whether a claim has a content word that was not said yet."""
    known = " ".join(said)
    return bool(content_words(claim, language_of(known)) - content_words(known))


def _as_they_stand(found: list[Finding], sources: Mapping[str, Source]) -> list[Finding]:
    """Findings in the order in which their one source has them; of several sources as they are."""
    if len({each.source for each in found}) > 1:
        return found
    text = neutralise(" ".join(sources[found[0].source].text.split()))
    return sorted(found, key=lambda each: text.find(each.text))


def the_one(texts: Collection[str]) -> str:
    """The only one of these texts, or the whole of "New York" and "New York, New York"; or ""."""
    whole = max(texts, key=len, default="")
    return whole if all(whole.startswith(each) for each in texts) else ""


def _entries(
    sources: Sequence[Source], inquiry: Inquiry, drafted: str = ""
) -> list[tuple[Source, str]]:
    """The entries that the question or what is expected names, then those that a draft does."""
    expected = f"{inquiry.question}\n{inquiry.guess}"
    sources = inquiry.of_named_libraries(sources)
    told = [
        (source, entry.told)
        for text in (expected, f"{expected}\n{drafted}")
        for source in sources
        for entry in entries_named(source, text)
    ]
    return [*dict.fromkeys(told)]


def _is_not_found(drafted: str) -> bool:
    return NOT_FOUND in drafted.casefold()


class AnswerReader:
    """Reads what answers a look-up; with an embedder also by the meaning of sentences."""

    def __init__(self, slots: Slots, embedder: Embedder | None = None) -> None:
        self._slots = slots
        self._embedder = embedder

    async def read(self, run: Run, about: Sequence[Source], question: str) -> Finding | None:
        """What of these sources answers a question, put into the transcript; None: nothing.

        What tells its reader to say something is no answer, and the model is not shown it here.
        """
        about, asked = [statements_of(source) for source in about], asks_for(question)
        begun = run.lookups.begun
        if about and asked == "words":
            guess = run.lookups.guesses.get(run.lookups.at, "")
            return await self._read_words(run, about, Inquiry(question, guess))
        read = {s.id: f"{s.title}. {statements_in(begun.get(s.id, s.text))}" for s in about}
        read = {i: text for i, text in read.items() if may_tell(text, question)}
        fit = {i: candidates(text, asked, question) for i, text in read.items()}
        sure = run.lookups.told
        if not sure and (not read or (own_pages(about, question) and is_always_told(question))):
            return None
        return await self._read_candidate(run, sure or fit, sure=bool(sure))

    async def nearest(
        self, run: Run, sources: Sequence[Source], inquiry: Inquiry
    ) -> list[tuple[Source, str]]:
        """The sentences of the sources and where they stand, best first; [] with no embedder."""
        return [told[:2] for told in await self._rank(run, sources, inquiry)]

    async def _rank(
        self, run: Run, sources: Sequence[Source], inquiry: Inquiry
    ) -> list[tuple[Source, str, float]]:
        """The same, each with its mean cosine to the question and to what was expected.

        They are in order of that and of the words that they share with both.
        """
        key = (inquiry.question, inquiry.guess, *(source.id for source in sources))
        if (ranked := run.lookups.ranked.get(key)) is not None:
            return ranked
        told = [(s, said) for s in sources for said in quotable_sentences(s.text) if not bids(said)]
        if self._embedder is None or not told:
            return []
        texts = [f"{heading_of(source)}: {said}" for source, said in told]
        hoped = [inquiry.question, f"{inquiry.question} {inquiry.guess}"]
        order = await asyncio.to_thread(by_meaning, self._embedder, hoped, texts)
        shared = inquiry.shares_of([said for _, said in told])
        first = {source.id: FOUND_FIRST / at for at, source in enumerate(sources, start=1)}
        for source in sources:
            first[source.id] += OF_NAMED * names_page(inquiry.question, source.title)

        def worth(each: tuple[int, float]) -> float:
            return each[1] + SHARED * shared[each[0]] + first[told[each[0]][0].id]

        order.sort(key=worth, reverse=True)
        return run.lookups.ranked.setdefault(key, [(*told[at], near) for at, near in order])

    async def see_also(self, run: Run, number: int, shown: str) -> list[tuple[Source, str]]:
        """What was read for a look-up and is nearest to it in meaning, beside what is `shown`.

        In the sources' own words, each with its neighbours; [] where no words are asked for.
        """
        lookups, step = run.lookups, run.lookups.step(number)
        asked = lookups.resolve(step) or ""
        inquiry = Inquiry(asked, lookups.guesses.get(number, ""))
        found, quotes = lookups.found.get(number), list[tuple[Source, str]]()
        told = found and found.text == neutralise(inquiry.default_in(run.sources[found.source]))
        if step.compares or told or asks_for(asked) != "words":
            return []
        read = lookups.read.get(number, set()) - lookups.untold
        about = [statements_of(source) for i, source in run.sources.items() if i in read]
        drafted = found or lookups.doubted.get(number, (None,))[0]
        for source, entry in _entries(about, inquiry, drafted.text if drafted else ""):
            # A short one says enough by what it is the entry of.
            if len(quotes) < MOST_ENTRIES and " ".join(neutralise(entry).split()) not in shown:
                quotes.append((source, neutralise(entry)))
                shown = f"{shown} {quotes[-1][1]}"
        none = BESIDE_NONE if lookups.is_single() else BESIDE_SOME
        most = len(quotes) + (BESIDE_ANSWER if found else none)
        ranked = await self._rank(run, about, inquiry)
        least = max(LEAST_NEAR, NEAR * max((near for _, _, near in ranked), default=0.0))
        for source, said in ((source, said) for source, said, near in ranked if near >= least):
            tells = inquiry.may_answer(source, said) and not inquiry.only_signature(said)
            if tells and inquiry.says_more(said, shown):
                quotes.append((source, neutralise(with_neighbours(said, source.text))))
                shown = f"{shown} {quotes[-1][1]}"
            if len(quotes) == most:
                break
        return quotes

    async def _read_candidate(
        self, run: Run, fit: dict[str, list[str]], *, sure: bool
    ) -> Finding | None:
        """One of the names or dates; `sure`: its own page says of each that it is what is asked."""
        offered = [
            f" {neutralise(s)}" for s in dict.fromkeys(s for each in fit.values() for s in each)
        ]
        if sure and (whole := the_one(offered)):
            await run.prompt(Stage.RESEARCH, whole)
            return Finding(whole.strip(), next(iter(fit)))
        text = await self._choose(run, offered, sure=sure)
        source = next((i for i, spans in fit.items() if text.strip() in map(neutralise, spans)), "")
        if not source:
            return None
        await run.keep_edited(READING.stage, text)
        return Finding(text.strip(), source)

    async def _read_words(
        self, run: Run, about: Sequence[Source], inquiry: Inquiry
    ) -> Finding | None:
        for source in about:
            if said := inquiry.default_in(source):
                await run.prompt(Stage.RESEARCH, f" {neutralise(said)}")
                return Finding(neutralise(said), source.id, quoted=True)
        # A bare answer is what the transcript says, and no sentence.
        exact = run.ask.answer_format is AnswerFormat.EXACT
        drafted = None if exact else ""
        pieces = [(s, part_about(s.text, DRAFTED_WORDS, inquiry.question)) for s in about]
        nearest = await self.nearest(run, about, inquiry)
        if nearest:
            around = ((source, piece_around(said, source.text)) for source, said in nearest)
            pieces = [*_entries(about, inquiry), *around]
        for few in islice(excerpts(pieces, READ_WORDS), 1 if nearest else READ_TWICE):
            for again in (False, True):
                if drafted is not None and (not again or _is_not_found(drafted)):
                    drafted = await self._draft(run, few, inquiry.question, again=again)
                    sources = [source for source, _ in few]
                    finding = await self._resting(run, sources, inquiry, drafted, again=again)
                    if finding or run.lookups.at in run.lookups.settled:
                        return finding
        if drafted is None or self._embedder is None:
            return await self._read_on(run, about, inquiry)
        return await self._nearest_of(run, about, inquiry, drafted=True)

    async def _read_on(self, run: Run, about: Sequence[Source], inquiry: Inquiry) -> Finding | None:
        """What a model that can only go on with the transcript writes, if a source holds it."""
        text, _ = await self._slots.write(run, READING)
        text = text.partition(" (S")[0]
        standing = [s for s in about if holds(s, text)]
        if not adds(text, [inquiry.question, inquiry.guess]):
            standing = []  # it says again what it expected, which is no evidence
        bare = not adds(text, [inquiry.question, "yes no"]) or inquiry.only_signature(text)
        bare = bare or not inquiry.may_count(text)
        if NOT_FOUND in text.casefold() or not standing or bare:
            if self._embedder is not None:
                return await self._nearest_of(run, about, inquiry)
            quote = await self._quote_of(run, about, inquiry)
            return quote or await self._sentence_of(run, about, inquiry)
        await run.keep_edited(READING.stage, f" {text}")
        best = max(standing, key=lambda s: overlap(text, f"{s.title} {s.text}"))
        return Finding(text, best.id)

    async def _draft(
        self,
        run: Run,
        told: Sequence[tuple[Source, Sequence[str]]],
        question: str,
        *,
        again: bool = False,
    ) -> str | None:
        """What the model answers from a few passages alone; None where it cannot be asked so.

        It is asked beside the transcript, where its own expectation does not stand: with that in
        sight a small model says it again. `again`: it said that none of them answers.
        """
        passages = [
            f"[{at}] {heading_of(source)}\n" + "\n...\n".join(pieces)
            for at, (source, pieces) in enumerate(told, start=1)
        ]
        shown = neutralise("\n\n".join([*passages, f"Question: {question}"]))
        messages = [Message("system", template("draft")), Message("user", shown)]
        if again:
            messages += [Message("assistant", NOT_FOUND), Message("user", template("draft_again"))]
        sampling = replace(DRAFT.sampling, max_tokens=DRAFT.cap)
        written = await run.aside(DRAFT.stage, messages, sampling, DRAFT.name)
        if written is None:
            return None
        text = trim(neutralise(written.text), capped=written.stop_reason == "length")
        return _NUMBERED.sub("", " ".join(text.split()))

    async def _resting(
        self,
        run: Run,
        about: Sequence[Source],
        inquiry: Inquiry,
        drafted: str | None,
        *,
        again: bool = False,
    ) -> Finding | None:
        """What was drafted, with the sentence that it rests on.

        None where no source holds it, and where the model itself doubts that the passage says so.
        What it drafted when it was asked `again` is never certain, and must be borne out to be
        shown at all.
        """
        if not drafted:
            return None
        found = not _is_not_found(drafted) and inquiry.may_count(drafted)
        found = found and not inquiry.only_signature(drafted)
        standing = [s for s in about if found and inquiry.is_stated_by(s, drafted)]
        read = "\n".join(f"{heading_of(s)}\n{s.text}" for s in about)
        if not standing or is_made_up(drafted, read):
            if missing := [name for name in dotted_names(drafted) if not stands(name, read)]:
                run.lookups.named.setdefault(run.lookups.at, missing[0])
            return None
        source, basis = standing[0], ""
        if ranked := await self.nearest(run, standing, replace(inquiry, guess=drafted)):
            source, basis = inquiry.basis(ranked, drafted)
            if contradiction(drafted, basis):
                return None  # a false premise is said again over what denies it
        part = part_about(source.text, DRAFTED_WORDS, basis or drafted)
        passage = f"Passage: {heading_of(source)}\n{part}"
        told = f"{passage}\n\nQuestion: {inquiry.question}\nAnswer: {drafted}"
        messages = [
            Message("system", template("draft_check")),
            Message("user", f"{neutralise(told)}\nIs this answer right, by what the passage says?"),
        ]
        chance = await run.chance(DRAFT.stage, messages, DRAFT.name)
        quote = Finding(_cut_quote(basis), source.id, quoted=True)
        needed = basis and overlap(basis, drafted) < REPEATED
        finding = Finding(drafted, source.id, worded=True, more=(quote,) if needed else ())
        if chance is not None:
            least = UNSURE if inquiry.repeats(drafted, basis) else BORNE_OUT
            borne_out = run.lookups.weigh(finding, chance, inquiry.question) >= least
            # One that is doubted already is held against it last, if it is to be shown.
            held = await self._support(run, Pair(drafted, source)) if borne_out else SUPPORTED
            if again or not borne_out or held < HELD or inquiry.is_aside(drafted):
                if basis:  # a reader may see in it what the model doubts: it can be the nearest
                    known = run.lookups.likely.setdefault(run.lookups.at, {})
                    known[quote] = min(chance, SURE)
                if chance >= (BORNE_OUT if again else UNSURE) and held >= SUPPORTED:
                    run.lookups.doubt(finding, chance)
                    run.lookups.settled |= {run.lookups.at} if borne_out else set()
                return None
        await run.keep_edited(DRAFT.stage, f" {drafted}")
        return finding

    async def withdraw(self, run: Run) -> None:
        """Take back what was drafted and is doubted where the verifier holds that it is not said.

        The sentence that it rests on stands in its place, if there is one.
        """
        for number, finding in run.lookups.unsure().items():
            known = number in run.lookups.settled or not finding.worded
            pair = Pair(finding.text, statements_of(run.sources[finding.source]))
            if known or await self._support(run, pair) >= SUPPORTED:
                continue
            _, chance = run.lookups.doubted.pop(number)
            for instead in finding.more:
                run.lookups.doubt(instead, chance)

    @staticmethod
    async def _support(run: Run, pair: Pair) -> float:
        """How likely the verifier holds a draft for what its source says, 0 to 1."""

        async def ask(messages: Sequence[Message]) -> float:
            chance = await run.chance(DRAFT.stage, messages, DRAFT.name)
            assert chance is not None, "the same model weighed the draft before"
            return chance

        if pair.fault():
            return 0.0
        return 1.0 if pair.verbatim() else await judge_support(pair, ask)

    async def _nearest_of(
        self,
        run: Run,
        about: Sequence[Source],
        inquiry: Inquiry,
        *,
        drafted: bool = False,
    ) -> Finding | None:
        """Of the sentences nearest in meaning the one of which the model says that it answers.

        It is asked of each by itself: to choose among several it takes what it has just read.
        Where it was `drafted` from their passages in vain fewer are asked about, and one has to
        be sure.
        """
        chances, sure = dict[Finding, float](), False
        nearest = await self.nearest(run, about, inquiry)
        hopeful = self._hopeful(nearest, inquiry)
        first = [(s, said) for s in about if (said := inquiry.summary(s))][:MOST_FIRST]
        for source, said in [*dict.fromkeys([*hopeful, *first, *nearest])]:
            text = _cut_quote(said)
            if not inquiry.may_answer(source, said):
                continue
            bare = inquiry.only_signature(said) or len(content_words(said)) < LEAST_SAID
            if bare or any(text == other.text for other in chances):
                continue
            own = await self._chance(run, source, said, inquiry.question)
            chance = own + inquiry.prior_of(source, said)
            if drafted and own < SURE:  # what was expected is no evidence
                chance = min(chance, SURE_ALONE)
            chances[Finding(text, source.id, quoted=True)] = chance
            left = (source, said) in hopeful[:-1]  # another has as much of what was expected
            sure = sure or (chance >= SURE and own >= RATHER)
            if len(chances) == (OFFERED_AGAIN if drafted else OFFERED) or (sure and not left):
                break
        # What the search before brought may still be the best.
        known = run.lookups.likely.setdefault(run.lookups.at, {})
        known |= {f: max(chance, known.get(f, 0.0)) for f, chance in chances.items()}
        order = sorted(known, key=lambda finding: -known[finding])[:MOST_QUOTED]
        likely = (
            SURE_ALONE if drafted else LIKELY_ABROAD if is_foreign(inquiry.question) else LIKELY
        )
        best = [
            f
            for at, f in enumerate(order)
            if known[f] > (max(LIKELY, likely) if at else likely) and (not at or is_prose(f.text))
        ]
        if order and likely >= known[order[0]] > LEAST_CHANCE:
            run.lookups.near[run.lookups.at] = order[0]
            if known[order[0]] >= UNSURE_QUOTE:
                run.lookups.doubt(order[0], known[order[0]])
        if not best:
            return None
        # The entry of what is asked about says it; another is of another.
        entries = [finding for finding in best[:1] if inquiry.is_entry(finding.text)]
        best = entries or _as_they_stand(best, run.sources)
        await run.prompt(Stage.RESEARCH, f" {best[0].text}")
        return replace(best[0], more=tuple(best[1:]))

    @staticmethod
    async def _chance(run: Run, source: Source, said: str, question: str) -> float:
        """How likely the model holds it that a sentence answers; 1 where it cannot tell."""
        text = _cut_quote(said)
        told = f"Question: {question}\nSentence: {neutralise(source.title)}: {text}"
        messages = [
            Message("system", template("answers")),
            Message("user", f"{told}\nDoes the sentence answer the question?"),
        ]
        chance = await run.chance(Stage.RESEARCH, messages, READING.name)
        return 1.0 if chance is None else chance  # of all the nearest is taken

    @staticmethod
    def _hopeful(
        nearest: Sequence[tuple[Source, str]], inquiry: Inquiry
    ) -> list[tuple[Source, str]]:
        """The two of them that have most of what was expected, if any has much."""
        hoped = {told: inquiry.share_expected(*told) for told in nearest}
        most = sorted((told for told in nearest if hoped[told] >= WHOLE), key=lambda t: -hoped[t])
        return most[:2]

    async def _choose(self, run: Run, offered: Sequence[str], *, sure: bool) -> str:
        """What of these the model takes for the answer; "" if it finds none."""
        if not offered:
            return ""
        others = [] if sure else [f" {NOT_FOUND}"]
        written = await self._slots.write_by(run, READING, any_of([*offered, *others]))
        if written.text.strip() == NOT_FOUND:
            instead = await self._slots.write_by(run, READING, any_of(offered))
            if written.logprobs and instead.logprobs:
                # Where there is more to read "not found" may be said more easily.
                doubt = 0 if run.lookups.begun else DOUBT
                doubtful = instead.logprobs[0] > written.logprobs[0] - doubt
                written = instead if doubtful else written
        return written.text if written.text in offered else ""

    async def _quote_of(
        self, run: Run, about: Sequence[Source], inquiry: Inquiry
    ) -> Finding | None:
        """The sentence that a look-up asks for nearly in its own words, where the model is lost."""
        for source in about:
            said = closest_sentence(inquiry.question, source.text)
            # What the title has in common with the question tells of the page alone.
            language = language_of(inquiry.question)
            asked = content_words(inquiry.question) - content_words(source.title, language)
            near = len(asked & content_words(said, language)) >= NEARLY * len(asked)
            if asked and near and not inquiry.only_signature(said):
                quote = _cut_quote(said)
                await run.prompt(Stage.RESEARCH, f" {quote}")
                return Finding(quote, source.id)
        return None

    async def _sentence_of(
        self, run: Run, about: Sequence[Source], inquiry: Inquiry
    ) -> Finding | None:
        """The sentence that the model takes for the answer, of those that are on what is asked.

        Asked to write, a small model says of many passages that nothing was found.
        """
        asked, offered = content_words(inquiry.question), dict[str, tuple[str, str]]()
        language = language_of(inquiry.question)
        for source in about:
            beside = asked - content_words(source.title, language)
            least = max(LEAST_TOLD, TOLD * len(beside))
            for said in sentences(source.text):
                words = content_words(said, language)
                near = len(beside & words) >= least or inquiry.share_expected(source, said) > 0.5
                if near and not inquiry.only_signature(said):
                    text = _cut_quote(said)
                    offered.setdefault(f" {beginning(text, LEAD)}", (text, source.id))
        if not offered:
            return None
        lead = (await self._slots.write_by(run, READING, any_of(list(offered)))).text
        if lead not in offered:
            return None
        text, identifier = offered[lead]
        await run.prompt(Stage.RESEARCH, f" {text}")
        return Finding(text, identifier, quoted=True)

    async def quote(self, run: Run, number: int, finding: Finding) -> str:
        """What a source says of a look-up, where the model's own claim does not stand there."""
        source = run.sources[finding.source]
        asked = run.lookups.resolve(run.lookups.step(number)) or ""
        told = [" ".join(said.split()) for said in quotable_sentences(source.text)]
        holding = [said for said in told if finding.text in neutralise(said)]
        said = ""
        if holding and finding.quoted:
            said = holding[0]
        elif not holding and asks_for(asked) == "words":
            nearest = await self.nearest(run, [source], Inquiry(asked, finding.text))
            said = " ".join(nearest[0][1].split()) if nearest else ""
        said = said or closest_sentence(f"{asked} {finding.text}", "\n\n".join(holding or told))
        said = (said or finding.text)[:QUOTE_CHARACTERS]
        return in_context(said, source)
