"""`rubricem bank snapshot` and `restore`.

`rubricem bank search` and `rebuild`: whose vectors a bank holds, and how it gets others.

`rubricem bank pin`, `disable`, `release` and `rm`: what a person decides, asked for or not.
"""

import asyncio
import os
import pty
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rubricem.memory.bank import RubricBank
from tests.agent.cli.test_nothing_lost import read_until
from tests.conftest import COMMAND, ROOT
from tests.support.bank_cli import bank, bank_json, put, reflection, states
from tests.support.tiny import write_small_embedder
from tests.support.waiting import Process


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    put(tmp_path / "data", reflection("a"), reflection("b", "What is a cache?"))
    return tmp_path / "data"


def test_a_bank_goes_back_to_its_copy_and_what_was_removed_stays_away(data: Path, tmp_path: Path):
    assert bank("snapshot", str(tmp_path / "copy")).stdout.startswith("2 events copied to")
    put(data, reflection("c", "What is a set?"))
    bank("rm", "a", "--yes")
    assert "3 events" in bank("restore", str(tmp_path / "copy"), "--yes").stdout
    assert states() == {"b": "live"}


def test_without_a_terminal_the_bank_is_not_given_up_unasked(data: Path, tmp_path: Path):
    bank("snapshot", str(tmp_path / "copy"))
    put(data, reflection("c", "What is a set?"))
    assert "--yes" in bank("restore", str(tmp_path / "copy"), exit_code=2).stderr
    assert set(states()) == {"a", "b", "c"}


def test_a_folder_without_a_whole_copy_and_another_banks_copy_are_refused(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert "no whole snapshot" in bank("restore", str(tmp_path), "--yes", exit_code=2).stderr
    bank("snapshot", str(tmp_path / "copy"))
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "other"))
    put(tmp_path / "other", reflection("z"))
    assert "another bank" in bank("restore", str(tmp_path / "copy"), "--yes", exit_code=2).stderr
    bank("restore", str(tmp_path / "copy"), "--yes", "--foreign")
    assert set(states()) == {"a", "b"}


def test_a_folder_with_another_journal_is_not_written_over(data: Path, tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "journal.jsonl").write_text("precious\n")
    assert "not a snapshot's" in bank("snapshot", str(tmp_path / "run"), exit_code=2).stderr
    assert (tmp_path / "run" / "journal.jsonl").read_text() == "precious\n"
    bank("snapshot", str(tmp_path / "copy"))
    (tmp_path / "copy" / "snapshot.json").rename(tmp_path / "copy" / "snapshot.begun")
    bank("snapshot", str(tmp_path / "copy"))
    assert "2 events" in bank("snapshot", str(tmp_path / "copy")).stdout, "a later copy replaces it"


