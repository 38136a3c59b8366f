"""Going on with an earlier run: its question, what shaped its answer, and its budgets.

What shapes the answer is kept as it was; budgets are kept unless others are given now, which is
how a run that ran out of one goes on.
"""

from collections.abc import Mapping
from typing import Any

from agent.settings import Settings, load_settings
from memory.errors import SettingsError
from memory.runs import RunStore
from memory.schema import Status

LATEST = "-"
"""in the place of a thread: the latest run that has not come to its end"""
LIMITS = ("answer_format", "tool_calls", "max_tokens", "seed", "approve_plan", "clarify")
"""the settings that are part of what was asked"""
BUDGETS = {"tokens": "max_total_tokens", "seconds": "max_seconds", "cost": "max_cost"}
"""budget -> its setting"""
_OVER = (Status.FINISHED, Status.NO_EVIDENCE)


def resumed(thread: str, question: str, flags: dict[str, Any]) -> tuple[str, Settings, str]:
    """The thread, the settings and the question of an earlier run."""
    from agent.clients import choices_of

    store = RunStore(load_settings(flags).data_dir)
    thread = latest(store) if thread == LATEST else thread
    request = store.request(thread)
    if question and question != request["ask"]["question"]:
        raise SettingsError(
            f"The thread {thread!r} holds another question.", "Resume it without a question."
        )
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    limits = {name: request["ask"][name] for name in LIMITS if name in request["ask"]}
    settings = load_settings({**_kept(request), **limits, **given})
    choices = choices_of(settings)
    same = all(choices.get(name) == value for name, value in request["choices"].items())
    if not same or any(given.get(name, value) != value for name, value in limits.items()):
        raise SettingsError(
            f"The thread {thread!r} was asked with other settings, and a resume keeps them.",
            "Resume it without flags but those of its budgets, or ask the question anew.",
        )
    return thread, settings, request["ask"]["question"]


def latest(store: RunStore) -> str:
    """The run begun last of those that failed, ended early or were killed."""
    for thread in reversed(store.threads()):
        if not store.ended(thread) or store.load(thread).status not in _OVER:
            return thread
    raise SettingsError(
        "There is no run to go on with: all have come to their end.",
        "rubricem runs lists them; name one by --resume THREAD.",
    )


def _kept(request: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a request, as if all had been named now.

    What was not named then is not named now, whatever the environment has come to say.
    """
    choices = request["choices"]
    kept = {name: "" if value is None else value for name, value in choices.items()}
    budgets = request.get("budgets", {})
    limits = {BUDGETS[name]: 0 if value is None else value for name, value in budgets.items()}
    return {**kept, "temperature": choices["temperature"], **limits}
