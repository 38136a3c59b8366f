"""The settings that a run of before goes on with: what shaped its answer stays as it was."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.asking import Ask
from agent.clients import CHOICES, budgets_of, choices_of
from agent.researcher import ask_of
from agent.serve.asked import BudgetsAsked
from agent.serve.refusals import conflict
from agent.settings import Settings
from memory.errors import RubricemError, StoreError

_OF_THE_MODEL = ("model", "base_url")
BUDGETS = {"tokens": "max_total_tokens", "seconds": "max_seconds", "cost": "max_cost"}
"""budget of a run -> its setting"""


def asked_before(
    settings: Settings, request: Mapping[str, Any], budgets: BudgetsAsked | None
) -> tuple[Settings, Ask]:
    """What a run was asked, and the settings that it goes on with.

    Raises StoreError for a request that is damaged, or written by a version that knows more.
    """
    try:
        settings = settings_of_run(settings, request, budgets)
        return settings, replace(ask_of(request), budgets=budgets_of(settings))
    except RubricemError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            "What the run was asked cannot be read.", "Ask the question anew."
        ) from error


def settings_of_run(
    settings: Settings, request: Mapping[str, Any], budgets: BudgetsAsked | None
) -> Settings:
    """The server's settings with those of the run in them; Refused (409) where they do not fit.

    Budgets are those of the run but where others are given.
    """
    choices = request["choices"]
    kept = {
        name: choices[name] for name in CHOICES if name in choices and name not in _OF_THE_MODEL
    }
    kept["source"] = tuple(kept.get("source", settings.source))
    given = budgets.model_dump(exclude_none=True) if budgets else {}
    settings = settings.model_copy(update={**kept, **limits_of(request), **given})
    now = choices_of(settings)
    if any(now.get(name) != value for name, value in choices.items()):
        raise conflict(
            "The run was asked of another model, or with settings that this server does not have.",
            "Go on with it by rubricem ask --resume and its name.",
        )
    return settings


def limits_of(request: Mapping[str, Any]) -> dict[str, float]:
    """What a run may spend, by setting; 0: no limit."""
    kept = request.get("budgets", {})
    return {BUDGETS[name]: value or 0 for name, value in kept.items() if name in BUDGETS}
