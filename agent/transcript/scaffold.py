"""The scaffold: the tags of the four stages, a parser of what models write, and its interpretation.

The tags are those of RubricEM (arXiv:2605.10899), appendix B, with the main text's names as
aliases. One rule makes the parser tolerant and linear: a block extends to its own closing tag, and
what cannot be nested in it is text up to there; only if that closing tag is missing does the next
tag that could follow the block end it. Spans are offsets in characters; nothing is unescaped.

From the blocks are derived: stages, citations, rubric items, and the rules by which a trajectory is
unfit to be imitated (appendix B.2.3; the last two, of section 3.2, are optional). A round is what
the policy wrote between tool outputs. Rules are tried in order, so the first violated one is named.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache, partial
from itertools import pairwise
from typing import Literal, cast

from rubricem.memory.schema import AnswerFormat, Author, Decoding, Stage, Trajectory
from rubricem.memory.text import printable, prompt, without_markers

ROOT = "trajectory"
TOP: Mapping[str, Stage | None] = {
    "think": None,
    "structured_plan": Stage.PLAN,
    "call_tool": Stage.RESEARCH,
    "tool_output": Stage.RESEARCH,
    "state_evaluation": Stage.RESEARCH,
    "review": Stage.REVIEW,
    "answer": Stage.ANSWER,
}
CHILDREN: Mapping[str, tuple[str, ...]] = {
    ROOT: tuple(TOP),
    "structured_plan": ("deep_analysis", "rubric", "research_plan"),
    "tool_output": ("snippet",),
    "review": ("rubric_review", "writing_plan"),
    "answer": ("cite",),
}
ORDER: tuple[str, ...] = ("state_evaluation", "structured_plan", "call_tool", "review", "answer")
"""of the blocks of a turn; thinking may precede any of them"""
IN_ORDER = ("structured_plan", "review")
"""blocks whose children are ordered, too"""
STAGE_OF: Mapping[str, Stage | None] = {
    **TOP,
    **{child: TOP[tag] for tag in TOP for child in CHILDREN.get(tag, ())},
}
ALIASES: Mapping[str, str] = {
    "analysis": "deep_analysis",
    "rubrics": "rubric",
    "rubrics_review": "rubric_review",
    "scratchpad": "think",
    "thinking": "think",
}
_ATTRIBUTE_ALIASES: Mapping[str, str] = {
    "ids": "id", "source": "id", "sources": "id", "ref": "id", "tool": "name",
}  # fmt: skip

_NAMES = "|".join([*STAGE_OF, *ALIASES])
_TAG = re.compile(
    rf"<\s*+(/?+)\s*+({_NAMES})"
    # Bounds keep this linear: a quoted value that holds < or > must be short.
    r"((?:\s++[a-z_][\w-]*+\s*+="
    r"""(?:\s*+"[^"]{0,400}+"(?=[\s/>])|\s*+'[^']{0,400}+'(?=[\s/>])|[^<>]*+)){0,8}+)"""
    r"\s*+(/?+)>",
    re.I | re.A,
)
_ATTRIBUTE = re.compile(
    r"""(?<![\w-])([a-z_][\w-]*+)\s*+=\s*+"""
    r"""(?:"([^"]*+)"|'([^']*+)'|["']?+([^\s"',]*+(?:\s*+,\s*+[^\s"',]++)*+))""",
    re.I | re.A,
)
_UNSAFE = re.compile(rf"<(?=\s*+/?+\s*+(?:{_NAMES})(?!\w))", re.I | re.A)
NEVER = -1


