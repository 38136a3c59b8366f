"""Episodes: what a run did, recorded by code, and how earlier ones guide its searches.

An accepted run leaves one: its question and the names in it, its queries with what they found, its
look-ups, and the places of the passages on which its answer was found to rest. It guides later runs
on the same question, or on one that shares a name or is similar. If a search asks for what a
pointer answered, the passage that it points to is a candidate of that search. A query known to find
nothing is not made, and one that worked is tried instead. Passages that a query found without use
come after those not read yet, except the page of what the query names, and neither is read again.
The plan that answered the same question is followed again, or else one that answered a question in
the same words, with this one's names in it, so that the model need not write one. A look-up is
answered from the same passage again, if that is unchanged.

What is recalled is data and stays data, by four rules. No text of an episode is shown to the model,
except a plan without a word beyond the question's. What was answered before cannot be cited: only a
passage that the source gives today is a source, and an answer counts if it is found in such a
passage and a run of this very bank read it there. A query is given to the search and to no other
tool. A pointer leads only where a search of today's sources leads by itself. A passage is
identified by the SHA-256 of its text; a changed one counts as long as it still supports the claims.

The run's own query is always made before one of an episode, unless a pointer led to what the query
missed before: so whatever a source has gained since is noticed.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.research.candidates import asks_for
from rubricem.agent.research.plans import (
    REFERENCE,
    RELATIONS,
    carry_over,
    is_covered,
    through_known,
)
from rubricem.agent.sources.choice import is_beyond
from rubricem.agent.sources.fetch import normal
from rubricem.agent.transcript.question import OPEN_PAGE
from rubricem.agent.transcript.scaffold import missing_items, neutralise, parse
from rubricem.agent.transcript.words import NAME, content_words, fold, names, overlap, phrase
from rubricem.memory.bank import EpisodeMatch
from rubricem.memory.errors import SourceError
from rubricem.memory.language import stands
from rubricem.memory.schema import (
    Contribution,
    Episode,
    PageReader,
    Passage,
    PastLookup,
    PastSearch,
    Pointer,
    Recollection,
    Source,
    Status,
    Trajectory,
)
from rubricem.memory.screening import flag_suspicious
from rubricem.memory.text import digest_of

BORNE = 0.5
"""share of a claim's words that a passage must hold, where nobody checked or it has changed"""
MOST_NAMES, LONGEST = 24, 300
"""names kept of a run; characters of a text in its episode"""
MARK = 12
"""digits of the hash of what was read in vain; one that is the same by chance is passed over"""


def episode_of(run: Trajectory, question: str, tools: Collection[str]) -> Episode | None:
    """What an ended run leaves; None where it was not accepted: nothing it cites is supported.

    `question`: as it can stand alone. `tools`: whose passages can be found again.
    """
    if run.status not in (Status.FINISHED, Status.PARTIAL) or run.ended_by == "interrupt":
        return None
    pointers = _pointers(run, tools)
    if not pointers:
        return None
    lookups = tuple(
        look.model_copy(update={"asked": _short(look.asked), "answer": _short(look.answer)})
        for look in run.lookups
    )
    missing = [look.asked for look in lookups if not look.answer]
    missing = missing or list(map(_short, missing_items(parse(run.transcript()))))
    searches = _searches(run, {pointer.source for pointer in pointers})
    named = [question, *(look.asked for look in lookups), *(p.title for p in pointers)]
    looked = len(lookups) or len(pointers) + len(missing)
    left = len(missing) / looked if looked else 0.0
    episode = Episode(
        id=digest_of(f"{run.id}\0episode")[:12],
        question=question,
        score=max(0.0, 1.0 - left),
        trajectory_id=run.id,
        policy=run.policy,
        policy_version=run.policy_version,
        written_at=datetime.now(UTC),
        names=_names(named),
        lookups=lookups,
        searches=searches,
        pointers=pointers,
        missing=tuple(missing),
        failures=tuple(_failures(searches, lookups, pointers)),
    )
    return episode.model_copy(update={"flags": flag_suspicious(question, episode.texts)})


def claims_by_source(run: Trajectory) -> dict[str, list[str]]:
    """Id of a source -> the claims that it was found to hold, by words where nobody checked."""
    held: dict[str, list[str]] = {}
    for citation in cited_answer(run).citations:
        unchecked = citation.verdict == "unchecked" and citation.overlap >= BORNE
        if citation.verdict == "supported" or unchecked:
            held.setdefault(citation.id, []).append(citation.claim)
    return held


