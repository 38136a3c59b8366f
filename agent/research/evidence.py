"""The sources of a run: numbered passages, and what each query found.

Passages get ids in order of first retrieval, whichever tool found them; a passage found again keeps
its id. A text found at several addresses is one source. Text is kept as it
was fetched. What the conversation found earlier is known from the beginning, and becomes a source
of this run, under the id it had, once it is shown or found again.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from rubricem.agent.record.conversations import NOTHING, Background
from rubricem.agent.sources.likeness import Excerpts
from rubricem.agent.transcript.question import INVESTIGATE, OPEN_PAGE, Found, FoundClaim
from rubricem.agent.transcript.words import fold, stands_in
from rubricem.memory.runs import Reply
from rubricem.memory.schema import Passage, ShownTexts, Source, ToolUse
from rubricem.memory.text import storable

SOURCE_ID = re.compile(r"\bS\d{1,4}\b")
_FIELDS = tuple(each.name for each in fields(Passage))  # `asdict` takes a hundred times as long


def reply_of(passages: Iterable[Passage], **more: Any) -> Reply:
    """The passages that a tool found, in the form that the journal keeps."""
    kept = [
        {n: storable(v) if isinstance(v := getattr(passage, n), str) else v for n in _FIELDS}
        for passage in map(_dated, passages)
        if passage.text.strip()
    ]
    return {"passages": kept, "error": "", **more}


def _dated(passage: Passage) -> Passage:
    told = () if passage.place.endswith(passage.date) else (passage.date,)
    return replace(passage, place=", ".join(filter(None, (passage.place, *told))))


@dataclass
class Evidence:
    """The sources of one run, and which of them each query found."""

    background: Background = NOTHING
    sources: dict[str, Source] = field(default_factory=dict)
    answered: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    """(tool, case-folded request) -> ids of the sources that it found"""
    _numbers: dict[tuple[str, str, str], str] = field(default_factory=dict)
    _excerpts: Excerpts = field(default_factory=Excerpts)
    _highest: int = 0

    def __post_init__(self) -> None:
        for source in self.background.sources:
            self._numbers[source.location, source.place, source.text] = source.id
            place = source.title, source.location, source.place, source.text
            self._excerpts.add(source.id, Passage(*place, public=source.public))
        self._highest = self.background.numbered

    @property
    def own(self) -> list[Source]:
        """The sources that this run found itself, not only its conversation."""
        brought = {i for ids in self.answered.values() for i in ids}
        return [s for s in self.sources.values() if s.id in brought]

    @property
    def searched(self) -> tuple[ToolUse, ...]:
        """The tool calls, as stored in the trajectory."""
        uses = self.answered.items()
        return tuple(ToolUse(tool=tool, asked=asked, sources=ids) for (tool, asked), ids in uses)

    def take_up(self, ids: Iterable[str]) -> tuple[Source, ...]:
        """The sources with these ids; those of the conversation become sources of this run."""
        for identifier in ids:
            if identifier not in self.sources:
                self.sources[identifier] = self.background.by_id[identifier]
        return self._sources(ids)

    def known(self, identifier: str) -> Source | None:
        """The source with this id, also one that only the conversation found."""
        return self.sources.get(identifier) or self.background.by_id.get(identifier)

    def find_earlier(self, tool: str, asked: str) -> Found | None:
        """What the same request found earlier in the run or its conversation; None: it is new."""
        call = (tool, fold(asked))
        ids = self.answered.get(call, self.background.answered.get(call))
        if ids is None:
            return None
        shown = set(self.sources)
        self.answered[call] = ids
        return Found(self.take_up(ids), frozenset(ids) - shown, repeated=True)

    def take(self, tool: str, asked: str, reply: Reply) -> Found:
        """Number the passages of a tool's reply, which has the form that the journal keeps."""
        known = set(self.sources)
        passages = [Passage(**passage) for passage in reply["passages"]]
        found = [self.number(passage, asked, tool) for passage in passages]
        ids = tuple(dict.fromkeys(source.id for source in found))
        if not reply["error"]:
            self.answered[tool, fold(asked)] = ids
        new = frozenset(ids) - known
        named = dict(zip(reply.get("local", ()), (s.id for s in found), strict=False))
        # Ids in the words between claims mean the same sources as those of the claims.
        claims = tuple(
            FoundClaim(
                SOURCE_ID.sub(lambda found: named.get(found[0], "another source"), piece[0]),
                tuple(named[i] for i in piece[1] if i in named),
            )
            for piece in reply.get("claims", ())
        )
        note = reply.get("note", "")
        return Found(self._sources(ids), new, reply["error"], note=note, claims=claims)

    def _sources(self, ids: Iterable[str]) -> tuple[Source, ...]:
        return tuple(self.sources[identifier] for identifier in ids)

    def number(self, passage: Passage, query: str, tool: str) -> Source:
        """The source of a passage, numbered now if it is new and not a copy of another."""
        key = (passage.location, passage.place, passage.text)
        if key not in self._numbers:
            # A passage of an opened page holds more than the excerpts that led there.
            original = self._excerpts.original(passage, whole=tool in (OPEN_PAGE, INVESTIGATE))
            self._numbers[key] = original or f"S{self._highest + 1}"
            if original:
                [kept] = self.take_up([original])
                copies = dict.fromkeys((kept.location, *kept.copies, passage.location))
                self.sources[original] = kept.model_copy(update={"copies": tuple(copies)[1:]})
        identifier = self._numbers[key]
        if identifier in self.background.by_id:
            self.take_up([identifier])
        elif identifier not in self.sources:
            self._highest += 1
            self._excerpts.add(identifier, passage)
            told = {name: getattr(passage, name) for name in _FIELDS}
            self.sources[identifier] = Source(id=identifier, tool=tool, query=query, **told)
        return self.sources[identifier]

    def shown(self, ids: Collection[str]) -> ShownTexts:
        """The texts of these sources by where they stand."""
        texts = defaultdict[str, list[str]](list)
        for identifier in ids:
            if source := self.sources.get(identifier):
                texts[source.location].append(source.text)
        return texts

    def choose(self, found: Sequence[Passage], limit: int, seen: Collection[str]) -> list[Passage]:
        """At most `limit` passages that were not seen, nor are part of what was; else the first."""
        shown = {location: [*texts] for location, texts in self.shown(seen).items()}
        unseen = list[Passage]()
        for passage in found:
            number = self._numbers.get((passage.location, passage.place, passage.text))
            if number not in seen and unshown([passage], shown):
                unseen.append(passage)
                shown.setdefault(passage.location, []).append(passage.text)
        return unseen[:limit] or list(found[:limit])


def unshown(passages: Sequence[Passage], shown: ShownTexts) -> list[Passage]:
    """Those of which the text does not stand in what was shown of the same document."""
    return [p for p in passages if not any(stands_in(p.text, t) for t in shown.get(p.location, ()))]
