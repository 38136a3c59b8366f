"""The inputs of the chat: a question, or a slash command.

Commands concern the latest answer (its plan, sources, citations, scores, its file), conversations
(list, open, branch, name, share, continue, begin), or other things (the memory, budgets, the model,
what is searched, help, leaving). Each is a function of the talk and its argument; they are listed
here in order.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from rubricem.agent.chat.session import Talk
from rubricem.agent.reports.cited import CitedAnswer
from rubricem.agent.reports.page import SUFFIXES, write_page, write_report
from rubricem.agent.reports.report import facts, markdown, recalled_lines, whereabouts
from rubricem.agent.settings import BUDGETS
from rubricem.agent.settings.door import models_on_offer
from rubricem.agent.settings.trust import BUILT_IN
from rubricem.agent.transcript.question import ShownPlan, check_question
from rubricem.agent.transcript.scaffold import parse
from rubricem.agent.weights.catalogue import lookup
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import CitationSupport, Source, Status, Trajectory
from rubricem.memory.text import one_line, pluralise, printable, storable

FAILED, PARTIAL = 1, 3
"""exit statuses, as those of `rubricem ask`"""
LISTED = 20
"""most conversations shown, the latest first"""
FOUND = 5
"""reflections shown by a search in the bank"""
CHAT_BUDGETS = {**BUDGETS, "searches": "tool_calls"}
"""the budgets of a question, with their settings"""
_VERDICTS: dict[CitationSupport, str] = {
    "supported": "green",
    "partial": "yellow",
    "unsupported": "red",
    "unchecked": "dim",
}
Words = Sequence[tuple[str, str]]
"""possible arguments, each with its meaning"""
Act = Callable[[Talk, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Command:
    """One slash command."""

    act: Act
    help: str
    takes: str
    words: Callable[[Talk], Words]


COMMANDS: dict[str, Command] = {}


def command(
    help: str, takes: str = "", words: Callable[[Talk], Words] = lambda talk: ()
) -> Callable[[Act], Act]:
    """Register a function as the command of its name."""

    def register(act: Act) -> Act:
        COMMANDS[act.__name__.rstrip("_")] = Command(act, help, takes, words)
        return act

    return register


@command(
    "show the plan; on: approve plans before they are followed",
    "[on|off]",
    lambda talk: (("on", "decide on each plan"), ("off", "follow plans unseen")),
)
async def plan(talk: Talk, argument: str) -> None:
    if argument:
        if argument not in ("on", "off"):
            raise SettingsError(
                f"{argument!r} is neither on nor off.", "Say /plan on or /plan off."
            )
        talk.change(approve_plan=argument == "on")
        said = "is shown to you before it is followed" if argument == "on" else "is followed unseen"
        talk.terminal.say(f"From the next question on the plan {said}.")
        return
    trajectory, _ = talk.answer()
    document = parse(trajectory.transcript())
    searches = [document.inner(call).strip() for call in document.find("call_tool")]
    talk.terminal.say(ShownPlan.of(document.text, searches[0] if searches else "").text())


@command("list what was found, and what is cited")
async def sources(talk: Talk, argument: str) -> None:
    trajectory, answer = talk.answer()
    for source in answer.sources:
        talk.terminal.say(_source_line(answer, source))
    cited = {source.id for source in answer.sources}
    for source in (each for each in trajectory.sources if each.id not in cited):
        talk.terminal.say(f" {source.id:>3}  {one_line(source.title, 90)}", style="dim")
    if not trajectory.sources:
        talk.terminal.say("The answer rests on no source.")


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


def citations(talk: Talk) -> Words:
    """The numbers of the latest answer's citations."""
    if talk.last is None:
        return ()
    _, answer = talk.answer()
    return [(str(n), one_line(s.title, 60)) for n, s in enumerate(answer.sources, 1)]