def _pointers(run: Trajectory, tools: Collection[str]) -> tuple[Pointer, ...]:
    held = claims_by_source(run)
    return tuple(
        Pointer(
            source=source.id,
            title=_short(source.title),
            location=source.location,
            place=source.place,
            digest=digest_of(source.text),
            tool=source.tool,
            query=_short(source.query),
            claims=tuple(dict.fromkeys(map(_short, held[source.id]))),
        )
        for source in run.sources
        if source.id in held and source.tool in tools
    )


def _searches(run: Trajectory, cited: Collection[str]) -> tuple[PastSearch, ...]:
    written = [q for look in run.lookups for q in look.queries] + [s.query for s in run.sources]
    as_asked = {fold(query): query for query in reversed(written)}
    texts = {source.id: source.text for source in run.sources}
    known: set[str] = set()
    searches = []
    for use in run.searched:
        new = set(use.sources) - known
        hit = bool(new & set(cited))
        vain = [] if hit else [texts[i] for i in use.sources if i in texts and i not in cited]
        searches.append(
            PastSearch(
                tool=use.tool,
                query=_short(as_asked.get(use.asked, use.asked)),
                passages=len(use.sources),
                new=len(new),
                hit=hit,
                vain=tuple(digest_of(text)[:MARK] for text in vain),
            )
        )
        known |= new
    return tuple(searches)


def _failures(
    searches: Sequence[PastSearch], lookups: Sequence[PastLookup], pointers: Sequence[Pointer]
) -> Iterable[str]:
    titles = {pointer.source: pointer.title for pointer in pointers}
    for search in searches:
        if search.hit:
            continue
        asked = fold(search.query)
        look = next((x for x in lookups if asked in map(fold, x.queries)), None)
        said = f"{search.query!r} brought {'nothing of use' if search.passages else 'nothing'}"
        other = look.queries[-1] if look and look.source in titles else ""
        found = f"; {other!r} found {titles[look.source]}" if look and other else ""
        yield said + (found if fold(other) != asked else "")


def _names(texts: Iterable[str]) -> tuple[str, ...]:
    found = []
    for text in texts:
        found += [w.strip(".,;:?!()`'\"") for w in text.split() if NAME.search(w)]
        found += names(text)
    return tuple(n for n in dict.fromkeys(found) if 1 < len(n) <= LONGEST)[:MOST_NAMES]


def _short(text: str) -> str:
    return " ".join(text.split())[:LONGEST]


def plan_for(question: str, match: EpisodeMatch) -> list[str]:
    """The plan that an episode gives a question: its own, one in the same words, or the beginning.

    The beginning is a look-up for whom the question names by another thing. [] where the run left
    what is followed open, where it asked its question itself, or where a look-up has words that are
    neither the question's nor of how things hang together: what another wrote into a bank must not
    become a plan.
    """
    looks, theirs = match.episode.lookups, match.episode.question
    answered = [look.asked for look in looks if look.answer]
    if not (match.own or match.formed) or (match.own and len(answered) < len(looks)):
        return through_known(question, answered)
    if not looks or len(answered) < len(looks):
        return []
    plan = list[str]()
    for look in looks:
        text = look.asked
        for number, earlier in enumerate(looks[: len(plan)], start=1):
            answer = re.compile(rf"(?<!\w){re.escape(earlier.answer)}(?!\w)")
            text = answer.sub(f"[{number}]", text)
        plan.append(text)
    own = all(is_covered(REFERENCE.sub("", text), [theirs, RELATIONS]) for text in plan)
    if not own or fold(plan[0]) == fold(theirs):
        return []
    return plan if match.own else carry_over(plan, theirs, question)


MOST_OFFERED = 2
"""passages that one search is given by episodes"""
ALIKE, OTHERS_ALIKE = 0.5, 0.7
"""share of all words of two queries that they have in common, from which they ask the same: in an
episode of the very question, and in others"""

Search = Callable[[str, int], Awaitable[list[Passage]]]


@dataclass(frozen=True, slots=True)
class PointerOffer:
    """A pointer that fits a query. `first`: it is likelier than what the search ranks first."""

    item: str
    pointer: Pointer
    first: bool


