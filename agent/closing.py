"""How a run ends that was broken off: what there is becomes a report, without another call.

An answer that was begun is closed and says that it breaks off. Where there is none, code quotes
the passages that were found, each with its citation; it claims nothing of its own.
"""

from typing import Protocol

from agent.budgets import RunCut, reason_of
from agent.overlap import closest_sentence
from agent.reading import answer_text
from agent.run import Run
from agent.scaffold import neutralise, parse
from memory.schema import Source, Stage, Status

QUOTED = 5
"""passages quoted at most, the first found first"""
QUOTE_CHARACTERS = 400


class KeepsCut(Protocol):
    """A decoder that knows what of a turn in flight is worth keeping."""

    async def keep_cut(self, run: Run, cut: RunCut) -> None: ...


def without_evidence(run: Run) -> str:
    """Why a run has nothing to answer from."""
    if run.search_error:
        return f"the search failed: {run.search_error}"
    return "nothing was found"


async def close(run: Run, decoder: KeepsCut, cut: RunCut) -> None:
    """Note what broke the run off, and leave an answer that can be read."""
    run.cut_in = cut.stage
    await decoder.keep_cut(run, cut)
    run.attempt = 0
    # Whatever went wrong before, this is what ended it.
    run.status, run.ended_by = Status.PARTIAL, cut.by
    run.reason = reason_of(cut.by, run.spending.budgets)
    if answer_text(parse(run.text)):
        await _break_off(run)
    else:
        await _quote(run)


async def _break_off(run: Run) -> None:
    """Close an answer in progress; one that its author had closed stands as it is."""
    answer = [block for block in parse(run.text).blocks if block.tag == "answer"][-1]
    if answer.closed:
        return
    within = "</cite>" if answer.children and not answer.children[-1].closed else ""
    await run.prompt(Stage.ANSWER, f"{within}\n\n(The answer breaks off here.)\n</answer>\n")


async def _quote(run: Run) -> None:
    found = run.evidence.own[:QUOTED]
    said = "This is what had been found by then, quoted:" if found else "Nothing had been found."
    await run.prompt(Stage.ANSWER, f"\n<answer>\nNo answer was written. {said}\n")
    for source in found:
        quote = _quotation(run.ask.question, source)
        await run.prompt(Stage.ANSWER, f'\n- <cite id="{source.id}">{quote}</cite>')
    await run.prompt(Stage.ANSWER, "\n</answer>\n")


def _quotation(question: str, source: Source) -> str:
    """The sentence nearest to the question, or the passage's beginning, on one line."""
    text = closest_sentence(question, source.text) or source.text or source.title
    return neutralise(" ".join(text.split())[:QUOTE_CHARACTERS])
