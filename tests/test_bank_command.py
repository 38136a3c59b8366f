"""`rubricem bank list`, `show` and `stats`, and how an id is found."""

import asyncio
import shutil
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory.bank_stats import stats_of
from memory.bank_store import BankStore
from tests.bank_commands import PARTS, bank, bank_json, put, reflection, states


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path))
    return tmp_path


def test_an_empty_bank_is_said_to_hold_nothing(data: Path):
    assert bank("list").stdout == "0 reflections\n"
    assert bank_json("list") == {"reflections": []}
    assert "There is nothing" in bank("search", "cache").stdout
    assert bank_json("search", "cache") == {"matches": []}
    assert not (data / "bank").exists()


def test_a_list_names_what_it_leaves_out(data: Path):
    held = put(
        data,
        reflection("old"),
        reflection("new"),
        reflection("off", "What is off?"),
        reflection("bad", "What is bad?", flags=("It tells its reader to obey.",)),
    )
    asyncio.run(held.disable("off"))
    assert states(every=False) == {"new": "live"}
    everything = {"old": "replaced", "new": "live", "off": "disabled", "bad": "quarantine"}
    assert states() == everything
    last = bank("list").stdout.splitlines()[-1]
    assert last == "1 reflection; with --every also 1 replaced, 1 disabled, 1 in quarantine"
    assert bank("list", "--every").stdout.splitlines()[-1] == "4 reflections"


@pytest.mark.parametrize(
    ("sort", "order"),
    [("written", ["b", "a", "c"]), ("score", ["c", "b", "a"]), ("recalled", ["a", "c", "b"])],
)
def test_the_most_of_what_is_sorted_by_comes_last(data: Path, sort: str, order: list[str]):
    held = put(
        data,
        reflection("a", "A?", score=0.9, written_at=datetime(2026, 1, 2, tzinfo=UTC)),
        reflection("b", "B?", score=0.8, written_at=datetime(2026, 1, 1, tzinfo=UTC)),
        reflection("c", "C?", score=0.7, written_at=datetime(2026, 1, 3, tzinfo=UTC)),
    )
    asyncio.run(held.used("run-7", ["b", "c"], "D?"))
    asyncio.run(held.used("run-8", ["b"], "E?"))
    listed = bank_json("list", "--sort", sort)["reflections"]
    assert [item["id"] for item in listed] == order


def test_a_reflection_is_shown_with_where_it_comes_from(data: Path):
    held = put(
        data,
        reflection("old"),
        reflection(
            "new",
            policy="qwen",
            policy_version="1f2e",
            judge="stage-judge",
            judge_version="r3",
            stage_scores=(0.5, None, 0.25, 1.0),
            reflection_score=PARTS,
        ),
    )
    asyncio.run(held.used("run-7", ["new"], "Another?"))
    asyncio.run(held.scored("run-7", 0.625))
    shown = bank("show", "ne").stdout
    for said in (
        "run-1",
        "qwen (1f2e)",
        "stage-judge (r3)",
        "plan 0.50, research -, review 0.25, answer 1.00",
        "0.75: diagnostic accuracy 0.90, specificity 0.80, scope and balance 0.70",
        "It is exact.",
        "2026-01-02 03:04 UTC after a run",
        "recalled by  1 run, which scored 0.62 on average",
        "Pitfalls: guessing",
        "- read the source",
    ):
        assert said in shown
    before, after = shown.split("of the same question:")
    assert "old" in after and "old" not in before


def test_as_json_a_reflection_has_its_standing_and_its_versions(data: Path):
    put(data, reflection("old"), reflection("new"))
    shown = bank_json("show", "new")
    assert shown["reflection"]["state"] == "live" and shown["reflection"]["until"] is None
    assert [(r["id"], r["since"], r["until"]) for r in shown["history"]] == [
        ("old", 1, 2), ("new", 2, None),
    ]  # fmt: skip


