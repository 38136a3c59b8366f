"""What is asked of a run, and what a search in it brings."""

from dataclasses import dataclass

from agent.budgets import UNLIMITED, Budgets
from memory.schema import AnswerFormat, Source


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked, and the limits the answer has to keep."""

    question: str
    answer_format: AnswerFormat = AnswerFormat.LONG
    tool_calls: int = 10
    passages: int = 5
    """passages shown for each search"""
    passage_words: int = 160
    """words shown of each passage; the source keeps its whole text"""
    max_tokens: int = 4096
    """tokens the policy may write in one turn"""
    seed: int = 0
    approve_plan: bool = False
    """a person decides on the plan before it is followed"""
    clarify: bool = False
    """the policy may ask the person one question before it plans"""
    budgets: Budgets = UNLIMITED
    """may be other ones when the run is resumed; all else is part of what was asked"""
    scaffold: str = ""
    """criteria of the question's rubric, put after the system prompt of a collected rollout"""
    criteria_shown: int = 0
    """how many stand in it"""
    earlier: tuple[str, ...] = ()
    """the runs of the thread before this question, in order; none: it is asked alone"""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search brought: sources (numbered), those shown for the first time, or an error."""

    sources: tuple[Source, ...]
    new: frozenset[str] = frozenset()
    error: str = ""
    repeated: bool = False
    """answered from the transcript, without a tool call"""
    note: str = ""
    """what the policy has to know of it, in one sentence"""
