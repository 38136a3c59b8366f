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
import tomllib
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from rubricem.memory.errors import RubricemError, SettingsError, StoreError
from rubricem.memory.text import printable

FAILED, MISUSED, INTERRUPTED = 1, 2, 130
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


def table(name: str) -> dict[str, Any]:
    """What a file of this folder holds."""
    return tomllib.loads((files(__package__) / name).read_text(encoding="utf-8"))


PARTS = {
    part: {name: Lazy(f"rubricem.{target}", said) for name, (target, said) in rows.items()}
    for part, rows in table("commands.toml").items()
}
COMMANDS = {name: lazy for part in PARTS.values() for name, lazy in part.items()}


@cache
def retired() -> dict[str, str]:
    """Commands and options of earlier versions, and what to do instead."""
    return table("retired.toml")


def refuse_retired(ctx: click.Context, name: str) -> None:
    """Say what stands in the place of a command or an option that is gone; do nothing of others."""
    path = " ".join([*ctx.command_path.split(" ")[1:], name])
    instead = retired().get(path) or (retired().get(name) if name.startswith("-") else None)
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
        return self.lazy[cmd_name].load() if cmd_name in self.lazy else None

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
        atexit.register(gc.freeze)  # else garbage is sought for half a second before the end
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
        if gone := [e for e in _within(error) if getattr(e, "errno", None) == errno.EPIPE]:
            raise gone[0] from None  # click ends silently when the reader has gone
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


def _within(error: BaseException) -> Iterator[BaseException]:
    """The error itself; of a group, with which tasks wrap theirs, each that it holds."""
    for each in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        yield from _within(each)
    if not isinstance(error, BaseExceptionGroup):
        yield error


def _find_error(error: BaseException) -> RubricemError | None:
    """The first of our own errors in it."""
    return next(filter(None, map(_known, _within(error))), None)


def _known(error: BaseException) -> RubricemError | None:
    """The error as one of ours; None: nobody foresaw it."""
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
    return None


@contextmanager
def _notices_told() -> Iterator[None]:
    """What loading the settings has to say is printed, once for a command."""
    logger, told = logging.getLogger("rubricem.agent.settings"), logging.Handler()
    tell = cache(lambda line: click.echo(printable(line), err=True))
    told.emit = lambda record: tell(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(told)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(told)
        logger.propagate = True


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
    callback=lambda ctx, param, value: ctx.meta.setdefault(DEBUG_VARIABLE, value),
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
