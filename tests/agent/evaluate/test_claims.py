"""Labelled claims: the formats, the checkers, and figures worked by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.evaluate.claims import (
    ClaimRow,
    ClaimSet,
    LabelledClaim,
    balanced_accuracy,
    best_threshold,
    claim_lines,
)
from rubricem.agent.models.opening import ServerChoice
from rubricem.memory.errors import RubricemError
from rubricem.memory.schema import CitationSupport
from tests.support.policies import SUPPORTED
from tests.support.scripted_server import ScriptedServer

WICE = {"label": "partially_supported", "supporting_sentences": [[1]], "claim": "It evicts.",
        "evidence": ["(meta data) TITLE: Cache", "It is a cache.", "It grows."],
        "meta": {"id": "dev1", "claim_title": "Cache"}}  # fmt: skip
NORMALISED = {"id": "dev2", "claim": "It grows.", "label": "supported", "evidence": ["It grows."]}
ATTRIBUTION = {"question": "?", "claim": "A [3].", "claim_raw_string": "A.", "response": "A.",
               "references": ["B.", "C."], "citation_links": [], "webpage_references": [],
               "attribution_label": "not attributable", "src_dataset": "x",
               "id": "x_1"}  # fmt: skip
OWN = {"claim": "The cache is unbounded.", "evidence": "The cache is unbounded.", "label": True}


def written(tmp_path: Path, *rows: Any) -> Path:
    path = tmp_path / "claims.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_every_format_is_a_claim_with_a_text_and_a_class(tmp_path: Path):
    found = ClaimSet.read(written(tmp_path, WICE, NORMALISED, ATTRIBUTION, OWN)).claims
    assert [(c.id, c.supported) for c in found[:3]] == [
        ("dev1", False), ("dev2", True), ("x_1", False)]  # fmt: skip
    assert (found[0].title, found[0].text) == ("Cache", "It is a cache.\nIt grows.")
    assert (found[2].claim, found[2].text) == ("A.", "B.\nC.")
    assert found[3].supported and len(found[3].id) == 12


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "holds no claim"),
        ([NORMALISED, NORMALISED], "Row 2 of .* has the id 'dev2' of an earlier row"),
        ([NORMALISED], "of one class"),
        ([{"claim": "A.", "label": "supported"}], "row 1 of .* is no labelled claim"),
        ([{**NORMALISED, "label": "maybe"}], "the label 'maybe' is none of"),
        ([["a"]], "it is no JSON object"),
    ],
)
def test_a_bad_file_of_claims_is_one_sentence(tmp_path: Path, rows: list[Any], said: str):
    with pytest.raises(RubricemError, match=said) as refused:
        ClaimSet.read(written(tmp_path, *rows))
    assert refused.value.remedy


def test_half_a_line_is_told_by_its_number(tmp_path: Path):
    path = written(tmp_path, NORMALISED)
    path.write_text(path.read_text() + '{"claim": "x')
    with pytest.raises(RubricemError, match=r"line 2 of .* is no valid JSON"):
        ClaimSet.read(path)


async def test_the_rules_tell_a_claim_of_the_text_from_another(tmp_path: Path):
    claims = ClaimSet.read(
        written(tmp_path, OWN, {**OWN, "claim": "It has 7 eggs.", "label": False})
    )
    rows = await claims.check(None, tmp_path / "out")
    assert [row.verdict for row in rows] == ["supported", "unsupported"]
    told = claims.figures(rows, "rules")
    assert told["all"]["balanced_accuracy"] == 1.0 and "threshold" not in told
    assert rows[0].score and rows[0].score > 0.5 and rows[1].score == 0.0
    assert "balanced accuracy 1.000" in claim_lines(told)[1]


async def test_a_server_checks_each_claim_once_and_goes_on(tmp_path: Path):
    claims = ClaimSet.read(written(tmp_path, OWN, WICE))
    with ScriptedServer(lambda body, number: SUPPORTED) as server:
        choice = ServerChoice("scripted", server.base_url)
        first = await claims.check(choice, tmp_path / "out", at_once=2)
        again = await claims.check(choice, tmp_path / "out", at_once=2)
        assert len(server.requests) == 2
    assert first == again and first[0].verdict == "supported"


async def test_another_checker_for_the_same_folder_is_refused(tmp_path: Path):
    claims = ClaimSet.read(written(tmp_path, OWN, WICE))
    await claims.check(None, tmp_path / "out")
    with pytest.raises(RubricemError, match="checker was lexical rules and is now other"):
        await claims.check(ServerChoice("other", "http://127.0.0.1:9/v1"), tmp_path / "out")


def test_balanced_accuracy_weighs_both_classes_alike():
    said = [(True, True), (True, False), (False, False), (False, False), (False, False)]
    assert balanced_accuracy(said) == 0.75
    assert balanced_accuracy([(True, True)]) == 1.0


def test_the_best_threshold_is_the_highest_that_tells_most_right():
    assert best_threshold([(True, 0.9), (True, 0.5), (False, 0.4), (False, 0.1)]) == 0.5
    assert best_threshold([(True, 0.9), (False, 0.6), (True, 0.5), (False, 0.1)]) == 0.9


def test_a_threshold_is_tuned_on_one_half_and_reported_on_the_other():
    verdicts: dict[bool, CitationSupport] = {True: "supported", False: "unsupported"}
    claims = [LabelledClaim(id=f"c{n}", claim="x", text="x", supported=n % 2 == 0, label="")
              for n in range(40)]  # fmt: skip
    rows = [ClaimRow(id=c.id, verdict=verdicts[False], score=0.4 if c.supported else 0.1)
            for c in claims]  # fmt: skip
    told = ClaimSet(tuple(claims)).figures(rows, "m")
    half = sum(not c.tuned_on for c in claims)
    assert 10 < half < 30 and told["held_out_tuned"]["n"] == half
    assert told["threshold"] == 0.4
    assert told["held_out_tuned"]["balanced_accuracy"] == 1.0
    assert told["held_out_product"]["balanced_accuracy"] == told["all"]["balanced_accuracy"] == 0.5
