"""The command `rubricem`: a group whose subcommands are imported only when called.

Commands are named by strings with their one-line help, so that `--help` imports none of them and
commands of the package to the left can be listed without importing it. This is also the one place
where an error becomes a sentence, a remedy and an exit code: 2 for a wrong request, 1 for a
failure, 130 for an interruption.
"""

import atexit
import difflib
import errno
import gc
import io
import logging
import os
import shlex
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from rubricem.memory.errors import RubricemError, SettingsError, StoreError
from rubricem.memory.text import printable

FAILED, MISUSED, INTERRUPTED = 1, 2, 130
SWEPT_EVERY = 20_000
"""new objects between two looks for garbage"""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
"""what a device says that takes nothing"""
REFUSED = (
    errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.ESTALE,
    errno.EMFILE, errno.ENFILE,
)  # fmt: skip
"""what a system says of a path that is as a person, or somebody beside them, has made it"""
DEBUG_VARIABLE = "RUBRICEM_DEBUG"
OUR_FAULT = "This is a bug in rubricem; --debug shows where. Please report it."


@dataclass(frozen=True, slots=True)
class Lazy:
    """A subcommand: `module:attribute`, and its line in the list of commands."""

    target: str
    help: str

    def load(self) -> click.Command:
        module, _, attribute = self.target.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), f"{self.target} is a click command"
        return command


COMMANDS = {
    "ask": Lazy("rubricem.agent.cli.ask:ask", "Answer a research question with checked citations."),
    "backup": Lazy(
        "rubricem.agent.cli.upkeep:backup", "Copy the data directory, even while a server runs."
    ),
    "bank": Lazy("rubricem.agent.cli.bank:bank", "Read and correct what earlier runs taught."),
    "chat": Lazy("rubricem.agent.chat:chat", "Ask questions that build on those before."),
    "collect": Lazy(
        "rubricem.training.cli.collect:collect",
        "Collect judged groups of rollouts of many questions.",
    ),
    "doctor": Lazy(
        "rubricem.agent.cli.doctor:doctor", "Say what is configured, works and is missing."
    ),
    "eval": Lazy(
        "rubricem.agent.cli.eval:evaluation", "Measure answers to a file of questions, by arms."
    ),
    "export": Lazy(
        "rubricem.training.cli.export:export", "Write a collected run in a trainer's format."
    ),
    "judge": Lazy(
        "rubricem.agent.cli.judge:judge", "Score runs stage by stage, with their rubrics."
    ),
    "learn": Lazy("rubricem.agent.cli.learn:learn", "Learn from pending runs."),
    "mcp": Lazy("rubricem.agent.cli.serve:mcp", "Serve the agent's tools to MCP clients."),
    "models": Lazy("rubricem.agent.cli.upkeep:models", "List, fetch, check and remove weights."),
    "rate": Lazy(
        "rubricem.agent.cli.learn:rate", "Rate an answer; the judge of its lessons sees it."
    ),
    "restore": Lazy("rubricem.agent.cli.upkeep:restore", "Restore what backup has copied."),
    "runs": Lazy("rubricem.agent.cli.runs:runs", "List, find, show, name and delete runs."),
    "serve": Lazy(
        "rubricem.agent.cli.serve:serve", "Serve the web page, and interfaces for programs."
    ),
    "train": Lazy("rubricem.training.cli.train:train", "Train the embedded policy on rows."),
    "users": Lazy("rubricem.agent.cli.serve:users", "Give others tokens for a server of yours."),
}


PARTS = {
    "Ask": ("ask", "chat", "serve", "runs", "mcp"),
    "Set up": ("doctor", "models", "users"),
    "What it learns": ("rate", "learn", "bank"),
    "Measure and train": (
        "eval", "judge", "collect", "export", "train",
    ),
    "Keep and remove": ("backup", "restore"),
}  # fmt: skip
"""the commands as they are listed, those first that most people want"""


