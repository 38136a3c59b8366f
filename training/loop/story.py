"""What a loop does and how large, what its steps came to, and the page that tells of it.

The page is self-contained: no script, nothing loaded, all text escaped.
"""

import json
import os
import platform
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, StrictUndefined
from pydantic import Field

from rubricem.agent.research.scaffold import rejected, rounds, turn_faults
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import Stage, Status, Value
from rubricem.training.collect.directory import GroupRecord, RunDirectory
from rubricem.training.show.collected import StepNumbers, run_numbers

Use = Literal["imitate", "measure", "collect", "ask"]
Result = dict[str, Any]
_DROPPED = re.compile(r"(\d+) dropped: (.+)")


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

    def passes(self, use: Use) -> list[list[str]]:
        """The same, so that no question comes twice in one pass."""
        passes: list[list[str]] = []
        for question in self.used_for(use):
            free = next((one for one in passes if question not in one), None)
            if free is None:
                passes.append(free := [])
            free.append(question)
        return passes

    def judging(self) -> tuple[object, ...]:
        """The flags of groups that are judged and reflected upon."""
        return (
            *("--group-size", self.group_size, "--memory", "on", "--judge-model", self.judge),
            *(("--judge-base-url", self.judge_base_url) if self.judge_base_url else ()),
            *("--reflections", self.candidates),
            *("--least-reflection-score", self.least_reflection_score),
        )


def default_plan() -> LoopPlan:
    """The loop of `make loop`: the embedded 0.5B on the installed libraries' documentation."""
    text = (files("rubricem.training.loop") / "questions.jsonl").read_text(encoding="utf-8")
    questions = [LoopQuestion(**json.loads(line)) for line in text.splitlines()]
    return LoopPlan(questions=tuple(questions))


@dataclass(frozen=True, slots=True)
class Story:
    """A loop's folder: plan.json, and the results of its finished steps.

    Raises SettingsError where it holds a loop of another plan.
    """

    folder: Path
    plan: LoopPlan
    results: dict[str, Result] = field(default_factory=dict)

    def __post_init__(self) -> None:
        path = self.folder / "plan.json"
        if not path.exists():
            write_atomically(path, self.plan.model_dump_json(indent=1))
        elif LoopPlan.model_validate_json(path.read_text(encoding="utf-8")) != self.plan:
            raise SettingsError(
                f"{self.folder} holds a loop of another plan.", "Name another folder with --out."
            )

    def result(self, name: str) -> Result | None:
        """What a finished step found, or None."""
        path = self._path(name)
        if not path.exists():
            return None
        try:
            self.results[name] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise StoreError(
                f"{path} cannot be read: {error}", "Remove it, and the step is done again."
            ) from error
        return self.results[name]

    def keep(self, name: str, result: Result) -> Result:
        write_atomically(self._path(name), json.dumps(result, ensure_ascii=False, indent=1))
        self.results[name] = result
        return result

    def write(self) -> Path:
        """Write `story.html`, once all steps have a result."""
        environment = Environment(autoescape=True, undefined=StrictUndefined)
        template = (files("rubricem.training.loop") / "story.html").read_text(encoding="utf-8")
        path = self.folder / "story.html"
        page = environment.from_string(template).render(
            plan=self.plan,
            stages=[stage.value for stage in Stage],
            machine=f"{os.cpu_count()} cores ({platform.machine()})",
            checkpoint=os.path.relpath(self.results["train"]["checkpoint"], self.folder.parent),
            results=self.results.values(),
            **self.results,
        )
        write_atomically(path, page)
        return path

    def _path(self, name: str) -> Path:
        return self.folder / "steps" / f"{name}.json"


def traced(runs: Iterable[Path]) -> Result:
    """How many forced traces the rejection rules accept."""
    found = [
        rejected(trajectory) for run in runs for trajectory in RunDirectory(run).trajectories()
    ]
    broken = Counter(rejection.rule.value for rejection in found if rejection)
    return {
        "asked": len(found),
        "accepted": found.count(None),
        "rejected": dict(broken),
    }


