"""Free decoding: the policy writes whole turns, which are never edited.

A turn ends right after `</call_tool>` or `</answer>`. If a turn breaks the scaffold, it is asked
for again a bounded number of times, with a note on what was wrong; failed attempts are kept outside
the transcript. If the last attempt is still wrong, it is used as far as possible: the run then ends
partial, never empty without a reason.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile

from rubricem.agent.research.run import Run
from rubricem.agent.sources.choice import SCHOLAR
from rubricem.agent.transcript.events import TurnRetried
from rubricem.agent.transcript.question import OPEN_PAGE, Found, RunCut, tool_output
from rubricem.agent.transcript.scaffold import (
    INSTRUCTION,
    ScaffoldDocument,
    ToolCall,
    answer_text,
    is_sent_back,
    missing_items,
    neutralise,
    parse,
    stage_spans,
    template,
    tool_call,
    turn_faults,
)
from rubricem.agent.transcript.words import narrow_query
from rubricem.memory.schema import AnswerFormat, Author, Completion, Sampling, Stage
from rubricem.memory.text import fill

ROOM_FOR_AN_ANSWER = 1500
"""tokens that must still fit before another search is allowed"""

# Notes name tags without brackets: the transcript is parsed, and a note must not open one.
_NO_SEARCH = "\n\nNo further search is possible. Now write the review and the answer.\n"
_REVIEW = "\n\nNow write the review, and then the answer in answer tags.\n"
_ANSWER = "\n\nNow write the answer in answer tags.\n"
_BARE_ANSWER = "\n\nNow write nothing but the text of the answer.\n<answer>\n"

_END_OF_TURN = re.compile(r"</\s*(call_tool|answer|review)\s*>|(?=<tool_output\b)", re.I)
"""a tool output that the model invents ends its turn too: only the runner writes those"""
_LONGEST_TAG = 40
_THOUGHT = re.compile(r"<\s*(/?)\s*think", re.I)


def search_on(document: ScaffoldDocument) -> str:
    """What is said to a policy whose review marks something as missing."""
    return (
        f"\n\nThe review names what is missing: {neutralise('; '.join(missing_items(document)))}. "
        "Search for it with a query that was not asked; the review and the answer come after "
        "that.\n"
    )


Faults = Callable[[str], list[str]]
"""what is wrong with a turn's text, in sentences that the policy can be shown"""


def system_prompt(
    tool_calls: int,
    *,
    pages: bool = False,
    papers: bool = False,
    tools: Sequence[str] = (),
    short: bool = False,
) -> str:
    """What a policy that writes freely is told of the scaffold.

    `pages`: it can open them; `papers`: a search can be narrowed by year and field; `tools`: a
    line for each further tool; `short`: it was trained to the scaffold, and knows it.
    """
    told = [name for name, can in (("narrow", papers), ("open_page", pages)) if can]
    more = "".join(f"\n{template(name)}" for name in told)
    if tools:
        more += "\n" + fill(template("tools"), {"tools": "\n".join(f"  - {t}" for t in tools)})
    name = "free_short" if short else "free"
    return fill(template(name), {"tool_calls": str(tool_calls), "more": more})


def user_message(question: str, answer_format: AnswerFormat) -> str:
    return f"{neutralise(question)}\n\n{INSTRUCTION[answer_format]}"


