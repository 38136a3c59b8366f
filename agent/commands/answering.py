"""One question of the command line, from its settings to its trajectory.

What needs a person finds one on the terminal, or goes on without and says so.
"""

import asyncio
from contextlib import AsyncExitStack

import click

from agent.asking import Ask
from agent.commands.interrupting import Interrupts
from agent.events import Event, Listener
from agent.settings import Settings
from memory.schema import Trajectory


async def answered(
    settings: Settings, question: str, thread: str | None, quiet: bool, best_of: int = 1
) -> Trajectory:
    """Answer it; ^C once gives what there is, twice raises CancelledError.

    `best_of`: it is run so often, and a judge picks one; ^C then ends the run it is at.
    """
    from agent.researcher import new_thread

    thread = thread or new_thread()
    interrupts = Interrupts(lambda line: click.echo(line, err=True))
    with interrupts.caught():
        try:
            return await _answered(settings, question, thread, quiet, interrupts, best_of)
        except asyncio.CancelledError:
            click.echo(f"\nStopped. Go on with: rubricem ask --resume {thread}", err=True)
            raise


async def _answered(
    settings: Settings,
    question: str,
    thread: str,
    quiet: bool,
    interrupts: Interrupts,
    best_of: int,
) -> Trajectory:
    from agent.auto_source import settled, with_default_source
    from agent.choice import choose_policy
    from agent.clients import decoding_of, reserve
    from agent.reports.view import live_view

    told: list[Event] = []
    # A mistake in the flags is told before the web is probed.
    decoding_of(settings, choose_policy(settings))
    settings = await settled(with_default_source(settings), thread, told.append)
    wanted = reserve(settings, thread, question) if best_of == 1 else None
    with live_view(question, quiet=quiet) as listener:
        for event in told:
            listener(event)
        if wanted is None:
            from agent.best_of import ask_best

            return await ask_best(settings, question, thread, best_of, listener)
        return await _researched(settings, wanted, thread, listener, interrupts)


async def _researched(
    settings: Settings, wanted: Ask, thread: str, listener: Listener, interrupts: Interrupts
) -> Trajectory:
    from agent.clients import open_researcher

    async with AsyncExitStack() as stack:
        researcher = await stack.enter_async_context(open_researcher(settings, listener))
        if wanted.approve_plan or wanted.clarify:
            from agent.commands.terminal_person import person_here

            researcher.person, said = person_here(interrupts)
            if said:
                click.echo(said, err=True)
        if settings.checkpoints:
            from agent.checkpointing import open_saver

            saver = open_saver(settings.checkpoints.get_secret_value())
            researcher.saver = await stack.enter_async_context(saver)
        with interrupts.running() as stop:
            return await researcher.ask(wanted, thread, listener, stop)
