"""The scaffold: the tags of the four stages, a parser of what models write, and its validity.

The tags are those of RubricEM (arXiv:2605.10899), appendix B; the main text's other names are
read as aliases. One rule makes the parser tolerant and linear: a block runs to its own closing
tag, and whatever cannot stand inside it until there is text; only where that closing tag is
missing does the next tag that could stand outside end it. So thinking is free text, tool output
opaque, and `a < b`, HTML and unknown tags open nothing. The schema is three levels deep, so that
neither parsing nor walking can run out of stack.

Spans are offsets in characters into the text as written; nothing is unescaped.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from agent.reports.printable import printable
from memory.schema import Stage
from memory.text import MARKERS

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
_ATTRIBUTE_ALIASES: Mapping[str, str] = {"ids": "id", "tool": "name"}

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
_UNSAFE = re.compile(rf"<(?=\s*+/?+\s*+(?:{_NAMES})(?!\w))|{MARKERS}", re.I | re.A)
NEVER = -1


@dataclass(frozen=True, slots=True)
class Block:
    """One element: `text[start:end]` with its tags, `text[inner_start:inner_end]` without."""

    tag: str
    attributes: Mapping[str, str]
    start: int
    end: int
    inner_start: int
    inner_end: int
    children: tuple["Block", ...]
    closed: bool
    """False: its closing tag is missing, and it ends where something else begins"""

    def walk(self) -> Iterator["Block"]:
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Document:
    """A text and the blocks in it; `root` spans the whole text."""

    text: str
    root: Block
    orphans: tuple[int, ...] = ()
    """where closing tags stand that close nothing, outside free text"""

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self.root.children

    def find(self, tag: str) -> list[Block]:
        return [block for block in self.root.walk() if block.tag == tag]

    def inner(self, block: Block) -> str:
        return self.text[block.inner_start : block.inner_end]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What the policy asks of a tool; `name` is "" where it named none."""

    name: str
    query: str
    attributes: Mapping[str, str]


@dataclass(slots=True)
class _Open:
    block: Block
    closer: int
    """index of its closing tag among all tags, or NEVER"""
    children: list[Block] = field(default_factory=list)

    def ended(self, inner_end: int, end: int, closed: bool) -> Block:
        b, children = self.block, tuple(self.children)
        return Block(b.tag, b.attributes, b.start, end, b.inner_start, inner_end, children, closed)


@lru_cache(maxsize=16)  # all who judge the form of a turn read it, one after another
def parse(text: str) -> Document:
    """The blocks of a text. Never raises; takes time linear in its length."""
    tags = list(_TAG.finditer(text))
    closers = _closers(tags)
    stack = [_Open(Block(ROOT, {}, 0, len(text), 0, len(text), (), True), len(tags))]
    orphans: list[int] = []
    for i, tag in enumerate(tags):
        if not tag[1]:
            _read_opening(stack, tag, closers[i], i)
        elif not _read_closing(stack, tag, i) and stack[-1].block.tag in CHILDREN:
            orphans.append(tag.start())
    _end_above(stack, 1, len(text))
    return Document(text, stack[0].ended(len(text), len(text), True), tuple(orphans))


def _read_opening(stack: list[_Open], tag: re.Match[str], closer: int, i: int) -> None:
    name = _name(tag)
    if not (depth := _place(stack, name)):
        return
    start, end = tag.span()
    _end_above(stack, depth, start)
    limit = next(outer.closer for outer in reversed(stack) if outer.closer != NEVER)
    block = Block(name, _attributes(tag[3]), start, end, end, end, (), True)
    if closer == i:
        stack[-1].children.append(block)
    else:
        stack.append(_Open(block, closer if closer <= limit else NEVER))


