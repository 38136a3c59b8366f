"""`rubricem judge rubrics from-search`: criteria for a question before anybody has answered it."""

import asyncio
from typing import TYPE_CHECKING, Any

import click

from agent.question import checked
from agent.settings import Settings, load_settings

if TYPE_CHECKING:
    from judge.first_rubrics import FirstRubrics


@click.command("from-search")
@click.argument("question", nargs=-1)
@click.option("--source", multiple=True, help="`python`, or a folder of documents; repeatable.")
@click.option("--no-search", is_flag=True, help="Make them from the question alone.")
@click.option("--model", help="The judge: 1.5b, 0.5b, a .gguf file, or a server's model.")
@click.option("--base-url", metavar="URL", help="An OpenAI-compatible server to ask instead.")
def from_search(question: tuple[str, ...], no_search: bool, **flags: Any) -> None:
    """Make criteria for each stage of QUESTION from what a search finds; they are kept for good."""
    from agent.reports.printable import one_line

    made = asyncio.run(_made(load_settings(flags), checked(" ".join(question)), not no_search))
    for change in made.buffer.history:
        click.echo(f"{change.stage:9} {one_line(change.criterion.description)}")
    for note in made.notes:
        click.echo(f"note: {note}", err=True)
    click.echo(f"{len(made.buffer.history)} criteria, after {made.passages} passages")


async def _made(settings: Settings, question: str, searching: bool) -> "FirstRubrics":
    from agent.events import ignore
    from agent.judging import open_judge_model
    from agent.opened_sources import open_sources
    from judge.building import proposer
    from judge.first_rubrics import first_rubrics
    from memory.buffers import BufferStore

    store = BufferStore(settings.data_dir / "buffers")
    buffer = await asyncio.to_thread(store.load, question)
    search = await open_sources(settings, ignore) if searching else None
    async with open_judge_model(settings) as model:
        made = await first_rubrics(buffer, proposer(model), search)
    await asyncio.to_thread(store.save, made.buffer)
    return made
