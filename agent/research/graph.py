"""The research graph: recall, plan, research, tools, review, answer, verify, as LangGraph nodes.

Three more nodes contain only an interrupt, for runs in which a person takes part: `clarify` before
the plan, `approve` after it, `consent` before calls that reach beyond reading. A decision is
journaled before it takes effect. The nodes have no state of their own: a decoder writes the stages,
a `Run` holds the transcript, and the journal returns every finished call for free.

A run that is cut still ends with a report, without another call: an answer that was begun is
closed and says that it breaks off; if there is none, code quotes the passages that were found.

Neither this module nor anything it imports may import the judge: the policy must not read its
rubric.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError

from rubricem.agent.record.conversations import quote_conversation, with_conversation
from rubricem.agent.reports.cited import cited_answer, claim_of
from rubricem.agent.research.deep.parts import asked_in, split_by_kind
from rubricem.agent.research.evidence import SOURCE_ID, reply_of, unshown
from rubricem.agent.research.recall import BankRecaller
from rubricem.agent.research.run import PLACE, Place, Run
from rubricem.agent.sources.fetch import addresses_in, normal
from rubricem.agent.sources.index import joined, nearest, page, services, widened
from rubricem.agent.sources.mcp_client import Equipped
from rubricem.agent.transcript.events import SourceProgress, StageStarted
from rubricem.agent.transcript.question import (
    ALWAYS,
    MOST_REJECTED,
    NEXT_CALL,
    OPEN_PAGE,
    PRIVATE,
    Found,
    OutOfTime,
    Permission,
    PlanDecision,
    Reply,
    RunCut,
    ShownPlan,
    reason_of,
)
from rubricem.agent.transcript.scaffold import INSTRUCTION, answer_text, neutralise, parse, template
from rubricem.agent.transcript.words import closest_sentence, fold, stands_in
from rubricem.memory.errors import PolicyError, SettingsError, SourceError
from rubricem.memory.language import length
from rubricem.memory.schema import (
    BY_RULES,
    Decoding,
    Message,
    Passage,
    Sampling,
    ScaffoldedPrompt,
    Source,
    Stage,
    Status,
    Value,
)
from rubricem.memory.text import fill, split_thinking

END = "__end__"
"""LangGraph's name for it, repeated here since importing LangGraph takes a second"""
WAYS = {
    "recall": ("clarify",),
    "clarify": ("plan",),
    "plan": ("approve",),
    "approve": ("consent", "plan"),
    "consent": ("tools", "consent"),
    "tools": ("research",),
    "research": ("review", "consent"),
    "review": ("answer", "consent"),
    "answer": ("verify",),
    "verify": (END,),
}
"""node -> the node after it, and the one that the run goes back to"""
NODES = tuple(WAYS)
MOST_STEPS = 100_000
"""of the graph: the budgets end a run"""


class Decoder(Protocol):
    """How the four stages are written: forced or free."""

    def system(self, run: Run) -> str: ...
    def message(self, run: Run) -> str: ...
    async def plan(self, run: Run) -> str: ...
    async def search(self, run: Run, query: str) -> Found:
        """What is shown of a search: by `Run.search`."""
        ...

    async def observe(self, run: Run, found: Found) -> None: ...
    async def research(self, run: Run) -> str | None: ...
    async def review(self, run: Run) -> str | None:
        """A query for what the review names as missing; None if no search is needed or allowed."""
        ...

    async def answer(self, run: Run) -> None: ...
    async def keep_cut(self, run: Run, cut: RunCut) -> None: ...


Step = Callable[[Run, Decoder, str | None], Awaitable[str | None]]


async def recall(run: Run, decoder: Decoder, query: str | None) -> None:
    """Write the system prompt, what earlier runs taught, the conversation and the question."""
    if run.equipped:
        for said in await run.equipped.look_again():
            run.listener(SourceProgress(said))
    await run.remember_day()
    run.alone = await rewrite(run)
    taught = await run.recall()
    before, shown = await quote_conversation(
        run.evidence.background, run.policy, run.ask.passage_words, run.alone
    )
    # The sources shown with the conversation can be cited without being found again.
    run.evidence.take_up(shown)
    system, message = decoder.system(run), taught + before + decoder.message(run)
    if text := run.ask.scaffold:
        bare = await run.policy.render(system, message)
        run.scaffold = ScaffoldedPrompt(text=text, shown=run.ask.criteria_shown, bare_ids=bare)
    await run.open(system + text, message)
    if run.ask.clarify:
        run.doubt = await doubt_of(run)


