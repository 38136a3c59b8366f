"""How far a run has come with its plan, what its look-ups found, and operations on typed values.

A look-up is searched once everything it refers to is known; the span that answers it is put into
those that refer to it. A finding is as certain as all that it rests on. Dates, numbers and yes or
no are compared by code, since small models say that 2014 comes before 1993; whatever has no typed
value is left to the model.
"""

import calendar
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod

from rubricem.agent.research.plans import REFERENCE, Lookup, Plan, PlanOperation
from rubricem.agent.research.tuned import TUNED
from rubricem.memory.schema import AnswerKind, Certainty, PastLookup


@dataclass(frozen=True, slots=True)
class Finding:
    """What answers a look-up."""

    text: str
    """a span of the source, yes or no, or a drafted sentence"""
    source: str
    quote: str
    """the sentence of the source that has the span, or that the answer rests on"""
    kind: AnswerKind
    chance: float
    """that it is right, by what was read for it alone, 0 to 1"""
    near: tuple[tuple[str, str], ...] = ()
    """ids and sentences of sources that are nearly as near, where only a sentence was found"""


@dataclass
class Lookups:
    """The plan, and what was searched, read and found for each of its look-ups, by number."""

    plan: Plan = field(default_factory=lambda: Plan(()))
    at: int = 0
    """number of the look-up that is being searched; 0: the question itself, which comes first"""
    whole: Finding | None = None
    """the answer to the question from its own passages, which those of the look-ups must better"""
    found: dict[int, Finding] = field(default_factory=dict)
    queries: dict[int, list[str]] = field(default_factory=dict)
    read: dict[int, set[str]] = field(default_factory=dict)
    """ids of the sources that were read"""
    shown: tuple[str, ...] = ()
    """ids of the sources that the last search brought and that were not read for this look-up"""

    def begin(self, plan: Plan) -> None:
        self.plan, self.found, self.queries, self.read = plan, {}, {}, {}
        self.at, self.whole = 0, None

    def show(self, ids: Iterable[str]) -> None:
        """Note what the search for the present look-up brought."""
        read = self.read.setdefault(self.at, set())
        most = TUNED.read if self.at else TUNED.read_first
        self.shown = tuple(i for i in dict.fromkeys(ids) if i not in read)[:most]
        read |= {*self.shown}

    def resolve(self, step: Lookup) -> str | None:
        """The look-up with what was found in the place of its references; None: not known."""
        if any(number not in self.found for number in step.refers):
            return None
        return REFERENCE.sub(lambda number: self.found[int(number[1])].text, step.text)

    def open(self) -> list[Lookup]:
        """Those that no answer was found for."""
        return [step for step in self.plan.steps if step.number not in self.found]

    def next(self) -> Lookup | None:
        """The first that can still be searched, those first on which the answer rests.

        The others only where one of these was not found.
        """
        fresh = [s for s in self.open() if self.left(s.number) and self.resolve(s)]
        needed = [step for step in fresh if step.number in self.plan.needed]
        rests = needed if self.plan.needed <= {*self.found} else needed or fresh
        return next(iter(rests), None)

    @property
    def settled(self) -> bool:
        """Whether the question's own passages answer it in words, and no look-up rests on another.

        What is compared is left to the look-ups, too.
        """
        if self.whole is None or self.whole.kind is not AnswerKind.WORDS:
            return False
        alone = not any(step.refers for step in self.plan.steps)
        compared = {PlanOperation.EARLIER, PlanOperation.LATER, PlanOperation.SAME}
        plain = alone and self.plan.operation not in compared
        return plain and self.whole.chance >= TUNED.supported

    def left(self, number: int) -> bool:
        """Whether a look-up may be searched again."""
        return len(self.queries.get(number, ())) < TUNED.tries

    def chance(self, number: int) -> float:
        """That a finding is right and all that it rests on, 0 to 1; 0 where nothing was found."""
        if number not in self.found:
            return 0.0
        rests = (self.chance(other) for other in self.plan.step(number).refers)
        return self.found[number].chance * prod(rests)

    def certainty(self, number: int) -> Certainty:
        if number not in self.found:
            return Certainty.NOT_FOUND
        certain = self.chance(number) >= self.threshold(number)
        return Certainty.CERTAIN if certain else Certainty.UNCERTAIN

    def threshold(self, *numbers: int) -> float:
        """The chance from which what was found for these is certain.

        What is drafted is weighed by the model alone, without the fitted null.
        """
        held = (self.found.get(number) or self.plan.step(number) for number in numbers)
        drafted = all(each.kind is AnswerKind.WORDS for each in held)
        return TUNED.supported if drafted else TUNED.certain

    def past(self) -> tuple[PastLookup, ...]:
        """The look-ups as they were searched, and what was found."""
        past = []
        for step in self.plan.steps:
            if (asked := self.resolve(step)) is None:
                continue
            look = PastLookup(
                asked=asked,
                queries=tuple(self.queries.get(step.number, ())),
                kind=step.kind,
                certainty=self.certainty(step.number),
            )
            if found := self.found.get(step.number):
                told = {"answer": found.text, "source": found.source, "quote": found.quote}
                look = look.model_copy(update={**told, "chance": self.chance(step.number)})
            past.append(look)
        return tuple(past)

    def operate(self) -> bool | int | None:
        """What the plan's operation gives: yes or no, or the number of the look-up that is meant.

        None where there is none, where something is missing, or where only a model can tell.
        """
        operation, of = self.plan.operation, self.plan.of
        if operation is PlanOperation.NONE or any(number not in self.found for number in of):
            return None
        values = [value_of(self.found[number]) for number in of]
        if any(value is None for value in values):
            return None
        if operation is PlanOperation.BOTH:
            return all(values) if all(isinstance(value, bool) for value in values) else None
        if operation is PlanOperation.SAME:
            return len({*values}) == 1
        dates = [value for value in values if isinstance(value, tuple)]
        first = _first(dates) if len(dates) == len(of) == 2 else None
        if first is None:
            return None
        return of[first if operation is PlanOperation.EARLIER else 1 - first]


