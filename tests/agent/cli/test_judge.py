"""`rubricem judge`: runs scored, judges measured and rubrics kept, over a scripted server."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rubricem.agent.cli import main
from rubricem.agent.settings import Settings
from rubricem.agent.settings.door import model_of
from rubricem.judge.build import JudgeModel
from rubricem.judge.evaluation.data import LabelledComparison
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Judgement, Stage, Trajectory
from tests.conftest import ROOT
from tests.support.judges import chain
from tests.support.policies import RUN, answer, asked
from tests.support.scripted_server import Fault, ScriptedServer
from tests.support.values import QUESTION, varied

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


def score(server: ScriptedServer, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["judge", "score", *arguments, "--base-url", server.base_url])


pytestmark = pytest.mark.usefixtures("data")


def runs_in(folder: Path, *texts: str) -> str:
    """A folder of runs, named a, b, c, ..., of which the last was cut while it was written."""
    folder.mkdir(exist_ok=True)
    runs = [varied(name, text) for name, text in zip("abc", texts, strict=False)]
    lines = "".join(run.model_dump_json() + "\n" for run in runs)
    (folder / "trajectories.jsonl").write_text(lines + '{"id": "cut')
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
        assert score(server, "mine", "--no-cache").exit_code == 0
    assert len(server.requests) == 3, "the rubrics that are there are used"
    assert (done.exit_code, done.stderr) == (0, "")
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


def test_a_file_is_scored_and_json_is_one_object(tmp_path: Path):
    path = tmp_path / "kept.json"
    path.write_text(varied("a", "No idea.").model_dump_json())
    with ScriptedServer(scripted) as server:
        done = score(server, str(path), "--json")
    value = json.loads(done.stdout)
    assert value["file"] == str(tmp_path / "judgement.json")
    answer = value["groups"][0]["judgements"][0]["stages"][-1]
    assert (answer["score"], answer["verdicts"][0]["justification"]) == (0, "so [it] is")


def test_a_collected_run_is_scored_group_by_group_or_by_its_questions(tmp_path: Path):
    folder = Path(runs_in(tmp_path / "run", "It is LRU.", "It is FIFO.", "It is LRU!"))
    groups = [{"question": QUESTION, "trajectories": names} for names in (["a", "b"], ["c"])]
    (folder / "groups.jsonl").write_text("".join(json.dumps(g) + "\n" for g in groups))
    with ScriptedServer(scripted) as server:
        assert score(server, str(folder)).exit_code == 0
    kept = json.loads((folder / "judgement.json").read_text())
    assert [j["trajectory_id"] for j in kept] == ["a", "b", "c"]
    assert [j["stages"][-1]["score"] for j in kept] == [1, 0, 1]
    (folder / "groups.jsonl").unlink()
    with ScriptedServer(scripted) as server:
        assert score(server, str(folder), "--no-cache").exit_code == 0
    assert len(server.requests) == 4, "one contrast of all, and three scorings"


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("nothing-here", 2, "nothing-here"),
        ("../not-there/nothing", 2, "nothing"),
        ("", 2, "neither trajectory.json nor trajectories.jsonl"),
        ("other.json", 1, "other.json cannot be read: "),
    ],
)
def test_what_is_no_run_is_a_sentence(tmp_path: Path, name: str, code: int, told: str):
    (tmp_path / "other.json").write_text("{}")
    run = str(tmp_path / name) if name in ("", "other.json") else name
    with ScriptedServer(scripted) as server:
        done = score(server, run)
    assert (done.exit_code, len(done.stderr.strip().splitlines())) == (code, 2), done.stderr
    assert told in done.stderr


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
    wanted = ("--judge", "relative", "--rubric", str(tmp_path / "mine.md"), "--both-orders")
    with ScriptedServer(one_against_the_other) as server:
        done = score(server, two_runs(tmp_path), *wanted, "--seed", "5")
    assert done.exit_code == 0, done.output
    assert "so much: 0.75" in " ".join(done.stdout.split())
    assert "The order shown moved scores by 0.00." in done.stderr
    assert len(server.requests) == 2
    assert "- LRU wins." in server.requests[0].body["messages"][0]["content"]
    kept = json.loads((tmp_path / "judgement.json").read_text())
    assert [j["stages"][-1]["score"] for j in kept] == [0.75, 0.25]
    version, _, seed = kept[0]["rubric_version"].split()
    assert seed == "5"
    standards = tmp_path / "data" / "standards" / f"{version}.md"
    assert standards.read_text() == "- LRU wins."


def test_lines_of_messages_are_scored_against_one_another(tmp_path: Path):
    asked = {"role": "user", "content": "Which goes first?"}
    said = [{"role": "assistant", "content": text} for text in ("LRU it is.", "FIFO.")]
    lines = [json.dumps({"messages": [asked, one]}) for one in said]
    (tmp_path / "talks.jsonl").write_text("\n".join(lines))
    command = ["judge", "messages", str(tmp_path / "talks.jsonl"), "--json"]
    with ScriptedServer(one_against_the_other) as server:
        done = CliRunner().invoke(main, [*command, "--base-url", server.base_url])
    assert done.exit_code == 0, done.output
    assert [row["score"] for row in json.loads(done.stdout)["scores"]] == [0.75, 0.25]
    assert len(server.requests) == 1
    (tmp_path / "talks.jsonl").write_text('{"prompt": "x"}')
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 2 and "Row 1 holds no conversation" in refused.stderr


def by_place(body: dict[str, Any], number: int) -> str:
    """Each attempt that is shown is worth 0.5."""
    shown = dict.fromkeys(re.findall(r"Attempt (\d+)", body["messages"][1]["content"]))
    given = [{"id": i, "explanation": "so it is", "score": 0.5} for i in shown]
    return json.dumps({"scores": given})


def test_a_relative_judge_scores_stage_by_stage_as_it_does_in_collecting(tmp_path: Path):
    with ScriptedServer(by_place) as server:
        done = score(server, two_runs(tmp_path), "--judge", "relative-stages")
    assert done.exit_code == 0, done.output
    assert len(server.requests) == 4, "a call for each stage"
    kept = json.loads((tmp_path / "judgement.json").read_text())
    assert [[stage["score"] for stage in j["stages"]] for j in kept] == [[0.5] * 4] * 2


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--both-orders",), "--judge relative"),
        (("--judge", "relative", "--repeat", "2"), "--judge stage"),
        (("--judge", "relative", "--rubric", "empty.md"), "empty.md is empty"),
        (("--graded",), ""),
        (("--judge", "checklist", "--flip"), "--judge pairwise"),
        (("--judge", "pairwise", "--repeat", "2"), "--judge stage"),
    ],
)
def test_what_a_judge_does_not_do_is_misuse(
    tmp_path: Path, flags: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("empty.md").write_text(" ")
    with ScriptedServer([]) as server:
        done = score(server, two_runs(tmp_path), *flags)
    assert (done.exit_code, len(done.stderr.strip().splitlines())) == (2, 2), done.output
    assert told in done.stderr and server.requests == []


def test_repeated_scoring_shows_its_spread(thread: Trajectory):
    def wavering(body: dict[str, Any], number: int) -> str:
        if "Criteria:" not in body["messages"][1]["content"]:
            return PROPOSAL
        given = {"number": 1, "justification": "so", "points": 2 if body["seed"] else 0}
        return json.dumps({"verdicts": [given]})

    with ScriptedServer(wavering) as server:
        done = score(server, "mine", "--repeat", "2")
    assert "0.50 ±0.50" in " ".join(done.stdout.split())


class Shared:
    """A local model that is open already."""

    name, version, context_tokens = "shared", "1", 4096
    render = encode = complete = weigh = None


async def test_an_open_model_is_shared_unless_the_settings_name_a_server():
    held: Any = Shared()
    async with model_of(Settings(model="0.5b")).open_judge(shared=held) as model:
        assert model is held
    settings = Settings(model="scripted", base_url="http://127.0.0.1:9/v1")
    async with model_of(settings).open_judge(shared=held) as model:
        opened: JudgeModel = model
    assert opened is not held and opened.name == "scripted@127.0.0.1:9"


POINTS = (6, 4, 2, 1, -5)
CHECKLIST = json.dumps(
    {"rubrics": [{"criterion": f"Says {n}.", "points": p} for n, p in enumerate(POINTS)]}
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A collected run of one group of three."""
    return Path(runs_in(tmp_path / "run", "It is LRU.", "It is FIFO.", "It is LRU, surely."))