def measured(runs: Iterable[Path]) -> Result:
    """How often free runs of a model keep to the scaffold."""
    found = [one for run in runs for one in _measured(RunDirectory(run))]
    totals = {name: sum(one[name] for one in found) for name in ("turns", "sound_turns")}
    return {"runs": found, **totals}


def _measured(run: RunDirectory) -> Iterator[Result]:
    """One entry for each question, in order; a rollout that failed has no sound turn."""
    trajectories = {trajectory.id: trajectory for trajectory in run.trajectories()}
    for group in run.groups():
        failed = {"question": group.question, "fit": False, "turns": 0, "sound_turns": 0}
        yield from ({**failed, "outcome": f"failed: {reason}"} for reason in group.failures)
        for trajectory in (trajectories[name] for name in group.trajectories):
            broken = rejected(trajectory)
            turns = [document.text for document in rounds(trajectory)]
            yield {
                "question": group.question,
                "outcome": broken.sentence if broken else trajectory.reason or "fit to imitate",
                "fit": broken is None and trajectory.status is Status.FINISHED,
                "turns": len(turns),
                "sound_turns": sum(not turn_faults(text, i) for i, text in enumerate(turns, 1)),
            }


def exported(rows: Iterable[Path], told: Iterable[str]) -> Result:
    """The rows of files, and why there are not more, as `rubricem export` told."""
    dropped = Counter[str]()
    for count, reason in _DROPPED.findall("\n".join(told)):
        dropped[reason] += int(count)
    lines = [line for file in rows for line in file.read_text(encoding="utf-8").splitlines()]
    tokens = sum(sum(json.loads(line)["loss_mask"]) for line in lines)
    return {"rows": len(lines), "trained_tokens": tokens, "dropped": dict(dropped)}


def collected(runs: Sequence[Path], bank: int) -> Result:
    """The groups of the runs, a step each, with the reflections on them."""
    groups, reflections = list[Result](), list[Result]()
    for run in map(RunDirectory, runs):
        written = list(run.reflections())
        for step, record in zip(run_numbers(run).steps, run.groups(), strict=True):
            groups.append({"step": len(groups) + 1, **_group(step, record)})
            own = [c for c in written if c.trajectory_id == record.reflected]
            best = max(own, key=lambda c: (c.accepted, c.score.total if c.score else -1.0),
                       default=None)  # fmt: skip
            reflections.append({
                "question": record.question,
                "candidates": len(own),
                "valid": sum(not candidate.fault for candidate in own),
                "score": best.score.total if best and best.score else None,
                "accepted": bool(best and best.accepted),
                "takeaways": best.takeaways if best else "",
            })  # fmt: skip
    return {
        "runs": [run.name for run in runs],
        "rollouts": sum(len(group["trajectories"]) for group in groups),
        "groups": groups,
        "reflections": reflections,
        "bank": bank,
    }


def _group(step: StepNumbers, record: GroupRecord) -> Result:
    """A group with its scores, and what its step changed in the question's rubrics."""
    changes: dict[str, list[Result]] = {"added": [], "retired": []}
    for _, change in step.changes:
        changes["retired" if change.kind == "retired" else "added"].append({
            "stage": change.stage,
            "title": change.criterion.title,
            "description": change.criterion.description,
            "reason": change.reason,
        })  # fmt: skip
    return {
        "question": record.question,
        "failures": step.failures,
        "recalled": record.recalled,
        "notes": step.notes,
        "trajectories": [
            {"status": rollout.status, "reason": rollout.reason, "scores": rollout.scores}
            for rollout in step.rollouts
        ],
        **changes,
    }


def asked(base: Mapping[str, Any], trained: Mapping[str, Any], bank: Iterable[Result]) -> Result:
    """Two answers to a question, of the untrained model and of the trained one with its memory."""
    known = {item["id"]: item for item in bank}
    return {
        "question": base["question"],
        "recalled": [known[name] for name in trained["recalled"] if name in known],
        "base": {name: base[name] for name in ("status", "report")},
        "trained": {name: trained[name] for name in ("status", "report")},
    }
