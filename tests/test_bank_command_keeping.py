"""`rubricem bank pin`, `disable`, `release` and `rm`: what a person decides, asked for or not."""

import asyncio
import os
import pty
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory.bank import RubricBank
from tests.bank_commands import bank, bank_json, put, reflection, states
from tests.conftest import COMMAND, ROOT
from tests.test_nothing_lost import read_until
from tests.waiting import Process

FLAG = "It tells its reader to obey."


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path))
    return tmp_path


def at_a_terminal(answer: str, *arguments: str) -> tuple[int, str]:
    """Exit code and output of the command for somebody who answers its question."""
    terminal, end = pty.openpty()
    process = Process(
        [*COMMAND, "bank", *arguments], cwd=ROOT, stdin=end, stdout=end, stderr=end,
        env={**os.environ, "TERM": "dumb"},
    )  # fmt: skip
    os.close(end)
    shown = read_until(terminal, "[y/N]")
    os.write(terminal, f"{answer}\n".encode())
    code = process.wait()
    shown += os.read(terminal, 65536).decode()
    os.close(terminal)
    return code, shown


def test_a_pinned_reflection_is_not_replaced_until_it_is_unpinned(data: Path):
    put(data, reflection("abc"))
    assert "pinned: abc" in bank("pin", "ab").stdout
    put(data, reflection("later"))
    assert states() == {"abc": "pinned", "later": "replaced"}
    assert "not pinned: abc" in bank("unpin", "abc").stdout
    put(data, reflection("last"))
    assert states(every=False) == {"last": "live"}


def test_a_disabled_reflection_is_not_recalled_until_it_is_enabled(data: Path):
    held = put(data, reflection("abc"))
    bank("disable", "abc")
    assert states() == {"abc": "disabled"}
    assert asyncio.run(held.within("What is a heap?")) is None
    bank("enable", "abc")
    assert states() == {"abc": "live"}
    assert asyncio.run(held.within("What is a heap?")) == reflection("abc")


def test_several_are_decided_on_at_once_or_none_is(data: Path):
    put(data, reflection("abc", "A?"), reflection("xyz", "B?"))
    bank("pin", "abc", "none", exit_code=2)
    assert states() == {"abc": "live", "xyz": "live"}
    said = bank("pin", "abc", "xyz", "ab").stdout.splitlines()
    assert said == ["pinned: abc  A?", "pinned: xyz  B?"]
    assert states() == {"abc": "pinned", "xyz": "pinned"}


def test_what_was_replaced_or_is_in_quarantine_cannot_be_pinned(data: Path):
    put(data, reflection("old"), reflection("new"), reflection("bad", "C?", flags=(FLAG,)))
    assert "was replaced by new" in bank("pin", "old", exit_code=2).stderr
    assert "rubricem bank release bad" in bank("pin", "bad", exit_code=2).stderr


def test_a_release_shows_the_flags_and_text_and_is_asked_for(data: Path):
    put(data, reflection("bad", flags=(FLAG,)))
    told = bank("release", "bad", exit_code=2)
    assert FLAG in told.stdout and "- read the source" in told.stdout
    assert "There is no terminal to ask at." in told.stderr and "--yes" in told.stderr
    assert states() == {"bad": "quarantine"}
    assert "released: bad" in bank("release", "bad", "--yes").stdout
    assert states() == {"bad": "live"}
    shown = bank("show", "bad")
    assert f"released by hand at the terminal, {datetime.now(UTC):%Y-%m-%d}" in shown.stdout
    assert bank_json("show", "bad")["reflection"]["released_by"] == "terminal"


def test_a_release_into_the_history_says_what_stands_instead(data: Path):
    put(data, reflection("bad", flags=(FLAG,)), reflection("newer"))
    said = bank("release", "bad", "--yes").stdout.splitlines()[-1]
    assert said == "released into the history: bad; newer is newer and stands on its question"
    assert states() == {"bad": "replaced", "newer": "live"}
    bank("pin", "newer")
    put(data, reflection("late", takeaways="- other words", flags=(FLAG,)))
    assert "newer is pinned and stands" in bank("release", "late", "--yes").stdout


def test_a_release_of_what_is_disabled_says_so(data: Path):
    put(data, reflection("bad", flags=(FLAG,)))
    bank("disable", "bad")
    said = bank("release", "bad", "--yes").stdout.splitlines()[-1]
    assert said == "released: bad, which is disabled: rubricem bank enable bad"
    assert states() == {"bad": "disabled"}


def test_only_what_is_in_quarantine_is_released(data: Path):
    put(data, reflection("abc"), reflection("bad", "B?", flags=(FLAG,)))
    told = bank("release", "bad", "abc", "--yes", exit_code=2).stderr
    assert "The reflection abc is not in quarantine." in told
    assert states() == {"abc": "live", "bad": "quarantine"}


def test_at_a_terminal_a_release_is_decided_by_the_answer(data: Path):
    put(data, reflection("bad", flags=(FLAG,)))
    code, shown = at_a_terminal("n", "release", "bad")
    assert (code, states()) == (0, {"bad": "quarantine"})
    assert FLAG in shown and "stays in quarantine: bad" in shown
    code, shown = at_a_terminal("y", "release", "bad")
    assert (code, states()) == (0, {"bad": "live"})
    assert "released: bad" in shown


def test_what_is_removed_is_gone_from_every_view_and_from_the_journal(data: Path):
    put(data, reflection("abc", takeaways="- a secret"), reflection("xyz", "B?"))
    assert "removed: abc" in bank("rm", "abc", "--yes").stdout
    assert states() == {"xyz": "live"}
    assert bank_json("stats")["removed"] == 1
    assert "secret" not in (data / "bank" / "journal.jsonl").read_text()
    assert "secret" not in bank("export", "--every").stdout
    assert "No reflection begins with 'abc'" in bank("show", "abc", exit_code=2).stderr


def test_nothing_is_removed_without_a_word(data: Path):
    put(data, reflection("abc", "A?"), reflection("xyz", "B?"))
    assert "There is no terminal to ask at." in bank("rm", "abc", "xyz", exit_code=2).stderr
    code, shown = at_a_terminal("", "rm", "abc", "xyz")
    assert (code, states()) == (0, {"abc": "live", "xyz": "live"})
    assert "Remove these 2 for good?" in shown and "nothing was removed" in shown
    assert asyncio.run(RubricBank(data).generation()) == 2
