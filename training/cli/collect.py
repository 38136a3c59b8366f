"""`rubricem collect`: groups of scored rollouts of many questions, in steps that resume.

Its second half is what every command that works for long shares: how it tells what it does, and
what ends it early.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rubricem.agent.cli.terminal import INTERRUPTED, Interrupts

if TYPE_CHECKING:
    from rubricem.agent.settings import Settings
    from rubricem.training.collect.questions import Selected
    from rubricem.training.collect.remote import RayOptions
    from rubricem.training.collect.scaffolding import ScaffoldRule
    from rubricem.training.collect.setup import CollectOptions
    from rubricem.training.show.events import Watch

T = TypeVar("T")
PARTIAL = 3
"""exit status of what its limit of money ended"""


def run(
    work: Callable[[Interrupts], Awaitable[T]],
    ending: str,
    loop: Callable[[Coroutine[Any, Any, T]], T] = asyncio.run,
) -> T:
    """What the work gives; exits where it was ended before, in a sentence.

    `ending`: what the first ^C does while the work is `running`; otherwise it stops at once.
    """
    from rubricem.training.collect.gate import GO_ON, RunStopped

    async def watched() -> T:
        interrupts = Interrupts(partial(echo, err=True), ending)
        with interrupts.caught():
            return await work(interrupts)

    try:
        return loop(watched())
    except asyncio.CancelledError:
        echo(f"\nStopped at once. {GO_ON}", err=True)
        raise SystemExit(INTERRUPTED) from None
    except RunStopped as stopped:
        echo(stopped.told(), err=True)
        raise SystemExit(INTERRUPTED if stopped.by_person else PARTIAL) from None


def view(title: str, quiet: bool) -> "AbstractContextManager[tuple[Callable[[str], None], Watch]]":
    """Where a training is shown: on one process's terminal, or as lines."""
    from rubricem.training.show.console import training_view

    return training_view(title, tell, quiet=quiet or not _first())


def tell(line: str) -> None:
    """Print a line on standard error that a terminal takes for nothing else."""
    from rubricem.memory.text import printable

    echo(printable(line), err=True)


def echo(text: str, err: bool = False) -> None:
    """Of the processes that torchrun starts, the first tells."""
    if _first():
        click.echo(text, err=err)


