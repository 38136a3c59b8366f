"""The way to an answer on its page: the rubric as a checklist and the stages, folded."""

from collections.abc import Iterator
from html import escape

from agent.reading import rubric_items
from agent.reports.printable import one_line, printable
from agent.reports.report import stage_texts
from agent.scaffold import Block, Document, parse
from memory.schema import Stage, Trajectory

SHOWN = 20_000
"""characters of one block at most"""

_TITLES = {
    Stage.PLAN: "Plan",
    Stage.RESEARCH: "Research",
    Stage.REVIEW: "Review",
    Stage.ANSWER: "Answer",
}
_LABELS = {
    "think": "Thinking",
    "deep_analysis": "Analysis",
    "rubric": "Rubric",
    "research_plan": "Research plan",
    "call_tool": "Search",
    "tool_output": "Found",
    "state_evaluation": "Evaluation",
    "rubric_review": "Rubric, item by item",
    "writing_plan": "Writing plan",
    "answer": "As written, before its marks were resolved",
}


def rubric_section(trajectory: Trajectory) -> str:
    """The last rubric written for the question; "" where there is none."""
    items = latest_rubric(parse(printable(trajectory.transcript())))
    if not items:
        return ""
    shown = "\n".join(f'<li dir="auto">{escape(one_line(item))}</li>' for item in items)
    return (
        '<section aria-labelledby="rubric-title">\n'
        '<h2 id="rubric-title">Rubric written for this question</h2>\n'
        f'<ul class="checklist">\n{shown}\n</ul>\n</section>'
    )


def latest_rubric(document: Document) -> list[str]:
    """The items of the last rubric that holds any."""
    found = (rubric_items(document.inner(block)) for block in reversed(document.find("rubric")))
    return next((items for items in found if items), [])


def stages_section(trajectory: Trajectory) -> str:
    """Every stage that was reached, each in a fold."""
    folds = "\n".join(_stage(stage, text) for stage, text in stage_texts(trajectory).items())
    if not folds:
        return ""
    return (
        '<section aria-labelledby="stages-title">\n<h2 id="stages-title">How it was found</h2>\n'
        f'<div class="stages">\n{folds}\n</div>\n</section>'
    )


def _stage(stage: Stage, text: str) -> str:
    document = parse(printable(text))
    blocks = list(_leaves(document.blocks))
    shown = "".join(_block(document, block) for block in blocks)
    searches = sum(block.tag == "call_tool" for block in blocks)
    count = f"<small>{searches} search{'' if searches == 1 else 'es'}</small>" if searches else ""
    body = shown or f'<div class="block"><p dir="auto">{escape(_cut(document.text))}</p></div>'
    return f"<details><summary>{_TITLES[stage]}{count}</summary>{body}</details>"


def _leaves(blocks: tuple[Block, ...]) -> Iterator[Block]:
    """The blocks that hold text: a plan and a review are only their parts."""
    for block in blocks:
        if block.tag in ("structured_plan", "review"):
            yield from _leaves(block.children)
        else:
            yield block


def _block(document: Document, block: Block) -> str:
    text = f'<p dir="auto">{escape(_cut(document.inner(block).strip()))}</p>'
    label = _LABELS.get(block.tag, block.tag)
    if block.tag == "tool_output":
        ids = (one_line(b.attributes.get("id", ""), 12) for b in block.children)
        named = ", ".join(filter(None, ids)) or "nothing"
        text = f"<details><summary>{escape(named)}</summary>{text}</details>"
    kind = " search" if block.tag == "call_tool" else ""
    return f'<div class="block{kind}"><h3>{label}</h3>{text}</div>'


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else text[:SHOWN] + "\u2026"
