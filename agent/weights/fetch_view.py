"""Show a fetch on standard error: a bar on a terminal, a plain line at each new step elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from agent.weights.catalogue import OnProgress


@contextmanager
def shown_fetch(name: str, console: Console | None = None) -> Iterator[OnProgress]:
    """An `OnProgress` that draws; nothing is drawn when nothing has to be fetched."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield _plain_lines(name, console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, TransferSpeedColumn(), console=console, transient=True) as bar:
        yield _bar(name, bar)


def _plain_lines(name: str, console: Console) -> OnProgress:
    said = ""

    def on_progress(done: int, total: int, doing: str) -> None:
        nonlocal said
        if doing != said:
            said = doing
            console.print(f"{name}: {doing} ({done >> 20} of {total >> 20} MiB)", soft_wrap=True)

    return on_progress


def _bar(name: str, bar: Progress) -> OnProgress:
    task = bar.add_task(name, total=None, visible=False)

    def on_progress(done: int, total: int, doing: str) -> None:
        description = f"{name}: {doing}"
        bar.update(task, completed=done, total=total, description=description, visible=True)

    return on_progress
