"""The root command: what it loads, how errors end, and terminals that are not kind.

Budgets are the same flags wherever questions are asked, and a server's hold for its questions.
"""

import asyncio
import errno
import json
import os
import re
import signal
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from rubricem.agent.cli import COMMANDS, Lazy, LazyGroup, main, retired
from rubricem.agent.settings import Settings
from rubricem.memory.errors import PolicyError, SettingsError, install_of
from tests.conftest import ROOT, refusal, rubricem
from tests.support.waiting import Process

RUN = "from rubricem.agent.cli import main; main(prog_name='rubricem')"


@click.command()
@click.argument("what")
def trouble(what: str) -> None:
    """Fail in the way named."""
    failures: dict[str, BaseException] = {
        "settings": SettingsError("The flag is wrong.", "Correct it."),
        "policy": PolicyError("The server is down.", "Start it."),
        "bug": ZeroDivisionError("by zero"),
        "loop": OSError(errno.ELOOP, os.strerror(errno.ELOOP), "/a/loop"),
        "gone": OSError(errno.ENOENT, os.strerror(errno.ENOENT), "/a/part"),
        "interrupt": KeyboardInterrupt(),
        "group": ExceptionGroup("tasks", [ValueError("x"), PolicyError("It broke.", "Mend it.")]),
    }
    raise failures[what]


@click.command()
def forever() -> None:
    """Wait until it is interrupted."""

    async def wait() -> None:
        click.echo("waiting")
        await asyncio.sleep(60)

    asyncio.run(wait())


@click.command()
def chatter() -> None:
    """Print more than any pipe holds."""
    for _ in range(100_000):
        print("much to say")


LAZY = {name: Lazy(f"{__name__}:{name}", "") for name in ("trouble", "forever", "speak", "chatter")}


def run(*args: str) -> Result:
    return CliRunner().invoke(LazyGroup(lazy=LAZY, params=list(main.params)), list(args))


def process(*args: str, **env: str) -> Process:
    """A group of this file's commands in a process of its own."""
    code = (
        "import importlib.util as u, sys; "
        f"s = u.spec_from_file_location('tests_cli', {__file__!r}); m = u.module_from_spec(s); "
        "sys.modules['tests_cli'] = m; s.loader.exec_module(m); "
        "from rubricem.agent.cli import LazyGroup; LazyGroup(lazy=m.LAZY)()"
    )
    command = [sys.executable, "-c", code, *args]
    pipe = subprocess.PIPE
    return Process(command, cwd=ROOT, env=os.environ | env, stdout=pipe, stderr=pipe)