async def clarify(run: Run, decoder: Decoder, query: str | None) -> None:
    """Only the interrupt: a person answers the policy's clarifying question, if it has one."""
    if not run.doubt:
        return
    asked = {"ask": "clarify", "question": run.ask.question, "doubt": run.doubt}
    reply = (await decide(run, Reply, asked)).text.strip()
    if reply:
        note = f"Asked in return: {neutralise(run.doubt)}\nThe person answered: {neutralise(reply)}"
        run.outlet.say(reply)
        await run.respond(Stage.PLAN, f"\n\n{note}\n\n")


async def plan(run: Run, decoder: Decoder, query: str | None) -> str:
    run.turn = 1
    run.listener(StageStarted(Stage.PLAN))
    return await decoder.plan(run)


async def approve(run: Run, decoder: Decoder, query: str | None) -> str | None:
    """Only the interrupt: a person decides on the plan. None: another plan must be written."""
    if not run.ask.approve_plan:
        return query
    plan = ShownPlan.of(run.text, query or "")
    asked = {"ask": "approve_plan", "question": run.ask.question, **plan.model_dump(mode="json")}
    decision = await decide(run, PlanDecision, asked)
    if decision.verdict == "approve":
        return query or plan.query
    if decision.verdict == "edit":
        await run.respond(Stage.PLAN, decision.plan.note())
        return decision.plan.query.strip() or plan.query
    if run.path.count("plan") >= MOST_REJECTED:
        why = f"{MOST_REJECTED} plans were rejected, and no more are written"
        raise RunCut("interrupt", Stage.PLAN, reason=why)
    why = neutralise(decision.reason.strip())
    said = f"The person who asked rejected this plan{f': {why}' if why else '.'}"
    await run.respond(Stage.PLAN, f"\n\n{said}\nWrite another plan and another first search.\n")
    return None


async def consent(run: Run, decoder: Decoder, query: str | None) -> str | None:
    """Only the interrupt: a person decides on one call of the turn; asked again for the next."""
    run.asking = False
    run.consents.begin(run.turn)
    run.outlet.turn()
    for action in [] if run.answered else actions_of(run, query):
        name = action.partition(" ")[0]
        if run.equipped is not None and name in run.equipped.allowed:
            with suppress(SourceError):  # whose server was away may act, too
                await run.equipped.offer(name)
        asked = run.consents.asked(run.equipped, action, read=run.read_others)
        about = action
        if asked is None and (to := _services(run, action)):
            about = _sent_of(run, to, action)
            if run.outlet.strange(about):
                asked = run.consents.asked_to_send(to, about)
        if asked is not None:
            said = await decide(run, Permission, asked, about=action)
            run.consents.take(asked, about, said)
            if said.verdict == ALWAYS and run.equipped:
                await asyncio.to_thread(run.equipped.allow, asked["to"])
            run.asking = True
            return query
    return query


def _services(run: Run, action: str) -> str:
    """The public services that an action sends its text to; "": none."""
    name, tools = action.partition(" ")[0], run.equipped
    if name == OPEN_PAGE or (run.ask.leads and asked_in(action).kind == PRIVATE):
        return ""
    if tools is not None and name in tools.allowed:
        return name if tools.is_public(name) else ""
    return ", ".join(services(run.search_tool))


def _sent_of(run: Run, to: str, action: str) -> str:
    """What of an action its services are sent: a lead's question, what a tool is told, or all."""
    if run.ask.leads:
        return asked_in(action).question
    written = action.removeprefix(f"{to} ")
    return run.equipped.told(to, written) if run.equipped and written != action else action


def actions_of(run: Run, query: str | None) -> list[str]:
    """The actions of a turn; of a lead over private and public sources each is over one kind."""
    actions = (query or run.alone).split(NEXT_CALL)
    parted = run.ask.leads and run.parts.mixed
    return list(dict.fromkeys(split_by_kind(actions) if parted else actions))


