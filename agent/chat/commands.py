"""What is entered in the chat: a question, or a slash command of the table at the end.

Commands are on the latest answer (its plan, sources, citations, scores, its file), on threads
(listed, opened, branched, named, gone on with, begun), and beside both (the memory, the budgets,
help, leaving). Each is a function of the talk, of its argument and of ^C as it is heard now.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.text import Text

from rubricem.agent.chat.session import Conversing, Terminal
from rubricem.agent.cli.ask import BUDGETS
from rubricem.agent.cli.options import counted
from rubricem.agent.cli.terminal import Interrupts
from rubricem.agent.reports.cited import Citation, CitedAnswer
from rubricem.agent.reports.page import SUFFIXES, write_report
from rubricem.agent.reports.report import facts, recalled_lines, whereabouts
from rubricem.agent.research.graph import as_text, plan_of
from rubricem.agent.research.question import checked
from rubricem.agent.research.scaffold import parse
from rubricem.agent.research.threads import Conversation
from rubricem.agent.settings.door import budgets_of
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import CitationSupport, Source, Status, Trajectory
from rubricem.memory.text import one_line, printable, storable

MOST_DIGITS = 9
Words = Sequence[tuple[str, str]]
"""words that an argument may be, each with what it stands for"""


@dataclass
class Talk:
    """What a command works on: the thread, the terminal, and ^C as it is heard now."""

    conversing: Conversing
    terminal: Terminal
    over: bool = False
    """the person has left"""
    worst: int = 0
    """exit status of the worst that happened"""

    def answer(self) -> tuple[Trajectory, CitedAnswer]:
        """The latest answer of the thread; raises SettingsError where there is none yet."""
        from rubricem.agent.reports.cited import cited_answer

        if self.conversing.last is None:
            raise SettingsError("There is no answer in this thread yet.", "Ask a question first.")
        return self.conversing.last, cited_answer(self.conversing.last)


Act = Callable[[Talk, str, Interrupts], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Command:
    """One slash command."""

    act: Act
    help: str
    takes: str = ""
    words: Callable[[Talk], Words] = field(default=lambda talk: ())


def number_of(text: str, what: str) -> int:
    """A whole number; raises SettingsError that says what it should have been."""
    if not is_number(text):
        shown = one_line(text, 40)
        raise SettingsError(f"{shown!r} is no number of {what}.", f"Give the number of {what}.")
    return int(text)


def is_number(text: str) -> bool:
    """Whether a text is a whole number of what a list could hold."""
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS


_VERDICTS: dict[CitationSupport, str] = {
    "supported": "green",
    "partial": "yellow",
    "unsupported": "red",
    "unchecked": "dim",
}


async def plan(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """Show the latest plan, or say whether plans are to be approved."""
    if argument:
        if argument not in ("on", "off"):
            raise SettingsError(
                f"{argument!r} is neither on nor off.", "Say /plan on or /plan off."
            )
        talk.conversing.change(approve_plan=argument == "on")
        said = "is shown to you before it is followed" if argument == "on" else "is followed unseen"
        talk.terminal.say(f"From the next question on the plan {said}.")
        return
    trajectory, _ = talk.answer()
    document = parse(trajectory.transcript())
    searches = [document.inner(call).strip() for call in document.find("call_tool")]
    talk.terminal.say(as_text(plan_of(document.text, searches[0] if searches else "")))


async def sources(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """List what the answer cites, and what was found besides."""
    trajectory, answer = talk.answer()
    for source in answer.sources:
        talk.terminal.say(_source_line(answer, source))
    cited = {source.id for source in answer.sources}
    for source in (each for each in trajectory.sources if each.id not in cited):
        talk.terminal.say(f" {source.id:>3}  {one_line(source.title, 90)}", style="dim")
    if not trajectory.sources:
        talk.terminal.say("The answer rests on no source.")


async def cite(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """Show a citation: what is claimed, whether it holds, and the whole passage."""
    trajectory, answer = talk.answer()
    known = {source.id: source for source in trajectory.sources}
    if argument.upper() in known:
        source = known[argument.upper()]
    else:
        number = number_of(argument.strip("[]"), "a citation, such as /cite 1")
        if not 1 <= number <= len(answer.sources):
            raise SettingsError(
                f"The answer has no citation {number}.", f"It has {len(answer.sources)}: /sources"
            )
        source = answer.sources[number - 1]
    for citation in answer.of(source):
        talk.terminal.say(_claim(citation))
    where = [one_line(source.title), *whereabouts(source), f"found by {one_line(source.query)!r}"]
    talk.terminal.say(f"{source.id}: {' - '.join(filter(None, where))}", style="bold")
    passage = Text(printable(source.text), style="italic")
    for citation in answer.of(source):
        if citation.quote:
            passage.highlight_words([printable(citation.quote)], "bold underline")
    talk.terminal.say(passage)


async def export(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """Write the answer's report into a file of its own name, or of the name given."""
    trajectory, _ = talk.answer()
    name = argument or "md"
    if name.startswith(".") or f".{name}" in SUFFIXES:
        name = f"rubricem-{trajectory.thread}.{name.removeprefix('.')}"
    path = Path(name).expanduser()
    write_report(trajectory, path)
    talk.terminal.say(f"written: {path}")


