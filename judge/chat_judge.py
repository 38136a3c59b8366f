"""The judge over a chat server: one call to propose for a group, one to score a trajectory."""

from collections.abc import Sequence
from functools import cache
from typing import Self

from pydantic import BaseModel, Field, model_validator

from judge.observations import observations
from judge.prompting import prompt
from judge.scoring import Scored, Standard
from judge.stage_judge import Proposed
from judge.transcripts import shown, shown_passages
from memory.asking import TRIES, ask_json
from memory.interfaces import ChatModel, Message, Passage
from memory.rubrics import RubricBuffer
from memory.schema import Criterion, Stage, Trajectory, Verdict
from memory.text import fenced, without_markers

CHARACTERS = 60_000
"""of trajectories shown in one call, some 15,000 tokens"""


class ProposedItem(BaseModel):
    """One criterion as the model writes it."""

    title: str = Field(min_length=1, max_length=200)
    description: str = Field(min_length=1, max_length=1000)
    weight: float = Field(default=2, ge=1, le=3)

    def criterion(self, *, positive: bool, persistent: bool) -> Criterion:
        return Criterion(
            title=" ".join(self.title.split()),
            description=" ".join(self.description.split()),
            weight=self.weight,
            positive=positive,
            persistent=persistent,
        )


class ProposedStage(BaseModel):
    positive: list[ProposedItem] = []
    negative: list[ProposedItem] = []


class Proposal(BaseModel):
    """The reply to a request for criteria; stages may be left out."""

    plan: ProposedStage = ProposedStage()
    research: ProposedStage = ProposedStage()
    review: ProposedStage = ProposedStage()
    answer: ProposedStage = ProposedStage()

    def criteria(self, *, persistent: bool) -> dict[Stage, tuple[Criterion, ...]]:
        """Of each stage the positive ones, then the negative ones."""
        return {
            stage: tuple(
                item.criterion(positive=positive, persistent=persistent)
                for positive, items in ((True, given.positive), (False, given.negative))
                for item in items
            )
            for stage in Stage
            for given in (getattr(self, stage.value),)
        }


class ChatProposer:
    """A `Proposer` over a chat server."""

    def __init__(self, model: ChatModel, tries: int = TRIES, characters: int = CHARACTERS) -> None:
        self._model = model
        self._tries = tries
        self._characters = characters

    async def contrast(
        self, trajectories: Sequence[Trajectory], buffer: RubricBuffer, step: int
    ) -> Proposed:
        each = self._characters // len(trajectories)
        attempts = [
            f"Attempt {number}:\n{shown(trajectory, each)}"
            for number, trajectory in enumerate(trajectories, start=1)
        ]
        force = _listed({stage: buffer.criteria(stage) for stage in Stage}) or "none"
        asked = [fenced({"question": buffer.question}), *attempts, f"Criteria in force:\n{force}"]
        return await self._propose("contrast", asked, persistent=False)

    async def from_question(self, question: str, found: Sequence[Passage] = ()) -> Proposed:
        asked = [fenced({"question": question})]
        if found:
            asked.append(f"What a search found:\n{shown_passages(found, self._characters)}")
        return await self._propose("question", asked, persistent=True)

    async def _propose(self, name: str, asked: Sequence[str], *, persistent: bool) -> Proposed:
        messages = [Message("system", prompt(name)), Message("user", "\n\n".join(asked))]
        proposal, usage = await ask_json(self._model, messages, Proposal, self._tries)
        return Proposed(proposal.criteria(persistent=persistent), usage)


class GivenVerdict(BaseModel):
    number: int
    justification: str = Field(min_length=1)
    points: int = Field(ge=0, le=2)


class GivenVerdicts(BaseModel):
    """The reply of a scoring call."""

    verdicts: list[GivenVerdict]


@cache
def _verdicts_of(count: int) -> type[GivenVerdicts]:
    """The reply's form for so many criteria; to build one takes longer than to check a reply."""

    class Whole(GivenVerdicts):
        @model_validator(mode="after")
        def _whole(self) -> Self:
            if sorted(v.number for v in self.verdicts) != list(range(1, count + 1)):
                raise ValueError(f"it needs one verdict for each number from 1 to {count}")
            return self

    return Whole


class ChatScorer:
    """A `Scorer` over a chat server. Scorings that are to differ get other seeds, and warmth."""

    def __init__(
        self,
        model: ChatModel,
        tries: int = TRIES,
        characters: int = CHARACTERS,
        *,
        seed: int = 0,
        temperature: float = 0.0,
    ) -> None:
        self._model = model
        self._tries = tries
        self._characters = characters
        self._seed = seed
        self._temperature = temperature

    @property
    def name(self) -> str:
        return self._model.name

    async def score(self, trajectory: Trajectory, standard: Standard) -> Scored:
        count = sum(len(criteria) for criteria in standard.values())
        seen = "\n".join(f"- {said}" for said in observations(trajectory))
        asked = "\n\n".join(
            (
                fenced({"question": trajectory.question}),
                shown(trajectory, self._characters),
                *([f"Measured by code:\n{seen}"] if seen else []),
                f"Criteria:\n{_listed(standard)}",
            )
        )
        messages = [Message("system", prompt("score")), Message("user", asked)]
        reply, usage = await ask_json(
            self._model,
            messages,
            _verdicts_of(count),
            self._tries,
            seed=self._seed,
            temperature=self._temperature,
        )
        given = iter(sorted(reply.verdicts, key=lambda v: v.number))
        verdicts = {
            stage: tuple(_verdict(criterion, next(given)) for criterion in criteria)
            for stage, criteria in standard.items()
        }
        return Scored(verdicts, usage)


def _verdict(criterion: Criterion, given: GivenVerdict) -> Verdict:
    return Verdict(criterion=criterion, points=given.points, justification=given.justification)


def _listed(standard: Standard) -> str:
    """Criteria with numbers that go on from stage to stage, as the model reads them."""
    lines, number = [], 0
    for stage, criteria in standard.items():
        for criterion in criteria:
            number += 1
            flaw = "" if criterion.positive else " (flaw)"
            lines.append(f"{number}. [{stage}]{flaw} {criterion.title}: {criterion.description}")
    return without_markers("\n".join(lines))
