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
from memory.schema import Source, Stage, Trajectory, Usage

Said = tuple[str, dict[str, Any]]
"""the name of an event and what it holds"""

LOOKED_AT = 20_000
"""characters of a plan or a review that are looked through while they grow"""


@dataclass
class Telling:
    """Follows one run; what it has heard of the plan and the review is kept here."""

    plan: str = ""
    review: str = ""
    plan_told: bool = True
    calls: int = 0
    usage: dict[str, Any] = field(default_factory=dict)
    rubric: list[dict[str, Any]] = field(default_factory=list)

    def of(self, event: Event) -> list[Said]:
        """What an event of the agent is told as: nothing, or some events."""
        match event:
            case TextWritten(stage, text):
                return [("text", {"stage": stage.value, "text": text}), *self._written(event)]
            case StageStarted(stage):
                told = self._planned()
                self._began(stage)
                return [*told, ("stage", {"stage": stage.value})]
            case ToolCalled(name, query, number):
                self.calls = number
                tool = {"number": number, "name": name, "query": query}
                return [*self._planned(query), ("tool", tool)]
            case ToolReturned():
                return [("results", self._results(event))]
            case TurnRetried(reason):
                self.plan, self.review = "", ""
                return [("retry", {"reason": reason})]
            case _:
                return self._beside(event)

    def _beside(self, event: Event) -> list[Said]:
        """What is told beside the stages."""
        match event:
            case SourceProgress(message):
                return [("note", {"message": one_line(message)})]
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

    def _began(self, stage: Stage) -> None:
        if stage is Stage.PLAN:
            self.plan, self.plan_told = "", False
        elif stage is Stage.REVIEW:
            self.review = ""

    def _written(self, event: TextWritten) -> list[Said]:
        """The checklist, where what was written has completed a part of it."""
        if event.stage is Stage.PLAN and len(self.plan) < LOOKED_AT:
            self.plan += event.text
        elif event.stage is Stage.REVIEW and len(self.review) < LOOKED_AT:
            self.review += event.text
        else:
            return []
        whole = self.review if event.stage is Stage.REVIEW else self.plan
        ends = ">" in event.text and "</rubric" in whole[-len(event.text) - 20 :]
        return self._checked() if ends else []

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
