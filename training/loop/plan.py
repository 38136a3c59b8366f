"""What the loop does and how large: questions, sizes and seeds, kept with its results."""

import json
from importlib.resources import files
from typing import Literal

from pydantic import Field

from memory.schema import Value

Use = Literal["imitate", "measure", "collect", "ask"]


class LoopQuestion(Value):
    """A question, and what the loop uses it for.

    No question has two uses, but one may be collected twice: the second group sees the rubrics
    that the first one led to, and recalls its reflection.
    """

    question: str
    use: Use


class LoopPlan(Value):
    """Everything that shapes a loop's result."""

    model: str = "0.5b"
    judge: str = "0.5b"
    """the judge's model; never the adapter in training, which it would then score itself"""
    judge_base_url: str | None = None
    """None: the judge is embedded, too"""
    source: tuple[str, ...] = ("python",)
    questions: tuple[LoopQuestion, ...]
    group_size: int = Field(default=4, ge=2)
    tool_calls: int = Field(default=2, ge=1)
    """searches a free rollout may make; rows grow with it, and so does the time to train"""
    max_tokens: int = Field(default=700, ge=16)
    """tokens of one turn"""
    candidates: int = Field(default=3, ge=1)
    """reflections written for each judged group"""
    least_reflection_score: float = Field(default=0.0, ge=0, le=1)
    """0 is the paper's rule, the best of valid form: a small judge's scores lie near 0.35 anyway"""
    imitation_epochs: int = Field(default=2, ge=1)
    imitation_rate: float = Field(default=2e-4, gt=0)
    policy_rate: float = Field(default=5e-5, gt=0)
    seed: int = Field(default=0, ge=0)

    def used_for(self, use: Use) -> tuple[str, ...]:
        """The questions of one use, in order."""
        return tuple(q.question for q in self.questions if q.use == use)


def default_plan() -> LoopPlan:
    """The loop of `make loop`: the embedded 0.5B on the installed libraries' documentation."""
    text = (files("training.loop") / "questions.jsonl").read_text(encoding="utf-8")
    questions = [LoopQuestion(**json.loads(line)) for line in text.splitlines()]
    return LoopPlan(questions=tuple(questions))
