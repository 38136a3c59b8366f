"""`rubricem train judge grpo` on a tiny random model: what is rewarded, kept, trained and told.

A judge's training, watched: events, lines, event files, the view, and what is refused.
"""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rubricem.agent.cli import main
from rubricem.agent.settings import load_settings
from rubricem.agent.weights.checkpoints import note_of
from rubricem.training.collect.gate import RunStopped
from rubricem.training.judge_training.grpo import read_grpo, train_judge
from rubricem.training.show.console import FOLDER
from tests.support.judges import Asked, JudgeServer, by_seed, chain, pairs_file, toml
from tests.support.rows import quiet
from tests.support.tiny import write_tiny
from tests.training.show.test_console import read
from tests.training.show.test_events import unexplained

pytestmark = pytest.mark.usefixtures("one_thread")


def written(folder: Path, address: str | None, engine: dict[str, Any] | None = None,
            **told: Any) -> Path:  # fmt: skip
    if not (folder / "tiny.gguf").exists():
        write_tiny(folder / "tiny.gguf")
        pairs_file(folder / "pairs.jsonl", 3)
        pairs_file(folder / "held.jsonl", 2, first=2)
    server = {"base_url": address, "model": "judge", "refresh": ["echo", "trained"]}
    table = {"pairs": ["pairs.jsonl"], "rounds": 2, "pairs_per_round": 2, "samples": 3,
             **(server if address else {}), **told}  # fmt: skip
    return toml(folder / "judge.toml", "grpo", table, **(engine or {}))


def train(path: Path, *flags: str, half: str = "grpo", **more: Any) -> Result:
    return CliRunner().invoke(main, ["train", "judge", str(path), *flags], **more)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out/rounds.jsonl").read_text().splitlines()]


def biased_then_right(asked: Asked) -> str:
    """The base always takes what is shown first; what was trained is right, seeds apart."""
    if asked.greedy:
        return chain("A" if asked.model == "judge" else asked.better)
    return chain(asked.better if asked.seed % 3 else "B" if asked.better == "A" else "A")


def test_rounds_train_and_held_out_pairs_are_judged_in_both_orders_before_and_after(
    tmp_path: Path,
):
    with JudgeServer(biased_then_right) as server:
        path = written(tmp_path, server.base_url, held_out=["held.jsonl"])
        done = train(path, "--json")
        assert done.exit_code == 0, done.output
        assert "1 pairs are held out, and not trained on" in done.stderr
        told = json.loads(done.stdout)
        before, after = (told[when]["measures"] for when in ("before", "after"))
        assert (before["accuracy"]["value"], before["consistent"]["value"]) == (0.5, 0.0)
        assert (after["accuracy"]["value"], after["comparisons"]) == (1.0, 4)
        sampled = [asked for asked in server.comparisons if not asked.greedy]
        assert len(sampled) == 2 * 2 * 3 and len(server.comparisons) == len(sampled) + 8
        calls = len(server.comparisons)
        again = train(path, "--json")
        assert json.loads(again.stdout)["rounds"] == 2 and len(server.comparisons) == calls
    numbers = lines(tmp_path)
    assert [line["round"] for line in numbers] == [1, 2]
    assert all(line["grad_norm"] > 0 and line["rows/judge"] == 6 for line in numbers)
    assert [unexplained(line) for line in numbers] == [[], []]
    shown = CliRunner().invoke(main, ["runs", "show", str(tmp_path / "out")]).stdout
    assert "held out after 2 rounds: accuracy 1" in shown
    note = note_of(tmp_path / "out" / "last")
    assert (note.method, note.judge, note.step) == ("judge-grpo", "full", 2)


