"""Criteria written by the embedded model: a few short lines a stage, read tolerantly.

A small model writes no reliable JSON, and it cannot weigh a whole group at once; so each stage
is asked by itself, with excerpts of a few runs beside one another. A grammar keeps it to lines
that begin with GOOD or FLAW; what says nothing checkable is dropped.
"""

import hashlib
import re
from collections.abc import Sequence

from judge.prompting import prompt
from judge.scoring import Standard
from judge.spans import words_of
from judge.stage_judge import Proposed
from judge.transcripts import cut, fenced, shown_stage
from memory.errors import JudgeError
from memory.interfaces import Message, Sampling, TokenPolicy
from memory.rubrics import RubricBuffer
from memory.schema import NO_USAGE, Criterion, Stage, Trajectory

RUNS = 4
"""shown beside one another"""
GOOD_LINES = {Stage.PLAN: 2, Stage.RESEARCH: 2, Stage.REVIEW: 2, Stage.ANSWER: 3}
CHARACTERS = 6000
"""of excerpts in one prompt, and never more than half the context"""
TOKENS_PER_LINE = 45
LEAST_WORDS, MOST_WORDS = 3, 45
TITLE_WORDS = 8
VERBS = {
    Stage.PLAN: ("Asks", "Names", "Looks up"),
    Stage.RESEARCH: ("Finds", "Searches for", "Notes"),
    Stage.REVIEW: ("Checks", "Names", "Admits"),
    Stage.ANSWER: ("Says", "Names", "Explains"),
}
"""how a line begins, so that it is a sentence about the text"""
TASKS = {
    Stage.PLAN: "the plan: understanding the question and laying out the work",
    Stage.RESEARCH: "the research: searching and using what was found",
    Stage.REVIEW: "the review: checking what the evidence holds and what is missing",
    Stage.ANSWER: "the answer: being right, complete and supported",
}
_LINE = re.compile(r"^\s*(?:\d+[.)]|[-*•])?\s*(GOOD|FLAW)\s*:\s*(.+?)\s*$", re.I | re.M)
_UNCHECKABLE = re.compile(
    r"[<>\[\]]|\b(?:tags?|headings?|xml|stage|attempts?|strong(?:er|est)?|weak(?:er|est)?)\b", re.I
)


class LineProposer:
    """A `Proposer` over the embedded model."""

    def __init__(self, model: TokenPolicy) -> None:
        self._model = model

    async def contrast(
        self, trajectories: Sequence[Trajectory], buffer: RubricBuffer, step: int
    ) -> Proposed:
        chosen = trajectories[:RUNS]
        most = min(CHARACTERS, self._model.context_tokens * 3 // 2) // len(chosen)
        material = {
            stage: fenced(
                {
                    f"attempt {number}": shown_stage(trajectory, stage, most)
                    for number, trajectory in enumerate(chosen, start=1)
                }
            )
            + "\n\nSome attempts are stronger than others. Write what the stronger ones say or do "
            "that the weaker ones do not."
            for stage in Stage
        }
        return await self._all(buffer.question, material, persistent=False, step=step)

    async def from_question(self, question: str) -> Proposed:
        material = dict.fromkeys(Stage, "Write what good work on it says or does.")
        return await self._all(question, material, persistent=True, step=0)

    async def _all(
        self, question: str, material: dict[Stage, str], *, persistent: bool, step: int
    ) -> Proposed:
        found: Standard = {}
        usage = NO_USAGE
        for stage, text in material.items():
            asked = f"{fenced({'question': cut(question, 1500)})}\n\nThe stage is {TASKS[stage]}.\n"
            messages = [Message("system", prompt("lines")), Message("user", f"{asked}\n{text}")]
            seed = hashlib.sha256(f"{question}\0{stage}\0{step}".encode()).digest()
            sampling = Sampling(
                max_tokens=TOKENS_PER_LINE * (GOOD_LINES[stage] + 1),
                temperature=0.3,
                min_p=0.05,
                dry=4,
                grammar=grammar(stage),
                seed=int.from_bytes(seed[:4], "big"),
            )
            reply = await self._model.complete(await self._model.render(messages), sampling)
            usage += reply.usage
            if criteria := read_lines(reply.text, question, persistent=persistent):
                found = {**found, stage: criteria}
        if not found:
            raise JudgeError("the embedded model wrote no usable criterion for any stage")
        return Proposed(found, usage)


def grammar(stage: Stage) -> str:
    """The stage's number of GOOD lines, then one FLAW line."""
    lines = " ".join(['"GOOD: " text'] * GOOD_LINES[stage] + ['"FLAW: " text'])
    verbs = " | ".join(f'"{verb} "' for verb in VERBS[stage])
    return f'root ::= {lines}\ntext ::= ({verbs}) [^\\n<>]* "\\n"'


def read_lines(text: str, question: str, *, persistent: bool) -> tuple[Criterion, ...]:
    """The criteria in a text; a line cut off, too short, formal, or a mere copy is none."""
    whole = text[: text.rfind("\n") + 1]
    asked, found = words_of(question), dict[str, Criterion]()
    for kind, line in _LINE.findall(whole):
        words = line.split()
        if not LEAST_WORDS <= len(words) <= MOST_WORDS or _UNCHECKABLE.search(line):
            continue
        if words_of(line) == asked:
            continue
        short = " ".join(words[:TITLE_WORDS])
        found.setdefault(
            line.casefold(),
            Criterion(
                title=short,
                description=" ".join(words),
                positive=kind.upper() == "GOOD",
                persistent=persistent,
            ),
        )
    return tuple(found.values())
