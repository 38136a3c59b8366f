"""A reflection as text: what the policy is shown of a run, and what it may answer.

The run is shown as it was written, without any score (RubricEM, arXiv:2605.10899, appendix D).
Where it does not fit, tool output is shortened first, each piece from its middle, and then what
the policy wrote; the answer is shortened last.
"""

import re
from dataclasses import dataclass

from agent.prompting import template
from agent.scaffold import neutralise
from memory.schema import Author, Stage, Trajectory

RUBRICS, TAKEAWAYS = "reflection_rubrics", "reflection_takeaways"
END = f"</{TAKEAWAYS}>"

_SHARES = (4000, 1600, 800, 400, 200, 100, 40)
"""characters left of a shortened piece, tried in turn"""
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.S | re.I)
_FENCES = re.compile(
    rf"<(?=\s*/?\s*(?:run|question|reference_examples|{RUBRICS}|{TAKEAWAYS})\b)", re.I
)
HEADINGS = (
    "Critical Requirement",
    "Analytical Approach",
    "Communication & Structure",
    "Pitfalls",
)


@dataclass(frozen=True, slots=True)
class Parsed:
    """The two blocks; `fault` says in a sentence why the text is not exactly them."""

    rubrics: str = ""
    takeaways: str = ""
    fault: str = ""


def system() -> str:
    """What the policy is told to do."""
    return template("reflect")


def message(trajectory: Trajectory, characters: int) -> str:
    """The question and the run, the run cut to about so many characters."""
    run = harmless(shortened(trajectory, characters))
    question = harmless(trajectory.question)
    form = template("reflect_form")
    return f"<question>\n{question}\n</question>\n<run>\n{run}\n</run>\n\n{form}"


def form_grammar() -> str:
    """GBNF that holds a small model to the form: a line for each heading, one or two lessons."""
    lines = " ".join(f'"{heading}: " line "\\n"' for heading in HEADINGS)
    return (
        f'root ::= "<{RUBRICS}>\\n" {lines} "</{RUBRICS}>\\n<{TAKEAWAYS}>\\n- " line "\\n" '
        f'("- " line "\\n")? "</{TAKEAWAYS}>"\n'
        'line ::= [A-Za-z`] word? (" " word){4,35}\n'
        "word ::= [^ <\\n]+\n"
    )


def harmless(text: str) -> str:
    """Text that opens and closes none of the tags it is put between, nor a chat turn."""
    return _FENCES.sub("\u2039", neutralise(text))


def shortened(trajectory: Trajectory, characters: int) -> str:
    """What was written after the question, in at most `characters` where that can be."""
    pieces = [(s.author, s.stage, s.text) for s in trajectory.segments if s.kept and s.stage]
    text = "".join(text for *_, text in pieces)
    for cut in (_is_tool_output, _is_before_the_answer, _is_anything):
        for share in _SHARES:
            if len(text) <= characters:
                return text
            text = "".join(
                middle_cut(text, share) if cut(author, stage) else text
                for author, stage, text in pieces
            )
        pieces = [
            (author, stage, middle_cut(text, _SHARES[-1]) if cut(author, stage) else text)
            for author, stage, text in pieces
        ]
    return middle_cut(text, max(characters, _SHARES[-1]))


def middle_cut(text: str, characters: int) -> str:
    """The beginning and the end of a text that is longer than allowed."""
    if len(text) <= characters:
        return text
    half = characters // 2
    return f"{text[:half]} [...] {text[-half:]}"


def parse_reflection(text: str, *, cut_off: bool = False) -> Parsed:
    """The blocks of a reflection, or what is wrong with its form.

    Thinking before the first block is no part of it. Anything else around the blocks is a fault.
    """
    body = _THOUGHT.sub("", text).strip()
    found = [_block(body, tag) for tag in (RUBRICS, TAKEAWAYS)]
    fault = "It was cut off before its end." if cut_off else _fault(body, found)
    return Parsed(found[0] or "", found[1] or "", fault)


def _block(body: str, tag: str) -> str | None:
    block = re.search(rf"<{tag}>(.*?)</{tag}>", body, re.S)
    return block[1].strip() if block else None


def _fault(body: str, found: list[str | None]) -> str:
    for tag, block in zip((RUBRICS, TAKEAWAYS), found, strict=True):
        if block is None:
            return f"There is no whole {tag} block."
        if body.count(f"<{tag}>") > 1 or body.count(f"</{tag}>") > 1:
            return f"There is more than one {tag} block."
        if not block:
            return f"The {tag} block is empty."
        if _says_nothing(block):
            return f"The {tag} block has headings and nothing under them."
    rest = re.sub(rf"<({RUBRICS}|{TAKEAWAYS})>.*?</\1>", "", body, flags=re.S).strip()
    if rest:
        return "There is text outside the two blocks."
    if body.index(f"<{RUBRICS}>") > body.index(f"<{TAKEAWAYS}>"):
        return "The blocks are in the wrong order."
    return ""


def _says_nothing(block: str) -> bool:
    said = block
    for heading in HEADINGS:
        said = said.replace(heading, "")
    return not re.search(r"\w", said)


def _is_tool_output(author: Author, stage: Stage | None) -> bool:
    return author is Author.TOOL


def _is_before_the_answer(author: Author, stage: Stage | None) -> bool:
    return stage is not Stage.ANSWER


def _is_anything(author: Author, stage: Stage | None) -> bool:
    return True
