"""Evaluation of any model, source and question file in one way: arms, grades, rows, results."""

from rubricem.agent.evaluate.arms import WAYS, Arm
from rubricem.agent.evaluate.experiment import JUDGES, EvalRow, Experiment
from rubricem.agent.evaluate.questions import QuestionSet, ungraded
from rubricem.agent.evaluate.results import text_table, write_results

__all__ = [
    "JUDGES",
    "WAYS",
    "Arm",
    "EvalRow",
    "Experiment",
    "QuestionSet",
    "text_table",
    "ungraded",
    "write_results",
]
