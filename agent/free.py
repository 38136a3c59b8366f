"""Free decoding: the policy writes whole turns; nothing it wrote is edited.

A turn ends right after `</call_tool>` or `</answer>`. A turn that breaks the scaffold is asked
again a bounded number of times, with a note saying what was wrong; the failed attempt is kept
outside the transcript. What is still wrong after the last attempt is used as far as it goes:
the run then ends partial, never empty without a reason.
"""

import re
from dataclasses import replace

from agent.events import TurnRetried
from agent.formats import INSTRUCTION
from agent.prompting import fill, template
from agent.reading import stage_spans
from agent.run import Found, Run
from agent.scaffold import neutralise, parse, tool_call, turn_faults
from agent.toolout import tool_output
from memory.interfaces import Completion, Sampling
from memory.schema import Author, Stage

ROOM_FOR_AN_ANSWER = 1500
"""tokens that must still fit before another search is allowed"""

_END_OF_TURN = re.compile(r"</\s*(?:call_tool|answer)\s*>|(?=<tool_output\b)", re.I)
"""a tool output that the model invents ends its turn too: only the runner writes those"""


class FreeDecoder:
    """Has the policy write its turns itself; the default on every server."""

    def __init__(self, sampling: Sampling | None = None, attempts: int = 3) -> None:
        self._sampling = sampling or Sampling()
        self._attempts = attempts

    def system(self, run: Run) -> str:
        return fill(template("free"), {"tool_calls": str(run.ask.tool_calls)})

    def message(self, run: Run) -> str:
        question = neutralise(run.ask.question)
        return f"{question}\n\n{INSTRUCTION[run.ask.answer_format]}"

    async def plan(self, run: Run) -> str:
        """Write the first turn; where it asks for nothing, the question itself is searched."""
        text = await self._turn(run, Stage.PLAN)
        call = tool_call(text)
        return call.query if call and call.query else run.ask.question

    async def observe(self, run: Run, found: Found) -> None:
        text = tool_output(found, run.ask.passage_words)
        await run.prompt(Stage.RESEARCH, "\n" + text, Author.TOOL)

    async def research(self, run: Run) -> str | None:
        """Write a later turn; return its query, or None when it went on to review or answer."""
        # Turns, not calls, are counted: a query that is repeated for ever is no call.
        spent = run.turn > run.ask.tool_calls or not self._fits(run)
        if spent:
            note = "No further search is possible. Now write the review and the answer."
            await run.prompt(Stage.RESEARCH, f"\n{note}\n")
        call = tool_call(await self._turn(run, Stage.RESEARCH, must_answer=spent))
        return call.query if call and call.query and not spent else None

    async def review(self, run: Run) -> None:
        """Nothing to do where the last turn already held the review; else ask for it."""
        if not _has(run.text, "review") and not _has(run.text, "answer"):
            await run.prompt(Stage.REVIEW, "\nNow write the review and then the answer.\n")
            await self._turn(run, Stage.REVIEW, must_answer=True)

    async def answer(self, run: Run) -> None:
        if not _has(run.text, "answer"):
            await run.prompt(Stage.ANSWER, "\nNow write the answer in <answer> tags.\n")
            await self._turn(run, Stage.ANSWER, must_answer=True)
        if not _has(run.text, "answer"):
            run.end_early("the model never wrote an answer in its tags; its last words are shown")

    def _fits(self, run: Run) -> bool:
        room = run.room()
        return room is None or room > ROOM_FOR_AN_ANSWER

    async def _turn(self, run: Run, stage: Stage, *, must_answer: bool = False) -> str:
        """One turn of the policy, after at most `attempts` tries."""
        for run.attempt in range(self._attempts):
            written = await run.write(stage, self._sampling_of(run), _end_of_turn)
            faults = _faults(written, run.turn, must_answer)
            if not faults or run.attempt == self._attempts - 1:
                break
            run.discard(stage, written)
            run.listener(TurnRetried(" ".join(faults)))
            await run.prompt(stage, f"Your turn was not accepted. {' '.join(faults)} Again:\n")
        if faults:
            run.end_early(f"turn {run.turn} of the model broke the scaffold: {faults[0]}")
        run.keep(_pieces(run, stage, written), written)
        run.attempt = 0
        return written.text

    def _sampling_of(self, run: Run) -> Sampling:
        room = run.room()
        limit = run.ask.max_tokens if room is None else min(run.ask.max_tokens, max(room - 16, 16))
        return replace(self._sampling, max_tokens=limit)


def _end_of_turn(text: str) -> int | None:
    # Looking at the end alone keeps this cheap: it is called for every piece that arrives.
    found = _END_OF_TURN.search(text, max(0, len(text) - 400))
    return found.end() if found else None


def _faults(written: Completion, turn: int, must_answer: bool) -> list[str]:
    if written.stop_reason == "repetition":
        return ["It repeated itself without end."]
    if written.stop_reason == "length":
        return ["It was too long and was cut off."]
    # Thinking that a server keeps apart is thinking all the same.
    thought = f"<think>{written.reasoning}</think>" if written.reasoning else ""
    text = written.text if "<think" in written.text else thought + written.text
    return turn_faults(text, turn, must_answer=must_answer)


def _pieces(run: Run, stage: Stage, written: Completion) -> list[tuple[Stage, str]]:
    """The new text cut at the boundaries of the stages of the whole transcript."""
    before = len(run.text)
    spans = stage_spans(run.text + written.text)
    cuts = [
        (found, written.text[max(start - before, 0) : max(end - before, 0)])
        for found, (start, end) in spans.items()
        if end > before
    ]
    return cuts or [(stage, written.text)]


def _has(text: str, tag: str) -> bool:
    return any(block.tag == tag for block in parse(text).blocks)
