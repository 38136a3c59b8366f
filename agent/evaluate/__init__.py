"""Evaluation of any model, source and question file in one way: arms, grades, rows, results."""

from rubricem.agent.evaluate.arms import WAYS, Arm
from rubricem.agent.evaluate.claims import ClaimSet, claim_lines
from rubricem.agent.evaluate.experiment import JUDGES, EvalRow, Experiment
from rubricem.agent.evaluate.questions import FORMATS, QuestionSet, ungraded
from rubricem.agent.evaluate.results import PAGE, text_table, write_results

__all__ = [
    "FORMATS",
    "JUDGES",
    "PAGE",
    "WAYS",
    "Arm",
    "ClaimSet",
    "EvalRow",
    "Experiment",
    "QuestionSet",
    "claim_lines",
    "text_table",
    "ungraded",
    "write_results",
]
