"""`rubricem judge rubrics`: made before anything is judged, looked up, moved, changed by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rubricem.agent.cli import main
from rubricem.judge.buffers import add, prune
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.schema import RubricBuffer, Stage
from tests.support.scripted_server import ScriptedServer
from tests.support.values import QUESTION, item

GOOD, FLAT, FIRST = item("Names the rule.", 3), item("Is a text."), item("Asks.", kept=True)


def rubrics(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["judge", "rubrics", *arguments])


@pytest.fixture
def store(data: Path) -> BufferStore:
    return BufferStore(data / "buffers")


@pytest.fixture
def buffer(store: BufferStore) -> RubricBuffer:
    """Version 1 has all three, version 2 no longer the flat one."""
    grown = add(
        RubricBuffer(question=QUESTION), {Stage.ANSWER: [GOOD, FLAT], Stage.PLAN: [FIRST]}, 4, "why"
    )
    points = {Stage.ANSWER: {GOOD.key: [0.0, 2.0], FLAT.key: [2.0, 2.0]}}
    pruned = prune(grown, points, 4)
    store.save(pruned)
    return pruned


def test_every_question_is_listed_with_its_counts(buffer: RubricBuffer, store: BufferStore):
    done = rubrics("list")
    assert f"{buffer.id[:8]}  version 2: 1 kept, 1 active, 1 retired  {QUESTION}" in done.stdout
    assert json.loads(rubrics("list", "--json").stdout)["rubrics"][0]["version"] == buffer.label
    store.path(QUESTION).unlink()
    assert rubrics("list").stdout == "0 questions\n"


def test_a_question_is_shown_by_its_text_or_the_beginning_of_its_id(buffer: RubricBuffer):
    done = rubrics("show", QUESTION)
    assert done.exit_code == 0
    for line in (f"{GOOD.key}  3  Names the rule.", "retired", "kept"):
        assert line in done.stdout
    assert rubrics("show", buffer.id[:6]).stdout == done.stdout


def test_what_a_judgement_names_is_shown_as_it_was(buffer: RubricBuffer):
    label = buffer.at(1).label
    done = rubrics("show", QUESTION, "--version", label, "--json")
    shown = RubricBuffer.model_validate_json(done.stdout)
    assert shown.criteria(Stage.ANSWER) == (GOOD, FLAT)
    assert (shown.label, shown.criteria(Stage.PLAN)) == (label, (FIRST,))


def test_the_history_tells_each_change_and_why(buffer: RubricBuffer):
    said = rubrics("history", QUESTION).stdout
    assert "step 4: why" in said and "all runs agree on it" in said
    assert len(json.loads(rubrics("history", QUESTION, "--json").stdout)["history"]) == 4


def test_a_retired_criterion_can_be_pinned_for_good_and_a_kept_one_retired_with_its_reason(
    buffer: RubricBuffer, store: BufferStore
):
    assert rubrics("pin", QUESTION, FLAT.key[:5]).exit_code == 0
    changed = store.load(QUESTION)
    assert [c.title for c in changed.persistent[Stage.ANSWER]] == ["Is a text."]
    assert changed.persistent[Stage.ANSWER][0].persistent
    assert changed.retired[Stage.ANSWER] == ()
    assert changed.at(3).label == changed.label and changed.version == 3
    assert rubrics("retire", QUESTION, FIRST.key, "--reason", "too vague").exit_code == 0
    changed = store.load(QUESTION)
    assert changed.criteria(Stage.PLAN) == () and changed.retired[Stage.PLAN] == (FIRST,)
    assert changed.history[-1].reason == "by hand: too vague"
    assert changed.at(4) == changed


@pytest.mark.parametrize(
    "arguments",
    [
        ("pin", QUESTION, "zz"),
        ("retire", QUESTION, ""),
        ("show", "What?"),
        ("show", ""),
        *(("show", QUESTION, "--version", never) for never in ("3", "x", "1-00000000")),
    ],
)
def test_what_is_not_there_is_misuse(buffer: RubricBuffer, arguments: tuple[str, ...]):
    done = rubrics(*arguments)
    assert (done.exit_code, len(done.stderr.strip().splitlines())) == (2, 2)


def test_an_export_is_imported_elsewhere_with_its_history(
    buffer: RubricBuffer, store: BufferStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert rubrics("export", "--out", str(tmp_path / "out.jsonl")).exit_code == 0
    assert rubrics("export", QUESTION).stdout == (tmp_path / "out.jsonl").read_text()
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "other"))
    assert rubrics("import", str(tmp_path / "out.jsonl")).stdout.startswith("4 changes")
    assert BufferStore(tmp_path / "other" / "buffers").load(QUESTION) == buffer
    assert rubrics("import", str(tmp_path / "out.jsonl")).stdout.startswith("0 changes")


def imported(path: Path, store: BufferStore, rows: Any) -> RubricBuffer:
    path.write_text(json.dumps(rows))
    done = rubrics("import", str(path))
    assert done.exit_code == 0, done.output
    return store.load(QUESTION)


HEALTH = {
    "prompt": [{"role": "system", "content": "Help."}, {"role": "user", "content": QUESTION}],
    "rubrics": [
        {"criterion": "Names the rule.", "points": 10, "tags": ["axis:accuracy"]},
        {"criterion": "Invents a rule.", "points": -5, "tags": []},
        {"criterion": "Says nothing.", "points": 0},
    ],
}
TULU = {
    "query": QUESTION,
    "rubrics": [
        {"title": "Rule", "description": "Names the rule.", "weight": 1.0},
        {"title": "Copied", "description": "Copies sources.", "weight": -0.5},
    ],
}
OLDER = {
    "Question": QUESTION,
    "Answer Critical": [{"Handle": "rule", "Ingredient": "Names the rule."}],
    "Valuable": [{"Handle": "size", "Ingredient": "Names the size."}],
}


@pytest.mark.parametrize(
    ("row", "read"),
    [
        (HEALTH, [("Names the rule.", 3, True), ("Invents a rule.", 1.5, False)]),
        (
            {"prompt": HEALTH["prompt"], "reward_model": {"rubrics": HEALTH["rubrics"]}},
            [("Names the rule.", 3, True), ("Invents a rule.", 1.5, False)],
        ),
        (TULU, [("Names the rule.", 3, True), ("Copies sources.", 1.5, False)]),
        (
            {"messages": [], "ground_truth": json.dumps([json.dumps(TULU)])},
            [("Names the rule.", 3, True), ("Copies sources.", 1.5, False)],
        ),
        (OLDER, [("Names the rule.", 3, True), ("Names the size.", 2, True)]),
    ],
)
def test_rubrics_of_others_become_criteria_of_the_answer_for_good(
    store: BufferStore, tmp_path: Path, row: dict[str, Any], read: list[tuple[str, float, bool]]
):
    buffer = imported(tmp_path / "rows.json", store, [row])
    criteria = buffer.persistent[Stage.ANSWER]
    assert [(c.description, c.weight, c.positive) for c in criteria] == read
    assert all(c.persistent for c in criteria)
    assert buffer.history[0].reason == "imported from rows.json"


def test_a_conversation_is_one_question_with_its_speakers(store: BufferStore, tmp_path: Path):
    turns = [("user", "Hi."), ("assistant", "Yes?"), ("user", "Which rule?")]
    row = {**HEALTH, "prompt": [{"role": r, "content": c} for r, c in turns]}
    imported(tmp_path / "rows.json", store, row)
    (buffer,) = store.all()
    assert buffer.question == "user: Hi.\n\nassistant: Yes?\n\nuser: Which rule?"


@pytest.mark.parametrize(
    "bad",
    [
        {"query": QUESTION},
        {**TULU, "rubrics": [{"title": "x", "weight": 1}]},
        {**TULU, "rubrics": ["x"]},
        {**TULU, "rubrics": []},
        {**HEALTH, "prompt": []},
        {"question": QUESTION, "history": 3},
        {"ground_truth": "{"},
        7,
    ],
)
def test_a_row_that_holds_no_rubrics_stops_the_import_before_it_begins(
    store: BufferStore, tmp_path: Path, bad: Any
):
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(TULU)}\n{json.dumps(bad)}\n")
    done = rubrics("import", str(path))
    assert done.exit_code == 1 and "row 2 holds no rubrics" in done.stderr
    assert list(store.all()) == []
    path.write_text("rubrics?")
    done = rubrics("import", str(path))
    assert done.exit_code == 1 and "line 1 of the file is no valid JSON" in done.stderr


def test_the_standards_of_a_relative_judge_are_looked_up_by_their_name(store: BufferStore):
    from rubricem.judge.base import prompt
    from rubricem.judge.relative import version_of

    default = rubrics("show", version_of(prompt("relative_rubric")))
    assert "real progress" in default.stdout
    (store.folder.parent / "standards").mkdir(parents=True)
    (store.folder.parent / "standards" / "relative-12345678.md").write_text("- Mine.")
    assert rubrics("show", "relative-12345678").stdout == "- Mine.\n"
    assert rubrics("show", "relative-../../x").exit_code == 2


POINTS = (6, 4, 2, 1, -5)
CHECKLIST = json.dumps(
    {"rubrics": [{"criterion": f"Says {n}.", "points": p} for n, p in enumerate(POINTS)]}
)


def script(body: dict[str, Any], number: int) -> str:
    said = body["messages"][1]["content"]
    return CHECKLIST if "a good reply" in said else "The oldest goes."


def make(server: ScriptedServer, *arguments: str) -> Result:
    command = ["judge", "rubrics", "make", QUESTION, *arguments, "--base-url", server.base_url]
    return CliRunner().invoke(main, command)


def test_a_checklist_is_written_from_an_answer_of_the_models_own_and_kept(store: BufferStore):
    with ScriptedServer(script) as server:
        done = make(server)
        assert (done.exit_code, len(server.requests)) == (0, 2), done.output
        assert done.stdout.splitlines() == [
            "6  Says 0.", "4  Says 1.", "2  Says 2.", "1  Says 3.", "-5  Says 4.", "5 new",
        ]  # fmt: skip
        assert make(server).stdout == "0 new\n", "what is there already is not added again"
    kept = store.load(QUESTION)
    assert [c.weight for c in kept.persistent[Stage.ANSWER]] == [6, 4, 2, 1, 5]
    assert kept.history[0].reason == "a checklist from the question"


def test_a_given_answer_is_gone_by(store: BufferStore, tmp_path: Path):
    (tmp_path / "good.txt").write_text("The least recently used one.")
    with ScriptedServer(script) as server:
        assert make(server, "--answer", str(tmp_path / "good.txt")).exit_code == 0
    (request,) = server.requests
    assert "The least recently used one." in request.body["messages"][1]["content"]
    assert store.load(QUESTION).history[0].reason == "a checklist from the question and an answer"


@pytest.mark.parametrize("held", [b" \n", b"\xff\xfe\x00", None])
def test_an_answer_that_is_no_text_or_an_empty_question_is_misuse(
    store: BufferStore, tmp_path: Path, held: bytes | None
):
    (tmp_path / "bad.txt").write_bytes(held or b"fine")
    command = ["judge", "rubrics", "make", QUESTION if held else "  "]
    with ScriptedServer(script) as server:
        more = ["--answer", str(tmp_path / "bad.txt"), "--base-url", server.base_url]
        done = CliRunner().invoke(main, [*command, *more])
    assert (done.exit_code, server.requests) == (2, [])
    assert held or "empty" in done.stderr


def test_a_model_that_writes_none_changes_nothing(store: BufferStore):
    with ScriptedServer(lambda body, number: "I would rather not.") as server:
        done = make(server)
    assert done.exit_code == 1 and "no usable JSON" in done.stderr
    assert store.load(QUESTION).version == 0
