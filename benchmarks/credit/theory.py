"""How much judge noise the theorem allows before stage credit might lose, at the first step.

RubricEM (arXiv:2605.10899), appendix E: for stage k, stage credit has the smaller gradient error
when the sum over j of L[k, j] * eps[k, j] is below M[k] - eps[k, K]. Here eps[k, j] is
sqrt(B[k]) * delta[j] with B[k] the mean square of the score function and delta[j] the judge's
root-mean-square error; M[k] is the size of the gradient that the stages before the answer give.
It is a sufficient condition, so the noise at which stage credit really loses is higher.
"""

from itertools import product

import numpy as np

from benchmarks.credit.environment import QUESTIONS, STAGES, Chain, true_scores
from rubricem.training.rows.credit import Dependence


def allowed_noise(chain: Chain, arm: Dependence, stage: int = 0) -> float:
    """The chance of a guess in the scores before the answer's that the theorem allows.

    For the uniform policy, by enumeration of all actions; the answer's score is exact. A
    uniform guess U for a score R errs by E (U - R)^2 = 1/3 - R + R^2.
    """
    count = chain.own.shape[-1]
    actions = np.array(list(product(range(count), repeat=STAGES)))
    scores = true_scores(chain, np.repeat(actions[:, np.newaxis], QUESTIONS, axis=1))[:, 0]
    before = arm.array()[stage].copy()
    before[-1] = 0.0
    score_function = np.eye(count)[actions[:, stage]] - 1 / count
    signal = ((scores @ before)[:, np.newaxis] * score_function).mean(axis=0)
    error = np.sqrt((1 / 3 - scores + scores**2).mean(axis=0))
    size = np.sqrt((score_function**2).sum(axis=1).mean())
    return float((np.linalg.norm(signal) / (size * (before @ error))) ** 2)
