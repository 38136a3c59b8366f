r"""The cited answer: what the policy wrote, with every citation mark resolved to a passage by code.

The policy writes only ids, which sources get at retrieval. Ids that were never retrieved are
dropped and counted, sources are numbered in order of first appearance, and each citation gets the
sentences of its passage on which it rests. A claim left without any id is kept as `Uncited`.

In running text `[S1]`, `(S1)` and `[1]` become marks where the id is known, and are removed where
not. Inside code they are text, as is a term like S3 or [1] that question or passage itself uses.

Verdicts mark the pieces. A repair stands in the place of a whole sentence, list item or cell of the
answer as it was written, which is then read like any other text.
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from rubricem.agent.reports.uncited import own_references, uncited_sentences, unknown_addresses
from rubricem.agent.sources.fetch import normal
from rubricem.agent.transcript.scaffold import ScaffoldDocument, TaggedBlock, neutralise, parse
from rubricem.agent.transcript.scaffold import citations as cites_of
from rubricem.agent.transcript.words import closest_sentence, find_support, overlap
from rubricem.memory.ids import one_by_one
from rubricem.memory.language import sentences
from rubricem.memory.schema import (
    AnswerFormat,
    CitationCheck,
    CitationSupport,
    Source,
    Trajectory,
    Verification,
)
from rubricem.memory.text import one_line, printable

_BOX = "\\boxed{"
_LEAD = re.compile(r"(?:(?:the )?(?:final )?answer(?: is)?\s*:)\s*", re.I)
_FENCE = re.compile(r"\s*```\w*\s*")


def bare_answer(text: str) -> str:
    r"""The content of the last `\boxed{...}`, or the last line without `Answer:` and emphasis."""
    lines = [line for line in text.splitlines() if line.strip() and not _FENCE.fullmatch(line)]
    if _BOX in text:
        inner = text.rpartition(_BOX)[2].partition("\n")[0]
        lines = [inner.rpartition("}")[0] or inner]
    line = " ".join("".join(lines[-1:]).split())
    line = _LEAD.sub("", line.replace("**", "") if line.startswith("**") else line, count=1)
    return line.strip("$ ") if line.count("$") == 2 else line.strip()


NO_SOURCE = "[no source]"
"""the mark of a claim whose ids were all unknown"""
DOUBTS: Mapping[CitationSupport, str] = {"partial": "in part", "unsupported": "not supported"}
"""what a mark says after its number"""
UNCERTAIN = "not certain"
"""what it says of a claim that the model itself doubts"""

_STOPS = ".!?,;:"


@dataclass(frozen=True, slots=True)
class Citation:
    """One claim citing one source."""

    number: int
    """shown to the reader; the same for every claim that cites this source"""
    claim: str
    source: Source
    verdict: CitationSupport = "unchecked"
    reason: str = ""
    certain: bool = True
    """False: the model that wrote the claim doubts it"""
    context: str = ""
    """as of `CitationCheck`"""
    decided: tuple[str, ...] | None = None
    """what of the passage the checker named as deciding; None: it named nothing of any source"""

    @property
    def overlap(self) -> float:
        """Share of the claim's content words that occur in the passage, in [0, 1]."""
        return _grounds(self.claim, self.source.text)[0]

    @property
    def quote(self) -> str:
        """What decides, or the sentence of the passage closest to the claim; "" if there is none.

        Verbatim.
        """
        if self.decided is None:
            return _grounds(self.claim, self.source.text)[1]
        return "".join(self.decided)

    @property
    def quotes(self) -> tuple[str, ...]:
        """All parts of the passage on which the claim rests, verbatim and in order."""
        grounds = _grounds(self.claim, self.source.text)[2]
        return grounds if self.decided is None else self.decided

    @property
    def shown(self) -> tuple[str, ...]:
        """The quotes for reading out of context, with adjacent text if needed to hold the claim."""
        if self.decided is not None:
            return self.decided
        return find_support(self.claim, self.source.text, beside=True)

    @property
    def id(self) -> str:
        return self.source.id


