"""From settings to the gate of a collecting run, and how much of it goes on at the same time."""

import math
from typing import Protocol, runtime_checkable

from agent.choice import EmbeddedChoice, choose_policy
from agent.settings import Settings
from memory.errors import SettingsError


@runtime_checkable
class Served(Protocol):
    """A model on a server, which may cost money."""

    name: str
    price: object
    """None: nobody knows it"""


def at_once(settings: Settings, processes: int = 1) -> int:
    """Runs in progress at the same time: more than an embedded model has slots would make it
    read one run's transcript again after another's.
    """
    if isinstance(choose_policy(settings), EmbeddedChoice):
        return settings.slots * processes
    return settings.concurrency


def judged_at_once(
    settings: Settings, judged_by: Settings, group_size: int, *, apart: bool = False
) -> int | None:
    """Groups being judged at the same time; None: in the places of rollouts.

    An embedded policy also writes the reflections, which belong to judging. A server's calls are
    bounded by its limiter, so here are as many groups as could fill it. `apart`: rollouts are
    written in other processes, by models of their own.
    """
    if isinstance(choose_policy(settings), EmbeddedChoice):
        return settings.slots if apart else None
    if isinstance(choose_policy(judged_by), EmbeddedChoice):
        return judged_by.slots
    return math.ceil(judged_by.concurrency / group_size)


def check_priced(*models: object, limit: str = "--max-run-cost") -> None:
    """Raise SettingsError where a limit of money could not be kept for want of a price."""
    unknown = [m.name for m in models if isinstance(m, Served) and m.price is None]
    if unknown:
        raise SettingsError(
            f"{limit} cannot be kept: the price of {unknown[0]} is not known.",
            "Name it under prices in rubricem.toml: MODEL = [prompt, cached, completion], in US "
            "dollars for a million tokens.",
        )
