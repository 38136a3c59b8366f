"""How far the published rules read a judge's texts as our parser does."""

from judge.evaluation.labelled import Comparison, Pair
from judge.evaluation.published import published_rules
from judge.evaluation.report import pair_report, shares_of

PAIR = Pair(id="p", prompt="q", first="x", second="y", better="first")
TAG_A = "<answer>[[A]]</answer>"


def said(text: str, *, swapped: bool = False) -> Comparison:
    return Comparison(pair="p", swapped=swapped, text=text)


def test_texts_are_held_against_both_rules():
    texts = [
        said(TAG_A),  # alike by both
        said("<answer> [[A]] </answer>"),  # the reward knows no white space
        said(f"<quote_B>[[B]]</quote_B>{TAG_A}"),  # a quote spoils the evaluation
        said("[[B]]"),  # wrong either way for the reward; the evaluation needs no tag
    ]
    found = published_rules([PAIR], texts)
    assert found is not None
    assert (found.reward.value, found.evaluation.value) == (3 / 4, 2 / 4)


def test_the_letter_of_the_better_answer_hangs_on_the_order():
    # B is the better one here: ours rewards it, the published rule does not.
    found = published_rules([PAIR], [said("<answer> [[B]] </answer>", swapped=True)])
    assert found is not None and found.reward.value == 0
    assert (found := published_rules([PAIR], [said("<answer> [[B]] </answer>")])) is not None
    assert found.reward.value == 1, "wrong for both"


def test_a_judge_that_writes_nothing_is_held_against_no_rule():
    assert published_rules([PAIR], [said("")]) is None


def test_a_report_tells_both_shares():
    report = pair_report("data", "judge", [PAIR], [said(TAG_A)])
    shares = dict(shares_of(report))
    assert shares["read alike by the published reward"].value == 1
    assert shares["read alike by the published evaluation"].value == 1
