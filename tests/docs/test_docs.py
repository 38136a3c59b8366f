"""What README and docs name is there: commands and their flags, settings, linked files.

The page of settings is what the code reads, and says of every key what it means. What is shown on
a console is what the command prints, with the same model's words: each line that begins with `$` is
a command, and what follows is its standard output. Addresses of servers, times and names of runs
differ from run to run and are not compared.
"""

import ast
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from docs.configuration import (
    PAGE,
    STATIC,
    TEXTS,
    default_of,
    kind_of,
    renewed,
    table_of_texts,
    texts,
)
from rubricem.agent.cli import main
from rubricem.agent.cli.serve import PORT
from rubricem.agent.serve.routes_mcp import PATH
from rubricem.agent.settings import Settings, load_settings
from tests.conftest import ROOT, rubricem
from tests.support import pages
from tests.support.scripted_server import ScriptedServer
from tests.support.terminal import scripted_folder

DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md")))
FOR_USERS = [
    ROOT / "README.md",
    *(DOCS / f"{name}.md" for name in ("quickstart", "chat", "serving", "recipes", "faq")),
    *(
        DOCS / f"{name}.md"
        for name in ("memory", "collecting", "training", "library", "evaluation")
    ),
]
SCHEMES = ("http://", "https://", "mailto:")
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
TOML = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
JSON = re.compile(r"^```json\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def test_every_text_of_the_page_is_in_the_table_that_a_translation_begins_with():
    assert TEXTS.read_text(encoding="utf-8") == table_of_texts()
    assert len(json.loads(TEXTS.read_text(encoding="utf-8"))) > 350
    for path in STATIC.glob("*.js"):
        code = re.sub(r"//.*|/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)
        for said in texts():
            code = code.replace(json.dumps(said, ensure_ascii=False), "")
        alone = re.findall(r'"([A-Z][a-z]+ [a-z][^"]*)"', code)
        assert not [each for each in alone if f"{each}" not in "".join(texts())], path.name


def commands_in(text: str) -> Iterator[str]:
    """Every command line: those of shell blocks, and what stands between backticks in prose."""
    for block in SHELL.findall(text):
        lines = block.replace("\\\n", " ").splitlines()
        yield from (line for line in lines if line.startswith("rubricem "))
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    spans = (" ".join(span.split()) for span in SPAN.findall(prose))
    yield from (span for span in spans if span.startswith("rubricem "))


def check(line: str) -> None:
    """Raise click's UsageError unless click knows the command, its flags and their values.

    Of a choice several may stand together, as in stage|relative.
    """
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = main
    context = click.Context(main, info_name="rubricem")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command, context = found, click.Context(found, info_name=name, parent=context)
    given, left, _ = command.make_parser(context).parse_args(words)
    if left:
        raise click.UsageError(f"there is no argument {left[0]!r}")
    for param in command.params:
        assert param.name
        if isinstance(param.type, click.Choice) and isinstance(value := given.get(param.name), str):
            for one in value.split("|"):
                param.type.convert(one, param, context)


def flags_of(command: click.Command) -> set[str]:
    flags = {flag for param in command.params for flag in param.opts}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            flags |= flags_of(below)
    return flags


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_is_named_is_known(page: Path):
    for line in commands_in(page.read_text(encoding="utf-8")):
        try:
            check(line)
        except click.UsageError as error:
            pytest.fail(f"{page.name}: {line}: {error.format_message()}")


def test_every_flag_that_users_are_told_of_is_some_commands():
    known = flags_of(main)
    assert {"--debug", "--group-size"} <= known
    for page in FOR_USERS:
        spans = SPAN.findall(page.read_text(encoding="utf-8"))
        named = {span.split()[0].rstrip(",") for span in spans if span.startswith("--")}
        assert named <= known, page.name


README = ROOT / "README.md"
PROSE = re.compile(r"```.*?```|!\[[^]]*\]|\]\([^)]*\)|[*`#\[\]]", re.DOTALL)
"""what is no prose of a page: blocks, pictures, addresses and marks"""


def test_the_readme_is_short_in_short_sentences_and_shows_a_picture_of_little_weight():
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) <= 700
    sentences = re.split(r"(?<=[.:?!])\s|\n\n", PROSE.sub("", text))
    assert len(sentences) > 30
    assert [said for said in sentences if len(said.split()) > 30] == []
    [picture] = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert (ROOT / picture).stat().st_size <= 150_000


def test_every_command_of_the_readme_works_in_a_fresh_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lines = "".join(SHELL.findall(README.read_text(encoding="utf-8"))).splitlines()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = [line for line in lines if line.startswith("rubricem ask")]
    made = {line.split()[1] for line in lines if line.startswith("make ")}
    assert made == {"ask", "test"} <= targets and len(asked) == 2
    rest = [line for line in lines if line not in asked and not line.startswith("make ")]
    assert rest == [". .venv/bin/activate", "rubricem serve --open"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUBRICEM_SOURCE", "papers")
    (tmp_path / "papers").mkdir()
    for name, document in pages.DOCUMENTS.items():
        (tmp_path / "papers" / f"{name}.md").write_text(document, encoding="utf-8")
    with ScriptedServer(pages.reply) as model:
        monkeypatch.setenv("RUBRICEM_BASE_URL", model.base_url)
        for line in asked:
            here = line.replace("http://localhost:8000/v1", model.base_url)
            done = rubricem(*shlex.split(here.replace("NAME", "scripted"))[1:])
            assert done.exit_code == 0 and "can grow without bound" in done.stdout, done.output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_settings_file_that_is_shown_can_be_read(
    page: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (home / "config" / "rubricem").mkdir(parents=True)
    places = {
        "# rubricem.toml": tmp_path / "rubricem.toml",
        "# ~/.config/rubricem/rubricem.toml": home / "config" / "rubricem" / "rubricem.toml",
    }
    for block in TOML.findall(page.read_text(encoding="utf-8")):
        if (place := places.get(block.splitlines()[0])) is None:
            continue  # a training's: test_docs_training.py
        place.write_text(block, encoding="utf-8")
        named = str(place) if place.parent == tmp_path else ""
        monkeypatch.setenv("RUBRICEM_CONFIG", named)
        settings = load_settings()
        assert {settings.origin(name) for name in tomllib.loads(block)} == {str(place)}
        place.unlink()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_and_heading_that_is_linked_is_there(page: Path):
    assert [
        link for link in LINK.findall(page.read_text(encoding="utf-8")) if dead(page, link)
    ] == []


def dead(page: Path, link: str) -> bool:
    """Whether a relative link leads nowhere; addresses of the web are not looked at."""
    if link.startswith(SCHEMES):
        return False
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    return not target.exists() or (bool(anchor) and anchor not in anchors(target))


def anchors(page: Path) -> set[str]:
    """The names under which the headings of a page are linked."""
    headings = (heading.lower() for heading in HEADING.findall(page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def test_every_page_is_reached_from_the_readme():
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            links = LINK.findall(page.read_text(encoding="utf-8"))
            files = [(page.parent / link.partition("#")[0]).resolve() for link in links]
            waiting += [file for file in files if file.suffix == ".md" and file.is_file()]
    assert set(PAGES) <= reached


WAY = re.compile(r"^ {4,}((?:agent|judge|memory|training)[\w/]*)\.([\w.]+)(?: |$)", re.M)
"""a line of a way through the code: a module, and a name in it"""


def missing_in(text: str) -> list[str]:
    """Of such lines the names that there are not."""
    found = []
    for module, name in WAY.findall(text):
        path = next(
            p for p in (ROOT / f"{module}.py", ROOT / module / "__init__.py") if p.is_file()
        )
        inside: Any = ast.parse(path.read_text(encoding="utf-8"))
        for part in name.split("."):
            inside = next((n for n in inside.body if getattr(n, "name", "") == part), None)
            if inside is None:
                found.append(f"{module}.{name}")
                break
    return found


def test_the_ways_through_the_code_name_what_there_is():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    assert len(WAY.findall(text)) > 40
    assert missing_in(text) == []
    line = "      agent/research/run.Run.{}     the next text\n"
    assert missing_in(line.format("write") + line.format("wrote")) == [
        "agent/research/run.Run.wrote"
    ]


def test_a_client_is_told_a_command_that_there_is_and_an_address_that_is_served():
    blocks = JSON.findall((DOCS / "recipes.md").read_text(encoding="utf-8"))
    started, served = (json.loads(block)["mcpServers"]["rubricem"] for block in blocks)
    check(shlex.join([started["command"], *started["args"]]))
    assert served["url"].endswith(f":{PORT}{PATH}")
    assert served["headers"]["Authorization"].startswith("Bearer ")


def test_the_page_is_up_to_date():
    text = PAGE.read_text(encoding="utf-8")
    assert renewed(text) == text, "make it anew: python -m docs.configuration"


def test_no_secret_has_a_default_that_the_page_would_show():
    secrets = [name for name, field in Settings.model_fields.items() if "secret" in kind_of(field)]
    assert {"api_key", "tavily_key"} <= set(secrets)
    assert {default_of(name, Settings.model_fields[name]) for name in secrets} == {""}


CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
CHANGING = (
    (re.compile(r"127\.0\.0\.1:\d+"), "HOST"),
    (re.compile(r"\b\d+(?:\.\d+)? s$", re.MULTILINE), "TIME"),
    (re.compile(r"\b[0-9a-f]{12}\b"), "RUN"),
)
INPUT = re.compile(r"printf '(.*)' \| ")
SHOWN = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(CONSOLE.findall(page.read_text(encoding="utf-8")))
]


def spoken(block: str) -> Iterator[tuple[str, str, str]]:
    """Each command's arguments, what is written to it, and what it shall print."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, printed = part.partition("\n")
        piped = INPUT.match(line)
        entered = piped[1].replace("\\n", "\n") if piped else ""
        yield line[piped.end() :] if piped else line, entered, printed


def settled(text: str) -> str:
    for pattern, name in CHANGING:
        text = pattern.sub(name, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


@pytest.mark.parametrize("block", SHOWN)
def test_a_console_prints_what_is_shown(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with scripted_folder(tmp_path, monkeypatch):
        for line, entered, printed in spoken(block):
            program, *arguments = shlex.split(line)
            assert program == "rubricem"
            done = rubricem(*arguments, typed=entered)
            assert settled(done.stdout) == settled(printed)