@command("show a citation: claim, verdict, passage, page", "N", citations)
async def cite(talk: Talk, argument: str) -> None:
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
        why = f": {one_line(citation.reason)}" if citation.reason else ""
        verdict = f"{citation.verdict}{why}", _VERDICTS[citation.verdict]
        mark = f"[{citation.number}] ", "cyan"
        talk.terminal.say(Text.assemble(mark, one_line(citation.claim), "\n    ", verdict))
    where = [one_line(source.title), *whereabouts(source), f"found by {one_line(source.query)!r}"]
    talk.terminal.say(f"{source.id}: {' - '.join(filter(None, where))}", style="bold")
    passage = Text(printable(source.text), style="italic")
    for citation in answer.of(source):
        passage.highlight_words(list(map(printable, citation.quotes)), "bold underline")
    talk.terminal.say(passage)


@command("lessons of earlier runs: recalled here, or near to words", "[WORDS]")
async def bank(talk: Talk, argument: str) -> None:
    held = talk.setup.stores.open_bank(talk.terminal.hear)
    if argument:
        with talk.terminal.waiting("looking it up"):
            matches = await held.search(storable(argument), FOUND)
        for match in matches:
            found = match.reflection
            talk.terminal.say(
                f"{match.similarity:5.2f}  {found.id}  {one_line(found.question, 80)}"
            )
        if not matches:
            talk.terminal.say("The bank has nothing that could be recalled.")
        return
    stats = await held.stats()
    lessons, left = stats.live - stats.episodes, stats.episodes
    talk.terminal.say(
        f"{lessons} reflection{'s' * (lessons != 1)} and {left} episode{'s' * (left != 1)} of "
        f"earlier runs; {stats.quarantined} more in quarantine."
    )
    last = talk.last
    lines = recalled_lines(last) if last and last.recalled else []
    for line in lines:
        talk.terminal.say(f"  - {line}", style="dim")
    if last and not lines:
        talk.terminal.say("None of them was given to the latest answer.")


@command("score the stages of the latest run")
async def judge(talk: Talk, argument: str) -> None:
    from rubricem.agent.learning.scoring import score_run
    from rubricem.agent.reports.display import print_judgement

    trajectory, _ = talk.answer()
    with talk.terminal.waiting("judging"):
        shared = talk.researcher.policy.reader
        judgement = await score_run(talk.setup, trajectory.thread, shared)
    print_judgement(trajectory, judgement, talk.terminal.console)


@command(
    "rate the answer, 1 to 5; the judge of its lessons sees it",
    "N [COMMENT]",
    lambda talk: (("1", "of no use"), ("3", ""), ("5", "just what was asked for")),
)
async def rate(talk: Talk, argument: str) -> None:
    from rubricem.agent.cli.learn import rate as command

    trajectory, _ = talk.answer()
    score, _, comment = argument.partition(" ")
    assert command.callback is not None
    command.callback(thread=trajectory.thread, score=score, comment=comment.strip())


def budgets(talk: Talk) -> Words:
    """The budgets, with the limits in force."""
    settings = talk.settings
    return [(name, f"now {getattr(settings, setting):g}") for name, setting in CHAT_BUDGETS.items()]


@command("show or set the limits of a question", "[NAME VALUE]", budgets)
async def budget(talk: Talk, argument: str) -> None:
    if argument:
        name, _, value = argument.partition(" ")
        if name not in CHAT_BUDGETS or not value.strip():
            raise SettingsError(
                f"{one_line(argument, 40)!r} sets no budget.",
                f"Say for example /budget seconds 60; there are {', '.join(CHAT_BUDGETS)}.",
            )
        talk.change(**{CHAT_BUDGETS[name]: value.strip()})
    limits = talk.setup.budgets.phrases().values()
    said = ", ".join([f"{talk.settings.tool_calls} searches", *limits])
    talk.terminal.say(f"A question may take {said}.")
    if talk.last:
        talk.terminal.say(f"The latest: {', '.join(facts(talk.last))}.")