@dataclass(frozen=True, slots=True)
class TaggedBlock:
    """One element: `text[start:end]` with its tags, `text[inner_start:inner_end]` without."""

    tag: str
    attributes: Mapping[str, str]
    start: int
    end: int
    inner_start: int
    inner_end: int
    children: tuple["TaggedBlock", ...]
    closed: bool
    """False: its closing tag is missing, and it ends where something else begins"""

    def walk(self) -> Iterator["TaggedBlock"]:
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Mark:
    """The review's mark for one item of the rubric, and the ids on which it rests."""

    item: str
    state: Literal["met", "partly", "missing"]
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScaffoldDocument:
    """A text and the blocks in it; `root` spans the whole text."""

    text: str
    root: TaggedBlock
    orphans: tuple[int, ...] = ()
    """positions of closing tags that close nothing, outside free text"""

    @property
    def blocks(self) -> tuple[TaggedBlock, ...]:
        return self.root.children

    def find(self, tag: str) -> list[TaggedBlock]:
        return [block for block in self.root.walk() if block.tag == tag]

    def last(self, tag: str) -> str:
        """The content of the last block of a tag; "" without one."""
        return next((self.inner(block) for block in reversed(self.find(tag))), "")

    @property
    def answer(self) -> TaggedBlock | None:
        """The last answer with text in it."""
        blocks = reversed(self.blocks)
        return next((b for b in blocks if b.tag == "answer" and self.inner(b).strip()), None)

    def inner(self, block: TaggedBlock) -> str:
        return self.text[block.inner_start : block.inner_end]

    def find_unpaired(self, *, cut: bool = False) -> list[str]:
        """Unpaired tags. `cut`: a call may end the text, as servers drop stop strings."""
        end = len(self.text)
        return [
            f"{block.tag} is not closed."
            for block in self.root.walk()
            if not block.closed and not (cut and block.tag == "call_tool" and block.end == end)
        ] + [f"A closing tag at character {at} closes nothing." for at in self.orphans]

    def lacks(self, *tags: str) -> list[str]:
        """A fault for each tag without a block that contains text."""
        return [
            f"{tag} is {'empty' if self.find(tag) else 'missing'}."
            for tag in tags
            if not any(self.inner(block).strip() for block in self.find(tag))
        ]

    def find_misplaced(self, turn: int) -> list[str]:
        """Blocks and children of a turn, counted from 1, that are out of order.

        The first turn has nothing to evaluate: its state evaluation may be anywhere. A search for
        what a review marks as missing may follow that review.
        """
        order = ORDER[1:] if turn == 1 else ORDER
        rows = [(order, self.blocks)]
        rows += [(CHILDREN[b.tag], b.children) for b in self.blocks if b.tag in IN_ORDER]
        faults = [
            f"{after.tag} must come before {before.tag}."
            for tags, blocks in rows
            for before, after in pairwise(b for b in blocks if b.tag in tags)
            if tags.index(before.tag) > tags.index(after.tag)
            and not ((before.tag, after.tag) == ("review", "call_tool") and is_sent_back(self))
        ]
        return list(dict.fromkeys(faults))

    def review_marks(self) -> list[Mark]:
        """The marks of the last review, for the items that have one: `- item [met: S1]`."""
        marks: list[Mark] = []
        for item in rubric_items(self.last("rubric_review")):
            if found := _MARK.search(item):
                state = cast(Literal["met", "partly", "missing"], found[1].lower())
                said = item[: found.start()].rstrip(" :\u2013\u2014-")
                marks.append(Mark(said, state, ids_in(found[2])))
        return marks

    def all_missing(self) -> bool:
        """Whether the last review marks every item as missing: an answer has nothing to cite."""
        return {mark.state for mark in self.review_marks()} == {"missing"}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool by the policy; `name` is "" if it gave none."""

    name: str
    query: str
    attributes: Mapping[str, str]


@dataclass(slots=True)
class _Open:
    block: TaggedBlock
    closer: int
    """index of its closing tag among all tags, or NEVER"""
    children: list[TaggedBlock] = field(default_factory=list)

    def close(self, inner_end: int, end: int, closed: bool) -> TaggedBlock:
        b, children = self.block, tuple(self.children)
        return TaggedBlock(
            b.tag, b.attributes, b.start, end, b.inner_start, inner_end, children, closed
        )


@lru_cache(maxsize=16)  # all who judge the form of a turn read it, one after another
def parse(text: str) -> ScaffoldDocument:
    """The blocks of a text. Never raises; takes time linear in its length."""
    tags = list(_TAG.finditer(text))
    closers = _closers(tags)
    stack = [_Open(TaggedBlock(ROOT, {}, 0, len(text), 0, len(text), (), True), len(tags))]
    orphans: list[int] = []
    for i, tag in enumerate(tags):
        if not tag[1]:
            _read_opening(stack, tag, closers[i], i)
        elif not _read_closing(stack, tag, i) and stack[-1].block.tag in CHILDREN:
            orphans.append(tag.start())
    _end_above(stack, 1, len(text))
    return ScaffoldDocument(text, stack[0].close(len(text), len(text), True), tuple(orphans))


def _read_opening(stack: list[_Open], tag: re.Match[str], closer: int, i: int) -> None:
    name = _name(tag)
    if not (depth := _place(stack, name)):
        return
    start, end = tag.span()
    _end_above(stack, depth, start)
    limit = next(outer.closer for outer in reversed(stack) if outer.closer != NEVER)
    block = TaggedBlock(name, _attributes(tag[3]), start, end, end, end, (), True)
    if closer == i:
        stack[-1].children.append(block)
    else:
        stack.append(_Open(block, closer if closer <= limit else NEVER))


def _read_closing(stack: list[_Open], tag: re.Match[str], i: int) -> bool:
    """Whether the i-th tag closes a block; open blocks inside that one end there."""
    depth = next((depth for depth, outer in enumerate(stack) if outer.closer == i), 0)
    if not depth:
        return stack[-1].block.tag == "tool_output"
    _end_above(stack, depth + 1, tag.start())
    closed = stack.pop().close(tag.start(), tag.end(), True)
    stack[-1].children.append(closed)
    return True


def _name(tag: re.Match[str]) -> str:
    name = tag[2].lower()
    return ALIASES.get(name, name)


def _closers(tags: list[re.Match[str]]) -> list[int]:
    """For each opening tag the index of the tag that closes it (itself, if self-closing)."""
    closers = [NEVER] * len(tags)
    nearest: dict[str, int] = {}
    following = ""
    for i in reversed(range(len(tags))):
        name, previous, following = _name(tags[i]), following, ""
        if tags[i][1]:
            nearest[name] = i
        elif tags[i][4] or tags[i][3].endswith("/"):
            closers[i] = i
        elif name == "tool_output":
            closers[i] = nearest.get(name, len(tags))
        else:
            mention = name == previous == "think"  # thinking that names its own tag
            closers[i] = closers[i + 1] if mention else nearest.pop(name, NEVER)
            following = name
    return closers


def _place(stack: list[_Open], name: str) -> int:
    """How many open blocks stay open when this tag opens; 0 if the tag is only text."""
    for depth in range(len(stack), 0, -1):
        if name in CHILDREN.get(stack[depth - 1].block.tag, ()):
            return depth
        if stack[depth - 1].closer != NEVER:
            break
    return 0


def _end_above(stack: list[_Open], depth: int, at: int) -> None:
    while len(stack) > depth:
        block = stack.pop().close(at, at, False)
        stack[-1].children.append(block)


def _attributes(written: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(written.removesuffix("/")):
        key = match[1].lower()
        value = "".join(match.groups("")[1:])
        found[_ATTRIBUTE_ALIASES.get(key, key)] = " ".join(value.split())
    return found


def neutralise(text: str) -> str:
    """Untrusted text made safe inside our tags: it opens and closes none of them, nor a chat turn.

    Only the first character of our tags and of chat-template markers changes; code stays readable.
    Invisible characters are removed first, since they may split a tag that is whole again wherever
    the text is shown. Applying it twice changes nothing more.
    """
    return without_markers(_UNSAFE.sub("\u2039", printable(text)))


_LIKE_MARKERS = re.compile(r"<[^<>\s]{1,64}>|\[[^\[\]\s]{1,32}\]|[\[\]][^\[\]\s]{1,8}[\[\]]")


def own_markers(rendered: str) -> list[str]:
    """Parts of a rendered chat that may be special tokens of its model, and are no tags of ours.

    Its tokeniser knows whether they are.
    """
    return sorted(one for one in set(_LIKE_MARKERS.findall(rendered)) if not _UNSAFE.match(one))


def tool_call(text: str) -> ToolCall | None:
    """The last complete call of a turn, or one cut off at its end; None if there is no call."""
    calls = tool_calls(text)
    return calls[-1] if calls else None


def tool_calls(text: str) -> list[ToolCall]:
    """The complete calls of a turn in order, and one cut off at its end."""
    document, calls = parse(text), []
    for block in document.find("call_tool"):
        attributes = {k: v for k, v in block.attributes.items() if k not in ("name", "query")}
        query = document.inner(block).strip() or block.attributes.get("query", "")
        if query and (block.closed or block.end == len(text)):
            calls.append(ToolCall(block.attributes.get("name", ""), query, attributes))
    return calls


def turn_faults(text: str, turn: int, *, must_answer: bool = False) -> list[str]:
    """What is wrong with one turn of the policy, in sentences for the policy; [] if valid.

    Tags are named without brackets, so that a sentence in the transcript is not read as a tag.
    Turns count from 1, and the first must plan and search. `must_answer`: no call is left.
    """
    document = parse(text)
    first = document.blocks[0] if document.blocks else None
    faults = document.find_unpaired(cut=True)
    if first is None or first.tag != "think" or text[: first.start].strip():
        faults.append("The turn must begin with think.")
    if document.find("tool_output"):
        faults.append("Only the system writes tool_output.")
    if turn == 1:
        faults += document.lacks("structured_plan", *CHILDREN["structured_plan"])
    else:
        faults += document.lacks("state_evaluation")
    faults += document.find_misplaced(turn)
    return faults + _action_faults(document, turn == 1 and not must_answer, must_answer)


def _action_faults(document: ScaffoldDocument, must_search: bool, must_answer: bool) -> list[str]:
    calls = len(document.find("call_tool"))
    ending = bool(document.find("review") or document.find("answer"))
    if must_search and ending:
        return ["The first turn must search, so it may not review or answer."]
    if must_answer and calls:
        return ["No tool call is left: write review and then answer."]
    if calls > 1 or (calls and ending):
        return ["One action a turn: either one call_tool, or review and then answer."]
    faults = document.lacks("review", *CHILDREN["review"], "answer") if ending else []
    call = tool_call(document.text)
    if calls and (call is None or not call.name):
        faults.append("call_tool names no tool." if call else "call_tool has no query.")
    if not document.blocks or document.blocks[-1].tag not in ("call_tool", "answer"):
        action = "review and then answer" if must_answer or ending else "one call_tool"
        faults.append(f"The turn must end with {action}.")
    return faults


_BULLET = re.compile(r"(?:[-*+\u2022\u2013]|\(?(?:\d{1,2}|[a-z]|[ivx]{1,4})[.)])\s+(?=\S)")
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_PARTING = str.maketrans(",;[]", "    ")
_INLINE_NUMBER = re.compile(r"(?<=[.;:,?!])\s+(?=\(?\d{1,2}[.)]\s)")


@dataclass(frozen=True, slots=True)
class Cite:
    """A claim of the answer and the ids on which it rests, in the order written."""

    ids: tuple[str, ...]
    claim: str
    span: tuple[int, int]
    certain: bool = True
    """False: the attribute `certainty` says "uncertain\""""


