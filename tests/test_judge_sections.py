"""RewardBench's sections, RM-Bench's matrix and HealthBench's balanced F1, by hand."""

import random

import pytest

from judge.evaluation.agreement import agreement, agreement_by_subset
from judge.evaluation.labelled import LabelledCriterion, Mark, Turn
from judge.evaluation.rewardbench import SECTIONS, section_scores
from judge.evaluation.rm_bench import domain_scores, rm_bench_scores
from tests.labelled import pair, said

STYLES = (0, 1, 2)


def test_a_section_weighs_its_subsets_by_their_published_counts():
    pairs = [pair("m", subset="math-prm"), pair("p", subset="hep-python")]
    found = section_scores(pairs, [*said("m", "first"), *said("p", "second")])
    assert found is not None
    assert found.sections == {"Reasoning": pytest.approx(984 / (984 + 164))}
    assert found.overall is None, "three sections are missing"
    assert "hep-cpp" in found.missing and "math-prm" not in found.missing


def test_math_weighs_as_much_as_all_code():
    weights = SECTIONS["Reasoning"]
    assert weights["math-prm"] == sum(w for name, w in weights.items() if name != "math-prm")


def test_the_overall_number_is_the_plain_mean_of_sections_and_a_tie_is_half():
    names = ("mt-bench-easy", "llmbar-natural", "donotanswer", "math-prm")
    pairs = [pair(name, subset=name) for name in names]
    winners = ("first", "tie", "second", None)
    comparisons = [
        c for name, winner in zip(names, winners, strict=True) for c in said(name, winner)
    ]
    found = section_scores(pairs, comparisons)
    assert found is not None
    assert found.sections == {"Chat": 1, "Chat Hard": 0.5, "Safety": 0, "Reasoning": 0}
    assert found.overall == pytest.approx(1.5 / 4)


def test_other_subsets_have_no_sections():
    assert section_scores([pair("a", subset="mmlu-pro")], said("a", "first")) is None


def test_hard_is_above_the_diagonal_and_easy_below():
    found = domain_scores(((0.9, 0.2, 0.1), (1.0, 0.8, 0.3), (1.0, 0.7, 0.4)))
    assert found.hard == pytest.approx(0.2)
    assert found.normal == pytest.approx(0.7)
    assert found.easy == pytest.approx(0.9)
    assert found.mean == pytest.approx(0.6)


def test_a_judge_that_takes_the_fancier_answer_is_wrong_where_it_is_hard():
    pairs = [pair(f"{r}{c}", subset="chat", styles=(r, c)) for r in STYLES for c in STYLES]
    comparisons = [
        verdict
        for one in pairs
        for verdict in said(
            one.id, "first" if one.styles and one.styles[0] > one.styles[1] else "second"
        )
    ]
    found = rm_bench_scores(pairs, comparisons)
    assert found is not None
    chat = found.domains["chat"]
    assert (chat.hard, chat.normal, chat.easy) == (0, 0, 1)
    assert found.total == pytest.approx(1 / 3)


def test_total_is_the_mean_of_domains_and_of_the_three_levels_alike():
    draw = random.Random(0)
    pairs = [
        pair(f"{domain}{item}{r}{c}", subset=domain, styles=(r, c))
        for domain in ("chat", "math", "code", "safety-refuse", "safety-response")
        for item in range(3)
        for r in STYLES
        for c in STYLES
    ]
    comparisons = [v for one in pairs for v in said(one.id, draw.choice(("first", "second")))]
    found = rm_bench_scores(pairs, comparisons)
    assert found is not None and found.hard is not None
    assert set(found.domains) == {"chat", "math", "code", "safety"}
    levels = (found.hard, found.normal, found.easy)
    assert found.total == pytest.approx(sum(filter(None, levels)) / 3)


def test_every_cell_counts_all_of_its_own_comparisons():
    """Upstream reads the third rejected style for the second too, so half of them are lost."""
    pairs = [pair(f"{r}{c}", subset="math", styles=(r, c)) for r in STYLES for c in STYLES]
    wrong = {"01"}
    comparisons = [v for p in pairs for v in said(p.id, "second" if p.id in wrong else "first")]
    found = rm_bench_scores(pairs, comparisons)
    assert found is not None
    assert found.domains["math"].matrix == ((1, 0, 1), (1, 1, 1), (1, 1, 1))
    assert found.hard == pytest.approx(2 / 3)


def test_an_empty_cell_leaves_unknown_what_needs_it():
    pairs = [pair("00", subset="math", styles=(0, 0)), pair("11", subset="math", styles=(1, 1))]
    found = rm_bench_scores(pairs, [*said("00", "first"), *said("11", "first")])
    assert found is not None
    assert found.normal is None and found.total is None
    assert found.domains["math"].matrix[1] == (None, 1.0, None)


def test_pairs_without_styles_have_no_matrix():
    assert rm_bench_scores([pair("a")], said("a", "first")) is None


def criterion(name: str, *labels: bool, subset: str = "") -> LabelledCriterion:
    turns = (Turn(role="user", content="q"),)
    return LabelledCriterion(
        id=name, conversation=turns, completion="a", criterion="c", labels=labels, subset=subset
    )


def test_balanced_f1_by_hand():
    items = [
        criterion("a", True, True, subset="x"),
        criterion("b", True, False, subset="x"),
        criterion("c", False, subset="y"),
        criterion("d", False, subset="y"),
    ]
    marks = [
        Mark(item="a", met=True),
        Mark(item="b", met=True),
        Mark(item="c", met=False),
        Mark(item="d", met=None),
    ]
    found = agreement(items, marks)
    assert (found.met.precision, found.met.recall) == (3 / 4, 1)
    assert found.met.f1 == pytest.approx(6 / 7)
    assert (found.not_met.precision, found.not_met.recall) == (1, 1 / 3)
    assert found.not_met.f1 == pytest.approx(0.5), "the missing mark is a miss"
    assert found.balanced_f1 == pytest.approx((6 / 7 + 0.5) / 2)
    assert (found.unparsed.hits, found.unparsed.n) == (1, 4)
    assert (found.says_met.hits, found.says_met.n) == (2, 3)
    assert {name: one.labels for name, one in agreement_by_subset(items, marks).items()} == {
        "x": 4,
        "y": 2,
    }


def test_a_class_that_nobody_speaks_of_has_no_f1_and_there_is_no_balance():
    found = agreement([criterion("a", True)], [Mark(item="a", met=True)])
    assert found.met.f1 == 1
    assert found.not_met.f1 is None and found.balanced_f1 is None
