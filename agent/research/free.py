"""Free decoding: the policy writes whole turns.

Where token ids count, a turn is never edited; it ends right after `</call_tool>` or `</answer>`. If
it breaks the scaffold, it is asked for again a bounded number of times, with its end and a note on
what was wrong; failed attempts are kept outside the transcript. If the last attempt is still wrong,
it is used as far as possible: the run then ends partial, never empty without a reason.

The turns of a model that exchanges messages are read tolerantly: whatever holds a call, a review
or an answer is taken, in the scaffold's own tags (`models.turns`), and only a turn with none of
them is asked for again. It may call several tools in a turn. A turn that its server cuts off is
gone on with, up to `Ask.max_tokens` of text; the answer is a turn of its own, or ends one.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from rubricem.agent.models.turns import own_functions, read_turn
from rubricem.agent.reports.cited import pieces_in
from rubricem.agent.research.evidence import SOURCE_ID
from rubricem.agent.research.run import Run
from rubricem.agent.sources.choice import PAPERS, about
from rubricem.agent.transcript.events import TurnRetried
from rubricem.agent.transcript.question import (
    NEXT_CALL,
    OPEN_PAGE,
    READ,
    Ask,
    Found,
    RunCut,
    tool_output,
)
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
    tool_calls,
    turn_faults,
)
from rubricem.agent.transcript.words import narrow_query
from rubricem.memory.errors import PolicyError
from rubricem.memory.schema import (
    AnswerFormat,
    Author,
    Completion,
    Sampling,
    Stage,
)
from rubricem.memory.text import fill, one_line, split_thinking

ROOM_FOR_AN_ANSWER = 1500
"""tokens that must still fit before another search is allowed"""
TURN_TOKENS = 4096
"""that a model on a server is given at once for a turn that has not come to its answer"""
BYTES_OF_A_TOKEN = 4
"""of UTF-8, by which the length of a text is kept to a limit: thoughts do not count"""
MOST_PIECES = 8
"""requests for one turn that its server cuts off"""
LEAST_PIECE = 64
"""tokens that a piece must have room for"""
AFTER_A_CALL = 400
"""characters behind a call in which another one may still begin"""
SHOWN_OF_FAULTY = 300
"""characters of a turn's end that are shown to its model with what is wrong"""

TOGETHER = {
    "then": "stages 3 and 4 in the same turn",
    "turns": "One tool call to a turn; your turn ends with </call_tool> or with </answer>.",
}
APART = {
    "then": "stage 3; your turn ends with </review>, and you are then asked for the answer",
    "turns": (
        "Your turn ends with its last </call_tool>, with </review> or with </answer>. Several "
        "calls in one turn are made at once and answered in their order: use that for look-ups "
        "that do not need one another."
    ),
}
"""how a turn goes on from research, and how it ends, where it is kept as sampled and where it is
read"""

# Notes name tags without brackets: the transcript is parsed, and a note must not open one.
_NO_SEARCH = "\n\nNo further search is possible. Now write the review and the answer.\n"
_REVIEW = "\n\nNow write the review, and then the answer in answer tags.\n"
_ANSWER = "\n\nNow write the answer in answer tags.\n"
LEAST_FINDINGS, WORDS_OF_AN_ITEM = 600, 200
"""words that findings may have; those for each item of the rubric that they serve, if more"""
_SEARCHED_FIRST = (
    "\n\nNo answer before a search: the question itself is searched for, and what you wrote is "
    "put aside.\n"
)
_BROKEN = (
    "the model did not keep to the form in turn {}: {} A larger model may, and the embedded one is "
    "held to it"
)
_UNCITED = (
    "Its answer cites no source: put each claim that rests on one in cite tags with its id. If "
    "none does, repeat the answer as it is."
)
_BREAKS_OFF = "\n\n(The answer breaks off here.)\n</answer>\n"
_BARE_ANSWER = "\n\nNow write nothing but the text of the answer.\n<answer>\n"