@dataclass(frozen=True, slots=True)
class Text:
    """A part of the answer that cites no source."""

    text: str


@dataclass(frozen=True, slots=True)
class Uncited:
    """What has no source: a claim whose ids, an address or an entry that was never retrieved."""

    text: str


@dataclass(frozen=True, slots=True)
class Cited:
    """A claim with its citations: at least one, none twice."""

    text: str
    citations: tuple[Citation, ...]
    certain: bool = True
    """False: the answer says that the model itself doubts it"""


Piece = Text | Uncited | Cited
Mark = Callable[[Cited | Uncited], str]


def bracket_marks(piece: Cited | Uncited) -> str:
    """The marks as plain text: [1][2], or [1: not supported]."""
    if isinstance(piece, Uncited):
        return NO_SOURCE
    return "".join(f"[{c.number}{doubt(c)}]" for c in piece.citations)


def doubt(citation: Citation) -> str:
    """What a mark says after its number; "" if the source supports the claim or was not checked."""
    said = DOUBTS.get(citation.verdict)
    if not citation.certain and citation.verdict != "unsupported":
        said = UNCERTAIN
    return f": {said}" if said else ""


@dataclass(frozen=True, slots=True)
class CitedAnswer:
    """The answer in pieces; `dropped` counts ids and numbers of no retrieved source."""

    pieces: tuple[Piece, ...] = ()
    dropped: int = 0
    bare: str = ""
    """in the format `exact`, only the answer itself"""
    invented: tuple[str, ...] = ()
    """addresses and entries of its own list of references that no tool returned; each is marked"""
    uncited: tuple[str, ...] = ()
    """sentences that state a number or a name and cite nothing"""
    question: str = ""

    @property
    def citations(self) -> tuple[Citation, ...]:
        """All citations in order of appearance."""
        return tuple(c for p in self.pieces if isinstance(p, Cited) for c in p.citations)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The cited sources in the order of their numbers, which start at 1."""
        return tuple({c.number: c.source for c in self.citations}.values())

    @property
    def doubted(self) -> frozenset[str]:
        """The claims that the model itself doubts."""
        cited = (p for p in self.pieces if isinstance(p, Cited) and not p.certain)
        return frozenset(c.claim for piece in cited for c in piece.citations)

    def of(self, source: Source) -> tuple[Citation, ...]:
        """The citations of this source."""
        return tuple(c for c in self.citations if c.id == source.id)

    def text(self, mark: Mark = bracket_marks) -> str:
        """The answer with its marks; in the format `exact` the last line is the bare answer."""
        return "\n\n".join(filter(None, (self.body(mark), self.bare)))

    def body(self, mark: Mark = bracket_marks) -> str:
        """The answer with its marks, without a last line that is only the bare answer."""
        text = join_pieces(self.pieces, mark)
        if not self.bare:
            return text
        lines = text.splitlines()
        return "\n".join(lines[:-1] if bare_answer(lines[-1]) == self.bare else lines).strip()


def join_pieces(pieces: Sequence[Piece], mark: Mark) -> str:
    """The text of the pieces, each claim with its mark; a mark may be empty."""
    text, after_mark = "", False
    for piece in pieces:
        if after_mark and piece.text[:1].isalnum():
            text += " "
        text += piece.text if isinstance(piece, Text) else _place_mark(piece.text, mark(piece))
        after_mark = not isinstance(piece, Text)
    return text.strip()


def _place_mark(claim: str, mark: str) -> str:
    """The claim with its mark before closing punctuation: `It evicts the oldest [1].`"""
    if not mark:
        return claim
    if claim.rpartition("\n")[2].startswith("```"):
        return f"{claim}\n{mark}"
    if claim[-1] in _STOPS and claim[-2:-1] not in _STOPS:
        return f"{claim[:-1]} {mark}{claim[-1]}"
    return f"{claim} {mark}"


_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.S)
_ID = r"[sS][_-]?\d+"
_IDS = rf"{_ID}(?:[\s,;&\u2013\u2014-]{{1,3}}{_ID})*+"
_STRAY = re.compile(
    rf"[\[\u3010]\^?\s{{0,2}}({_IDS})"
    r"(?:\u2020[^\u3011\]\n]{0,40})?\s{0,2}[\]\u3011]"
    rf"|\(\s?({_ID}(?:[\s,;&]{{1,3}}{_ID})*+)\s?\)"
    r"|(?<![\w\])`])(\[\d{1,3}\])(?![\[(:`])"
)
_ONLY_IDS = re.compile(_IDS)
_NOTE_OF_ID = rf"[\w-]{{1,30}}(?=\]:[ \t]*[\[(]?{_ID}\b(?!\s\w))"
_FOOTNOTE = re.compile(rf"^\[\^({_ID}|{_NOTE_OF_ID})\]:.*\n?", re.M)
_TERM = re.compile(rf"\b{_ID}\b|\[\d{{1,3}}\]")
_MARKED = re.compile(rf"[\[\u3010]\s?{_IDS}\s?[\]\u3011]")
LEAD = 40
"""characters before a mark in which the preceding word is looked for"""
_WRITTEN_ID = re.compile(r"s[_-]?0*(\d+)", re.I)


def notes_in_place(text: str) -> str:
    """The text without footnotes that name ids, which stand where these are referred to."""
    notes = {note[1]: note[0].partition(":")[2] for note in _FOOTNOTE.finditer(text)}

    def ids(mark: re.Match[str]) -> str:
        named = _ONLY_IDS.fullmatch(mark[1])
        told = [mark[1]] if named else re.findall(_ID, one_by_one(notes.get(mark[1], "")))
        return f"[{', '.join(told)}]" if told else mark[0]

    return re.sub(r"\[\^([\w-]{1,30})\]", ids, _FOOTNOTE.sub("", text))


def terms(*texts: str) -> frozenset[str]:
    """Strings in the texts that look like an id or a number mark but are not citations.

    Also `[S1]` marks of a text with the word before them: quoting such a text cites nothing.
    """
    return frozenset().union(*map(_terms_of, texts))


@lru_cache(2048)  # a run's sources are looked through for each reading of its answer
def _terms_of(text: str) -> frozenset[str]:
    marked = (_with_lead(text, mark.start(), mark[0]) for mark in _MARKED.finditer(text))
    return frozenset((*_TERM.findall(text), *marked))


def _with_lead(text: str, at: int, mark: str) -> str:
    return " ".join([*text[max(0, at - LEAD) : at].split()[-1:], mark])


@dataclass(frozen=True, slots=True)
class Written:
    """A piece of the answer, and the known ids that it cites."""

    text: str
    ids: list[str] | None = None
    """None: plain text; empty: all its ids are unknown"""
    context: str = ""
    """of a claim, as of `CitationCheck`"""


_MARKER = re.compile(r"\s*(?:(?:[-*+\u2022]|\d+[.)]|#{1,6}|>)\s+)*")


def claim_of(text: str) -> str:
    """The claim of a cited piece: on one line, without a leading list mark."""
    return one_line(text[end_of_marker(text) :])


def end_of_marker(text: str) -> int:
    """Offset after a list, heading or quote mark at the beginning."""
    match = _MARKER.match(text)
    return match.end() if match and match.end() < len(text) else 0


_TAG = re.compile(r"</?cite\b[^<>]*>", re.I)
_OPENING = re.compile(r"<cite\b[^<>]*>", re.I)
_CELL = re.compile(r"[^|\s](?:[^|]*[^|\s])?")


def statements(answer: str) -> Iterator[tuple[int, int]]:
    """Where the sentences, list items and cells of an answer stand; none parts a claim."""
    begun = at = 0
    open_ = False
    for line in answer.splitlines(keepends=True):
        for start, end in _spans_of(line):
            begun = begun if open_ else at + start
            text = answer[begun : at + end]
            open_ = len(_OPENING.findall(text)) > text.lower().count("</cite")
            if not open_:
                yield begun, at + end
        at += len(line)


def _spans_of(line: str) -> Iterator[tuple[int, int]]:
    """Where the sentences of a line stand, or the cells of a row, each with the tags around it."""
    places = [0, *(end for tag in _TAG.finditer(line) for end in tag.span()), len(line)]
    kept = [i for a, b in zip(places[::2], places[1::2], strict=True) for i in range(a, b)]
    plain = "".join(line[i] for i in kept)
    row = plain.lstrip().startswith("|")
    cells = (cell.span() for cell in _CELL.finditer(plain))
    spans = cells if row else _sentence_spans(plain, end_of_marker(plain))
    for start, end in spans:
        first, last = kept[start], kept[end - 1] + 1
        while tag := next((t for t in _OPENING.finditer(line) if t.end() == first), None):
            first = tag.start()
        while line[last:].lower().startswith("</cite"):
            last = line.index(">", last) + 1
        yield first, last


def said_in(statement: str) -> str:
    """What a statement says: on one line, without tags."""
    return claim_of(_TAG.sub("", statement))


def cites_only(text: str) -> str:
    """The text with no tag of the scaffold but whole cites, and those written alike."""
    head = "<answer>"
    document = parse(f"{head}{text}</answer>")
    written, at = list[str](), 0
    for cite in cites_of(document):
        start, end = (place - len(head) for place in cite.span)
        written.append(neutralise(text[at:start]))
        if cite.ids:
            written.append(f'<cite id="{", ".join(cite.ids)}">{neutralise(cite.claim)}</cite>')
        else:
            written.append(neutralise(cite.claim))
        at = min(end, len(text))
    return "".join([*written, neutralise(text[at:])])


def repair(answer: str, repairs: Mapping[str, str]) -> str:
    """The answer with what became of its statements, by what they said; "": they are removed."""
    parts, at = list[str](), 0
    for start, end in statements(answer) if repairs else ():
        if (became := repairs.get(said_in(answer[start:end]))) is not None:
            parts += [answer[at:start], became or _GONE]
            at = end
    text = _GONE_ITEM.sub("", "".join([*parts, answer[at:]]))
    return re.sub(rf" ?{_GONE}", "", text)


_GONE = "\ufdd3"
"""stands for what is removed: a noncharacter, which no text keeps"""
_GONE_ITEM = re.compile(
    rf"^[ \t]*(?:(?:[-*+\u2022]|\d+[.)]|>)[ \t]+)*{_GONE}[ \t.]*(?:\n|\Z)", re.M
)


def answer_of(trajectory: Trajectory) -> str:
    """The text of the answer, with its tags, after its repairs; "" if there is none."""
    document = parse(printable(trajectory.transcript()))
    text = notes_in_place(document.inner(document.answer)) if document.answer else ""
    return repair(text, {r.claim: r.became for r in _verified(trajectory).repairs})


def _verified(trajectory: Trajectory) -> Verification:
    return trajectory.verification or Verification(mode="mark", checker="")


NOTHING_HELD = "None of what was written is supported by the sources that were found."


@dataclass
class _Reading:
    """The pieces read so far; numbered at the end, when every mark is attached to its claim."""

    sources: dict[str, Source]
    terms: Collection[str]
    """what looks like a mark in the question or a passage, as given by `terms`"""
    dropped: int = 0
    """written ids of no source"""
    pieces: list[Written] = field(default_factory=list)
    doubted: set[str] = field(default_factory=set)
    """claims that their own model is not certain of"""

    def read(self, document: ScaffoldDocument, answer: TaggedBlock) -> None:
        """Take up the text of an answer, the last one of its document."""
        at = answer.inner_start
        for block, cite in zip(answer.children, cites_of(document), strict=True):
            self.plain(document.text[at : block.start])
            inner = document.inner(block).strip("[] \n")
            if not cite.ids and _ONLY_IDS.fullmatch(inner):
                self.plain(f"[{inner}]")
            else:
                self.cite(cite.ids, document.inner(block), cite.certain)
            at = block.end
        self.plain(document.text[at : answer.inner_end])

    def cite(self, ids: tuple[str, ...], claim: str, certain: bool) -> None:
        known, text = self.resolve(ids), ""
        for part in self.split(claim):
            if isinstance(part, str):
                text = text.rstrip(" ") + part
            else:
                known += part
        if text.strip():
            self.pieces.append(Written(text.strip(), list(dict.fromkeys(known))))
            self.doubted |= set() if certain else {text.strip()}
        else:
            self.mark(known)

    def plain(self, text: str) -> None:
        for part in self.split(text):
            if isinstance(part, str):
                self.pieces.append(Written(part))
            else:
                self.mark(part)

    def mark(self, known: list[str]) -> None:
        """Attach ids to what precedes them: the cite, or the last sentence of the text."""
        blank = ""
        while self.pieces and not self.pieces[-1].text.strip():
            blank = self.pieces.pop().text + blank
        if known and self.pieces:
            piece = self.pieces.pop()
            text, ids = piece.text, piece.ids
            if ids is None:
                # The last sentence of the last line.
                text = text.rstrip()
                start = text.rfind("\n") + 1
                start += end_of_marker(text[start:])
                *_, (first, _) = [(start, 0), *_sentence_spans(text, start)]
                self.pieces.append(Written(text[:first]))
                text = text[first:]
            self.pieces.append(Written(text, list(dict.fromkeys([*(ids or ()), *known]))))
        elif self.pieces and self.pieces[-1].ids is None:
            self.pieces[-1] = Written(self.pieces[-1].text.rstrip(" "))
        self.pieces.append(Written(blank.rstrip(" ")))

    def resolve(self, written: Sequence[str]) -> list[str]:
        """The ids of the sources meant, in order; names of no source are counted as dropped."""
        found: list[str] = []
        for name in written:
            parts = re.split(r"[^\w-]+", one_by_one(name))
            for part in [name] if name in self.sources else parts:
                match = _WRITTEN_ID.fullmatch(part)
                identifier = f"S{match[1]}" if match else part
                if identifier in self.sources:
                    found.append(identifier)
                elif part:
                    self.dropped += 1
        return list(dict.fromkeys(found))

    def split(self, text: str) -> Iterator[str | list[str]]:
        """The text between its stray marks, and the known ids of each."""
        code = [match.span() for match in _CODE.finditer(text)]
        at = 0
        for stray in _STRAY.finditer(text):
            while code and code[0][1] <= stray.start():
                code.pop(0)
            plain = stray[2] or stray[3]
            term = (plain or _with_lead(text, stray.start(), stray[0])) in self.terms
            if not term and not (code and code[0][0] <= stray.start()):
                yield text[at : stray.start()]
                yield self.resolve([stray[1] or plain])
                at = stray.end()
        yield text[at:]

    def number_citations(self, found: Verification) -> Iterator[Piece]:
        numbers = dict[str, int]()
        checks = dict[tuple[str, ...], CitationCheck]()
        checks |= {(c.source, c.claim): c for c in found.checks}
        checks |= {(c.source, c.claim, c.context): c for c in found.checks}
        for piece in in_context(self.pieces):
            text, ids = piece.text, piece.ids
            if ids:
                for identifier in ids:
                    numbers.setdefault(identifier, len(numbers) + 1)
                known = {i: _check_of(i, piece, checks) for i in ids}
                named = any(check.quote for check in known.values())
                certain = text not in self.doubted
                cited = [
                    Citation(
                        numbers[i],
                        check.claim,
                        self.sources[i],
                        check.verdict,
                        check.reason,
                        certain,
                        piece.context,
                        ((check.quote,) if check.quote else ()) if named else None,
                    )
                    for i, check in known.items()
                ]
                yield Cited(text, tuple(sorted(cited, key=lambda c: c.number)), certain)
            elif text:
                yield Text(text) if ids is None else Uncited(text)


def _check_of(
    source: str, piece: Written, checks: Mapping[tuple[str, ...], CitationCheck]
) -> CitationCheck:
    """The check of a claim against a source; `unchecked` if there was none."""
    claim = claim_of(piece.text)
    # Runs that were checked without contexts have none, and a repair changes those beside it.
    check = checks.get((source, claim, piece.context)) or checks.get((source, claim))
    return check or CitationCheck(source=source, claim=claim, verdict="unchecked")


def in_context(pieces: Sequence[Written]) -> Iterator[Written]:
    """The pieces, each claim that is no whole sentence with what it stands in.

    In a table that is the row's first cell and the column's head, else its sentence after the one
    before it, and of a list's item also the line with a colon above the list.
    """
    text, spans = _lay_out(pieces)
    for piece, (start, end) in zip(pieces, spans, strict=True):
        if not piece.ids:
            yield piece
            continue
        first, last = text.rfind("\n", 0, start) + 1, text.find("\n", end)
        line = text[first : last if last >= 0 else len(text)]
        told = _of_cell(text, first, start) if line.lstrip().startswith("|") else ""
        told = told or f"{_lead_of(text, first)}{_of_sentence(line, start - first, end - first)}"
        whole = claim_of(piece.text).rstrip(_STOPS) == claim_of(told).rstrip(_STOPS)
        yield piece if whole else replace(piece, context=one_line(told))


def _lay_out(pieces: Sequence[Written]) -> tuple[str, list[tuple[int, int]]]:
    """The text of all pieces, and where each stands in it."""
    text, spans = "", list[tuple[int, int]]()
    for piece in pieces:
        text += " " if text and piece.text[:1].isalnum() and text[-1:].isalnum() else ""
        spans.append((len(text), len(text) + len(piece.text)))
        text += piece.text
    return text, spans


_ITEM = re.compile(r"([ \t]*)(?:[-*+]|\d{1,3}[.)])\s")


def _lead_of(text: str, first: int) -> str:
    """The line that ends in a colon above the list whose item begins at `first`, or ""."""
    if (item := _ITEM.match(text, first)) is None:
        return ""
    indent = len(item[1])
    for line in filter(str.strip, reversed(text[:first].splitlines())):
        deep = len(line) - len(line.lstrip())
        if deep < indent or (deep == indent and not _ITEM.match(line)):
            return f"{line.strip()} " if line.rstrip(" *_").endswith((":", "\uff1a")) else ""
    return ""


def _of_cell(text: str, first: int, start: int) -> str:
    """The row's first cell, and the column's head with the cell, of a table's line at `first`."""
    above = text[:first].splitlines()
    table = [text[first:].partition("\n")[0]]
    while above and above[-1].lstrip().startswith("|"):
        table.insert(0, above.pop())
    rows = [
        [cell.strip() for cell in row.strip().strip("|").split("|")]
        for row in (table[0], table[-1])
    ]
    column = text.count("|", first, start) - 1
    if len(table) < 2 or not 0 <= column < len(rows[1]):
        return ""
    head = rows[0][column] if column < len(rows[0]) else ""
    cell = f"{head}: {rows[1][column]}" if head else rows[1][column]
    return cell if column == 0 else f"{rows[1][0]} | {cell}"


