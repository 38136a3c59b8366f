"""What the look-ups of a plan found, and what code can tell of it without a model.

Each is searched once what it refers to is known, its short answer is put into those that refer to
it, and a plan is done when every look-up has been answered or has failed. One that compares what
others found is never searched: dates are put in order here, since small models say that 2014 comes
before 1993.

What a look-up asks for - a name, a date, or words - is read from its question word; of names and
dates the passages give the candidates, so that nothing can be answered that no passage holds, and
nothing that only repeats the question.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Literal

from rubricem.agent.research.plans import (
    FIRST,
    LAST,
    REFERENCE,
    SAME,
    Lookup,
    objects,
    parameters,
    subjects,
)
from rubricem.agent.transcript.words import (
    STOP_WORDS,
    folded,
    name_spans,
    names,
    overlap,
    phrase,
)

_WORD = re.compile(r"[^\W_]+(?:['\u2019.-][^\W_]+)*")
Asked = Literal["name", "place", "date", "words"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What answers a look-up, in a source's own words where it asks for a name or a date."""

    text: str
    source: str
    quoted: bool = False
    """a whole sentence, which needs no other words"""
    more: tuple["Finding", ...] = ()
    """what else answers it"""


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
    near: dict[int, Finding] = field(default_factory=dict)
    """number of a look-up -> what of that comes nearest, and may not answer it"""
    at: int = 0
    """number of the look-up that is being searched"""
    shown: tuple[str, ...] = ()
    """ids of the sources that the last search brought, without those read for this look-up"""
    begun: dict[str, str] = field(default_factory=dict)
    """ids of those of which the beginning alone was shown -> that beginning"""
    read: dict[int, set[str]] = field(default_factory=dict)
    """number of a look-up -> ids of the sources that were read for it"""

    def begin(self, steps: Sequence[Lookup]) -> None:
        self.steps, self.found, self.queries, self.read = list(steps), {}, {}, {}
        self.guesses, self.likely, self.near = {}, {}, {}
        self.at = self.steps[0].number

    def show(self, ids: Iterable[str]) -> None:
        """Note what the search for the present look-up brought."""
        read = self.read.setdefault(self.at, set())
        self.shown = tuple(i for i in dict.fromkeys(ids) if i not in read)
        read |= {*self.shown}

    def add(self, item: str) -> str:
        """A look-up of an item of the rubric that no other was made for; what is to be searched."""
        number = max(step.number for step in self.steps) + 1
        words = re.sub(r"^(?:says|names|gives|tells|states)\s+", "", item, flags=re.I)
        self.steps.append(Lookup(number, words, planned=False))
        self.at = number
        return words

    def step(self, number: int) -> Lookup:
        return next(step for step in self.steps if step.number == number)

    def resolved(self, step: Lookup) -> str | None:
        """The look-up with what it refers to in the place of its references; None: not known."""
        if any(number not in self.found for number in step.refers):
            return None

        def known(reference: re.Match[str]) -> str:
            # Of words that only look like one, as in `items[0]`, nothing is known.
            number = int(reference[1])
            return self.found[number].text if number in step.refers else reference[0]

        return REFERENCE.sub(known, step.text)

    def open(self) -> list[Lookup]:
        """Those that no answer was found for; what compares is not among them."""
        return [s for s in self.steps if not s.compares and s.number not in self.found]

    def next(self) -> Lookup | None:
        """The first that can be searched and was not."""
        can = (s for s in self.open() if s.number not in self.queries)
        return next((s for s in can if self.resolved(s) is not None), None)

    def root(self, step: Lookup) -> Lookup:
        """The look-up at the beginning of the chain that leads to this one."""
        while step.refers:
            step = self.step(step.refers[0])
        return step


_MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATE = re.compile(
    rf"\b(?:\d{{1,2}} (?:{_MONTH}),? \d{{3,4}}|(?:{_MONTH}) \d{{1,2}},? \d{{3,4}}|"
    rf"(?:{_MONTH}),? \d{{4}}|(?:c\. ?)?\d{{3,4}}(?:s\b|\b))"
)
MOST_CANDIDATES = 40
LONGEST_NAME = 80
"""characters"""


def asks_for(question: str) -> Asked:
    """What kind of answer a look-up wants, by its question word."""
    text = question.casefold()
    if re.search(
        r"\bwhen (?:was|were|did|has|had)\b|\b(?:what|which) (?:year|date|day)\b|\bdate of\b", text
    ):
        return "date"
    # "Where do I put it?", "What takes the place of it?" ask for what a manual says.
    of_somebody = names(question) and not re.search(r"\bwhere (?:do|does|can|should)\b", text)
    if of_somebody and re.match(r"\W*(?:from )?where\b|.*\b(?:place|city|town|country)\b", text):
        return "place"
    first = re.match(r"\W*(?:in |from |by |of |to |at )?(who|whose|whom)\b", text)
    named = re.match(
        r"\W*(?:in |from |of )?(?:what|which)(?: is| was)?(?: the)? "
        r"(?:nationality|birthplace|name|film|person|state)\b",
        text,
    )
    return "name" if first or named else "words"


def expects_words(question: str) -> bool:
    """Whether the answer is something that manuals say, which a model may know the words of.

    Not what is asked of somebody or of a work, where it would name another.
    """
    return asks_for(question) == "words" and not any(" " in name for name in names(question))


def candidates(text: str, asked: Asked, question: str) -> list[str]:
    """What of a passage may answer a look-up for a name or a date, in order, each once.

    Neighbouring names parted by a comma are also one ("Turin, Italy"). What holds no word but
    those of the question, or a whole name of it, is no answer to it.
    """
    if asked == "date":
        found = [match[0] for match in _DATE.finditer(text)]
    else:
        spans = name_spans(text)
        found = [span for span, _ in spans]
        for (_, (start, end)), (after, (begin, _)) in pairwise(spans):
            # A place within another, or a name with its title; of persons a comma makes a list.
            if text[end:begin] == ", " and (asked == "place" or " of " in after):
                found.append(f"{text[start:end]}, {after}")
        found = [span for span in found if not _only_date(span)]
    said = set(_folded(question))
    subjects = [set(_folded(name)) for name in names(question)]
    fit = (
        span
        for span in found
        if (there := set(_folded(span))) - said
        and len(span) < LONGEST_NAME
        and not any(subject and subject <= there for subject in subjects)
    )
    return list(dict.fromkeys(fit))[:MOST_CANDIDATES]


def _only_date(span: str) -> bool:
    months = _MONTH.split("|")
    return all(w[0].isdigit() or w.capitalize() in months for w in _WORD.findall(span))


def _folded(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def _stands(word: str, text: str) -> bool:
    return bool(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.I))


def subject_stands(question: str, text: str) -> bool:
    """Whether a passage speaks of what a look-up names: most words of one of its names.

    True where it names nothing. A parameter must stand there as it is, and one of the objects by
    its own name: what a page says of others is no answer on one that it does not have.
    """
    stands = [_stands(name, text) for name in objects(question)]
    if not all(_stands(p, text) for p in parameters(question)) or (stands and not any(stands)):
        return False
    there = set(_folded(text))
    subjects = [[w for w in _folded(name) if w not in STOP_WORDS] for name in names(question)]
    subjects = [words for words in subjects if words]
    return not subjects or any(2 * len(there & {*s}) > len({*s}) for s in subjects)


def names_stand(claim: str, text: str) -> bool:
    """Whether a passage has each name of a claim, by half of its words; what merely begins a
    sentence is no name.
    """
    there = set(_folded(text))
    named = [_folded(name) for name in names(claim)]
    if named and len(named[0]) == 1 and claim.casefold().startswith(named[0][0]):
        named = named[1:]
    return all(2 * sum(w in there for w in words) >= len(words) for words in named)


