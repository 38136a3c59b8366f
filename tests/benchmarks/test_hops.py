"""Multi-hop questions: the packed data, which of them are asked, and what the targets are about."""

from collections import Counter

from benchmarks.hops import LEAST, MOST, corpus, questions_of, values_of
from benchmarks.report import emit
from rubricem.agent.evaluate.experiment import EvalRow
from rubricem.agent.evaluate.grades import EvalGrade
from rubricem.memory.schema import Status


def row(identifier: str, arm: str, kind: str, evidence: float | None, f1: float, seconds: float):
    grade = EvalGrade(em=float(f1 == 1), f1=f1, evidence=evidence, right=f1 >= 0.5)
    return EvalRow(
        id=identifier, arm=arm, question="?", type=kind, thread="t", status=Status.FINISHED,
        grade=grade, seconds=seconds, searches=2,
    )  # fmt: skip


def test_every_gold_title_is_a_passage_of_the_corpus():
    titles = Counter(passage.title for passage in corpus())
    questions = questions_of("dev").questions + questions_of("train").questions
    assert len(titles) == titles.total() == 6119 and len(questions) == 778
    assert {title for q in questions for title in q.gold} <= titles.keys()
    assert all(q.answers and q.type for q in questions)


def test_figures_are_by_arm_and_type_and_differences_are_paired():
    rows = [
        row("1", "stages", "compositional", 1.0, 1.0, 3.0),
        row("1", "plain", "compositional", 0.5, 0.5, 2.0),
        row("2", "stages", "bridge_comparison", 0.5, 1.0, 3.0),
        row("2", "plain", "bridge_comparison", 0.5, 0.5, 2.0),
        row("3", "stages", "compositional", None, 1.0, 3.0),
        row("3", "plain", "compositional", None, 0.5, 2.0),
    ]
    values = values_of(rows, {number: ["x"] for number in "123"})
    assert values["stages_compositional_all_gold"] == 1.0, "without gold it does not count"
    assert values["stages_bridge_comparison_all_gold"] == 0.0
    assert values["stages_evidence"] == 0.75 and values["stages_compositional_n"] == 2
    assert (values["f1_stages_plain"], values["f1_stages_plain_low"]) == (0.5, 0.5)
    assert (values["stages_wrong_certain"], values["plain_honest"]) == (0.0, None)
    assert emit("hops", values, "by hand", least=LEAST, most=MOST)
