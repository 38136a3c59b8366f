"""`rubricem train judge`: a pairwise judge by imitation of teachers, or by its own verdicts."""

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent.commands.interrupting import Interrupts
from training.commands.under_way import run, tell, view

if TYPE_CHECKING:
    from judge.evaluation.report import PairReport
    from training.judge_training.distilling import Distilled
    from training.judge_training.grpo import JudgeTrained
    from training.local.config import TrainConfig
    from training.local.training_run import Trained

CONFIG = click.argument("config", type=click.Path(path_type=Path))
JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."
)


@click.group()
def judge() -> None:
    """Train a judge of pairs that reasons before its verdict (RM-R1); CONFIG is a TOML file."""


@judge.command("distil")
@CONFIG
@click.option("--rows", "rows_only", is_flag=True, help="Write the rows, and do not train.")
@JSON
def distil_command(config: Path, rows_only: bool, as_json: bool) -> None:
    """Imitate teachers: have them compare CONFIG's labelled pairs, and train on what was right.

    What a first teacher gets wrong, a second one redoes, who is shown the right verdict. The same
    command goes on after an interruption; no call is paid for twice.
    """
    from training.judge_training.config import read_distil
    from training.judge_training.distilling import distil

    settings, told = read_distil(config)

    async def teachers(interrupts: Interrupts) -> "Distilled":
        with interrupts.running() as stop:
            return await distil(settings, told, tell, stop)

    found = run(teachers, "Finishing the calls in flight")
    trained = None
    if not rows_only:
        trained = run(partial(_imitated, settings, as_json), "Finishing the step under way")
    if as_json:
        rows = {"rows_file": str(settings.rows[0]), **asdict(found)}
        click.echo(json.dumps({**rows, "trained": trained and _trained_dict(trained)}))
    else:
        click.echo(_distilled_told(found, settings.rows[0]))
        if trained is not None:
            click.echo(f"{len(trained.steps)} steps done\n{_use(trained.checkpoint)}")


@judge.command("grpo")
@CONFIG
@JSON
def grpo_command(config: Path, as_json: bool) -> None:
    """Let the judge learn from its own verdicts on CONFIG's labelled pairs, round by round.

    Each round samples several comparisons of each pair from the newest judge, rewards them by
    their verdicts and makes one update. The same command goes on after an interruption.
    """
    from agent.settings import load_settings
    from training.judge_training.config import read_grpo
    from training.judge_training.grpo import train_judge

    settings, told = read_grpo(config)
    directory = load_settings().weights_dir

    async def rounds(interrupts: Interrupts) -> "JudgeTrained":
        title = f"judge-grpo, {settings.model}"
        with view(title, as_json) as (said, watch), interrupts.running() as stop:
            return await train_judge(settings, told, said, directory, stop, watch)

    done = run(rounds, "Finishing the calls and the update under way")
    click.echo(json.dumps(_rounds_dict(done)) if as_json else _rounds_told(done))


async def _imitated(settings: "TrainConfig", quiet: bool, interrupts: Interrupts) -> "Trained":
    from agent.settings import load_settings
    from training.local.training_run import train

    directory, title = load_settings().weights_dir, f"judge, sft, {settings.model}"
    with view(title, quiet) as (said, watch), interrupts.running() as stop:
        return await train(settings, "sft", said, directory, watch, stop)


def _distilled_told(found: "Distilled", rows: Path) -> str:
    from agent.reports.printable import printable

    lines = [
        f"{found.kept} traces kept of {found.pairs} pairs, {found.redone} of them redone; "
        f"{found.well_formed} have exactly the form asked for",
        *(f"{count} pairs dropped: {printable(why)}" for why, count in found.dropped.items()),
        f"{found.rows} rows in {rows}; calls cost {found.cost:.2f} US dollars",
    ]
    return "\n".join(lines)


def _trained_dict(trained: "Trained") -> dict[str, Any]:
    canary = trained.canary
    return {
        "checkpoint": str(trained.checkpoint),
        "steps": list(trained.steps),
        "dropped": trained.dropped,
        "canary": canary.as_dict() if canary else None,
    }


def _rounds_dict(done: "JudgeTrained") -> dict[str, Any]:
    return {
        "checkpoint": str(done.checkpoint) if done.checkpoint else None,
        "rounds": done.rounds,
        "before": done.before.model_dump(mode="json") if done.before else None,
        "after": done.after.model_dump(mode="json") if done.after else None,
        "canary": done.canary.as_dict() if done.canary else None,
    }


def _rounds_told(done: "JudgeTrained") -> str:
    lines = [f"{done.rounds} rounds done"]
    if done.before is not None and done.after is not None:
        lines += [_accuracy("before", done.before), _accuracy("after", done.after)]
    if done.checkpoint is None:
        return "\n".join([*lines, "no round had anything to train on"])
    if done.canary is not None:
        lines.append(done.canary.sentence())
    return "\n".join([*lines, _use(done.checkpoint)])


def _accuracy(when: str, report: "PairReport") -> str:
    right, agreed = report.measures.accuracy, report.measures.consistent
    return (
        f"held-out pairs {when}: {right.hits:g} of {right.n} right "
        f"(95% interval {right.low:.2f} to {right.high:.2f}), "
        f"{agreed.hits:g} the same in both orders"
    )


def _use(checkpoint: Path) -> str:
    return f"judge with it: rubricem judge score RUN --judge pairwise --model {checkpoint}"