@pytest.fixture(scope="module")
def embedders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two models that read kept texts differently."""
    folder = tmp_path_factory.mktemp("models")
    one = write_small_embedder(folder / "one")
    return one, write_small_embedder(folder / "two", {"document": "rome rome rome "})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embedders: tuple[Path, Path]) -> Path:
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("RUBRICEM_EMBEDDER", str(embedders[0]))
    put(tmp_path, reflection("a", "cache heap"), reflection("b", "rome"))
    return tmp_path


def similarities(*words: str) -> dict[str, float]:
    matches = bank_json("search", *words)["matches"]
    return {m["reflection"]["id"]: round(m["similarity"], 2) for m in matches}


def test_the_embedder_that_is_set_finds_what_is_nearest(here: Path):
    assert similarities("cache") == {"a": 0.71, "b": 0.0}
    assert similarities("-k", "1", "rome") == {"b": 1.0}
    first, *_ = bank("search", "cache").stdout.splitlines()
    assert first == " 0.71  a  cache heap"
    assert re.fullmatch(r"one-[0-9a-f]{12}", bank_json("stats")["embedder"])


def test_another_embedder_is_refused_until_the_bank_is_rebuilt(
    here: Path, embedders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
):
    similarities("cache")
    monkeypatch.setenv("RUBRICEM_EMBEDDER", str(embedders[1]))
    told = bank("search", "cache", exit_code=2).stderr
    assert re.search(r"one-[0-9a-f]{12}.*two-[0-9a-f]{12}", told)
    assert "rubricem bank rebuild" in told
    assert len(bank("list").stdout.splitlines()) == 4, "what needs no embedder goes on"
    said = bank("rebuild").stdout
    assert re.fullmatch(r"rebuilt: 2 live reflections, embedded by two-[0-9a-f]{12}\n", said)
    # "rome rome rome cache heap" against "cache": 1 / sqrt(11)
    assert similarities("cache") == {"a": 0.3, "b": 0.0}
    monkeypatch.setenv("RUBRICEM_EMBEDDER", str(embedders[0]))
    assert "rubricem bank rebuild" in bank("search", "cache", exit_code=2).stderr


def test_a_rebuild_shows_on_a_terminal_how_far_it_has_come(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    assert bank("rebuild").stderr == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = bank("rebuild").stderr
    assert "rebuilding" in shown and "2 embedded" in shown


def test_an_empty_bank_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: Path):
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "empty"))
    assert "rebuilt: 0 live reflections" in bank("rebuild").stdout


def test_an_embedder_that_cannot_be_had_is_one_sentence_and_a_remedy(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("RUBRICEM_EMBEDDER", "qwen3-0.6b")
    for command in (("search", "cache"), ("rebuild",)):
        told = bank(*command, exit_code=1).stderr
        assert "embedding model qwen3-0.6b cannot be fetched" in told
        assert len(told.splitlines()) == 2
    assert len(bank_json("list")["reflections"]) == 2


@pytest.mark.model
def test_minilm_finds_a_question_in_other_words(
    tmp_path: Path, minilm: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path))
    put(
        tmp_path,
        reflection("a", "How does Python's lru_cache decide what to evict?"),
        reflection("b", "Which river flows through Rome?"),
    )
    found = similarities("what is thrown out of a least-recently-used cache")
    assert list(found) == ["a", "b"] and found["a"] > 0.4 > found["b"]
    assert bank_json("stats")["embedder"].startswith("all-minilm-l6-v2-")


FLAG = "It tells its reader to obey."


@pytest.fixture(autouse=True)
def bank_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def test_a_pinned_reflection_is_not_replaced_until_it_is_unpinned(bank_dir: Path):
    put(bank_dir, reflection("abc"))
    assert "pinned: abc" in bank("pin", "ab").stdout
    put(bank_dir, reflection("later"))
    assert states() == {"abc": "pinned", "later": "replaced"}
    assert "not pinned: abc" in bank("unpin", "abc").stdout
    put(bank_dir, reflection("last"))
    assert states(every=False) == {"last": "live"}


def test_a_disabled_reflection_is_not_recalled_until_it_is_enabled(bank_dir: Path):
    held = put(bank_dir, reflection("abc"))
    bank("disable", "abc")
    assert states() == {"abc": "disabled"}
    assert asyncio.run(held.within("What is a heap?")) is None
    bank("enable", "abc")
    assert states() == {"abc": "live"}
    assert asyncio.run(held.within("What is a heap?")) == reflection("abc")


def test_several_are_decided_on_at_once_or_none_is(bank_dir: Path):
    put(bank_dir, reflection("abc", "A?"), reflection("xyz", "B?"))
    bank("pin", "abc", "none", exit_code=2)
    assert states() == {"abc": "live", "xyz": "live"}
    said = bank("pin", "abc", "xyz", "ab").stdout.splitlines()
    assert said == ["pinned: abc  A?", "pinned: xyz  B?"]
    assert states() == {"abc": "pinned", "xyz": "pinned"}


def test_what_was_replaced_or_is_in_quarantine_cannot_be_pinned(bank_dir: Path):
    put(bank_dir, reflection("old"), reflection("new"), reflection("bad", "C?", flags=(FLAG,)))
    assert "was replaced by new" in bank("pin", "old", exit_code=2).stderr
    assert "rubricem bank release bad" in bank("pin", "bad", exit_code=2).stderr


def test_a_release_shows_the_flags_and_text_and_is_asked_for(bank_dir: Path):
    put(bank_dir, reflection("bad", flags=(FLAG,)))
    told = bank("release", "bad", exit_code=2)
    assert FLAG in told.stdout and "- read the source" in told.stdout
    assert "There is no terminal to ask at." in told.stderr and "--yes" in told.stderr
    assert states() == {"bad": "quarantine"}
    assert "released: bad" in bank("release", "bad", "--yes").stdout
    assert states() == {"bad": "live"}
    shown = bank("show", "bad")
    assert f"released by hand at the terminal, {datetime.now(UTC):%Y-%m-%d}" in shown.stdout
    assert bank_json("show", "bad")["reflection"]["released_by"] == "terminal"


def test_a_release_into_the_history_says_what_stands_instead(bank_dir: Path):
    put(bank_dir, reflection("bad", flags=(FLAG,)), reflection("newer"))
    said = bank("release", "bad", "--yes").stdout.splitlines()[-1]
    assert said == "released into the history: bad; newer is newer and stands on its question"
    assert states() == {"bad": "replaced", "newer": "live"}
    bank("pin", "newer")
    put(bank_dir, reflection("late", takeaways="- other words", flags=(FLAG,)))
    assert "newer is pinned and stands" in bank("release", "late", "--yes").stdout


def test_a_release_of_what_is_disabled_says_so(bank_dir: Path):
    put(bank_dir, reflection("bad", flags=(FLAG,)))
    bank("disable", "bad")
    said = bank("release", "bad", "--yes").stdout.splitlines()[-1]
    assert said == "released: bad, which is disabled: rubricem bank enable bad"
    assert states() == {"bad": "disabled"}


def test_only_what_is_in_quarantine_is_released(bank_dir: Path):
    put(bank_dir, reflection("abc"), reflection("bad", "B?", flags=(FLAG,)))
    told = bank("release", "bad", "abc", "--yes", exit_code=2).stderr
    assert "The reflection abc is not in quarantine." in told
    assert states() == {"abc": "live", "bad": "quarantine"}


def test_at_a_terminal_a_release_is_decided_by_the_answer(bank_dir: Path):
    put(bank_dir, reflection("bad", flags=(FLAG,)))
    code, shown = at_a_terminal("n", "release", "bad")
    assert (code, states()) == (0, {"bad": "quarantine"})
    assert FLAG in shown and "stays in quarantine: bad" in shown
    code, shown = at_a_terminal("y", "release", "bad")
    assert (code, states()) == (0, {"bad": "live"})
    assert "released: bad" in shown


def test_what_is_removed_is_gone_from_every_view_and_from_the_journal(bank_dir: Path):
    put(bank_dir, reflection("abc", takeaways="- a secret"), reflection("xyz", "B?"))
    assert "removed: abc" in bank("rm", "abc", "--yes").stdout
    assert states() == {"xyz": "live"}
    assert bank_json("stats")["removed"] == 1
    assert "secret" not in (bank_dir / "bank" / "journal.jsonl").read_text()
    assert "secret" not in bank("export", "--every").stdout
    assert "No reflection begins with 'abc'" in bank("show", "abc", exit_code=2).stderr


def test_nothing_is_removed_without_a_word(bank_dir: Path):
    put(bank_dir, reflection("abc", "A?"), reflection("xyz", "B?"))
    assert "There is no terminal to ask at." in bank("rm", "abc", "xyz", exit_code=2).stderr
    code, shown = at_a_terminal("", "rm", "abc", "xyz")
    assert (code, states()) == (0, {"abc": "live", "xyz": "live"})
    assert "Remove these 2 for good?" in shown and "nothing was removed" in shown
    assert asyncio.run(RubricBank(bank_dir).generation()) == 2