_END_OF_TURN = re.compile(r"</\s*(call_tool|answer|review)\s*>|(?=<tool_output\b)", re.I)
"""a tool output that the model invents ends its turn too: only the runner writes those"""
_LONGEST_TAG = 40
_BEGINNING = re.compile(r"\s*<think\b.*?</think>\s*", re.S)
_THOUGHT = re.compile(r"<\s*(/?)\s*think", re.I)


def search_on(document: ScaffoldDocument, rubric: str) -> str:
    """What is said to a policy whose review marks something of its rubric as missing."""
    named = neutralise("; ".join(missing_items(document, rubric)))
    return (
        f"\n\nThe review names what is missing: {named}. Look for it by a call that was not made; "
        "the review and the answer come after that.\n"
    )


FROM_BEFORE = (
    "\n\nWhere the passages quoted above answer this, the first turn may go on from its plan to "
    "review and answer, without a search."
)
LENGTH = (
    " Some {:,} characters, fewer where less is to be said: with a heading for each part of a long "
    "one, and a table where three or more things are held side by side."
)
"""of a report, said to a server's model"""


def system_prompt(
    tool_calls: int,
    *,
    pages: bool = False,
    papers: bool = False,
    tools: Sequence[str] = (),
    short: bool = False,
    today: str = "",
    sources: Sequence[str] = (),
) -> str:
    """What a policy that writes freely is told of the scaffold.

    `pages`: it can open them; `papers`: a search can be narrowed by year and field; `tools`: a
    line for each further tool; `short`: it was trained to the scaffold, and knows it. `today`: the
    date, for a model that exchanges messages: it may call several tools at once, and writes its
    answer in a turn of its own. `sources`: a line for each of what is searched.
    """
    told = [name for name, can in (("narrow", papers), ("open_page", pages)) if can]
    more = "".join(f"\n{template(name)}" for name in told)
    if tools:
        more += "\n" + fill(template("tools"), {"tools": "\n".join(f"  - {t}" for t in tools)})
    name = "free_short" if short else "free"
    then, rule = (APART if today else TOGETHER).values()
    said = {"tool_calls": str(tool_calls), "more": more, "then": then, "turns": rule}
    searched = "".join(f"\n- {line}" for line in sources)
    end = f"\n\nWhat is searched:{searched}" if sources else ""
    return fill(template(name), said) + end + (f"\n\nToday is {today}." if today else "")


def user_message(ask: Ask, *, told: bool = False) -> str:
    """The question, and what answer is wanted; `told`: with its length, or whose part it is."""
    if ask.whole and told:
        items = "\n".join(f"- {item}" for item in ask.serves) or "- all that the question asks"
        most = max(LEAST_FINDINGS, WORDS_OF_AN_ITEM * len(ask.serves))
        said = {"whole": f"> {one_line(ask.whole)}", "items": items, "most": f"{most:,}"}
        wanted = fill(template("findings"), {k: neutralise(v) for k, v in said.items()})
    else:
        wanted = INSTRUCTION[ask.answer_format]
        if told and ask.length and ask.answer_format is AnswerFormat.LONG:
            wanted += LENGTH.format(ask.length)
    return f"{neutralise(ask.question)}\n\n{wanted}"