@dataclass
class Brought:
    """What a search came to with what was remembered."""

    passages: list[Passage] = field(default_factory=list)
    own: list[Passage] = field(default_factory=list)
    """what the search alone found"""
    passed: list[Passage] = field(default_factory=list)
    """what of it others stand before, as it was read in vain"""
    led: dict[Passage, tuple[str, str]] = field(default_factory=dict)
    """passages that a pointer or a query led to -> its episode, and which of the two"""
    contributions: list[Contribution] = field(default_factory=list)
    met: list[EpisodeMatch] = field(default_factory=list)
    """episodes found by the names in this query"""

    def reply(self, shown: Sequence[Passage], alone: Sequence[Passage]) -> dict[str, Any]:
        """It as the run's journal keeps it, where there is any.

        `shown`: what the run is shown of the passages, and `alone` what it would have been shown.
        """
        if not (self.led or self.contributions or self.met):
            return {}
        led = [self.led.get(p, ("", "")) if p not in alone else ("", "") for p in shown]
        return {
            "memory": {
                "led": led,
                "contributions": [c.model_dump(mode="json") for c in self.contributions],
                "met": [match.fields() for match in self.met],
            }
        }


@dataclass(frozen=True, slots=True)
class Ways:
    """How a run reaches its sources."""

    search: Search
    tool: str
    pages: PageReader | None
    limit: int
    """passages that a search of it shows"""
    seen: int
    """passages that it has found; so many more are asked for"""

    @property
    def most(self) -> int:
        return self.limit + self.seen


