"""Which trajectories are unfit to be imitated: the rejection rules of supervised fine-tuning.

The first four rules are those of RubricEM (arXiv:2605.10899, appendix B.2.3); its section 3.2
also names citation format and grounding, for which the last two are switched on. A round is
what the policy wrote between tool outputs, with the tags that the runner wrote for it where the
decoding was forced. Rules are tried in their order, so the first one broken is named.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from agent.reading import Cite, answer_text, citations
from agent.scaffold import Document, lacks, malformed, parse, tool_call
from memory.schema import Author, Decoding, Trajectory

_FAILED = re.compile(r'\s*<tool_output\s+error="([^"]*)"')


class Rule(StrEnum):
    """The rules by name, in the order in which they are tried."""

    NO_ANSWER = "no_answer"
    NO_CALL = "no_call"
    STRUCTURE = "structure"
    TOOL_ERRORS = "tool_errors"
    CITATION = "citation"
    SUPPORT = "support"


@dataclass(frozen=True, slots=True)
class Rejection:
    """The rule broken, and how, in one sentence."""

    rule: Rule
    sentence: str


def rejected(
    trajectory: Trajectory,
    *,
    citations: bool = False,
    supported: Callable[[Cite], bool] | None = None,
) -> Rejection | None:
    """The first rule that the trajectory breaks, or None if it is fit to be imitated.

    `citations` switches rule 5 on: every cite names passages that were really retrieved.
    `supported` switches rule 6 on: it says whether a cite's claim is supported, and one must be.
    """
    return next(_broken(trajectory, citations, supported), None)


def rounds(trajectory: Trajectory) -> list[Document]:
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
    failed = _FAILED.match(text)
    return failed[1] if failed else None


def _broken(
    trajectory: Trajectory, check_ids: bool, supported: Callable[[Cite], bool] | None
) -> Iterator[Rejection]:
    documents = rounds(trajectory)
    last = documents[-1] if documents else parse("")
    if not answer_text(last) or not all(block.closed for block in last.find("answer")):
        yield Rejection(Rule.NO_ANSWER, "The last round has no closed answer with text in it.")
    for number, document in enumerate(documents[:-1], start=1):
        if tool_call(document.text) is None:
            yield Rejection(Rule.NO_CALL, f"Round {number} makes no tool call.")
    for number, document in enumerate(documents, start=1):
        if faults := _structure_faults(document, number):
            yield Rejection(Rule.STRUCTURE, f"Round {number}: {faults[0]}")
    if reasons := _consecutive_errors(trajectory):
        yield Rejection(Rule.TOOL_ERRORS, f"Two tool calls running failed: {'; '.join(reasons)}.")
    cites = citations(last)
    if check_ids:
        yield from _citation_faults(trajectory, cites)
    if supported is not None and not any(supported(cite) for cite in cites):
        yield Rejection(Rule.SUPPORT, "No cited claim of the answer is supported.")


def _structure_faults(document: Document, number: int) -> list[str]:
    needed = (
        ("structured_plan", "deep_analysis", "rubric") if number == 1 else ("state_evaluation",)
    )
    return lacks(document, *needed) + malformed(document)


def _consecutive_errors(trajectory: Trajectory) -> tuple[str, str] | None:
    """The reasons of the first two tool errors with no success between them."""
    outputs = [s.text for s in trajectory.segments if s.kept and s.author is Author.TOOL]
    for first, second in pairwise(tool_error(text) for text in outputs):
        if first is not None and second is not None:
            return first, second
    return None


def _citation_faults(trajectory: Trajectory, cites: list[Cite]) -> Iterator[Rejection]:
    known = {source.id for source in trajectory.sources}
    for cite in cites:
        if not cite.ids:
            yield Rejection(Rule.CITATION, "A cite of the answer names no id.")
        for unknown in (i for i in cite.ids if i not in known):
            yield Rejection(Rule.CITATION, f"The cited id {unknown} was never returned by a tool.")
