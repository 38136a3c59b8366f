"""`rubricem collect`: groups of scored rollouts of many questions, in steps that resume."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rubricem.agent.cli.options import (
    QUIET,
    Command,
    judge_flags,
    one_of,
    setting_flags,
)
from rubricem.agent.cli.terminal import Interrupts
from rubricem.memory.errors import SettingsError
from rubricem.training.cli.train import run, tell

if TYPE_CHECKING:
    from rubricem.training.collect.remote import RayOptions
    from rubricem.training.collect.scaffolding import ScaffoldRule


def _whole(
    flag: str, metavar: str, least: int, most: int, default: int | None, said: str
) -> Callable[[Command], Command]:
    """The flag of a whole number, whose default the help tells."""
    kind = click.IntRange(least, most)
    told = f"{said}." if default is None else f"{said} ({default})."
    return click.option(flag, type=kind, default=default, metavar=metavar, help=told)


@click.command()
@click.argument("questions")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="RUN",
    help="The run's folder.",
)
@click.option(
    "--column", default="question", metavar="NAME", help="What holds the question (question)."
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="CONDITION",
    help="Ask only where it holds: level=hard, source!=web, length<=300; repeatable.",
)
@click.option(
    "--held-out",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    metavar="SHARE",
    help="Never collect this share of the questions, by the hash of their text (0).",
)
@_whole("--group-size", "G", 1, 256, 4, "Rollouts of each question")
@_whole(
    "--step-size", "N", 1, 4096, 4, "Questions in a step; rubrics and bank change between steps"
)
@_whole(
    "--windows",
    "K",
    0,
    4096,
    0,
    "Ask every K steps again, with what they taught; 3 in the paper, 0: never",
)
@setting_flags("model", "base_url")
@click.option(
    "--teacher",
    metavar="MODEL",
    help="Have this model write the rollouts, as traces for imitation, in place of --model.",
)
@click.option("--teacher-base-url", metavar="URL", help="The teacher is this server's model.")
@setting_flags("source", "format")
@click.option(
    "--decoding",
    type=click.Choice(["free", "forced"]),
    default="free",
    help="free: what reinforcement learning needs. forced: traces for imitation.",
)
@setting_flags("retrieval", "tool_calls", "max_tokens")
@_whole("--passages", "N", 1, 50, None, "Passages shown per search (5; embedded 3)")
@_whole("--passage-words", "N", 10, 10_000, None, "Words shown per passage (160; embedded 110)")
@click.option("--short", is_flag=True, help="A short system prompt, for a model trained on it.")
@setting_flags("slots", "memory")
@click.option(
    "--judge",
    default="stage",
    metavar="KIND",
    show_default=True,
    help="stage, relative, pairwise, checklist, rubric:MODULE:NAME, or none.",
)
@click.option("--judge-model", help="Judge with this model instead of the policy's.")
@click.option("--judge-base-url", metavar="URL", help="Judge with this server's model.")
@judge_flags
@_whole("--reflections", "M", 0, 64, 8, "Reflections written for each judged group")
@click.option(
    "--scaffold",
    metavar="SHARE",
    help="Show rollouts a part of their rubric (RuscaRL): linear, binary:N (the first N), full.",
)
@click.option(
    "--scaffold-decay",
    metavar="DECAY",
    help="Over the training: sigmoid[:ALPHA[:T0]], linear, power:N or constant (sigmoid:125:0.2).",
)
@click.option(
    "--progress",
    type=click.FloatRange(0, 1),
    metavar="T",
    help="How far the training is, for the scaffold's decay (0).",
)
@setting_flags("concurrency", "seed")
@click.option(
    "--max-run-cost",
    type=click.FloatRange(0, min_open=True),
    metavar="USD",
    help="Money that the whole run may cost: rollouts, judge and reflections.",
)
@one_of(
    "--engine",
    kinds=("asyncio", "ray"),
    said="Write rollouts in this process, or in Ray's workers on one machine or many.",
)
@_whole("--ray-workers", "N", 1, 4096, 2, "Ray's workers, each with a core and a model of its own")
@click.option(
    "--ray-address",
    metavar="ADDRESS",
    help="A running Ray cluster (auto, HOST:PORT); without one, a Ray of its own on loopback.",
)
@QUIET
def collect(questions: str, out: Path, quiet: bool, **flags: Any) -> None:
    """Collect judged groups of rollouts of QUESTIONS into a run's folder.

    QUESTIONS is a .txt, .jsonl, .csv or .parquet file, a folder saved by datasets, or
    hf:org/name[:split]; of the same question twice, one is asked. The same command goes on with
    an interrupted run; what is finished is not repeated.
    """
    import uvloop

    from rubricem.agent.learning.scoring import resolve_judge
    from rubricem.agent.settings import load_settings
    from rubricem.memory.text import printable
    from rubricem.training.collect.directory import RunDirectory, RunTally
    from rubricem.training.collect.questions import select_questions
    from rubricem.training.collect.setup import CollectOptions, open_collector

    choice = {name: flags.pop(name) for name in ("column", "filters", "held_out")}
    own = ("group_size", "step_size", "judge", "judge_model", "judge_base_url", "reflections",
           "windows", "max_run_cost", "short", "passages", "passage_words", "gated")  # fmt: skip
    rubric = flags.pop("rubric")
    options = CollectOptions(
        scaffold=_scaffold(flags),
        taught=_take_teacher(flags),
        ray=_ray(flags),
        **{name: flags.pop(name) for name in own},
    )
    # Policy-gradient ratios hold only for what was sampled at temperature 1.
    temperature = {"temperature": 1.0} if flags["decoding"] == "free" else {}
    settings = load_settings({**flags, **temperature})
    options = replace(
        options, judging=resolve_judge("relative", rubric, settings.data_dir, settings.seed)
    )
    asked = select_questions(questions, **choice)
    folder = RunDirectory(out)

    async def collect_all(interrupts: Interrupts) -> None:
        def say(line: str) -> None:
            if not quiet:
                tell(line)

        if asked.selection:
            say(asked.selection.sentence())
        async with open_collector(settings, options, folder, asked, say) as collector:
            with interrupts.running() as stop:
                await collector.collect(stop)

    run(collect_all, "Finishing the calls in flight", uvloop.run)
    for line in RunTally.of(folder).lines():
        click.echo(printable(line))
    click.echo(f"in {out}")


def _scaffold(flags: dict[str, Any]) -> "ScaffoldRule | None":
    """What rollouts are shown of their rubric; None: nothing."""
    from rubricem.training.collect.scaffolding import scaffold_rule

    share, decay, progress = (flags.pop(n) for n in ("scaffold", "scaffold_decay", "progress"))
    if share is None and (decay, progress) != (None, None):
        raise SettingsError(
            "--scaffold-decay and --progress are of a scaffold, and none is asked for.",
            "Add --scaffold linear, or leave them out.",
        )
    return scaffold_rule(share, decay or "sigmoid", progress or 0.0)


def _ray(flags: dict[str, Any]) -> "RayOptions | None":
    """Where rollouts are written; None: in this process."""
    from rubricem.training.collect.remote import RayOptions

    workers, address = flags.pop("ray_workers"), flags.pop("ray_address")
    if flags.pop("engine") == "ray":
        return RayOptions(workers, address)
    if address:
        raise SettingsError("--ray-address belongs to another engine.", "Add --engine ray.")
    return None


def _take_teacher(flags: dict[str, Any]) -> bool:
    """Whether a teacher writes the rollouts; it then takes the policy's place in the flags."""
    model, base_url = flags.pop("teacher"), flags.pop("teacher_base_url")
    if not (model or base_url):
        return False
    if flags["model"] or (base_url and flags["base_url"]):
        raise SettingsError(
            "A teacher writes the rollouts in place of the policy's model.",
            "Leave out --model and --base-url, or name no teacher.",
        )
    flags["model"], flags["base_url"] = model, base_url or flags["base_url"]
    return True
