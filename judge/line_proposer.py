"""Criteria written by the embedded model: a few short lines a stage, read tolerantly.

A small model writes no reliable JSON, and it cannot weigh a whole group at once; so each stage
is asked by itself, with excerpts of a few runs beside one another, and writes one sentence after
another behind the words GOOD and FLAW. A grammar has each begin with a verb that fits the stage;
what breaks off, or says nothing that could be checked, is dropped.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Literal

from judge.prompting import prompt
from judge.spans import words_of
from judge.stage_judge import Proposed
from judge.transcripts import shown_passages, shown_stage, written
from memory.errors import JudgeError
from memory.interfaces import Message, Passage, Sampling, TokenPolicy
from memory.rubrics import RubricBuffer
from memory.schema import NO_USAGE, Criterion, Stage, Trajectory, Usage
from memory.text import cut, fenced

RUNS = 4
"""shown beside one another"""
Kind = Literal["GOOD", "FLAW"]
Line = tuple[Kind, str]
KINDS: dict[Stage, tuple[Kind, ...]] = {
    Stage.PLAN: ("GOOD", "GOOD", "FLAW"),
    Stage.RESEARCH: ("GOOD", "GOOD"),
    Stage.REVIEW: ("GOOD", "GOOD"),
    Stage.ANSWER: ("GOOD", "GOOD", "GOOD", "FLAW"),
}
"""the lines that are asked for"""
CHARACTERS = 6000
"""of excerpts in one prompt, and never more than half the context"""
QUESTION_CHARACTERS = 1500
LINE_TOKENS = 48
LEAST_WORDS, MOST_WORDS = 3, 45
TITLE_WORDS = 8
FROM_QUESTION = "Write what good work on it says or does."
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
EXAMPLE_QUESTION = "What does os.replace do if the target exists?"
EXAMPLES = {
    Stage.PLAN: (
        "Asks what os.replace does to a target that exists.",
        "Looks up how os.replace differs from os.rename.",
        "Asks how files are copied.",
    ),
    Stage.RESEARCH: (
        "Searches for os.replace with a target that exists.",
        "Finds the passage on os.replace that speaks of existing targets.",
    ),
    Stage.REVIEW: (
        "Checks which passage says what os.replace does to a target that exists.",
        "Admits what the passages on os.replace leave open.",
    ),
    Stage.ANSWER: (
        "Says that os.replace overwrites a target file.",
        "Explains that os.replace is atomic.",
        "Names the platforms on which os.replace does so.",
        "Says that os.replace fails if the target exists.",
    ),
}
"""one for each of `KINDS`; every line has the question's own names in it, which a model copies"""
EXAMPLE_NAMES = words_of("os.replace os.rename atomic platforms overwrites target copied")
_END = re.compile(r"[.!?](?=\s)|\n")
_UNCHECKABLE = re.compile(
    r"[<>\[\]]|\b(?:tags?|headings?|xml|stage|attempts?|strong(?:er|est)|weak(?:er|est))\b", re.I
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
            if any(written(trajectory, stage) for trajectory in chosen)
        }
        return await self._all(buffer.question, material, persistent=False, step=step)

    async def from_question(self, question: str, found: Sequence[Passage] = ()) -> Proposed:
        most = min(CHARACTERS, self._model.context_tokens * 3 // 2)
        before = f"{shown_passages(found, most)}\n\n" if found else ""
        material = dict.fromkeys(Stage, f"{before}{FROM_QUESTION}")
        return await self._all(question, material, persistent=True, step=0)

    async def _all(
        self, question: str, material: dict[Stage, str], *, persistent: bool, step: int
    ) -> Proposed:
        found, usage = dict[Stage, tuple[Criterion, ...]](), NO_USAGE
        for stage, text in material.items():
            messages = _messages(question, stage, text)
            lines, used = await self._lines(messages, stage, f"{question}\0{stage}\0{step}")
            usage += used
            if criteria := criteria_of(lines, question, text, persistent=persistent):
                found[stage] = criteria
        if not found:
            raise JudgeError("the embedded model wrote no usable criterion for any stage")
        return Proposed(found, usage)

    async def _lines(
        self, messages: Sequence[Message], stage: Stage, seed: str
    ) -> tuple[list[Line], Usage]:
        """The stage's lines one by one, each a sentence that the model goes on from."""
        ids, lines, usage = await self._model.render(messages), list[Line](), NO_USAGE
        for number, kind in enumerate(KINDS[stage]):
            ids = (*ids, *await self._model.encode(f"{kind}:"))
            digest = hashlib.sha256(f"{seed}\0{number}".encode()).digest()
            sampling = Sampling(
                max_tokens=LINE_TOKENS,
                temperature=0.3,
                min_p=0.05,
                dry=4,
                grammar=grammar(stage),
                seed=int.from_bytes(digest[:4], "big"),
            )
            reply = await self._model.complete(ids, sampling, _sentence_end)
            usage += reply.usage
            text = " ".join(reply.text.split())
            ids = (*ids, *await self._model.encode(f" {text}\n"))
            if reply.stop_reason in ("stop", "eos"):
                lines.append((kind, text))
        return lines, usage


def grammar(stage: Stage) -> str:
    """One line that begins with a verb of the stage."""
    verbs = " | ".join(f'" {verb} "' for verb in VERBS[stage])
    return f'root ::= ({verbs}) [^\\n<>]* "\\n"'


def criteria_of(
    lines: Sequence[Line], question: str, material: str, *, persistent: bool
) -> tuple[Criterion, ...]:
    """The lines that say something checkable about the question, each once."""
    asked, found = words_of(question), dict[str, Criterion]()
    foreign = EXAMPLE_NAMES - asked - words_of(material)
    for kind, line in lines:
        words = line.split()
        if not LEAST_WORDS <= len(words) <= MOST_WORDS or _UNCHECKABLE.search(line):
            continue
        # A line that shares nothing with the question speaks of any; some copy the example.
        content = words_of(" ".join(words[1:]))
        if content == asked or not content & asked or content & foreign:
            continue
        criterion = Criterion(
            title=" ".join(words[:TITLE_WORDS]),
            description=line,
            positive=kind == "GOOD",
            persistent=persistent,
        )
        found.setdefault(line.casefold(), criterion)
    return tuple(found.values())


def _messages(question: str, stage: Stage, material: str) -> list[Message]:
    """The stage's prompt, after one example of the same stage."""
    shown = zip(KINDS[stage], EXAMPLES[stage], strict=True)
    example = "\n".join(f"{kind}: {line}" for kind, line in shown)
    return [
        Message("system", prompt("lines")),
        Message("user", _asked(EXAMPLE_QUESTION, stage, FROM_QUESTION)),
        Message("assistant", example),
        Message("user", _asked(cut(question, QUESTION_CHARACTERS), stage, material)),
    ]


def _asked(question: str, stage: Stage, material: str) -> str:
    return f"{fenced({'question': question})}\n\nThe stage is {TASKS[stage]}.\n\n{material}"


def _sentence_end(text: str) -> int | None:
    end = _END.search(text)
    return end.end() if end else None