RETIRED = {
    "bank disable": "edit a reflection, or remove it: rubricem bank edit, rubricem bank rm",
    "bank enable": "nothing is disabled; what waits is let out by: rubricem bank release",
    "bank export": "rubricem bank list --every --json > FILE",
    "bank import --dry-run": "an import can be taken back: bank rm",
    "bank import --most": "take lines out of the file",
    "bank import --removed": "what was removed here stays removed",
    "bank list --episodes": "lessons are all that is kept",
    "bank list --sort": "--json prints what can be sorted",
    "bank pin": "no run replaces what a person wrote: rubricem bank edit",
    "bank rebuild": "vectors that do not fit are made again at the next search",
    "bank restore": "rubricem restore brings back a whole data directory",
    "bank search": "rubricem bank list TEXT",
    "bank snapshot": "rubricem backup copies the whole data directory",
    "bank stats": "rubricem bank list counts what there is",
    "bank unpin": "what a person wrote stays until it is removed: rubricem bank rm",
    "chat --format": "use --set answer_format=FORM",
    "chat --from": "use --resume with the name of the run",
    "collect --branch": "a turn is no longer sampled by itself",
    "collect --column": "write column=NAME",
    "collect --concurrency": "write settings.concurrency=N",
    "collect --decoding": "write decoding=forced",
    "collect --engine": "write ray_workers=N",
    "collect --filter": "leave the other questions out of the file",
    "collect --format": "write settings.answer_format=FORM",
    "collect --gated": "write gated=true",
    "collect --held-out": "write held_out=SHARE",
    "collect --judge-base-url": "write judge_base_url=URL",
    "collect --judge-model": "write judge_model=NAME",
    "collect --max-run-cost": "write max_run_cost=USD",
    "collect --max-tokens": "write settings.max_tokens=N",
    "collect --memory": "write settings.memory=on",
    "collect --passage-words": "write passage_words=N",
    "collect --passages": "write passages=N",
    "collect --progress": "write progress=T",
    "collect --ray-address": "write ray_address=ADDRESS",
    "collect --ray-workers": "write ray_workers=N",
    "collect --reflections": "write reflections=M",
    "collect --retrieval": "write settings.retrieval=KIND",
    "collect --rubric": "write rubric=FILE",
    "collect --scaffold": "write scaffold=linear",
    "collect --scaffold-decay": "it fades by a sigmoid",
    "collect --seed": "write settings.seed=N",
    "collect --short": "write short=true",
    "collect --slots": "write settings.slots=N",
    "collect --step-size": "write step_size=N",
    "collect --teacher": "write teacher=true, and the model by --model",
    "collect --teacher-base-url": "write teacher=true, and the server by --base-url",
    "collect --tool-calls": "write settings.tool_calls=N",
    "collect --windows": "write windows=K",
    "doctor --all": "--json lists every setting",
    "doctor --deep": "rubricem models check hashes the weights",
    "eval --answer-format": "use --format",
    "eval --at-once": "use --set slots=N or --set concurrency=N",
    "eval --checker": "citations are checked by the rules, or by the model",
    "eval --claims": "python -m benchmarks.claims measures the checks of claims",
    "eval --judge-url": "use --judge-base-url",
    "eval --memory": "name an arm: --arms stages,memory",
    "export --by": "pairs are ranked by the return; choose a --credit",
    "export --margin": "a pair differs by 0.1 at least",
    "export --scaffold-ratio": "the ratio is formed without the scaffold",
    "export --of": "rows and conversations are JSON lines, which datasets read",
    "init": "write rubricem.toml yourself; rubricem doctor says what it sets",
    "judge eval --orders": "each pair is shown in both orders",
    "judge eval --out": "use --verdicts FILE",
    "judge eval --plot": "--json has the shares",
    "judge eval --recorded": "use --verdicts FILE without --judge",
    "judge messages": "use rubricem judge score FILE.jsonl",
    "judge rubrics export": "use rubricem judge rubrics show --json",
    "judge rubrics from-search": "the stage judge makes criteria; import those of yours",
    "judge rubrics history": "rubricem judge rubrics show --json has every change",
    "judge rubrics list": "use rubricem judge rubrics show",
    "judge rubrics make": "the checklist judge makes one; import those of yours",
    "judge rubrics pin": "edit what rubricem judge rubrics show --json prints, and import it",
    "judge rubrics retire": "edit what rubricem judge rubrics show --json prints, and import it",
    "judge rubrics show --version": "judge rubrics show tells the present version",
    "judge score --no-cache": "remove replies/ from the data directory",
    "learn --skip": "rubricem runs rm RUN takes a run out of the queue",
    "loop": "examples/loop.sh is the same in public commands",
    "mcp --http": "rubricem serve has the same tools at /mcp",
    "mcp --no-token": "rubricem serve has the same tools at /mcp",
    "mcp --port": "rubricem serve has the same tools at /mcp",
    "models remove": "use models rm",
    "push": "use hf upload ORG/NAME CHECKPOINT",
    "train sft --dry-run": "a training tells what it drops, and ^C saves its step",
    "train ss-grpo --dry-run": "a training tells what it drops, and ^C saves its step",
    "train init": "begin with a file of examples/",
    "train judge distil": "rubricem train judge CONFIG trains by the table that CONFIG has",
    "train judge grpo": "rubricem train judge CONFIG trains by the table that CONFIG has",
    "restore --yes": "it replaces nothing, and so asks nothing",
    "runs show --html": "rubricem serve --results FOLDER draws it",
    "runs show --tensorboard": 'set trackers = ["tensorboard"] in the training',
    "trust": "a file is read because it is named: --config FILE, or RUBRICEM_CONFIG",
    "uninstall": "rubricem doctor names the folders: remove them, then pip uninstall rubricem",
    "--access-log": "--log-level info tells each request",
    "--allow-host": "use --set allow_hosts=HOST",
    "--attempts": "a turn is tried once when collecting, three times otherwise",
    "--best-of": "ask several times, and compare the runs",
    "--both-orders": "a pair is shown in both orders, a group once",
    "--dialect": "how a server is asked follows from what it is asked for",
    "--flip": "a pair is shown in both orders",
    "--graded": "every judge gives points",
    "--least-reflection-score": "a reflection is kept from 0.5 on, or 0.4 of an embedded judge",
    "--log-json": "the log is one line an event; --log-level says which",
    "--persistent": "criteria are made as the judge needs them",
    "--reflect-model": "the model that answers reflects",
    "--reflection-tokens": "a reflection may take what its model needs",
    "--repeat": "a run is scored once",
    "--review-returns": "a review sends a run back once",
    "ask --thread": "name a run by --run",
    "--system-prompt": "rubricem collect has short=true",
}
"""commands and options of earlier versions, and what to do instead.

An option that one command alone has lost is preceded by the command: `serve --verify`.
"""


