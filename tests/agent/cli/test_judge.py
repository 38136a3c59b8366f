"""`rubricem judge`: runs scored, judges measured and rubrics kept, over a scripted server."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from rubricem.judge.buffers import add, prune
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Judgement, RubricBuffer, Stage, Trajectory
from tests.conftest import refusal, rubricem
from tests.support.scripted_server import Fault, ScriptedServer
from tests.support.values import QUESTION, item, varied

PROPOSAL = json.dumps(
    {"answer": {"positive": [{"title": "Rule", "description": "Names the rule.", "weight": 3}]}}
)


def scripted(body: dict[str, Any], number: int) -> str:
    """One criterion, for the answer; the runs that say LRU hold it."""
    said = body["messages"][1]["content"]
    if "Criteria:" not in said:
        return PROPOSAL
    points = 2 if "LRU" in said else 0
    return json.dumps(
        {"verdicts": [{"number": 1, "justification": "so [it] is", "points": points}]}
    )


def score(server: ScriptedServer, *arguments: object, code: int = 0) -> Result:
    where = ("--base-url", server.base_url)
    return rubricem("judge", "score", *arguments, *where, code=code)


pytestmark = pytest.mark.usefixtures("data")


def runs_in(folder: Path, *texts: str) -> str:
    """A folder of runs, named a, b, c, ..., of which the last was cut while it was written."""
    folder.mkdir(exist_ok=True)
    runs = [varied(name, text) for name, text in zip("abc", texts, strict=False)]
    lines = "".join(run.model_dump_json() + "\n" for run in runs)
    (folder / "trajectories.jsonl").write_text(lines + '{"id": "cut')
    group = {"question": QUESTION, "trajectories": [run.id for run in runs]}
    (folder / "groups.jsonl").write_text(json.dumps(group) + "\n")
    return str(folder)


@pytest.fixture
def thread(data: Path) -> Trajectory:
    run = varied("mine", "<answer>It is LRU.</answer>")
    RunStore(data).create("mine", {})
    RunStore(data).save(run)
    return run


def test_a_thread_is_scored_shown_and_kept_and_again_at_no_cost(data: Path, thread: Trajectory):
    with ScriptedServer(scripted) as server:
        done = score(server, "mine")
        first, again = (score(server, "mine", "--json") for _ in range(2))
        assert len(server.requests) == 2
    assert done.stderr == ""
    for shown in (QUESTION, "answer", "1.00", "Names the rule.", "so [it] is", "no criteria"):
        assert shown in " ".join(done.stdout.split()), shown
    text = (data / "runs" / "mine" / "judgement.json").read_text()
    judgement = Judgement.model_validate_json(text)
    assert (judgement.trajectory_id, judgement.score(Stage.ANSWER)) == (thread.id, 1)
    stages = [json.loads(r.stdout)["groups"][0]["judgements"][0]["stages"] for r in (first, again)]
    assert stages[0] == stages[1]
    buffer = BufferStore(data / "buffers").load(QUESTION)
    assert [c.title for c in buffer.persistent[Stage.ANSWER]] == ["Rule"]
    assert judgement.rubric_version == buffer.label


def test_a_collected_run_is_scored_group_by_group(tmp_path: Path):
    folder = Path(runs_in(tmp_path / "run", "It is LRU.", "It is FIFO.", "It is LRU!"))
    groups = [{"question": QUESTION, "trajectories": names} for names in (["a", "b"], ["c"])]
    (folder / "groups.jsonl").write_text("".join(json.dumps(g) + "\n" for g in groups))
    with ScriptedServer(scripted) as server:
        score(server, folder)
    kept = json.loads((folder / "judgement.json").read_text())
    assert [j["trajectory_id"] for j in kept] == ["a", "b", "c"]
    assert [j["stages"][-1]["score"] for j in kept] == [1, 0, 1]
    (folder / "trajectories.jsonl").write_bytes(b'{"id": "\xff"}\n')
    assert "trajectories.jsonl cannot be read" in refusal("judge", "score", folder, code=1)


def two_runs(folder: Path) -> str:
    return runs_in(folder, "It is LRU.", "It is FIFO.")


def one_against_the_other(body: dict[str, Any], number: int) -> str:
    """The run that says LRU is worth 0.75."""
    said = body["messages"][1]["content"]
    first = 0.75 if "LRU" in said.split("Attempt 2")[0] else 0.25
    given = [("1", first), ("2", 1 - first)]
    return json.dumps(
        {"scores": [{"id": i, "explanation": f"so much: {s}", "score": s} for i, s in given]}
    )


def test_a_relative_judge_scores_a_group_by_standards_of_ones_own(tmp_path: Path):
    (tmp_path / "mine.md").write_text("- LRU wins.\n")
    wanted = ("--judge", "relative", "--rubric", str(tmp_path / "mine.md"))
    with ScriptedServer(one_against_the_other) as server:
        done = score(server, two_runs(tmp_path), *wanted, "--seed", "5")
    assert "so much: 0.75" in " ".join(done.stdout.split())
    assert len(server.requests) == 1
    assert "- LRU wins." in server.requests[0].body["messages"][0]["content"]
    kept = json.loads((tmp_path / "judgement.json").read_text())
    assert [j["stages"][-1]["score"] for j in kept] == [0.75, 0.25]
    version, _, seed = kept[0]["rubric_version"].split()
    assert seed == "5"
    standards = tmp_path / "data" / "standards" / f"{version}.md"
    assert standards.read_text() == "- LRU wins."


POINTS = (6, 4, 2, 1, -5)
CHECKLIST = json.dumps(
    {"rubrics": [{"criterion": f"Says {n}.", "points": p} for n, p in enumerate(POINTS)]}
)


def writing(body: dict[str, Any], number: int) -> str:
    """An answer of the model's own, and a checklist from it."""
    return CHECKLIST if "a good reply" in body["messages"][1]["content"] else "The oldest goes."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A collected run of one group of three."""
    return Path(runs_in(tmp_path / "run", "It is LRU.", "It is FIFO.", "It is LRU, surely."))


def scores(folder: Path) -> list[float | None]:
    kept = json.loads((folder / "judgement.json").read_text())
    return [judgement["stages"][-1]["score"] for judgement in kept]


def test_a_checklist_is_made_once_kept_and_scored_on(folder: Path, tmp_path: Path):
    def script(body: dict[str, Any], number: int) -> str:
        said = body["messages"][1]["content"]
        if "Items:" in said:
            marks = [{"number": n, "criteria_met": "LRU" in said and n < 3} for n in range(1, 6)]
            return json.dumps({"verdicts": marks})
        return writing(body, number)

    with ScriptedServer(script) as server:
        score(server, folder, "--judge", "checklist")
        assert scores(folder) == [10 / 13, 0, 10 / 13]
        assert len(server.requests) == 5, "an answer, a checklist, three checks"
        score(server, folder, "--judge", "checklist")
        assert len(server.requests) == 5, "the checklist stands in the buffer, replies are kept"
    buffer = BufferStore(tmp_path / "data" / "buffers").load(QUESTION)
    assert [c.given for c in buffer.persistent[Stage.ANSWER]] == [6, 4, 2, 1, -5]


@pytest.mark.parametrize("kind", ["stage", "pairwise", "checklist"])
@pytest.mark.parametrize("reply", [Fault(400, "no such model"), "I would rather not."])
def test_a_judge_that_gives_no_score_fails_with_the_reason_and_keeps_nothing(
    folder: Path, tmp_path: Path, kind: str, reply: Fault | str
):
    with ScriptedServer(lambda body, number: reply) as server:
        done = score(server, folder, "--judge", kind, code=1)
    assert "Nothing could be scored" in done.stderr
    told = "no such model" if isinstance(reply, Fault) else "in 3 tries"
    assert told in done.stderr
    assert not (folder / "judgement.json").exists()
    assert BufferStore(tmp_path / "data" / "buffers").load(QUESTION).version == 0


GOOD, BAD = "The capital is Paris.", "No idea, sorry."


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Two pairs; in the second the better answer is the second one."""
    rows = [
        {"input": "Capital of France?", "output_1": GOOD, "output_2": BAD, "label": 1},
        {"input": "Which city rules France?", "output_1": BAD, "output_2": GOOD, "label": 2},
    ]
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(rows))
    return path


