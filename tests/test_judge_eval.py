"""`rubricem judge eval`: every judge on labelled pairs over a scripted server, and records."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli import main
from judge.evaluation.labelled import Comparison
from tests.scripted_server import Fault, ScriptedServer

DATA = Path(__file__).parent.parent / "benchmarks" / "data" / "llmbar_natural"
GOOD, BAD = "The capital is Paris.", "No idea, sorry."


@pytest.fixture(autouse=True)
def _nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))


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


def test_another_judge_does_not_go_on_from_kept_verdicts(pairs: Path, tmp_path: Path):
    out = tmp_path / "out.jsonl"
    out.write_text(Comparison(pair="1", judge="x", winner="first").model_dump_json() + "\n")
    with ScriptedServer(pairwise) as server:
        done = asked_of(server, "pairwise", pairs, "--out", out)
    assert (done.exit_code, len(server.requests)) == (2, 0)
    assert "verdicts of x" in done.stderr


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
        lines = [Comparison(pair=v, winner="first").model_dump_json() + "\n" for v in verdicts]
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


def test_a_judge_of_pairs_refuses_single_answers(tmp_path: Path):
    row = {"prompt": [], "completion": "x", "rubric": "c", "binary_labels": [True]}
    data = tmp_path / "meta.jsonl"
    data.write_text(json.dumps(row))
    done = run(data, "--judge", "pairwise")
    assert (done.exit_code, "--judge checklist" in done.stderr) == (2, True)


def test_a_checklist_is_made_once_for_a_question(pairs: Path):
    with ScriptedServer(checklist) as server:
        asked_of(server, "checklist", pairs)
        made = [r for r in server.requests if "Items:" not in r.body["messages"][1]["content"]]
    assert len(made) == 4, "an answer and a checklist for each of two questions"


def test_without_a_judge_or_records_it_is_misuse(pairs: Path):
    done = run(pairs)
    assert (done.exit_code, "--recorded" in done.stderr) == (2, True)
