"""What a run was given of the bank, as a report shows it: a line for each reflection."""

from html import escape

from agent.reports.printable import one_line
from memory.schema import Recollection, Trajectory

TITLE = "Recalled from earlier runs"
QUESTION = 200
"""characters of a question at most"""


def recalled_lines(trajectory: Trajectory) -> list[str]:
    """One printable line for each; of runs that kept the ids alone, these."""
    items = trajectory.recollections or [Recollection(id=name) for name in trajectory.recalled]
    return [_line(item) for item in items]


def recalled_section(trajectory: Trajectory) -> str:
    """The same as a section of the page; "" for nothing."""
    if not trajectory.recalled:
        return ""
    shown = "\n".join(f'<li dir="auto">{escape(line)}</li>' for line in recalled_lines(trajectory))
    return (
        '<section aria-labelledby="recalled-title">\n'
        f'<h2 id="recalled-title">{TITLE}</h2>\n<ul class="recalled">\n{shown}\n</ul>\n</section>'
    )


def _line(item: Recollection) -> str:
    how = "this very question" if item.own else "a similar question"
    if item.similarity is not None:
        how = f"{how} ({item.similarity:.2f})"
    if not item.question:
        return item.id
    said = [f"{how}: {one_line(item.question, QUESTION)}"]
    said += [f"scored {item.score:.2f}"] if item.score is not None else []
    return " \u00b7 ".join([*said, item.id])