def _first(dates: Sequence[tuple[float, ...]]) -> int | None:
    """Which of two dates or numbers is the lower, 0 or 1; None where that cannot be told."""
    for one, other in zip(*dates, strict=False):
        if one != other:
            # Of one of them the month or the day is not told.
            return None if 0 in (one, other) else int(one > other)
    return None


_MONTHS = {
    name.casefold(): number
    for names in (calendar.month_name, calendar.month_abbr)
    for number, name in enumerate(names)
    if name
}
_YEAR = re.compile(r"(?<!\d)\d{3,4}(?!\d)")
_DAY = re.compile(r"(?<!\d)[0-3]?\d(?!\d)")
_AMOUNT = re.compile(r"\d+(?:[.,]\d+)*")


def value_of(finding: Finding) -> bool | tuple[float, ...] | None:
    """A finding as a value that code can compare: yes or no, a date, or a number; None: no such.

    A date is year, month and day, of which the last two are 0 where they are not told.
    """
    if finding.kind is AnswerKind.YES_NO:
        return finding.text == "yes"
    if finding.kind is AnswerKind.DATE and (year := _YEAR.search(finding.text)):
        rest = finding.text.replace(year[0], " ", 1)
        words = re.findall(r"[^\W\d_]+", rest.casefold())
        month = next((_MONTHS[word] for word in words if word in _MONTHS), 0)
        day = _DAY.search(rest) if month else None
        return float(year[0]), float(month), float(day[0] if day else 0)
    if finding.kind is AnswerKind.NUMBER and (amount := _AMOUNT.search(finding.text)):
        return (_number(amount[0]),)
    return None


def _number(written: str) -> float:
    """A number whose last mark is before its decimals, unless three digits follow it."""
    head, mark, tail = written.rpartition(max(".,", key=written.rfind))
    if mark and (len(tail) != 3 or head == "0"):
        return float(f"{re.sub('[.,]', '', head)}.{tail}")
    return float(re.sub("[.,]", "", written))
