"""Whether the published rules of a chain-of-rubrics judge would have read its texts as we do.

There are two, one for training and one for evaluation, and they differ from each other
(RM-R1, arXiv:2505.02387); we read every text with one parser.
"""

from collections.abc import Sequence

from judge.evaluation.labelled import Comparison, Pair
from judge.evaluation.shares import Share, share_of
from judge.pairwise_parsing import Side, published_reward, published_verdict, reward, verdict_of
from memory.schema import Value


class PublishedRules(Value):
    """Shares of a judge's texts that are read alike."""

    reward: Share
    """by the training rule"""
    evaluation: Share
    """by the evaluation rule"""


def published_rules(
    pairs: Sequence[Pair], comparisons: Sequence[Comparison]
) -> PublishedRules | None:
    """Over the comparisons whose text is known; None where there is none."""
    by_id = {pair.id: pair for pair in pairs}
    texts = [(c.text, _better(by_id[c.pair], c.swapped)) for c in comparisons if c.text]
    if not texts:
        return None
    return PublishedRules(
        reward=share_of([reward(text, b) == published_reward(text, b) for text, b in texts]),
        evaluation=share_of([verdict_of(text) == published_verdict(text) for text, _ in texts]),
    )


def _better(pair: Pair, swapped: bool) -> Side:
    """The letter under which the better answer was shown."""
    return "A" if (pair.better == "first") != swapped else "B"