def test_help_names_every_command_and_loads_none():
    tell = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
    command = [sys.executable, "-c", tell + RUN, "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    for name, lazy in COMMANDS.items():
        assert f"{name} " in done.stdout
        assert lazy.help in done.stdout
    loaded = {name.split(".")[0] for name in done.stderr.split()} | set(done.stderr.split())
    heavy = {"pydantic", "langgraph", "openai", "httpx", "numpy", "rich", "asyncio", "torch"}
    assert "rubricem.agent.cli" in loaded
    assert not loaded & heavy
    listed = re.findall(r"(?m)^  ([a-z]+) {2,}", done.stdout)
    assert listed[:4] == ["ask", "chat", "watch", "serve"], "those first that most people want"
    assert "Begin with: rubricem ask" in done.stdout
    assert not [name for name in loaded if name.startswith("rubricem.agent.commands")]


def commands(command: click.Command, *path: str) -> dict[str, click.Command]:
    """Every command and group by the words that call it."""
    found = {" ".join(path): command} if path else {}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found |= commands(below, *path, name)
    return found


def test_what_the_version_before_had_is_there_or_says_what_to_do_instead():
    before = json.loads((ROOT / "tests" / "data" / "ec15fe0e" / "surface.json").read_text())
    now = {
        name: {opt for p in each.params for opt in p.opts} for name, each in commands(main).items()
    }
    untold = [name for name in before if name not in now and name not in retired()]
    for name in before.keys() & now.keys():
        gone = {each for each in before[name] if each not in now[name]}
        gone -= {each for each in gone if {each, f"{name} {each}"} & retired().keys()}
        if "--set" in now[name]:
            gone -= {each for each in gone if each[2:].replace("-", "_") in Settings.model_fields}
        untold += [f"{name} {each}" for each in gone]
    assert not untold
    assert not [name for name in retired() if name in now], "what is gone is not there"


@pytest.mark.parametrize("name", ["trust", "uninstall"])
def test_a_command_or_an_option_that_is_gone_says_what_to_do_instead(name: str):
    assert f"{name} is gone: {retired()[name]}." in rubricem(name, code=2).stderr
    told = rubricem("ask", "Why?", "--allow-host", "x", code=2).stderr
    assert retired()["--allow-host"] in told


@pytest.mark.parametrize(
    "given", ["seed", "nothing=1", "prices={", "verify=repiar", "efort=deep", "tool_calls=0"]
)
def test_a_setting_that_cannot_be_set_is_refused_as_it_was_given(given: str):
    said = refusal("ask", "-q", "Why?", "--set", given).replace("'", "")
    assert said.startswith(f"error: --set {given.partition('=')[0]}") and "--verify" not in said


def test_a_flag_wins_over_the_same_setting(tmp_path: Path):
    given = (
        "--set",
        "model=a",
        "--set",
        "verify=off",
        "--model",
        "b",
        *SERVER[:2],
        "--set",
        "source=python",
    )
    told = json.loads(rubricem("doctor", "--json", *given, code=1).stdout)["settings"]
    assert told["model"]["value"] == "b" and told["verify"]["value"] == "off"


@pytest.mark.parametrize(
    ("failure", "code", "told"),
    [
        ("settings", 2, "error: The flag is wrong.\nCorrect it.\n"),
        ("policy", 1, "error: The server is down.\nStart it.\n"),
        ("group", 1, "error: It broke.\nMend it.\n"),
    ],
    ids=["a wrong setting", "a failure", "one inside a group of tasks"],
)
def test_an_error_is_a_sentence_a_remedy_and_an_exit_code(failure: str, code: int, told: str):
    done = run("trouble", failure)
    assert (done.exit_code, done.stdout, done.stderr) == (code, "", told)


def test_an_error_holds_nothing_that_a_terminal_would_obey(tmp_path: Path):
    (tmp_path / "q.jsonl").write_text('{"\\u001b]0;owned\\u0007a\\u001b[2J": 1}\n')
    told = refusal("collect", tmp_path / "q.jsonl", "--out", tmp_path / "run")
    assert "it has a." in told and "\x1b" not in told


def test_what_the_system_refuses_is_no_fault_of_ours():
    done = run("trouble", "loop")
    assert done.stderr.startswith("error: /a/loop cannot be used: Too many levels of symbolic")
    assert "bug in rubricem" not in done.stderr and done.exit_code == 1
    assert "bug in rubricem" in run("trouble", "gone").stderr


@pytest.mark.parametrize(
    ("args", "variable", "shown"),
    [
        (("--debug", "trouble", "policy"), None, True),
        (("trouble", "policy"), "1", True),
        (("trouble", "policy"), "0", False),
    ],
)
def test_debug_shows_the_traceback_wherever_it_stands_also_in_the_environment(
    args: tuple[str, ...], variable: str | None, shown: bool, monkeypatch: pytest.MonkeyPatch
):
    if variable is not None:
        monkeypatch.setenv("RUBRICEM_DEBUG", variable)
    done = run(*args)
    assert (done.exit_code, "Traceback" in done.stderr) == (1, shown)
    assert done.stderr.endswith("error: The server is down.\nStart it.\n")


def test_an_unknown_command_is_misuse_and_what_may_be_meant_is_named():
    done = run("sing")
    assert done.exit_code == 2
    assert "sing" in done.stderr
    assert "Did you mean 'ask'?" in rubricem("aks", code=2).stderr
    asked = rubricem("What does lru_cache do?", code=2).stderr
    assert " ask 'What does lru_cache do?'" in asked


def test_an_interruption_is_one_line_and_130():
    waiting = process("forever")
    assert waiting.stdout
    assert waiting.stdout.readline() == b"waiting\n"
    waiting.send_signal(signal.SIGINT)
    _, errors = waiting.communicate()
    assert (waiting.returncode, errors.strip()) == (130, b"interrupted")


def test_a_reader_that_goes_away_is_no_error():
    talking = process("chatter")
    assert talking.stdout
    talking.stdout.readline()
    talking.stdout.close()
    assert talking.stderr
    errors = talking.stderr.read()
    talking.stderr.close()
    assert talking.wait() == 1
    assert errors == b""


FIRST_LINE = """
import io, os, sys
class Ending(io.StringIO):
    def write(self, line):
        line and os._exit(line != b"Why?\\n")
sys.stderr = Ending()
from rubricem.agent.cli import main
main(["ask", "Why?"])
"""


@cache
def cpu_of(*program: str) -> float:
    """Least CPU of three runs."""
    spent = [sum(os.times()[2:4])]
    for _ in range(3):
        subprocess.run([sys.executable, "-c", *program], cwd=ROOT, check=True)
        spent.append(sum(os.times()[2:4]))
    return min(after - before for before, after in pairwise(spent))


@pytest.mark.parametrize(
    ("most", "program"),
    [(1, (RUN, "--help")), (1, (FIRST_LINE,)), (2, ("from rubricem import research",))],
    ids=["help", "first line", "library"],
)
def test_it_starts_at_once(most: float, program: tuple[str, ...]):
    """Beside two libraries, so that a slow machine is no fault of ours."""
    assert 0 < cpu_of(*program) <= most * cpu_of("import httpx, pydantic")


SERVER = ("--base-url", "http://127.0.0.1:9/v1", "--model", "x", "--source", "python")


@pytest.mark.parametrize(
    ("package", "extra", "command"),
    [
        ("xllamacpp", "local", ("ask", "--source", "python", "Why?")),
        ("weasyprint", "pdf", ("ask", *SERVER, "--out", "report.pdf", "Why?")),
    ],
)
@pytest.mark.slow
def test_what_an_extra_brings_is_named_where_it_is_missing(
    package: str, extra: str, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, package, None)
    told = rubricem(*command, code=2).stderr
    assert f" needs {package}, which is not installed.\n" in told
    assert install_of(extra) in told


@pytest.mark.parametrize(
    ("mark", "pip", "command"),
    [
        ("pipx_metadata.json", False, "pipx install --force "),
        ("uv-receipt.toml", False, "uv tool install "),
        ("pyvenv.cfg", False, f"uv pip install --python {sys.executable} "),
        ("pyvenv.cfg", True, f"{sys.executable} -m pip install "),
    ],
)
def test_what_installs_an_extra_is_what_installed_the_program(
    mark: str, pip: bool, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / mark).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr("rubricem.memory.errors.find_spec", lambda name: pip or None)
    told = install_of("local")
    assert told.startswith(command) and "[local]" in told


def test_the_package_is_run_as_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "rubricem", "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0 and "Usage: rubricem [" in done.stdout, done.stderr
