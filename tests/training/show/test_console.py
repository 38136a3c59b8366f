"""Runs on the terminal: what their events come to, drawn or told in lines; tables; event files."""

import io
import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rubricem.training.collect.directory import RunDirectory
from rubricem.training.extras import Pace, lasting
from rubricem.training.local.checkpoints import TrainingFolder
from rubricem.training.rounds.fit import train
from rubricem.training.show.collected import (
    run_numbers,
)
from rubricem.training.show.console import (
    FOLDER,
    MOST_ROWS,
    SUFFIX,
    PlainTraining,
    TrainProgress,
    drawing,
    print_collected,
    reward_figures,
    step_figures,
    training_view,
)
from rubricem.training.show.events import (
    HeldOutJudged,
    PhaseChanged,
    RowsDone,
    StepTaken,
)
from tests.support.collected import show
from tests.support.rows import config_of, policy_rows, quiet, row

STEP = {
    "loss": 0.25, "grad_norm": 1.5, "rate": 1e-4, "kl_old": 0.002, "clipped_low": 0.01,
    "clipped_high": 0.02, "tokens_per_second": 1234.4, "memory_peak": 2.5e9,
}  # fmt: skip
ROUND = {
    **STEP, "reward/plan/mean": 0.5, "reward/answer/mean": 0.75, "unscored_share": 0.03,
    "staleness/mean": 0.5, "staleness/max": 1.0,
}  # fmt: skip


