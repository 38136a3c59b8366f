"""`rubricem train`: a policy by imitation, or by the stage-wise policy gradient."""

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent.commands.interrupting import Interrupts
from training.commands.train_judge import judge
from training.commands.under_way import echo, run, tell, view

if TYPE_CHECKING:
    from training.local.config import Method
    from training.local.training_run import Trained
    from training.rounds.config import RoundsConfig
    from training.rounds.job import Job
    from training.rounds.opening import RoundsDone


@click.group()
def train() -> None:
    """Train the embedded policy on rows, or in rounds that collect them; CONFIG is a TOML file."""


train.add_command(judge)


@train.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def sft(config: Path, as_json: bool) -> None:
    """Imitate the accepted traces of CONFIG's rows, until all steps are done.

    Rows are files of `rubricem export`, or folders of `rubricem collect`, whose rejected traces
    are counted by reason.
    """
    _run(config, "sft", as_json)


@train.command("ss-grpo")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
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
    from agent.settings import load_settings
    from training.local.merging import export_checkpoint

    asyncio.run(export_checkpoint(checkpoint, out, load_settings().weights_dir))
    click.echo(f"written: {out}")


def _run(path: Path, method: "Method", as_json: bool) -> None:
    from training.rounds.job import read_job

    job = read_job(path, method)
    if job.rounds is None:
        trained = run(partial(_trained, job, method, as_json), "Finishing the step under way")
        echo(json.dumps(as_dict(trained)) if as_json else _told(trained))
    else:
        ending = "Finishing the calls and the update under way"
        done = run(partial(_rounds, job, job.rounds, as_json), ending)
        echo(json.dumps(rounds_dict(done)) if as_json else _rounds_told(done))


async def _trained(job: "Job", method: "Method", quiet: bool, interrupts: Interrupts) -> "Trained":
    from agent.settings import load_settings
    from training.local.config import TrainConfig
    from training.local.training_run import train as train_by
    from training.rounds.job import with_rows

    assert isinstance(job.config, TrainConfig)
    directory = load_settings().weights_dir
    config = await with_rows(job.config, job.rule, method, tell, job.rules)
    # Imitation knows no credit, and exported rows were made with theirs.
    compiled = method != "sft" and config.rows != job.config.rows
    rule = job.rule if compiled else None
    with view(f"{method}, {config.model}", quiet) as (said, watch), interrupts.running() as stop:
        return await train_by(config, method, said, directory, watch, stop, rule)


async def _rounds(
    job: "Job", rounds: "RoundsConfig", quiet: bool, interrupts: Interrupts
) -> "RoundsDone":
    from agent.settings import load_settings
    from training.rounds.opening import run_rounds

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


def _rounds_told(done: "RoundsDone") -> str:
    lines = [f"{done.rounds} rounds done"]
    if done.cost is not None:
        lines.append(f"calls cost {done.cost:.2f} US dollars")
    if done.checkpoint is None:
        return "\n".join([*lines, "no round had anything to train on"])
    if done.canary is not None:
        lines.append(done.canary.sentence())
    return "\n".join([*lines, f'answer with it: rubricem ask --model {done.checkpoint} "..."'])


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
    lines += [
        canary.sentence(),
        f'answer with it: rubricem ask --model {trained.checkpoint} "..."',
    ]
    return "\n".join(lines)
