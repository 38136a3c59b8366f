"""`rubricem train`: a policy by imitation or by the stage-wise policy gradient, and a judge.

`rubricem train judge` trains a pairwise one, by imitation of teachers or by its own verdicts. What
all long-running commands share is here too: how they report progress, and what ends them early.
"""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rubricem.agent.cli.options import AS_JSON, EXISTING, CommandGroup
from rubricem.agent.cli.terminal import INTERRUPTED, Interrupts
from rubricem.memory.errors import import_extra
from rubricem.memory.text import pluralise, printable

if TYPE_CHECKING:
    from rubricem.judge.evaluation.report import PairReport
    from rubricem.training.judge_training.grpo import JudgeTrained
    from rubricem.training.local.local_config import Method
    from rubricem.training.rounds.fit import Trained
    from rubricem.training.rounds.update import RoundsEnded

T = TypeVar("T")
PARTIAL = 3
"""exit status of what its limit of money ended"""


def can_train(ctx: click.Context, param: click.Parameter, given: T) -> T:
    """What was given, where there is what trains: torch, and what reads and writes weights."""
    for module in ("torch", "transformers", "safetensors", "gguf"):
        import_extra(module, "train", "Training")
    return given


def run_stoppable(work: Callable[[Interrupts], Awaitable[T]], ending: str) -> T:
    """What the work gives; exits where it was ended before, in a sentence.

    `ending`: what the first ^C does while the work is `running`; otherwise it stops at once.
    """
    from rubricem.training.collect.gate import GO_ON, RunStopped

    async def watch() -> T:
        interrupts = Interrupts(partial(echo, err=True), ending)
        # A job that is preempted, and torchrun whose other process has ended, send SIGTERM.
        with interrupts.catch(signal.SIGTERM):
            return await work(interrupts)

    try:
        return asyncio.run(watch())
    except asyncio.CancelledError:
        echo(f"\nStopped at once. {GO_ON}", err=True)
        raise SystemExit(INTERRUPTED) from None
    except RunStopped as stopped:
        echo(stopped.told(), err=True)
        raise SystemExit(INTERRUPTED if stopped.by_person else PARTIAL) from None


def tell(line: str) -> None:
    """Print a line on standard error that a terminal takes for nothing else."""
    echo(printable(line), err=True)


def echo(text: str, err: bool = False) -> None:
    """Of the processes that torchrun starts, the first tells."""
    if os.environ.get("RANK", "0") == "0":
        click.echo(text, err=err)


PATH = click.Path(path_type=Path)
CONFIG = click.argument("config", type=EXISTING, callback=can_train)
OVERRIDES = click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
STEP, UPDATE = "Finishing the step under way", "Finishing the calls and the update under way"
_JUDGE = "judge with it: rubricem judge score RUN --judge pairwise --model {}"
_POLICY = 'answer with it: rubricem ask --model {} "..."'


def run_to_end(ending: str, work: "Callable[..., Awaitable[T]]") -> T:
    """What the work gives, which is given who hears lines, and what ends it (`stop`)."""

    async def show(interrupts: Interrupts) -> T:
        with interrupts.running() as stop:
            return await work(tell, stop=stop)

    return run_stoppable(show, ending)


def in_json(value: object) -> str:
    def plain(held: Any) -> Any:
        return held.model_dump(mode="json") if hasattr(held, "model_dump") else str(held)

    return json.dumps(value, default=plain)


@click.command()
@CONFIG
@OVERRIDES
@click.option("--rows", "rows_only", is_flag=True, help="[distil]: write the rows, train nothing.")
@AS_JSON
def judge(config: Path, overrides: tuple[str, ...], rows_only: bool, as_json: bool) -> None:
    """Train a judge of pairs that reasons before its verdict (RM-R1), by CONFIG's table.

    [distil]: imitate teachers, who compare labelled pairs; what a first one gets wrong, a second
    one redoes, who is shown the right verdict. [grpo]: the judge learns from its own verdicts on
    such pairs, round by round. The same command goes on after an interruption.
    """
    from rubricem.training.tables import read_toml

    if "grpo" in read_toml(config, overrides):
        _train_by_verdicts(config, overrides, as_json)
    else:
        _distil(config, overrides, rows_only, as_json)


def _distil(config: Path, overrides: Sequence[str], rows_only: bool, as_json: bool) -> None:
    from rubricem.agent.settings import load_settings
    from rubricem.training.judge_training.distil import distil, read_distil
    from rubricem.training.rounds.fit import train

    job, told = read_distil(config, overrides)
    settings = load_settings()
    found = run_to_end("Finishing the calls in flight", partial(distil, job, told, settings))
    trained = None
    if not rows_only:
        work = partial(train, job, "sft", weights_dir=settings.weights_dir)
        trained = run_to_end(STEP, work)
    if as_json:
        rows = {"rows_file": job.rows[0], **found.model_dump()}
        click.echo(in_json({**rows, "trained": trained and asdict(trained)}))
        return
    click.echo(f"{found.kept} traces kept of {found.pairs} pairs, {found.redone} of them redone")
    for why, count in found.dropped.items():
        click.echo(printable(f"{count} pairs dropped: {why}"))
    click.echo(f"{found.rows} rows in {job.rows[0]}; calls cost {found.cost:.2f} US dollars")
    if trained is not None:
        click.echo(f"{pluralise(len(trained.steps), 'step')} done")
        click.echo(_JUDGE.format(trained.checkpoint))


