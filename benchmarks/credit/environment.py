"""Four stages in a row, where what an early stage hands on bounds what a later one is worth.

    received[0] = 1,  received[k+1] = (1 - d) + d * hands_on[k](action) * received[k]
    score[k]    = own[k](action) * received[k]

d is how much a stage depends on the one before it. Every question kind has one right action at
each stage. A right one hands on all it received, a wrong one nothing. The first stages (by
default the plan alone) also have a look-alike: a judge of that stage scores it as the right one
(plus `lure`), but it hands on a quarter, as a plan does that reads as well and looks for the
wrong thing. So an early action matters later, and only later scores tell the two apart.

The theory that is put to the test (RubricEM, arXiv:2605.10899, appendix E): stage credit errs
by the noise of the scores it adds, answer-only credit by the stage signal that it leaves out.

Shapes: Q = question kinds, K = stages, A = actions, n = rollouts of one question.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rubricem.training.rows.credit import Floats

QUESTIONS, STAGES = 4, 4
RIGHT_SCORE, WRONG_SCORE = 0.8, 0.2
LOOK_ALIKE_HANDS_ON = 0.25
OPTIMUM = 1.0
"""expected answer score of the right action at every stage"""


@dataclass(frozen=True)
class Kind:
    """What an environment is like before its right actions are drawn."""

    dependence: float = 0.75
    """d, how much of a stage's worth comes from what it was handed"""
    actions: int = 8
    look_alikes: int = 1
    """how many stages, from the first on, have an action that looks like the right one"""
    lure: float = 0.0
    """how much better than the right action a look-alike scores by itself"""


@dataclass(frozen=True)
class Chain:
    """One drawn environment; both tables are (Q, K, A) and in [0, 1]."""

    dependence: float
    own: Floats
    hands_on: Floats


def draw_chain(rng: np.random.Generator, kind: Kind) -> Chain:
    """Draw which actions are right and which look like them; nothing else differs by draw."""
    own = np.full((QUESTIONS, STAGES, kind.actions), WRONG_SCORE)
    hands_on = np.zeros_like(own)
    for question in range(QUESTIONS):
        for stage in range(STAGES):
            right, alike = rng.permutation(kind.actions)[:2]
            last = stage == STAGES - 1
            own[question, stage, right] = OPTIMUM if last else RIGHT_SCORE
            hands_on[question, stage, right] = 1.0
            if stage < min(kind.look_alikes, STAGES - 1):
                own[question, stage, alike] = RIGHT_SCORE + kind.lure
                hands_on[question, stage, alike] = LOOK_ALIKE_HANDS_ON
    return Chain(kind.dependence, own, hands_on)


def true_scores(chain: Chain, actions: NDArray[np.int64]) -> Floats:
    """What a perfect judge gives each stage; `actions` and the result are (..., Q, K)."""
    question, stage = np.indices(actions.shape[-2:])
    received = _hand_down(chain, chain.hands_on[question, stage, actions])
    return np.asarray(chain.own[question, stage, actions] * received)


def expected_answer(chain: Chain, policy: Floats) -> Floats:
    """The exact expected answer score, mean over questions; `policy` is (..., Q, K, A).

    A stage's choice depends on the question alone, so the expectation goes through the chain.
    """
    own = (policy * chain.own).sum(axis=-1)
    hands = (policy * chain.hands_on).sum(axis=-1)
    answers: Floats = own[..., -1] * _hand_down(chain, hands)[..., -1]
    return np.asarray(answers.mean(axis=-1))


def judge_noisily(scores: Floats, noise: Floats, chance: Floats, guess: Floats) -> Floats:
    """What a noisy judge says: with probability `noise` (K,) a uniform guess, not the score.

    `chance` and `guess` are uniform draws that broadcast against `scores`, (..., K). Noise 0 is
    a perfect judge; at noise 1 a score says nothing.
    """
    return np.where(chance < noise, guess, scores)


def _hand_down(chain: Chain, hands_on: Floats) -> Floats:
    """(..., K) of what each stage was handed, from what each stage hands on of it."""
    received = np.ones_like(hands_on)
    for stage in range(STAGES - 1):
        passed = hands_on[..., stage] * received[..., stage]
        received[..., stage + 1] = 1 - chain.dependence + chain.dependence * passed
    return received
