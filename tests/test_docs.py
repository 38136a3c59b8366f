"""What README and docs name is there: commands and their flags, settings, linked files."""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from agent.cli import main
from agent.commands.serve import PORT
from agent.serve.routes_mcp import PATH
from agent.settings import load_settings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md")))
FOR_USERS = [
    ROOT / "README.md",
    *(DOCS / f"{name}.md" for name in ("quickstart", "chat", "serving", "recipes", "faq")),
    *(DOCS / f"{name}.md" for name in ("memory", "collecting", "training", "library")),
]
SCHEMES = ("http://", "https://", "mailto:")
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
TOML = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
JSON = re.compile(r"^```json\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


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
def test_every_command_that_is_named_is_known(page: Path) -> None:
    for line in commands_in(page.read_text(encoding="utf-8")):
        try:
            check(line)
        except click.UsageError as error:
            pytest.fail(f"{page.name}: {line}: {error.format_message()}")


@pytest.mark.parametrize(
    "line",
    [
        "rubricem bank teleport",
        "rubricem bank list --all",
        "rubricem collect q.txt --out run --held-out",
        "rubricem export run --to csv",
        "rubricem learn --limit 2 --verbose",
        "rubricem runs show run two",
    ],
)
def test_a_command_that_there_is_not_is_found(line: str) -> None:
    with pytest.raises(click.UsageError):
        check(line)


def test_commands_are_found_in_blocks_over_several_lines_and_in_prose() -> None:
    block = "```sh\nrubricem ask \\\n  --quiet  # so\npip install x\n```\n"
    text = f"Say `rubricem\nbank list`.\n\n{block}"
    assert [" ".join(line.split()) for line in commands_in(text)] == [
        "rubricem ask --quiet # so",
        "rubricem bank list",
    ]


def test_every_flag_that_users_are_told_of_is_some_commands() -> None:
    known = flags_of(main)
    assert {"--held-out", "--dry-run", "--debug"} <= known
    for page in FOR_USERS:
        spans = SPAN.findall(page.read_text(encoding="utf-8"))
        named = {span.split()[0].rstrip(",") for span in spans if span.startswith("--")}
        assert named <= known, page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_settings_file_that_is_shown_can_be_read(
    page: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        settings = load_settings()
        assert {settings.origin(name) for name in tomllib.loads(block)} == {str(place)}
        place.unlink()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_and_heading_that_is_linked_is_there(page: Path) -> None:
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


def test_a_link_to_no_file_and_to_no_heading_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# It's `a` page\n")
    assert [dead(page, link) for link in ("page.md", "page.md#its-a-page", "https://a.b")] == [
        False, False, False,
    ]  # fmt: skip
    assert [dead(page, link) for link in ("other.md", "page.md#other")] == [True, True]


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            links = LINK.findall(page.read_text(encoding="utf-8"))
            files = [(page.parent / link.partition("#")[0]).resolve() for link in links]
            waiting += [file for file in files if file.suffix == ".md" and file.is_file()]
    assert set(PAGES) <= reached


def test_a_client_is_told_a_command_that_there_is_and_an_address_that_is_served() -> None:
    blocks = JSON.findall((DOCS / "recipes.md").read_text(encoding="utf-8"))
    started, served = (json.loads(block)["mcpServers"]["rubricem"] for block in blocks)
    check(shlex.join([started["command"], *started["args"]]))
    assert served["url"].endswith(f":{PORT}{PATH}")
    assert served["headers"]["Authorization"].startswith("Bearer ")