@dataclass
class Remembered:
    """The episodes that a run was given, and what came of them."""

    matches: dict[str, EpisodeMatch] = field(default_factory=dict)
    contributions: list[Contribution] = field(default_factory=list)
    offered: set[str] = field(default_factory=set)
    """digests of the passages that were offered; titles of those looked for and not found"""
    due: tuple[str, str] | None = None
    """a query that worked, and its episode, for the next search"""

    def take(self, told: Mapping[str, Any], sources: Sequence[Source]) -> list[Source]:
        """Note what the journal keeps of a search; returns the sources it led to, marked."""
        for fields in told.get("met", ()):
            match = EpisodeMatch.of(fields)
            self.matches.setdefault(match.episode.id, match)
        self.contributions += map(Contribution.model_validate, told.get("contributions", ()))
        self.offered |= {c.what for c in self.contributions}
        led = []
        for source, (item, use) in zip(sources, told.get("led", ()), strict=False):
            if item and not source.recalled:
                if use == "pointer":
                    offered = {"item": item, "use": use, "what": source.id}
                    self.contributions.append(Contribution.model_validate(offered))
                    self.offered.add(digest_of(source.text))
                led.append(source.model_copy(update={"recalled": item}))
        return led

    def more(self, known: Collection[str]) -> list[Recollection]:
        """The episodes, besides those known, that something came of."""
        used = dict.fromkeys(told.item for told in self.contributions)
        return [self.matches[i].recollection for i in used if i not in known]

    def offers(self, query: str) -> list[PointerOffer]:
        """The pointers that answer what a query asks, the likeliest first."""
        found = list[tuple[float, PointerOffer]]()
        for match in self.matches.values():
            for pointer in () if match.formed else match.episode.pointers:
                named = _names_page(pointer.title, query)
                fit = _fit(query, match, pointer)
                if (named or fit) and not {pointer.digest, pointer.title} & self.offered:
                    offer = PointerOffer(match.episode.id, pointer, first=named or match.own)
                    found.append((fit + named, offer))
        return [offer for _, offer in sorted(found, key=lambda f: -f[0])][:MOST_OFFERED]

    def plan(self, question: str) -> list[str]:
        """The look-ups that answered this very question, each referring to earlier ones by number.

        Where there are none, those that answered one in the same words, with this one's names, or
        the one that found whom it names by another thing; [] where there are none either.
        """
        for match in sorted(self.matches.values(), key=lambda m: (not m.own, not m.formed)):
            if plan := plan_for(question, match):
                told = Contribution(item=match.episode.id, use="plan", what=match.episode.question)
                self.contributions.append(told)
                return plan
        return []

    def read(self, asked: str, sources: Sequence[Source]) -> dict[str, list[str]]:
        """Id of a source -> what of its words answered this very look-up before.

        {} where it has changed or no longer says that, where the answer was in words, of which a
        model thinks anew, where another wrote the episode, and where two of them disagree.
        """
        if asks_for(asked) == "words":
            return {}
        unchanged = {digest_of(source.text): source for source in reversed(sources)}
        found = dict[str, tuple[str, str, str]]()
        for match in self.matches.values():
            episode = match.episode
            digests = {pointer.source: pointer.digest for pointer in episode.pointers}
            for look in episode.lookups if episode.origin == "run" else ():
                source = unchanged.get(digests.get(look.source, ""))
                if source is None or not look.answer or fold(look.asked) != fold(asked):
                    continue
                if stands(look.answer, neutralise(f"{source.title}. {source.text}")):
                    found[fold(look.answer)] = episode.id, source.id, look.answer
        if len(found) != 1:
            return {}
        item, source_id, answer = next(iter(found.values()))
        self.contributions.append(Contribution(item=item, use="reading", what=source_id))
        return {source_id: [answer]}

    def find_vain(self, query: str, tool: str) -> str:
        """The episode of this very question in which the query brought nothing of use, or "".

        What is searched on this machine is searched again where it brought pages: they count as
        found, and are not read again.
        """
        asked, beyond = fold(query), any(map(is_beyond, tool.split("+")))
        return next(
            (
                match.episode.id
                for match in self.matches.values()
                for search in match.episode.searches
                if match.own and not search.hit and fold(search.query) == asked
                and (beyond or not search.passages)
            ),
            "",
        )  # fmt: skip

    def vain(self, query: str) -> dict[str, str]:
        """Beginnings of the hashes of what the query brought in vain for this very question, each
        with its episode.
        """
        asked = fold(query)
        return {
            mark: match.episode.id
            for match in self.matches.values()
            for search in match.episode.searches
            if match.own and fold(search.query) == asked
            for mark in search.vain
        }

    def in_vain(self, query: str, asked: str, sources: Iterable[Source]) -> set[str]:
        """Ids of sources that an own run read for a query in vain before.

        None where words are asked for, which a model may find another time.
        """
        vain = {} if asks_for(asked) == "words" else self.vain(query)
        marks = {m: i for m, i in vain.items() if self.matches[i].episode.origin == "run"}
        found = {s.id: item for s in sources if (item := marks.get(digest_of(s.text)[:MARK]))}
        told = [Contribution(item=i, use="vain", what=query) for i in dict.fromkeys(found.values())]
        self.contributions += [each for each in told if each not in self.contributions]
        return {*found}

    def instead(self, asked: str, tried: Collection[str]) -> tuple[str, str] | None:
        """A query that found what is asked, and its episode; None where none is left to try."""
        before = set(map(fold, tried))
        for match in self.matches.values():
            for pointer in match.episode.pointers:
                new = fold(pointer.query) not in before and pointer.tool != OPEN_PAGE
                if pointer.query and new and _fit(asked, match, pointer):
                    return pointer.query, match.episode.id
        return None

    def again(self, asked: str, tried: Collection[str], other: str | None) -> str | None:
        """The other query for a look-up, searched together with one that worked."""
        self.due = self.instead(asked, tried) if other else None
        return other

    async def search(self, ways: Ways, query: str, met: Sequence[EpisodeMatch]) -> Brought:
        """A search with what episodes add to it. Raises what the search raises."""
        brought = Brought(met=[m for m in met if m.episode.id not in self.matches])
        every = {m.episode.id: m for m in brought.met}
        known = replace(self, matches={**self.matches, **every})
        offers, missed, due = known.offers(query), known.find_vain(query, ways.tool), known.due
        skips = bool(missed and (offers or due))
        own = [] if skips else await _unread(ways, query, known, brought)
        led = [(o, p) for o in offers if (p := await _follow(o, ways, own, brought)) is not None]
        worked: list[Passage] = []
        if not led and (due or not own) and (due := due or known.instead(query, (query,))):
            worked = await ways.search(due[0], ways.most)
            told = Contribution(item=due[1], use="query", what=due[0])
            brought.contributions += [told] if worked else []
            brought.led = dict.fromkeys(worked, (due[1], "query"))
        if skips and (led or worked):
            brought.contributions.append(Contribution(item=missed, use="miss", what=query))
        elif skips:
            own = await _unread(ways, query, known, brought)
        brought.own = own
        brought.led |= {passage: (offer.item, "pointer") for offer, passage in led}
        speaks = {passage: _speaks_of(passage, query) for _, passage in led}
        ahead = [passage for offer, passage in led if offer.first and speaks[passage]]
        after = [passage for offer, passage in led if not offer.first and speaks[passage]]
        rest = [passage for _, passage in led if not speaks[passage]]
        ranked = [*ahead, *worked, *own[:1], *after, *own[1:], *rest]
        brought.passages = list(dict.fromkeys(ranked))
        return brought


