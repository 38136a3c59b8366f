"""Every number of forced decoding that was fitted or chosen, with how, in one place."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Null:
    """Coefficients of the logistic that a passage says what was read from it.

    Fitted on 61 labelled pairs of MuSiQue's sub-questions and 2WikiMultihopQA's training triples,
    each with its gold passage or the best other one that a search finds (`null_fit` of a5f2fc22).
    Leaving each question out once: AUC 0.947, calibration error 0.043; without `answers` 0.919,
    without `right` 0.952, without `mean_logprob` 0.919.
    """

    bias: float = 0.52
    answers: float = 1.37
    right: float = 0.64
    mean_logprob: float = 1.12


@dataclass(frozen=True, slots=True)
class Tuned:
    null: Null = Null()
    parts: int = 4
    """of a question; a small model that writes more repeats itself"""
    read: int = 3
    """passages that are read for a search: a sub-question of MuSiQue's annotators finds its gold
    passage among two for 0.83, among five for 0.91"""
    read_first: int = 5
    """the same of the question itself, which is searched first"""
    words: int = 200
    """of a passage that are read at once, the part about the question where it has more: of those
    of MuSiQue and HotpotQA that is all but the longest"""
    certain: float = 0.6
    """chance that an answer is right, with all that it rests on, from which it counts as certain:
    of those 61 pairs 29 are above it, 26 of them gold"""
    found: float = 0.25
    """the same from which it is an answer at all, though not a certain one: 39 are above it, 29 of
    the 31 gold ones among them"""
    supported: float = 0.7
    """the model's Yes to a drafted answer from which that counts as certain: of everyday questions
    right drafts had 0.77 to 0.91, some 0.47 to 0.74, wrong ones 0.23 to 0.74"""
    drafted: float = 0.5
    """the same from which a draft is shown at all, and the most for a sentence in its place"""
    quoted: int = 3
    """sentences in the place of a draft: of 134 questions the nearest one has the key fact for
    0.34, one of three for 0.51, some sentence of the three best passages for 0.77"""
    worded: float = 0.5
    """weight of the share of a text's words in a sentence, beside their nearness in meaning: the
    nearest of those 134 has the fact for 0.34 with it and 0.28 without; 0.22 without its title"""
    same: float = 0.8
    """share of a draft's content words in the sentence that it rests on, from which that alone is
    shown"""
    span: int = 12
    """words of a span"""
    abbreviation: int = 3
    """letters of a word whose full stop may be an abbreviation's: St. Ives"""


TUNED = Tuned()
