"""What the policy does next: a search, or a page to be opened; one action a turn."""

from dataclasses import dataclass
from typing import Literal

from agent.scaffold import ToolCall
from agent.sources.query import narrowed

Tool = Literal["search", "open_page"]
OPEN_PAGE: Tool = "open_page"


@dataclass(frozen=True, slots=True)
class Action:
    """A tool and what it is given: a query; or a source's id or an address, and words to find."""

    text: str
    tool: Tool = "search"


def action_of(call: ToolCall) -> Action:
    """The action that a call asks for; a tool that does not exist is taken for the search."""
    if call.name.strip().lower() == OPEN_PAGE:
        return Action(call.query, OPEN_PAGE)
    return Action(narrowed(call.query, call.attributes))
