"""The pages of runs: what was measured and nothing else, nothing loaded, nothing that runs."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rubricem.memory.errors import StoreError
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.show.collected import run_numbers
from rubricem.training.show.pages import (
    MOST,
    REWARDS,
    UPDATES,
    WORK,
    charts,
    collected_page,
    held_out_charts,
    scaffold_means,
    training_page,
)
from rubricem.training.show.svg import BOTTOM, HEIGHT, TOP
from rubricem.training.show.training import KeptNumbers, kept_numbers
from tests.support.collected import manifest
from tests.support.run_pages import NASTY, show

ROUND = {"loss": -0.02, "grad_norm": 1.5, "kl_reference": 0.001, "clipped_low": 0.01,
         "reward/plan/mean": 0.25, "reward/answer/mean": 0.75, "staleness/mean": 1.0,
         "tokens/policy/mean": 900.0, "unscored_share": 0.5}  # fmt: skip


def asking(mean: float, **more: float) -> dict[str, Any]:
    ends = {"reward/answer/low": mean - 0.1, "reward/answer/high": mean + 0.1}
    return {"rollouts": 24.0, "reward/answer/mean": mean, **ends, **more}


@pytest.fixture
def rounds(tmp_path: Path) -> Path:
    """Three rounds, of which the second had nothing to train on, and two askings."""
    out = tmp_path / "out"
    record = {"method": "ss-grpo", "model": f"/home/me/{NASTY}", "adaptation": "lora", "rank": 8}
    lines = [{**ROUND, "round": 1.0, "loss": 0.5}, {"round": 2.0}, {**ROUND, "round": 3.0}]
    for path, text in {
        "run.json": json.dumps(record),
        "rounds.jsonl": "".join(json.dumps(line) + "\n" for line in lines),
        "held_out/000/numbers.json": json.dumps(asking(0.4)),
        "held_out/003/numbers.json": json.dumps(asking(0.6)),
    }.items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_text(text)
    return out


def test_the_page_has_a_curve_of_everything_measured_and_of_nothing_else(rounds: Path):
    text = training_page(kept_numbers(rounds), "out")
    heads = re.findall(r"<h3>(.*?)(?: <b>|</h3>)", text)
    assert heads == [
        "Answer", "Reward by stage", "Unscored and failed", "Loss", "Gradient norm", "Divergence",
        "Clipped tokens", "Length of a rollout", "Staleness",
    ]  # fmt: skip
    assert "Loss by objective" not in text
    assert "0.60 (0.50 to 0.70)" in text
    assert "/home/me" not in text


def test_the_page_loads_and_runs_nothing_and_shows_text_as_text(rounds: Path):
    text = training_page(kept_numbers(rounds), f"out {NASTY}")
    read = Tags(text)
    assert "<script>alert(1)</script>" in read.text
    names = {tag for tag, _ in read.tags}
    assert not names & {"script", "img", "iframe", "link", "object", "a", "form"}
    attributes = {name for _, found in read.tags for name in found}
    assert not attributes & {"src", "href", "style", "srcset"}
    assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"url\(|@import|https?://", text) and "\x1b" not in text


def test_a_round_without_an_update_is_a_gap_in_the_line(rounds: Path):
    [loss] = [c for c in charts(UPDATES, kept_numbers(rounds)) if c.title == "Loss"]
    assert loss.svg.count("<polyline") == 2 and loss.last == "-0.02"
    # From -0.5 to 0.5 in two steps: 0.5 is at the top, -0.02 just below the middle.
    ys = [float(y) for y in re.findall(r'cy="(.*?)"', loss.svg)]
    assert ys[0] == TOP and ys[1] == pytest.approx(TOP + 0.52 * (HEIGHT - TOP - BOTTOM), abs=0.1)


def test_numbers_along_an_axis_are_short_and_work_is_drawn_from_0():
    found = charts((UPDATES[-1], WORK[-1]), KeptNumbers(steps=[
        (1, {"rate": 1e-4, "memory_peak": 4.8e9}), (2, {"rate": 5e-5, "memory_peak": 4.9e9}),
    ]))  # fmt: skip
    axes = [re.findall(r'text-anchor="end">(.*?)<', chart.svg) for chart in found]
    assert axes == [["0", "5e-5", "1e-4"], ["0", "5", "10"]]
    assert [chart.last for chart in found] == ["5e-05", "4.9"]


def test_rewards_are_drawn_from_0_to_1_and_name_their_colours(rounds: Path):
    reward = charts(REWARDS, kept_numbers(rounds))[0]
    assert reward.keys == (("plan", "plan"), ("answer", "answer"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    assert f'cy="{(TOP + middle) / 2:.1f}"' in reward.svg, "0.75 is halfway above the middle"


def test_held_out_figures_are_at_their_rounds_with_their_intervals(rounds: Path):
    [answer] = held_out_charts(kept_numbers(rounds))
    assert answer.last == "0.60" and "polygon" in answer.svg
    assert re.findall(r'text-anchor="middle">(\d+)<', answer.svg) == ["0", "3"]
    alone = KeptNumbers(held_out=[(0, {"reward/answer/mean": 0.5})])
    assert "polygon" not in held_out_charts(alone)[0].svg, "without an interval there is no band"


def test_a_long_training_is_drawn_by_the_means_of_neighbours():
    steps = [(n, {"loss": float(n % 2)}) for n in range(1, 4 * MOST + 1)]
    [loss] = charts(UPDATES[:1], KeptNumbers(steps=steps))
    [points] = re.findall(r'points="(.*?)"', loss.svg)
    assert len(points.split()) == MOST and len(set(re.findall(r",([\d.]+)", points))) == 1
    assert f">{steps[-4][0]}<" in loss.svg, "the last bucket begins with its first step"


def test_the_command_writes_the_page_or_one_object_or_a_table(rounds: Path):
    assert "in " in show(rounds, "--html").stdout and (rounds / "run.html").exists()
    told = json.loads(show(rounds, "--json").stdout)
    assert [step["round"] for step in told["steps"]] == [1, 2, 3]
    assert told["record"]["model"].startswith("<script>") is False and told["unit"] == "round"
    assert told["held_out"][1]["reward/answer/mean"] == 0.6
    table = show(f"{rounds}/").stdout
    assert "0.75" in table and "held-out questions" in table and "staleness" not in table
    assert "1.5" in table and "\x1b" not in table


def test_what_is_no_training_or_damaged_is_refused_in_a_sentence(rounds: Path, tmp_path: Path):
    nothing = show(f"{tmp_path}/")
    assert nothing.exit_code == 2 and "Traceback" not in nothing.output
    (rounds / "rounds.jsonl").write_text('{"round": 1}\n{"round"')
    with pytest.raises(StoreError, match="cannot be read"):
        kept_numbers(rounds)
    assert show(rounds).exit_code != 0


def test_a_training_that_has_only_begun_has_a_page(tmp_path: Path):
    (tmp_path / "run.json").write_text('{"method": "sft", "adaptation": "full"}')
    text = training_page(kept_numbers(tmp_path), "new")
    assert "No step is finished yet" in text and "all weights" in text


class Tags(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_hostile_text_is_shown_and_does_nothing(folder: Path):
    text = collected_page(run_numbers(RunDirectory(folder)), f"run {NASTY}")
    read = Tags(text)
    assert "<script>alert(1)</script>" in read.text, "it is shown as it was written"
    names = {tag for tag, _ in read.tags}
    assert not names & {"script", "img", "iframe", "link", "object", "a", "form"}
    assert not any(name.startswith("on") for _, attributes in read.tags for name in attributes)
    assert "\x1b" not in text and "\u202e" not in text
    # In question, reasons, notes, criteria, justifications, failures and the title.
    assert read.text.count("alert(1)") >= 9


def test_a_page_loads_nothing(folder: Path):
    text = collected_page(run_numbers(RunDirectory(folder)), "run")
    attributes = {name for _, found in Tags(text).tags for name in found}
    assert not attributes & {"src", "href", "srcset", "action", "style"}
    assert not re.search(r"url\(|@import|https?://", text)
    assert "default-src 'none'" in text and "style-src 'sha256-" in text


def test_a_page_tells_the_numbers(folder: Path):
    told = " ".join(Tags(collected_page(run_numbers(RunDirectory(folder)), "run")).text.split())
    for fact in (
        "Rollouts3 2 finished, 1 failed", "Unscored stages 12%", "Malformed rollouts 33%",
        "1 criteria added, 1 retired", "answer score 1.00 against 0.25", "judge2", "1 accepted",
        "step 1: answer score", "Best, plan 0.50", "Worst, review unscored",
    ):  # fmt: skip
        assert fact.replace(" ", "") in told.replace(" ", ""), fact
    variety = run_numbers(RunDirectory(folder)).variety.told()
    assert variety and all(line[1:] in told for line in variety)


def test_a_run_that_has_only_begun_has_a_page(tmp_path: Path):
    run = RunDirectory(tmp_path / "run")
    run.begin(manifest(), [])
    assert "No finished step has a rollout yet." in collected_page(run_numbers(run), "run")
    done = show(str(run.folder))
    assert done.exit_code == 0 and "0 rollouts, 0 failed, in 0 groups" in done.stdout


def test_the_command_writes_the_page_beside_the_run_or_where_it_is_told(folder: Path):
    done = show(str(folder), "--html")
    assert done.exit_code == 0 and f"in {folder / 'run.html'}" in done.stdout, done.output
    other = folder.parent / "other.html"
    assert show(str(folder), "--html", str(other)).exit_code == 0
    assert other.read_text() == (folder / "run.html").read_text()


def test_json_and_page_at_once_leave_json_alone_on_stdout(folder: Path):
    done = show(folder, "--json", "--html")
    assert done.stdout.startswith("{") and '"groups": 2' in done.stdout
    assert "run.html" in done.stderr


def test_a_thread_has_no_such_page_and_a_folder_needs_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path))
    done = show("thread", "--html")
    assert done.exit_code == 2 and "no folder of a collected run" in done.stderr
    done = show(str(tmp_path))
    assert done.exit_code == 2 and "is no collecting run" in done.stderr


def test_what_was_shown_of_the_rubric_stands_beside_the_score(folder: Path):
    assert scaffold_means(run_numbers(RunDirectory(folder))) == [(3, 1, 1.0), (0, 2, 0.25)]
