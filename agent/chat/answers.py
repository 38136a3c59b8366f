"""Commands on the latest answer: its plan, sources and citations, its scores, its file."""

from pathlib import Path

from rich.text import Text

from agent.approval import plan_of
from agent.chat.slash import Talk, Words, number_of
from agent.commands.interrupting import Interrupts
from agent.plan_text import as_text
from agent.reports.cited import Citation, CitedAnswer
from agent.reports.printable import one_line, printable
from agent.reports.report import SUFFIXES, whereabouts, write_report
from agent.scaffold import parse
from memory.errors import SettingsError
from memory.schema import CitationSupport, Source

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
        talk.terminal.say(_listed(answer, source))
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
    talk.terminal.say(_passage(source, [c.quote for c in answer.of(source)]))


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
    from agent.commands.rate import rate as command

    trajectory, _ = talk.answer()
    score, _, comment = argument.partition(" ")
    assert command.callback is not None
    command.callback(thread=trajectory.thread, score=score, comment=comment.strip())


async def judge(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """Have the stages of the latest run scored, as `rubricem judge score` does."""
    from agent.banking import open_bank
    from agent.judged_runs import find_run
    from agent.judging import open_group_judge
    from agent.judging_runs import check_scored, judged_groups, tell_bank
    from agent.learning import local_model
    from agent.reports.judged import print_judgement
    from judge.building import Wanted

    trajectory, _ = talk.answer()
    settings = talk.conversing.settings
    found = find_run(trajectory.thread, settings.data_dir)
    with talk.terminal.waiting("judging"):
        shared = local_model(talk.conversing.researcher.policy)
        async with open_group_judge(settings, Wanted(), shared=shared) as judging:
            judged = await judged_groups(judging, found, settings.data_dir)
    check_scored(judged)
    found.save(judged[0].judgements)
    await tell_bank(open_bank(settings), found, judged)
    print_judgement(trajectory, judged[0].judgements[0], talk.terminal.console)


def citations(talk: Talk) -> Words:
    """The numbers of the latest answer's citations."""
    if talk.conversing.last is None:
        return ()
    _, answer = talk.answer()
    return [(str(n), one_line(s.title, 60)) for n, s in enumerate(answer.sources, 1)]


def _listed(answer: CitedAnswer, source: Source) -> Text:
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


def _passage(source: Source, quotes: list[str]) -> Text:
    text = Text(printable(source.text), style="italic")
    for quote in filter(None, quotes):
        text.highlight_words([printable(quote)], "bold underline")
    return text