class FreeDecoder:
    """Has the policy write its turns itself; the default on every server."""

    def __init__(
        self, sampling: Sampling | None = None, attempts: int = 3, *, short: bool = False
    ) -> None:
        """`short`: of `system_prompt`."""
        self._sampling = sampling or Sampling()
        self._attempts = attempts
        self._short = short

    def system(self, run: Run) -> str:
        papers = SCHOLAR in run.search_tool.name.split("+")
        offers = run.equipped.offers.values() if run.equipped else ()
        pages, tools = run.pages is not None, [offer.line() for offer in offers]
        limit, short = run.ask.tool_calls, self._short
        return system_prompt(limit, pages=pages, papers=papers, tools=tools, short=short)

    def message(self, run: Run) -> str:
        return user_message(run.ask.question, run.ask.answer_format)

    async def plan(self, run: Run) -> str:
        """Write the first turn; where it asks for nothing, the question itself is searched."""
        call = tool_call(await self._turn(run, Stage.PLAN, lambda text: turn_faults(text, 1)))
        return _action(run, call) if call else run.alone

    async def search(self, run: Run, query: str) -> Found:
        return await run.search(query)

    async def observe(self, run: Run, found: Found) -> None:
        text = tool_output(found, run.ask.passage_words, placed=True)
        await run.prompt(Stage.RESEARCH, "\n" + text, Author.TOOL)

    async def research(self, run: Run) -> str | None:
        """Write a later turn; return its query, or None when it went on to review or answer."""
        spent = await self._is_spent(run)
        if run.turn > run.ask.tool_calls:
            run.ended_by = run.ended_by or "tool_calls"
        if spent:
            await run.prompt(Stage.RESEARCH, _NO_SEARCH)

        def faults(text: str) -> list[str]:
            return turn_faults(text, run.turn, must_answer=spent)

        may_return = not spent and run.returns < run.ask.review_returns
        call = tool_call(await self._turn(run, Stage.RESEARCH, faults, may_return=may_return))
        return _action(run, call) if call and not spent else None

    async def _is_spent(self, run: Run) -> bool:
        """Whether nothing can be searched any more."""
        # Turns, not calls, are counted: a query that is repeated for ever is no call.
        used_up = run.turn > run.ask.tool_calls
        room = run.room()
        full = room is not None and room <= ROOM_FOR_AN_ANSWER
        return used_up or full or await run.runs_low()

    async def review(self, run: Run) -> str | None:
        """What a review that broke off for it names as missing, once the policy searches for it.

        Nothing to do where the last turn already held review and answer; else ask for them.
        """
        document = parse(_last_turn(run))
        if not document.find("review") and not answer_text(document):
            await run.prompt(Stage.REVIEW, _REVIEW)
            await self._turn(run, Stage.REVIEW, lambda text: _lacking(text, "review", "answer"))
        elif (
            is_sent_back(document)
            and run.returns < run.ask.review_returns
            and not await self._is_spent(run)
        ):
            await run.prompt(Stage.RESEARCH, search_on(document))
            run.turn += 1
            turn = run.turn
            written = await self._turn(run, Stage.RESEARCH, lambda text: turn_faults(text, turn))
            call = tool_call(written)
            return _action(run, call) if call else None
        return None

    async def answer(self, run: Run) -> None:
        """Nothing to do where there is an answer; else ask for it, at last for its text alone."""
        if not _has_answer(run):
            await run.prompt(Stage.ANSWER, _ANSWER)
            await self._turn(run, Stage.ANSWER, lambda text: _lacking(text, "answer"))
        if not _has_answer(run):
            run.end_early("the model never wrote an answer in its tags")
            await run.prompt(Stage.ANSWER, _BARE_ANSWER)
            written = await run.write(Stage.ANSWER, self._sampling_of(run), TurnEnd())
            run.keep([(Stage.ANSWER, written.text)], written)
            await run.prompt(Stage.ANSWER, "\n</answer>\n")

    async def keep_cut(self, run: Run, cut: RunCut) -> None:
        """Append what was written of a turn that was broken off."""
        for stage, text in _pieces(run, cut.stage, cut.text) if cut.text else ():
            run.cut_in = stage
            await run.keep_edited(stage, text, told=True)

    async def _turn(
        self, run: Run, stage: Stage, faults_of: Faults, *, may_return: bool = False
    ) -> str:
        """One turn of the policy, after at most `attempts` tries.

        `may_return`: it also ends with a review that marks something as missing.
        """
        before = ""
        for run.attempt in range(self._attempts):
            try:
                end = TurnEnd(reviews=may_return)
                written = await run.write(stage, self._sampling_of(run), end)
            except RunCut as cut:
                # A turn that broke the scaffold is more use to a reader than none.
                cut.text = cut.text or before
                raise
            before = written.text
            # By the text alone: a reply that the journal held asked for no end.
            faults = [] if may_return and _returns(written.text) else _faults(written, faults_of)
            if not faults or run.attempt == self._attempts - 1:
                break
            run.discard(stage, written)
            run.listener(TurnRetried(" ".join(faults)))
            note = f"\n\nYour turn was not accepted. {' '.join(faults)} Write it again.\n"
            await run.prompt(stage, note)
        if faults:
            run.end_early(f"turn {run.turn} of the model broke the scaffold: {faults[0]}")
        run.keep(_pieces(run, stage, written.text), written)
        run.attempt = 0
        return written.text

    def _sampling_of(self, run: Run) -> Sampling:
        room = run.room()
        limit = run.ask.max_tokens if room is None else min(run.ask.max_tokens, max(room - 16, 16))
        return replace(self._sampling, max_tokens=limit)