def moment(text: str) -> tuple[int, int, int] | None:
    """The first date in a text as (year, month, day), zeros where it does not say."""
    months = [m.casefold() for m in _MONTH.split("|")]
    found = _DATE.search(text)
    if found is None:
        return None
    words = re.findall(r"\d+|[A-Za-z]+", found[0])
    numbers = [int(word) for word in words if word.isdigit()]
    year = max(numbers)
    day = next((n for n in numbers if n <= 31 and n != year), 0)
    month = next((months.index(w.casefold()) + 1 for w in words if w.casefold() in months), 0)
    return year, month, day


@dataclass(frozen=True, slots=True)
class SideBySide:
    """What code can tell of things found: how they stand, and which answers the question."""

    note: str
    answer: str = ""
    """"" where only a model can say which is asked for"""


def compare(lookups: Lookups, question: str) -> SideBySide | None:
    """The things that a question sets side by side, in order or as same; None: nothing to compare.

    Compared is what the last look-up that compares refers to, else the last two that no other rests
    on. Dates are put in order; where the question asks for that, it is said whether things are the
    same.
    """
    numbers = next((s.refers for s in reversed(lookups.steps) if s.compares), ())
    if not numbers and (LAST.search(question) or FIRST.search(question) or SAME.search(question)):
        ends = _leaves(lookups)
        numbers = tuple(ends[-2:]) if len(ends) > 1 else ()
    if len(numbers) < 2 or any(n not in lookups.found for n in numbers):
        return None
    sides = [(_side(lookups, n, question), lookups.found[n].text) for n in numbers]
    if SAME.search(question):
        values = [set(_folded(text)) for _, text in sides]
        same = all(a <= b or b <= a for a in values for b in values)
        told = "; ".join(f"{name}: {text}" for name, text in sides)
        return SideBySide(
            f"{told}. {'The same' if same else 'Not the same'}.", "yes" if same else "no"
        )
    dated = [(when, side) for side in sides if (when := moment(side[1]))]
    if len(dated) < len(sides):
        return None
    ordered = [side for _, side in sorted(dated)]
    note = "In order: " + ", then ".join(f"{name} ({text})" for name, text in ordered) + "."
    whens = [when for when, _ in dated]
    vague = any(a[0] == b[0] and 0 in (*a, *b) for a, b in combinations(whens, 2))
    if vague or len(set(whens)) < len(whens):
        return SideBySide(note)
    asked = " ".join([question, *(s.text for s in lookups.steps if s.compares)])
    if LAST.search(asked):
        return SideBySide(note, ordered[-1][0])
    return SideBySide(note, ordered[0][0] if FIRST.search(asked) else "")


def _leaves(lookups: Lookups) -> list[int]:
    referred = {n for step in lookups.steps for n in step.refers}
    return [s.number for s in lookups.steps if s.number not in referred and not s.compares]


def _side(lookups: Lookups, number: int, question: str) -> str:
    """What of the question a finding is about: the longest run of words that its chain's first
    look-up shares with the question and no other chain does.
    """
    root = lookups.root(lookups.step(number))
    others = " ".join(
        phrase(s.text) for s in lookups.steps if s.number != root.number and not s.refers
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
    return best or lookups.found[number].text


def retry(lookups: Lookups, step: Lookup, question: str) -> str | None:
    """Another query for a look-up that found nothing: its names alone, or the question.

    The question first where the look-up rests on no other, as it says the same in other words; and
    where it is the question, what of it the model put in other words.
    """
    resolved = lookups.resolved(step) or step.text
    asked = set(map(folded, lookups.queries.get(step.number, ())))
    named, whole = " ".join(subjects(resolved)), " ".join(question.split())
    queries = [named, whole] if step.refers else [whole, named]
    if folded(whole) in asked:
        queries = [*sorted(lookups.others, key=lambda q: -overlap(whole, q)), *queries]
    return next((query for query in queries if query and folded(query) not in asked), None)
