"""`rubricem judge`: score what was answered, stage by stage, with rubrics for its question.

`rubricem judge eval` says how good a judge is, measured on labelled data: with a model, or from
verdicts recorded before.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import click

from rubricem.agent.cli.options import BASE_URL, EXISTING, FILE, ONLY_JSON, model_flag
from rubricem.agent.cli.rubrics import rubrics
from rubricem.agent.learning.scoring import Judgeable, chain_of, find_run, open_judge_model
from rubricem.agent.models.opening import PolicyChoice
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import model_of
from rubricem.judge.build import item_checker
from rubricem.judge.checklist import ItemChecker
from rubricem.judge.evaluation.data import (
    LabelledComparison,
    LabelledData,
    LabelledMark,
    read_comparisons,
    read_labelled,
    read_marks,
)
from rubricem.judge.evaluation.report import (
    CriteriaReport,
    ListedReport,
    Report,
    criteria_report,
    listed_report,
    pair_report,
)
from rubricem.judge.evaluation.run import (
    ComparerKind,
    Orders,
    VerdictFile,
    compare_all,
    comparer_of,
    items_of,
    mark_all,
    sample,
    tasks_of,
)
from rubricem.judge.stage import GroupJudgement
from rubricem.memory.errors import JudgeError, SettingsError

Kind = Literal["stage", "relative", "pairwise", "checklist"]
JUDGE = model_flag("1.5b, 0.5b, a .gguf file, a checkpoint, or a server's model.")


@click.command("eval")
@click.argument("data", type=EXISTING)
@click.option("--judge", "kind", type=click.Choice(get_args(Kind)))
@click.option("--recorded", metavar="FILE", type=EXISTING, help="Count these; ask no model.")
@click.option(
    "--orders",
    type=click.Choice(["both", "one"]),
    default="both",
    show_default=True,
    help="Show each pair in both orders, or in one drawn by the seed.",
)
@click.option("--limit", type=click.IntRange(min=1), help="So many rows, drawn by the seed.")
@click.option("--seed", type=int, help="Of the draws.  [default: 0]")
@click.option(
    "--out", metavar="FILE", type=FILE, help="Keep verdicts here; go on from those there."
)
@click.option("--plot", metavar="FILE", type=FILE, help="Draw the shares into an SVG file.")
@JUDGE
@BASE_URL
@ONLY_JSON
def evaluate(
    data: Path,
    kind: Kind | None,
    recorded: Path | None,
    orders: Literal["both", "one"],
    limit: int | None,
    out: Path | None,
    plot: Path | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Measure a judge on DATA, a .json or .jsonl file of labelled answers.

    Read are pairs of LLMBar, JudgeBench, RewardBench (prompt, chosen, rejected) and RM-Bench (three
    of each); and for the checklist judge HealthBench's rows with a completion, or with its
    physicians' labels. Shares come with 95% intervals.
    """
    report: Report
    if recorded is not None:
        report = recorded_report(data, recorded)
    elif kind is not None:
        settings = load_settings(flags)
        asked = judged_report(
            model_of(settings), data, kind, orders, limit, settings.seed, out, _counted
        )
        report = asyncio.run(asked)
    else:
        raise SettingsError("No judge is named.", "Add --judge pairwise, or --recorded FILE.")
    _show(report, plot, as_json)


def _show(report: "Report", plot: Path | None, as_json: bool) -> None:
    if plot is not None:
        from rubricem.judge.evaluation.report import figure, shares_of
        from rubricem.memory.runs import write_atomically

        write_atomically(plot, figure(f"{report.judge} on {report.data}", shares_of(report)))
    if as_json:
        click.echo(report.model_dump_json())
        return
    from rubricem.agent.reports.display import print_judge_eval as print_report

    print_report(report)
    if plot is not None:
        click.echo(f"drawn in {plot}")


def _counted(done: int, total: int) -> None:
    """A line that is written over, for who watches; a log would keep one for every verdict."""
    if sys.stderr.isatty():
        click.echo(f"\r{done} of {total} verdicts", nl=done == total, err=True)


JudgeKind = Literal["stage", "relative", "relative-stages", "pairwise", "checklist"]


