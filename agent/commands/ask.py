"""`rubricem ask`: one question, answered on the terminal, in a file or as JSON."""

import asyncio
from pathlib import Path
from typing import Any

import click

from agent.question import checked
from agent.settings import Settings, load_settings
from memory.errors import RubricemError, SettingsError
from memory.schema import Status, Trajectory

LIMITS = ("answer_format", "tool_calls", "max_tokens", "seed")
"""the settings that are part of what was asked"""


@click.command()
@click.argument("question", nargs=-1)
@click.option("--model", help="1.5b, 0.5b, a .gguf file, org/repo of the hub, or a server's model.")
@click.option("--base-url", metavar="URL", help="An OpenAI-compatible server to ask instead.")
@click.option("--source", multiple=True, help="`python`, or a folder of documents; repeatable.")
@click.option("--format", "answer_format", type=click.Choice(["long", "short", "exact"]))
@click.option("--decoding", type=click.Choice(["auto", "forced", "free"]))
@click.option("--retrieval", type=click.Choice(["lexical", "hybrid"]))
@click.option(
    "--memory",
    type=click.Choice(["on", "off", "read-only"]),
    help="Use what earlier runs taught (read-only); on: judge this run and learn from it too.",
)
@click.option("--tool-calls", type=int, metavar="N", help="Searches at most (10).")
@click.option("--temperature", type=float)
@click.option("--seed", type=int)
@click.option(
    "--best-of",
    type=click.IntRange(1, 64),
    default=1,
    metavar="N",
    help="Run the question N times and have a judge pick the best.",
)
@click.option("--out", type=Path, metavar="FILE", help="Write the report: .md, .html or .json.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.option("--thread", help="Name the run; the same name goes on with it.")
@click.option("--resume", metavar="THREAD", help="Go on with an interrupted run.")
def ask(
    question: tuple[str, ...],
    best_of: int,
    out: Path | None,
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Answer a research question with checked citations."""
    thread, resume = flags.pop("thread"), flags.pop("resume")
    if out is not None:
        from agent.reports.report import check_report_path

        check_report_path(out)
    asked = " ".join(question)
    settings, asked = _resumed(resume, asked, flags) if resume else (load_settings(flags), asked)
    if best_of > 1 and resume:
        raise SettingsError(
            "A resume goes on with one run, not with several.",
            "Leave out --best-of, or ask again with --thread and the name of before.",
        )
    trajectory = asyncio.run(
        _answer(settings, checked(asked), thread or resume, quiet or as_json, best_of)
    )
    _deliver(trajectory, out, as_json)


def _resumed(thread: str, question: str, flags: dict[str, Any]) -> tuple[Settings, str]:
    """The settings and the question of an earlier run, which keeps what shapes its answer."""
    from agent.clients import choices_of
    from memory.runs import RunStore

    request = RunStore(load_settings(flags).data_dir).request(thread)
    if question and question != request["ask"]["question"]:
        raise SettingsError(
            f"The thread {thread!r} holds another question.", "Resume it without a question."
        )
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    limits = {
        name: request["ask"][name] for name in ("answer_format", "tool_calls", "max_tokens", "seed")
    }
    # What was not named then is not named now, whatever the environment has come to say.
    kept = {name: "" if value is None else value for name, value in request["choices"].items()}
    kept |= {"temperature": request["choices"]["temperature"]} | limits
    settings = load_settings({**kept, **given})
    if choices_of(settings) != request["choices"] or any(
        given.get(name, value) != value for name, value in limits.items()
    ):
        raise SettingsError(
            f"The thread {thread!r} was asked with other settings, and a resume keeps them.",
            "Resume it without flags, or ask the question anew.",
        )
    return settings, request["ask"]["question"]


async def _answer(
    settings: Settings, question: str, thread: str | None, quiet: bool, best_of: int
) -> Trajectory:
    from agent.clients import open_researcher, reserve
    from agent.reports.view import live_view
    from agent.researcher import new_thread

    thread = thread or new_thread()
    if best_of > 1:
        from agent.best_of import ask_best

        with live_view(question, quiet=quiet) as listener:
            return await ask_best(settings, question, thread, best_of, listener)
    wanted = reserve(settings, thread, question)
    with live_view(question, quiet=quiet) as listener:
        try:
            async with open_researcher(settings, listener) as researcher:
                trajectory = await researcher.ask(wanted, thread, listener)
                if settings.memory == "on":
                    from agent.learning import learn

                    await learn(settings, researcher.policy, trajectory, listener)
                return trajectory
        except asyncio.CancelledError:
            click.echo(f"\nStopped. Go on with: rubricem ask --resume {thread}", err=True)
            raise


def _deliver(trajectory: Trajectory, out: Path | None, as_json: bool) -> None:
    from agent.reports.report import as_json as report_json
    from agent.reports.report import write_report

    if out is not None:
        write_report(trajectory, out)
    if as_json:
        import json

        click.echo(json.dumps(report_json(trajectory), ensure_ascii=False))
    elif trajectory.status is not Status.FAILED:
        from agent.reports.view import print_report

        print_report(trajectory)
    if trajectory.status is Status.FAILED:
        if as_json:
            raise SystemExit(1)
        raise RubricemError(
            trajectory.reason, f"Try again from where it ended: --resume {trajectory.thread}"
        )
