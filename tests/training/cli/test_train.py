"""A training run's configuration, and the plan that follows from it and its rows.

Collected runs that nothing can be learnt from: one sentence and a remedy, before any model.

^C during a training: the step under way is saved, and the same command continues.
"""

import asyncio
import fcntl
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rubricem.agent.cli import main
from rubricem.memory.errors import SettingsError
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.collect.gate import RunStopped
from rubricem.training.judge_training.distil import read_distil
from rubricem.training.local.checkpoints import TrainingFolder
from rubricem.training.local.local_config import TrainConfig, check_config, rate_at
from rubricem.training.rounds.fit import select, train, windows
from rubricem.training.rounds.rounds_config import TrainingJob
from rubricem.training.rounds.update import Metrics
from rubricem.training.rows.row import TrainRow
from tests.conftest import ROOT, rubricem
from tests.support.collected import QUESTIONS, Opened, manifest
from tests.support.rows import Parts, policy_rows, row, written
from tests.support.waiting import Process, wait_for

READERS: dict[str, Callable[[Path], Any]] = {
    "sft": lambda path: TrainingJob.read(path, "sft"),
    "ss-grpo": lambda path: TrainingJob.read(path, "ss-grpo"),
    "ruscarl": lambda path: TrainingJob.read(path, "ss-grpo"),
    "paper": lambda path: TrainingJob.read(path, "ss-grpo"),
    "judge": read_distil,
}


@pytest.mark.parametrize("kind", READERS)
def test_the_example_of_each_kind_is_read(kind: str) -> None:
    path = ROOT / "examples" / f"{kind}.toml"
    READERS[kind](path)
    known = (ROOT / "docs" / "configuration.md").read_text()
    commented = re.findall(r"^# (\w+) = ", path.read_text(), flags=re.MULTILINE)
    assert [key for key in commented if f"`{key}`" not in known] == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("learning_rte=1.0", "learning_rte: Extra inputs are not permitted (did you mean learning"),
        ("credits=1", "did you mean credit?"),
        ("epochs", "'epochs' sets nothing"),
    ],
)
def test_a_key_that_is_none_is_told_with_the_one_it_is_like(
    given: str, told: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.toml"
    path.write_text('out = "x"\nrows = ["r"]\nmodel = "0.5b"\n')
    with pytest.raises(SettingsError) as refused:
        TrainingJob.read(path, "ss-grpo", [given])
    assert told in str(refused.value)


def test_what_is_set_beside_the_file_wins_over_it(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text('out = "x"\nrows = ["r"]\n[objective]\nbeta = 0.5\n')
    overrides = ["objective.beta=0.01", "model=1.5b", 'rows=["a", "b"]']
    config = TrainingJob.read(path, "ss-grpo", overrides).config
    assert isinstance(config, TrainConfig)
    assert (config.objective.beta, config.model) == (0.01, "1.5b")
    assert config.rows == (tmp_path / "a", tmp_path / "b")


Build = Callable[..., TrainConfig]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    def built(**settings: object) -> TrainConfig:
        return check_config(
            {"out": "run", "rows": ["rows.jsonl"], **settings}, tmp_path, TrainConfig
        )

    return built


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('out = "x"', "rows: Field required"),
        ('out = "x"\nrows = []', "rows: .*at least 1"),
        ('out = "x"\nrows = ["r"]\nrank = 0', "rank: .*greater than or equal to 1"),
        ('out = "x"\nrows = ["r"]\nlr = 1.0', "lr: Extra inputs"),
        ('out = "x"\nrows = ["r"]\n[objective]\nclip = [1.5, 0.2]', "clip is how far"),
        ('out = "x"\nrows = ["r"]\nrank = 8\nadaptation = "full"', "rank go with the adaptation"),
        ('out = "x"\nrows = ["r"]\npack_tokens = 9', "it is gone: set micro_batch"),
        ('out = "x"\nrows = ["r"]\nlearning_rate = inf', "learning_rate: .*finite"),
        ("out =", "cannot be read"),
    ],
)
def test_a_wrong_configuration_is_told_by_name(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "t.toml").write_text(text)
    with pytest.raises(SettingsError, match=fault):
        TrainingJob.read(tmp_path / "t.toml", "ss-grpo")


def test_a_configuration_that_is_not_there_is_told_before_anything_is_loaded() -> None:
    assert "'no.toml' does not exist" in rubricem("train", "ss-grpo", "no.toml", code=2).stderr


def test_rows_that_do_not_fit_are_counted_by_reason() -> None:
    rows = [
        row(0, "policy"),
        row(1, "sft"),
        row(2, "reflect", ratio_allowed=False),
        row(3, "policy", loss_mask=(0,) * 24),
    ]
    selection = select(rows, "ss-grpo", 24)
    assert [r.id for r in selection.rows] == ["row0"]
    assert selection.dropped == {
        "sft rows": 1,
        "retokenised or forced": 1,
        "without a trained token": 1,
    }
    with pytest.raises(SettingsError, match="1 longer than 9 tokens"):
        select(rows[:1], "ss-grpo", 9)
    with pytest.raises(SettingsError, match="same id"):
        select([rows[0], rows[0]], "ss-grpo", 24)


