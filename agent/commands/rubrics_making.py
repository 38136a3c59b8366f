"""`rubricem judge rubrics make`: a checklist for a question, before any run of it is judged."""

import asyncio
from pathlib import Path
from typing import Any

import click

from agent.settings import Settings, load_settings
from memory.errors import SettingsError
from memory.rubrics import RubricBuffer


@click.command()
@click.argument("question")
@click.option(
    "--answer",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A good answer to go by; else the model writes one first.",
)
@click.option("--model", help="Who writes: 1.5b, 0.5b, a .gguf file, or a server's model.")
@click.option("--base-url", metavar="URL", help="An OpenAI-compatible server to ask instead.")
def make(question: str, answer: Path | None, **flags: Any) -> None:
    """Write a checklist with points for the answer to QUESTION, which is never pruned."""
    from agent.reports.printable import one_line

    if not question.strip():
        raise SettingsError("The question is empty.", "Name what is to be answered.")
    good = _read(answer) if answer else ""
    before, after = asyncio.run(_made(load_settings(flags), question, good))
    for change in after.history[len(before.history) :]:
        sign = "" if change.criterion.positive else "-"
        click.echo(f"{sign}{change.criterion.weight:.2g}  {one_line(change.criterion.description)}")
    click.echo(f"{len(after.history) - len(before.history)} new")


async def _made(
    settings: Settings, question: str, answer: str
) -> tuple[RubricBuffer, RubricBuffer]:
    """The question's rubrics as they were, and as they are now saved."""
    from agent.judging import open_judge_model
    from judge.building import checklist_maker
    from judge.checklist_groups import with_items
    from memory.buffers import BufferStore

    store = BufferStore(settings.data_dir / "buffers")
    before = await asyncio.to_thread(store.load, question)
    async with open_judge_model(settings) as model:
        made = await checklist_maker(model).make(question, answer)
    source = "the question and an answer" if answer else "the question"
    after = with_items(before, made.items, f"a checklist from {source}")
    await asyncio.to_thread(store.save, after)
    return before, after


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read as text.", "Save it as UTF-8.") from error
    if not text.strip():
        raise SettingsError(f"{path} is empty.", "Leave out --answer: then one is written.")
    return text
