"""Criteria for runs, and what a server's judge replies."""

import json

from rubricem.memory.schema import Criterion, RubricBuffer, Stage

ITEMS_A_STAGE = 3
OPENINGS = ("In short", "In brief", "In a word")
"""of answers; a judge's points go by them, so that a group's scores differ"""
_REASON = "The text of that stage says so in its first sentence, quoting the passage it rests on."


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


def _criterion(stage: Stage, number: int) -> Criterion:
    said = f"Point {number} of the {stage}: names the rule, its exception and where both are shown"
    return Criterion(title=f"{stage} point {number}", description=said, persistent=True)
