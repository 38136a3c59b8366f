"""`rubricem judge`: score what was answered, stage by stage, with rubrics for its question."""

import asyncio
from typing import Any

import click

from agent.judged_runs import Judgeable, find_run
from agent.settings import Settings, load_settings
from judge.stage_judge import GroupJudgement
from memory.errors import JudgeError


@click.group()
def judge() -> None:
    """Score runs stage by stage."""


@judge.command()
@click.argument("run")
@click.option("--model", help="The judge: 1.5b, 0.5b, a .gguf file, or a server's model.")
@click.option("--base-url", metavar="URL", help="An OpenAI-compatible server to ask instead.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def score(run: str, as_json: bool, **flags: Any) -> None:
    """Score RUN: a thread, a trajectory's .json file, or the folder of a collected run.

    The verdicts are kept beside the trajectory in judgement.json, the rubrics of each question
    in the data directory.
    """
    settings = load_settings(flags)
    found = find_run(run, settings.data_dir)
    judged = asyncio.run(_judged(settings, found))
    _check(judged)
    path = found.save([judgement for group in judged for judgement in group.judgements])
    _show(found, judged, str(path), as_json)


async def _judged(settings: Settings, found: Judgeable) -> list[GroupJudgement]:
    """Every group in turn; the rubrics of each are saved once it is judged."""
    from agent.judging import open_judge
    from memory.buffers import BufferStore

    store = BufferStore(settings.data_dir / "buffers")
    judged = []
    async with open_judge(settings) as stage_judge:
        for step, group in enumerate(found.groups):
            buffer = await asyncio.to_thread(store.load, group.question)
            judged.append(await stage_judge.judge(group, buffer, step))
            await asyncio.to_thread(store.save, judged[-1].buffer)
    return judged


def _check(judged: list[GroupJudgement]) -> None:
    """Raises JudgeError where a judge that did not work left everything unscored."""
    notes = [note for group in judged for note in group.notes]
    judgements = [judgement for group in judged for judgement in group.judgements]
    scored = any(stage.score is not None for j in judgements for stage in j.stages)
    if notes and not scored:
        raise JudgeError(f"Nothing could be scored. {notes[0]}")


def _show(found: Judgeable, judged: list[GroupJudgement], path: str, as_json: bool) -> None:
    if as_json:
        import json

        groups = [group.model_dump(mode="json") for group in judged]
        click.echo(json.dumps({"file": path, "groups": groups}, ensure_ascii=False))
        return
    from agent.reports.judged import print_judgement

    for group, result in zip(found.groups, judged, strict=True):
        for trajectory, judgement in zip(group.trajectories, result.judgements, strict=True):
            print_judgement(trajectory, judgement)
        for note in result.notes:
            click.echo(f"note: {note}", err=True)
    click.echo(f"kept in {path}")
