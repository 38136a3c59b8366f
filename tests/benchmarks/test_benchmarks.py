"""What the benchmarks count, worked by hand, and that `make bench` runs every one of them."""

import re
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import claims as in_claims
from benchmarks.claims import Case, Judged, by_rules, figures, load_cases
from benchmarks.faults import repetitions
from benchmarks.hops import questions_of
from benchmarks.learns.hops import QUICK, Plan
from benchmarks.learns.replicates import (
    ARMS,
    Answered,
    ArmCourse,
    HeldOutMeans,
    Replicate,
    interval,
    kept_replicates,
    pooled,
)
from rubricem.memory.schema import CitationSupport
from tests.conftest import ROOT
from tests.support.values import claim_pair

TELLS = re.compile(r"^from benchmarks\.report import .*\bemit\b", re.M)


def test_make_bench_runs_every_benchmark():
    makefile = (ROOT / "Makefile").read_text()
    recipe = re.search(r"^bench:.*?for name in (.*?); do", makefile, re.S | re.M)
    assert recipe is not None
    files = [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "benchmarks").glob("*/__main__.py")]
    found = {
        file.parent.name if file.stem == "__main__" else file.stem
        for file in files
        if TELLS.search(file.read_text())
    }
    assert sorted(recipe[1].replace("\\", "").split()) == sorted(found)
    assert len(found) > 12


def test_the_arms_differ_by_credit_alone_and_no_question_has_two_uses(tmp_path: Path):
    plan = Plan(tmp_path / "0", QUICK)
    plan.write()
    first, *others = (plan.arm(name, 1) for name in ARMS)
    for other in others:
        assert first.rounds and first.rounds == other.rounds
        assert first.config.model_copy(update={"out": other.config.out}) == other.config
    uses = [{q.question for q in part} for part in (plan.training(), plan.held_out(), plan.test())]
    assert [len(use) for use in uses] == [2, 1, 1] and not set.intersection(*uses)
    whole = Plan(tmp_path / "0")
    uses = [{q.question for q in p} for p in (whole.training(), whole.held_out(), whole.test())]
    assert [len(use) for use in uses] == [380, 24, 208]
    assert not uses[0] & uses[1] and not uses[2] & (uses[0] | uses[1])
    titles = [path.read_text().splitlines()[0] for path in plan.documents.iterdir()]
    gold = {f"# {title}" for q in plan.training() for title in (q.facts or {})["gold"]}
    assert gold <= set(titles) and len(titles) < 70


def replicate(number: int, **dev: list[tuple[str, float | None, float]]) -> Replicate:
    """What its arms answered, as id, evidence and F1 of each question."""
    rows = {
        name: tuple(Answered(q, recall, f1, 1.0, 0.0, 2.0) for q, recall, f1 in asked)
        for name, asked in dev.items()
    }
    course = ArmCourse(
        rollouts=8, sampled_tokens=100,
        held_out=(HeldOutMeans(0, 0.25, 0.5), HeldOutMeans(2, 0.5, 0.5)),
        metrics={"kl_reference": (None, 0.1), "surprise": (0.5, 0.5)},
    )  # fmt: skip
    return Replicate(
        replicate=number, model="tiny", sizes={"every": 1}, recipe={}, done=True,
        arms=dict.fromkeys(ARMS, course), dev=rows,
    )  # fmt: skip


def test_replicates_are_pooled_and_differences_paired_by_replicate_and_question(tmp_path: Path):
    one, other, *_ = (q.id for q in questions_of("dev").questions)
    told = [
        replicate(
            0, imitation=[(one, 0.5, 0.0), (other, None, 0.5)],
            stages=[(one, 1.0, 0.5), (other, None, 0.5)],
        ),
        replicate(1, imitation=[(one, 0.0, 0.5)], stages=[(one, 1.0, 0.5), (other, 0.5, 1.0)]),
    ]  # fmt: skip
    for each in told:
        (tmp_path / f"{each.replicate}.json").write_text(each.model_dump_json())
    assert kept_replicates(tmp_path) == told, "a file gives back what was measured"
    found = pooled(told)
    assert (found["replicates"], found["stages_rollouts"]) == (2, 16)
    assert found["stages_rollouts_an_hour"] is None, "files of before do not note their seconds"
    assert found["stages_evidence"] == pytest.approx((1.0 + 1.0 + 0.5) / 3, abs=1e-3)
    assert found["imitation_f1"] == pytest.approx((0.0 + 0.5 + 0.5) / 3, abs=1e-3)
    assert found["evidence_stages_imitation"] == 0.75, "the second was not asked of both"
    assert found["evidence_stages_imitation_low"] == 0.5
    assert found["evidence_stages_imitation_high"] == 1.0
    assert "f1_stages_answer" not in found, "what nobody was asked is left out"