@click.group()
def judge() -> None:
    """Score runs stage by stage."""


judge.add_command(evaluate)
judge.add_command(rubrics)


@judge.command()
@click.argument("run")
@click.option(
    "--judge",
    "kind",
    type=click.Choice(get_args(JudgeKind)),
    default="stage",
    show_default=True,
    help="Stages; or runs, or their stages, against one another; or answers in pairs, or by items.",
)
@click.option(
    "--rubric",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Standards of a relative judge, in place of the default ones.",
)
@click.option("--both-orders", is_flag=True, help="Show a relative judge each group twice.")
@click.option(
    "--repeat",
    type=click.IntRange(1, 100),
    default=1,
    help="Score each run so often; the mean counts, the spread is shown.",
)
@click.option("--flip", is_flag=True, help="Show a pairwise judge each pair once, not twice.")
@click.option("--graded", is_flag=True, help="Ask the embedded model for points, not Yes or No.")
@click.option(
    "--gated",
    is_flag=True,
    help="0 for stages of broken form and badly cited answers; ask the judge about the rest.",
)
@click.option("--no-cache", is_flag=True, help="Ask anew what was asked before.")
@click.option("--seed", type=int, help="Of the order in which runs are shown.  [default: 0]")
@JUDGE
@BASE_URL
@ONLY_JSON
def score(
    run: str,
    kind: JudgeKind,
    rubric: Path | None,
    both_orders: bool,
    repeat: int,
    flip: bool,
    graded: bool,
    gated: bool,
    no_cache: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Score RUN: a thread, a trajectory's .json file, or the folder of a collected run.

    The verdicts are kept beside the trajectory in judgement.json, the rubrics of each question
    in the data directory, and there in replies/ what a model replied: scoring the same again
    costs nothing.
    """
    from rubricem.agent.learning import scoring
    from rubricem.agent.research.setup import open_bank
    from rubricem.agent.settings.door import stores_of
    from rubricem.judge.build import Wanted

    settings = load_settings(flags)
    found = find_run(run, settings.data_dir)
    standards = kept_standards(rubric, settings.data_dir) if rubric else ""
    wanted = Wanted(kind, standards, both_orders, repeat, graded, flip, settings.seed)
    choice, stores = model_of(settings), stores_of(settings)
    replies = None if no_cache else stores.data_dir / "replies"

    async def judge_it() -> list[GroupJudgement]:
        bank = open_bank(stores) if kind == "stage" else None
        async with scoring.open_group_judge(choice, wanted, replies, gate=gated) as judge:
            return await scoring.score(judge, found, stores, bank)

    _show_judgement(found, asyncio.run(judge_it()), str(found.file), as_json)


def kept_standards(path: Path, data_dir: Path) -> str:
    """The text of a file of standards, of which a copy is kept under the name it is judged by."""
    from rubricem.judge.relative import version_of
    from rubricem.memory.runs import unusable, write_atomically

    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError):
            raise unusable(path, error) from error
        raise SettingsError(f"{path} is no text in UTF-8.", "Save it as UTF-8.") from error
    if not text:
        raise SettingsError(f"{path} is empty.", "Write down what attempts are held to.")
    write_atomically(data_dir / "standards" / f"{version_of(text)}.md", text)
    return text


def _show_judgement(
    found: Judgeable, judged: list[GroupJudgement], path: str, as_json: bool
) -> None:
    if as_json:
        import json

        groups = [group.model_dump(mode="json") for group in judged]
        click.echo(json.dumps({"file": path, "groups": groups}, ensure_ascii=False))
        return
    from rubricem.agent.reports.display import print_judgement

    for group, result in zip(found.groups, judged, strict=True):
        for trajectory, judgement in zip(group.trajectories, result.judgements, strict=True):
            print_judgement(trajectory, judgement)
        for note in result.notes:
            click.echo(f"note: {note}", err=True)
    click.echo(f"kept in {path}")


Told = Callable[[int, int], None]
"""how many verdicts there are, of how many"""


def recorded_report(data: Path, recorded: Path) -> Report:
    """What verdicts recorded on this data say."""
    held = read_labelled(data)
    if held.pairs:
        comparisons = read_comparisons(recorded, held.pairs)
        judge = next(filter(None, (c.judge for c in comparisons)), recorded.stem)
        return pair_report(data.name, judge, held.pairs, comparisons)
    marks = read_marks(recorded, _mark_names(held))
    judge = next(filter(None, (mark.judge for mark in marks)), recorded.stem)
    return _marked_report(data, judge, held, marks)


async def judged_report(
    choice: PolicyChoice,
    data: Path,
    kind: ComparerKind,
    orders: Orders = "both",
    limit: int | None = None,
    seed: int = 0,
    out: Path | None = None,
    told: Told = lambda done, total: None,
) -> Report:
    """What a judge says of this data now; verdicts kept in `out` are not asked for again.

    Raises JudgeError where not one verdict could be had.
    """
    held = await asyncio.to_thread(read_labelled, data)
    if not held.pairs and kind != "checklist":
        raise SettingsError(
            f"{data} holds single answers with criteria, and the {kind} judge compares answers.",
            "Name data with pairs of answers, or use --judge checklist.",
        )
    async with open_judge_model(choice) as model:
        if not held.pairs:
            checker, at_once = item_checker(model), choice.at_once
            return await _check(checker, at_once, data, held, limit, seed, out, told)
        comparer = comparer_of(kind, model, chain_of(choice))
        kept = VerdictFile(out, f"{kind}, {comparer.name}")
        chosen = sample(held.pairs, limit, seed)
        done = [c for c in kept.comparisons(held.pairs) if c.pair in {p.id for p in chosen}]
        tasks = tasks_of(chosen, orders, seed, done)
        count = _CountedCalls(kept, told, len(done), len(done) + len(tasks))
        new = await compare_all(comparer, tasks, choice.at_once, lambda c: count.add([c]))
    comparisons = [*done, *new]
    _check_any([c.winner is not None for c in comparisons], [c.reason for c in comparisons])
    return pair_report(data.name, kept.judge, chosen, comparisons)


async def _check(
    checker: ItemChecker,
    at_once: int,
    data: Path,
    held: LabelledData,
    limit: int | None,
    seed: int,
    out: Path | None,
    told: Told,
) -> Report:
    """Likewise for answers whose criteria are marked one by one."""
    kept = VerdictFile(out, f"checklist, {checker.name}")
    chosen = sample(held.checkable, limit, seed)
    names = {name for one in chosen for name, _ in items_of(one)}
    done = [mark for mark in kept.marks(_mark_names(held)) if mark.item in names]
    known = {mark.item for mark in done}
    tasks = [one for one in chosen if any(name not in known for name, _ in items_of(one))]
    total = sum(len(list(items_of(one))) for one in tasks)
    count = _CountedCalls(kept, told, len(done), len(done) + total)
    marks = [*done, *await mark_all(checker, tasks, at_once, count.add)]
    _check_any([mark.met is not None for mark in marks], [mark.reason for mark in marks])
    return _marked_report(data, kept.judge, held, list({m.item: m for m in marks}.values()))


@dataclass(slots=True)
class _CountedCalls:
    """Keeps verdicts as they come, and tells how many there are."""

    kept: VerdictFile
    told: Told
    count: int
    total: int

    def add(self, verdicts: Sequence[LabelledComparison] | Sequence[LabelledMark]) -> None:
        for verdict in verdicts:
            self.kept.add(verdict)
        self.count += len(verdicts)
        self.told(self.count, self.total)


def _marked_report(
    data: Path, judge: str, held: LabelledData, marks: Sequence[LabelledMark]
) -> CriteriaReport | ListedReport:
    if held.criteria:
        return criteria_report(data.name, judge, held.criteria, marks)
    return listed_report(data.name, judge, held.answers, marks)


def _mark_names(held: LabelledData) -> list[str]:
    return [name for one in held.checkable for name, _ in items_of(one)]


def _check_any(had: Sequence[bool], reasons: Sequence[str]) -> None:
    if had and not any(had):
        raise JudgeError(f"No verdict could be had. {reasons[-1]}")