def models(talk: Talk) -> Words:
    """The available models, the one in the settings first."""
    return [(name, "") for name in models_on_offer(talk.settings) if name]


@command("show or set the model that answers", "[NAME]", models)
async def model(talk: Talk, argument: str) -> None:
    if argument:
        server = None if lookup(argument) else talk.settings.base_url
        named = {"model": argument, "base_url": server}
        await talk.reopen(**models_on_offer(talk.settings).get(argument, named))
    talk.terminal.say(f"The next question is answered by {talk.researcher.policy.name}.")


def kinds(talk: Talk) -> Words:
    """The sources that need no path or address."""
    return [(name, "") for name in BUILT_IN]


@command("show or set what is searched: names, folders, addresses", "[NAME ...]", kinds)
async def source(talk: Talk, argument: str) -> None:
    if argument:
        try:
            names = tuple(shlex.split(argument))
        except ValueError as cause:
            raise SettingsError(
                "A quotation mark is not closed.", "Quote a folder whose name has spaces."
            ) from cause
        await talk.reopen(source=names)
    searched = ", ".join(map(str, talk.researcher.choices.get("source", ())))
    talk.terminal.say(f"The next question is searched for in {searched}.")


@command("write the thread's questions and answers into one page", "[FILE.html]")
async def share(talk: Talk, argument: str) -> None:
    answered = [talk.store.load(run) for run in talk.runs if talk.store.has_ended(run)]
    if talk.conversation is None or not answered:
        raise SettingsError("There is no answer in this thread yet.", "Ask a question first.")
    path = Path(argument or f"rubricem-{talk.conversation.id}.html").expanduser()
    write_page(answered, talk.title(), path)
    talk.terminal.say(f"written: {path}")


@command(
    "write the report into a file",
    "md|html|json|FILE",
    lambda talk: (
        ("md", "Markdown"),
        ("html", "a page"),
        ("json", "the whole run"),
    ),
)
async def export(talk: Talk, argument: str) -> None:
    trajectory, _ = talk.answer()
    name = argument or "md"
    if name.startswith(".") or f".{name}" in SUFFIXES:
        name = f"rubricem-{trajectory.thread}.{name.removeprefix('.')}"
    path = Path(name).expanduser()
    write_report(trajectory, path)
    talk.terminal.say(f"written: {path}")


@command("copy the report as Markdown, if the terminal lets programs copy")
async def copy(talk: Talk, argument: str) -> None:
    trajectory, _ = talk.answer()
    talk.terminal.copy(markdown(trajectory))
    talk.terminal.say("copied; where nothing was: /export md")


def names(talk: Talk) -> Words:
    """Every conversation, with its subject."""
    listing = talk.conversations.list_all()
    return [(each.id, one_line(talk.title(each), 50)) for each in listing.conversations[:LISTED]]


@command("list the threads, or open one", "[THREAD]", names)
async def threads(talk: Talk, argument: str) -> None:
    listing = await asyncio.to_thread(talk.conversations.list_all)
    if argument:
        known = [each.id for each in listing.conversations]
        fitting = [name for name in known if name.startswith(argument)]
        if argument in known:
            fitting = [argument]
        elif is_number(argument) and 1 <= int(argument) <= len(known):
            fitting = [known[int(argument) - 1]]
        await talk.enter(fitting[0] if len(fitting) == 1 else argument)
        return
    here = talk.conversation
    for number, each in enumerate(listing.conversations[:LISTED], 1):
        mark = "*" if here and here.id == each.id else " "
        when = each.changed_at.astimezone().strftime("%Y-%m-%d %H:%M")
        count = pluralise(len(each.runs), "question")
        about = one_line(talk.title(each), 60)
        branch = "  (branch)" if each.parent else ""
        talk.terminal.say(f"{mark}{number:>3}  {each.id}  {when}  {count:<12} {about}{branch}")
    for problem in listing.problems:
        talk.terminal.tell(problem)
    if not listing.conversations:
        talk.terminal.say("There is no thread yet: ask a question.")