async def tools(run: Run, decoder: Decoder, query: str | None) -> None:
    if run.answered:
        return
    actions = actions_of(run, query)
    for action, found in zip(actions, await act_at_once(run, decoder, actions), strict=True):
        several = run.ask.leads or len(actions) > 1
        await decoder.observe(run, replace(found, asked=action) if several else found)


async def act_at_once(run: Run, decoder: Decoder, actions: Sequence[str]) -> list[Found]:
    """What the actions of one turn find, in their order; those beyond the limit are refused.

    Raises RunCut if one of them is cut, once all have ended.
    """
    allowed = max(run.ask.calls - run.tool_calls, 1)
    reached = [asyncio.Event() for _ in range(min(len(actions), allowed) + 1)]
    reached[0].set()

    async def act_in_place(number: int, action: str) -> Found:
        PLACE.set(Place(number, reached[number]))
        try:
            found = await act(run, decoder, action)
            await reached[number].wait()
            return found
        finally:
            reached[number + 1].set()

    made = [act_in_place(number, action) for number, action in enumerate(actions[:allowed])]
    ended = await asyncio.gather(*made, return_exceptions=True)
    if failed := [each for each in ended if isinstance(each, BaseException)]:
        raise failed[0]
    refused = Found((), error=f"no call is left of {run.ask.calls}")
    return [each for each in ended if isinstance(each, Found)] + [refused] * len(actions[allowed:])


async def research(run: Run, decoder: Decoder, query: str | None) -> str | None:
    if run.answered:
        return None
    run.turn += 1
    run.listener(StageStarted(Stage.RESEARCH))
    return await decoder.research(run)


async def review(run: Run, decoder: Decoder, query: str | None) -> str | None:
    run.listener(StageStarted(Stage.REVIEW))
    missing = await decoder.review(run)
    run.returns += missing is not None
    return missing


async def answer(run: Run, decoder: Decoder, query: str | None) -> None:
    run.listener(StageStarted(Stage.ANSWER))
    await decoder.answer(run)
    if not run.sources:
        failed = f"the search failed: {run.search_error}" if run.search_error else ""
        run.end_early(failed or "nothing was found", Status.NO_EVIDENCE, by=run.ended_by)
    elif not cited_answer(run.trajectory("")).citations:
        if parse(run.text).all_missing():
            run.end_early("nothing that was found answers it", Status.NO_EVIDENCE, by="not_found")
        run.end_early("the answer cites no source", by="uncited")


async def verify(run: Run, decoder: Decoder, query: str | None) -> None:
    """Check every citation against the text of its source; the transcript is not changed.

    The model checks within the run's budgets; once one is spent, the rules check alone. A run has
    not finished if none of its claims holds, unless the rules say so alone: they know words only.
    """
    if (verifier := run.verifier) is None:
        return
    trajectory = run.trajectory("")
    by = run.ended_by if run.cut_in else run.spending.out()
    if not by:
        try:
            found, _ = await run.check(
                lambda calls: verifier.verify(trajectory, calls, run.listener, run.day)
            )
        except OutOfTime as end:
            by = end.by
    if by:
        since = run.reason if by == "failure" else reason_of(by, run.spending.budgets)
        why = f"no model checked the citations, since {since.rstrip('.')}"
        found = await asyncio.to_thread(verifier.by_rules, trajectory, why)
    run.verification = found
    verdicts = {check.verdict for check in found.checks}
    if verdicts == {"unsupported"} and found.checker != BY_RULES:
        run.end_early("no source supports what the answer says of it", by="unsupported")


STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (recall, clarify, plan, approve, consent, tools, research, review, answer, verify)
}


STAGE_OF_STEP = {"plan": Stage.PLAN, "review": Stage.REVIEW, "answer": Stage.ANSWER}
"""the stage in which a step fails; the others are research"""


def following(step: str, query: str | None) -> str:
    """The node after a step that returned this query: another plan, another search, or the next."""
    back = query is None if step == "approve" else step in ("research", "review") and bool(query)
    return WAYS[step][back]


async def take_step(run: Run, decoder: Decoder, name: str, query: str | None) -> str | None:
    """Run one node; a run that was cut passes through the rest without another call."""
    if run.cut_in is None or name == "verify":
        try:
            query = await STEPS[name](run, decoder, query)
        except RunCut as cut:
            await close(run, decoder, cut)
            query = ""  # after `approve`, None would ask for another plan
        except PolicyError as error:
            # What a server's model found before it failed is worth a report.
            if run.policy.chat is None or not run.evidence.own or name == "verify":
                raise
            run.charge(error)
            stage = STAGE_OF_STEP.get(name, Stage.RESEARCH)
            await close(run, decoder, RunCut("failure", stage, reason=error.told()))
            query = ""
    run.path.append(name)
    return query


