"""The report of a run for a page: HTML of the answer, and all that it stands on.

The answer's HTML is made by the same renderer as a report's own page: Markdown without HTML,
links or images, every mark a button that names its citation. All else is text for the page to
show as text.
"""

from typing import Any

from agent.reports.citations import cited_answer
from agent.reports.cited import CitedAnswer
from agent.reports.printable import one_line, printable
from agent.reports.report import markdown, notes, quotes, stage_texts
from agent.reports.report_page import answer_html
from agent.reports.verified import verified_json
from agent.serve.checklist import checklist
from agent.serve.telling import citations_of
from memory.schema import Source, Trajectory

LONGEST_PASSAGE = 4000
"""characters"""


def report_of(trajectory: Trajectory) -> dict[str, Any]:
    """The whole report; takes a while for a long one."""
    answer = cited_answer(trajectory)
    stages = stage_texts(trajectory)
    return {
        "question": trajectory.question,
        "status": trajectory.status.value,
        "reason": trajectory.reason,
        "notes": notes(trajectory, answer),
        "html": answer_html(answer),
        "markdown": markdown(trajectory),
        "sources": [_source(answer, source) for source in answer.sources],
        "citations": citations_of(trajectory),
        "verified": verified_json(trajectory),
        "recalled": [item.model_dump(mode="json") for item in trajectory.recollections],
        "stages": [
            {"stage": stage.value, "text": printable(text)} for stage, text in stages.items()
        ],
        "rubric": checklist(trajectory.transcript()),
    }


def without_answer(question: str, status: str, reason: str) -> dict[str, Any]:
    """The report of a run that ended before anything was written."""
    empty: dict[str, Any] = {
        name: [] for name in ("notes", "sources", "citations", "recalled", "stages", "rubric")
    }
    head = {"question": question, "status": status, "reason": reason, "verified": None}
    return {**head, "html": "", "markdown": "", **empty}


def _source(answer: CitedAnswer, source: Source) -> dict[str, Any]:
    return {
        "id": source.id,
        "number": answer.of(source)[0].number,
        "title": one_line(source.title),
        "url": one_line(source.location),
        "place": one_line(source.place),
        "passage": printable(source.text)[:LONGEST_PASSAGE],
        "quotes": quotes(answer, source),
        "copies": list(source.copies),
    }
