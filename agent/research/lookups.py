"""What the look-ups of a plan found, and what code can derive from it without a model.

A look-up is searched once everything it refers to is known; its short answer is inserted into those
that refer to it. A plan is done when every look-up has been answered or has failed. A look-up that
compares what others found is never searched: dates are ordered by code, since small models say that
2014 comes before 1993.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from rubricem.agent.research.candidates import moment, nation
from rubricem.agent.research.plans import (
    FIRST,
    LAST,
    LIVED,
    REFERENCE,
    SAME,
    Lookup,
    subjects,
    two_sides,
)
from rubricem.agent.transcript.words import (
    exact_names,
    fold,
    main_clause,
    overlap,
    phrase,
)
from rubricem.memory.schema import PastLookup, Source

_WORD = re.compile(r"[^\W_]+(?:['\u2019.-][^\W_]+)*")


@dataclass(frozen=True, slots=True)
class Finding:
    """What answers a look-up, in a source's own words where it asks for a name or a date."""

    text: str
    source: str
    quoted: bool = False
    """a whole sentence, which needs no other words"""
    worded: bool = False
    """a whole sentence of the model's own, which is a claim as it stands"""
    more: tuple["Finding", ...] = ()
    """what else answers it"""


@dataclass(frozen=True, slots=True)
class SideBySide:
    """What code can tell of things found: how they stand, and which answers the question."""

    note: str
    answer: str = ""
    """"" where only a model can say which is asked for"""
    of: tuple[int, ...] = ()
    """numbers of the look-ups that found them"""


SWAYED = 0.1
"""by which a draft is likelier or less, by what else is known of it"""
ALIKE, OTHER = 0.5, 0.34
"""share of what two drafts name that both do, from which they say the same, and up to which not"""
_WHY = re.compile(r"\W*why\b", re.I)
_DAYS = 372
"""of a year of twelve months of 31: enough to tell which of two lives is longer"""


def _lives(dates: Sequence[str], numbers: tuple[int, ...], question: str) -> SideBySide | None:
    """Two lives by their length, from birth and death of the one and of the other."""
    known = [when for date in dates if (when := moment(date))]
    names = two_sides(question)
    if len(known) < len(dates) or names is None:
        return None
    lives = list[tuple[int, str, str]]()
    for name, (born, died) in zip(names, (known[:2], known[2:]), strict=True):
        years = died[0] - born[0] - (died[1:] < born[1:])
        days = _DAYS * (died[0] - born[0]) + 31 * (died[1] - born[1]) + died[2] - born[2]
        lives.append((days, f"{name} ({years} years)", name))
    lives.sort()
    note = "By length: " + ", then ".join(told for _, told, _ in lives) + "."
    apart = lives[1][0] - lives[0][0]
    if apart == 0 or (any(0 in when for when in known) and apart < 2 * _DAYS):
        return SideBySide(note, of=numbers)
    shorter = re.search(r"\bshorte(?:r|st)\b", question)
    return SideBySide(note, lives[0 if shorter else 1][2], numbers)