class Clock:
    """Stands until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def drawn(progress: TrainProgress, *said: str, width: int = 160) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(drawing("ss-grpo, 0.5b", progress, said))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_the_time_left_goes_by_what_this_process_has_done():
    clock = Clock()
    progress = TrainProgress(Pace(clock=clock))
    assert progress.pace.left is None, "nothing is known yet"
    clock.now += 10
    progress.advance(StepTaken(7, 10, STEP))
    assert progress.pace.left == 30, "six steps were done before and tell nothing of the speed"
    clock.now += 4
    assert progress.pace.left == 26
    clock.now += 100
    assert progress.pace.left == 0
    assert [lasting(s) for s in (5, 90, 3600, 86_000)] == [
        "5 s",
        "2 min",
        "1 h 00 min",
        "23 h 53 min",
    ]


def test_a_step_is_told_with_its_numbers_and_none_that_it_has_not():
    assert step_figures(STEP) == [
        ("loss", "0.25"), ("grad norm", "1.5"), ("rate", "0.0001"), ("KL to old", "0.002"),
        ("clipped", "3.0%"), ("tokens/s", "1,234"), ("memory peak", "2.5 GB"),
    ]  # fmt: skip
    assert step_figures({"loss": 0.0, "tokens": 0.0}) == [], "no row had a gradient"
    assert ("loss", "nan") not in step_figures({**STEP, "loss": float("nan")})
    assert reward_figures(ROUND) == [
        ("plan", "0.50"), ("answer", "0.75"), ("unscored", "3%"), ("staleness", "0.5 (at most 1)"),
    ]  # fmt: skip


def test_a_judges_round_is_told_by_its_verdicts():
    verdicts = {"right": 0.625, "malformed": 0.125, "unscored": 0.0, "reward": 0.25}
    figures = [("right", "62%"), ("malformed", "12%"), ("unscored", "0%"), ("mean reward", "0.25")]
    assert reward_figures({**STEP, **verdicts}) == figures
    told: list[str] = []
    PlainTraining(told.append)(StepTaken(2, 2, verdicts, "round"))
    assert told == [
        "round 2 of 2 is saved: right 62%, malformed 12%, unscored 0%, mean reward 0.25"
    ]
    progress = TrainProgress()
    progress.advance(PhaseChanged("held-out pairs", 2, True))
    assert "held-out pairs after 2 rounds" in drawn(progress)


def test_lines_tell_rows_steps_rounds_and_askings():
    told: list[str] = []
    clock = Clock()
    lines = PlainTraining(told.append, TrainProgress(Pace(clock=clock)))
    lines(RowsDone("step", 3, 10, 2, 8))
    clock.now += 6
    lines(StepTaken(3, 10, STEP))
    lines(StepTaken(4, 10, {"loss": 0.0}))
    lines(PhaseChanged("judge", 2, True))
    lines(StepTaken(2, 2, ROUND, "round"))
    lines(HeldOutJudged(2, {"reward/answer/mean": 0.5}))
    assert told[0] == "step 3 of 10: row 2 of 8"
    assert told[1].startswith("step 3 of 10: loss 0.25, grad norm 1.5")
    assert told[1].endswith("1,234 tokens/s; about 42 s left") or "about 42 s left" in told[1]
    assert "step 4 of 10: no row had an advantage" in told[2]
    assert (
        told[3].startswith("round 2 of 2 is saved: plan 0.50, answer 0.75")
        and "left" not in told[3]
    )
    assert told[4] == "held-out questions after 2 updates: answer 0.50"


def test_the_view_shows_how_far_it_is_the_phases_that_overlap_and_what_was_said():
    progress = TrainProgress()
    for event in (
        PhaseChanged("collect", 1, True), PhaseChanged("collect", 1, False),
        PhaseChanged("collect", 3, True), PhaseChanged("judge", 2, True),
        StepTaken(1, 6, ROUND, "round"), RowsDone("round", 2, 6, 3, 8),
        HeldOutJudged(1, {"reward/answer/mean": 0.625, "unscored_share": 0.5}),
    ):  # fmt: skip
        progress.advance(event)
    text = drawn(progress, "round 3: s000-q001-r0: finished, 4 searches", "nasty \x1b[31m line")
    assert "round 1 of 6" in text and "row 3 of 8" in text
    assert "collect round 3" in text and "judge round 2" in text and "round 1 ·" not in text
    assert "answer 0.75" in text and "loss 0.25" in text and "staleness 0.5 (at most 1)" in text
    assert "answer 0.62  after 1 updates" in text and "unscored 50%" not in text
    assert "4 searches" in text and "\x1b[31m" not in text


def test_no_line_of_the_view_is_wider_than_the_terminal():
    progress = TrainProgress()
    progress.advance(StepTaken(1, 6, ROUND, "round"))
    lines = drawn(progress, "x" * 300, width=40).splitlines()
    assert max(map(len, lines)) <= 40
    assert "step 0" not in lines[1] and "round 1 of 6" in lines[1], "how far it is stays one line"
    assert sum("x" in line for line in lines if "xx" in line) == 1, "so does what was told"
    assert "staleness 0.5 (at most 1)" in " ".join(lines), "numbers are all shown"


def test_what_is_no_terminal_gets_lines_and_what_is_quiet_draws_nothing():
    told: list[str] = []
    pipe = Console(file=io.StringIO())
    with training_view("sft", told.append, console=pipe) as (tell, watch):
        tell("reading the weights")
        watch(StepTaken(1, 1, STEP))
    assert told[0] == "reading the weights" and told[1].startswith("step 1 of 1: loss")
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100)
    with training_view("sft", told.append, quiet=True, console=terminal) as (tell, watch):
        watch(StepTaken(1, 1, STEP))
    assert terminal.file.getvalue() == "" and len(told) == 3  # type: ignore[attr-defined]
    with training_view("sft", told.append, console=terminal) as (tell, watch):
        watch(StepTaken(1, 1, STEP))
        tell("saved")
    shown = terminal.file.getvalue()  # type: ignore[attr-defined]
    assert "step 1 of 1" in shown and "saved" in shown and len(told) == 3


pytestmark = pytest.mark.usefixtures("one_thread")


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """By tag, the steps and values of all event files in a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), {"scalars": 0}, purge_orphaned_data=False)
    found.Reload()
    tags: list[str] = found.Tags()["scalars"]
    return {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in tags}


def kept(out: Path, name: str) -> list[tuple[int, Any]]:
    return [(line["step"], line[name]) for line in TrainingFolder(out).metrics()]


async def test_every_number_of_every_step_is_in_the_event_files(tiny: Path, tmp_path: Path) -> None:
    config = config_of(tmp_path, tiny, policy_rows(4), batch=1, tensorboard=True)
    await train(config, "ss-grpo", quiet)
    found, out = read(config.out / FOLDER), config.out
    last = TrainingFolder(out).metrics()[-1]
    assert set(found) == set(last) - {"step"}, "the names are those of metrics.jsonl"
    for name in ("loss", "grad_norm", "memory_peak", "padding_share"):
        assert found[name] == [(s, pytest.approx(v, rel=1e-6)) for s, v in kept(out, name)]
    assert [step for step, _ in found["loss"]] == [1, 2]