PIECES_READ = 4
"""pieces of a page that are shown when it is read on"""
PAGES_WORTH = 2
"""passages shown of a page or a tool's result, for each passage that a search may show"""


async def act(run: Run, decoder: Decoder, action: str) -> Found:
    """Do what one line of the policy asks for; a line that names no tool is a query."""
    name, _, written = action.partition(" ")
    if name == OPEN_PAGE and written.strip():
        return await _open_page(run, written.strip())
    if run.equipped and name in run.equipped.allowed:
        return await _call_tool(run, run.equipped, name, written.strip())
    return await decoder.search(run, action)


async def _open_page(run: Run, wanted: str) -> Found:
    """Open a source: its id, title or address, then words to look for or `from` a passage's number.

    Counts as a tool call even if it is refused. With words those passages are shown that are
    nearest to them and to the question; else the page is read on from behind what was shown of it.
    """
    name, _, sought = _with_id(run, wanted).partition(" ")
    place, refusal = _permit(run, name)
    source = run.evidence.known(_id_of(name))

    async def read() -> dict[str, Any]:
        # A file of what is searched may be known from a link to it, or from a list.
        opened = place or ("" if normal(name) else name)
        web = normal(opened)
        if web and run.pages is not None:
            passages = await run.pages.read(web)
        else:
            passages = await page(run.search_tool, opened) if opened else []
        if not passages:
            said = f"{place} cannot be opened: what was found of it was shown."
            raise SourceError(refusal or said)
        date = _date_of(run, web)
        passages = [replace(p, date=p.date or date) for p in passages]
        word, _, told = sought.strip().lower().partition(" ")
        number = int(told) if word == "from" and told.isdecimal() and len(told) < 7 else None
        # In a thread: ranking takes a moment if the page is a book.
        if sought and number is None:
            return await asyncio.to_thread(_near, run, passages, sought)
        return _read_from(run, passages, name, source, number)

    behind = [] if sought or source is None else ["on", "from", _id_of(name)]
    asked = " ".join([place or name, *(sought.split() or behind)])
    failed = "The page was not opened."
    return await run.use(OPEN_PAGE, asked, "opening the page", read, note=failed)


def _near(run: Run, passages: Sequence[Passage], sought: str) -> dict[str, Any]:
    """The passages of a page that are nearest to words, in its order."""
    known = run.evidence.shown([*run.sources])
    ranked = nearest(passages, sought, run.ask.question)
    new = [row for row in ranked if unshown([passages[row]], known)] or ranked
    near = [passages[row] for row in sorted(new[:PIECES_READ])]
    rows = {passage: row for row, passage in enumerate(passages)}
    shown = widened(near, lambda p: (passages, rows[p]), run.passage_words, known)
    notes = ["These parts of the page are nearest to the question."] * (len(shown) < len(passages))
    best = [passages[ranked[0]]]
    above = [i for i, s in run.sources.items() if not unshown(best, {s.location: [s.text]})]
    notes += [f"The nearest of all stands above: {', '.join(above)}."] * bool(above)
    return reply_of(shown, note=" ".join(notes))


def _read_from(
    run: Run, passages: Sequence[Passage], name: str, source: Source | None, number: int | None
) -> dict[str, Any]:
    """A page from the passage of this number on; None: from behind what was shown of it."""
    first = max(number or 1, 1) - 1
    if number is None and source is not None:
        first = _behind(source, passages, source.id in run.sources)
    if first >= len(passages):
        raise SourceError(f"Its last passage is number {len(passages)}.")
    shown, last = read_on(passages, first, run.passage_words)
    note = f"Passages {first + 1} to {last} of {len(passages)}."
    if last < len(passages):
        note += f" It goes on: {OPEN_PAGE} {name} from {last + 1}"
    return reply_of(shown, note=note)


def _date_of(run: Run, web: str) -> str:
    """What a search told of the date of a page of the web."""
    known = (s for s in run.sources.values() if web in map(normal, (s.location, *s.copies)))
    return next((s.date for s in known if web and s.date), "")