def stage_spans(source: ScaffoldDocument | str) -> dict[Stage, tuple[int, int]]:
    """The span of each stage as (start, end): contiguous over the text, absent if missing.

    The scorer's boundaries (RubricEM, appendix C.3): the plan ends with the first structured plan,
    so the first tool call is research; the review begins with the last thinking before it, unless a
    tool call is between; the answer runs to the end. An answer that was reviewed and rewritten does
    not count yet.
    """
    document = parse(source) if isinstance(source, str) else source
    text, blocks = document.text, document.blocks
    answers = [b.start for b in blocks if b.tag == "answer"]
    reviewed = max((b.start for b in blocks if b.tag == "review"), default=0)
    answer = next((start for start in answers if start > reviewed), min(answers, default=len(text)))
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


def _review_start(blocks: list[TaggedBlock], answer: int) -> int:
    """Start of the last review before the answer, or the answer's own start."""
    last = max((i for i, b in enumerate(blocks) if b.tag == "review"), default=None)
    if last is None:
        return answer
    before = [b for b in blocks[:last] if b.tag in ("think", "call_tool", "tool_output")]
    return before[-1].start if before and before[-1].tag == "think" else blocks[last].start


_MARK = re.compile(r"\[\s*(met|partly|missing)\b\s*:?([^\]\n]*)\]", re.I)


