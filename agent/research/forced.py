"""Forced decoding: the runner writes every tag, and a small model fills one slot after another.

Slots end where they should (`reading`), so the scaffold is valid by construction. Tags, choices and
ids are PROMPT text; slots are POLICY text, with ids encoded by us if they were trimmed. Rows of
such runs can be used for SFT, never for a policy-gradient ratio. The places, lengths and sampling
of the slots were found by measuring; docs/progress.md says what was tried.

The plan is a list of numbered look-ups (`lookups`), which code follows: each is searched in its own
words, answered from the passages by a grammar of what they contain, and inserted into the look-ups
that refer to it. One that finds nothing is searched once more in other words. What is still open at
the end is named in the review and in the answer. The small model is not asked whether something is
missing, since it says of almost any evidence that nothing is.

Nor does a small model call MCP tools when it should; or it calls whatever it is offered. So the
question is always searched for first. After that a tool is due, once, if its description shares two
words with the question of which at least one is in no passage: the model then chooses among the
due tools and writes the arguments. It may, but need not, call tools that are closer to the question
than that, or any tool if the search found little. A grammar restricts it to a complete call, or to
what would have come without one.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

from rubricem.agent.research.candidates import (
    asks_for,
    expects_words,
    extract_by_source,
    is_always_told,
    may_tell,
    own_pages,
    speaks_of,
)
from rubricem.agent.research.lookups import Finding, Lookups, SideBySide
from rubricem.agent.research.plans import (
    Lookup,
    asks_one_thing,
    complete,
    is_covered,
    outline,
    read_plan,
    render_plan,
)
from rubricem.agent.research.quoting import Inquiry, fuller
from rubricem.agent.research.reading import (
    GREEDY,
    NOT_FOUND,
    AnswerReader,
    OnSlot,
    Slot,
    Slots,
)
from rubricem.agent.research.run import Run
from rubricem.agent.sources.choice import PYTHON
from rubricem.agent.sources.offers import (
    CLOSING,
    NAMED,
    OPENING,
    Offer,
    call_grammar,
)
from rubricem.agent.transcript.question import Found, RunCut, snippet, tool_output
from rubricem.agent.transcript.scaffold import EXACT_LINE, neutralise, parse, rubric_items, template
from rubricem.agent.transcript.words import (
    CUT,
    content_words,
    cut_words,
    fold,
    names,
    overlap,
    phrase,
)
from rubricem.memory.errors import SettingsError
from rubricem.memory.language import NAMES, is_foreign, language_of
from rubricem.memory.schema import (
    AnswerFormat,
    Author,
    Embedder,
    Ending,
    Passage,
    Source,
    Stage,
    Status,
)

THINK = Slot("think", Stage.PLAN, 120, GREEDY, end="The same")
RUBRIC = Slot("rubric", Stage.PLAN, 64, end="\n\n")
QUERY = Slot("query", Stage.RESEARCH, 20, GREEDY, end="</call_tool>")
TOOL_CALL = Slot("tool_call", Stage.RESEARCH, 120, GREEDY, end="</call_tool>")
RUBRIC_REVIEW = Slot("rubric_review", Stage.REVIEW, 12, GREEDY)
CLAIM = Slot("claim", Stage.ANSWER, 72, GREEDY, end="</cite>")
EXACT = Slot("exact", Stage.ANSWER, 24, GREEDY)

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
    asked = content_words(run.alone)
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


async def call_chosen(run: Run, fit: Fitting, otherwise: str, slots: Slots) -> str | None:
    """A call of one of the tools, if it was not made before and the model chooses one.

    `otherwise`: how the transcript goes on where it chooses none.
    """
    told = "".join(f"- {offer.line()}\n" for offer in fit.offers)
    if told not in run.text:
        await run.prompt(Stage.RESEARCH, _TOLD + told)
    grammar = call_grammar(fit.offers, "" if fit.due else otherwise)
    written = await slots.write_by(run, TOOL_CALL, grammar)
    chosen = _CALL.match(written.text)
    name, arguments = (chosen[1], " ".join(chosen[2].split())) if chosen else ("", "")
    call = f"{name}{NAMED}{arguments}"
    if name not in {offer.name for offer in fit.offers} or f"{OPENING}{call}{CLOSING}" in run.text:
        return None
    await run.prompt(Stage.RESEARCH, OPENING)
    await run.keep_edited(Stage.RESEARCH, call)
    await run.prompt(Stage.RESEARCH, f"{CLOSING}\n")
    return f"{name} {arguments}"


ABOUT = 0.5
"""share of the words of a rubric's item that the question must hold for it to be searched for"""
SAYS = ("answers", "says", "names", "gives", "tells", "states", "identifies")
"""how an item of a rubric begins"""
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
        self._slots = Slots(on_slot)
        self._reader = AnswerReader(self._slots, embedder)

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
        asked = f"Question: {question}"
        if PYTHON in run.search_tool.name.split("+"):
            # Else what it expects of the manual is the shell's ("rm -rf").
            asked += "\nSearched: the documentation of Python and its libraries."
        if is_foreign(question):
            asked += f"\nWrite in {NAMES[language_of(question)]}, the language of the question."
        return asked

    async def plan(self, run: Run) -> str:
        """Write the plan and return the query of its first look-up."""
        alone = run.alone
        await run.prompt(Stage.PLAN, "<think>\n1.")
        own = expects_words(alone) and asks_one_thing(alone)
        if own:
            thoughts = read_plan("", alone)
            await run.prompt(Stage.PLAN, f" {neutralise(thoughts[0].text)}")
        else:
            thoughts = read_plan(f"1. {await self._slots.fill(run, THINK)}", alone)
        steps = complete(thoughts, alone)
        lead = f"\n</think>\n<structured_plan>\n<deep_analysis>{outline(steps)}</deep_analysis>"
        await run.prompt(Stage.PLAN, f"{lead}\n<rubric>\n-")
        drafted = own and run.policy.reader is not None
        if drafted or run.ask.answer_format is AnswerFormat.EXACT:
            # Of a bare answer, and of one sentence, it can be asked but that it was found. Items in
            # a model's words have it read the whole transcript, to be searched for in vain.
            items = (f" Answers: {neutralise(s.text)}" for s in steps if not s.compares)
            await run.prompt(Stage.PLAN, "\n-".join(items))
        else:
            about = content_words(" ".join([alone, *(step.text for step in steps)]))
            await self._slots.fill(
                run, RUBRIC, lambda text: _own_items(text, about) or f"Answers: {alone}"
            )
        plan = f"\n</rubric>\n<research_plan>\n{neutralise(render_plan(steps))}"
        await run.prompt(Stage.PLAN, f"{plan}\n</research_plan>\n</structured_plan>\n")
        run.lookups = Lookups(others=[s.text for s in thoughts if _rewords(s, alone)])
        self._follow(run)
        return await self._call(run, self._question(run, run.lookups.steps[0]))

    def _follow(self, run: Run) -> None:
        """Take up the plan as it stands in the transcript last: a person may have changed it."""
        text = parse(run.text).last("research_plan")
        steps = read_plan(text, run.alone)
        if steps != run.lookups.steps:
            run.lookups.begin(steps)

    def _question(self, run: Run, step: Lookup) -> str:
        """What a look-up asks; the only one of a plan asks what the person asked."""
        alone = neutralise(" ".join(run.alone.split()))
        return alone if run.lookups.is_single() else run.lookups.resolve(step) or step.text

    def _own_question(self, run: Run, step: Lookup) -> str:
        """The same; what the model's own words brought is read for them."""
        queries = run.lookups.queries.get(step.number, [])
        if queries and queries[-1] in map(neutralise, run.lookups.others):
            return queries[-1]
        return self._question(run, step)

    def _speaks(self, run: Run, source: Source) -> bool:
        """Whether a source speaks of what the present look-up names."""
        step = run.lookups.step(run.lookups.at)
        asked = {self._own_question(run, step), self._question(run, step)}
        return all(speaks_of(question, source) for question in asked)

    async def search(self, run: Run, query: str) -> Found:
        # One more if an answer in words is drafted from them.
        limit, guess = run.ask.passages + expects_words(query), run.lookups.guesses
        return await run.search(
            query,
            limit=limit,
            beside=guess.get(run.lookups.at, ""),
            choose=lambda found: _choose_shown(run, query, limit, found),
        )

    async def observe(self, run: Run, found: Found) -> None:
        if run.turn == 1:
            self._follow(run)
            asked = self._question(run, run.lookups.steps[0])
            run.lookups.queries.setdefault(run.lookups.at, [asked])
        # What the conversation before quoted is never found anew, but it may answer.
        quoted = (i for i in run.sources if i in run.evidence.background.by_id)
        lookups = run.lookups
        lookups.show([*(source.id for source in found.sources), *quoted])
        asked = self._question(run, lookups.step(lookups.at))
        # Nothing is read out of it, and reading costs most.
        away = {s.id for s in found.sources if not self._speaks(run, s)}
        near = [s for s in found.sources if s.id not in away]
        lookups.told = extract_by_source(near, asked)
        if lookups.told:
            away |= {s.id for s in found.sources} - {*lookups.told}
        shown = tuple(source for source in found.sources if source.id not in away)
        other = f"Found on other things: {left}." if (left := lookups.leave_out(away)) else ""
        new = (found.new | lookups.untold) - away
        lookups.untold -= new
        note = " ".join(filter(None, (found.note, other)))
        found = replace(found, sources=shown, new=new, note=note)
        words, about = self._begin(run, found, asked), dict[str, str]()
        if guess := lookups.guesses.get(lookups.at):
            words = min(words, PART)
            about = dict.fromkeys(found.new, f"{asked} {guess}")
            nearest = await self._reader.nearest(run, found.sources, Inquiry(asked, guess))
            # Best last, so that the best of each source stays.
            about |= {source.id: said for source, said in reversed(nearest)}
        saying = {i: said[0] for i, said in lookups.told.items()}
        await run.prompt(Stage.RESEARCH, tool_output(found, words, about, saying), Author.TOOL)

    def _begin(self, run: Run, found: Found, asked: str) -> int:
        """Words shown of each passage: its beginning where a name, a place or a date is asked for.

        Most pages tell those first, and reading is half of what a small model's answer costs.
        """
        lookups, words = run.lookups, run.ask.passage_words
        brief = asks_for(asked) != "words"
        begun = {s.id: cut_words(s.text, BEGINNING) for s in found.sources if s.id in found.new}
        cut = {i: text for i, text in begun.items() if text.endswith(CUT)}
        lookups.begun = cut if brief and words > BEGINNING and not lookups.told else {}
        return BEGINNING if lookups.begun or lookups.told else words

    async def research(self, run: Run) -> str | None:
        """Read what was found; return the next query or a tool's call, or None to go on."""
        lookups = run.lookups
        step = lookups.step(lookups.at)
        await self._evaluate(run, step)
        if lookups.begun and step.number not in lookups.found and self._may_go_on(run, step):
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
            if call := await call_chosen(run, fit, otherwise, self._slots):
                return call
        return await self._call(run, query) if query else None

    def _may_go_on(self, run: Run, step: Lookup) -> bool:
        """Whether what a passage says behind its beginning may answer a look-up."""
        question = self._own_question(run, step)
        begun = [run.sources[i] for i in run.lookups.begun]
        texts = [f"{source.title}. {source.text}" for source in begun]
        own = own_pages([run.sources[i] for i in run.lookups.shown], question)
        told = own and is_always_told(question)  # and it was read for that whole
        return not told and any(may_tell(text, question) for text in texts)

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
        told = step.number in lookups.found or step.number in lookups.settled
        if not told and tried < TRIES and not read:
            # Not searched at all: a tool was called in its place.
            alone = run.alone
            again: str | None = asked
            if tried:
                again = lookups.retry(step, alone)
            if again:
                return again
        following = lookups.next()
        if following is None:
            return None
        lookups.at = following.number
        return self._question(run, following)

    async def _read(self, run: Run, step: Lookup) -> None:
        """Answer a look-up out of the passages that were found for it, or say: not found."""
        question = self._own_question(run, step)
        await run.prompt(Stage.RESEARCH, f" {neutralise(question)}")
        shown = [run.sources[i] for i in run.lookups.shown]
        about = [source for source in shown if self._speaks(run, source)]
        finding = await self._reader.read(run, about, question)
        if finding is None:
            await run.prompt(Stage.RESEARCH, f" {NOT_FOUND}")
            return
        run.lookups.found[step.number] = finding
        await run.prompt(Stage.RESEARCH, f" ({finding.source})")

    async def review(self, run: Run) -> str | None:
        """Hold every item of the rubric against what was found; one that is missing is searched.

        What a look-up was made for and did not find was searched in other words already.
        """
        await run.prompt(Stage.REVIEW, f"{REVIEW}\n<rubric_review>")
        marked = [(item, await self._mark(run, item)) for item in _rubric(run)]
        # An item on something else comes from the worked examples.
        question = run.alone
        missing = [item for item, met in marked if not met and overlap(item, question) >= ABOUT]
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
        near = [len(asked & content_words(run.lookups.resolve(s) or s.text)) for s in left]
        told = {n: len(asked & content_words(run.lookups.step(n).text)) for n in found}
        best = max(told, key=lambda n: told[n], default=None)
        # What no look-up found cannot be met; a small model would say that it is.
        if best is None or (near and max(near) > told[best]):
            await run.prompt(Stage.REVIEW, " [missing]")
            return False
        compared = run.lookups.compare(run.alone)
        asks_both = is_covered(item, [run.ask.question, *SAYS, *_ANY])
        if compared and (_COMPARES.match(item) or (asks_both and not told[best])):
            sides = dict.fromkeys(found[n].source for n in compared.of)
            await run.prompt(Stage.REVIEW, f" [met: {', '.join(sides)}]")
            return True
        known = [run.ask.question, *(step.text for step in run.lookups.steps if step.planned)]
        if (told[best] or not left) and is_covered(item, [*known, *SAYS, *_ANY]):
            await run.prompt(Stage.REVIEW, f" [met: {found[best].source}]")
            return True
        ids = dict.fromkeys(f.source for f in found.values())
        marks = [*(f" [met: {identifier}]" for identifier in ids), " [missing]"]
        mark = await self._slots.choose(run, RUBRIC_REVIEW, marks)
        await run.keep_edited(Stage.REVIEW, mark)
        return "missing" not in mark

    async def answer(self, run: Run) -> None:
        """A cited claim for each look-up, and what is open; without any, one that cites none."""
        await run.prompt(Stage.ANSWER, "<answer>")
        lookups, question = run.lookups, run.alone
        said = await self._claims(run)
        compared = lookups.compare(question)
        if compared:
            exact = run.ask.answer_format is AnswerFormat.EXACT
            plain = exact or compared.answer in ("", "yes", "no")
            told = compared.note if plain else f"{compared.note} So it is {compared.answer}."
            await run.prompt(Stage.ANSWER, f"\n{neutralise(told)}")
        # What rests on another that was not found needs no word of its own.
        asked = {s.number: neutralise(t) for s in lookups.open() if (t := lookups.resolve(s))}
        if run.ask.answer_format is not AnswerFormat.EXACT:
            with suppress(RunCut):  # a budget that ends leaves it as it is: as not certain
                await self._reader.withdraw(run)
        unsure = lookups.unsure()
        left = [text for number, text in asked.items() if number not in unsure]
        if not run.sources and run.search_error:
            await run.prompt(Stage.ANSWER, "\nThe search failed.")
        else:
            await self._tell_unsure(run, unsure)
            missing = left or ([] if said or unsure else [neutralise(question)])
            await self._tell_missing(run, missing)
            await self._tell_more(run)
        answered = said and all(not step.planned for step in lookups.open())
        if not answered and not run.search_error:
            status = Status.PARTIAL if said or unsure else Status.NO_EVIDENCE
            by: Ending = "uncertain" if unsure and not left else "not_found"
            about = [*left, *asked.values(), question][0]
            run.end_early(about, status, by=run.ended_by or by)
        if run.ask.answer_format is AnswerFormat.EXACT:
            await run.prompt(Stage.ANSWER, f"\n{EXACT_LINE.strip()}")
            await self._exact(run, compared, answered=answered)
        await run.prompt(Stage.ANSWER, "\n</answer>\n")

    async def _tell_unsure(self, run: Run, unsure: Mapping[int, Finding]) -> None:
        """What may answer, as what it is, each with the sentence that it rests on."""
        for number, finding in unsure.items():
            opened = f'<cite id="{finding.source}" certainty="uncertain">'
            await run.prompt(Stage.ANSWER, f"\n\n{opened}")
            if finding.worded:
                await run.keep_edited(Stage.ANSWER, finding.text)
            else:
                await run.prompt(Stage.ANSWER, await self._reader.quote(run, number, finding))
            await run.prompt(Stage.ANSWER, "</cite>")
            for more in finding.more:
                quote = await self._reader.quote(run, number, more)
                told = f'\n\nIt rests on: <cite id="{more.source}">{quote}</cite>'
                await run.prompt(Stage.ANSWER, told)

    async def _tell_missing(self, run: Run, missing: Sequence[str]) -> None:
        """What was not found, and what comes nearest to it."""
        lookups = run.lookups
        await run.prompt(Stage.ANSWER, "".join(f"\n\nNot found: {m}" for m in missing))
        for number, near in lookups.near.items():
            if number not in lookups.found and number not in lookups.doubted:
                quote = await self._reader.quote(run, number, near)
                told = f'\n\nNearest to it: <cite id="{near.source}">{quote}</cite>'
                await run.prompt(Stage.ANSWER, told)

    async def _tell_more(self, run: Run) -> None:
        """Beside each answer in words what is nearest to the question, in its sources' own words.

        A reader finds in it what a small model overlooks; a bare answer is for a program.
        """
        if run.ask.answer_format is AnswerFormat.EXACT:
            return
        for step in run.lookups.steps:
            shown = run.text.rpartition("<answer>")[2]
            for source, quote in await self._reader.see_also(run, step.number, shown):
                title = neutralise(" ".join(source.title.split()))
                told = f'\n\nSee also {title}: <cite id="{source.id}">{quote}</cite>'
                await run.prompt(Stage.ANSWER, told)

    async def _exact(self, run: Run, compared: SideBySide | None, *, answered: bool) -> None:
        """The bare answer: what code compared or the plan led to, else one of the things found."""
        lookups, ends = run.lookups, run.lookups.leaves()
        if compared and compared.answer:
            await run.prompt(Stage.ANSWER, f" {neutralise(compared.answer)}")
        elif not answered or not lookups.found:
            await run.prompt(Stage.ANSWER, f" {NOT_FOUND}")
        elif len(ends) == 1 and _OPEN.match(run.ask.question):
            await run.prompt(Stage.ANSWER, f" {neutralise(lookups.found[ends[0]].text)}")
        else:
            found = dict.fromkeys(f.text for f in run.lookups.found.values())
            named = names(run.ask.question) if len(found) > 1 else []
            offered = [f" {neutralise(text)}" for text in [*found, *named, "yes", "no"]]
            await run.keep_edited(Stage.ANSWER, await self._slots.choose(run, EXACT, offered))

    async def _claims(self, run: Run) -> bool:
        """One claim for each thing found, held by its source; whether there is any.

        Where a budget ends meanwhile, or a bare answer is asked for, the sources are quoted, as
        that asks no model.
        """
        ended: RunCut | None = None
        exact = run.ask.answer_format is AnswerFormat.EXACT
        found, quoted = run.lookups.found.items(), set[str]()
        for number, finding in ((n, f) for n, first in found for f in (first, *first.more)):
            source, claim = run.sources[finding.source], ""
            quote = await self._reader.quote(run, number, finding) if finding.quoted else ""
            if quote and any(quote in other for other in quoted):
                continue  # it answers another look-up as well
            quoted.add(quote)
            await run.prompt(Stage.ANSWER, f'\n<cite id="{source.id}">')
            if finding.worded:
                await run.keep_edited(Stage.ANSWER, finding.text)
                await run.prompt(Stage.ANSWER, "</cite>")
                continue
            if ended is None and not finding.quoted and not exact:
                try:
                    claim = (await self._slots.write(run, CLAIM))[0]
                except RunCut as cut:
                    ended = cut
            step = run.lookups.step(number)
            asked = run.lookups.resolve(step) or ""
            said = bool(claim) and Inquiry(asked).may_say(claim, finding.text, source)
            quote = quote or (fuller(claim, source) if said else "")
            if said and not quote:
                await run.keep_edited(Stage.ANSWER, claim)
            else:
                # Code's, as what the model did not write is nothing to train it on.
                quote = quote or await self._reader.quote(run, number, finding)
                await run.prompt(Stage.ANSWER, quote)
            await run.prompt(Stage.ANSWER, "</cite>")
        if ended:
            raise ended
        return bool(run.lookups.found)

    async def keep_cut(self, run: Run, cut: RunCut) -> None:
        """Nothing: a slot in progress is neither trimmed nor checked."""

    async def _call(self, run: Run, query: str) -> str:
        """A search in the words of a look-up, and in those that the model expects of the answer.

        A person's words are not the manual's ("undo", "--soft"), but the model often knows them;
        the answer rests alone on what is found by them.
        """
        lookups, query = run.lookups, neutralise(" ".join(query.split()))
        asked = lookups.queries.setdefault(lookups.at, [])
        expects = not asked and expects_words(query)
        if expects and query[-1:].isalnum() and lookups.step(lookups.at).planned:
            query += "?"  # else the model ends the question, and expects nothing
        await run.prompt(Stage.RESEARCH, f"{SEARCH}{query}")
        if expects:
            guess = " ".join((await self._slots.fill(run, QUERY)).split())
            lookups.guesses[lookups.at] = guess
            query = f"{query} {guess}".strip()
        asked.append(query)
        await run.prompt(Stage.RESEARCH, "</call_tool>\n")
        return query


