"""Tools of MCP servers in forced decoding: code says when one is called, the model with what.

A small model says of almost any evidence that nothing is missing, and then calls nothing, or calls
whatever it is offered. So the question is always searched for first. After that a tool is due,
once, where its description shares two words with the question and no passage holds one of them:
the model then chooses among the tools that are due and writes the arguments. It is free to call
or not to call tools that come nearer to the question than that, or any where the search found
little of it. A grammar holds it to a whole call, or to what would have come without one.
"""

import re
from dataclasses import dataclass, replace

from agent.mcp_tools.equipped import Equipped
from agent.mcp_tools.grammar import CLOSING, NAMED, OPENING, call_grammar
from agent.mcp_tools.offers import Offer, properties_of
from agent.overlap import content_words
from agent.run import Run
from agent.slots import TOOL_CALL, OnSlot
from memory.schema import Stage

MOST_OFFERED = 6
"""tools of which a small model is told"""
MUCH = 2
"""words of the question that a tool's description holds, from which it is about the question"""
_CALL = re.compile(rf"{re.escape(OPENING)}([^\"]+){re.escape(NAMED)}([^<]*)")
_TOLD = "Tools that can be called now, for what is missing:\n"


@dataclass(frozen=True, slots=True)
class Fitting:
    """The tools that may give what the search has not found, best first."""

    offers: tuple[Offer, ...] = ()
    due: bool = False
    """one of them is to be called"""


def fitting(run: Run) -> Fitting:
    """What of the run's tools fits its question and what was read so far."""
    tools = run.search_tool
    if not isinstance(tools, Equipped):
        return Fitting()
    asked = content_words(run.evidence.alone(run.ask.question))
    unread = asked - content_words(" ".join(f"{s.title} {s.text}" for s in run.sources.values()))
    spoken = {name: asked & _words(offer) for name, offer in tools.offers.items()}
    best = sorted(spoken, key=lambda name: -len(spoken[name]))
    due = [n for n in best if len(spoken[n]) >= MUCH and spoken[n] & unread and not _called(run, n)]
    if not due and 2 * len(unread) < len(asked):
        best = [name for name in best if len(spoken[name]) >= MUCH or spoken[name] & unread]
    chosen = [tools.offers[name] for name in due or best]
    return Fitting(tuple(chosen[:MOST_OFFERED]), due=bool(due))


async def call_chosen(
    run: Run, fit: Fitting, otherwise: str, on_slot: OnSlot | None = None
) -> str | None:
    """A call of one of the tools, if it was not made before and the model chooses one.

    `otherwise`: how the transcript goes on where it chooses none.
    """
    told = "".join(f"- {offer.line()}\n" for offer in fit.offers)
    if told not in run.text:
        await run.prompt(Stage.RESEARCH, _TOLD + told)
    grammar = call_grammar(fit.offers, "" if fit.due else otherwise)
    sampling = replace(TOOL_CALL.sampling, max_tokens=TOOL_CALL.cap, grammar=grammar)
    written = await run.write(Stage.RESEARCH, sampling, live=False)
    chosen = _CALL.match(written.text)
    name, arguments = (chosen[1], " ".join(chosen[2].split())) if chosen else ("", "")
    if on_slot:
        on_slot(TOOL_CALL, f"{name} {arguments}".strip(), written)
    call = f"{name}{NAMED}{arguments}"
    if name not in {offer.name for offer in fit.offers} or f"{OPENING}{call}{CLOSING}" in run.text:
        return None
    await run.prompt(Stage.RESEARCH, OPENING)
    await run.keep_edited(Stage.RESEARCH, call)
    await run.prompt(Stage.RESEARCH, f"{CLOSING}\n")
    return f"{name} {arguments}"


def _called(run: Run, name: str) -> bool:
    """Whether a tool was called, whatever came of it."""
    return f"{OPENING}{name}{NAMED}" in run.text


def _words(offer: Offer) -> frozenset[str]:
    """What a tool is about: its own name, not its server's, its description and arguments."""
    arguments = " ".join(map(str, properties_of(offer.schema)))
    return content_words(f"{offer.tool} {offer.description} {arguments}")