def missing_items(document: ScaffoldDocument, rubric: str = "") -> list[str]:
    """The items that the last review marks as missing.

    Of one that is but a number, the item of the `rubric` in its place.
    """
    items, marks = rubric_items(rubric), document.review_marks()
    said = (mark.item or "".join(items[at : at + 1]) for at, mark in enumerate(marks))
    return [item for item, mark in zip(said, marks, strict=True) if mark.state == "missing"]


def is_sent_back(document: ScaffoldDocument) -> bool:
    """Whether a turn ends with a review that marks something missing, and without an answer."""
    return bool(missing_items(document)) and not answer_text(document)


def answer_text(document: ScaffoldDocument) -> str:
    """The text of the last non-empty answer, with cite tags; "" without one."""
    return document.inner(document.answer).strip() if document.answer else ""


def citations(document: ScaffoldDocument) -> list[Cite]:
    """The cites of the answer alone, with all their ids.

    An empty cite is taken to mark the sentence before it.
    """
    answer = document.answer
    cites: list[Cite] = []
    end = answer.inner_start if answer else 0
    for block in answer.children if answer else ():
        before = _SENTENCE_END.split(document.text[end : block.start].strip())[-1]
        ids = ids_in(block.attributes.get("id", ""))
        claim = document.inner(block).strip() or before
        certain = block.attributes.get("certainty") != "uncertain"
        cites.append(Cite(ids, claim, (block.start, block.end), certain))
        end = block.end
    return cites