@dataclass
class FreeDecoder:
    """Has the policy write its turns itself; the default on every server."""

    no_search = _NO_SEARCH
    review_note = _REVIEW
    sampling: Sampling = field(default_factory=Sampling)
    attempts: int = 3
    short: bool = False
    """of `system_prompt`"""

    def system(self, run: Run) -> str:
        offers = run.equipped.offers.values() if run.equipped else ()
        chats = run.policy.chat is not None
        return system_prompt(
            run.ask.calls,
            pages=run.opens,
            papers=not {*PAPERS}.isdisjoint(run.search_tool.name.split("+")),
            tools=[offer.line() for offer in offers],
            short=self.short,
            today=run.day if chats else "",
            sources=about(run.search_tool) if chats else (),
        )

    def message(self, run: Run) -> str:
        told = run.policy.chat is not None
        known = FROM_BEFORE if told and run.evidence.background.turns else ""
        return user_message(run.ask, told=told) + known

    def tools(self, run: Run) -> str:
        """The run's tools, for a server that calls them in its own form."""
        offers = run.equipped.offers.values() if run.equipped else ()
        return json.dumps([*own_functions(pages=run.opens), *(o.definition() for o in offers)])

    def actions(self, run: Run, turn: str) -> str:
        """The lines of a turn's calls; a turn that is kept as it was sampled has one."""
        calls = tool_calls(turn)
        made = calls if run.policy.chat else calls[-1:]
        return NEXT_CALL.join(self.action(run, call) for call in made)

    def action(self, run: Run, call: ToolCall) -> str:
        """The line of a tool call; a tool that does not exist is taken for the search."""
        name = call.name.strip()
        if name.lower() in (OPEN_PAGE, READ):
            return f"{OPEN_PAGE} {call.query}"
        if run.equipped and name in run.equipped.allowed:
            return f"{name} {' '.join(call.query.split())}"
        return narrow_query(call.query, call.attributes)

    async def plan(self, run: Run) -> str:
        """Write the first turn; where it asks for nothing, the question itself is searched."""
        try:
            turn = await self._turn(run, Stage.PLAN)
        except PolicyError as error:
            if run.policy.chat is None or error.kind not in ("empty", "thinking"):
                raise
            # A model that fails to plan may still answer from what is found.
            run.charge(error)
            run.end_early(f"there is no plan: {error}")
            return run.alone
        return "" if run.answered else self.actions(run, turn) or run.alone

    async def search(self, run: Run, query: str) -> Found:
        return await run.search(query)

    async def observe(self, run: Run, found: Found) -> None:
        text = tool_output(found, run.passage_words, placed=True)
        await run.respond(Stage.RESEARCH, "\n" + text, Author.TOOL)

    async def research(self, run: Run) -> str | None:
        """Write a later turn; return its query, or None when it went on to review or answer."""
        spent = await self.is_spent(run)
        if max(run.turn - 1, run.tool_calls) >= run.ask.calls:
            run.ended_by = run.ended_by or "tool_calls"
        if spent:
            await run.respond(Stage.RESEARCH, self.no_search)
        elif run.tells_left:
            left = await run.once("left", {"value": run.left})
            await run.respond(Stage.RESEARCH, f"\n{left['value']}\n", told=False)
        may_return = not spent and run.returns < run.ask.review_returns
        turn = await self._turn(run, Stage.RESEARCH, may_return=may_return, must_answer=spent)
        return (self.actions(run, turn) or None) if not spent else None

    async def is_spent(self, run: Run) -> bool:
        """Whether nothing can be searched any more."""
        # Turns, not calls, are counted: a query that is repeated for ever is no call.
        used_up = max(run.turn - 1, run.tool_calls) >= run.ask.calls
        room = run.room()
        full = room is not None and room <= ROOM_FOR_AN_ANSWER
        return used_up or full or await run.runs_low()

    async def review(self, run: Run) -> str | None:
        """What a review that broke off for it names as missing, once the policy searches for it.

        Nothing to do where the last turn already held review and answer; else ask for them.
        """
        document = parse(_last_turn(run))
        if not document.find("review") and not answer_text(document):
            await run.respond(Stage.REVIEW, self.review_note)
            await self._turn(run, Stage.REVIEW)
        elif (
            is_sent_back(document)
            and run.returns < run.ask.review_returns
            and not await self.is_spent(run)
        ):
            rubric = parse(run.text).last("rubric")
            await run.respond(Stage.RESEARCH, search_on(document, rubric))
            run.turn += 1
            written = await self._turn(run, Stage.RESEARCH)
            return self.actions(run, written) or None
        return None

    async def answer(self, run: Run) -> None:
        """Nothing to do where there is an answer; else ask for it, at last for its text alone."""
        if not self.has_answer(run):
            await run.respond(Stage.ANSWER, _ANSWER)
            await self._turn(run, Stage.ANSWER)
        if not self.has_answer(run):
            run.end_early("the model never wrote an answer in its tags")
            await run.respond(Stage.ANSWER, _BARE_ANSWER)
            written = await run.write(Stage.ANSWER, self._sampling_of(run), TurnEnd())
            if run.policy.chat:
                text = _read(run, written)
                bare = answer_text(parse(text)) or split_thinking(text)[1]
                written = replace(written, text=bare)
            run.keep([(Stage.ANSWER, written.text)], written)
            await run.prompt(Stage.ANSWER, "\n</answer>\n")

    def has_answer(self, run: Run) -> bool:
        return bool(answer_text(parse(_last_turn(run))))

    async def keep_cut(self, run: Run, cut: RunCut) -> None:
        """Append what was written of a turn that was broken off."""
        written = Completion(cut.text, "length")
        text = _read(run, written) if run.policy.chat else cut.text
        for stage, piece in _pieces(run, cut.stage, text) if text else ():
            run.cut_in = stage
            await run.keep_edited(stage, piece, told=True)

    async def _turn(
        self,
        run: Run,
        stage: Stage,
        *,
        may_return: bool = False,
        must_answer: bool = False,
    ) -> str:
        """One turn of the policy, after at most `attempts` tries.

        `may_return`: it also ends with a review that marks something as missing. `must_answer`: no
        call is left.
        """
        before, chats = "", run.policy.chat is not None
        for run.attempt in range(self.attempts):
            try:
                if chats:
                    raw = await self._write_whole(run, stage, may_return, not must_answer)
                    written = replace(raw, text=_read(run, raw))
                else:
                    end = TurnEnd(reviews=may_return)
                    raw = written = await run.write(stage, self._sampling_of(run), end)
            except RunCut as cut:
                # A turn that broke the scaffold is more use to a reader than none.
                cut.text = cut.text or before
                raise
            before = written.text
            if chats:
                faults = _shortcomings(run, stage, written, must_answer)
            else:
                # By the text alone: a reply that the journal held asked for no end.
                returns = may_return and _returns(written.text)
                faults = [] if returns else _faults(run, stage, written, must_answer)
            if not faults or run.attempt == self.attempts - 1:
                break
            run.discard(stage, raw)
            run.listener(TurnRetried(" ".join(faults)))
            await run.respond(stage, _retry_note(raw.text, faults))
        if faults:
            run.end_early(_BROKEN.format(run.turn, faults[0]))
        elif chats:
            written = await self._accept(run, stage, raw, written)
        run.keep(_pieces(run, stage, written.text), written)
        run.attempt = 0
        return written.text

    async def _write_whole(self, run: Run, stage: Stage, returns: bool, calls: bool) -> Completion:
        """A server's turn to its own end, gone on with where the server cuts it.

        Where thinking took all the tokens, it is asked once more with all that are allowed.
        """
        most, longer = run.ask.max_tokens, False
        whole = Completion(text="", stop_reason="length")
        for _ in range(MOST_PIECES):
            left = most - len(whole.text.encode(errors="replace")) // BYTES_OF_A_TOKEN
            if left < min(LEAST_PIECE, most):
                break
            wide = stage is Stage.ANSWER or "<answer" in whole.text
            room = (left if wide else min(left, TURN_TOKENS)) + (most if longer else 0)
            tools = self.tools(run) if calls and stage in (Stage.PLAN, Stage.RESEARCH) else None
            sampling = replace(self.sampling, max_tokens=room, tools=tools)
            end = TurnEnd(reviews=returns, calls=True)
            try:
                more = await run.write(stage, sampling, end, begun=whole.text)
            except RunCut as cut:
                cut.text = join_pieces(whole.text, cut.text)
                raise
            except PolicyError as error:
                if whole.text:
                    run.charge(error)
                    break
                if error.kind != "thinking" or longer:
                    raise
                run.charge(error)
                longer = True
                continue
            text = join_pieces(whole.text, more.text)
            if whole.text and text == whole.text:
                break
            whole = replace(more, text=text)
            if more.stop_reason != "length":
                break
        return whole

    async def _accept(
        self, run: Run, stage: Stage, raw: Completion, written: Completion
    ) -> Completion:
        """The turn as it is kept: without an answer before the first search, and closed."""
        document = parse(written.text)
        ends = [b.start for b in document.blocks if b.tag in ("review", "answer")]
        if stage is Stage.PLAN and ends and not tool_calls(written.text):
            if _cites(run, document):
                # Of what the conversation found: a follow-up needs no search for that.
                run.answered = True
                return written
            run.discard(stage, raw)
            planned = replace(written, text=written.text[: ends[0]])
            run.keep(_pieces(run, stage, planned.text), planned)
            await run.respond(stage, _SEARCHED_FIRST)
            return replace(written, text="")
        answers = document.find("answer")
        if written.stop_reason == "length" and answers and not answers[-1].closed:
            used = len(written.text.encode()) // BYTES_OF_A_TOKEN + LEAST_PIECE
            if used >= run.ask.max_tokens:
                reason = f"the answer reached its limit of {run.ask.max_tokens:,} tokens"
                run.end_early(reason, by="max_tokens")
            else:
                run.end_early("the server cut the answer off, and the model did not go on")
            within = answers[-1].children and not answers[-1].children[-1].closed
            text = written.text + "</cite>" * bool(within) + _BREAKS_OFF
            return replace(written, text=text)
        return written

    def _sampling_of(self, run: Run) -> Sampling:
        room = run.room()
        limit = run.ask.max_tokens if room is None else min(run.ask.max_tokens, max(room - 16, 16))
        return replace(self.sampling, max_tokens=limit)