@command("resume the interrupted run, here or in another thread", "[THREAD]", names)
async def resume(talk: Talk, argument: str) -> None:
    here = argument in talk.runs
    if argument and not here:
        await threads(talk, argument)
    run = argument if here else None
    run = run or await asyncio.to_thread(talk.find_unfinished)
    if run is None:
        raise SettingsError(
            "There is nothing to resume: every question here has ended.",
            "/threads lists the other threads.",
        )
    await go_on(talk, run)


def numbers(talk: Talk) -> Words:
    """The conversation's questions by their numbers."""
    questions = talk.questions()
    return [(str(n), one_line(question, 50)) for n, (question, _) in enumerate(questions, 1)]


@command("continue from question N in a new thread", "[N]", numbers)
async def branch(talk: Talk, argument: str) -> None:
    number = number_of(argument, "a question of this thread") if argument else None
    branched = await talk.branch(number)
    count = pluralise(len(branched.runs), "question")
    talk.terminal.say(f"A branch of {count}; the other thread stays as it is.")


@command("give the thread a title", "TITLE")
async def rename(talk: Talk, argument: str) -> None:
    if talk.conversation is None:
        raise SettingsError("There is no thread yet.", "Ask a question first.")
    talk.conversation = await asyncio.to_thread(
        talk.conversations.rename, talk.conversation.id, argument
    )
    talk.terminal.say(f"The thread is called: {talk.title()}")


@command("begin a new thread")
async def new(talk: Talk, argument: str) -> None:
    talk.leave()
    talk.terminal.say("The next question begins a new thread.")


@command("this list")
async def help_(talk: Talk, argument: str) -> None:
    for name, command in COMMANDS.items():
        takes = f"/{name} {command.takes}".rstrip()
        talk.terminal.say(Text.assemble((f"  {takes:<26}", "cyan"), command.help))
    talk.terminal.say(
        "Enter asks, Alt-Enter begins a new line, Tab completes, arrows go through the history. "
        "^C ends a run with what there is, ^C again abandons it, ^D leaves.",
        style="dim",
    )


@command("leave; the thread stays (also ^D)")
async def quit_(talk: Talk, argument: str) -> None:
    talk.over = True


async def ask(talk: Talk, question: str) -> None:
    question = check_question(question)
    with talk.terminal.watching(question) as watch:
        ended = await talk.ask(question, watch)
    show(talk, ended)


async def go_on(talk: Talk, run: str) -> None:
    request = await asyncio.to_thread(talk.store.request, run)
    with talk.terminal.watching(request["ask"]["question"]) as watch:
        ended = await talk.go_on(run, watch)
    show(talk, ended)


def show(talk: Talk, ended: Trajectory) -> None:
    """Print the report, or why there is none; and how to continue a run that ended early."""
    from rubricem.agent.reports.display import print_report

    if ended.status is Status.FAILED:
        talk.worst = FAILED
        talk.terminal.tell(f"error: {ended.reason}")
        talk.terminal.tell("Once that is fixed, continue with: /resume")
        return
    print_report(ended, talk.terminal.console, titled=not talk.terminal.attended)
    if ended.status is Status.PARTIAL:
        talk.worst = talk.worst or PARTIAL
        if ended.ended_by in BUDGETS:
            talk.terminal.tell(f"Continue with more: /budget {ended.ended_by} ..., then /resume")
        else:
            talk.terminal.tell("Continue with: /resume")


def number_of(text: str, what: str) -> int:
    """A whole number; raises SettingsError that says what was expected."""
    if not is_number(text):
        shown = one_line(text, 40)
        raise SettingsError(f"{shown!r} is no number of {what}.", f"Give the number of {what}.")
    return int(text)


def is_number(text: str) -> bool:
    """Whether a text is a whole number small enough for a list."""
    return text.isascii() and text.isdigit() and len(text) <= 9
