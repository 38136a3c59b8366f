"""Commands beside the answers: the memory, the budgets, help, and leaving."""

from rich.text import Text

from agent.chat.slash import Talk, Words
from agent.clients import budgets_of
from agent.commands.interrupting import Interrupts
from agent.reports.printable import one_line
from agent.reports.recalled import recalled_lines
from agent.reports.report import facts
from memory.errors import SettingsError
from memory.text import storable

FOUND = 5
"""reflections that a search in the bank shows"""
BUDGETS = {
    "tokens": "max_total_tokens",
    "seconds": "max_seconds",
    "cost": "max_cost",
    "searches": "tool_calls",
}
"""what a question may take, by its setting"""


async def bank(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """Show what earlier runs taught: what the latest answer was given, or what is near to words."""
    from agent.banking import open_bank

    held = open_bank(talk.conversing.settings, talk.terminal.hear)
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
        if name not in BUDGETS or not value.strip():
            raise SettingsError(
                f"{one_line(argument, 40)!r} sets no budget.",
                f"Say for example /budget seconds 60; there are {', '.join(BUDGETS)}.",
            )
        talk.conversing.change(**{BUDGETS[name]: value.strip()})
    settings, last = talk.conversing.settings, talk.conversing.last
    limits = [f"{settings.tool_calls} searches", *budgets_of(settings).phrases().values()]
    talk.terminal.say(f"A question may take {', '.join(limits)}.")
    if last:
        talk.terminal.say(f"The latest: {', '.join(facts(last))}.")


async def help_(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """List the commands and the keys."""
    from agent.chat.commands import COMMANDS

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
    return [(name, f"now {getattr(settings, setting):g}") for name, setting in BUDGETS.items()]
