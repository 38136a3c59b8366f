"""The report of a lead: sections from its outline, each from its own sources, edited once.

The writing plan of the lead's review is the outline: a heading for each section, and below it what
it says with the ids that carry it. Each section is written beside the transcript, from its block
and the whole text of its sources, at the same time as the others. Then the whole is edited once, by
paragraphs: a change that brings an id or a number which its paragraph did not have is not made, so
that the edit adds no claim.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rubricem.agent.models.turns import FENCED
from rubricem.agent.reports.cited import cites_only, notes_in_place, said_in, statements
from rubricem.agent.reports.rules import numbers
from rubricem.agent.research.deep.parts import NUMBER
from rubricem.agent.research.evidence import SOURCE_ID
from rubricem.agent.transcript.scaffold import citations, parse
from rubricem.memory.ids import one_by_one
from rubricem.memory.text import split_thinking

MOST_SECTIONS = 12
_HEADING = re.compile(r"^[ \t]*#{1,4}[ \t]+(.+?)[ \t]*#*$", re.M)
_NUMBERED = re.compile(r"^[ \t]*\**\d{1,2}[.)][ \t]+(.+?)[ \t]*$", re.M)
_CHANGE = re.compile(
    r'<change\s+n\s*=\s*["\']?(\d{1,5})["\']?'
    r'(?:\s+from\s*=\s*["\']?([\d, ]{1,40})["\']?)?\s*>(.*?)</change\s*>', re.S | re.I
)  # fmt: skip
_SUMMARY = re.compile(r"<summary\s*>(.*?)</summary\s*>", re.S | re.I)
LONGEST_TITLE = 120


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A section of the outline; `ids` are those of the known sources that it names."""

    title: str
    says: str
    ids: tuple[str, ...]


def outline(plan: str, known: Collection[str]) -> list[ReportSection]:
    """The sections of a writing plan; one without headings is one section, or a numbered list."""
    marks = list(_HEADING.finditer(plan)) or list(_NUMBERED.finditer(plan))
    ends = [*(mark.start() for mark in marks[1:]), len(plan)]
    found = list[ReportSection]()
    for mark, end in zip(marks, ends, strict=False):
        title, _, more = mark[1].partition(": ") if mark.re is _NUMBERED else (mark[1], "", "")
        says = f"{more}\n{plan[mark.end() : end]}".strip()
        found.append(_section(title, says, known))
    found = found or [_section("", plan.strip(), known)]
    rest = found[MOST_SECTIONS - 1 :]
    if len(rest) > 1:
        says = "\n\n".join(f"{each.title}: {each.says}" for each in rest)
        found[MOST_SECTIONS - 1 :] = [_section(rest[0].title, says, known)]
    if len(found) == 1 and not found[0].ids:
        return [ReportSection(found[0].title, found[0].says, tuple(known))]
    return found


def _section(title: str, says: str, known: Collection[str]) -> ReportSection:
    named = dict.fromkeys(SOURCE_ID.findall(one_by_one(f"{title} {says}")))
    plain = SOURCE_ID.sub("", re.sub(r"\[[^\]]*\]", "", title)).strip(" *_:#.-")
    return ReportSection(plain[:LONGEST_TITLE], says, tuple(i for i in named if i in known))


def text_of(reply: str, title: str = "") -> str:
    """What a model wrote of a section, without thoughts, fences, other tags and its own heading."""
    text = split_thinking(reply)[1].strip()
    fenced = FENCED.fullmatch(text)
    text = fenced[1] if fenced else text
    whole = parse(text)
    if answers := whole.find("answer"):
        text = whole.inner(answers[-1])
    lines = text.strip().splitlines()
    at = next((n for n, line in enumerate(lines) if line.startswith("#")), 0)
    own = lines and lines[at].startswith("#") and lines[at].strip("# *").casefold()
    if own == title.casefold() and "<cite" not in "".join(lines[:at]):
        lines = lines[at + 1 :]
    return cites_only(notes_in_place("\n".join(lines)).strip())


def paragraphs(text: str) -> list[str]:
    """The blocks between empty lines, a fence with all that it holds."""
    found, block, fenced = list[str](), list[str](), False
    for line in text.split("\n"):
        fenced ^= line.lstrip(" \t").startswith("```")
        if fenced or line.strip(" \t"):
            block.append(line)
        elif block:
            found.append("\n".join(block))
            block = []
    return [*found, *(["\n".join(block)] if block else [])]


def numbered(text: str) -> str:
    """The text as the editor is shown it."""
    return "\n\n".join(f"[{n}] {block}" for n, block in enumerate(paragraphs(text), start=1))


def edit(text: str, reply: str) -> tuple[str, int]:
    """The text with an editor's changes, and how many were not made as they could add a claim.

    A change may take claims from other paragraphs, which stay as they are if it is not made.
    """
    reply = split_thinking(reply)[1]
    blocks, refused = dict(enumerate(paragraphs(text), start=1)), 0
    made, held = dict(blocks), set[int]()
    for change in _CHANGE.finditer(reply):
        at, new = int(change[1]), cites_only(change[3].strip())
        taken = {int(n) for n in NUMBER.findall(change[2] or "")}
        known = "\n\n".join(blocks[n] for n in blocks if n == at or n in taken)
        cited = not new or _ids_of(new) or not _ids_of(known)
        if at in blocks and cited and _adds_nothing(new, known):
            # A heading goes only with all that stands below it.
            made[at] = new or blocks[at] * bool(_level(blocks[at]))
        else:
            refused += 1
            held |= taken
    told = [blocks[n] if n in held else block for n, block in made.items()]
    kept = list(_without_bare_headings([block for block in told if block.strip()]))
    if summary := _SUMMARY.search(reply):
        said = cites_only(summary[1].strip())
        each = [said[start:end] for start, end in statements(said)]
        fit = [one for one in each if _adds_nothing(one, text)]
        refused += len(each) - len(fit) or not _ids_of(said)
        kept = [" ".join(fit), *kept] if _ids_of(" ".join(fit)) else kept
    return "\n\n".join(kept), refused


def _ids_of(text: str) -> set[str]:
    return {i for cite in citations(parse(f"<answer>{text}</answer>")) for i in cite.ids}


def _adds_nothing(new: str, old: str) -> bool:
    """Whether a text has no id and no number that another one lacks."""
    return _ids_of(new) <= _ids_of(old) and {*numbers(said_in(new))} <= {*numbers(said_in(old))}


def _without_bare_headings(blocks: Sequence[str]) -> Iterator[str]:
    for block, after in pairwise([*blocks, "# end"]):
        level, next_level = _level(block), _level(after)
        if not (level and next_level and "\n" not in block and next_level <= level):
            yield block


def _level(block: str) -> int:
    return len(block) - len(block.lstrip("#")) if block.startswith("#") else 0
