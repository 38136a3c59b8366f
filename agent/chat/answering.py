"""A question asked or gone on with in the chat: watched, shown, and its end told."""

import asyncio

from agent.chat.slash import Talk
from agent.commands.interrupting import Interrupts
from agent.commands.resuming import BUDGETS
from agent.question import checked
from memory.schema import Status, Trajectory

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
    from agent.reports.view import print_report

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