def test_a_group_is_never_divided(build: Build) -> None:
    rows = policy_rows(6)
    found = windows(rows, "ss-grpo", build(batch=2))
    assert [len(window) for window in found] == [4, 2]
    assert all(len({r.group for r in window}) * 2 == len(window) for window in found)
    assert windows(rows, "ss-grpo", build()) == [found[0] + found[1]], "0: all in one step"


def test_every_epoch_has_every_row_once_in_an_order_of_its_own(build: Build) -> None:
    rows = [row(number) for number in range(8)]
    config = build(batch=3, epochs=2)
    found = windows(rows, "sft", config)
    assert [len(window) for window in found] == [3, 3, 2] * 2
    orders = [[r.id for w in found[at : at + 3] for r in w] for at in (0, 3)]
    assert sorted(orders[0]) == sorted(orders[1]) == [f"row{n}" for n in range(8)]
    assert orders[0] != orders[1]
    assert windows(rows, "sft", config) == found


@pytest.mark.parametrize(
    ("schedule", "middle", "end"), [("cosine", 0.5, 0.03806), ("linear", 0.5, 0.125)]
)
def test_the_rate_rises_then_falls_by_its_schedule(
    build: Build, schedule: str, middle: float, end: float
) -> None:
    config = build(learning_rate=1.0, schedule=schedule, warmup=0.2)
    rates = [rate_at(step, 10, config) for step in range(10)]
    assert rates[:3] == pytest.approx([0.5, 1.0, 1.0])
    assert rates[6] == pytest.approx(middle) and rates[9] == pytest.approx(end, abs=1e-4)
    assert rate_at(7, 10, build(learning_rate=0.3)) == 0.3


def collected(folder: Path) -> Path:
    async def collect() -> Path:
        opened = Opened(folder, reflections=0)
        await opened.collector(reflecting=None, memory=None).collect()
        opened.close()
        return opened.run.folder

    return asyncio.run(collect())


def trained(folder: Path, run: Path, **more: Any) -> Result:
    told = {"out": "out", "model": "no model is read.gguf", "rows": [str(run)], **more}
    path = folder / "train.toml"
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in told.items()))
    return CliRunner().invoke(main, ["train", "ss-grpo", str(path)])


def test_runs_that_teach_nothing_are_told_with_the_reason(tmp_path: Path):
    begun = RunDirectory(tmp_path / "begun")
    begun.begin(manifest(), QUESTIONS)
    done = trained(tmp_path, begun.folder)
    assert done.exit_code == 2 and "no step is finished" in done.stderr
    done = trained(tmp_path, collected(tmp_path / "long"), max_row_tokens=2)
    assert done.exit_code == 2 and "6 longer than 2 tokens" in done.stderr


@pytest.mark.parametrize("number", ["NaN", "1e999"])
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
    assert "judgements.jsonl cannot be read" in done.stderr


pytestmark = pytest.mark.usefixtures("one_thread")
COMMAND = (sys.executable, "-c", "from rubricem.agent.cli import main; main()", "train", "sft")


@pytest.mark.slow
def test_the_command_ends_by_one_interruption_and_leaves_its_folder_free(
    tiny: Path, tmp_path: Path
) -> None:
    rows = written(tmp_path / "rows.jsonl", [row(n) for n in range(8)])
    settings = {"out": "out", "rows": [str(rows)], "model": str(tiny), "batch": 1, "epochs": 500,
                "rank": 4, "dtype": "float32"}  # fmt: skip
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    path, out = tmp_path / "train.toml", TrainingFolder(tmp_path / "out")
    path.write_text(text, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (tmp_path / "log").open("w+") as log:
        process = Process((*COMMAND, path), env=environment, stderr=log)
        wait_for(lambda: out.step() >= 1 or process.poll() is not None)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        log.seek(0)
        said = log.read()
    assert "Finishing the step under way; ^C again stops at once." in said
    assert "are saved. The same command continues" in said and "Traceback" not in said
    saved = out.step()
    assert [line["step"] for line in out.metrics()][-1] == saved
    with (out.folder / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    config = TrainingJob.read(path, "sft").config
    assert isinstance(config, TrainConfig)
    stop, told = asyncio.Event(), list[int]()

    def tell(line: str) -> None:
        """Have the training stopped while the step after the next one goes on."""
        if done := re.match(r"step (\d+) of \d+: (?!row)", line):
            told.append(int(done[1]))
            stop.set()

    with pytest.raises(RunStopped):
        asyncio.run(train(config, "sft", tell, stop=stop))
    assert told[0] == saved + 1 and out.step() == told[-1], "what is saved is gone on with"


async def test_rounds_that_are_stopped_in_an_update_keep_it(tmp_path: Path) -> None:
    stop, parts = asyncio.Event(), Parts(tmp_path, 3)
    loop, train_rows = asyncio.get_running_loop(), parts.updates.update

    def update(rows: Sequence[TrainRow]) -> Metrics:
        if rows:
            loop.call_soon_threadsafe(stop.set)
            time.sleep(0.3)
        return train_rows(rows)

    parts.updates.update = update  # type: ignore[method-assign]
    with pytest.raises(RunStopped, match="interrupted"):
        await parts.rounds(stop).run()
    assert parts.updates.done == 1, "the first update was under way"
    parts = Parts(tmp_path, 3)
    await parts.rounds().run()
    assert parts.updates.done == 3