@pytest.mark.slow
async def test_a_round_that_was_cut_off_goes_on_from_its_samples_and_ends_the_same(tmp_path: Path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
    with JudgeServer() as server:
        await train_judge(*read_grpo(written(whole, server.base_url)), load_settings(), quiet)
        calls = len(server.comparisons)
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def interrupting(asked: Asked) -> str:
        if len(server.comparisons) == 8 and not stop.is_set():
            loop.call_soon_threadsafe(stop.set)
        return by_seed(asked)

    with JudgeServer(interrupting) as server:
        settings = read_grpo(written(cut, server.base_url))
        with pytest.raises(RunStopped):
            await train_judge(*settings, load_settings(), quiet, stop=stop)
        assert len(lines(cut)) == 1
        await train_judge(*settings, load_settings(), quiet)
        assert len(server.comparisons) == calls, "what was in flight was kept"
    assert [line["loss"] for line in lines(cut)] == [line["loss"] for line in lines(whole)]
    adapters = [(f / "out/last/adapter.gguf").read_bytes() for f in (cut, whole)]
    assert adapters[0] == adapters[1]


@pytest.mark.slow
async def test_an_update_that_is_under_way_when_it_is_stopped_is_kept(tmp_path: Path):
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def tell(line: str) -> None:
        if line.startswith("round 1 of 2: row "):
            loop.call_soon_threadsafe(stop.set)

    with JudgeServer() as server:
        settings = read_grpo(written(tmp_path, server.base_url))
        with pytest.raises(RunStopped):
            await train_judge(*settings, load_settings(), tell, stop=stop)
    assert len(lines(tmp_path)) == 1


def test_where_all_verdicts_are_alike_nothing_is_trained_and_it_is_told(tmp_path: Path):
    with JudgeServer(lambda asked: chain(asked.better)) as server:
        done = train(written(tmp_path, server.base_url, {"trackers": ["tensorboard"]}))
        assert done.exit_code == 0, done.output
    said = done.stderr.splitlines()
    assert "round 1 had nothing to learn: no pair's samples differ in reward" in said
    saved = "round 1 of 2: right 100%, malformed 0%, unscored 0%, mean reward 1.00"
    assert any(line.startswith(saved) for line in said)
    assert read(tmp_path / "out" / FOLDER)["right"] == [(1, 1.0), (2, 1.0)]
    assert done.stdout.splitlines() == ["2 rounds done", "no round had anything to train on"]
    assert [(line["groups/no_spread"], line["right"]) for line in lines(tmp_path)] == [(2, 1)] * 2
    assert not (tmp_path / "out" / "last").exists()


def test_no_verdict_is_wrong_and_a_text_without_room_is_unscored(tmp_path: Path):
    def some(asked: Asked) -> str:
        return [chain(asked.better), "Both are fine.", " ".join(map(str, range(300)))][
            asked.seed % 3
        ]

    with JudgeServer(some) as server:
        done = train(written(tmp_path, server.base_url, rounds=1, samples=12, max_tokens=600))
        assert done.exit_code == 0, done.output
    (numbers,) = lines(tmp_path)
    assert 0 < numbers["malformed"] < 1 and 0 < numbers["unscored"] < 1
    assert numbers["reward"] == pytest.approx(numbers["right"] - numbers["malformed"])
    assert numbers["rows/judge"] == 24 * (1 - numbers["unscored"])


def test_the_embedded_model_is_sampled_and_its_endless_texts_are_unscored(tmp_path: Path):
    done = train(written(tmp_path, None, rounds=1, pairs_per_round=1, samples=2, max_tokens=16))
    assert done.exit_code == 0, done.output
    (numbers,) = lines(tmp_path)
    assert numbers["unscored"] == 1 and numbers["rows/judge"] == 0
    assert "differ in reward; 2 left out, unscored: cut off by its limit of tokens" in done.stderr
    assert not numbers.keys() & {"reward", "right", "malformed"}, "what is unscored is no 0"


def test_a_judge_that_cannot_be_asked_is_told_and_leaves_no_figures(tmp_path: Path):
    path = written(tmp_path, None, held_out=["held.jsonl"], rounds=1, max_tokens=8000)
    failed = train(path)
    said = " ".join(failed.output.split())
    assert failed.exit_code != 0 and "could compare none of the held-out pairs" in said
    assert "finished work is not repeated" in said
    assert not (tmp_path / "out" / "held_out" / "000.json").exists()


@pytest.mark.slow
def test_a_trained_judge_writes_its_reasoning_where_rubricem_judges(tmp_path: Path):
    with JudgeServer() as server:
        assert train(written(tmp_path, server.base_url, rounds=1)).exit_code == 0
    asked = ["judge", "eval", str(tmp_path / "held.jsonl"), "--judge", "pairwise",
             "--model", str(tmp_path / "out/last"), "--limit", "1"]  # fmt: skip
    told = CliRunner().invoke(main, asked)
    assert "tiny+judge-grpo named no winner" in told.output, "a random model has no verdict"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"samples": 1}, "samples: .*greater than or equal to 2"),
        ({"rewards": "answer"}, "rewards: Extra inputs"),
        ({"model": "judge"}, "a server needs base_url, model and refresh"),
        ({"held_out": ["pairs.jsonl"]}, "All pairs are held out"),
        ({"pairs": ["empty.jsonl"]}, "holds no rows"),
        ({"pairs": ["unlabelled.jsonl"]}, "row 1 of .*unlabelled.jsonl .* it has no 'label'"),
        ({"pairs": ["single.jsonl"]}, "holds no pairs"),
        ({"engine": {"save_every": 5}}, "a checkpoint after every round. .*Leave out `save_every`"),
    ],
)
def test_bad_settings_and_pairs_are_told_in_a_sentence(
    tmp_path: Path, changed: dict[str, Any], told: str
):
    (tmp_path / "empty.jsonl").write_text("\n")
    unlabelled = {"input": "q", "output_1": "one", "output_2": "two"}
    (tmp_path / "unlabelled.jsonl").write_text(json.dumps(unlabelled))
    single = {"prompt": [{"role": "user", "content": "q"}], "completion": "one", "rubric": "short",
              "binary_labels": [True]}  # fmt: skip
    (tmp_path / "single.jsonl").write_text(json.dumps(single))
    done = train(written(tmp_path, None, **changed))
    assert done.exit_code != 0 and re.search(told, " ".join(done.output.split())), done.output
