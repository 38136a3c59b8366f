"""Rewards of multi-hop questions, all code: what each stage is worth against what is known of them.

    rubricem collect questions.jsonl --judge rubric:benchmarks.learns.recipe:rewards

A line of the questions file carries, under `facts`, what nobody shows to the policy: `answer` (one,
or a list of which each is right), `evidence` (triples of subject, relation and object, in the order
of the hops) and `gold` (titles of the passages that hold them; none: neither research nor review
can be scored). Every reward is in [0, 1], and 0 where a turn that the stage stands in breaks the
form. Relations are those of 2WikiMultihopQA (arXiv:2011.01060); others count by their own words.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from rubricem.agent.evaluate.grades import evidence_recall, f1_score, normal_answer, refuses
from rubricem.agent.learning.scoring import Supported
from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.transcript.scaffold import (
    answer_text,
    missing_items,
    parse,
    rounds,
    rubric_items,
    turn_faults,
)
from rubricem.judge.composed import StageView
from rubricem.judge.rubrics import Gate, Rubric, Sequential, WeightedSum
from rubricem.memory.schema import Author, Source, Stage, Trajectory, Value

SURPLUS = 0.1
"""that a look-up beyond the hops costs, and a search that brings nothing of the evidence"""
CITED = 0.3
"""share of the answer's reward that its cites decide, the rest being its F1"""
FORM = 0.2
"""share of a stage's reward that the form alone decides, by `formed_rewards`"""
COMPARES = re.compile(r"compare\b", re.I)
"""a line of the plan that looks nothing up"""
RELATIONS = {
    "date of birth": "born|birth|older|younger|age",
    "place of birth": "born|birth",
    "date of death": "die|death|dead|lived",
    "place of death": "die|death",
    "cause of death": "die|death",
    "country of citizenship": "national|citizen|country",
    "country": "countr|nation",
    "country of origin": "countr|nation|origin",
    "director": "direct",
    "composer": "compos|music",
    "performer": "perform|sing|sang|song",
    "publication date": "releas|publi|came out|year|date",
    "father": "father|patern",
    "mother": "mother|matern",
    "spouse": "spouse|wife|husband|marri",
    "sibling": "sibling|brother|sister",
    "child": "child|son|daughter",
    "educated at": "educat|stud|school|universit|college|graduat",
    "inception": "found|establish|begin|began|start|form|incept",
    "place of burial": "buri|grave",
    "place of detention": "detain|detention|prison|jail|held",
}
"""beginnings of words, one of which stands in a look-up of the relation"""


class Facts(Value):
    """What is known of a question."""

    answer: str | tuple[str, ...]
    evidence: tuple[tuple[str, str, str], ...]
    gold: tuple[str, ...] | None = None

    @property
    def answers(self) -> Sequence[str]:
        return (self.answer,) if isinstance(self.answer, str) else self.answer


def facts_of(observation: StageView) -> Facts:
    """Raises pydantic's ValidationError where the question carries none, or others."""
    return Facts.model_validate(observation.facts)


class Form(Rubric):
    """1 where the turns that the stage stands in have the blocks of the scaffold, in order."""

    def forward(self, action: Any, observation: StageView) -> float:
        turns = list(enumerate(rounds(observation.trajectory), start=1))
        ends = [turn for turn in turns if turn[1].find("review") or answer_text(turn[1])]
        own = {
            Stage.PLAN: turns[:1],
            Stage.RESEARCH: [turn for turn in turns if turn not in ends],
        }.get(observation.stage, turns[-1:])
        return float(not any(turn_faults(document.text, number) for number, document in own))


class PlanReward(Rubric):
    """How much of each hop its best look-up names: half for the subject, half for the relation.

    A subject that an earlier hop finds may be named by the number of that hop's look-up: `[1]`.
    """

    def forward(self, action: str, observation: StageView) -> float:
        items = rubric_items(parse(action).last("research_plan"))
        lines = [line for line in items if not COMPARES.match(line)]
        evidence = facts_of(observation).evidence
        found_by: dict[str, int] = {}
        total = 0.0
        for subject, relation, found in evidence:
            refers = f"[{found_by.get(plain_title(subject), 0)}]"
            scores = [
                (_names_subject(subject, line) or refers in line) / 2
                + _names_relation(relation, line) / 2
                for line in lines
            ]
            best = max(scores, default=0.0)
            if best == 1.0:
                found_by[plain_title(found)] = items.index(lines[scores.index(best)]) + 1
            total += best
        surplus = max(len(lines) - len(evidence), 0)
        return max(total / len(evidence) - SURPLUS * surplus, 0.0) if evidence else math.nan


