"""A judge's training, watched: events, lines, event files, the view, and what is refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli import main
from tests.chains import chain
from tests.judge_tokens import judging
from tests.scripted_server import ScriptedServer
from tests.test_event_files import read
from tests.test_judge_training_distil import teaching
from tests.test_judge_training_distil import written as distilling
from tests.test_judge_training_grpo import biased_then_right, lines, written
from tests.train_rows import quiet
from training.judge_training.config import read_grpo
from training.judge_training.grpo import train_judge
from training.watching.event_files import FOLDER
from training.watching.events import Event, PhaseChanged, RoundTrained, RowsDone
from training.watching.names import OF_JUDGE, pattern

pytestmark = pytest.mark.usefixtures("one_thread")
TERMINAL = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "120"}


def train(half: str, path: Path, *flags: str, **more: Any) -> Result:
    return CliRunner().invoke(main, ["train", "judge", half, str(path), *flags], **more)


async def test_every_phase_and_every_round_with_its_numbers_is_told(tmp_path: Path):
    events: list[Event] = []
    with judging(biased_then_right) as (address, _):
        path = written(tmp_path, address, held_out=["held.jsonl"])
        await train_judge(*read_grpo(path), quiet, watch=events.append)
    phases = [(e.phase, e.number) for e in events if isinstance(e, PhaseChanged) and e.running]
    assert phases == [
        ("held-out pairs", 0), ("collect", 1), ("update", 1), ("collect", 2), ("update", 2),
        ("held-out pairs", 2),
    ]  # fmt: skip
    assert sum(isinstance(e, PhaseChanged) and not e.running for e in events) == len(phases)
    assert any(isinstance(e, RowsDone) and (e.unit, e.of) == ("round", 2) for e in events)
    rounds = [event for event in events if isinstance(event, RoundTrained)]
    assert [(event.number, event.of) for event in rounds] == [(1, 2), (2, 2)]
    for event, kept in zip(rounds, lines(tmp_path), strict=True):
        assert dict(event.metrics).items() <= kept.items()
        unknown = set(kept) - {"saved_at"}
        assert [n for n in unknown if not any(re.fullmatch(pattern(o), n) for o in OF_JUDGE)] == []


def test_each_round_is_a_line_and_a_step_of_the_event_files_also_where_it_goes_on(tmp_path: Path):
    with judging(biased_then_right) as (address, _):
        for rounds in (1, 2):
            done = train("grpo", written(tmp_path, address, {"tensorboard": True}, rounds=rounds))
            assert done.exit_code == 0, done.output
    (told,) = (line for line in done.stderr.splitlines() if "is saved" in line)
    assert told.startswith("round 2 of 2 is saved: right ") and ", mean reward " in told
    assert "; loss " in told
    found, kept = read(tmp_path / "out" / FOLDER), lines(tmp_path)
    for name in ("right", "reward", "loss"):
        values = [pytest.approx(line[name], rel=1e-6) for line in kept]
        assert found[name] == [(1, values[0]), (2, values[1])]


def test_a_round_without_anything_to_train_is_told_with_its_verdicts(tmp_path: Path):
    with judging(lambda asked: chain(asked.better)) as (address, _):
        done = train("grpo", written(tmp_path, address, {"tensorboard": True}, rounds=1))
    said = done.stderr.splitlines()
    assert "round 1 had nothing to learn: no pair's samples differ in reward" in said
    assert "round 1 of 1 is saved: right 100%, malformed 0%, unscored 0%, mean reward 1.00" in said
    assert read(tmp_path / "out" / FOLDER)["right"] == [(1, 1.0)]


def test_on_a_terminal_both_halves_are_drawn_and_json_draws_nothing(tmp_path: Path):
    with judging() as (address, _):
        drawn = train("grpo", written(tmp_path, address, rounds=1), env=TERMINAL)
        again = train("grpo", written(tmp_path, address, rounds=1), "--json", env=TERMINAL)
    assert drawn.exit_code == 0 and "judge-grpo, " in drawn.stderr, drawn.output
    assert "round 1 of 1" in drawn.stderr and "right" in drawn.stderr
    assert "judge-grpo, " not in again.stderr and json.loads(again.stdout)["rounds"] == 1
    taught = tmp_path / "taught"
    taught.mkdir()
    with ScriptedServer(teaching, models=("first", "second")) as server:
        drawn = train("distil", distilling(taught, server.base_url), env=TERMINAL)
    assert drawn.exit_code == 0 and "judge, sft, " in drawn.stderr, drawn.output
    assert "step 1 of 1" in drawn.stderr and "1 steps done" in drawn.stdout


def test_the_best_round_is_kept_by_a_number_of_the_judges_rounds(tmp_path: Path):
    best = {"best_by": "right", "best_is": "highest"}
    with judging(biased_then_right) as (address, _):
        done = train("grpo", written(tmp_path, address, best))
    assert done.exit_code == 0, done.output
    right = [line["right"] for line in lines(tmp_path)]
    place = (tmp_path / "out" / "best").resolve().name
    assert place == f"{right.index(max(right)) + 1:06d}"