def scores(folder: Path) -> list[float | None]:
    kept = json.loads((folder / "judgement.json").read_text())
    return [judgement["stages"][-1]["score"] for judgement in kept]


def right_one(body: dict[str, Any], number: int) -> str:
    """Prefers the reply that says LRU; of two, the one that says it first."""
    said = body["messages"][1]["content"]
    first, second = said.split(" reply B]", 1)
    return chain("A" if "LRU" in first or "LRU" not in second else "B")


def test_a_collected_group_is_judged_in_pairs_shown_in_both_orders_unless_flipped(folder: Path):
    with ScriptedServer(right_one) as server:
        done = score(server, str(folder), "--judge", "pairwise")
        assert done.exit_code == 0, done.output
        assert scores(folder) == [0.75, 0, 0.75]
        score(server, str(folder), "--judge", "pairwise", "--flip", "--no-cache")
    assert len(server.requests) == 6 + 3, "a flip shows each pair once"
    assert "2 of 3 pairs had the same winner in both orders" in done.stderr


def test_a_checklist_is_made_once_kept_and_scored_on(folder: Path, tmp_path: Path):
    def script(body: dict[str, Any], number: int) -> str:
        said = body["messages"][1]["content"]
        if "Items:" in said:
            marks = [{"number": n, "criteria_met": "LRU" in said and n < 3} for n in range(1, 6)]
            return json.dumps({"verdicts": marks})
        return CHECKLIST if "a good reply" in said else "The oldest goes."

    with ScriptedServer(script) as server:
        done = score(server, str(folder), "--judge", "checklist")
        assert done.exit_code == 0, done.output
        assert scores(folder) == [10 / 13, 0, 10 / 13]
        assert len(server.requests) == 5, "an answer, a checklist, three checks"
        score(server, str(folder), "--judge", "checklist", "--no-cache")
        assert len(server.requests) == 8, "the checklist stands in the buffer"
    buffer = BufferStore(tmp_path / "data" / "buffers").load(QUESTION)
    assert [c.weight for c in buffer.persistent[Stage.ANSWER]] == [6, 4, 2, 1, 5]


