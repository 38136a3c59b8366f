"""A training shown while it goes on, on standard error: drawn in place, or as plain lines.

Standard output stays free for what the command prints at its end.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from agent.reports.printable import one_line
from memory.schema import Stage
from training.watching.events import Event, Watch
from training.watching.figures import lasting, reward_figures, step_figures
from training.watching.plain import PlainLines, Tell
from training.watching.progress import Progress

SAID = 3
"""lines told last that stay in sight"""
_HELD_OUT = {
    "held-out": "held-out questions after {} updates",
    "held-out pairs": "held-out pairs after {} rounds",
}
BAR = 30
"""columns of the bar at most"""


@contextmanager
def training_view(
    title: str, tell: Tell, *, quiet: bool = False, console: Console | None = None
) -> Iterator[tuple[Tell, Watch]]:
    """Where lines and events go, for as long as the context lasts.

    `tell` prints a plain line, which is all there is where standard error is no terminal.
    `quiet`: draw nothing on a terminal either.
    """
    console = console or Console(stderr=True, highlight=False)
    if quiet or not console.is_terminal or console.is_dumb_terminal:
        yield tell, PlainLines(tell)
        return
    view = _View(title)
    # Standard output is the command's: what is written there must not pass through here.
    with Live(
        get_renderable=view.draw, console=console, refresh_per_second=4, redirect_stdout=False
    ):
        yield view.say, view.listen


class _View:
    def __init__(self, title: str) -> None:
        self._title = title
        self._progress = Progress()
        self._said: deque[str] = deque(maxlen=SAID)

    def say(self, line: str) -> None:
        self._said.append(line)

    def listen(self, event: Event) -> None:
        self._progress.advance(event)

    def draw(self) -> Group:
        return drawing(self._title, self._progress, tuple(self._said))


def drawing(title: str, progress: Progress, said: Iterable[str] = ()) -> Group:
    """The live view: how far it is, the phases, the last numbers, and the last lines told."""
    parts: list[RenderableType] = [Text(one_line(title), style="bold"), _how_far(progress)]
    if progress.phases:
        parts.append(Text(f"  now    {_phases(progress)}", style="cyan"))
    if rewards := reward_figures(progress.metrics):
        parts.append(_line("reward", rewards))
    if figures := step_figures(progress.metrics):
        parts.append(_line("update", figures))
    if (held := progress.held_out) is not None:
        scored = [one for one in reward_figures(held.metrics) if one[0] in set(Stage)]
        parts.append(_line("held out", [*scored, ("after", f"{held.updates} updates")]))
    parts += [Text(f"  {one_line(line)}", style="dim") for line in said]
    for part in parts:
        if isinstance(part, Text) and part.style:
            # Numbers go on in the next line; words are cut.
            part.no_wrap, part.overflow = True, "ellipsis"
    return Group(*parts)


def _how_far(progress: Progress) -> RenderableType:
    told = f"  {progress.unit} {progress.done} of {progress.of}" if progress.of else "  beginning"
    part = progress.rows[0] / max(progress.rows[1], 1) if progress.rows else 0.0
    after = f"row {progress.rows[0]} of {progress.rows[1]}" if progress.rows else ""
    if (left := progress.left) is not None and progress.done < progress.of:
        after += f"{', ' if after else ''}about {lasting(left)} left"
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, min_width=len(told))
    table.add_column(max_width=BAR)
    table.add_column(no_wrap=True)
    bar = ProgressBar(max(progress.of, 1), progress.done + part)
    table.add_row(Text(told), bar, Text(after, style="dim"))
    return table


def _phases(progress: Progress) -> str:
    return " · ".join(
        _HELD_OUT.get(phase, f"{phase} round {{}}").format(number)
        for phase, number in progress.phases.items()
    )


def _line(name: str, figures: Iterable[tuple[str, str]]) -> Text:
    text = Text(f"  {name}")
    for label, value in figures:
        text.append(f"  {label} ", style="dim").append(value, style="bold")
    return text
