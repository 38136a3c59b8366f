"""A collected run as one self-contained page: no script, nothing loaded, every text escaped.

Charts are over the run's steps. What models wrote is shown as it stands, made printable.
"""

from pathlib import Path
from typing import Any

from agent.reports.report import duration, stage_texts
from memory.runs import write_atomically
from memory.schema import Stage, StageScore, Status
from training.export_judged import JudgedTrajectory
from training.run_page_charts import health_charts, rubric_changes, stage_card, work_charts
from training.run_page_frame import rendered
from training.run_page_numbers import RunNumbers, malformed_share, mean, unscored_share
from training.run_page_rollouts import Extremes

MOST = 6000
"""characters shown of one stage's text"""


def write_page(path: Path, run: RunNumbers, title: str) -> None:
    """Write the page; `title` names the run, by its folder."""
    write_atomically(path, page(run, title))


def page(run: RunNumbers, title: str) -> str:
    return rendered(
        "run_page.html",
        {"duration": duration, "number": number, "percent": percent},
        title=title,
        run=run,
        rollouts=run.rollouts,
        finished=sum(r.status is Status.FINISHED for r in run.rollouts),
        unscored=unscored_share(run.rollouts),
        malformed=malformed_share(run.rollouts),
        cards=[stage_card(run, place, stage) for place, stage in enumerate(Stage)],
        health=health_charts(run.steps),
        work=work_charts(run.steps),
        rubrics=rubric_changes(run.steps),
        scaffold=scaffold_means(run),
        variety=run.variety.told(),
        extremes=[_side_by_side(found) for found in run.extremes],
        usage=run.usage(),
        notes=[(step.step + 1, note) for step in run.steps for note in step.notes],
    )


def number(value: float | None, form: str = ".2f") -> str:
    return "none" if value is None else format(value, form)


def percent(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:.1%}" if 0 < value < 0.1 else f"{value:.0%}"


def scaffold_means(run: RunNumbers) -> list[tuple[int, int, float | None]]:
    """For each number of criteria shown: rollouts, and their mean answer score; [] without any."""
    if run.manifest.scaffold is None:
        return []
    found = []
    for shown in sorted({r.shown for r in run.rollouts}, reverse=True):
        own = [r for r in run.rollouts if r.shown == shown]
        found.append((shown, len(own), mean([s for r in own if (s := r.scores[-1]) is not None])))
    return found


def _side_by_side(found: Extremes) -> dict[str, Any]:
    """The two of a group, stage by stage."""
    pair = (found.best, found.worst)
    texts = [stage_texts(one) for one in pair]
    return {
        "step": found.step + 1,
        "question": found.question,
        "by": found.by,
        "values": found.values,
        "threads": [one.thread for one in pair],
        "endings": [(one.status.value, one.reason) for one in pair],
        "stages": [
            {
                "name": stage.value.capitalize(),
                "each": [
                    (_cut(text.get(stage, "")), _stage_score(one, stage))
                    for one, text in zip(pair, texts, strict=True)
                ],
            }
            for stage in Stage
        ],
    }


def _stage_score(one: JudgedTrajectory, stage: Stage) -> StageScore | None:
    stages = one.judgement.stages if one.judgement else ()
    return next((score for score in stages if score.stage is stage), None)


def _cut(text: str) -> str:
    return text if len(text) <= MOST else f"{text[:MOST]}\u2026"