@dataclass
class Lookups:
    """How far a run has come with its plan."""

    steps: list[Lookup] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """how the model put parts of the question before code made the plan"""
    found: dict[int, Finding] = field(default_factory=dict)
    queries: dict[int, list[str]] = field(default_factory=dict)
    """number of a look-up -> what was searched for it"""
    guesses: dict[int, str] = field(default_factory=dict)
    """number of a look-up -> the words that the model expected of its answer"""
    likely: dict[int, dict[Finding, float]] = field(default_factory=dict)
    """number of a look-up -> sentences read for it, with how likely each answers it, 0 to 1"""
    ranked: dict[tuple[str, ...], list[tuple[Source, str, float]]] = field(default_factory=dict)
    """what was asked of which sources -> their sentences with their cosines, the nearest first"""
    named: dict[int, str] = field(default_factory=dict)
    """number of a look-up -> what a draft of its answer names that no passage has"""
    near: dict[int, Finding] = field(default_factory=dict)
    """number of a look-up -> what of that comes nearest, and may not answer it"""
    doubted: dict[int, tuple[Finding, float]] = field(default_factory=dict)
    """number of a look-up -> what may answer it, not certainly, and how likely it is, 0 to 1"""
    settled: set[int] = field(default_factory=set)
    """numbers of those of which the model itself has no doubt: no more is searched for them"""
    at: int = 0
    """number of the look-up that is being searched"""
    shown: tuple[str, ...] = ()
    """ids of the sources that the last search brought, without those read for this look-up"""
    begun: dict[str, str] = field(default_factory=dict)
    """ids of those of which the beginning alone was shown -> that beginning"""
    told: dict[str, list[str]] = field(default_factory=dict)
    """ids of those that say in so many words what was asked -> what they say"""
    untold: set[str] = field(default_factory=set)
    """ids of sources that were found and never shown, as they speak of other things"""
    read: dict[int, set[str]] = field(default_factory=dict)
    """number of a look-up -> ids of the sources that were read for it"""

    def begin(self, steps: Sequence[Lookup]) -> None:
        self.steps, self.found, self.queries, self.read = list(steps), {}, {}, {}
        self.guesses, self.likely, self.near, self.named, self.doubted = {}, {}, {}, {}, {}
        self.at, self.settled = self.steps[0].number, set()

    def show(self, ids: Iterable[str]) -> None:
        """Note what the search for the present look-up brought."""
        read = self.read.setdefault(self.at, set())
        self.shown = tuple(i for i in dict.fromkeys(ids) if i not in read)
        read |= {*self.shown}

    def leave_out(self, away: Collection[str]) -> int:
        """Leave out what the last search brought on other things; how much of it that is."""
        before = len(self.shown)
        self.shown = tuple(i for i in self.shown if i not in away)
        self.untold |= {*away}
        return before - len(self.shown)

    def add(self, item: str) -> str:
        """A look-up of an item of the rubric that no other was made for; what is to be searched."""
        number = max(step.number for step in self.steps) + 1
        words = re.sub(r"^(?:says|names|gives|tells|states)\s+", "", item, flags=re.I)
        self.steps.append(Lookup(number, words, planned=False))
        self.at = number
        return words

    def step(self, number: int) -> Lookup:
        return next(step for step in self.steps if step.number == number)

    def is_single(self) -> bool:
        """Whether no more than one look-up is searched."""
        return len([step for step in self.steps if not step.compares]) == 1

    def resolve(self, step: Lookup) -> str | None:
        """The look-up with what it refers to in the place of its references; None: not known."""
        if any(number not in self.found for number in step.refers):
            return None

        def substitute(reference: re.Match[str]) -> str:
            # Of words that only look like one, as in `items[0]`, nothing is known.
            number = int(reference[1])
            return self.found[number].text if number in step.refers else reference[0]

        return REFERENCE.sub(substitute, step.text)

    def open(self) -> list[Lookup]:
        """Those that no answer was found for; what compares is not among them."""
        return [s for s in self.steps if not s.compares and s.number not in self.found]

    def next(self) -> Lookup | None:
        """The first that can be searched and was not."""
        can = (s for s in self.open() if s.number not in self.queries)
        return next((s for s in can if self.resolve(s) is not None), None)

    def leaves(self) -> list[int]:
        """Numbers of those that no other rests on."""
        referred = {n for step in self.steps for n in step.refers}
        return [s.number for s in self.steps if s.number not in referred and not s.compares]

    def root(self, step: Lookup) -> Lookup:
        """The look-up at the beginning of the chain that leads to this one."""
        while step.refers:
            step = self.step(step.refers[0])
        return step

    def compare(self, question: str) -> SideBySide | None:
        """The things that a question sets side by side, in order or as same; None: no such things.

        Compared is what the last look-up that compares refers to, else the last two that no other
        rests on. Dates are put in order, or lives by their length; where the question asks for
        that, it is said whether things are the same.
        """
        numbers = next((s.refers for s in reversed(self.steps) if s.compares), ())
        if not numbers and (
            LAST.search(question) or FIRST.search(question) or SAME.search(question)
        ):
            ends = self.leaves()
            numbers = tuple(ends[-2:]) if len(ends) > 1 else ()
        if len(numbers) < 2 or any(n not in self.found for n in numbers):
            return None
        if LIVED.search(question) and len(numbers) == 4:
            return _lives([self.found[n].text for n in numbers], numbers, question)
        sides = [(self._side(n, question), self.found[n].text) for n in numbers]
        if SAME.search(question):
            values = [{*phrase(text).split()} for _, text in sides]
            same = all(a <= b or b <= a for a in values for b in values)
            of = [nation(text) for _, text in sides]
            same = len({*of}) == 1 if all(of) else same
            told = "; ".join(f"{name}: {text}" for name, text in sides)
            return SideBySide(
                f"{told}. {'The same' if same else 'Not the same'}.",
                "yes" if same else "no",
                numbers,
            )
        dated = [(when, side) for side in sides if (when := moment(side[1]))]
        if len(dated) < len(sides):
            return None
        ordered = [side for _, side in sorted(dated)]
        note = "In order: " + ", then ".join(f"{name} ({text})" for name, text in ordered) + "."
        whens = [when for when, _ in dated]
        vague = any(a[0] == b[0] and 0 in (*a, *b) for a, b in combinations(whens, 2))
        if vague or len(set(whens)) < len(whens):
            return SideBySide(note, of=numbers)
        asked = " ".join([question, *(s.text for s in self.steps if s.compares)])
        if LAST.search(asked):
            return SideBySide(note, ordered[-1][0], numbers)
        return SideBySide(note, ordered[0][0] if FIRST.search(asked) else "", numbers)

    def _side(self, number: int, question: str) -> str:
        """What of the question a finding is about: the longest run of words that its chain's first
        look-up shares with the question and no other chain does.
        """
        root = self.root(self.step(number))
        others = " ".join(
            phrase(s.text) for s in self.steps if s.number != root.number and not s.refers
        )
        words = list(_WORD.finditer(question))
        best = ""
        for i in range(len(words)):
            for j in range(i + 1, len(words) + 1):
                run = question[words[i].start() : words[j - 1].end()]
                plain = phrase(run)
                if f" {plain} " not in f" {phrase(root.text)} ":
                    break
                if len(run) > len(best) and f" {plain} " not in f" {others} ":
                    best = run
        return best or self.found[number].text

    def weigh(self, draft: Finding, chance: float, question: str) -> float:
        """How likely a draft of the present look-up is right: as the model says it, and beside.

        One from another source that names the same speaks for it, one that names other things
        against it. So does a question why something is: whether it is so nobody asked.
        """
        chance -= SWAYED * bool(_WHY.match(main_clause(question)))
        other = self.doubted.get(self.at)
        mine = exact_names(draft.text, question)
        theirs = exact_names(other[0].text, question) if other and other[0].worded else frozenset()
        if other and mine and theirs:
            share = len(mine & theirs) / len(mine | theirs)
            agrees = share >= ALIKE and other[0].source != draft.source
            chance += SWAYED * (agrees - (share <= OTHER))
        return chance

    def doubt(self, finding: Finding, chance: float) -> None:
        """Keep what may answer the present look-up: a draft before a quote, else the likelier."""
        kept = self.doubted.get(self.at)
        if kept is None or (finding.worded, chance) > (kept[0].worded, kept[1]):
            self.doubted[self.at] = (finding, chance)

    def unsure(self) -> dict[int, Finding]:
        """What may answer those for which nothing is certain, by their numbers."""
        left = [s.number for s in self.open()]
        return {number: self.doubted[number][0] for number in left if number in self.doubted}

    def past(self) -> tuple[PastLookup, ...]:
        """The look-ups as they were searched, and what was found; not those that compare."""
        past = []
        for step in self.steps:
            if step.compares or (asked := self.resolve(step)) is None:
                continue
            found = self.found.get(step.number)
            past.append(
                PastLookup(
                    asked=asked,
                    answer=found.text if found else "",
                    queries=tuple(self.queries.get(step.number, ())),
                    source=found.source if found else "",
                )
            )
        return tuple(past)

    def retry(self, step: Lookup, question: str) -> str | None:
        """Another query for a look-up that found nothing: its names alone, or the question.

        Before them what a draft named in vain: a model knows `pytest.approx`, though nothing else.
        The question first where the look-up rests on no other, as it says the same in other words;
        and where it is the question, what of it the model put in other words.
        """
        resolved = self.resolve(step) or step.text
        asked = set(map(fold, self.queries.get(step.number, ())))
        named, whole = " ".join(subjects(resolved)), " ".join(question.split())
        queries = [named, whole] if step.refers else [whole, named]
        if fold(whole) in asked:
            queries = [*sorted(self.others, key=lambda q: -overlap(whole, q)), *queries]
        queries = [self.named.get(step.number, ""), *queries]
        return next((query for query in queries if query and fold(query) not in asked), None)
