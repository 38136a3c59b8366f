"""What code can tell of a stage, as rubrics: whether its form is whole, and what its cites hold.

They stand in front of the judge's opinion, which then need not be asked for.
"""

from typing import Any

from agent.rejection import rounds
from agent.reports.citations import cited_answer
from agent.reports.cited import Cited, Uncited
from agent.scaffold import CHILDREN, Document
from judge.composed_judge import Compositions, Judged, StageView
from judge.rubrics import Gate, Rubric, Sequential
from memory.schema import Stage

NEEDED = {
    Stage.PLAN: ("structured_plan", *CHILDREN["structured_plan"]),
    Stage.RESEARCH: ("state_evaluation",),
    Stage.REVIEW: ("review", *CHILDREN["review"]),
    Stage.ANSWER: ("answer",),
}
"""blocks that a stage consists of: closed, and with text in them"""
HELD = 0.5
"""share of a claim's content words that a passage it cites must hold"""
LEAST_SUPPORT = 0.5
"""share of the cited claims that must be held"""


class Valid(Rubric):
    """1 where every turn of the stage has the blocks that it needs, else 0."""

    def forward(self, action: Any, observation: StageView) -> float:
        turns = rounds(observation.trajectory)
        stage = observation.stage
        own = {Stage.PLAN: turns[:1], Stage.RESEARCH: turns[1:]}.get(stage, turns[-1:])
        return float(bool(own) and all(_whole(turn, tag) for turn in own for tag in NEEDED[stage]))


class Supported(Rubric):
    """Share of the answer's cited claims of which a cited passage holds most words; 0 without."""

    def forward(self, action: Any, observation: StageView) -> float:
        pieces = cited_answer(observation.trajectory).pieces
        claims = [piece for piece in pieces if isinstance(piece, Cited | Uncited)]
        held = [
            isinstance(claim, Cited) and any(c.overlap >= HELD for c in claim.citations)
            for claim in claims
        ]
        return sum(held) / len(held) if held else 0.0


def gated() -> Compositions:
    """The judge's score for a stage of whole form, and for an answer whose citations hold."""
    formed = dict.fromkeys(Stage, lambda: Sequential(Gate(Valid()), Judged()))
    return {**formed, Stage.ANSWER: _gated_answer}


def _gated_answer() -> Rubric:
    return Sequential(Gate(Valid()), Gate(Supported(), LEAST_SUPPORT), Judged())


def _whole(document: Document, tag: str) -> bool:
    blocks = document.find(tag)
    return all(block.closed for block in blocks) and any(
        document.inner(block).strip() for block in blocks
    )
