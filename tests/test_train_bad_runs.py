"""Collected runs that nothing can be learnt from: one sentence and a remedy, before any model."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli import main
from memory.schema import TrajectoryGroup
from tests.collected import QUESTIONS, LengthJudge, Opened, judgement, manifest
from training.run_directory import RunDirectory


def collected(folder: Path, judge: LengthJudge | None = None) -> Path:
    async def collect() -> Path:
        opened = Opened(folder, reflections=0)
        made = opened.collector(judge=judge or LengthJudge(), reflecting=None, memory=None)
        await made.collect()
        opened.close()
        return opened.run.folder

    return asyncio.run(collect())


def trained(folder: Path, run: Path, **more: Any) -> Result:
    told = {"out": "out", "model": "no model is read.gguf", "rows": [str(run)], **more}
    path = folder / "train.toml"
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in told.items()))
    return CliRunner().invoke(main, ["train", "ss-grpo", str(path)])


def said(done: Result) -> str:
    assert not (
        isinstance(done.exception, Exception) and not isinstance(done.exception, SystemExit)
    )
    return " ".join(done.stderr.split())


def test_a_run_without_a_finished_step_is_empty(tmp_path: Path):
    run = RunDirectory(tmp_path / "run")
    run.begin(manifest(), QUESTIONS)
    done = trained(tmp_path, run.folder)
    assert done.exit_code == 2, done.output
    assert "no rollout of the runs gives a row for ss-grpo: no step is finished" in said(done)


class AlikeJudge(LengthJudge):
    """Every stage of every rollout is worth the same."""

    async def judge(self, group: TrajectoryGroup, buffer: Any, step: int = 0) -> Any:
        judged = await super().judge(group, buffer, step)
        alike = tuple(judgement(trajectory, [0.5] * 4) for trajectory in group.trajectories)
        return judged.model_copy(update={"judgements": alike})


def test_a_run_whose_scores_are_all_alike_teaches_nothing(tmp_path: Path):
    done = trained(tmp_path, collected(tmp_path, AlikeJudge()))
    assert done.exit_code == 2, done.output
    assert "gives a row for ss-grpo: 6 left out, its group differs at no stage" in said(done)
    assert "groups whose stages are scored differently" in said(done)


def test_a_run_whose_rows_are_all_too_long_is_told_with_their_number(tmp_path: Path):
    done = trained(tmp_path, collected(tmp_path), max_row_tokens=2)
    assert done.exit_code == 2, done.output
    assert "no row to train on by ss-grpo (6 longer than 2 tokens)" in said(done)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_kept_score_that_is_no_number_is_damage_and_no_score(tmp_path: Path, number: str):
    run = collected(tmp_path)
    kept = run / "judgements.jsonl"
    kept.write_text(re.sub('"score":[0-9.]+', f'"score":{number}', kept.read_text(), count=1))
    last = max(run.glob("steps/*/done.json"))
    committed = json.loads(last.read_text())
    committed["sizes"]["judgements"] = kept.stat().st_size
    last.write_text(json.dumps(committed))
    done = trained(tmp_path, run)
    assert done.exit_code == 1, done.output
    assert "judgements.jsonl cannot be read" in said(done)
    assert "take it from a copy" in said(done)
