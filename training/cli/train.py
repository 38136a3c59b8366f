"""`rubricem train`: a policy by imitation or by the stage-wise policy gradient, and a judge.

`rubricem train judge` trains a pairwise one, by imitation of teachers or by its own verdicts.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rubricem.agent.cli.terminal import Interrupts
from rubricem.training.cli.collect import echo, run, tell, view

if TYPE_CHECKING:
    from rubricem.judge.evaluation.report import PairReport
    from rubricem.training.judge_training.distil import Distilled
    from rubricem.training.judge_training.grpo import JudgeTrained
    from rubricem.training.local.local_config import Method, TrainConfig
    from rubricem.training.rounds.fit import Trained
    from rubricem.training.rounds.parts import RoundsDone
    from rubricem.training.rounds.rounds_config import RoundsConfig, RoundsJob

CONFIG = click.argument("config", type=click.Path(path_type=Path))
JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."
)
_JUDGE = "judge with it: rubricem judge score RUN --judge pairwise --model {}"
_POLICY = 'answer with it: rubricem ask --model {} "..."'


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
    from rubricem.training.judge_training.distil import distil
    from rubricem.training.judge_training.judge_config import read_distil

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
        click.echo(json.dumps({**rows, "trained": trained and as_dict(trained)}))
    else:
        click.echo(_distilled_told(found, settings.rows[0]))
        if trained is not None:
            click.echo(f"{len(trained.steps)} steps done\n{_JUDGE.format(trained.checkpoint)}")


@judge.command("grpo")
@CONFIG
@JSON
def grpo_command(config: Path, as_json: bool) -> None:
    """Let the judge learn from its own verdicts on CONFIG's labelled pairs, round by round.

    Each round samples several comparisons of each pair from the newest judge, rewards them by
    their verdicts and makes one update. The same command goes on after an interruption.
    """
    from rubricem.agent.settings import load_settings
    from rubricem.training.judge_training.grpo import train_judge
    from rubricem.training.judge_training.judge_config import read_grpo

    settings, told = read_grpo(config)
    directory = load_settings().weights_dir

    async def rounds(interrupts: Interrupts) -> "JudgeTrained":
        title = f"judge-grpo, {settings.model}"
        with view(title, as_json) as (said, watch), interrupts.running() as stop:
            return await train_judge(settings, told, said, directory, stop, watch)

    done = run(rounds, "Finishing the calls and the update under way")
    click.echo(json.dumps(_rounds_dict(done)) if as_json else _rounds_told(done))


async def _imitated(settings: "TrainConfig", quiet: bool, interrupts: Interrupts) -> "Trained":
    from rubricem.agent.settings import load_settings
    from rubricem.training.rounds.fit import train

    directory, title = load_settings().weights_dir, f"judge, sft, {settings.model}"
    with view(title, quiet) as (said, watch), interrupts.running() as stop:
        return await train(settings, "sft", said, directory, watch, stop)


def _distilled_told(found: "Distilled", rows: Path) -> str:
    from rubricem.memory.text import printable

    lines = [
        f"{found.kept} traces kept of {found.pairs} pairs, {found.redone} of them redone; "
        f"{found.well_formed} have exactly the form asked for",
        *(f"{count} pairs dropped: {printable(why)}" for why, count in found.dropped.items()),
        f"{found.rows} rows in {rows}; calls cost {found.cost:.2f} US dollars",
    ]
    return "\n".join(lines)


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
    return _ended(lines, done, _JUDGE)


def _ended(lines: Sequence[str], done: "JudgeTrained | RoundsDone", use: str) -> str:
    """What is told of rounds, with what may be done with the last checkpoint."""
    if done.checkpoint is None:
        return "\n".join([*lines, "no round had anything to train on"])
    canary = [done.canary.sentence()] if done.canary else []
    return "\n".join([*lines, *canary, use.format(done.checkpoint)])


def _accuracy(when: str, report: "PairReport") -> str:
    right, agreed = report.measures.accuracy, report.measures.consistent
    return (
        f"held-out pairs {when}: {right.hits:g} of {right.n} right "
        f"(95% interval {right.low:.2f} to {right.high:.2f}), "
        f"{agreed.hits:g} the same in both orders"
    )


@click.group()
def train() -> None:
    """Train the embedded policy on rows, or in rounds that collect them; CONFIG is a TOML file."""


train.add_command(judge)


@train.command()
@CONFIG
@JSON
def sft(config: Path, as_json: bool) -> None:
    """Imitate the accepted traces of CONFIG's rows, until all steps are done.

    Rows are files of `rubricem export`, or folders of `rubricem collect`, whose rejected traces
    are counted by reason.
    """
    _run(config, "sft", as_json)


@train.command("ss-grpo")
@CONFIG
@JSON
def ss_grpo(config: Path, as_json: bool) -> None:
    """Follow the stage-wise policy gradient of CONFIG's judged groups.

    With a table [rounds] the policy makes them itself: each round collects, judges, reflects and
    trains. The same command goes on after an interruption.
    """
    _run(config, "ss-grpo", as_json)


@train.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
def export(checkpoint: Path, out: Path) -> None:
    """Write the whole model of CHECKPOINT into the new folder OUT, its adapter merged.

    For transformers, and for llama.cpp where the training began with a GGUF file.
    """
    from rubricem.agent.settings import load_settings
    from rubricem.training.local.load import export_checkpoint

    asyncio.run(export_checkpoint(checkpoint, out, load_settings().weights_dir))
    click.echo(f"written: {out}")


def _run(path: Path, method: "Method", as_json: bool) -> None:
    from rubricem.training.rounds.rounds_config import read_job

    job = read_job(path, method)
    if job.rounds is None:
        trained = run(partial(_trained, job, method, as_json), "Finishing the step under way")
        echo(json.dumps(as_dict(trained)) if as_json else _told(trained))
    else:
        ending = "Finishing the calls and the update under way"
        done = run(partial(_rounds, job, job.rounds, as_json), ending)
        echo(json.dumps(rounds_dict(done)) if as_json else _tell_rounds(done))


async def _trained(
    job: "RoundsJob", method: "Method", quiet: bool, interrupts: Interrupts
) -> "Trained":
    from rubricem.agent.settings import load_settings
    from rubricem.training.local.local_config import TrainConfig
    from rubricem.training.rounds.fit import train as train_by
    from rubricem.training.rounds.rounds_config import with_rows

    assert isinstance(job.config, TrainConfig)
    directory = load_settings().weights_dir
    config = await with_rows(job.config, job.rule, method, tell, job.rules)
    # Imitation knows no credit, and exported rows were made with theirs.
    compiled = method != "sft" and config.rows != job.config.rows
    rule = job.rule if compiled else None
    with view(f"{method}, {config.model}", quiet) as (said, watch), interrupts.running() as stop:
        return await train_by(config, method, said, directory, watch, stop, rule)


async def _rounds(
    job: "RoundsJob", rounds: "RoundsConfig", quiet: bool, interrupts: Interrupts
) -> "RoundsDone":
    from rubricem.agent.settings import load_settings
    from rubricem.training.rounds.parts import run_rounds

    directory = load_settings().weights_dir
    title = f"ss-grpo, {job.config.model}"
    with view(title, quiet) as (said, watch), interrupts.running() as stop:
        return await run_rounds(job.config, rounds, job.rule, said, directory, stop, watch)


def rounds_dict(done: "RoundsDone") -> dict[str, object]:
    """Finished rounds as one JSON object."""
    return {
        "checkpoint": str(done.checkpoint) if done.checkpoint else None,
        "rounds": done.rounds,
        "canary": done.canary.as_dict() if done.canary else None,
        "cost": done.cost,
    }


def _tell_rounds(done: "RoundsDone") -> str:
    lines = [f"{done.rounds} rounds done"]
    if done.cost is not None:
        lines.append(f"calls cost {done.cost:.2f} US dollars")
    return _ended(lines, done, _POLICY)


def as_dict(trained: "Trained") -> dict[str, object]:
    """A finished training run as one JSON object."""
    return {
        "checkpoint": str(trained.checkpoint),
        "steps": list(trained.steps),
        "dropped": trained.dropped,
        "canary": trained.canary.as_dict() if trained.canary else None,
    }


def _told(trained: "Trained") -> str:
    lines = [
        f"{len(trained.steps)} steps done",
        *(f"{count} rows left out: {reason}" for reason, count in trained.dropped.items()),
    ]
    if (canary := trained.canary) is None:
        return "\n".join([*lines, f"trained for torch alone: {trained.checkpoint}"])
    return "\n".join([*lines, canary.sentence(), _POLICY.format(trained.checkpoint)])