def test_what_a_model_wrote_cannot_move_the_cursor_or_fake_a_line(data: Path):
    evil = "a\x1b[2J\u202e\nstate     pinned"
    put(data, reflection("x", evil, policy=evil, rubrics=evil, flags=(evil,)))
    for shown in (bank("show", "x").stdout, bank("list", "--every").stdout):
        assert "\x1b" not in shown and "\u202e" not in shown
    facts = bank("show", "x").stdout.split("\n\n")[0]
    said = [line.split() for line in facts.splitlines()]
    assert [words for words in said if words[0] == "state"] == [["state", "quarantine"]]


def test_an_id_is_found_by_its_beginning_unless_another_begins_so(data: Path):
    put(data, reflection("abc1", "A?"), reflection("abc2", "B?"), reflection("abc", "C?"))
    assert bank_json("show", "abc1")["reflection"]["question"] == "A?"
    assert bank_json("show", "abc")["reflection"]["question"] == "C?"
    many = bank("show", "ab", exit_code=2)
    assert "3 reflections begin with 'ab': abc1, abc2, abc" in many.stderr
    assert "Give more of the id." in many.stderr


@pytest.mark.parametrize(
    "command",
    ["show", "edit", "pin", "unpin", "disable", "enable", "release", "rm"],
)
@pytest.mark.parametrize("identifier", ["none", "", "x%", "\udcff"])
def test_an_unknown_id_is_said_by_every_command(data: Path, command: str, identifier: str):
    put(data, reflection("abc"))
    told = bank(command, identifier, exit_code=2).stderr
    assert f"No reflection begins with {identifier!r}." in told
    assert "rubricem bank list" in told


def test_stats_are_told_while_another_process_rewrites_the_index(data: Path):
    put(data, reflection("a"))
    folder, over = data / "bank" / "index" / "vectors", threading.Event()

    def rewrite() -> None:
        while not over.is_set():
            folder.mkdir(parents=True)
            for number in range(20):
                (folder / str(number)).touch()
            shutil.rmtree(folder)

    other = threading.Thread(target=rewrite)
    other.start()
    try:
        for _ in range(300):
            assert stats_of(BankStore(data / "bank")).index_bytes == 0
    finally:
        over.set()
        other.join()


def test_stats_count_what_there_is(data: Path):
    held = put(data, reflection("a"), reflection("b"), reflection("c", "C?", flags=("It is odd.",)))
    asyncio.run(held.used("run-7", ["b"], "D?"))
    counted = bank_json("stats")
    assert {name: counted[name] for name in ("live", "replaced", "quarantined", "uses")} == {
        "live": 1, "replaced": 1, "quarantined": 1, "uses": 1,
    }  # fmt: skip
    assert counted["journal_bytes"] == (data / "bank" / "journal.jsonl").stat().st_size
    said = bank("stats").stdout
    assert "uses           1 run given something" in said
    assert "none yet" in said


def test_a_size_below_a_megabyte_is_told_in_kilobytes(data: Path):
    put(data, reflection("a"))
    size = (data / "bank" / "journal.jsonl").stat().st_size
    assert f"on disk        {size / 1e3:.1f} kB journal, 0.0 kB index" in bank("stats").stdout


@pytest.mark.parametrize("sought", ["", " \t"])
def test_nothing_is_not_looked_for(data: Path, sought: str):
    put(data, reflection("a"))
    told = bank("search", sought, exit_code=2).stderr
    assert "There is nothing to look for." in told and len(told.splitlines()) == 2


def test_json_escapes_whatever_a_terminal_would_act_on(data: Path):
    nasty = "na\u202eive \x9b31m \x1b[2J\u200b\U000e0041 caf\u00e9 \U0001f600"
    put(data, reflection("abc", takeaways=nasty))
    shown = bank("show", "abc", "--json").stdout
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert "caf\u00e9 \U0001f600" in shown and "\\udb40\\udc41" in shown
    assert bank_json("show", "abc")["reflection"]["takeaways"] == nasty
