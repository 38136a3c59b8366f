"""The figures of the benchmark by hand, and that its pairs are what it says of them."""

from collections import Counter

import pytest

from benchmarks.intervals import wilson
from benchmarks.verify import Case, Judged, by_rules, combined, figures, load_cases
from memory.schema import CitationSupport
from tests.verifying import pair


def judged(kind: str, verdict: CitationSupport) -> Judged:
    return Judged(Case("test", kind, pair("It grows.")), verdict)


def test_the_interval_is_wilsons():
    # By hand for 8 of 10: centre 0.7167, half 0.2266 (Wilson 1927).
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)
    assert (wilson(0, 5)[0], wilson(5, 5)[1]) == pytest.approx((0.0, 1.0))


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


def test_the_rules_stand_above_the_models_probability():
    changed = Case("test", "number", pair("It holds 256 calls."))
    assert combined(changed, 0.99).verdict == "unsupported"
    true = Case("test", "true", pair("It holds 128 calls."))
    assert [combined(true, p).verdict for p in (0.9, 0.5, 0.1)] == [
        "supported", "partial", "unsupported",
    ]  # fmt: skip


def test_the_pairs_are_enough_of_every_kind_and_no_claim_stands_twice():
    cases = load_cases()
    test = Counter(case.kind for case in cases if case.set == "test")
    assert sum(test.values()) >= 60
    assert all(test[kind] >= 12 for kind in ("true", "false", "half", "number"))
    claims = [case.pair.claim for case in cases]
    assert len(set(claims)) == len(claims)
    passages = [{c.pair.source.text for c in cases if c.set == name} for name in ("tuning", "test")]
    assert not passages[0] & passages[1], "nothing is fitted on a passage of the test set"


def test_rules_find_every_changed_number_of_the_pairs():
    found = by_rules([case for case in load_cases() if case.kind == "number"])
    assert {judged.verdict for judged in found} == {"unsupported"}
