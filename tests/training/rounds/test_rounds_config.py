"""What `rubricem train` is told: rows of files and of collected runs, and rounds that agree.

Rounds under a rubric scaffold: what each one shows, and settings that contradict it.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.schema import (
    Decoding,
    Status,
    Trajectory,
)
from rubricem.training.collect.directory import GroupRecord, RunDirectory
from rubricem.training.collect.questions import Question
from rubricem.training.collect.scaffolding import ScaffoldRule, criteria_shown
from rubricem.training.local.local_config import TrainConfig
from rubricem.training.local.session import vocabulary_of
from rubricem.training.rounds import rollouts
from rubricem.training.rounds.fit import read_rows, train
from rubricem.training.rounds.rounds_config import (
    RoundsConfig,
    TrainingJob,
    build_job,
)
from rubricem.training.rounds.update import RoundFolders
from rubricem.training.rows.credit import RowRule
from rubricem.training.rows.forms import ExportOptions, export_run
from rubricem.training.rows.row import TrainRow
from rubricem.training.tables import check_table
from tests.support.collected import LengthJudge, Opened, manifest
from tests.support.rows import policy_rows, written
from tests.support.tiny import vocabulary, write_tokenizer
from tests.training.local.test_load import folder_of
from tests.training.rounds.test_rounds import metrics, on_server, server
from tests.training.rounds.test_rounds import train as run_train
from tests.training.rows.test_compile import traced

ROUNDS = {"questions": "q.jsonl", "rounds": 2}


def rounds_of(folder: Path, **changed: Any) -> RoundsConfig:
    return check_table({**ROUNDS, **changed}, RoundsConfig, "[rounds]").beside(folder)


@pytest.mark.parametrize(
    ("place", "changed", "by_torch"),
    [
        ("cuda", {}, True),
        ("cpu", {}, False),
        ("cuda", {"sampler": "llama.cpp"}, False),
        ("cpu", {"sampler": "torch"}, True),
        (
            "cuda",
            {"base_url": "http://127.0.0.1:9/v1", "model": "m", "refresh": "vllm-lora"},
            False,
        ),
    ],
)
def test_a_gpu_samples_where_nothing_else_was_chosen(
    place: str,
    changed: dict[str, Any],
    by_torch: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(rollouts, "device_of", lambda: torch.device(place))
    assert rollouts.samples_by_torch(rounds_of(tmp_path, **changed)) == by_torch


def test_paths_of_rounds_are_relative_and_names_of_sources_stay(tmp_path: Path):
    (tmp_path / "documents").mkdir()
    config = rounds_of(tmp_path, held_out="h.jsonl", source=["python", "documents"])
    assert config.questions == str(tmp_path / "q.jsonl")
    assert config.held_out == str(tmp_path / "h.jsonl")
    assert config.source == ("python", str(tmp_path / "documents"))


SERVED = {"base_url": "http://localhost:1/v1", "model": "m", "refresh": "vllm-lora"}


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"rounds": 0}, "rounds: .*greater than or equal to 1"),
        ({"group_size": 1}, "two rollouts or more"),
        ({"lr": 1.0}, "lr: Extra inputs"),
        ({"judge": "none"}, "nothing to learn from"),
        ({"judge": "none", "gated": True}, "gated puts a gate before a judge of ours"),
        ({"judge": "rubric:own:Long", "gated": True}, "gated puts a gate before a judge of ours"),
        ({"windows": 3, "reflections": 0}, "replay what reflections taught"),
        ({"base_url": "http://localhost:1/v1"}, "needs base_url, model and refresh"),
        ({"refresh": ["true"]}, "needs base_url, model and refresh"),
        ({"held_out_every": 2}, "held_out_every needs held_out"),
        ({"sampler": "torch", "ray_workers": 2}, "torch is one process and no server"),
        ({**SERVED, "sampler": "torch"}, "torch is one process and no server"),
        ({"ahead": 2}, "ahead: Input should be 0 or 1"),
        ({**SERVED, "refresh": "sglang-lora"}, "refresh.*: Input should be 'vllm-lora'"),
        ({**SERVED, "base_url": ["a", "b"]}, "base_url: Input should be a valid string"),
        ({"branch": True}, "branch: .*it is gone: whole rollouts are sampled"),
    ],
)
def test_rounds_that_cannot_be_meant_are_told_by_name(
    tmp_path: Path, changed: dict[str, Any], fault: str
):
    with pytest.raises(SettingsError, match=fault) as told:
        rounds_of(tmp_path, **changed)
    assert "judge, " in told.value.remedy and "held_out, " in told.value.remedy


def test_a_key_that_is_gone_says_what_takes_its_place_also_in_a_table(tmp_path: Path):
    values = {"out": "x", "rows": ["r"], "pack_tokens": 9, "objective": {"cap": 3.0}}
    with pytest.raises(SettingsError, match=r"cap.*gone.*pack_tokens.*gone: set micro_batch"):
        build_job(values, tmp_path, "sft")


LINEAR = {**ROUNDS, "scaffold": "linear"}


@pytest.mark.parametrize(
    ("method", "values", "fault"),
    [
        ("ss-grpo", {"rounds": ROUNDS, "rows": ["r"]}, "makes rows of its own"),
        ("sft", {"rounds": ROUNDS}, "makes rows of its own"),
        ("ss-grpo", {"rounds": ROUNDS, "save_every": 2}, "saves a checkpoint after every round"),
        ("ss-grpo", {"rounds": ROUNDS, "epochs": 2}, "epochs: Extra inputs"),
        ("ss-grpo", {"rows": ["r.jsonl"], "credit": "flat"}, "no credit 'flat'"),
        ("ss-grpo", {"rows": ["r.jsonl"], "credit": "ss-grpo"}, "rows were made with theirs"),
        ("sft", {"rows": ["r"], "credit": "sum"}, "credit: this acts on judged groups"),
        ("sft", {"rows": ["r.jsonl"], "rules": ["citation"]}, "rows were made with theirs"),
        ("ss-grpo", {"rounds": ROUNDS, "rules": ["support"]}, "acts on runs that are imitated"),
        ("sft", {"rows": ["r"], "rules": ["no_answer"]}, r"no rejection rules \['no_answer'\]"),
        ("sft", {"rows": ["r"], "rules": "support"}, "no rejection rules 'support'"),
        ("ss-grpo", {"rounds": {**ROUNDS, "scaffold": "half"}}, "scaffold: Input should be 'lin"),
        ("ss-grpo", {"rounds": {**LINEAR, "scaffold_decay": "linear"}}, "fades by a sigmoid"),
        ("ss-grpo", {"rounds": LINEAR, "scaffold_ratio": "scaffolded"}, "formed without the scaff"),
        ("ss-grpo", {"rounds": LINEAR, "objective": {"importance": "bypass"}},
         "saw a scaffold that the rows have not"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(
    tmp_path: Path, method: Any, values: dict[str, Any], fault: str
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
    found = await TrainingJob(config, None, rule).with_rows("ss-grpo", told.append)
    assert [path.name for path in found.rows] == ["0.jsonl", "1.jsonl", "more.jsonl"]
    rows = read_rows(found.rows)
    groups = {row.group for row in rows}
    assert len(rows) == 14 and len(groups) == 7, "three groups of two of each run, one of the file"
    assert told == [f"{tmp_path / name / 'run'}: 6 rows" for name in ("a", "b")]
    again = await TrainingJob(config, None, rule).with_rows("ss-grpo", told.append)
    assert read_rows(again.rows) == rows, "a run that goes on finds the same"


async def test_a_run_is_compiled_whatever_was_exported_into_its_folder(tmp_path: Path):
    run = await collected(tmp_path)
    config, rule = config_of(tmp_path, [str(run)], credit="ss-grpo")
    bare = read_rows((await TrainingJob(config, None, rule).with_rows("ss-grpo", print)).rows)
    written(run / "rows.jsonl", policy_rows(2))  # as of another credit, or of fewer steps
    config, rule = config_of(tmp_path, [str(run)], credit="ss-grpo")
    found = await TrainingJob(config, None, rule).with_rows("ss-grpo", print)
    assert read_rows(found.rows) == bare


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
    found = await TrainingJob(config, None, rule).with_rows("sft", told.append)
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
        await job.with_rows("sft", told.append)
        assert told == [f"{tmp_path / 'traces'}: {left}"]


async def test_exported_conversations_are_imitated_as_their_run_is(tmp_path: Path, tiny: Path):
    run, rows = await collected(tmp_path), list[list[TrainRow]]()
    export_run(run, "sft", tmp_path / "chosen.jsonl", ExportOptions())
    for source in (str(run), "chosen.jsonl"):
        config, rule = config_of(tmp_path, [source], model=str(tiny))
        compiled = await TrainingJob(config, None, rule).with_rows("sft", print)
        rows.append(read_rows(compiled.rows))
    assert len(rows[0]) == 6 and rows[0] == rows[1]
    (tmp_path / "chosen.jsonl").write_text('{"schema_version": 3, "messages": []}')
    with pytest.raises(StoreError, match=r"chosen\.jsonl"):
        await TrainingJob(config, None, rule).with_rows("sft", print)


@pytest.mark.slow
async def test_a_folder_is_trained_to_imitate_a_run_in_its_own_tokens(tmp_path: Path, tiny: Path):
    run = await collected(tmp_path)
    folder_of(tmp_path / "base", "qwen2", vocab_size=132)
    config, rule = config_of(tmp_path, [str(run)], model="base")
    with pytest.raises(SettingsError, match="has no tokenizer"):
        await TrainingJob(config, None, rule).with_rows("sft", print)
    write_tokenizer(tmp_path / "base")
    compiled = await TrainingJob(config, None, rule).with_rows("sft", print)
    by_llama = config.model_copy(update={"model": str(tiny), "out": tmp_path / "other"})
    rows = read_rows(compiled.rows)
    assert rows == read_rows((await TrainingJob(by_llama, None, rule).with_rows("sft", print)).rows)
    assert len(rows) == 6 and {row.tokenizer for row in rows} == {vocabulary_of(tiny)}
    assert len((await train(compiled, "sft", print)).steps) == 1
    words = vocabulary()
    write_tokenizer(tmp_path / "base", [words[1], words[0], *words[2:]])
    other = compiled.model_copy(update={"out": tmp_path / "again"})
    with pytest.raises(SettingsError, match="are of another tokenizer than the model's") as told:
        await train(other, "sft", print)
    assert "--model" in told.value.remedy


__all__ = ["server"]


def shown(folder: Path, number: int, rounds: int, size: int = 4) -> list[int]:
    """Of ten criteria, how many each member sees in a round, counted from 0."""
    config = rounds_of(folder, rounds=rounds, scaffold="linear")
    rule = ScaffoldRule(progress=config.progress_of(number))
    return [criteria_shown(rule, member, size, 10) for member in range(size)]


def test_the_scaffold_fades_with_the_rounds_of_the_run(tmp_path: Path):
    # (G - i) / (G - 1) of ten: 10, 6.67, 3.33, 0; half of that is left after a fifth of the run.
    assert shown(tmp_path, 0, 6) == [10, 7, 3, 0]
    assert shown(tmp_path, 1, 6) == [5, 3, 2, 0]
    assert shown(tmp_path, 5, 6) == [0, 0, 0, 0]


@pytest.mark.slow
def test_rounds_under_a_scaffold_train_without_it(tmp_path: Path, server: str):
    shape = {"rounds": 2, "group_size": 4, "reflections": 0, "held_out": None, "ahead": 0,
             "scaffold": "linear"}  # fmt: skip
    path = on_server(tmp_path, server, **{n: v for n, v in shape.items() if v is not None})
    path.write_text(f'credit = "answer-only"\n{path.read_text()}')
    done = run_train(path)
    assert done.exit_code == 0, done.output
    out = tmp_path / "out"
    runs = [RoundFolders(out, out).round(n) for n in range(2)]
    rules = [run.manifest().scaffold for run in runs]
    assert [rule.progress for rule in rules if rule] == [0.0, 1.0]
    counts = [[t.scaffold.shown if t.scaffold else 0 for t in run.trajectories()] for run in runs]
    assert counts[0][0] > counts[0][2] > counts[0][3] == 0 and not any(counts[1])
    first, _ = metrics(out)
    assert first["rows/policy"] > 0 and first["scaffold_gap"] > 0
    path.write_text(path.read_text().replace("rounds = 2\n", "rounds = 3\n"))
    longer = run_train(path)
    assert longer.exit_code == 2 and "rounds.rounds" in longer.output, "it would fade otherwise"