def run(*arguments: object) -> Result:
    return rubricem("judge", "eval", *arguments)


def asked_of(server: ScriptedServer, kind: str, *arguments: object) -> Any:
    """What a judge of this kind is found to be worth."""
    where = ("--base-url", server.base_url, "--json")
    return json.loads(run("--judge", kind, *where, *arguments).stdout)


def good_first(body: dict[str, Any]) -> bool:
    said = body["messages"][1]["content"]
    return bool(said.index(GOOD) < said.index(BAD))


def pairwise(body: dict[str, Any], number: int) -> str:
    letter = "A" if good_first(body) else "B"
    return f"<type>Chat</type><eval>clear</eval><answer>[[{letter}]]</answer>"


def test_verdicts_are_right_in_both_orders_and_kept(pairs: Path, tmp_path: Path):
    out = tmp_path / "out.jsonl"
    with ScriptedServer(pairwise) as server:
        asked_of(server, "pairwise", pairs, "--verdicts", out, "--limit", "1")
        assert len(server.requests) == 2
        again = asked_of(server, "pairwise", pairs, "--verdicts", out)
        assert len(server.requests) == again["usage"]["calls"] == 4
    measures = again["measures"]
    assert (measures["both"]["hits"], measures["both"]["n"]) == (2, 2)
    assert measures["picks_first"]["hits"] == 2
    assert measures["pooled"]["n"] == 0, "a verdict has no share"
    recorded = run(pairs, "--verdicts", out, "--json")
    assert json.loads(recorded.stdout) == again, "what was kept says the same without a model"
    shown = " ".join(run(pairs, "--verdicts", out).stdout.split())
    assert "2 pairs, 4 comparisons" in shown and "1.000" in shown
    assert "--verdicts" in refusal("judge", "eval", pairs)


