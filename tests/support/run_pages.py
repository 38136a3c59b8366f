"""A run of two steps in a folder, its numbers worked by hand, some of its texts hostile."""

from datetime import UTC, datetime
from pathlib import Path

from click.testing import CliRunner, Result

from rubricem.agent.cli import main
from rubricem.judge.base import NO_CRITERIA
from rubricem.judge.stage import GroupJudgement
from rubricem.memory.rubrics import RubricBuffer, RubricChange
from rubricem.memory.schema import (
    Author,
    Criterion,
    Judgement,
    ScaffoldedPrompt,
    Stage,
    StageScore,
    Status,
    Trajectory,
    Usage,
    Verdict,
)
from rubricem.training.collect.directory import GroupRecord, Question, RunDirectory
from rubricem.training.collect.groups import Reflected
from rubricem.training.collect.scaffolding import ScaffoldRule
from tests.support.collected import candidate, manifest
from tests.support.policies import answer, plan
from tests.training.rows.test_compile import rollout

NASTY = "<script>alert(1)</script>\x1b[31m</pre>\"'><img src=x onerror=alert(2)>\u202e"
ASKED = (Question(id="0", question=f"What is one? {NASTY}"), Question(id="1", question="Two?"))
BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()


def member(name: str, began: float = 0, **changed: object) -> Trajectory:
    """A rollout whose form is whole: two searches, 100 tokens read and 10 written, 5 seconds."""
    bare = rollout(name)
    prompt, plan_, _, tool, *_ = bare.segments
    segments = (
        prompt,
        plan_.model_copy(update={"text": plan()}),
        tool,
        plan_.model_copy(
            update={"text": answer(), "turn": 2, "stage": Stage.ANSWER, "author": Author.POLICY}
        ),
    )
    fields: dict[str, object] = {
        "segments": segments, "tool_calls": 2, "seconds": 5.0,
        "usage": Usage(prompt_tokens=100, completion_tokens=10, cost=0.25, calls=2),
        "started_at": datetime.fromtimestamp(BEGAN + began, UTC),
    }  # fmt: skip
    return bare.model_copy(update={**fields, **changed})


def judged(one: Trajectory, *scores: float | None) -> Judgement:
    """A judgement of the first stages; a stage beyond the scores has no criteria."""
    criterion = Criterion(title="c", description=f"Says it. {NASTY}")
    verdicts = (Verdict(criterion=criterion, points=1, justification=f"Because {NASTY}"),)
    stages = [
        StageScore(
            stage=stage,
            score=score,
            unscored_reason="" if score is not None else f"the judge failed {NASTY}",
            verdicts=verdicts,
        )
        for stage, score in zip(Stage, scores, strict=False)
    ]
    stages += [StageScore(stage=s, unscored_reason=NO_CRITERIA) for s in list(Stage)[len(scores) :]]
    return Judgement(
        trajectory_id=one.id,
        judge="fake",
        rubric_version="3-abc",
        stages=tuple(stages),
        usage=Usage(prompt_tokens=7, completion_tokens=1, cost=0.125, calls=1),
    )


def change(version: int, step: int, kind: str, title: str) -> RubricChange:
    criterion = Criterion(title=title, description=f"{title} {NASTY}")
    return RubricChange(
        version=version, step=step, stage=Stage.ANSWER, kind=kind, criterion=criterion, reason="r"
    )  # type: ignore[arg-type]


def written_run(folder: Path) -> RunDirectory:
    """Step 1: two rollouts that are judged, one failed. Step 2: one malformed and not judged."""
    run = RunDirectory(folder)
    run.begin(manifest(ASKED, judge="fake", scaffold=ScaffoldRule(), step_size=1), ASKED)
    shown = ScaffoldedPrompt(text="", shown=3)
    best, worst = member("best", scaffold=shown), member("worst", began=10)
    broken = member(
        "broken", began=100, status=Status.PARTIAL, reason=f"cut {NASTY}",
        segments=rollout("x").segments,
    )  # fmt: skip
    judgements = (judged(best, 0.5, 0.5, 0.5, 1.0), judged(worst, 0.5, 0.25, None, 0.25))
    history = (
        change(1, 0, "added", "of an earlier run"),
        change(3, 0, "added", "new"),
        change(4, 0, "retired", "of no use"),
    )
    buffer = RubricBuffer(question=ASKED[0].question, version=4, history=history)
    run.save_part(0, "a-judged", GroupJudgement(judgements=judgements, buffer=buffer))
    spent = Usage(prompt_tokens=20, completion_tokens=4, cost=0.0625, calls=3)
    run.save_part(0, "a-reflected", Reflected(trajectory_id="best", usage=spent))
    run.commit(
        0,
        {
            "trajectories": [best, worst],
            "groups": [
                GroupRecord(
                    id="a", step=0, question_id="0", question=ASKED[0].question,
                    trajectories=("best", "worst"), failures=(f"The server is down. {NASTY}",),
                    rubric_version="3-abc", notes=(f"No new criteria {NASTY}",),
                    lost=Usage(prompt_tokens=50, cost=0.5, calls=1),
                )
            ],
            "judgements": judgements,
            "reflections": [candidate(best)],
        },
    )  # fmt: skip
    record = GroupRecord(id="b", step=1, question_id="1", question="Two?", trajectories=("broken",))
    run.commit(1, {"trajectories": [broken], "groups": [record]})
    return run


def show(*arguments: object) -> Result:
    """The command that shows a run."""
    return CliRunner().invoke(main, ["runs", "show", *map(str, arguments)])