@dataclass
class TurnEnd:
    """Where a turn ends: the stop predicate of one turn, or of several tries at it.

    It is called for every piece that arrives and looks at what is new alone. Thinking may name
    the tags, so nothing inside it ends a turn.
    """

    reviews: bool = False
    """whether it also ends with a review that marks something as missing"""
    calls: bool = False
    """whether other calls may follow the first; it then ends where something else begins"""
    _seen: str = ""
    _called: int = 0
    """where the last call ended"""

    def __call__(self, text: str) -> int | None:
        new = len(self._seen) if text.startswith(self._seen) else 0
        self._seen = text
        for found in _END_OF_TURN.finditer(text, max(0, new - _LONGEST_TAG, self._called)):
            thoughts = _THOUGHT.findall(text, 0, found.start())
            if thoughts and thoughts[-1] != "/":
                continue
            tag = (found[1] or "").lower()
            if tag == "call_tool" and self.calls:
                if "<call_tool" in text[self._called : found.start()].lower():
                    self._called = found.end()
                continue
            if self._called and tag:
                return self._called
            if tag != "review" or (self.reviews and _returns(text[: found.end()])):
                return found.end()
        behind = text[self._called :] if self._called else ""
        if len(behind) > AFTER_A_CALL and "<call_tool" not in behind.lower():
            return self._called
        return None


