"""`rubricem judge rubrics`: the criteria of questions, made before any answer or changed by hand.

`from-search` makes criteria from what a search finds, `make` a checklist from a good answer; both
are kept for good, before any run of the question is judged.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rubricem.agent.cli.options import (
    AS_JSON,
    BASE_URL,
    EXISTING,
    FILE,
    counted,
    model_flag,
    print_json,
    read_text,
)
from rubricem.agent.research.question import checked
from rubricem.agent.settings import Settings, load_settings
from rubricem.memory.errors import SettingsError
from rubricem.memory.rubrics import BufferStore, RubricBuffer
from rubricem.memory.schema import Criterion, Stage
from rubricem.memory.text import one_line, printable

if TYPE_CHECKING:
    from rubricem.judge.stage import FirstRubrics


@click.command("from-search")
@click.argument("question", nargs=-1)
@click.option("--source", multiple=True, help="`python`, or a folder of documents; repeatable.")
@click.option("--no-search", is_flag=True, help="Make them from the question alone.")
@model_flag("The judge: 1.5b, 0.5b, a .gguf file, or a server's model.")
@BASE_URL
def from_search(question: tuple[str, ...], no_search: bool, **flags: Any) -> None:
    """Make criteria for each stage of QUESTION from what a search finds; they are kept for good."""
    made = asyncio.run(_made(load_settings(flags), checked(" ".join(question)), not no_search))
    for change in made.buffer.history:
        click.echo(f"{change.stage:9} {one_line(change.criterion.description)}")
    for note in made.notes:
        click.echo(f"note: {note}", err=True)
    click.echo(f"{len(made.buffer.history)} criteria, after {made.passages} passages")


async def _made(settings: Settings, question: str, searching: bool) -> "FirstRubrics":
    from rubricem.agent.learning.scoring import open_judge_model
    from rubricem.agent.research.setup import open_sources
    from rubricem.agent.settings.door import setup_of
    from rubricem.judge.build import proposer
    from rubricem.judge.stage import first_rubrics

    store = BufferStore(settings.data_dir / "buffers")
    buffer = await asyncio.to_thread(store.load, question)
    setup = await asyncio.to_thread(setup_of, settings)
    async with AsyncExitStack() as stack:
        search = None
        if searching:
            search = await stack.enter_async_context(open_sources(setup.sources, setup.stores))
        model = await stack.enter_async_context(open_judge_model(setup.model))
        made = await first_rubrics(buffer, proposer(model), search)
    await asyncio.to_thread(store.save, made.buffer)
    return made


@click.command()
@click.argument("question")
@click.option(
    "--answer",
    type=EXISTING,
    metavar="FILE",
    help="A good answer to go by; else the model writes one first.",
)
@model_flag("Who writes: 1.5b, 0.5b, a .gguf file, or a server's model.")
@BASE_URL
def make(question: str, answer: Path | None, **flags: Any) -> None:
    """Write a checklist with points for the answer to QUESTION, which is never pruned."""
    if not question.strip():
        raise SettingsError("The question is empty.", "Name what is to be answered.")
    good = read_text(answer) if answer else ""
    if answer and not good.strip():
        raise SettingsError(f"{answer} is empty.", "Leave out --answer: then one is written.")
    before, after = asyncio.run(_made_rubrics(load_settings(flags), question, good))
    for change in after.history[len(before.history) :]:
        sign = "" if change.criterion.positive else "-"
        click.echo(f"{sign}{change.criterion.weight:.2g}  {one_line(change.criterion.description)}")
    click.echo(f"{len(after.history) - len(before.history)} new")


async def _made_rubrics(
    settings: Settings, question: str, answer: str
) -> tuple[RubricBuffer, RubricBuffer]:
    """The question's rubrics as they were, and as they are now saved."""
    from rubricem.agent.learning.scoring import open_judge_model
    from rubricem.agent.settings.door import model_of
    from rubricem.judge.build import checklist_maker
    from rubricem.judge.checklist import with_items

    store = BufferStore(settings.data_dir / "buffers")
    before = await asyncio.to_thread(store.load, question)
    async with open_judge_model(model_of(settings)) as model:
        made = await checklist_maker(model).make(question, answer)
    source = "the question and an answer" if answer else "the question"
    after = with_items(before, made.items, f"a checklist from {source}")
    await asyncio.to_thread(store.save, after)
    return before, after


@click.group()
def rubrics() -> None:
    """Look up, move and change the rubrics of questions.

    A QUESTION is its text or the beginning of its id, a CRITERION the beginning of its key.
    """


rubrics.add_command(make)
rubrics.add_command(from_search)


@rubrics.command("list")
@AS_JSON
def list_(as_json: bool) -> None:
    """List every question that has rubrics, and how many."""
    held = [(buffer, _counts(buffer)) for buffer in _store().all()]
    if as_json:
        rows = [{"id": b.id, "question": b.question, "version": b.label, **n} for b, n in held]
        print_json({"rubrics": rows})
        return
    for buffer, counts in held:
        kept, active, retired = counts.values()
        facts = f"version {buffer.version}: {kept} kept, {active} active, {retired} retired"
        click.echo(f"{buffer.id[:8]}  {facts}  {one_line(buffer.question)}")
    click.echo(counted(len(held), "question"))


