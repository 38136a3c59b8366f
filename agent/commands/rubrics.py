"""`rubricem judge rubrics`: the criteria that runs were scored on, and changing them by hand."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from agent.commands.rubrics_from_search import from_search
from agent.commands.rubrics_making import make
from agent.settings import load_settings
from memory.buffers import BufferStore
from memory.errors import SettingsError
from memory.rubrics import RubricBuffer
from memory.schema import Criterion, Stage

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


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
    buffers = list(_store().all())
    if as_json:
        _print_json({"rubrics": [_summary(buffer) for buffer in buffers]})
        return
    for buffer in buffers:
        kept, active, retired = _counts(buffer)
        facts = f"version {buffer.version}: {kept} kept, {active} active, {retired} retired"
        click.echo(f"{buffer.id[:8]}  {facts}  {_one_line(buffer.question)}")
    click.echo(f"{len(buffers)} question{'' if len(buffers) == 1 else 's'}")


@rubrics.command()
@click.argument("question")
@click.option("--version", help="As it was: a number, or the version that a judgement names.")
@AS_JSON
def show(question: str, version: str | None, as_json: bool) -> None:
    """Show the rubrics of QUESTION, or the standards of a relative judge by their name."""
    if (standards := _standards(question)) is not None:
        _print_json({"standards": standards}) if as_json else click.echo(_text(standards))
        return
    buffer = _at(_store().find(question), version)
    if as_json:
        _print_json(buffer.model_dump(mode="json"))
        return
    click.echo(f"{buffer.id[:8]}  version {buffer.label}  {_one_line(buffer.question)}")
    for stage, shelf, criterion in _all(buffer):
        click.echo(f"{stage:9}{shelf:10} {_line(criterion)}")


@rubrics.command()
@click.argument("question")
@AS_JSON
def history(question: str, as_json: bool) -> None:
    """Tell every change of the rubrics of QUESTION, the latest last."""
    changes = _store().find(question).history
    if as_json:
        _print_json({"history": [change.model_dump(mode="json") for change in changes]})
        return
    for change in changes:
        what = f"version {change.version:3}  {change.stage:9}{change.kind:9}"
        click.echo(f"{what} {_line(change.criterion)}")
        click.echo(f"             step {change.step}: {_one_line(change.reason)}")


@rubrics.command()
@click.argument("questions", nargs=-1)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Else it is printed.")
def export(questions: Sequence[str], out: Path | None) -> None:
    """Write the rubrics of QUESTIONS, or of all, with their history: one JSON object a line."""
    store = _store()
    buffers = [store.find(name) for name in questions] or list(store.all())
    text = "".join(buffer.model_dump_json() + "\n" for buffer in buffers)
    if out is None:
        click.echo(text, nl=False)
        return
    from memory.runs import write_atomically

    write_atomically(out, text)
    click.echo(f"{len(buffers)} exported to {out}")


@rubrics.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def import_(file: Path) -> None:
    """Bring in rubrics from FILE: an export, DR Tulu's rows, or HealthBench's.

    Those of others become criteria of the answer that are never pruned. Nothing is imported of a
    file with a row that cannot be read.
    """
    from judge.curating import bring_in
    from judge.rubric_files import rubrics_of

    store, count = _store(), 0
    for found in list(rubrics_of(_read(file))):
        stored = store.load(found.question)
        fresh = found.buffer if not stored.version else None
        changed = fresh or bring_in(stored, found.criteria, f"imported from {file.name}")
        store.save(changed)
        count += len(changed.history) - len(stored.history)
    click.echo(f"{count} change{'' if count == 1 else 's'} from {file}")


@rubrics.command()
@click.argument("question")
@click.argument("criterion")
def pin(question: str, criterion: str) -> None:
    """Keep a CRITERION of QUESTION for good; one that was retired comes back."""
    from judge.curating import pin as pinned

    _save(pinned(_store().find(question), criterion))


@rubrics.command()
@click.argument("question")
@click.argument("criterion")
@click.option("--reason", default="", help="Kept in the history.")
def retire(question: str, criterion: str, reason: str) -> None:
    """Take a CRITERION of QUESTION out of force, also one that is kept for good."""
    from judge.curating import retire as retired

    _save(retired(_store().find(question), criterion, reason))


def _store() -> BufferStore:
    return BufferStore(load_settings().data_dir / "buffers")


def _save(buffer: RubricBuffer) -> None:
    _store().save(buffer)
    change = buffer.history[-1]
    click.echo(f"{change.kind}: {_line(change.criterion)}")


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} cannot be read as text: {error}.", "Save it as UTF-8.") from (
            error
        )


def _standards(name: str) -> str | None:
    """The text that a relative judge's version names, or None."""
    from judge.attempt_readers import version_of
    from judge.prompting import prompt

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


def _all(buffer: RubricBuffer) -> Iterator[tuple[Stage, str, Criterion]]:
    shelves = {"kept": buffer.persistent, "active": buffer.active, "retired": buffer.retired}
    for stage in Stage:
        for name, shelf in shelves.items():
            for criterion in shelf.get(stage, ()):
                yield stage, name, criterion


def _counts(buffer: RubricBuffer) -> tuple[int, ...]:
    shelves = (buffer.persistent, buffer.active, buffer.retired)
    return tuple(sum(map(len, shelf.values())) for shelf in shelves)


def _summary(buffer: RubricBuffer) -> dict[str, Any]:
    counts = dict(zip(("persistent", "active", "retired"), _counts(buffer), strict=True))
    return {"id": buffer.id, "question": buffer.question, "version": buffer.label, **counts}


def _line(criterion: Criterion) -> str:
    sign = "" if criterion.positive else "-"
    said = _one_line(criterion.description or criterion.title)
    return f"{criterion.key}  {sign}{criterion.weight:.2g}  {said}"


def _one_line(text: str) -> str:
    from agent.reports.printable import one_line

    return one_line(text)


def _text(text: str) -> str:
    from agent.reports.printable import printable

    return printable(text)


def _print_json(value: dict[str, Any]) -> None:
    import json

    click.echo(json.dumps(value, ensure_ascii=False, indent=1))