async def test_a_training_that_was_stopped_and_goes_on_has_no_step_twice(
    tiny: Path, tmp_path: Path
) -> None:
    rows = [row(n) for n in range(4)]
    config = config_of(tmp_path, tiny, rows, batch=1, tensorboard=True, save_every=2)

    class Stopped(Exception):
        pass

    def stop(event: Any) -> None:
        if getattr(event, "metrics", None) and event.number == 3:
            raise Stopped  # step 3 is done and not saved

    with pytest.raises(Stopped):
        await train(config, "sft", quiet, watch=stop)
    assert TrainingFolder(config.out).step() == 2
    await train(config, "sft", quiet)
    found = read(config.out / FOLDER)
    assert [step for step, _ in found["loss"]] == [1, 2, 3, 4]
    assert len(list((config.out / FOLDER).glob(f"*{SUFFIX}"))) == 1


async def test_a_finished_training_is_exported_and_other_peoples_files_stay(
    tiny: Path, tmp_path: Path
) -> None:
    config = config_of(tmp_path, tiny, [row(n) for n in range(2)], batch=1)
    await train(config, "sft", quiet)
    assert not (config.out / FOLDER).exists(), "it was not asked for"
    place = tmp_path / "board"
    place.mkdir()
    (place / "events.out.tfevents.1.other").write_bytes(b"")
    for _ in range(2):
        done = show(config.out, "--tensorboard", place)
        assert done.exit_code == 0, done.output
    found = read(place)
    assert [step for step, _ in found["loss"]] == [1, 2], "twice exported is once there"
    assert (place / "events.out.tfevents.1.other").exists()


def test_rounds_are_exported_by_their_number_and_askings_under_a_name_of_their_own(tmp_path: Path):
    out = tmp_path / "out"
    (out / "held_out" / "002").mkdir(parents=True)
    (out / "run.json").write_text("{}")
    lines = [{"round": 1.0, "step": 1, "loss": 0.5}, {"round": 2.0, "loss": float("nan"), "x": 1}]
    (out / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    numbers = {"updates": 2, "reward/answer/mean": 0.25}
    (out / "held_out" / "002" / "numbers.json").write_text(json.dumps(numbers))
    assert show(out, "--tensorboard", tmp_path / "board").exit_code == 0
    found = read(tmp_path / "board")
    assert found["loss"] == [(1, 0.5)], "what is no finite number is left out"
    assert found["x"] == [(2, 1.0)]
    assert found["held_out/reward/answer/mean"] == [(2, 0.25)]


def test_event_files_of_what_is_no_training_are_refused(tmp_path: Path):
    (tmp_path / "manifest.json").write_text("{}")
    done = show(f"{tmp_path}/", "--tensorboard", tmp_path / "board")
    assert done.exit_code == 2 and "no folder of a training" in done.stderr
    assert not (tmp_path / "board").exists()


def test_the_terminal_shows_steps_reasons_and_extremes(folder: Path):
    told = show(str(folder)).stdout
    assert "3 rollouts, 1 failed, in 2 groups and 2 steps of 2 questions; 1 min 45 s" in told
    assert "1 failed: The server is down." in told
    assert "1 stages unscored: the judge failed" in told
    assert "step 1, answer 1.00 (best) against 0.25 (worst)" in told
    assert "0.38" in told and "$1.3125" in told and "+1 -1" in told
    assert "\x1b" not in told and "\u202e" not in told


def test_reasons_that_differ_by_a_place_in_the_text_are_one(folder: Path):
    run = run_numbers(RunDirectory(folder))
    broken = run.steps[1].rollouts[0]
    run.steps[1].rollouts[:] = [
        replace(broken, reason=f"A tag at character {place} is {what}.")
        for place, what in [
            (3, "open"),
            (14, "open"),
            *((5, f"wrong {n}") for n in range(MOST_ROWS)),
        ]
    ]
    assert run.early["A tag is open."] == 2
    told = StringIO()
    print_collected(run, "run", Console(file=told))
    assert "2 ended early: A tag is open." in told.getvalue()
    assert "1 ended early for another reason" in told.getvalue()
