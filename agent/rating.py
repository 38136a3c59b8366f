"""A person's rating of a run: kept beside it, and the run waits for a learning that knows it."""

from agent.learnable import WRITTEN, Mark, queued, set_mark
from memory.ratings import rate
from memory.runs import RunStore


def rated(store: RunStore, thread: str, score: int, comment: str = "") -> str:
    """Keep a rating of 1 to 5; returns a sentence that says when it is learnt from.

    Raises SettingsError where there is no ended run of this name, or the comment is too long.
    """
    store.load(thread)
    folder = store.folder / thread
    rate(folder, score, comment)
    if (folder / WRITTEN).exists():
        set_mark(folder, Mark(reason="it was rated after it had been learnt from"))
        return "It was learnt from before the rating; it waits again: rubricem learn"
    if thread in queued(store):
        return "It waits to be learnt from, with the rating: rubricem learn"
    return f"It does not wait to be learnt from; to do so: rubricem learn {thread}"
