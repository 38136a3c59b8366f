"""A made-up subject as some two hundred pages of the web, with sixty facts, the same everywhere.

Twelve railway lines, five figures of each. A fact stands on three of its line's seventeen pages,
within prose, a list or a table's neighbourhood; everything else is filler about the same line, full
of other names and numbers. `Shown` tells which facts, and how many distinct words of the pages, a
text holds.
"""

import html
import math
import random
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

LINES = {
    "Arden": "viaduct ballast siding gradient", "Brill": "tunnel signal junction platform",
    "Corve": "cutting sleeper turntable depot", "Dunmere": "causeway pier ferry slip",
    "Elstow": "embankment culvert crossing gate", "Farley": "workshop boiler crane shed",
    "Garth": "quarry incline winding drum", "Hexley": "catenary substation pylon feeder",
    "Inver": "moor snow fence shelter", "Jarrow": "harbour coal staith tippler",
    "Keld": "timber trestle river span", "Lorne": "loop passing token cabin",
}  # fmt: skip
"""line -> what else is written about on its pages"""
FIGURES = {
    "length": "The {line} line is {value} kilometres long between its two terminal stations",
    "cost": "Building the {line} line cost {value} thousand crowns in all",
    "opening": "The {line} line was opened to passengers in {value}",
    "traffic": "The {line} line carried {value} thousand passengers in its busiest year",
    "closure": "Of the stations of the {line} line {value} were closed under the second act",
}
PER_LINE, COPIES, SHORTEST, LONGEST, OF_A_PART = 17, 3, 600, 3000, 5
_PARTS = ("ka", "lo", "mer", "tin", "sa", "bru", "vel", "no", "gra", "wi", "fen", "hol")
_WORD = re.compile(r"[a-z0-9]+")
RUN = 6
"""words in a row by which a stretch of a page is known again"""


def words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


@dataclass(frozen=True, slots=True)
class Fact:
    line: str
    figure: str
    value: str

    @property
    def text(self) -> str:
        return FIGURES[self.figure].format(line=self.line, value=self.value)


@dataclass(slots=True)
class Page:
    path: str
    title: str
    blocks: list[list[str]] = field(default_factory=list)
    """paragraphs, each of its sentences; those of an odd number are lists"""

    @property
    def html(self) -> str:
        parts = [f"<title>{self.title}</title><h1>{self.title}</h1>"]
        for number, block in enumerate(self.blocks):
            if number % OF_A_PART == 0:
                parts.append(f"<h2>Part {number // OF_A_PART + 1}</h2>")
            said = [html.escape(sentence) for sentence in block]
            listed = "".join(f"<li>{each}</li>" for each in said)
            parts.append(f"<ul>{listed}</ul>" if number % 2 else f"<p>{' '.join(said)}</p>")
        return f"<!doctype html><html><body><main>{''.join(parts)}</main></body></html>"

    @property
    def text(self) -> str:
        return "\n".join([self.title, *(" ".join(block) for block in self.blocks)])


class World:
    """Its pages by path, and its facts."""

    def __init__(self, seed: int = 11) -> None:
        self._drawn = random.Random(seed)
        self.facts = [self._fact(line, figure) for line in LINES for figure in FIGURES]
        self.pages: dict[str, Page] = {}
        for line in LINES:
            self._write(line)

    def _fact(self, line: str, figure: str) -> Fact:
        low, high = (1840, 1929) if figure == "opening" else (12, 989)
        return Fact(line, figure, str(self._drawn.randint(low, high)))

    def _name(self) -> str:
        return "".join(self._drawn.choices(_PARTS, k=self._drawn.randint(2, 3))).capitalize()

    def _filler(self, line: str) -> str:
        one, two = self._drawn.sample(LINES[line].split(), 2)
        year, count = self._drawn.randint(1845, 1990), self._drawn.randint(2, 999)
        forms = (
            f"At {self._name()} the {one} was rebuilt in {year} after {self._name()} had counted "
            f"{count} faults in the {two}.",
            f"{self._name()} writes that the {one} near {self._name()} needed {count} loads of "
            f"stone before the {two} could be used.",
            f"Between {self._name()} and {self._name()} the {line} line has a {one} of {count} "
            f"feet, which was renewed in {year}.",
            f"The foreman {self._name()} kept {count} pages on the {two}, and sold them in {year}.",
        )
        return self._drawn.choice(forms)

    def _write(self, line: str) -> None:
        pages = [
            Page(f"/{line.lower()}/{n}", f"The {line} line, sheet {n}")
            for n in range(1, PER_LINE + 1)
        ]
        for page in pages:
            size, wanted = 0, self._drawn.randint(SHORTEST, LONGEST)
            while size < wanted:
                block = [self._filler(line) for _ in range(self._drawn.randint(3, 7))]
                size += sum(len(words(sentence)) for sentence in block)
                page.blocks.append(block)
            self.pages[page.path] = page
        for fact in (fact for fact in self.facts if fact.line == line):
            for page in self._drawn.sample(pages, COPIES):
                block = self._drawn.choice(page.blocks)
                block.insert(self._drawn.randint(0, len(block)), f"{fact.text}.")

    @cached_property
    def _counts(self) -> dict[str, Counter[str]]:
        return {path: Counter(words(page.text)) for path, page in self.pages.items()}

    @cached_property
    def _rarity(self) -> dict[str, float]:
        within = Counter(word for counts in self._counts.values() for word in counts)
        return {word: math.log(len(self.pages) / count) for word, count in within.items()}

    def search(self, query: str, limit: int) -> list[Page]:
        """The pages with most of the query's rare words, as a search engine of the web ranks."""
        asked = [word for word in set(words(query)) if word in self._rarity]

        def score(path: str) -> float:
            counts = self._counts[path]
            return sum(self._rarity[w] * counts[w] / (counts[w] + 1.5) for w in asked)

        ranked = sorted(self.pages, key=lambda path: (-score(path), path))
        return [self.pages[path] for path in ranked[:limit] if score(path) > 0]


class Shown:
    """What of a world stands in the texts that were added."""

    def __init__(self, world: World) -> None:
        self._facts = {" ".join(words(fact.text)): fact for fact in world.facts}
        self._places: dict[tuple[str, ...], tuple[str, int]] = {}
        for path, page in world.pages.items():
            said = words(page.text)
            for at in range(len(said) - RUN + 1):
                self._places.setdefault(tuple(said[at : at + RUN]), (path, at))
        self.facts = set[Fact]()
        self._seen = set[tuple[str, int]]()

    @property
    def words(self) -> int:
        """Distinct words of the pages, by their places."""
        return len(self._seen)

    def add(self, text: str) -> None:
        said = words(text)
        flat = f" {' '.join(said)} "
        self.facts |= {fact for told, fact in self._facts.items() if f" {told} " in flat}
        for at in range(len(said) - RUN + 1):
            if place := self._places.get(tuple(said[at : at + RUN])):
                self._seen |= {(place[0], place[1] + n) for n in range(RUN)}