@pytest.mark.parametrize("kind", ["stage", "pairwise", "checklist"])
@pytest.mark.parametrize("reply", [Fault(400, "no such model"), "I would rather not."])
def test_a_judge_that_gives_no_score_fails_with_the_reason_and_keeps_nothing(
    folder: Path, tmp_path: Path, kind: str, reply: Fault | str
):
    with ScriptedServer(lambda body, number: reply) as server:
        done = score(server, str(folder), "--judge", kind)
    assert done.exit_code == 1 and "Nothing could be scored" in done.stderr
    told = "no such model" if isinstance(reply, Fault) else "in 3 tries"
    assert told in done.stderr
    assert not (folder / "judgement.json").exists()
    assert BufferStore(tmp_path / "data" / "buffers").load(QUESTION).version == 0


def test_a_corrupted_buffer_is_neither_judged_on_nor_overwritten(folder: Path, tmp_path: Path):
    path = BufferStore(tmp_path / "data" / "buffers").path(QUESTION)
    path.parent.mkdir(parents=True)
    path.write_text('{"question": "cut')
    with ScriptedServer(right_one) as server:
        done = score(server, str(folder), "--judge", "checklist")
    assert done.exit_code == 1 and str(path) in done.stderr
    assert (server.requests, path.read_text()) == ([], '{"question": "cut')


def test_a_lone_run_has_nothing_to_be_compared_with(folder: Path, tmp_path: Path):
    lone = tmp_path / "lone.json"
    lone.write_text(varied("a", "It is LRU.").model_dump_json())
    with ScriptedServer(right_one) as server:
        done = score(server, str(lone), "--judge", "pairwise", "--json")
    (judgement,) = json.loads(done.stdout)["groups"][0]["judgements"]
    assert judgement["stages"][-1]["unscored_reason"] == "no other answer to compare"
    assert (done.exit_code, server.requests) == (0, [])


