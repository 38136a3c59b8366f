"""What happens in a run, as named JSON events for whoever watches it over HTTP.

Text is passed on as it was written: it is data, and whoever shows it shows it as text.
"""

from dataclasses import dataclass, field
from typing import Any

from agent.approval import plan_of
from agent.events import (
    BudgetSet,
    Event,
    PersonAsked,
    Recalled,
    RunFinished,
    SourceProgress,
    StageStarted,
    TextWritten,
    ToolCalled,
    ToolReturned,
    TurnRetried,
    UsageCounted,
)
from agent.reports.citations import cited_answer
from agent.reports.printable import one_line
from agent.serve.checklist import checklist
from agent.serve.stage_spans import StageSpans
from memory.schema import Source, Stage, Trajectory, Usage

Said = tuple[str, dict[str, Any]]
"""the name of an event and what it holds"""

_LAST = (Stage.REVIEW, Stage.ANSWER)
LOOKED_AT = 20_000
"""characters of a plan or a review that are looked through while they grow"""


@dataclass
class Telling:
    """Follows one run; what it has heard of the plan and the review is kept here."""

    plan: str = ""
    review: str = ""
    plan_told: bool = True
    stage: Stage | None = None
    """the one that was told last"""
    spans: StageSpans = field(default_factory=StageSpans)
    calls: int = 0
    usage: dict[str, Any] = field(default_factory=dict)
    rubric: list[dict[str, Any]] = field(default_factory=list)

    def of(self, event: Event) -> list[Said]:
        """What an event of the agent is told as: nothing, or some events."""
        if isinstance(event, TextWritten):
            parts = self.spans.of(event.stage, event.text)
            return [said for part in parts for said in self._written(*part)]
        if isinstance(event, SourceProgress):
            return [("note", {"message": one_line(event.message)})]
        if isinstance(event, TurnRetried):
            self.plan, self.review, self.spans = "", "", StageSpans()
            return [("retry", {"reason": event.reason})]
        rest = [said for part in self.spans.rest() for said in self._written(*part)]
        return [*rest, *self._after_text(event)]

    def _after_text(self, event: Event) -> list[Said]:
        """What is told of an event that ends a turn, or comes between two."""
        match event:
            case StageStarted(stage):
                return self._began(stage)
            case ToolCalled(name, query, number):
                self.calls = number
                tool = {"number": number, "name": name, "query": query}
                return [*self._planned(query), ("tool", tool)]
            case ToolReturned():
                return [("results", self._results(event))]
            case _:
                return self._beside(event)

    def _beside(self, event: Event) -> list[Said]:
        """What is told beside the stages."""
        match event:
            case BudgetSet(limits):
                return [("budget", {"limits": list(limits)})]
            case Recalled(count, own):
                return [("recalled", {"count": count, "own": own})]
            case UsageCounted(usage):
                self.usage = usage_of(usage, self.calls)
                return [("usage", self.usage)]
            case PersonAsked(waiting):
                return self._planned() if waiting else []
            case RunFinished():
                return self._planned()
            case _:
                return []

    def _began(self, stage: Stage) -> list[Said]:
        told = self._planned()
        if stage is Stage.PLAN:
            self.plan, self.plan_told = "", False
        # A turn that went on into review and answer has had them told by its text.
        if self.stage in _LAST and stage in _LAST[: _LAST.index(self.stage) + 1]:
            return told
        return [*told, *self._entered(stage)]

    def _entered(self, stage: Stage) -> list[Said]:
        self.stage = stage
        if stage is Stage.REVIEW:
            self.review = ""
        return [("stage", {"stage": stage.value})]

    def _written(self, stage: Stage, text: str) -> list[Said]:
        """A piece of a stage, and the checklist where it has completed a part of that."""
        said = [] if stage is self.stage else self._entered(stage)
        said.append(("text", {"stage": stage.value, "text": text}))
        if stage is Stage.PLAN and len(self.plan) < LOOKED_AT:
            self.plan += text
        elif stage is Stage.REVIEW and len(self.review) < LOOKED_AT:
            self.review += text
        else:
            return said
        whole = self.review if stage is Stage.REVIEW else self.plan
        ends = ">" in text and "</rubric" in whole[-len(text) - 20 :]
        return [*said, *(self._checked() if ends else [])]

    def _checked(self) -> list[Said]:
        rubric = checklist(self.plan + self.review)
        if not rubric or rubric == self.rubric:
            return []
        self.rubric = rubric
        return [("rubric", {"items": rubric})]

    def _planned(self, query: str = "") -> list[Said]:
        """The plan, once what comes after it begins."""
        if self.plan_told or not self.plan:
            return []
        self.plan_told = True
        plan = plan_of(self.plan, query)
        return [*self._checked(), ("plan", {"text": plan.research_plan})]

    def _results(self, event: ToolReturned) -> dict[str, Any]:
        return {
            "number": self.calls,
            "sources": [named(source) for source in event.sources],
            "seconds": round(event.seconds, 3),
            "error": event.error,
        }


def named(source: Source) -> dict[str, str]:
    """A source by its id, title and address."""
    return {"id": source.id, "title": one_line(source.title), "url": one_line(source.location)}


def usage_of(usage: Usage, calls: int) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cost": usage.cost,
        "tool_calls": calls,
    }


def ended(trajectory: Trajectory) -> list[Said]:
    """The last events of a run: checklist, counts, verdicts, and how it came out. Takes a while."""
    rubric = checklist(trajectory.transcript())
    return [
        *([("rubric", {"items": rubric})] if rubric else []),
        ("usage", usage_of(trajectory.usage, trajectory.tool_calls)),
        ("verdicts", {"citations": citations_of(trajectory)}),
        finished(trajectory.status.value, trajectory.reason),
    ]


def finished(status: str, reason: str) -> Said:
    return "finished", {"status": status, "reason": one_line(reason)}


def citations_of(trajectory: Trajectory) -> list[dict[str, Any]]:
    """Each claim on each of its sources, in order of appearance, and what checking it gave."""
    return [
        {
            "n": citation.number,
            "id": citation.id,
            "claim": citation.claim,
            "verdict": citation.verdict,
            "why": citation.reason,
            "quote": citation.quote,
        }
        for citation in cited_answer(trajectory).citations
    ]