def refuse_retired(ctx: click.Context, name: str) -> None:
    """Say what stands in the place of a command or an option that is gone; do nothing of others."""
    path = " ".join([*ctx.command_path.split(" ")[1:], name])
    instead = RETIRED.get(path) or (RETIRED.get(name) if name.startswith("-") else None)
    if instead is None and any(param.name == "settings" for param in ctx.command.params):
        from rubricem.agent.settings import Settings

        setting = name.lstrip("-").replace("-", "_")
        instead = f"use --set {setting}=VALUE" if setting in Settings.model_fields else None
    if instead:
        ctx.fail(f"{path} is gone: {instead}.")


class LazyGroup(click.Group):
    """A group over a table of lazy commands, with the error boundary of the command line."""

    def __init__(self, *args: Any, lazy: dict[str, Lazy] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = COMMANDS if lazy is None else lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return None
        return self.lazy[cmd_name].load()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # People add --debug at the end of what just failed.
        end = args.index("--") if "--" in args else len(args)
        ours, rest, before = list[str](), list[str](), iter(args[:end])
        for arg in before:
            if arg == "--debug" or arg.startswith("--config="):
                ours.append(arg)
            elif arg == "--config":
                ours += [arg, *filter(None, [next(before, None)])]
            else:
                rest.append(arg)
        return super().parse_args(ctx, [*ours, *rest, *args[end:]])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        refuse_retired(ctx, name)
        if name not in self.lazy and " " in name.strip():
            ctx.fail(f"There is no such command. To ask: {ctx.info_name} ask {shlex.quote(name)}")
        near = difflib.get_close_matches(name, self.lazy, 1) if name not in self.lazy else []
        if near and not name.startswith("-"):
            ctx.fail(f"No such command {name!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, self.lazy), default=0)
        for part, names in PARTS.items():
            listed = (name for name in names if name in self.lazy)
            if rows := [(name.ljust(widest), self.lazy[name].help) for name in listed]:
                with formatter.section(part):
                    formatter.write_dl(rows)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        # What is asked and found is nobody's but the user's, wherever it is written.
        os.umask(0o077)
        _fill_streams()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # Answers hold any letter; a terminal that cannot show one shows a mark instead.
                stream.reconfigure(errors="replace")
        # Sought as often as Python does, garbage takes a sixth of what the imports take; and what
        # is left at the end, half a second to look through, is the operating system's to free.
        gc.set_threshold(SWEPT_EVERY)
        atexit.register(gc.freeze)
        atexit.register(_drop_unwritten)
        try:
            return super().main(*args, **kwargs)
        except OSError as error:  # of --help, which no command's context tells of
            if (known := _find_error(error)) is None:
                raise
            click.echo(f"error: {known}\n{known.remedy}", err=True)
            sys.exit(FAILED)

    def invoke(self, ctx: click.Context) -> Any:
        with _notices_told(), _errors_told(ctx):
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result


def _drop_unwritten() -> None:
    """Let go of what a full disk or a closed terminal does not take: Python ends with 120 else."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(ValueError):  # closed, or no file
            try:
                stream.flush()
            except OSError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _fill_streams() -> None:
    """Have descriptors 0 to 2 taken: output would else go into the file that is opened next.

    Nothing is done where its output could go nowhere.
    """
    missing = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name in missing:
        opened = os.open(os.devnull, os.O_RDONLY if name == "stdin" else os.O_WRONLY)
        setattr(sys, name, os.fdopen(opened, "r" if name == "stdin" else "w"))
    if "stdout" in missing:
        click.echo(
            "error: Standard output is closed.\nSend it to a file, or to /dev/null.", err=True
        )
        sys.exit(FAILED)


@contextmanager
def _errors_told(ctx: click.Context) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        click.echo("\ninterrupted", err=True)
        ctx.exit(INTERRUPTED)
    except click.NoSuchOption as error:
        refuse_retired(error.ctx or ctx, error.option_name)
        raise
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except Exception as error:
        if (gone := _broken_pipe(error)) is not None:
            raise gone from None  # click ends silently when the reader has gone
        if debugging(ctx):
            traceback.print_exception(error)
        known = _find_error(error)
        if known is not None:
            told = "\n".join(filter(None, (f"error: {known}", known.remedy)))
        else:
            told = f"error: {type(error).__name__}: {error}\n{OUR_FAULT}"
        # A file's columns or a server's models may stand in it.
        click.echo(printable(told), err=True)
        ctx.exit(MISUSED if isinstance(known, SettingsError) else FAILED)


def debugging(ctx: click.Context) -> bool:
    """Whether --debug was given, or its variable is set."""
    set_so = os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0")
    return set_so or bool(ctx.meta.get(DEBUG_VARIABLE))


def _find_error(error: BaseException) -> RubricemError | None:
    """The first of our own errors in it; groups of tasks wrap theirs."""
    if isinstance(error, RubricemError):
        return error
    if isinstance(error, OSError) and error.errno in FULL:
        where = error.filename or "What was to be printed"
        return StoreError(
            f"{where} cannot be written: {error.strerror}.",
            "Free some space, or write elsewhere; `rubricem runs` lists what was finished.",
        )
    if isinstance(error, OSError) and error.errno in REFUSED and error.filename:
        from rubricem.memory.runs import unusable

        return unusable(Path(os.fsdecode(error.filename)), error)
    if isinstance(error, RecursionError):
        return SettingsError("The input is nested too deeply.", "Name a file with less nesting.")
    if isinstance(error, BaseExceptionGroup):
        return next((known for e in error.exceptions if (known := _find_error(e))), None)
    return None


def _broken_pipe(error: BaseException) -> OSError | None:
    """The write that found its reader gone; groups of tasks wrap it."""
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((gone for e in error.exceptions if (gone := _broken_pipe(e))), None)
    return None


class _Told(logging.Handler):
    """Prints each message once."""

    def __init__(self) -> None:
        super().__init__()
        self._told = set[str]()

    def emit(self, record: logging.LogRecord) -> None:
        if (line := record.getMessage()) not in self._told:
            self._told.add(line)
            click.echo(printable(line), err=True)


@contextmanager
def _notices_told() -> Iterator[None]:
    """What loading the settings has to say is printed, once for a command."""
    logger, told = logging.getLogger("rubricem.agent.settings"), _Told()
    logger.addHandler(told)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(told)
        logger.propagate = True


def _remember_debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[DEBUG_VARIABLE] = True


def _name_file(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    if value is not None:
        from rubricem.agent.settings import NAMED_FILE

        before = NAMED_FILE.set(value)
        ctx.call_on_close(lambda: NAMED_FILE.reset(before))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    expose_value=False,
    callback=_name_file,
    help="Read the settings of this file, not the user's own.",
)
@click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_remember_debug,
    help="Show where a run's time went, and the traceback of an error.",
)
@click.version_option(
    None, "-V", "--version", package_name="rubricem", message="%(prog)s %(version)s"
)
def main() -> None:
    """Research a question in four stages and answer it with citations that hold.

    Begin with: rubricem ask --source FOLDER "What ...?"

    --debug and --config may stand anywhere.
    """
