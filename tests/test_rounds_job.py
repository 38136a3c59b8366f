"""What `rubricem train` is told: rows of files and of collected runs, and rounds that agree."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli import main
from judge.stage_judge import GroupJudgement
from memory.errors import SettingsError
from memory.rubrics import RubricBuffer
from memory.schema import Decoding, Status, Trajectory, TrajectoryGroup
from tests.collected import LengthJudge, Opened, judgement, manifest
from tests.test_local_bases import folder_of
from tests.test_recasting import traced
from tests.tiny_model import vocabulary, write_tokenizer
from tests.train_rows import policy_rows, written
from training.folder_tokeniser import vocabulary_of
from training.local.config import TrainConfig
from training.local.training_run import train
from training.local.windows import read_rows
from training.rounds.config import RoundsConfig, build_rounds
from training.rounds.job import build_job, with_rows
from training.row_rule import RowRule
from training.run_directory import GroupRecord, Question, RunDirectory

ROUNDS = {"questions": "q.jsonl", "rounds": 2}


def rounds_of(folder: Path, **changed: Any) -> RoundsConfig:
    return build_rounds({**ROUNDS, **changed}, folder)


def test_paths_of_rounds_are_relative_and_names_of_sources_stay(tmp_path: Path):
    (tmp_path / "documents").mkdir()
    config = rounds_of(tmp_path, held_out="h.jsonl", source=["python", "documents"])
    assert config.questions == str(tmp_path / "q.jsonl")
    assert config.held_out == str(tmp_path / "h.jsonl")
    assert config.source == ("python", str(tmp_path / "documents"))
    assert rounds_of(tmp_path, questions="hf:org/name").questions == "hf:org/name"


def test_the_defaults_are_those_of_the_paper_where_it_names_them(tmp_path: Path):
    config = rounds_of(tmp_path)
    assert (config.reflections, config.ahead, config.lag, config.max_staleness) == (8, 1, 2, 2)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"rounds": 0}, "rounds: .*greater than or equal to 1"),
        ({"group_size": 1}, "group_size: .*greater than or equal to 2"),
        ({"lr": 1.0}, "lr: Extra inputs"),
        ({"judge": "none"}, "nothing to learn from"),
        ({"max_staleness": 1}, "would drop what lags by 2 updates"),
        ({"max_staleness": 0, "reflections": 0}, "would drop what lags by 1 updates"),
        ({"ahead": 2}, "ahead: .*less than or equal to 1"),
        ({"windows": 3, "reflections": 0}, "replay what reflections taught"),
        ({"base_url": "http://localhost:1/v1"}, "needs base_url, model and refresh"),
        ({"refresh": ["true"]}, "needs base_url, model and refresh"),
        ({"held_out_every": 2}, "held_out_every needs held_out"),
        (
            {"reflections": 0, "least_reflection_score": 0.2},
            "about reflections, and there are none",
        ),
    ],
)
def test_rounds_that_cannot_be_meant_are_told_by_name(
    tmp_path: Path, changed: dict[str, Any], fault: str
):
    with pytest.raises(SettingsError, match=fault) as told:
        rounds_of(tmp_path, **changed)
    assert "It may set questions, held_out" in told.value.remedy


@pytest.mark.parametrize(
    ("values", "method", "fault"),
    [
        ({"rounds": ROUNDS, "rows": ["r"]}, "ss-grpo", "makes rows of its own"),
        ({"rounds": ROUNDS}, "sft", "makes rows of its own"),
        ({"rounds": ROUNDS, "save_every": 2}, "ss-grpo", "saves a checkpoint after every round"),
        ({"rows": ["r.jsonl"], "credit": "flat"}, "ss-grpo", "no credit 'flat'"),
        (
            {"rows": ["r.jsonl"], "credit": "ss-grpo"},
            "ss-grpo",
            "rows were made with theirs",
        ),
        ({"rounds": ROUNDS, "epochs": 2}, "ss-grpo", "epochs: Extra inputs"),
        (
            {"rows": ["r.jsonl"], "rules": ["citation"]},
            "sft",
            "exported rows were made with theirs",
        ),
        ({"rounds": ROUNDS, "rules": ["support"]}, "ss-grpo", "chooses among the runs that are im"),
        ({"rows": ["r"], "rules": ["no_answer"]}, "sft", r"no rejection rules \['no_answer'\]"),
        ({"rows": ["r"], "rules": "support"}, "sft", "no rejection rules 'support'"),
    ],
)
def test_what_contradicts_itself_is_refused(
    tmp_path: Path, values: dict[str, Any], method: Any, fault: str
):
    with pytest.raises(SettingsError, match=fault):
        build_job({"out": "run", **values}, tmp_path, method)


async def collected(folder: Path, judge: LengthJudge | None = None) -> Path:
    opened = Opened(folder, reflections=0)
    judge = judge or LengthJudge()
    await opened.collector(judge=judge, reflecting=None, memory=None).collect()
    opened.close()
    return opened.run.folder


def config_of(folder: Path, rows: list[str], **more: Any) -> tuple[TrainConfig, RowRule]:
    job = build_job({"out": "out", "rows": rows, **more}, folder, "ss-grpo")
    assert isinstance(job.config, TrainConfig) and job.rounds is None
    return job.config, job.rule


async def test_collected_runs_are_compiled_beside_files_and_their_groups_stay_apart(
    tmp_path: Path,
):
    for name in ("a", "b"):
        await collected(tmp_path / name)
    written(tmp_path / "more.jsonl", policy_rows(2))
    config, rule = config_of(tmp_path, ["a/run", "b/run", "more.jsonl"])
    told: list[str] = []
    found = await with_rows(config, rule, "ss-grpo", told.append)
    assert [path.name for path in found.rows] == ["0.jsonl", "1.jsonl", "more.jsonl"]
    rows = read_rows(found.rows)
    groups = {row.group for row in rows}
    assert len(rows) == 14 and len(groups) == 7, "three groups of two of each run, one of the file"
    assert told == [f"{tmp_path / name / 'run'}: 6 rows" for name in ("a", "b")]
    again = await with_rows(config, rule, "ss-grpo", told.append)
    assert read_rows(again.rows) == rows, "a run that goes on finds the same"


class OpposedJudge(LengthJudge):
    """The second rollout plans well and answers badly."""

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement:
        judged = await super().judge(group, buffer, step)
        scores = [[float(n), 0.5, 0.5, 1.0 - n] for n in range(2)]
        given = zip(group.trajectories, scores, strict=True)
        told = tuple(judgement(trajectory, own) for trajectory, own in given)
        return judged.model_copy(update={"judgements": told})


@pytest.mark.parametrize(
    ("credit", "plan", "research"),
    [
        ("ss-grpo", 1.0, -1.0),
        ("answer-only", -1.0, -1.0),
        ("identity", 1.0, 0.0),
        ("dr-grpo", -0.5, -0.5),
        ([[1, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1]], 0.0, -1.0),
    ],
)
async def test_the_credit_shapes_the_rows_of_a_collected_run(
    tmp_path: Path, credit: Any, plan: float, research: float
):
    # The plan's returns by the paper: 0.2 + 0.3 + 0.8 of the first, 1 + 0.2 + 0.3 of the second.
    run = await collected(tmp_path, OpposedJudge())
    config, named = config_of(tmp_path, [str(run)], credit=credit)
    second = read_rows((await with_rows(config, named, "ss-grpo", print)).rows)[1]
    stages = zip(second.stages, second.advantages, second.loss_mask, strict=True)
    of_stage = {stage: advantage for stage, advantage, on in stages if on}
    assert (of_stage[0], of_stage[1]) == pytest.approx((plan, research), abs=1e-4)


async def test_a_folder_that_was_exported_is_taken_as_exported(tmp_path: Path):
    run = await collected(tmp_path)
    written(run / "rows.jsonl", policy_rows(2))
    config, rule = config_of(tmp_path, [str(run)])
    assert await with_rows(config, rule, "ss-grpo", print) == config


def forced(folder: Path, traces: list[Trajectory]) -> RunDirectory:
    """A run of one step that holds these traces."""
    asked = traces[0].question
    questions, run = [Question(id="0", question=asked)], RunDirectory(folder)
    run.begin(manifest(questions, decoding=Decoding.FORCED, step_size=1), questions)
    record = GroupRecord(id="g", step=0, question_id="0", question=asked,
                         trajectories=tuple(t.id for t in traces))  # fmt: skip
    run.commit(0, {"trajectories": traces, "groups": [record]})
    return run


async def test_imitation_takes_accepted_traces_and_counts_the_others_by_reason(
    tmp_path: Path, tiny: Path
):
    trace = await traced(tmp_path / "fakes")
    unanswered = tuple(s for s in trace.segments if s.stage is None or s.stage != "answer")
    bad = {
        "partial": trace.model_copy(update={"id": "p", "status": Status.PARTIAL}),
        "unanswered": trace.model_copy(update={"id": "u", "segments": unanswered}),
        "again": trace.model_copy(update={"id": "v", "segments": unanswered}),
    }
    forced(tmp_path / "traces", [trace, *bad.values()])
    config, rule = config_of(tmp_path, ["traces"], model=str(tiny))
    told: list[str] = []
    found = await with_rows(config, rule, "sft", told.append)
    (row,) = read_rows(found.rows)
    assert row.objective == "sft" and not row.ratio_allowed
    assert told == [
        f"{tmp_path / 'traces'}: 1 rows; 2 left out, rejected by the rule no_answer; "
        "1 left out, it is partial, not finished"
    ]


async def test_imitation_goes_by_the_rules_that_are_switched_on(tmp_path: Path, tiny: Path):
    trace = await traced(tmp_path / "fakes")
    other = tuple(s.model_copy(update={"text": "Nothing of it."}) for s in trace.sources)
    unfounded = trace.model_copy(update={"id": "u", "sources": other})
    unknown = trace.model_copy(update={"id": "v", "sources": ()})
    forced(tmp_path / "traces", [trace, unfounded, unknown])
    values = {"out": "out", "rows": ["traces"], "model": str(tiny)}
    for rules, left in (
        ([], "3 rows"),
        (["citation"], "2 rows; 1 left out, rejected by the rule citation"),
        (["support"], "1 rows; 2 left out, rejected by the rule support"),
    ):
        job, told = build_job({**values, "rules": rules}, tmp_path, "sft"), list[str]()
        assert isinstance(job.config, TrainConfig)
        await with_rows(job.config, job.rule, "sft", told.append, job.rules)
        assert told == [f"{tmp_path / 'traces'}: {left}"]


async def test_the_commands_take_the_rules(tmp_path: Path, tiny: Path):
    trace = await traced(tmp_path / "fakes")
    run = forced(tmp_path / "traces", [trace.model_copy(update={"sources": ()})])
    path, left = tmp_path / "sft.toml", "rejected by the rule citation"
    told = {"out": "out", "rows": ["traces"], "model": str(tiny), "rules": ["citation"]}
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in told.items()))
    refused = await asyncio.to_thread(invoked, "train", "sft", str(path))
    assert refused.exit_code == 2 and f"1 left out, {left}" in refused.stderr
    flags = ("--model", str(tiny), "--rule", "citation")
    done = await asyncio.to_thread(invoked, "export", str(run.folder), *flags)
    assert f"1 dropped: {left}" in done.stdout.splitlines()


def invoked(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


async def test_free_runs_are_imitated_with_their_tool_output_masked(tmp_path: Path, tiny: Path):
    run = await collected(tmp_path)
    config, rule = config_of(tmp_path, [str(run)], model=str(tiny))
    rows = read_rows((await with_rows(config, rule, "sft", print)).rows)
    assert len(rows) == 6
    text = "".join(
        chr(i) for i, on in zip(rows[0].ids, rows[0].loss_mask, strict=True) if on and i < 128
    )
    assert "<answer>" in text and "<tool_output" not in text
    whole = "".join(chr(i) for i in rows[0].ids if i < 128)
    assert "<tool_output" in whole


async def test_a_folder_is_trained_to_imitate_a_run_in_its_own_tokens(tmp_path: Path, tiny: Path):
    run = await collected(tmp_path)
    folder_of(tmp_path / "base", "qwen2", vocab_size=132)
    config, rule = config_of(tmp_path, [str(run)], model="base", max_steps=1, threads=1)
    with pytest.raises(SettingsError, match="has no tokenizer"):
        await with_rows(config, rule, "sft", print)
    write_tokenizer(tmp_path / "base")
    compiled = await with_rows(config, rule, "sft", print)
    by_llama = config.model_copy(update={"model": str(tiny), "out": tmp_path / "other"})
    rows = read_rows(compiled.rows)
    assert rows == read_rows((await with_rows(by_llama, rule, "sft", print)).rows)
    assert len(rows) == 6 and {row.tokenizer for row in rows} == {vocabulary_of(tiny)}
    assert len((await train(compiled, "sft", print)).steps) == 1
    words = vocabulary()
    write_tokenizer(tmp_path / "base", [words[1], words[0], *words[2:]])
    other = compiled.model_copy(update={"out": tmp_path / "again"})
    with pytest.raises(SettingsError, match="are of another tokenizer than the model's") as told:
        await train(other, "sft", print)
    assert "--model" in told.value.remedy
