"""`rubricem judge`: scores answered questions, stage by stage, on rubrics of the question.

`rubricem judge eval` measures how good a judge is on labelled data. `rubricem judge rubrics` shows
the criteria of questions, and brings in others: what `show --json` prints can be edited and
imported again.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click

from rubricem.agent.cli import options
from rubricem.agent.learning.scoring import Judgeable, find_run, open_group_judge, resolve_judge
from rubricem.agent.settings import Settings, load_settings
from rubricem.agent.settings.door import model_of, stores_of
from rubricem.judge.build import Kind
from rubricem.judge.evaluation.report import PairReport
from rubricem.judge.evaluation.run import comparer_of, evaluate, report_verdicts
from rubricem.memory.errors import SettingsError
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.schema import Criterion, GroupJudgement, RubricBuffer, Stage
from rubricem.memory.text import one_line, pluralise


@click.group(cls=options.CommandGroup)
def judge() -> None:
    """Score runs stage by stage."""


@judge.command("eval")
@click.argument("data", type=options.EXISTING)
@click.option("--judge", "kind", type=click.Choice(get_args(Kind)))
@click.option(
    "--verdicts",
    metavar="FILE",
    type=options.FILE,
    help="Store verdicts here and continue from those; without --judge, measure those alone.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), help="Judge only this many pairs, drawn by the seed."
)
@options.setting_flags("seed", "model", "base_url")
@options.AS_JSON
def evaluate_judge(
    data: Path,
    kind: Kind | None,
    verdicts: Path | None,
    limit: int | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Measure a judge on DATA, a .json or .jsonl file of pairs of which the better is known.

    It reads LLMBar, JudgeBench, RewardBench (prompt, chosen, rejected) and RM-Bench (three of
    each). Each pair is shown in both orders. Shares come with 95% intervals.
    """
    if kind is not None:
        report = asyncio.run(run_judge(load_settings(flags), data, kind, verdicts, limit))
    elif verdicts is not None:
        report = report_verdicts(data, verdicts)
    else:
        raise SettingsError("No judge is named.", "Add --judge pairwise, or --verdicts FILE.")
    if as_json:
        click.echo(report.model_dump_json())
        return
    from rubricem.agent.reports.display import print_judge_eval

    print_judge_eval(report)


async def run_judge(
    settings: Settings, data: Path, kind: Kind, verdicts: Path | None, limit: int | None
) -> PairReport:
    choice = model_of(settings)
    async with choice.open_judge() as model:
        comparer = comparer_of(kind, model, choice.chain)
        return await evaluate(
            comparer,
            data,
            judge=f"{kind}, {comparer.name}",
            verdicts=verdicts,
            limit=limit,
            seed=settings.seed,
            at_once=choice.at_once,
            tell=_tell_progress,
        )


def _tell_progress(done: int, total: int) -> None:
    # A line that is written over, for who watches; a log would keep one for each verdict.
    if sys.stderr.isatty():
        click.echo(f"\r{done} of {total} verdicts", nl=done == total, err=True)


@judge.command()
@click.argument("run")
@options.one_of(
    "--judge",
    "kind",
    kinds=get_args(Kind),
    said="Stages; or runs against one another; or answers in pairs, or by items.",
)
@click.option(
    "--gated",
    is_flag=True,
    help="0 for stages of broken form and badly cited answers; ask the judge about the rest.",
)
@click.option(
    "--rubric", type=options.EXISTING, help="Standards of a relative judge, not the default ones."
)
@options.setting_flags("seed", "model", "base_url")
@options.AS_JSON
def score(
    run: str, kind: Kind, rubric: Path | None, gated: bool, as_json: bool, **flags: Any
) -> None:
    """Score RUN: a run's name, a trajectory's .json file, or the folder of a collected run.

    The verdicts are kept beside the trajectory in judgement.json, the rubrics of each question
    in the data directory, and there in replies/ what a model replied: scoring the same again
    costs nothing.

    RUN may also be a .jsonl file of conversations of any agent, which a relative judge scores
    against one another (RULER). A line is {"messages": [...], "tools": [...], "group": "..."} as
    OpenAI's interface has them; lines without a group belong together where they begin with the
    same system prompt and question.
    """
    settings = load_settings(flags)
    if run.endswith(".jsonl") and Path(run).is_file():
        _score_conversations(settings, Path(run), rubric, as_json)
        return
    found = find_run(run, settings.data_dir)
    wanted = resolve_judge(kind, rubric, settings.data_dir, settings.seed)
    choice, stores = model_of(settings), stores_of(settings)

    async def judge_it() -> list[GroupJudgement]:
        bank = stores.open_bank() if kind == "stage" else None
        replies = stores.data_dir / "replies"
        async with open_group_judge(choice, wanted, replies, gate=gated) as judge:
            return await found.score(judge, stores, bank)

    _show_judgement(found, asyncio.run(judge_it()), as_json)


