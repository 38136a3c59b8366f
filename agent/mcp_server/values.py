"""What the tools return, as objects with a schema that clients are told."""

from typing import Literal

from pydantic import BaseModel, Field

from agent.reports.citations import cited_answer
from agent.reports.report import markdown
from memory.interfaces import Passage
from memory.items import BankItem
from memory.schema import CitationSupport, Judgement, Trajectory


class FoundPassage(BaseModel):
    """A passage of a document or page."""

    title: str
    location: str = Field(description="address or path")
    place: str = Field(description="symbol, heading, page or lines inside it")
    text: str

    @classmethod
    def of(cls, passage: Passage) -> "FoundPassage":
        return cls(
            title=passage.title,
            location=passage.location,
            place=passage.place,
            text=passage.text,
        )


class FoundPassages(BaseModel):
    passages: list[FoundPassage]


class CitedSource(BaseModel):
    """A source that the answer cites."""

    number: int = Field(description="of its marks in the answer")
    title: str
    location: str
    text: str = Field(description="the passage as it was fetched")


class CheckedCitation(BaseModel):
    """One claim on one source, and whether the source holds it."""

    number: int
    claim: str
    verdict: CitationSupport
    why: str
    quote: str = Field(description="the sentence of the source nearest to the claim")


class Researched(BaseModel):
    """A report and what it stands on."""

    answer: str = Field(description="with marks like [1]")
    report: str = Field(description="the whole report in Markdown")
    status: Literal["finished", "no_evidence", "partial"]
    reason: str = Field(description="why it is not finished")
    citations: list[CheckedCitation]
    sources: list[CitedSource]
    run: str = Field(description="its name, for judging it")

    @classmethod
    def of(cls, trajectory: Trajectory) -> "Researched":
        answer = cited_answer(trajectory)
        return cls.model_validate(
            {
                "answer": answer.text(),
                "report": markdown(trajectory),
                "status": trajectory.status.value,
                "reason": trajectory.reason,
                "citations": [
                    CheckedCitation(
                        number=c.number,
                        claim=c.claim,
                        verdict=c.verdict,
                        why=c.reason,
                        quote=c.quote,
                    )
                    for c in answer.citations
                ],
                "sources": [
                    CitedSource(number=n, title=s.title, location=s.location, text=s.text)
                    for n, s in enumerate(answer.sources, start=1)
                ],
                "run": trajectory.thread,
            }
        )


class JudgedStage(BaseModel):
    stage: str
    score: float | None = Field(description="from 0 to 1; null: it could not be scored")
    reason: str


class Judged(BaseModel):
    """A run's scores, stage by stage."""

    judge: str
    stages: list[JudgedStage]

    @classmethod
    def of(cls, judgement: Judgement) -> "Judged":
        stages = [
            JudgedStage(
                stage=each.stage.value,
                score=each.score,
                reason=each.unscored_reason if each.score is None else each.justification,
            )
            for each in judgement.stages
        ]
        return cls(judge=judgement.judge, stages=stages)


class KeptReflection(BaseModel):
    """What an earlier run taught."""

    id: str
    question: str = Field(description="of the run that taught it")
    score: float
    rubrics: str
    takeaways: str

    @classmethod
    def of(cls, item: BankItem) -> "KeptReflection":
        kept = item.reflection
        return cls(
            id=kept.id,
            question=kept.question,
            score=kept.score,
            rubrics=kept.rubrics,
            takeaways=kept.takeaways,
        )


class NearReflection(BaseModel):
    id: str
    question: str
    score: float
    similarity: float = Field(description="cosine of the question and what was looked for")


class NearReflections(BaseModel):
    matches: list[NearReflection]