def _of_sentence(line: str, start: int, end: int) -> str:
    """The sentence of a line with what lies between two places, after the one before it."""
    parts = _spans_in(line)
    at = next((n for n, (_, last) in enumerate(parts) if last >= end), None)
    if at is None or parts[at][0] > start:
        return line
    return " ".join(line[slice(*part)] for part in parts[max(at - 1, 0) : at + 1])


def _sentence_spans(line: str, at: int) -> Iterator[tuple[int, int]]:
    """Where the sentences of a line stand; none ends within code."""
    code, begun = [match.span() for match in _CODE.finditer(line)], -1
    for said in sentences(line[at:]):
        start = line.index(said, at)
        begun, at = start if begun < 0 else begun, start + len(said)
        if not any(first < at < last for first, last in code):
            yield begun, at
            begun = -1


_spans_in = lru_cache(8)(lambda line: [*_sentence_spans(line, 0)])  # for each of its claims


@lru_cache(1024)  # used while an answer is checked, and by each report
def _grounds(claim: str, passage: str) -> tuple[float, str, tuple[str, ...]]:
    """Overlap with a passage, its closest sentence, and all parts on which the claim rests."""
    return overlap(claim, passage), closest_sentence(claim, passage), find_support(claim, passage)


_READ = deque[tuple[Trajectory, CitedAnswer]](maxlen=8)
"""a cache: the report, its page and the caller read the same trajectory"""


