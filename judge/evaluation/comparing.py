"""A judge shown labelled pairs, in one order or in both."""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

from judge.evaluation.labelled import Comparison, Pair, Winner, mirrored
from judge.pairwise import Comparer, Preference

Item = TypeVar("Item")
Orders = Literal["both", "one"]
"""`both`: each pair twice; `one`: each once, in an order drawn from the seed"""
Task = tuple[Pair, bool]
"""a pair, and whether its second answer is shown first"""


def tasks_of(
    pairs: Iterable[Pair], orders: Orders, seed: int, done: Iterable[Comparison] = ()
) -> list[Task]:
    """What has still to be shown. A drawn order hangs on the seed and the pair alone."""
    known = {(c.pair, c.swapped) for c in done}
    shown = [
        (pair, swapped)
        for pair in pairs
        for swapped in ((False, True) if orders == "both" else (_drawn(pair, seed),))
    ]
    return [(pair, swapped) for pair, swapped in shown if (pair.id, swapped) not in known]


async def compare_all(
    comparer: Comparer,
    tasks: Sequence[Task],
    at_once: int,
    on_done: Callable[[Comparison], None],
) -> list[Comparison]:
    """One comparison for each task, in their order; `on_done` is told each as it comes.

    A judge that fails is a comparison without a winner; what else is raised ends all.
    """
    places = asyncio.Semaphore(at_once)

    async def compare(pair: Pair, swapped: bool) -> Comparison:
        async with places:
            comparison = await shown(comparer, pair, swapped)
        on_done(comparison)
        return comparison

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(compare(*task)) for task in tasks]
    return [task.result() for task in running]


async def shown(comparer: Comparer, pair: Pair, swapped: bool) -> Comparison:
    """The verdict on one pair in one order, told in the pair's own numbering."""
    texts = (pair.second, pair.first) if swapped else (pair.first, pair.second)
    said = await comparer.prefer(pair.prompt, *texts)
    winner, share = winner_of(said), said.first_share
    return Comparison(
        pair=pair.id,
        judge=comparer.name,
        swapped=swapped,
        winner=mirrored(winner) if swapped else winner,
        share=1 - share if swapped and share is not None else share,
        reason=said.reason,
        text=said.text,
        usage=said.usage,
    )


def winner_of(preference: Preference) -> Winner | None:
    """Who won of the two as shown; a reading that is exactly undecided is a tie."""
    if preference.winner is not None:
        return "first" if preference.winner == "A" else "second"
    return "tie" if preference.first_share == 0.5 else None


def sample(listed: Sequence[Item], limit: int | None, seed: int) -> list[Item]:
    """At most so many, drawn evenly from all, in the data's order."""
    if limit is None or limit >= len(listed):
        return list(listed)
    return [listed[i] for i in sorted(random.Random(seed).sample(range(len(listed)), limit))]


def _drawn(pair: Pair, seed: int) -> bool:
    return random.Random(f"{seed}\0{pair.id}").random() < 0.5