def _first() -> bool:
    return os.environ.get("RANK", "0") == "0"


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
@click.option(
    "--group-size",
    type=click.IntRange(1, 256),
    default=4,
    metavar="G",
    help="Rollouts of each question (4).",
)
@click.option(
    "--step-size",
    type=click.IntRange(1, 4096),
    default=4,
    metavar="N",
    help="Questions in a step; rubrics and bank change between steps only (4).",
)
@click.option(
    "--windows",
    type=click.IntRange(0, 4096),
    default=0,
    metavar="K",
    help="After each K steps the same again, with what they taught; the paper has 3 (0: never).",
)
@click.option("--model", help="1.5b, 0.5b, a .gguf file, a checkpoint, or a server's model.")
@click.option("--base-url", metavar="URL", help="An OpenAI-compatible server instead.")
@click.option(
    "--teacher",
    metavar="MODEL",
    help="Have this model write the rollouts, as traces for imitation, in place of --model.",
)
@click.option("--teacher-base-url", metavar="URL", help="The teacher is this server's model.")
@click.option(
    "--dialect",
    type=click.Choice(["auto", "openai", "vllm", "sglang", "llama.cpp"]),
    help="How the server is asked: in token ids, as it is found to take them (auto), or by chat.",
)
@click.option("--source", multiple=True, help="`python`, or a folder of documents; repeatable.")
@click.option("--format", "answer_format", type=click.Choice(["long", "short", "exact"]))
@click.option(
    "--decoding",
    type=click.Choice(["free", "forced"]),
    default="free",
    help="free: what reinforcement learning needs. forced: traces for imitation.",
)
@click.option("--retrieval", type=click.Choice(["lexical", "hybrid"]))
@click.option("--tool-calls", type=int, metavar="N", help="Searches of a rollout at most (10).")
@click.option("--max-tokens", type=int, metavar="N", help="Tokens of one turn at most (4096).")
@click.option(
    "--attempts",
    type=click.IntRange(1, 10),
    default=1,
    metavar="N",
    help="Tries of a turn that breaks the scaffold; more than 1 selects what is learnt from (1).",
)
@click.option("--slots", type=int, metavar="N", help="Rollouts at once on an embedded model (1).")
@click.option(
    "--memory",
    type=click.Choice(["on", "off", "read-only"]),
    help="Recall from the bank (read-only), and put accepted reflections there (on).",
)
@click.option(
    "--judge",
    default="stage",
    metavar="KIND",
    show_default=True,
    help="stage, relative-stages, relative, pairwise, checklist, rubric:MODULE:NAME, or none.",
)
@click.option("--judge-model", help="Judge with this model instead of the policy's.")
@click.option("--judge-base-url", metavar="URL", help="Judge with this server's model.")
@click.option(
    "--reflections",
    type=click.IntRange(0, 64),
    default=8,
    metavar="M",
    help="Reflections written for each judged group (8).",
)
@click.option(
    "--least-reflection-score",
    type=click.FloatRange(0, 1),
    metavar="X",
    help="Keep the best reflection from this score on (0.5; 0.4 with an embedded judge).",
)
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
@click.option(
    "--concurrency", type=int, metavar="N", help="Calls in flight to one server at most (64)."
)
@click.option(
    "--max-run-cost",
    type=click.FloatRange(0, min_open=True),
    metavar="USD",
    help="Money that the whole run may cost: rollouts, judge and reflections.",
)
@click.option(
    "--engine",
    type=click.Choice(["asyncio", "ray"]),
    default="asyncio",
    show_default=True,
    help="Write rollouts in this process, or in Ray's workers on one machine or many.",
)
@click.option(
    "--ray-workers",
    type=click.IntRange(1, 4096),
    default=2,
    metavar="N",
    help="Ray's workers, each a process with a core, and an embedded model, of its own (2).",
)
@click.option(
    "--ray-address",
    metavar="ADDRESS",
    help="A running Ray cluster (auto, HOST:PORT); without one, a Ray of its own on loopback.",
)
@click.option("--seed", type=int)
@click.option("--quiet", is_flag=True, help="Show no progress.")
def collect(questions: str, out: Path, quiet: bool, **flags: Any) -> None:
    """Collect judged groups of rollouts of QUESTIONS into a run's folder.

    QUESTIONS is a .txt, .jsonl, .csv or .parquet file, a folder saved by datasets, or
    hf:org/name[:split]; of the same question twice, one is asked. The same command goes on with
    an interrupted run; what is finished is not repeated.
    """
    from rubricem.agent.settings import load_settings
    from rubricem.memory.text import printable
    from rubricem.training.collect.questions import select_questions
    from rubricem.training.collect.setup import CollectOptions

    choice = {name: flags.pop(name) for name in ("column", "filters", "held_out")}
    own = ("group_size", "step_size", "judge", "judge_model", "judge_base_url", "reflections",
           "windows", "max_run_cost")  # fmt: skip
    taught = _taught(flags)
    options = CollectOptions(
        scaffold=_scaffold(flags),
        taught=taught,
        ray=_ray(flags),
        **{name: flags.pop(name) for name in own},
    )
    # Policy-gradient ratios hold only for what was sampled at temperature 1.
    temperature = {"temperature": 1.0} if flags["decoding"] == "free" else {}
    settings = load_settings({**flags, **temperature})
    asked = select_questions(questions, **choice)
    for line in _run(settings, options, asked, out, quiet):
        click.echo(printable(line))
    click.echo(f"in {out}")


def _scaffold(flags: dict[str, Any]) -> "ScaffoldRule | None":
    """What rollouts are shown of their rubric; None: nothing."""
    from rubricem.memory.errors import SettingsError
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
    from rubricem.memory.errors import SettingsError
    from rubricem.training.collect.remote import RayOptions

    workers, address = flags.pop("ray_workers"), flags.pop("ray_address")
    if flags.pop("engine") == "ray":
        return RayOptions(workers, address)
    if address:
        raise SettingsError("--ray-address belongs to another engine.", "Add --engine ray.")
    return None


def _taught(flags: dict[str, Any]) -> bool:
    """Whether a teacher writes the rollouts; it then takes the policy's place in the flags."""
    from rubricem.memory.errors import SettingsError

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


def _run(
    settings: "Settings", options: "CollectOptions", asked: "Selected", out: Path, quiet: bool
) -> list[str]:
    """What the finished run brought; exits where it was ended before."""
    import uvloop

    work = partial(_collected, settings, options, asked, out, quiet)
    return run(work, "Finishing the calls in flight", uvloop.run)


async def _collected(
    settings: "Settings",
    options: "CollectOptions",
    asked: "Selected",
    out: Path,
    quiet: bool,
    interrupts: Interrupts,
) -> list[str]:
    from rubricem.training.collect.directory import RunDirectory
    from rubricem.training.collect.setup import open_collector
    from rubricem.training.collect.tally import tally

    def said(line: str) -> None:
        if not quiet:
            tell(line)

    folder = RunDirectory(out)
    if asked.selection:
        said(asked.selection.sentence())
    async with open_collector(settings, options, folder, asked, said) as collector:
        with interrupts.running() as stop:
            await collector.collect(stop)
    return tally(folder).lines()