def _read_closing(stack: list[_Open], tag: re.Match[str], i: int) -> bool:
    """Whether the i-th tag closes something; what is still open inside it ends there."""
    depth = next((depth for depth, outer in enumerate(stack) if outer.closer == i), 0)
    if not depth:
        return stack[-1].block.tag == "tool_output"
    _end_above(stack, depth + 1, tag.start())
    closed = stack.pop().ended(tag.start(), tag.end(), True)
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
        block = stack.pop().ended(at, at, False)
        stack[-1].children.append(block)


def _attributes(written: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(written.removesuffix("/")):
        key = match[1].lower()
        value = "".join(match.groups("")[1:])
        found[_ATTRIBUTE_ALIASES.get(key, key)] = " ".join(value.split())
    return found


def neutralise(text: str) -> str:
    """Untrusted text that can stand inside our tags: it opens and closes none, nor a chat turn.

    Only the first character of our tags and of chat-template markers changes; code stays
    readable. What nobody sees goes first, since it may hold a tag apart that is whole again
    wherever the text is shown. Applying it twice changes nothing more.
    """
    return _UNSAFE.sub("\u2039", printable(text))


def tool_call(text: str) -> ToolCall | None:
    """The last whole call of a turn, or one cut off at its end; None if it asks nothing."""
    document = parse(text)
    for block in reversed(document.find("call_tool")):
        attributes = {k: v for k, v in block.attributes.items() if k not in ("name", "query")}
        query = document.inner(block).strip() or block.attributes.get("query", "")
        if query and (block.closed or block.end == len(text)):
            return ToolCall(block.attributes.get("name", ""), query, attributes)
    return None


def malformed(document: Document, *, cut: bool = False) -> list[str]:
    """Tags that do not pair. `cut`: a call may end the text, as servers drop stop strings."""
    end = len(document.text)
    return [
        f"{block.tag} is not closed."
        for block in document.root.walk()
        if not block.closed and not (cut and block.tag == "call_tool" and block.end == end)
    ] + [f"A closing tag at character {at} closes nothing." for at in document.orphans]


def lacks(document: Document, *tags: str) -> list[str]:
    """A fault for each tag of which no block with text in it exists."""
    return [
        f"{tag} is {'empty' if document.find(tag) else 'missing'}."
        for tag in tags
        if not any(document.inner(block).strip() for block in document.find(tag))
    ]


def turn_faults(text: str, turn: int, *, must_answer: bool = False) -> list[str]:
    """What is wrong with one turn of the policy, in sentences it can be shown; [] if valid.

    Tags are named without brackets, so that a sentence in the transcript is not read as a tag.
    Turns count from 1, and the first must plan and search. `must_answer`: no call is left.
    """
    document = parse(text)
    first = document.blocks[0] if document.blocks else None
    faults = malformed(document, cut=True)
    if first is None or first.tag != "think" or text[: first.start].strip():
        faults.append("The turn must begin with think.")
    if document.find("tool_output"):
        faults.append("Only the system writes tool_output.")
    if turn == 1:
        faults += lacks(document, "structured_plan", *CHILDREN["structured_plan"])
    else:
        faults += lacks(document, "state_evaluation")
    return faults + _action_faults(document, turn == 1 and not must_answer, must_answer)


def _action_faults(document: Document, must_search: bool, must_answer: bool) -> list[str]:
    calls = len(document.find("call_tool"))
    ending = bool(document.find("review") or document.find("answer"))
    if must_search and ending:
        return ["The first turn must search, so it may not review or answer."]
    if must_answer and calls:
        return ["No tool call is left: write review and then answer."]
    if calls > 1 or (calls and ending):
        return ["One action a turn: either one call_tool, or review and then answer."]
    faults = lacks(document, "review", *CHILDREN["review"], "answer") if ending else []
    if calls and not tool_call(document.text):
        faults.append("call_tool has no query.")
    if not document.blocks or document.blocks[-1].tag not in ("call_tool", "answer"):
        action = "review and then answer" if must_answer or ending else "one call_tool"
        faults.append(f"The turn must end with {action}.")
    return faults