class TurnEnd:
    """Where a turn ends: the stop predicate of one turn, or of several tries at it.

    It is called for every piece that arrives and looks at what is new alone. Thinking may name
    the tags, so nothing inside it ends a turn.
    """

    def __init__(self, *, reviews: bool = False) -> None:
        self._seen = ""
        self._reviews = reviews
        """whether it also ends with a review that marks something as missing"""

    def __call__(self, text: str) -> int | None:
        new = len(self._seen) if text.startswith(self._seen) else 0
        self._seen = text
        for found in _END_OF_TURN.finditer(text, max(0, new - _LONGEST_TAG)):
            thoughts = _THOUGHT.findall(text, 0, found.start())
            if thoughts and thoughts[-1] != "/":
                continue
            reviewed = (found[1] or "").lower() == "review"
            if not reviewed or (self._reviews and _returns(text[: found.end()])):
                return found.end()
        return None


def _returns(text: str) -> bool:
    """Whether a turn ends with a review that marks something as missing."""
    document = parse(text)
    last = document.blocks[-1] if document.blocks else None
    return last is not None and last.tag == "review" and last.closed and is_sent_back(document)


def _action(run: Run, call: ToolCall) -> str:
    """The line of a tool call; a tool that does not exist is taken for the search."""
    name = call.name.strip()
    if name.lower() == OPEN_PAGE:
        return f"{OPEN_PAGE} {call.query}"
    if run.equipped and name in run.equipped.allowed:
        return f"{name} {' '.join(call.query.split())}"
    return narrow_query(call.query, call.attributes)


def _faults(written: Completion, faults_of: Faults) -> list[str]:
    if written.stop_reason == "repetition":
        return ["It repeated itself without end."]
    if written.stop_reason == "length":
        return ["It was too long and was cut off."]
    # Thinking that a server keeps apart is thinking all the same.
    reasoning = neutralise(written.reasoning)
    return faults_of(f"<think>{reasoning}</think>{written.text}" if reasoning else written.text)


def _lacking(text: str, *tags: str) -> list[str]:
    document = parse(text)
    return document.find_unpaired() + document.lacks(*tags)


def _has_answer(run: Run) -> bool:
    return bool(answer_text(parse(_last_turn(run))))


def _last_turn(run: Run) -> str:
    kept = (s for s in reversed(run.segments) if s.kept and s.author is Author.POLICY)
    return "".join(reversed([s.text for s in takewhile(lambda s: s.turn == run.turn, kept)]))


def _pieces(run: Run, stage: Stage, written: str) -> list[tuple[Stage, str]]:
    """The new text cut at the boundaries of the stages of the whole transcript."""
    transcript = run.text
    before = len(transcript)
    spans = stage_spans(transcript + written)
    cuts = [
        (found, written[max(start - before, 0) : max(end - before, 0)])
        for found, (start, end) in spans.items()
        if end > before
    ]
    return cuts or [(stage, written)]
