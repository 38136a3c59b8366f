"""A plan as text that a person reads and edits, and the plan that such a text holds."""

from agent.approval import Plan
from agent.reports.printable import one_line

RUBRIC, RESEARCH, QUERY = "## Rubric", "## Research plan", "## First search"
_HEADINGS = (RUBRIC, RESEARCH, QUERY)


def as_text(plan: Plan) -> str:
    """The plan as it is shown and edited."""
    items = "\n".join(f"- {one_line(item.lstrip('-* '))}" for item in plan.rubric)
    parts = (RUBRIC, f"{items}\n", RESEARCH, f"{plan.research_plan}\n", QUERY, one_line(plan.query))
    return "\n".join(parts) + "\n"


def from_text(text: str) -> Plan:
    """The plan that such a text holds; a part whose heading is gone is empty."""
    parts: dict[str, list[str]] = {}
    at = ""
    for line in text.splitlines():
        if line.strip() in _HEADINGS:
            at = line.strip()
        else:
            parts.setdefault(at, []).append(line)
    rubric = (line.strip().lstrip("-*").strip() for line in parts.get(RUBRIC, []))
    return Plan(
        rubric=tuple(item for item in rubric if item),
        research_plan="\n".join(parts.get(RESEARCH, [])).strip(),
        query=" ".join(" ".join(parts.get(QUERY, [])).split()),
    )