_ANY = ("person", "thing", "one", "other", "second", "both", "names", "date", "place")
"""words of rubrics for whatever a question is about"""
_COMPARES = re.compile(r"\W*compare", re.I)
"""an item of a rubric on what code sets side by side"""
_OPEN = re.compile(
    r"\W*(?:(?:in|from|by|of|to|at|on) )?(?:wh(?:o|om|ose|at|ich|en|ere|y)|how)\b", re.I
)
"""a question that is answered by a thing, not by yes or no"""


def _rewords(step: Lookup, question: str) -> bool:
    """Whether a look-up may ask what the question asks; "What is the answer?" does not."""
    own = content_words(step.text) - content_words(" ".join(names(f"{step.text} {question}")))
    return not step.refers and (not own or bool(own & content_words(question)))


def _own_items(rubric: str, about: frozenset[str]) -> str:
    """A rubric's items without those of the worked examples that share no word with `about`."""
    shown = {fold(line.partition(" [met")[0].strip("- ")) for line in _examples()}
    items = (item.strip("- ") for item in rubric.splitlines())
    own = (i for i in items if fold(i) not in shown or content_words(i) & about)
    return "\n- ".join(dict.fromkeys(own))


@cache
def _examples() -> tuple[str, ...]:
    """The items of the worked examples' rubrics, as they stand there."""
    return tuple(line for line in template("forced").splitlines() if line.startswith("-"))


def _rubric(run: Run) -> list[str]:
    """The items of the question's own rubric."""
    return rubric_items(parse(run.text).last("rubric"))


def _choose_shown(run: Run, query: str, limit: int, found: Sequence[Passage]) -> list[Passage]:
    """The found passages that are shown to the model."""
    unseen = run.evidence.choose(found, limit, run.sources)
    # A look-up is read in the page that it names, even if an earlier look-up was, too.
    named = keep_named(query, found[:limit])
    first = not run.lookups.read.get(run.lookups.at)
    if first and len(named) < len(found[:limit]):
        return named
    if first and expects_words(query):
        # Passages that an earlier look-up showed may answer this one, but are not read again.
        unseen = [p for p in found if p in found[:limit] or p in unseen]
    return keep_named(query, unseen)


def keep_named(query: str, found: Sequence[Passage]) -> list[Passage]:
    """If the query names the first one's title, those with that title: reading takes seconds."""
    name = found[0].title if found else ""
    if not name or f" {phrase(name)} " not in f" {phrase(query)} ":
        return list(found)
    return [passage for passage in found if passage.title == name]
