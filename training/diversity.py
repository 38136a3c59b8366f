"""How unlike one another the answers of a group are: in their words, and in their meaning.

- by words, 1 - Self-BLEU: the BLEU of each answer with all others as its references (Texygen,
  arXiv:1802.01886), averaged; sacrebleu's, of up to four words running, smoothed;
- by meaning: the mean cosine distance of the answers' embeddings, over all pairs.

Both are 0 where all answers are the same (RuscaRL, arXiv:2508.16949, section 5).
"""

import re
from collections.abc import Sequence
from statistics import fmean

import numpy as np

from judge.answers import answer_text
from memory.interfaces import Embedder
from memory.schema import Trajectory
from training.extra_packages import needed

_TAG = re.compile(r"<[^<>]*>")


def answers_of(trajectories: Sequence[Trajectory]) -> list[str]:
    """The answers without their tags; runs without one are left out."""
    texts = (_TAG.sub(" ", answer_text(trajectory)) for trajectory in trajectories)
    return [text.strip() for text in texts if text.strip()]


def words_apart(answers: Sequence[str]) -> float | None:
    """1 - Self-BLEU, in [0, 1]; None for fewer than two answers.

    Raises SettingsError where sacrebleu is not installed.
    """
    if len(answers) < 2:
        return None
    bleu = needed("sacrebleu", "metrics").sentence_bleu
    others = ([*answers[:place], *answers[place + 1 :]] for place in range(len(answers)))
    shares = [bleu(text, rest).score / 100 for text, rest in zip(answers, others, strict=True)]
    return min(max(1.0 - fmean(shares), 0.0), 1.0)


def meaning_apart(answers: Sequence[str], embedder: Embedder) -> float | None:
    """The mean cosine distance, in [0, 2]; None for fewer than two answers. Blocks."""
    count = len(answers)
    if count < 2:
        return None
    vectors = embedder.embed(answers).astype(np.float64)
    together = float(np.square(vectors.sum(axis=0)).sum())
    return 1.0 - (together - float(np.square(vectors).sum())) / (count * (count - 1))