def test_an_interval_is_over_replicates_too():
    alone = {str(n): {0: float(n % 2)} for n in range(40)}
    apart = {str(n): {0: 0.0, 1: 1.0} for n in range(40)}
    assert interval("x", {}) == {}
    among_questions, among_seeds = interval("x", alone), interval("x", apart)
    assert among_questions["x"] == among_seeds["x"] == 0.5
    assert (among_seeds["x_low"], among_seeds["x_high"]) == (0.0, 1.0)
    low, high = among_questions["x_low"], among_questions["x_high"]
    assert isinstance(low, float) and isinstance(high, float) and 0.3 < low < 0.4 < 0.6 < high < 0.7


def test_only_what_was_kept_and_is_asked_for_again_is_a_repetition():
    kept = {"calls": 2, "searches": 1}
    before = {"calls": {"plan": 1, "search": 1, "answer": 1}, "searches": {"rule": 1}}
    again = {"plan": 1, "search": 1, "answer": 2, "check": 1}, {"rule": 1, "exception": 2}
    after = dict(zip(("calls", "searches"), again, strict=True))
    assert repetitions(kept, before, after) == 0, "what was on its way is made again"
    assert repetitions(kept, before, {**after, "calls": {**again[0], "plan": 2}}) == 1
    assert repetitions(kept, before, {**after, "searches": {**again[1], "rule": 3}}) == 2
    assert repetitions(kept, before, {**after, "calls": {**again[0], "plan anew": 1}}) == 1


def judged(kind: str, verdict: CitationSupport) -> Judged:
    return Judged(Case("test", kind, claim_pair("It grows.")), verdict)


def test_figures_by_hand():
    values = figures(
        [
            judged("true", "supported"),
            judged("true", "unsupported"),
            judged("false", "unsupported"),
            judged("false", "partial"),
            judged("number", "unsupported"),
            judged("half", "partial"),
            judged("half", "supported"),
        ]
    )
    assert values["precision"] == pytest.approx(2 / 3, abs=1e-3)
    assert values["recall"] == pytest.approx(2 / 3, abs=1e-3)
    assert values["doubt_precision"] == pytest.approx(4 / 5)
    assert values["doubt_recall"] == pytest.approx(4 / 5)
    assert (values["true_recall"], values["number_recall"], values["half_recall"]) == (0.5, 1, 0.5)
    assert figures([judged("true", "supported")])["precision"] is None, "nothing was doubted"


def test_the_pairs_are_enough_of_every_kind_and_no_claim_stands_twice():
    cases = load_cases()
    test = Counter(case.kind for case in cases if case.set == "test")
    assert sum(test.values()) >= 60
    assert all(test[kind] >= 12 for kind in ("true", "false", "half", "number"))
    claims = [case.pair.claim for case in cases]
    assert len(set(claims)) == len(claims)

    passages = [{c.pair.source.text for c in cases if c.set == name} for name in ("tuning", "test")]
    assert not passages[0] & passages[1], "nothing is fitted on a passage of the test set"


async def test_no_planted_claim_is_lost_on_its_way_to_a_checker_that_knows_the_truth():
    kinds = Counter(kind for _, each in in_claims.load_reports() for kind in each)
    planted = dict.fromkeys(("number", "name", "negation", "scope", "product"), 12)
    assert kinds == {in_claims.HOLDS: 78, **planted}
    found = await in_claims.in_reports()
    assert {kind: found[f"honest_{kind}"] for kind in planted} == planted
    assert found["honest_false_alarms"] <= in_claims.MOST_FALSE_ALARMS
    assert found["believing_found"] < found["rules_found"] < found["honest_found"]


def test_rules_find_every_changed_number_of_the_pairs():
    found = by_rules([case for case in load_cases() if case.kind == "number"])
    assert {judged.verdict for judged in found} == {"unsupported"}