def test_a_run_without_form_scores_0_and_no_judge_is_asked(data: Path):
    RunStore(data).create("mine", {})
    RunStore(data).save(varied("mine", "It is LRU."))
    with ScriptedServer([]) as server:
        done = score(server, "mine", "--gated", "--json")
    (judgement,) = json.loads(done.stdout)["groups"][0]["judgements"]
    assert [stage["score"] for stage in judgement["stages"]] == [0.0] * 4
    assert server.requests == []


RULE, FLAT, FIRST = item("Names the rule.", 3), item("Is a text."), item("Asks.", kept=True)


def rubrics(*arguments: object, code: int = 0) -> Result:
    return rubricem("judge", "rubrics", *arguments, code=code)


@pytest.fixture
def store(data: Path) -> BufferStore:
    return BufferStore(data / "buffers")


@pytest.fixture
def buffer(store: BufferStore) -> RubricBuffer:
    """Version 1 has all three, version 2 no longer the flat one."""
    grown = add(
        RubricBuffer(question=QUESTION), {Stage.ANSWER: [RULE, FLAT], Stage.PLAN: [FIRST]}, 4, "why"
    )
    points = {Stage.ANSWER: {RULE.key: [0.0, 2.0], FLAT.key: [2.0, 2.0]}}
    pruned = prune(grown, points, 4)
    store.save(pruned)
    return pruned


def imported(path: Path, store: BufferStore, rows: Any) -> RubricBuffer:
    path.write_text(json.dumps(rows))
    rubrics("import", path)
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


@pytest.mark.parametrize(
    ("row", "read"),
    [
        (HEALTH, [("Names the rule.", 3, True), ("Invents a rule.", 1.5, False)]),
        (
            {"prompt": HEALTH["prompt"], "reward_model": {"rubrics": HEALTH["rubrics"]}},
            [("Names the rule.", 3, True), ("Invents a rule.", 1.5, False)],
        ),
        (TULU, [("Names the rule.", 3, True), ("Copies sources.", 1.5, False)]),
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


@pytest.mark.parametrize(
    "bad",
    [
        {"query": QUESTION},
        {**TULU, "rubrics": [{"title": "x", "weight": 1}]},
        {**HEALTH, "prompt": []},
        7,
    ],
)
def test_a_row_that_holds_no_rubrics_stops_the_import_before_it_begins(
    store: BufferStore, tmp_path: Path, bad: Any
):
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(TULU)}\n{json.dumps(bad)}\n")
    assert "row 2 holds no rubrics" in rubrics("import", path, code=1).stderr
    assert list(store.all()) == []
    path.write_text("rubrics?")
    assert "line 1 of the file is no valid JSON" in rubrics("import", path, code=1).stderr


def test_rubrics_are_listed_and_shown_by_a_text_or_the_beginning_of_an_id(buffer: RubricBuffer):
    head = f"{buffer.id[:8]}  version {buffer.label}  {QUESTION}"
    assert rubrics("show").stdout == f"{head}\n"
    done = rubrics("show", QUESTION)
    for line in (head, f"{RULE.key}  3  Names the rule.", "retired", "kept"):
        assert line in done.stdout
    assert rubrics("show", buffer.id[:6]).stdout == done.stdout
    refusal("judge", "rubrics", "show", "What?")


def test_what_is_shown_as_json_is_imported_elsewhere_with_its_history(
    buffer: RubricBuffer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "out.jsonl"
    out.write_text(rubrics("show", "--json").stdout)
    assert rubrics("show", QUESTION, "--json").stdout == out.read_text()
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "other"))
    assert rubrics("import", out).stdout.startswith("4 changes")
    assert BufferStore(tmp_path / "other" / "buffers").load(QUESTION) == buffer
    assert rubrics("import", out).stdout.startswith("0 changes")