class EvidenceReward(Rubric):
    """The share of the gold passages that the searches brought, less what useless ones cost."""

    def forward(self, action: Any, observation: StageView) -> float:
        gold = facts_of(observation).gold or ()
        shares = shares_found(observation.trajectory, gold)
        if shares is None:
            return math.nan
        useless = sum(now == before for before, now in pairwise([0.0, *shares]))
        return max((shares or [0.0])[-1] - SURPLUS * useless, 0.0)


class VerdictReward(Rubric):
    """Whether the review calls something missing just where a gold passage is."""

    def forward(self, action: str, observation: StageView) -> float:
        shares = shares_found(observation.trajectory, facts_of(observation).gold or ())
        if shares is None:
            return math.nan
        document = parse(action)
        enough = bool(shares) and shares[-1] == 1.0
        return float(bool(document.review_marks()) and (not missing_items(document)) == enough)


class Answers(Rubric):
    """0 for an answer that says nothing was found although all of it was; else 1."""

    def forward(self, action: Any, observation: StageView) -> float:
        run, gold = observation.trajectory, facts_of(observation).gold or ()
        there = evidence_recall(gold, run.sources) == 1.0
        return float(not (there and refuses(run, cited_answer(run))))


class Right(Rubric):
    """F1 of the bare answer (arXiv:1606.05250)."""

    def forward(self, action: Any, observation: StageView) -> float:
        answer = cited_answer(observation.trajectory)
        return f1_score(answer.bare or answer.text(), facts_of(observation).answers)


def rewards() -> Mapping[Stage, Callable[[], Rubric]]:
    """What `--judge rubric:MODULE:NAME` names: a rubric for each stage, and no model asked."""
    weights = (1 - CITED, CITED)
    return {
        Stage.PLAN: lambda: Sequential(Gate(Form()), PlanReward()),
        Stage.RESEARCH: lambda: Sequential(Gate(Form()), EvidenceReward()),
        Stage.REVIEW: lambda: Sequential(Gate(Form()), VerdictReward()),
        Stage.ANSWER: lambda: Sequential(
            Gate(Form()), Gate(Answers()), WeightedSum([Right(), Supported()], weights)
        ),
    }


def formed_rewards() -> Mapping[Stage, Callable[[], Rubric]]:
    """The same, a share of each stage's reward being for its form.

    Without it a wrong answer and a broken one are both worth 0, and where most answers are wrong
    nothing teaches a policy to keep the form.
    """

    def with_form(reward: Callable[[], Rubric]) -> Callable[[], Rubric]:
        return lambda: WeightedSum([Form(), reward()], (FORM, 1 - FORM))

    return {stage: with_form(reward) for stage, reward in rewards().items()}


def shares_found(trajectory: Trajectory, gold: Sequence[str]) -> list[float] | None:
    """The share of the gold passages that were shown after each search; None without gold.

    A passage counts from the search that showed it first.
    """
    if not gold:
        return None
    known = {source.id: source for source in trajectory.sources}
    seen: dict[str, Source] = {}
    shares = []
    for segment in trajectory.segments:
        if segment.kept and segment.author is Author.TOOL:
            shown = (b.attributes.get("id", "") for b in parse(segment.text).find("snippet"))
            seen |= {name: known[name] for name in shown if name in known}
            shares.append(evidence_recall(gold, list(seen.values())) or 0.0)
    return shares


def plain_title(title: str) -> str:
    """A title as texts say it: normal, and without what tells it from others of its name."""
    return normal_answer(title.partition(" (")[0])


def _names_subject(subject: str, line: str) -> bool:
    return f" {plain_title(subject)} " in f" {normal_answer(line)} "


def _names_relation(relation: str, line: str) -> bool:
    begins = RELATIONS.get(relation) or "|".join(
        word for word in map(re.escape, relation.lower().split()) if len(word) > 3
    )
    return bool(begins and re.search(rf"\b(?:{begins})", line, re.I))
