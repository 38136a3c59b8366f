"""The cited answer: what the policy wrote, with every mark resolved by code to a passage.

The policy emits ids alone. Sources got theirs when they were retrieved; here an id that was
never retrieved is dropped and counted, numbers are given in order of first appearance, and each
cite gets the sentence of its passage that it stands on. A claim left without any id is kept as
`Uncited`. Ids that were written outside a cite become marks where they are known and go where
they are not.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from agent.overlap import closest_sentence, overlap, sentences
from agent.reading import citations as cites_of
from agent.reports.cited import (
    Citation,
    Cited,
    CitedAnswer,
    Piece,
    Text,
    Uncited,
    bracketed,
    joined,
)
from agent.reports.exact import bare_answer
from agent.reports.marks import Marks, terms
from agent.reports.printable import printable
from agent.reports.verdicts import Verdicts, claim_of, end_of_marker
from agent.scaffold import Block, Document, parse
from memory.schema import AnswerFormat, Source, Trajectory

NOTHING_HELD = "None of what was written is supported by the sources that were found."
"""the answer where repair left nothing of it"""


@dataclass
class _Reading:
    """The pieces read so far. Numbers are given last, when every mark has found its claim."""

    sources: dict[str, Source]
    marks: Marks
    verdicts: Verdicts = field(default_factory=Verdicts)
    pieces: list[tuple[str, list[str] | None]] = field(default_factory=list)
    """text and its known ids; None: plain text; empty: it had ids, all unknown"""

    def cite(self, ids: tuple[str, ...], claim: str) -> None:
        known = self.marks.known(ids)
        text = ""
        for part, written in self.marks.split(claim):
            text = text.rstrip(" ") + part if written is None else text
            known += self.marks.known(written or ())
        if text.strip():
            self.pieces.append((text.strip(), list(dict.fromkeys(known))))
        else:
            self.mark(known)

    def plain(self, text: str) -> None:
        for part, written in self.marks.split(text):
            if written is None:
                self.pieces.append((part, None))
            else:
                self.mark(self.marks.known(written))

    def mark(self, known: list[str]) -> None:
        """Put ids on what stands just before: the cite, or the last sentence of the text."""
        blank = ""
        while self.pieces and not self.pieces[-1][0].strip():
            blank = self.pieces.pop()[0] + blank
        if known and self.pieces:
            text, ids = self.pieces.pop()
            if ids is None:
                text, before = _last_sentence(text)
                self.pieces.append((before, None))
            self.pieces.append((text, list(dict.fromkeys([*(ids or ()), *known]))))
        elif self.pieces and self.pieces[-1][1] is None:
            self.pieces[-1] = (self.pieces[-1][0].rstrip(" "), None)
        self.pieces.append((blank.rstrip(" "), None))

    def numbered(self) -> Iterator[Piece]:
        numbers: dict[str, int] = {}
        for text, ids in self.verdicts.repaired(self.pieces):
            if ids:
                for identifier in ids:
                    numbers.setdefault(identifier, len(numbers) + 1)
                cited = [self.citation(i, numbers[i], text) for i in ids]
                yield Cited(text, tuple(sorted(cited, key=lambda c: c.number)))
            elif text:
                yield Text(text) if ids is None else Uncited(text)

    def citation(self, identifier: str, number: int, text: str) -> Citation:
        source = self.sources[identifier]
        claim = claim_of(text)
        quote = closest_sentence(claim, source.text)
        check = self.verdicts.of(identifier, claim)
        share = overlap(claim, source.text)
        return Citation(number, claim, source, share, quote, check.verdict, check.reason)


def cited_answer(trajectory: Trajectory) -> CitedAnswer:
    """Resolve the answer of a trajectory; without an answer it has no pieces."""
    document = parse(printable(trajectory.transcript()))
    answers = [b for b in document.blocks if b.tag == "answer" and document.inner(b).strip()]
    if not answers:
        return CitedAnswer()
    sources = {source.id: source for source in trajectory.sources}
    used = terms(trajectory.question, *(source.text for source in trajectory.sources))
    verdicts = Verdicts.of_run(trajectory)
    reading = _Reading(sources, Marks(sources, used), verdicts)
    _read(document, answers[-1], reading)
    pieces = tuple(reading.numbered())
    if verdicts.repairs and not joined(pieces, bracketed):
        pieces = (Text(NOTHING_HELD),)
    answer = CitedAnswer(pieces, reading.marks.dropped)
    if trajectory.answer_format is AnswerFormat.EXACT:
        answer = replace(answer, bare=bare_answer(joined(answer.pieces, lambda piece: "")))
    return answer


def _read(document: Document, answer: Block, reading: _Reading) -> None:
    at = answer.inner_start
    for block, cite in zip(answer.children, cites_of(document), strict=True):
        reading.plain(document.text[at : block.start])
        reading.cite(cite.ids, document.inner(block))
        at = block.end
    reading.plain(document.text[at : answer.inner_end])


def _last_sentence(text: str) -> tuple[str, str]:
    """The last sentence of the last line, and what stands before it."""
    text = text.rstrip()
    start = text.rfind("\n") + 1
    start += end_of_marker(text[start:])
    *_, last = [text[start:], *sentences(text[start:])]
    cut = len(text) - len(last)
    return last, text[:cut]
