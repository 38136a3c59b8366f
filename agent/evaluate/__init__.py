"""Evaluation of any model, source and question file in one way: arms, grades, rows, results."""

from rubricem.agent.evaluate.arms import WAYS, arms_of
from rubricem.agent.evaluate.claims import check_claims, claim_figures, claim_lines, read_claims
from rubricem.agent.evaluate.experiment import JUDGES, EvalRow, Experiment, evaluate
from rubricem.agent.evaluate.questions import FORMATS, read_questions, ungraded
from rubricem.agent.evaluate.results import PAGE, text_table, write_results

__all__ = [
    "FORMATS",
    "JUDGES",
    "PAGE",
    "WAYS",
    "EvalRow",
    "Experiment",
    "arms_of",
    "check_claims",
    "claim_figures",
    "claim_lines",
    "evaluate",
    "read_claims",
    "read_questions",
    "text_table",
    "ungraded",
    "write_results",
]