DATA = ROOT / "benchmarks" / "data" / "llmbar_natural"
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


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["judge", "eval", *map(str, arguments)])


def asked_of(server: ScriptedServer, kind: str, *arguments: str | Path) -> Result:
    return run("--judge", kind, "--base-url", server.base_url, *arguments)


def good_first(body: dict[str, Any]) -> bool:
    said = body["messages"][1]["content"]
    return bool(said.index(GOOD) < said.index(BAD))


def pairwise(body: dict[str, Any], number: int) -> str:
    letter = "A" if good_first(body) else "B"
    return f"<type>Chat</type><eval>clear</eval><answer>[[{letter}]]</answer>"


def relative(body: dict[str, Any], number: int) -> str:
    scores = (0.9, 0.1) if good_first(body) else (0.1, 0.9)
    entries = [{"id": str(i), "explanation": "so", "score": s} for i, s in enumerate(scores, 1)]
    return json.dumps({"scores": entries})


def stage(body: dict[str, Any], number: int) -> str:
    said = body["messages"][1]["content"]
    if "Criteria:" not in said:
        item = {"title": "City", "description": "Names the city.", "weight": 3}
        return json.dumps({"answer": {"positive": [item]}})
    points = 2 if GOOD in said else 0
    return json.dumps({"verdicts": [{"number": 1, "justification": "so", "points": points}]})


def checklist(body: dict[str, Any], number: int) -> str:
    system, said = (message["content"] for message in body["messages"][:2])
    if "Items:" in said:
        marks = [
            {"number": n, "explanation": "so", "criteria_met": GOOD in said} for n in range(1, 6)
        ]
        return json.dumps({"verdicts": marks})
    if '"rubrics"' in system:
        items = [{"criterion": f"Names part {n} of the city.", "points": 5} for n in range(5)]
        return json.dumps({"rubrics": items})
    return "It is Paris."


SCRIPTS = {"pairwise": pairwise, "relative": relative, "stage": stage, "checklist": checklist}


