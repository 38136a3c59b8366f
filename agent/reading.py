"""What the system reads out of a parsed transcript: stages, citations, rubric items, XML.

The parser (`scaffold`) says where the blocks stand; this says what they mean to a scorer, to the
verifier of citations and to any XML reader. Spans are offsets in characters into the text.
"""

import re
from dataclasses import dataclass
from itertools import pairwise

from agent.scaffold import STAGE_OF, Block, Document, parse
from memory.schema import Stage

_BULLET = re.compile(r"(?:[-*+\u2022\u2013]|\(?(?:\d{1,2}|[a-z]|[ivx]{1,4})[.)])\s+(?=\S)")
_INLINE_NUMBER = re.compile(r"(?<=[.;:,?!])\s+(?=\(?\d{1,2}[.)]\s)")
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_ID = re.compile(r"[^\s,;\[\]]+")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;"})


@dataclass(frozen=True, slots=True)
class Cite:
    """A claim of the answer and the ids it rests on, in the order written."""

    ids: tuple[str, ...]
    claim: str
    span: tuple[int, int]


def stage_spans(source: Document | str) -> dict[Stage, tuple[int, int]]:
    """Where each stage stands, as (start, end): contiguous over the text, absent if missing.

    The scorer's boundaries (RubricEM, appendix C.3): the plan ends with the first structured
    plan, so the first tool call is research; the review begins with the last thinking before
    it, unless a tool call lies between; the answer runs to the end.
    """
    document = parse(source) if isinstance(source, str) else source
    text, blocks = document.text, document.blocks
    answer = next((b.start for b in blocks if b.tag == "answer"), len(text))
    review = _review_start([b for b in blocks if b.start < answer], answer)
    body = [b for b in blocks if b.start < review]
    plan = next((b.end for b in body if b.tag == "structured_plan"), 0)
    searched = plan > 0 or any(STAGE_OF[b.tag] is Stage.RESEARCH for b in body)
    present = {
        Stage.PLAN: (0, plan > 0),
        Stage.RESEARCH: (plan, searched and bool(text[plan:review].strip())),
        Stage.REVIEW: (review, review < answer),
        Stage.ANSWER: (answer, answer < len(text)),
    }
    stages = [stage for stage, (_, there) in present.items() if there]
    bounds = [0, *(present[stage][0] for stage in stages[1:]), len(text)]
    return dict(zip(stages, pairwise(bounds), strict=False))


def _review_start(blocks: list[Block], answer: int) -> int:
    """Start of the last review before the answer, or the answer's own start."""
    last = max((i for i, b in enumerate(blocks) if b.tag == "review"), default=None)
    if last is None:
        return answer
    before = [b for b in blocks[:last] if b.tag in ("think", "call_tool", "tool_output")]
    return before[-1].start if before and before[-1].tag == "think" else blocks[last].start


def answer_text(document: Document) -> str:
    """What the last answer with text in it says, cite tags and all; "" without one."""
    answer = _answer(document)
    return document.inner(answer).strip() if answer else ""


def citations(document: Document) -> list[Cite]:
    """The cites of the answer alone, with all their ids.

    A cite that encloses nothing is taken to mark the sentence before it.
    """
    answer = _answer(document)
    cites: list[Cite] = []
    end = answer.inner_start if answer else 0
    for block in answer.children if answer else ():
        before = _SENTENCE_END.split(document.text[end : block.start].strip())[-1]
        ids = tuple(_ID.findall(block.attributes.get("id", "")))
        claim = document.inner(block).strip() or before
        cites.append(Cite(ids, claim, (block.start, block.end)))
        end = block.end
    return cites


def _answer(document: Document) -> Block | None:
    answers = [b for b in document.blocks if b.tag == "answer" and document.inner(b).strip()]
    return answers[-1] if answers else None


def rubric_items(text: str) -> list[str]:
    """The items of a rubric block: its bullets or numbered lines, or else its sentences."""
    lines = [line.strip() for line in _INLINE_NUMBER.sub("\n", text).splitlines()]
    if not any(_BULLET.match(line) for line in lines):
        return [item for part in _SENTENCE_END.split(text) if (item := _item(part))]
    items: list[str] = []
    within = False
    for line in lines:
        if bullet := _BULLET.match(line):
            items.append(_item(line[bullet.end() :]))
        elif within and _item(line):
            items[-1] += " " + _item(line)
        within = bool(bullet) or (within and bool(_item(line)))
    return [item for item in items if item]


def _item(line: str) -> str:
    """The line without surrounding space; "" for a heading."""
    stripped = line.strip()
    heading = stripped.startswith("#") or stripped.strip("*_ ").endswith(":")
    return "" if heading else stripped


def render(document: Document) -> str:
    """Canonical XML: canonical tags, everything escaped, one root, every block closed.

    Characters that XML 1.0 forbids are left out.
    """
    return _element(document, document.root)


def escape(text: str) -> str:
    """Text as it may stand in XML 1.0, in an element or in a quoted attribute."""
    return _NOT_XML.sub("", text).translate(_ESCAPES)


def _element(document: Document, block: Block) -> str:
    attributes = "".join(
        f' {name}="{escape(value)}"' for name, value in block.attributes.items() if name != "xmlns"
    )
    parts, at = [f"<{block.tag}{attributes}>"], block.inner_start
    for child in block.children:
        parts += [escape(document.text[at : child.start]), _element(document, child)]
        at = child.end
    parts += [escape(document.text[at : block.inner_end]), f"</{block.tag}>"]
    return "".join(parts)