def _train_by_verdicts(config: Path, overrides: Sequence[str], as_json: bool) -> None:
    from rubricem.agent.settings import load_settings
    from rubricem.training.judge_training.grpo import read_grpo, train_judge

    job, told = read_grpo(config, overrides)
    done = run_to_end(UPDATE, partial(train_judge, job, told, load_settings()))
    lines = [f"{done.rounds} rounds done"]
    if done.before is not None and done.after is not None:
        lines += [_accuracy("before", done.before), _accuracy("after", done.after)]
    _report(done, as_json, lines, _JUDGE)


def _report(
    done: "Trained | JudgeTrained | RoundsEnded", as_json: bool, lines: Sequence[str], use: str
) -> None:
    """Print what a training gave, in lines with what may be done with its last checkpoint."""
    if as_json:
        echo(in_json(asdict(done)))
    elif done.checkpoint is None:
        echo("\n".join([*lines, "no round had anything to train on"]))
    else:
        echo("\n".join([*lines, use.format(done.checkpoint)]))


def _accuracy(when: str, report: "PairReport") -> str:
    right, agreed = report.measures.accuracy, report.measures.consistent
    return (
        f"held-out pairs {when}: {right.hits:g} of {right.n} right "
        f"(95% interval {right.low:.2f} to {right.high:.2f}), "
        f"{agreed.hits:g} the same in both orders"
    )


@click.group(cls=CommandGroup)
def train() -> None:
    """Train the embedded policy on rows, or in rounds that collect them; CONFIG is a TOML file."""


train.add_command(judge)


DRY_RUN = click.option(
    "--dry-run", is_flag=True, help="Say what would run where, or why it cannot; train nothing."
)


@train.command()
@CONFIG
@OVERRIDES
@DRY_RUN
@AS_JSON
def sft(config: Path, overrides: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Imitate the accepted traces of CONFIG's rows, until all steps are done.

    Rows are files of `rubricem export`, or folders of `rubricem collect`, whose rejected traces
    are counted by reason. KEY=VALUE overrides a value of CONFIG, as objective.beta=0.01.
    """
    _run(config, "sft", overrides, dry_run, as_json)


@train.command("ss-grpo")
@CONFIG
@OVERRIDES
@DRY_RUN
@AS_JSON
def ss_grpo(config: Path, overrides: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Follow the stage-wise policy gradient of CONFIG's judged groups.

    With a table [rounds] the policy makes them itself: each round collects, judges, reflects and
    trains. The same command goes on after an interruption. KEY=VALUE overrides a value of CONFIG,
    as rounds.rounds=8.
    """
    _run(config, "ss-grpo", overrides, dry_run, as_json)


@train.command()
@click.argument("checkpoint", type=PATH, callback=can_train)
@click.argument("out", type=PATH)
def export(checkpoint: Path, out: Path) -> None:
    """Write the whole model of CHECKPOINT into the new folder OUT, its adapter merged.

    For transformers, and for llama.cpp where the training began with a GGUF file.
    """
    from rubricem.agent.settings import load_settings
    from rubricem.training.local.load import export_checkpoint

    asyncio.run(export_checkpoint(checkpoint, out, load_settings().weights_dir))
    click.echo(f"written: {out}")


def _run(
    path: Path, method: "Method", overrides: Sequence[str], dry_run: bool, as_json: bool
) -> None:
    from rubricem.agent.settings import load_settings
    from rubricem.agent.weights.checkpoints import note_of
    from rubricem.training.local.local_config import TrainConfig
    from rubricem.training.rounds.fit import train as train_by
    from rubricem.training.rounds.plan import plan_training
    from rubricem.training.rounds.rounds import run_rounds
    from rubricem.training.rounds.rounds_config import TrainingJob

    job = TrainingJob.read(path, method, overrides)
    if dry_run:
        lines = asyncio.run(plan_training(job, method, load_settings()))
        echo(in_json({"plan": lines}) if as_json else "\n".join(lines))
        return
    if (rounds := job.rounds) is not None:
        work = partial(run_rounds, job.config, rounds, job.rule, load_settings())
        done = run_to_end(UPDATE, work)
        cost = [] if done.cost is None else [f"calls cost {done.cost:.2f} US dollars"]
        _report(done, as_json, [f"{done.rounds} rounds done", *cost], _POLICY)
        return
    given = job.config
    assert isinstance(given, TrainConfig)
    weights_dir = load_settings().weights_dir
    config = run_stoppable(lambda interrupts: job.with_rows(method, tell, weights_dir), STEP)
    # Imitation knows no credit, and exported rows were made with theirs.
    rule = job.rule if method != "sft" and config.rows != given.rows else None
    work_on_rows = partial(train_by, config, method, weights_dir=weights_dir, rule=rule)
    trained = run_to_end(STEP, work_on_rows)
    dropped = trained.dropped.items()
    left_out = [f"{pluralise(count, 'row')} left out: {reason}" for reason, count in dropped]
    use = _POLICY if note_of(trained.checkpoint).served else "trained for torch alone: {}"
    _report(trained, as_json, [f"{pluralise(len(trained.steps), 'step')} done", *left_out], use)