def _score_conversations(
    settings: Settings, file: Path, rubric: Path | None, as_json: bool
) -> None:
    from rubricem.judge.buffers import json_rows
    from rubricem.judge.build import attempt_reader
    from rubricem.judge.relative import RelativeJudge, conversation_groups

    groups = list(conversation_groups(json_rows(options.read_text(file), str(file))))
    standards = resolve_judge("relative", rubric, settings.data_dir, settings.seed).rubric
    found: list[dict[str, Any]] = []

    async def judge_them() -> None:
        async with model_of(settings).open_judge() as model:
            relative = RelativeJudge(attempt_reader(model, standards))
            for number, (places, conversations, tools) in enumerate(groups, start=1):
                scored = await relative.scores_of_messages(conversations, tools, settings.seed)
                for place, one in zip(places, scored.scores, strict=True):
                    said = one.justification or one.unscored_reason
                    row = {"line": place, "group": number, "score": one.score, "said": said}
                    found.append(row | {"notes": list(scored.notes)})

    asyncio.run(judge_them())
    found.sort(key=lambda row: row["line"])
    if as_json:
        options.print_json({"scores": found})
        return
    for row in found:
        known = "unscored" if row["score"] is None else f"{row['score']:.2f}"
        click.echo(f"line {row['line']}  group {row['group']}  {known}  {one_line(row['said'])}")
    for note in dict.fromkeys(note for row in found for note in row["notes"]):
        click.echo(f"note: {note}", err=True)


def _show_judgement(found: Judgeable, judged: list[GroupJudgement], as_json: bool) -> None:
    if as_json:
        groups = [group.model_dump(mode="json") for group in judged]
        click.echo(json.dumps({"file": str(found.file), "groups": groups}, ensure_ascii=False))
        return
    from rubricem.agent.reports.display import print_judgement

    for group, result in zip(found.groups, judged, strict=True):
        for trajectory, judgement in zip(group.trajectories, result.judgements, strict=True):
            print_judgement(trajectory, judgement)
        for note in result.notes:
            click.echo(f"note: {note}", err=True)
    click.echo(f"kept in {found.file}")


@judge.group(cls=options.CommandGroup)
def rubrics() -> None:
    """Show the rubrics of questions, and bring in others."""


@rubrics.command()
@click.argument("question", default="")
@options.AS_JSON
def show(question: str, as_json: bool) -> None:
    """Show the rubrics of QUESTION, a text or the beginning of an id; or list all of them.

    As JSON they come whole, one question a line, as `import` reads them.
    """
    store = BufferStore(load_settings().data_dir / "buffers")
    buffers = [store.find(question)] if question else list(store.all())
    for buffer in buffers:
        if as_json:
            click.echo(buffer.model_dump_json())
            continue
        click.echo(f"{buffer.id[:8]}  version {buffer.label}  {one_line(buffer.question)}")
        for line in _criterion_lines(buffer) if question else ():
            click.echo(line)


def _criterion_lines(buffer: RubricBuffer) -> Iterator[str]:
    shelves = {"kept": buffer.persistent, "active": buffer.active, "retired": buffer.retired}
    for stage in Stage:
        for name, shelf in shelves.items():
            for criterion in shelf.get(stage, ()):
                yield f"{stage:9}{name:10} {_line(criterion)}"


def _line(criterion: Criterion) -> str:
    sign = "" if criterion.positive else "-"
    said = one_line(criterion.description or criterion.title)
    return f"{criterion.key}  {sign}{criterion.weight:.2g}  {said}"


@rubrics.command("import")
@click.argument("file", type=options.EXISTING)
def import_(file: Path) -> None:
    """Bring in rubrics from FILE: what `show --json` printed, DR Tulu's rows, or HealthBench's.

    Those of others become criteria of the answer that are never pruned. Nothing is imported of
    a file with an unreadable row.
    """
    from rubricem.judge.buffers import FoundRubrics, bring_in

    store, count = BufferStore(load_settings().data_dir / "buffers"), 0
    for found in list(FoundRubrics.all_in(options.read_text(file))):
        stored = store.load(found.question)
        fresh = found.buffer if not stored.version else None
        changed = fresh or bring_in(stored, found.criteria, f"imported from {file.name}")
        store.save(changed)
        count += len(changed.history) - len(stored.history)
    click.echo(f"{pluralise(count, 'change')} from {file}")
