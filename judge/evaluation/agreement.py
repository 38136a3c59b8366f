"""How far a judge of single criteria agrees with people who labelled them.

HealthBench's meta evaluation (arXiv:2505.08775, section 8): each label of each person is one
comparison with the judge's mark. F1 is computed for "met" and for "not met", and their mean is
the balanced F1. A missing mark is a miss for the label's class and a false find for neither.
"""

from collections.abc import Sequence

from judge.evaluation.labelled import LabelledCriterion, Mark
from judge.evaluation.shares import Share, share_of
from memory.schema import Value


class ClassAgreement(Value):
    """One class, met or not met; None where a ratio has nothing under its line."""

    precision: float | None
    recall: float | None
    f1: float | None


class Agreement(Value):
    """One judge against all labels of the criteria that it was shown."""

    criteria: int
    labels: int
    accuracy: Share
    """of single labels; several of one criterion are not independent, so read it with care"""
    met: ClassAgreement
    not_met: ClassAgreement
    balanced_f1: float | None
    says_met: Share
    """of marks"""
    unparsed: Share
    """of all criteria"""


def agreement(items: Sequence[LabelledCriterion], marks: Sequence[Mark]) -> Agreement:
    """Raises KeyError for a mark of a criterion that is not among them."""
    known = {item.id: item for item in items}
    paired = [(mark.met, label) for mark in marks for label in known[mark.item].labels]
    met, not_met = _of_class(paired, True), _of_class(paired, False)
    both = [value for value in (met.f1, not_met.f1) if value is not None]
    return Agreement(
        criteria=len(marks),
        labels=len(paired),
        accuracy=share_of([said == label for said, label in paired]),
        met=met,
        not_met=not_met,
        balanced_f1=sum(both) / 2 if len(both) == 2 else None,
        says_met=share_of([mark.met for mark in marks if mark.met is not None]),
        unparsed=share_of([mark.met is None for mark in marks]),
    )


def agreement_by_subset(
    items: Sequence[LabelledCriterion], marks: Sequence[Mark]
) -> dict[str, Agreement]:
    subset = {item.id: item.subset for item in items}
    names = dict.fromkeys(subset[mark.item] for mark in marks)
    return {
        name: agreement(items, [mark for mark in marks if subset[mark.item] == name])
        for name in names
        if name
    }


def _of_class(paired: Sequence[tuple[bool | None, bool]], wanted: bool) -> ClassAgreement:
    found = sum(said is wanted and label is wanted for said, label in paired)
    said_so = sum(said is wanted for said, _ in paired)
    labelled = sum(label is wanted for _, label in paired)
    return ClassAgreement(
        precision=found / said_so if said_so else None,
        recall=found / labelled if labelled else None,
        f1=2 * found / (said_so + labelled) if said_so + labelled else None,
    )