def _returns(text: str) -> bool:
    """Whether a turn ends with a review that marks something as missing."""
    document = parse(text)
    last = document.blocks[-1] if document.blocks else None
    return last is not None and last.tag == "review" and last.closed and is_sent_back(document)


def _faults(run: Run, stage: Stage, written: Completion, must_answer: bool) -> list[str]:
    """What is wrong with a turn that is kept as it was sampled, in sentences for its policy."""
    if written.stop_reason == "repetition":
        return ["It repeated itself without end."]
    if written.stop_reason == "length":
        return ["It was too long and was cut off."]
    # Thinking that a server keeps apart is thinking all the same.
    reasoning = neutralise(written.reasoning)
    text = f"<think>{reasoning}</think>{written.text}" if reasoning else written.text
    if stage in (Stage.PLAN, Stage.RESEARCH):
        return turn_faults(text, max(run.turn, 1), must_answer=must_answer)
    document, tags = parse(text), ("review", "answer")
    return document.find_unpaired() + document.lacks(*tags[stage is Stage.ANSWER :])


def _read(run: Run, written: Completion) -> str:
    """A server's turn in the scaffold's tags; what an earlier report cites it may cite again."""
    earlier = run.evidence.background.by_id
    text = read_turn(
        written.text,
        tools=run.equipped.allowed if run.equipped else (),
        known=run.sources.keys() | earlier.keys(),
        cut=written.stop_reason == "length",
    )
    run.evidence.take_up([i for i in SOURCE_ID.findall(answer_text(parse(text))) if i in earlier])
    return text