async def rate(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """Rate the answer, as `rubricem rate` does."""
    from rubricem.agent.cli.learn import rate as command

    trajectory, _ = talk.answer()
    score, _, comment = argument.partition(" ")
    assert command.callback is not None
    command.callback(thread=trajectory.thread, score=score, comment=comment.strip())


async def judge(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """Have the stages of the latest run scored, as `rubricem judge score` does."""
    from rubricem.agent.learning.scoring import find_run, open_group_judge, score
    from rubricem.agent.reports.display import print_judgement
    from rubricem.agent.research.setup import open_bank
    from rubricem.agent.settings.door import model_of, stores_of
    from rubricem.judge.build import Wanted

    trajectory, _ = talk.answer()
    settings = talk.conversing.settings
    choice, stores = model_of(settings), stores_of(settings)
    found = find_run(trajectory.thread, stores.data_dir)
    shared, replies = talk.conversing.researcher.policy.reader, stores.data_dir / "replies"
    with talk.terminal.waiting("judging"):
        async with open_group_judge(choice, Wanted(), replies, shared=shared) as judging:
            judged = await score(judging, found, stores, open_bank(stores))
    print_judgement(trajectory, judged[0].judgements[0], talk.terminal.console)


def citations(talk: Talk) -> Words:
    """The numbers of the latest answer's citations."""
    if talk.conversing.last is None:
        return ()
    _, answer = talk.answer()
    return [(str(n), one_line(s.title, 60)) for n, s in enumerate(answer.sources, 1)]


def _source_line(answer: CitedAnswer, source: Source) -> Text:
    found = answer.of(source)
    text = Text.assemble(
        (f"[{found[0].number}]", "cyan"),
        (f" {source.id:>3}  ", "dim"),
        one_line(source.title, 90),
        (f"\n          {', '.join(whereabouts(source))}\n         ", "dim"),
    )
    for verdict in dict.fromkeys(citation.verdict for citation in found):
        times = sum(citation.verdict == verdict for citation in found)
        text.append(f" {times} {verdict}", _VERDICTS[verdict])
    return text


def _claim(citation: Citation) -> Text:
    said = f"{citation.verdict}{f': {one_line(citation.reason)}' if citation.reason else ''}"
    return Text.assemble(
        (f"[{citation.number}] ", "cyan"),
        one_line(citation.claim),
        "\n    ",
        (said, _VERDICTS[citation.verdict]),
    )


FOUND = 5
"""reflections that a search in the bank shows"""
CHAT_BUDGETS = {
    "tokens": "max_total_tokens",
    "seconds": "max_seconds",
    "cost": "max_cost",
    "searches": "tool_calls",
}
"""what a question may take, by its setting"""


async def bank(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """Show what earlier runs taught: what the latest answer was given, or what is near to words."""
    from rubricem.agent.research.setup import open_bank
    from rubricem.agent.settings.door import stores_of

    held = open_bank(stores_of(talk.conversing.settings), talk.terminal.hear)
    if argument:
        with talk.terminal.waiting("looking it up"):
            matches = await held.search(storable(argument), FOUND)
        for match in matches:
            found = match.reflection
            talk.terminal.say(
                f"{match.similarity:5.2f}  {found.id}  {one_line(found.question, 80)}"
            )
        if not matches:
            talk.terminal.say("There is nothing in the bank that could be recalled.")
        return
    stats = await held.stats()
    talk.terminal.say(f"{stats.live} reflections, {stats.quarantined} more in quarantine.")
    last = talk.conversing.last
    lines = recalled_lines(last) if last and last.recalled else []
    for line in lines:
        talk.terminal.say(f"  - {line}", style="dim")
    if last and not lines:
        talk.terminal.say("The latest answer was given none of them.")


async def budget(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """Show what a question may take, or change it."""
    if argument:
        name, _, value = argument.partition(" ")
        if name not in CHAT_BUDGETS or not value.strip():
            raise SettingsError(
                f"{one_line(argument, 40)!r} sets no budget.",
                f"Say for example /budget seconds 60; there are {', '.join(CHAT_BUDGETS)}.",
            )
        talk.conversing.change(**{CHAT_BUDGETS[name]: value.strip()})
    settings, last = talk.conversing.settings, talk.conversing.last
    limits = [f"{settings.tool_calls} searches", *budgets_of(settings).phrases().values()]
    talk.terminal.say(f"A question may take {', '.join(limits)}.")
    if last:
        talk.terminal.say(f"The latest: {', '.join(facts(last))}.")


async def help_(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """List the commands and the keys."""
    for name, command in COMMANDS.items():
        takes = f"/{name} {command.takes}".rstrip()
        talk.terminal.say(Text.assemble((f"  {takes:<26}", "cyan"), command.help))
    talk.terminal.say(
        "Enter asks, Alt-Enter begins a new line, Tab completes, arrows go through the history. "
        "^C ends a run with what there is, ^C again abandons it, ^D leaves.",
        style="dim",
    )


async def quit_(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """Leave; the thread stays."""
    talk.over = True


def budgets(talk: Talk) -> Words:
    """What may be limited, with the limits in force."""
    settings = talk.conversing.settings
    return [(name, f"now {getattr(settings, setting):g}") for name, setting in CHAT_BUDGETS.items()]


FAILED, PARTIAL = 1, 3
"""exit statuses, as those of `rubricem ask`"""


async def ask(talk: Talk, question: str, interrupts: Interrupts) -> None:
    """Ask the next question of the thread and show its report."""
    question = checked(question)
    with talk.terminal.watching(question, interrupts) as watch:
        ended = await talk.conversing.ask(question, watch)
    show(talk, ended)


async def go_on(talk: Talk, run: str, interrupts: Interrupts) -> None:
    """Go on with a run and show its report."""
    request = await asyncio.to_thread(talk.conversing.researcher.store.request, run)
    with talk.terminal.watching(request["ask"]["question"], interrupts) as watch:
        ended = await talk.conversing.go_on(run, watch)
    show(talk, ended)


def show(talk: Talk, ended: Trajectory) -> None:
    """The report, or why there is none; and how it goes on where it ended early."""
    from rubricem.agent.reports.display import print_report

    if ended.status is Status.FAILED:
        talk.worst = FAILED
        talk.terminal.tell(f"error: {ended.reason}")
        talk.terminal.tell("Once that is mended, go on with: /resume")
        return
    print_report(ended, talk.terminal.console, titled=not talk.terminal.attended)
    if ended.status is Status.PARTIAL:
        talk.worst = talk.worst or PARTIAL
        if ended.ended_by in BUDGETS:
            talk.terminal.tell(f"Go on with more: /budget {ended.ended_by} ..., then /resume")
        else:
            talk.terminal.tell("Go on with it: /resume")


LISTED = 20
"""threads shown at most, the one talked in last first"""


async def threads(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """List the threads, or open one by its name or number in the list."""
    listing = await asyncio.to_thread(talk.conversing.conversations.listed)
    if argument:
        await open_thread(talk, _thread_named(listing.conversations, argument))
        return
    here = talk.conversing.thread
    for number, thread in enumerate(listing.conversations[:LISTED], 1):
        mark = "*" if here and here.id == thread.id else " "
        when = thread.changed_at.astimezone().strftime("%Y-%m-%d %H:%M")
        count = counted(len(thread.runs), "question")
        about = one_line(talk.conversing.title(thread), 60)
        branch = "  (branch)" if thread.parent else ""
        talk.terminal.say(f"{mark}{number:>3}  {thread.id}  {when}  {count:<12} {about}{branch}")
    for problem in listing.problems:
        talk.terminal.tell(problem)
    if not listing.conversations:
        talk.terminal.say("There is no thread yet: ask a question.")


async def open_thread(talk: Talk, identifier: str) -> None:
    """Go into a thread and say what was asked in it."""
    problems = await talk.conversing.open(identifier)
    thread = talk.conversing.thread
    assert thread is not None
    talk.terminal.say(one_line(talk.conversing.title(thread)), style="bold")
    questions = await asyncio.to_thread(talk.conversing.questions)
    for number, (question, status) in enumerate(questions, 1):
        talk.terminal.say(f"{number:>3}  {one_line(question, 80)}  ({status})")
    for problem in problems:
        talk.terminal.tell(problem)
    if await asyncio.to_thread(talk.conversing.unfinished):
        talk.terminal.say("/resume goes on with the question that has not come to its end.")


async def resume(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """Go on with a run that was interrupted, failed or ran out of a budget."""
    thread = talk.conversing.thread
    if argument and not (thread and argument in thread.runs):
        await threads(talk, argument, interrupts)
    run = argument if thread and argument in thread.runs else None
    run = run or await asyncio.to_thread(talk.conversing.unfinished)
    if run is None:
        raise SettingsError(
            "There is nothing to go on with: every question here has come to its end.",
            "/threads lists the other threads.",
        )
    await go_on(talk, run, interrupts)


async def branch(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """Go on from an earlier question in a thread of its own."""
    number = number_of(argument, "a question of this thread") if argument else None
    branched = await talk.conversing.branch(number)
    count = counted(len(branched.runs), "question")
    talk.terminal.say(f"A branch of {count}; the other thread stays as it is.")


async def rename(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """Give the thread a title."""
    if talk.conversing.thread is None:
        raise SettingsError("There is no thread yet.", "Ask a question first.")
    thread = await asyncio.to_thread(
        talk.conversing.conversations.rename, talk.conversing.thread.id, argument
    )
    talk.conversing.thread = thread
    talk.terminal.say(f"The thread is called: {talk.conversing.title(thread)}")


async def new(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """Let the next question begin a thread."""
    talk.conversing.leave()
    talk.terminal.say("The next question begins a new thread.")


def names(talk: Talk) -> Words:
    """Every thread, with what it is about."""
    listing = talk.conversing.conversations.listed()
    return [
        (thread.id, one_line(talk.conversing.title(thread), 50))
        for thread in listing.conversations[:LISTED]
    ]


def numbers(talk: Talk) -> Words:
    """The thread's questions by their numbers."""
    questions = talk.conversing.questions()
    return [(str(n), one_line(question, 50)) for n, (question, _) in enumerate(questions, 1)]


def _thread_named(known: tuple[Conversation, ...], name: str) -> str:
    """The id that a name or number in the list means."""
    if any(thread.id == name for thread in known):
        return name
    if is_number(name) and 1 <= int(name) <= len(known):
        return known[int(name) - 1].id
    beginning = [thread.id for thread in known if thread.id.startswith(name)]
    return beginning[0] if len(beginning) == 1 else name


COMMANDS: dict[str, Command] = {
    "plan": Command(
        plan,
        "show the plan; on: decide on plans before they are followed",
        "[on|off]",
        lambda talk: (("on", "decide on each plan"), ("off", "follow plans unseen")),
    ),
    "sources": Command(sources, "list what was found, and what is cited"),
    "cite": Command(cite, "show a citation: claim, verdict, passage, page", "N", citations),
    "bank": Command(bank, "what earlier runs taught: recalled here, or near to words", "[WORDS]"),
    "judge": Command(judge, "score the stages of the latest run"),
    "rate": Command(
        rate,
        "rate the answer, 1 to 5, for whoever judges what it taught",
        "N [COMMENT]",
        lambda talk: (("1", "of no use"), ("3", ""), ("5", "just what was asked for")),
    ),
    "budget": Command(budget, "show or set what a question may take", "[NAME VALUE]", budgets),
    "export": Command(
        export,
        "write the report into a file",
        "md|html|json|FILE",
        lambda talk: (("md", "Markdown"), ("html", "a page"), ("json", "the whole run")),
    ),
    "threads": Command(threads, "list the threads, or open one", "[THREAD]", names),
    "resume": Command(
        resume,
        "go on with the run that was interrupted, here or in another thread",
        "[THREAD]",
        names,
    ),
    "branch": Command(branch, "go on from question N in a thread of its own", "[N]", numbers),
    "rename": Command(rename, "give the thread a title", "TITLE"),
    "new": Command(new, "begin a new thread"),
    "help": Command(help_, "this list"),
    "quit": Command(quit_, "leave; the thread stays (also ^D)"),
}
