"""A training as one self-contained page: no script, nothing loaded, every text escaped."""

from pathlib import Path

from memory.runs import write_atomically
from memory.schema import Stage
from training.run_page_frame import rendered
from training.watching.charts import (
    REWARDS,
    UPDATES,
    WORK,
    charts,
    held_out_charts,
)
from training.watching.kept import KeptNumbers
from training.watching.summary import (
    PAIR_HEADS,
    about,
    asked_rows,
    facts,
    pair_rows,
    settings,
    shown_numbers,
)


def write_training_page(path: Path, kept: KeptNumbers, title: str) -> None:
    """Write the page; `title` names the training, by its folder."""
    write_atomically(path, training_page(kept, title))


def training_page(kept: KeptNumbers, title: str) -> str:
    """Curves of everything that was measured; what was not has no chart."""
    return rendered(
        "training_page.html",
        {},
        title=title,
        about=about(kept),
        facts=facts(kept),
        kept=kept,
        stages=[stage.value for stage in Stage],
        asked=asked_rows(kept),
        pair_heads=PAIR_HEADS,
        pairs=pair_rows(kept),
        held_out=held_out_charts(kept),
        rewards=charts(REWARDS, kept),
        updates=charts(UPDATES, kept),
        work=charts(WORK, kept),
        settings=settings(kept.record),
        numbers=shown_numbers(kept.last),
    )