@pytest.mark.parametrize("kind", SCRIPTS)
def test_a_judge_that_knows_the_better_answer_is_right_in_both_orders(kind: str, pairs: Path):
    with ScriptedServer(SCRIPTS[kind]) as server:
        done = asked_of(server, kind, pairs, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    measures = report["measures"]
    assert (measures["both"]["hits"], measures["both"]["n"]) == (2, 2)
    assert measures["picks_first"]["hits"] == 2
    assert measures["pooled"]["n"] == (0 if kind == "pairwise" else 2), "a verdict has no share"
    assert report["usage"]["calls"] == len(server.requests)
    assert report["judge"].startswith(f"{kind}, ")


def test_a_judge_that_takes_the_first_is_seen_through(pairs: Path):
    with ScriptedServer(lambda body, number: "<answer>[[A]]</answer>") as server:
        measures = json.loads(asked_of(server, "pairwise", pairs, "--json").stdout)["measures"]
    assert measures["accuracy"]["value"] == 0.5
    assert (measures["picks_first"]["value"], measures["consistent"]["value"]) == (1, 0)
    assert measures["given"]["hits"] == measures["swapped"]["hits"] == 1


def test_one_order_asks_once_a_pair_and_the_seed_draws_it(pairs: Path):
    orders = set()
    for seed in range(4):
        with ScriptedServer(pairwise) as server:
            asked_of(server, "pairwise", pairs, "--orders", "one", "--seed", str(seed))
            assert len(server.requests) == 2
            orders.add(tuple(good_first(request.body) for request in server.requests))
    assert len(orders) > 1


def test_verdicts_are_kept_and_not_asked_for_again(pairs: Path, tmp_path: Path):
    out = tmp_path / "out.jsonl"
    with ScriptedServer(pairwise) as server:
        asked_of(server, "pairwise", pairs, "--out", out, "--limit", "1")
        assert len(server.requests) == 2
        again = asked_of(server, "pairwise", pairs, "--out", out, "--json")
        assert len(server.requests) == 4
    recorded = run(pairs, "--recorded", out, "--json")
    assert json.loads(recorded.stdout) == json.loads(again.stdout), "records say the same"


def test_a_verdict_that_cannot_be_had_is_counted_with_its_cost(pairs: Path):
    def script(body: dict[str, Any], number: int) -> str:
        return pairwise(body, number) if "rules" in body["messages"][1]["content"] else "I refuse."

    with ScriptedServer(script) as server:
        report = json.loads(asked_of(server, "pairwise", pairs, "--json").stdout)
    unparsed = report["measures"]["unparsed"]
    assert (unparsed["hits"], unparsed["n"]) == (2, 4)
    assert report["measures"]["accuracy"]["value"] == 0.5
    assert report["usage"]["calls"] == len(server.requests) > 4


def test_a_judge_that_never_answers_is_a_failure(pairs: Path):
    with ScriptedServer(lambda body, number: Fault(400, "no such model")) as server:
        done = asked_of(server, "pairwise", pairs)
    assert done.exit_code == 1
    assert "No verdict could be had" in done.stderr and "no such model" in done.stderr


def test_recorded_verdicts_are_shown_and_drawn_without_a_model(tmp_path: Path):
    plot = tmp_path / "figures" / "shares.svg"
    done = run(
        DATA / "pairs.jsonl", "--recorded", DATA / "recorded_GPT-4_Vanilla.jsonl", "--plot", plot
    )
    assert (done.exit_code, done.stderr) == (0, "")
    text = " ".join(done.stdout.split())
    for shown in ("100 pairs, 200 comparisons", "0.955", "0.930", "no calls", "longest"):
        assert shown in text, shown
    drawn = plot.read_text()
    assert drawn.startswith("<svg") and "0.955" in drawn


def test_sections_and_matrices_are_shown(tmp_path: Path):
    chosen = [{"prompt": "q", "chosen": "x", "rejected": "y", "subset": "donotanswer"}]
    styled = [{"prompt": "q", "chosen": ["x"] * 3, "rejected": ["y"] * 3, "domain": "chat"}]
    for name, rows, verdicts in (
        ("RewardBench", chosen, ["donotanswer/1"]),
        ("RM-Bench", styled, [f"chat/1/{r}{c}" for r in range(3) for c in range(3)]),
    ):
        data, recorded = tmp_path / f"{name}.json", tmp_path / f"{name}.jsonl"
        data.write_text(json.dumps(rows))
        lines = [
            LabelledComparison(pair=v, winner="first").model_dump_json() + "\n" for v in verdicts
        ]
        recorded.write_text("".join(lines))
        done = run(data, "--recorded", recorded)
        assert (done.exit_code, name in done.stdout) == (0, True), done.output


def test_physicians_labels_give_a_balanced_f1(tmp_path: Path):
    row = {"prompt": [{"role": "user", "content": "q"}], "completion": "x", "rubric": "c"}
    rows = [row | {"binary_labels": labels} for labels in ([True, True], [False])]
    data, recorded = tmp_path / "meta.json", tmp_path / "marks.jsonl"
    data.write_text(json.dumps(rows))
    recorded.write_text('{"item": "1", "met": true}\n{"item": "2", "met": false}\n')
    report = json.loads(run(data, "--recorded", recorded, "--json").stdout)
    assert report["agreement"]["balanced_f1"] == 1
    assert "balanced F1" in run(data, "--recorded", recorded).stdout


def marking(body: dict[str, Any], number: int) -> str:
    """The first item of a list is met, no other."""
    said = body["messages"][1]["content"]
    count = len(said.partition("Items:\n")[2].strip().splitlines())
    marks = [
        {"number": n, "explanation": "so", "criteria_met": n == 1} for n in range(1, count + 1)
    ]
    return json.dumps({"verdicts": marks})


def test_the_checklist_judge_is_held_against_physicians(tmp_path: Path):
    row = {"prompt": [{"role": "user", "content": "q"}], "completion": "x", "rubric": "c"}
    data = tmp_path / "meta.jsonl"
    labels = ([True], [True, False])
    data.write_text("".join(json.dumps(row | {"binary_labels": one}) + "\n" for one in labels))
    with ScriptedServer(marking) as server:
        found = json.loads(asked_of(server, "checklist", data, "--json").stdout)["agreement"]
    assert (found["criteria"], found["labels"], found["met"]["recall"]) == (2, 3, 1)
    assert found["not_met"]["recall"] == 0


def test_answers_with_their_own_checklists_are_scored_and_kept(tmp_path: Path):
    items = [{"criterion": "a", "points": 7, "tags": ["axis:x"]}, {"criterion": "b", "points": 3}]
    row = {"prompt": [{"role": "user", "content": "q"}], "completion": "x", "rubrics": items}
    data, out = tmp_path / "rows.jsonl", tmp_path / "marks.jsonl"
    data.write_text(json.dumps(row) + "\n")
    with ScriptedServer(marking) as server:
        report = json.loads(asked_of(server, "checklist", data, "--out", out, "--json").stdout)
        again = asked_of(server, "checklist", data, "--out", out, "--json")
        assert len(server.requests) == 1
    assert report["overall"]["mean"] == pytest.approx(0.7)
    assert report["tags"]["axis:x"]["mean"] == 1
    assert json.loads(again.stdout) == report
    shown = run(data, "--recorded", out)
    assert (shown.exit_code, "0.700" in shown.stdout) == (0, True), shown.output


def test_a_judge_of_pairs_refuses_single_answers_and_without_judge_or_records_it_is_misuse(
    tmp_path: Path, pairs: Path
):
    row = {"prompt": [], "completion": "x", "rubric": "c", "binary_labels": [True]}
    data = tmp_path / "meta.jsonl"
    data.write_text(json.dumps(row))
    done = run(data, "--judge", "pairwise")
    assert (done.exit_code, "--judge checklist" in done.stderr) == (2, True)
    done = run(pairs)
    assert (done.exit_code, "--recorded" in done.stderr) == (2, True)


def test_a_checklist_is_made_once_for_a_question(pairs: Path):
    with ScriptedServer(checklist) as server:
        asked_of(server, "checklist", pairs)
        made = [r for r in server.requests if "Items:" not in r.body["messages"][1]["content"]]
    assert len(made) == 4, "an answer and a checklist for each of two questions"


GATE = json.dumps(
    {
        stage: {"positive": [{"title": stage, "description": "Is good."}]}
        for stage in ("plan", "answer")
    }
)


def judging(body: dict[str, Any], number: int) -> str:
    if "Criteria:" not in body["messages"][1]["content"]:
        return GATE
    verdicts = [{"number": n, "justification": "so it is", "points": 1} for n in (1, 2)]
    return json.dumps({"verdicts": verdicts})


def score_gated(server: ScriptedServer, thread: str) -> Result:
    command = ["judge", "score", thread, "--gated", "--json", "--base-url", server.base_url]
    return CliRunner().invoke(main, command)


def scores_gated(done: Result) -> list[float | None]:
    assert done.exit_code == 0, done.output
    (judgement,) = json.loads(done.stdout)["groups"][0]["judgements"]
    return [stage["score"] for stage in judgement["stages"]]


def test_a_run_without_form_scores_0_and_no_judge_is_asked(data: Path):
    RunStore(data).create("mine", {})
    RunStore(data).save(varied("mine", "It is LRU."))
    with ScriptedServer(judging) as server:
        assert scores_gated(score_gated(server, "mine")) == [0.0] * 4
    assert server.requests == []


@pytest.mark.parametrize(
    ("end", "judged"),
    [(answer(), 0.5), (answer("It is unbounded."), 0.0)],
    ids=["cited", "uncited"],
)
async def test_a_whole_run_is_judged_but_not_an_answer_that_cites_nothing(
    data: Path, end: str, judged: float
):
    with ScriptedServer((*RUN[:-1], end)) as server:
        await asked(server.base_url, data, thread="mine")
    with ScriptedServer(judging) as server:
        done = await asyncio.to_thread(score_gated, server, "mine")
    assert scores_gated(done) == [0.5, None, None, judged]
    assert len(server.requests) == 2, "one proposes, one scores"