def ids_in(written: str) -> tuple[str, ...]:
    """The ids of a list, however they are parted."""
    return tuple(written.translate(_PARTING).split())


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


class Rule(StrEnum):
    """The rules by name, in the order in which they are tried."""

    NO_ANSWER = "no_answer"
    NO_CALL = "no_call"
    STRUCTURE = "structure"
    TOOL_ERRORS = "tool_errors"
    CITATION = "citation"
    SUPPORT = "support"
    ALL_SUPPORT = "all-support"


@dataclass(frozen=True, slots=True)
class Rejection:
    """The violated rule, and how it was violated, in one sentence."""

    rule: Rule
    sentence: str


def find_violation(trajectory: Trajectory, *, citations: bool = False) -> Rejection | None:
    """The first rule that the trajectory breaks, or None if it is fit to be imitated.

    `citations` switches rule 5 on: every cite names passages that were really retrieved.
    """
    return next(_broken(trajectory, citations), None)


def rounds(trajectory: Trajectory) -> list[ScaffoldDocument]:
    """The policy's text of each turn that was kept, parsed, in order."""
    authors = {Author.POLICY}
    if trajectory.decoding is Decoding.FORCED:
        authors.add(Author.PROMPT)
    texts: dict[int, str] = {}
    for segment in trajectory.segments:
        if segment.kept and segment.stage is not None and segment.author in authors:
            texts[segment.turn] = texts.get(segment.turn, "") + segment.text
    return [parse(text) for text in texts.values()]


def tool_error(text: str) -> str | None:
    """Why a tool failed, from its output `<tool_output error="...">`; None if it did not."""
    before, failed, rest = text.partition('<tool_output error="')
    return rest.partition('"')[0] if failed and not before.strip() else None


def _broken(trajectory: Trajectory, check_ids: bool) -> Iterator[Rejection]:
    documents = rounds(trajectory)
    last = documents[-1] if documents else parse("")
    if not answer_text(last) or not all(block.closed for block in last.find("answer")):
        yield Rejection(Rule.NO_ANSWER, "The last round has no closed answer with text in it.")
    # The first round must search also where it is the last.
    for number, document in enumerate(documents[: max(len(documents) - 1, 1)], start=1):
        call = tool_call(document.text)
        if call is None and number > 1 and is_sent_back(document):
            continue
        if call is None or not call.name:
            how = "makes no tool call" if call is None else "names no tool in its call"
            yield Rejection(Rule.NO_CALL, f"Round {number} {how}.")
    yield from _structure_faults(documents)
    outputs = [s.text for s in trajectory.segments if s.kept and s.author is Author.TOOL]
    for reasons in pairwise(map(tool_error, outputs)):
        if None not in reasons:
            told = "; ".join(map(str, reasons))
            yield Rejection(Rule.TOOL_ERRORS, f"Two tool calls running failed: {told}.")
    if check_ids:
        yield from _citation_faults(trajectory, citations(last))


def _structure_faults(documents: list[ScaffoldDocument]) -> Iterator[Rejection]:
    for number, document in enumerate(documents, start=1):
        planned = ("structured_plan", "deep_analysis", "rubric")
        needed = planned if number == 1 else ("state_evaluation",)
        faults = (
            document.lacks(*needed) + document.find_unpaired() + document.find_misplaced(number)
        )
        if faults:
            yield Rejection(Rule.STRUCTURE, f"Round {number}: {faults[0]}")
    if all(document.lacks("review") for document in documents):
        yield Rejection(Rule.STRUCTURE, "No review with text in it stands before the answer.")


def _citation_faults(trajectory: Trajectory, cites: list[Cite]) -> Iterator[Rejection]:
    known = {source.id for source in trajectory.sources}
    for cite in cites:
        if not cite.ids:
            yield Rejection(Rule.CITATION, "A cite of the answer names no id.")
        for unknown in (i for i in cite.ids if i not in known):
            yield Rejection(Rule.CITATION, f"The cited id {unknown} was never returned by a tool.")


INSTRUCTION = {
    AnswerFormat.LONG: "Answer with a structured report as long as the question deserves.",
    AnswerFormat.SHORT: "Answer in one paragraph.",
    AnswerFormat.EXACT: (
        "Give a short justification, and as the very last line of the answer the bare answer "
        "alone: a name, a number, a date or a few words."
    ),
}

EXACT_LINE = "Answer: "
"""what precedes the bare answer if the runner writes the tags"""


template = partial(prompt, "agent")
"""the text of a prompt in `agent/prompts`, by its name"""