def _shortcomings(run: Run, stage: Stage, written: Completion, must_answer: bool) -> list[str]:
    """Why a server's turn cannot be used, in sentences for its model; [] if it can."""
    document = parse(written.text)
    answered, calls = bool(answer_text(document)), tool_calls(written.text)
    reviewed, planned = bool(document.find("review")), bool(document.find("structured_plan"))
    if written.stop_reason == "repetition" and not answered:
        return ["It repeated itself without end."]
    asked_once = run.attempt or stage is Stage.PLAN
    nothing = (document if reviewed else parse(run.text)).all_missing()
    if answered and run.sources and not (asked_once or nothing or _cites(run, document)):
        return [_UNCITED]
    if stage is Stage.ANSWER:
        usable, said = answered, "It holds no answer in answer tags."
    elif stage is Stage.PLAN:
        usable = bool(calls) or planned or reviewed or answered
        said = "It holds neither a structured_plan nor a call_tool."
    elif must_answer or stage is Stage.REVIEW:
        usable = reviewed or answered
        said = f"{'No tool call is left' if calls else 'It has no review'}: write it, and answer."
    else:
        usable = bool(calls) or reviewed or answered
        said = "It holds neither a call_tool nor a review and an answer, in their tags."
    cut = written.stop_reason == "length" and not usable
    return ([] if usable else [said]) + ["It was too long and was cut off."] * cut


def _retry_note(written: str, faults: Sequence[str]) -> str:
    """What is wrong with a turn, and its end, to be shown to who wrote it."""
    end = neutralise(" ".join(written[-SHOWN_OF_FAULTY:].split()))
    shown = f" It ended:\n> {end}\n" if end else " "
    return f"\n\nYour turn was not accepted. {' '.join(faults)}{shown}Write it again.\n"


PROBE = 80
"""characters by which the place is found where a continuation begins anew"""
LEAST_OVERLAP = 9


def join_pieces(text: str, more: str) -> str:
    """A text that was cut off and what its model wrote to go on with it.

    Models go on where they should, repeat the last words, or begin anew; what stands there already
    is not doubled. The text itself, if nothing new came.
    """
    if not text:
        return more
    begun = _BEGINNING.match(more)
    more = more[begun.end() :] if begun else more
    anew = more.rfind("<answer") if "<answer" in text else -1
    more = more[more.find(">", anew) + 1 :] if anew >= 0 else more
    least = PROBE if anew >= 0 else LEAST_OVERLAP
    at = text.find(more[:least]) if len(more) >= least else -1
    while at >= 0:
        if more.startswith(text[at:]):
            return text[:at] + more
        if len(more) >= PROBE and text.startswith(more, at):
            return text
        at = text.find(more[:least], at + 1)
    if anew < 0:
        return text + more
    start = text.find(">", text.find("<answer")) + 1
    return text[:start] + more if len(more) > len(text) - start else text


def _cites(run: Run, document: ScaffoldDocument) -> bool:
    """Whether an answer cites something that is known, in whatever form."""
    return any(piece.ids for piece in pieces_in(answer_text(document), run.trajectory("")))


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