def cited_answer(trajectory: Trajectory) -> CitedAnswer:
    """Resolve the answer of a trajectory; no pieces if there is no answer."""
    # By identity: trajectories are frozen, and comparing two is slower than resolving one.
    read = next((answer for of, answer in tuple(_READ) if of is trajectory), None)
    if read is None:
        read = _resolve_answer(trajectory)
        _READ.append((trajectory, read))
    return read


def pieces_in(answer: str, trajectory: Trajectory) -> list[Written]:
    """The pieces of an answer of this run, or of a part of one."""
    return _read(notes_in_place(answer), trajectory).pieces


def _read(answer: str, trajectory: Trajectory) -> _Reading:
    sources = {source.id: source for source in trajectory.sources}
    used = terms(trajectory.question, *(source.text for source in trajectory.sources))
    reading = _Reading(sources, used)
    document = parse(f"<answer>{answer}</answer>")
    for block in document.find("answer")[:1]:
        reading.read(document, block)
    return reading


def _resolve_answer(trajectory: Trajectory) -> CitedAnswer:
    found, text = _verified(trajectory), answer_of(trajectory)
    reading = _read(text, trajectory)
    pieces = tuple(reading.number_citations(found)) if text.strip() else ()
    if found.repairs and not pieces:
        pieces = (Text(NOTHING_HELD),)
    if not pieces:
        return CitedAnswer()
    told = "\n".join([trajectory.question, *(s.text for s in trajectory.sources)])
    known = {normal(place) for s in trajectory.sources for place in (s.location, *s.copies)}
    marked = tuple(_mark_invented(pieces, known, told))
    invented = tuple(p.text for p in marked if isinstance(p, Uncited) and p not in pieces)
    plain = "".join(p.text if isinstance(p, Text) else _HELD + _end(p.text) for p in marked)
    uncited = tuple(uncited_sentences(plain, _HELD))
    answer = CitedAnswer(marked, reading.dropped, "", invented, uncited, trajectory.question)
    if trajectory.answer_format is AnswerFormat.EXACT:
        answer = replace(answer, bare=bare_answer(join_pieces(answer.pieces, lambda piece: "")))
    return answer


