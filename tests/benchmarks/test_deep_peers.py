"""What the scripted model says to peers: what their prompts show, and nothing else."""

import json
from typing import Any

import pytest

from benchmarks.deep.model import with_false_number
from benchmarks.deep.peer_model import PeerModel
from benchmarks.deep.world import LINES, World

WORLD = World()
ARDEN = next(fact for fact in WORLD.facts if fact.line == "Arden" and fact.figure == "length")
SHEET = f"Source: http://127.0.0.1:1/arden/3\nA depot. {ARDEN.text}. A pier."


@pytest.fixture(scope="module")
def model() -> PeerModel:
    return PeerModel(WORLD)


def asked(text: str, *tools: str, form: str = "") -> dict[str, Any]:
    request: dict[str, Any] = {"messages": [{"role": "user", "content": text}]}
    request["tools"] = [{"function": {"name": name}} for name in tools]
    if form:
        request["response_format"] = {"json_schema": {"name": form}}
    return request


def test_a_summary_keeps_the_facts_of_its_page(model: PeerModel):
    kind, said = model.reply(asked(SHEET, form="Summary"))
    assert kind == "Summary" and isinstance(said, str)
    assert json.loads(said)["summary"] == f"{ARDEN.text}."


def test_who_knows_nothing_asks_for_every_line(model: PeerModel):
    kind, calls = model.reply(asked("Compare.", "ConductResearch"))
    assert kind == "supervisor" and isinstance(calls, list)
    assert all(sum(line in str(call) for call in calls) == 1 for line in LINES)


def test_a_learning_names_the_page_that_it_stands_on(model: PeerModel):
    prompt = f"Given the following research results for the query 'Arden line', extract.\n{SHEET}"
    kind, said = model.reply(asked(prompt))
    assert kind == "learn"
    assert f"Learning [http://127.0.0.1:1/arden/3]: {ARDEN.text}." in said


def test_the_report_has_one_false_number(model: PeerModel):
    kind, said = model.reply(asked(f"Information: {SHEET}"))
    assert kind == "section"
    assert with_false_number(ARDEN) in said and ARDEN.text not in said
