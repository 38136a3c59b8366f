"""Where a checklist comes from: the request and a good answer to it, which is written if need be.

Source: RuscaRL (arXiv:2508.16949), appendix E.3: a model that has seen one good answer writes
criteria that fit it, where the request alone leaves it guessing.
"""

from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel, Field, field_validator, model_validator

from judge.answers import CHARACTERS, QUESTION_CHARACTERS
from judge.checklist import ChecklistItem, item_of
from judge.prompting import prompt
from judge.stage_judge import Proposer
from memory.asking import MOST_TOKENS, TRIES, ask_json, counted
from memory.errors import JudgeError, RubricemError
from memory.interfaces import ChatModel, Message, Sampling
from memory.schema import NO_USAGE, Stage, Usage
from memory.text import cut, fenced

LEAST_ITEMS, MOST_ITEMS = 5, 15


@dataclass(frozen=True, slots=True)
class Made:
    """A checklist, and what it cost."""

    items: tuple[ChecklistItem, ...]
    usage: Usage = NO_USAGE


class ChecklistMaker(Protocol):
    """Writes checklists. Raises JudgeError or PolicyError when it has none to give."""

    async def make(self, question: str, answer: str = "") -> Made:
        """A checklist from a request and a good answer to it; "" where there is none yet."""
        ...


class MadeItem(BaseModel):
    """One item as the model writes it."""

    criterion: str = Field(min_length=1, max_length=1000)
    points: int = Field(ge=-10, le=10)

    @field_validator("points")
    @classmethod
    def _worth(cls, points: int) -> int:
        if points == 0:
            raise ValueError("an item is worth at least one point, or minus one")
        return points


class MadeChecklist(BaseModel):
    """The reply to a request for a checklist."""

    rubrics: list[MadeItem] = Field(min_length=LEAST_ITEMS, max_length=MOST_ITEMS)

    @model_validator(mode="after")
    def _usable(self) -> "MadeChecklist":
        said = [" ".join(item.criterion.casefold().split()) for item in self.rubrics]
        if len(set(said)) < len(said):
            raise ValueError("two items say the same")
        if not any(item.points > 0 for item in self.rubrics):
            raise ValueError("some item must have points above 0")
        return self


class ChatChecklistMaker:
    """A `ChecklistMaker` over a chat server."""

    def __init__(self, model: ChatModel, tries: int = TRIES) -> None:
        self._model = model
        self._tries = tries

    async def make(self, question: str, answer: str = "") -> Made:
        request, used = cut(question, QUESTION_CHARACTERS), NO_USAGE
        if not answer.strip():
            answer, used = await self._answered(request)
        shown = fenced({"request": request, "a good reply": cut(answer, CHARACTERS)})
        messages = [Message("system", prompt("checklist_make")), Message("user", shown)]
        try:
            made, usage = await ask_json(self._model, messages, MadeChecklist, self._tries)
        except RubricemError as error:
            error.usage = used + (error.usage or NO_USAGE)
            raise
        items = (ChecklistItem(criterion=i.criterion, points=i.points) for i in made.rubrics)
        return Made(tuple(items), used + usage)

    async def _answered(self, request: str) -> tuple[str, Usage]:
        """An answer of the model's own."""
        system, asked = prompt("checklist_answer"), fenced({"request": request})
        messages, used = [Message("system", system), Message("user", asked)], NO_USAGE
        for attempt in range(self._tries):
            sampling = Sampling(max_tokens=MOST_TOKENS, temperature=0.0, seed=attempt)
            reply, used = await counted(self._model, messages, sampling, used)
            if reply.text.strip():
                return reply.text, used
        raise JudgeError(
            f"{self._model.name} wrote no answer in {self._tries} tries",
            "Give a reference answer, or use a stronger judge model.",
            used,
        )


class ProposedChecklist:
    """A `ChecklistMaker` for a model that writes no JSON: a proposer's answer criteria."""

    def __init__(self, proposer: Proposer) -> None:
        self._proposer = proposer

    async def make(self, question: str, answer: str = "") -> Made:
        """From the request alone. Raises JudgeError for an answer, which would go unread."""
        if answer.strip():
            raise JudgeError(
                "This model writes criteria from the question alone.",
                "Leave the answer out, or use a server's model.",
            )
        proposed = await self._proposer.from_question(question)
        items = tuple(item_of(c) for c in proposed.criteria.get(Stage.ANSWER, ()))
        if not items:
            raise JudgeError(
                "no criteria came for the answer",
                "Import a checklist, or use a stronger judge model.",
                proposed.usage,
            )
        return Made(items, proposed.usage)