def _names_page(title: str, query: str) -> bool:
    """Whether a query names what a page is of."""
    return bool(phrase(title)) and f" {phrase(title)} " in f" {phrase(query)} "


def _speaks_of(passage: Passage, query: str) -> bool:
    """Whether a passage has a word of what a query names, if it names anything.

    One that has none stands behind what the search found, whatever an episode says of it: pointers
    that were another episode's took the place of pages that answer (`benchmarks.bank_effect`).
    """
    named = content_words(" ".join(names(query)))
    return not named or bool(named & content_words(f"{passage.title} {passage.text}"))


def _fit(query: str, match: EpisodeMatch, pointer: Pointer) -> float:
    """How far a query asks what a pointer answered, in [0, 1]; 0 where that is too little."""
    if match.formed:
        return 0.0
    asked = [look.asked for look in match.episode.lookups if look.source == pointer.source]
    alike = max(likeness(query, text) for text in (pointer.query, *asked))
    if match.own:
        alike = max(alike, likeness(query, match.episode.question))
    return alike if alike >= (ALIKE if match.own else OTHERS_ALIKE) else 0.0


def likeness(one: str, other: str) -> float:
    """Share of the content words of both that they have in common."""
    first, second = content_words(one), content_words(other)
    return len(first & second) / len(first | second) if first | second else 0.0


async def _unread(ways: Ways, query: str, known: Remembered, brought: Brought) -> list[Passage]:
    """What a search finds; what an earlier run read for the same in vain comes last.

    Not the page of what is named: behind it stand those of others, which were taken for answers.
    """
    vain = known.vain(query)
    found = await ways.search(query, ways.most + len(vain))
    if not vain:
        return found
    marks = ("" if _names_page(p.title, query) else digest_of(p.text)[:MARK] for p in found)
    items = [vain.get(mark, "") for mark in marks]
    told = (Contribution(item=item, use="vain", what=query) for item in dict.fromkeys(items))
    brought.contributions += [each for each in told if each.item]
    pairs = [*zip(found, items, strict=True)]
    brought.passed = [p for p, item in pairs if item]
    return [p for p, item in pairs if not item] + brought.passed


async def _follow(
    offer: PointerOffer, ways: Ways, own: Sequence[Passage], brought: Brought
) -> Passage | None:
    """The passage that a pointer leads to, as the source gives it today, or why there is none.

    Only what a search of today's sources returns counts, and a page that one returned.
    """
    pointer = offer.pointer
    parts = {*pointer.tool.split("+")}
    outcome = "gone"
    if pointer.tool != OPEN_PAGE and not parts & {*ways.tool.split("+")}:
        outcome = "barred"
    else:
        places: list[Passage] = []
        for look in (own, None):
            try:
                found = await ways.search(pointer.query, ways.most) if look is None else look
                places = [p for p in found if p.location == pointer.location] or places
                if (same := _same(pointer, found)) is not None:
                    return same
            except SourceError:
                return None
        if places and ways.pages is not None and (address := normal(pointer.location)):
            try:
                if (same := _same(pointer, await ways.pages.read(address))) is not None:
                    return same
            except SourceError:
                return None
        outcome = "changed" if places else "gone"
    gone = {"item": offer.item, "use": "pointer", "what": pointer.title, "outcome": outcome}
    brought.contributions.append(Contribution.model_validate(gone))
    return None


def _same(pointer: Pointer, found: Sequence[Passage]) -> Passage | None:
    """The passage as it was, wherever it stands now; else what stands in its place and bears it."""
    there = [p for p in found if (p.location, p.place) == (pointer.location, pointer.place)]
    exact = (p for p in (*there, *found) if digest_of(p.text) == pointer.digest)
    bearing = (p for p in there if any(overlap(c, p.text) >= BORNE for c in pointer.claims))
    return next(exact, next(bearing, None))
