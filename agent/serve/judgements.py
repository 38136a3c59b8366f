"""A run's judgement as the page shows it: stage by stage, criterion by criterion."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent.judged_runs import FILE
from memory.errors import StoreError
from memory.runs import unusable
from memory.schema import Judgement, StageScore, Verdict


def kept_judgement(folder: Path) -> Judgement | None:
    """What lies in a run's folder, also where nothing was scored; None where nothing lies there."""
    path = folder / FILE
    try:
        return Judgement.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable(path, error) from error
    except ValidationError as error:
        raise StoreError(
            f"The judgement of this run cannot be read: {error.errors()[0]['msg']}.",
            "Have the run judged anew.",
        ) from error


def judgement_json(judgement: Judgement, trajectory_id: str) -> dict[str, Any]:
    """`note` says where it is about an earlier end of the run."""
    stale = judgement.trajectory_id != trajectory_id
    return {
        "judge": judgement.judge,
        "rubric_version": judgement.rubric_version,
        "note": "The run has gone on since it was judged." if stale else "",
        "stages": [_stage(score) for score in judgement.stages],
    }


def _stage(score: StageScore) -> dict[str, Any]:
    """`score` is None where it is unscored, and `reason` says why."""
    return {
        "stage": score.stage.value,
        "score": score.score,
        "reason": score.unscored_reason if score.score is None else score.justification,
        "missing": score.missing,
        "spread": score.spread,
        "components": score.components,
        "criteria": [_criterion(verdict) for verdict in score.verdicts],
    }


def _criterion(verdict: Verdict) -> dict[str, Any]:
    """`points` from 0, absent, to 2, full; of a flaw they are the flaw's."""
    criterion = verdict.criterion
    return {
        "title": criterion.title,
        "text": criterion.description,
        "weight": criterion.weight,
        "positive": criterion.positive,
        "persistent": criterion.persistent,
        "points": verdict.points,
        "why": verdict.justification,
        "by": verdict.justified_by,
    }