_HELD = "\ufdd2"
"""stands for a claim: a noncharacter, which no text keeps"""


def _end(claim: str) -> str:
    return claim[-1] if claim[-1] in _STOPS else ""


def _mark_invented(pieces: Sequence[Piece], known: Collection[str], told: str) -> Iterator[Piece]:
    """The pieces, in whose plain text each address or entry of no source is a piece of its own."""
    joined = "".join(piece.text if isinstance(piece, Text) else _HELD for piece in pieces)
    spans = [span for span in own_references(joined) if _HELD not in joined[slice(*span)]]
    text = joined.replace(_HELD, " ")
    left = [*spans, *(match.span() for match in _CODE.finditer(text))]
    for address in unknown_addresses(text, known, told):
        at = text.find(address)
        end = at + len(address)
        # The mark of a link's target stands behind the link.
        end += text[at - 1 : at] in ("(", "<") and text[end : end + 1] in (")", ">")
        if at >= 0 and not any(start <= at < stop for start, stop in left):
            spans.append((at, end))
    held, at = (piece for piece in pieces if not isinstance(piece, Text)), 0
    for start, end in (*sorted(spans), (len(joined), len(joined))):
        for part in re.split(f"({_HELD})", joined[at:start]):
            if part:
                yield next(held) if part == _HELD else Text(part)
        if start < end:
            yield Uncited(text[start:end])
        at = end
