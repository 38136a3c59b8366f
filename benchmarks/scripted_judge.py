"""Runs of a chosen length to be judged, criteria for them, and what a server's judge replies."""

import json
from datetime import UTC, datetime

from rubricem.memory.schema import (
    AnswerFormat,
    Author,
    Criterion,
    Decoding,
    RubricBuffer,
    Segment,
    Source,
    Stage,
    Status,
    Trajectory,
)

ITEMS_A_STAGE = 3
OPENINGS = ("In short", "In brief", "In a word")
"""of answers; a judge's points go by them, so that a group's scores differ"""
SENTENCE = "The rule decides the order, and its one exception is named beside it. "
OWN = {
    Stage.PLAN: "Find the rule first, then whether anything is excepted from it. ",
    Stage.RESEARCH: "The first passage states the rule; the exception is still open. ",
    Stage.REVIEW: "The rule is proven by S1, the exception by S2; nothing is guessed. ",
    Stage.ANSWER: '<answer>In short: <cite id="S1">the rule decides the order</cite>.</answer> ',
}
_REASON = "The text of that stage says so in its first sentence, quoting the passage it rests on."


def run_of(number: int, characters: int) -> Trajectory:
    """A run of about so many characters: a third its own words, the rest what it found."""
    own = characters // 3 // len(OWN)
    segments = [
        Segment(author=Author.POLICY, stage=stage, turn=1, text=_fill(text, own, number))
        for stage, text in OWN.items()
    ]
    found = _fill(SENTENCE, characters - own * len(OWN), number)
    tool = Segment(author=Author.TOOL, stage=Stage.RESEARCH, turn=1, text=found)
    question = Segment(author=Author.PROMPT, text=question_of(number))
    return Trajectory(
        id=f"run-{number}",
        thread=f"run-{number}",
        question=question_of(0),
        answer_format=AnswerFormat.LONG,
        decoding=Decoding.FREE,
        segments=(question, *segments[:2], tool, *segments[2:]),
        sources=(Source(id="S1", title="Rule", location="x", text=SENTENCE, tool="t", query="q"),),
        status=Status.FINISHED,
        policy="benchmark",
        started_at=datetime.now(UTC),
        seconds=1.0,
    )


def question_of(number: int) -> str:
    return f"Which rule decides the order, and what is excepted from it? (case {number})"


def buffer_of(question: str) -> RubricBuffer:
    """Twelve criteria, three for each stage."""
    persistent = {
        stage: tuple(_criterion(stage, number) for number in range(ITEMS_A_STAGE))
        for stage in Stage
    }
    return RubricBuffer(question=question, persistent=persistent)


def judge_reply(asked: str) -> str:
    """No new criteria, or a verdict for each numbered criterion; "" for what is no judge's call."""
    if "Criteria in force:" in asked:
        return '{"answer": {}}'
    listed = asked.partition("\nCriteria:\n")[2].partition("\n\n")[0]
    numbers = range(1, len(listed.splitlines()) + 1)
    more = next((i for i, opening in enumerate(OPENINGS) if f"{opening}:" in asked), 0)
    # Halved, or the three criteria of a stage would come to the same sum however they begin.
    verdicts = [
        {"number": n, "justification": _REASON, "points": (n + more) // 2 % 3} for n in numbers
    ]
    return json.dumps({"verdicts": verdicts}) if verdicts else ""


def _fill(text: str, characters: int, number: int) -> str:
    """Text of that length that differs from run to run."""
    return (f"({number}) {text}" * (characters // len(text) + 1))[:characters]


def _criterion(stage: Stage, number: int) -> Criterion:
    said = f"Point {number} of the {stage}: names the rule, its exception and where both are shown"
    return Criterion(title=f"{stage} point {number}", description=said, persistent=True)