@rubrics.command()
@click.argument("question")
@click.option("--version", help="As it was: a number, or the version that a judgement names.")
@AS_JSON
def show(question: str, version: str | None, as_json: bool) -> None:
    """Show the rubrics of QUESTION, or the standards of a relative judge by their name."""
    if (standards := _standards(question)) is not None:
        print_json({"standards": standards}) if as_json else click.echo(printable(standards))
        return
    buffer = _at(_store().find(question), version)
    if as_json:
        print_json(buffer.model_dump(mode="json"))
        return
    click.echo(f"{buffer.id[:8]}  version {buffer.label}  {one_line(buffer.question)}")
    shelves = {"kept": buffer.persistent, "active": buffer.active, "retired": buffer.retired}
    for stage in Stage:
        for name, shelf in shelves.items():
            for criterion in shelf.get(stage, ()):
                click.echo(f"{stage:9}{name:10} {_line(criterion)}")


@rubrics.command()
@click.argument("question")
@AS_JSON
def history(question: str, as_json: bool) -> None:
    """Tell every change of the rubrics of QUESTION, the latest last."""
    changes = _store().find(question).history
    if as_json:
        print_json({"history": [change.model_dump(mode="json") for change in changes]})
        return
    for change in changes:
        what = f"version {change.version:3}  {change.stage:9}{change.kind:9}"
        click.echo(f"{what} {_line(change.criterion)}")
        click.echo(f"             step {change.step}: {one_line(change.reason)}")


@rubrics.command()
@click.argument("questions", nargs=-1)
@click.option("--out", type=FILE, help="Else it is printed.")
def export(questions: Sequence[str], out: Path | None) -> None:
    """Write the rubrics of QUESTIONS, or of all, with their history: one JSON object a line."""
    store = _store()
    buffers = [store.find(name) for name in questions] or list(store.all())
    text = "".join(buffer.model_dump_json() + "\n" for buffer in buffers)
    if out is None:
        click.echo(text, nl=False)
        return
    from rubricem.memory.runs import write_atomically

    write_atomically(out, text)
    click.echo(f"{len(buffers)} exported to {out}")


@rubrics.command("import")
@click.argument("file", type=EXISTING)
def import_(file: Path) -> None:
    """Bring in rubrics from FILE: an export, DR Tulu's rows, or HealthBench's.

    Those of others become criteria of the answer that are never pruned. Nothing is imported of a
    file with a row that cannot be read.
    """
    from rubricem.judge.buffers import bring_in, rubrics_of

    store, count = _store(), 0
    for found in list(rubrics_of(read_text(file))):
        stored = store.load(found.question)
        fresh = found.buffer if not stored.version else None
        changed = fresh or bring_in(stored, found.criteria, f"imported from {file.name}")
        store.save(changed)
        count += len(changed.history) - len(stored.history)
    click.echo(f"{counted(count, 'change')} from {file}")


@rubrics.command()
@click.argument("question")
@click.argument("criterion")
def pin(question: str, criterion: str) -> None:
    """Keep a CRITERION of QUESTION for good; one that was retired comes back."""
    from rubricem.judge.buffers import pin as pinned

    _save(pinned(_store().find(question), criterion))


@rubrics.command()
@click.argument("question")
@click.argument("criterion")
@click.option("--reason", default="", help="Kept in the history.")
def retire(question: str, criterion: str, reason: str) -> None:
    """Take a CRITERION of QUESTION out of force, also one that is kept for good."""
    from rubricem.judge.buffers import retire as retired

    _save(retired(_store().find(question), criterion, reason))


def _store() -> BufferStore:
    return BufferStore(load_settings().data_dir / "buffers")


def _save(buffer: RubricBuffer) -> None:
    _store().save(buffer)
    change = buffer.history[-1]
    click.echo(f"{change.kind}: {_line(change.criterion)}")


def _standards(name: str) -> str | None:
    """The text that a relative judge's version names, or None."""
    from rubricem.judge.base import prompt
    from rubricem.judge.relative import version_of

    for built_in in ("relative_rubric", "relative_choice"):
        if name == version_of(prompt(built_in)):
            return prompt(built_in)
    path = load_settings().data_dir / "standards" / f"{name}.md"
    is_one = name.startswith("relative-") and name.replace("-", "").isalnum()
    return path.read_text(encoding="utf-8") if is_one and path.is_file() else None


def _at(buffer: RubricBuffer, version: str | None) -> RubricBuffer:
    """The buffer at a version; a whole label must name the criteria that were in force then."""
    if version is None:
        return buffer
    number = version.partition("-")[0]
    if not number.isdecimal() or int(number) > buffer.version:
        raise SettingsError(
            f"{version!r} is no version of these rubrics.", f"The latest is {buffer.version}."
        )
    earlier = buffer.at(int(number))
    if "-" in version and earlier.label != version:
        raise SettingsError(
            f"Version {number} of these rubrics was {earlier.label}, not {version}.",
            "They were never saved, or belong to another question.",
        )
    return earlier


def _counts(buffer: RubricBuffer) -> dict[str, int]:
    """How many criteria are kept for good, in force besides, and in force no more."""
    shelves = {"persistent": buffer.persistent, "active": buffer.active, "retired": buffer.retired}
    return {name: sum(map(len, shelf.values())) for name, shelf in shelves.items()}


def _line(criterion: Criterion) -> str:
    sign = "" if criterion.positive else "-"
    said = one_line(criterion.description or criterion.title)
    return f"{criterion.key}  {sign}{criterion.weight:.2g}  {said}"
