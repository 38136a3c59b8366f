"""Grades by code: answers by match, evidence by titles, cites by the lexical rules.

Exact match and F1 are those of SQuAD (arXiv:1606.05250) after its normalisation (lower case,
without punctuation and articles), in scripts without spaces by characters as MLQA's
(arXiv:1910.07475), with the rule of HotpotQA and 2WikiMultihopQA that yes and no match nothing but
themselves. If several answers are right the best match counts. Evidence recall is the share of the
gold passages, by their titles or places, among the sources that the run retrieved. A refusal is a
run without evidence or an answer that says it was not found: right for an unanswerable question,
and honest if the answer would have been wrong.
"""

import json
import re
import string
from collections import Counter
from collections.abc import Sequence
from unicodedata import category

from rubricem.agent.evaluate.questions import EvalQuestion
from rubricem.agent.reports.cited import CitedAnswer, cited_answer
from rubricem.agent.reports.rules import likely_finding
from rubricem.agent.reports.verifier import pairs_of
from rubricem.agent.sources.sandbox.pool import Job, readers
from rubricem.memory.errors import SourceError
from rubricem.memory.language import PAIRED_RUN, apart
from rubricem.memory.schema import Source, Status, Trajectory, Value
from rubricem.memory.text import storable

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_DECIDED = {"yes", "no", "noanswer"}
_BARE_REFUSAL = re.compile(
    r"(?:unknown|none|n/?a|not (?:found|known|given|stated|available|mentioned|specified|sure)|"
    r"no (?:answer|information|evidence)|insufficient|cannot|i do not know|i don't know)\b",
    re.I,
)
_REFUSAL = re.compile(
    r"\b(?:not (?:been )?found|could not (?:be )?(?:find|found|determin|answer)\w*|"
    r"cannot (?:be )?(?:answer|determin|establish)\w*|"
    r"(?:no|not enough|insufficient) (?:information|evidence)|"
    r"(?:do|does|did) not (?:settle|answer|say|state|mention|contain|specify|provide|hold)|"
    r"hold nothing on)\b",
    re.I,
)
RIGHT = 0.5
"""F1 from which an answer of several words counts as right if none matches exactly"""


class EvalGrade(Value):
    """The grades of one answer; None if the question has nothing to grade that by."""

    em: float | None = None
    f1: float | None = None
    pattern: float | None = None
    """share of the patterns that match"""
    pattern_reason: str = ""
    evidence: float | None = None
    rubric: float | None = None
    """a judge's score for the question's own rubric"""
    rubric_reason: str = ""
    """the judge's reason, or why there is no score"""
    refused: bool = False
    right: bool | None = None
    cites: int = 0
    """claims on retrieved sources"""
    supported: int = 0
    """how many of them are, by the lexical rules"""
    dropped: int = 0
    """marks that named no retrieved source"""

    @property
    def score(self) -> float | None:
        """The one figure by which the arms are compared."""
        if self.f1 is None and self.pattern is None and self.rubric is None:
            return None if self.right is None else float(self.right)
        return next(v for v in (self.f1, self.pattern, self.rubric) if v is not None)

    @property
    def all_gold(self) -> bool | None:
        return None if self.evidence is None else self.evidence == 1.0

    @classmethod
    def of(cls, question: EvalQuestion, trajectory: Trajectory) -> "EvalGrade":
        """All grades of a run's answer that code can give; a rubric's score is added by a judge.

        A failed run has no answer, so it contains nothing that was asked for. Blocks if the
        question has patterns.
        """
        answer = cited_answer(trajectory)
        failed = trajectory.failed
        text = "" if failed else answer.text()
        said = "" if failed else answer.bare or text
        checks = Counter(likely_finding(pair).verdict for pair in pairs_of(answer))
        em = f1 = pattern = None
        why = ""
        if question.answers:
            em, f1 = exact_match(said, question.answers), f1_score(said, question.answers)
            if not said:  # which an answer of articles alone would match
                em = f1 = 0.0
        if question.patterns:
            pattern, why = _share_of(question.patterns, text)
        refused = refuses(trajectory, answer) and not failed
        right: bool | None = None
        if question.unanswerable:
            right = refused
        elif f1 is not None:
            right = f1 >= RIGHT
        elif pattern is not None:
            right = pattern == 1.0
        return cls(
            em=em,
            f1=f1,
            pattern=pattern,
            pattern_reason=why,
            evidence=evidence_recall(question.gold, trajectory.sources),
            refused=refused,
            right=right,
            cites=sum(checks.values()),
            supported=checks["supported"],
            dropped=answer.dropped,
        )


def _share_of(patterns: Sequence[str], text: str) -> tuple[float | None, str]:
    """The share of the patterns that match, or None and why it is unknown.

    Patterns come with the file and one can take longer than anybody waits: so they are matched in a
    process with a time limit.
    """
    asked, content = {"patterns": [*patterns]}, storable(text).encode()
    job = Job("patterns", "What the patterns match", asked, content)
    reply = readers().submit(job).result()
    if isinstance(reply, SourceError):
        return None, str(reply)
    found = json.loads(reply)
    return sum(found) / len(found), ""


def normal_answer(text: str) -> str:
    """In scripts without spaces each character is a word; their punctuation is removed, too."""
    plain = apart(text.lower())
    if PAIRED_RUN.search(plain):
        plain = "".join(" " if category(c)[0] == "P" else c for c in plain)
    return " ".join(_ARTICLE.sub(" ", plain.translate(_PUNCTUATION)).split())


def exact_match(answer: str, accepted: Sequence[str]) -> float:
    return float(any(normal_answer(answer) == normal_answer(one) for one in accepted))


def f1_score(answer: str, accepted: Sequence[str]) -> float:
    return max((_f1(normal_answer(answer), normal_answer(one)) for one in accepted), default=0.0)


def _f1(said: str, wanted: str) -> float:
    if said != wanted and {said, wanted} & _DECIDED:
        return 0.0
    words, gold = said.split(), wanted.split()
    if not words or not gold:
        return float(words == gold)
    common = (Counter(words) & Counter(gold)).total()
    return 2 * common / (len(words) + len(gold))


def evidence_recall(gold: Sequence[str], sources: Sequence[Source]) -> float | None:
    """The share of the titles or places that were retrieved; None if there are none."""
    if not gold:
        return None
    held = {
        _fold(name)
        for source in sources
        for name in (source.title, source.place, source.location, *source.copies)
    }
    held |= {_fold(source.location.rstrip("/").rpartition("/")[2]) for source in sources}
    return sum(_fold(title) in held for title in gold) / len(gold)


def _fold(name: str) -> str:
    return " ".join(name.casefold().split())


def refuses(trajectory: Trajectory, answer: CitedAnswer) -> bool:
    """Whether the run says that it has not found the answer."""
    if trajectory.status is Status.NO_EVIDENCE:
        return True
    if answer.bare:
        return bool(_BARE_REFUSAL.match(answer.bare))
    return bool(_REFUSAL.search(answer.text()))
