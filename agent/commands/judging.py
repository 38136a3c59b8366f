"""`rubricem judge`: score what was answered, stage by stage, with rubrics for its question."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from agent.commands.judge_eval import evaluate
from agent.commands.rubrics import rubrics
from agent.judged_runs import Judgeable, find_run
from agent.settings import Settings, load_settings
from judge.stage_judge import GroupJudgement
from memory.errors import SettingsError

if TYPE_CHECKING:
    from judge.building import Wanted

Kind = Literal["stage", "relative", "relative-stages", "pairwise", "checklist"]


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
    type=click.Choice(get_args(Kind)),
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
@click.option("--model", help="1.5b, 0.5b, a .gguf file, a checkpoint, or a server's model.")
@click.option("--base-url", metavar="URL", help="An OpenAI-compatible server to ask instead.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def score(
    run: str,
    kind: Kind,
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
    from agent.judging_runs import check_scored, tell_bank
    from judge.building import Wanted

    settings = load_settings(flags)
    found = find_run(run, settings.data_dir)
    standards = kept_standards(rubric, settings.data_dir) if rubric else ""
    wanted = Wanted(kind, standards, both_orders, repeat, graded, flip, settings.seed)
    judged = asyncio.run(_judged(settings, found, wanted, keep_replies=not no_cache, gate=gated))
    check_scored(judged)
    path = found.save([judgement for group in judged for judgement in group.judgements])
    if kind == "stage":
        from agent.banking import open_bank

        asyncio.run(tell_bank(open_bank(settings), found, judged))
    _show(found, judged, str(path), as_json)


def kept_standards(path: Path, data_dir: Path) -> str:
    """The text of a file of standards, of which a copy is kept under the name it is judged by."""
    from judge.attempt_readers import version_of
    from memory.runs import unusable, write_atomically

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


async def _judged(
    settings: Settings, found: Judgeable, wanted: "Wanted", *, keep_replies: bool, gate: bool
) -> list[GroupJudgement]:
    from agent.judging import open_group_judge
    from agent.judging_runs import judged_groups

    async with open_group_judge(settings, wanted, keep_replies=keep_replies, gate=gate) as judge:
        return await judged_groups(judge, found, settings.data_dir)


def _show(found: Judgeable, judged: list[GroupJudgement], path: str, as_json: bool) -> None:
    if as_json:
        import json

        groups = [group.model_dump(mode="json") for group in judged]
        click.echo(json.dumps({"file": path, "groups": groups}, ensure_ascii=False))
        return
    from agent.reports.judged import print_judgement

    for group, result in zip(found.groups, judged, strict=True):
        for trajectory, judgement in zip(group.trajectories, result.judgements, strict=True):
            print_judgement(trajectory, judgement)
        for note in result.notes:
            click.echo(f"note: {note}", err=True)
    click.echo(f"kept in {path}")