def _behind(source: Source, passages: Sequence[Passage], shown: bool) -> int:
    """The first passage behind what was shown of a page as this source, else before it; or 0.

    The first of the source itself where it was not `shown`: only its conversation had found it.
    """
    held = {at for at, passage in enumerate(passages) if stands_in(passage.text, source.text)}
    behind = range(max(held, default=-1) + 1, len(passages)) if shown else sorted(held)
    return next((at for at in (*behind, *range(len(passages))) if at not in held or not shown), 0)


def read_on(passages: Sequence[Passage], first: int, words: int) -> tuple[list[Passage], int]:
    """What follows in a page, in pieces of at most `words` words under one heading each.

    With the number of the last passage that they hold.
    """
    pieces, at = list[Passage](), first
    while at < len(passages) and len(pieces) < PIECES_READ:
        end, held = at + 1, length(passages[at].text)
        while end < len(passages) and passages[end].place == passages[at].place:
            held += length(passages[end].text)
            if held > words:
                break
            end += 1
        pieces.append(joined(passages, range(at, end), at))
        at = end
    return pieces, at


def _with_id(run: Run, wanted: str) -> str:
    """The id of the one document of which this is the title or the file, else what was wanted."""
    name, every = fold(wanted), reversed(run.sources.values())
    found = {s.location: s.id for s in every if name in (fold(s.title), fold(s.location))}
    return [*found.values(), wanted][0] if len(found) == 1 else wanted


def _id_of(name: str) -> str:
    return name.strip("[].,").upper()


def _permit(run: Run, name: str) -> tuple[str, str]:
    """The place that a name refers to, and "" or the reason why it may not be opened.

    Only a source of the run, a file of what is searched here, or a page that the question names may
    be opened; an address that merely occurs in the text of a page may not, whatever that text says.
    """
    source = run.evidence.known(_id_of(name))
    if source is not None:
        return normal(source.location) or source.location, ""
    known = set(addresses_in(run.ask.question))
    for source in run.sources.values():
        known |= {normal(location) for location in (source.location, *source.copies)}
    address = normal(name)
    if address and address in known:
        return address, ""
    return "", "Only a page that a search returned, or whose address was given, can be opened."


MAY_HAVE_ACTED = "and may have acted then; it is not called again with the same words."


async def _call_tool(run: Run, tools: Equipped, name: str, written: str) -> Found:
    """Call a tool of an MCP server, like a search; what it returns can be cited."""

    async def call() -> dict[str, Any]:
        offer = await tools.offer(name)
        if tools.acts(name) and (why := run.consents.refusal(f"{name} {written}")):
            raise SourceError(why)
        if offer.acts:
            begun = run.key(f"begun\0{name}\0{written}")
            if run.journal.find(begun) is not None:
                raise SourceError(f"{name} was called before the run broke off, {MAY_HAVE_ACTED}")
            await run.journal.append(begun, {})
        passages, note = await tools.call(name, written)
        most = PAGES_WORTH * run.ask.passages
        rows = await asyncio.to_thread(nearest, passages, written, run.ask.question)
        shown = [passages[row] for row in sorted(rows[:most])]
        if (every := len(passages)) > len(shown):
            note += f" Of {every:,} passages these {len(shown)} are nearest to the call."
        return reply_of(shown, note=note.strip())

    return await run.use(name, written, f"the tool {name}", call, note="The tool gave nothing.")


V = TypeVar("V", bound=Value)


async def decide(run: Run, kind: type[V], asked: dict[str, Any], about: str = "") -> V:
    """A person's decision, from the journal or through an interrupt of the graph.

    `about`: tells several decisions of one turn apart.
    """
    key = run.key(f"person\0{asked['ask']}" + (f"\0{about}" if about else ""))
    kept, permit = run.journal.find(key), asked["ask"] == "permit"
    new = kept is None or (run.restored and permit)
    if new:
        from langgraph.types import interrupt

        decision = interrupt(asked)
        if run.spending.stop is not None and run.spending.stop.is_set():
            raise RunCut("interrupt", Stage.RESEARCH if permit else Stage.PLAN)
        kept = decision if isinstance(decision, dict) else {"text": str(decision)}
    try:
        decided = kind.model_validate(kept)
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"{part}: " for part in first["loc"])
        raise SettingsError(
            f"the decision of the person who asked cannot be read: {place}{first['msg']}.",
            'Send {"verdict": "approve"}, "reject" or "edit" with a plan; {"text": "..."}; or '
            '{"verdict": "once"}, "run", "always" or "never".',
        ) from error
    if new:  # what cannot be read is asked again by a resume
        await run.journal.append(key, decided.model_dump(mode="json"))
    return decided


DOUBT_TOKENS, REWRITE_TOKENS, LONGEST_REWRITE = 120, 200, 300
"""of a clarifying question; of a question that was reworded, and its characters"""


async def doubt_of(run: Run) -> str:
    """The policy's clarifying question, outside the transcript; "" if it has none."""
    form = INSTRUCTION[run.ask.answer_format]
    values = {"question": neutralise(run.ask.question), "format": form}
    asked = fill(template("clarify_question"), values)
    line = await _line_of(run, "clarify", asked, DOUBT_TOKENS)
    return line if "?" in line and not line.casefold().startswith("none") else ""


async def rewrite(run: Run) -> str:
    """The question as it can be searched for without its conversation, in the model's words.

    As it is where nothing but the policy itself searches, which has read the conversation, and no
    lesson is there to be found, nor to come.
    """
    question, needed = run.ask.question, run.recaller or run.decoding is Decoding.FORCED
    if not (run.background.turns and needed):
        return question
    bank = run.recaller if isinstance(run.recaller, BankRecaller) else None
    if run.decoding is Decoding.FREE and bank:
        kept = await run.once("in full", {"value": await bank.reads_in_full()})
        if not kept["value"]:
            return question
    asked = with_conversation(neutralise(question), run.background)
    try:
        line = await _line_of(run, "alone", f"{asked}\n\nThe question in full:", REWRITE_TOKENS)
    except RunCut:
        return question  # the next call is cut as well, once there is a transcript to close
    return line if 0 < len(line) <= LONGEST_REWRITE else question


async def _line_of(run: Run, name: str, asked: str, tokens: int) -> str:
    """The first line that the policy's model replies to a prompt, outside the transcript."""
    messages = [Message("system", template(name)), Message("user", asked)]
    sampling = Sampling(max_tokens=tokens, temperature=0.0)
    said = await run.aside(Stage.PLAN, messages, sampling, name)
    lines = split_thinking(said.text)[1].splitlines()
    return next((line.strip() for line in lines if line.strip()), "")


QUOTED = 8
"""at most so many passages are quoted: those that the policy named last, then some of each query"""
QUOTE_CHARACTERS = 400


async def close(run: Run, decoder: "Decoder", cut: RunCut) -> None:
    """Record what cut the run, and leave an answer that can be read."""
    run.cut_in = cut.stage
    await decoder.keep_cut(run, cut)
    run.attempt = 0
    # This ended the run, whatever went wrong before.
    run.status, run.ended_by = Status.PARTIAL, cut.by
    run.reason = cut.reason or reason_of(cut.by, run.spending.budgets)
    document = parse(run.text)
    if not answer_text(document):
        await _quote(run, SOURCE_ID.findall(document.last("state_evaluation")))
    elif not (answer := [b for b in document.blocks if b.tag == "answer"][-1]).closed:
        within = "</cite>" if answer.children and not answer.children[-1].closed else ""
        await run.prompt(Stage.ANSWER, f"{within}\n\n(The answer breaks off here.)\n</answer>\n")


async def _quote(run: Run, named: Sequence[str]) -> None:
    """In place of an answer, write the sentence of sources that is nearest to what was sought."""
    ranks = defaultdict[str, "count[int]"](count)
    found = sorted(run.evidence.own, key=lambda s: (s.id not in named, next(ranks[s.query])))
    said = "This is what had been found by then, quoted:" if found else "Nothing had been found."
    await run.prompt(Stage.ANSWER, f"\n<answer>\nNo answer was written. {said}\n")
    for source in found[:QUOTED]:
        text = closest_sentence(source.query, source.text) or source.text or source.title
        quote = neutralise(claim_of(text)[:QUOTE_CHARACTERS])
        await run.prompt(Stage.ANSWER, f'\n- <cite id="{source.id}">{quote}</cite>')
    await run.prompt(Stage.ANSWER, "\n</answer>\n")
