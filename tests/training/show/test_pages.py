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
    BOTTOM,
    HEIGHT,
    LEFT,
    MOST,
    REWARDS,
    RIGHT,
    TOP,
    UPDATES,
    WIDTH,
    WORK,
    Series,
    bars,
    charts,
    collected_page,
    curves,
    held_out_charts,
    histogram,
    scaffold_means,
    training_page,
    up_and_down,
)
from rubricem.training.show.training import KeptNumbers, read_numbers
from tests.support.collected import NASTY, manifest, show

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
    text = training_page(read_numbers(rounds), "out")
    heads = re.findall(r"<h3>(.*?)(?: <b>|</h3>)", text)
    assert heads == [
        "Answer", "Reward by stage", "Unscored and failed", "Loss", "Gradient norm", "Divergence",
        "Clipped tokens", "Length of a rollout", "Staleness",
    ]  # fmt: skip
    assert "Loss by objective" not in text
    assert "0.60 (0.50 to 0.70)" in text
    assert "/home/me" not in text


def test_a_round_without_an_update_is_a_gap_in_the_line(rounds: Path):
    [loss] = [c for c in charts(UPDATES, read_numbers(rounds)) if c.title == "Loss"]
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
    reward = charts(REWARDS, read_numbers(rounds))[0]
    assert reward.keys == (("plan", "plan"), ("answer", "answer"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    assert f'cy="{(TOP + middle) / 2:.1f}"' in reward.svg, "0.75 is halfway above the middle"


def test_held_out_figures_are_at_their_rounds_with_their_intervals(rounds: Path):
    [answer] = held_out_charts(read_numbers(rounds))
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
        read_numbers(rounds)
    assert show(rounds).exit_code != 0


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


def collected(folder: Path) -> str:
    return collected_page(run_numbers(RunDirectory(folder)), f"run {NASTY}")


def test_pages_show_hostile_text_as_text_and_load_and_run_nothing(folder: Path, rounds: Path):
    # In question, reasons, notes, criteria, justifications, failures and the title.
    for text, places in (
        (collected(folder), 9), (training_page(read_numbers(rounds), f"out {NASTY}"), 2)
    ):  # fmt: skip
        read = Tags(text)
        assert read.text.count("<script>alert(1)</script>") >= places, "it is shown as written"
        names = {tag for tag, _ in read.tags}
        assert not names & {"script", "img", "iframe", "link", "object", "a", "form"}
        attributes = {name for _, found in read.tags for name in found}
        assert not attributes & {"src", "href", "style", "srcset", "action"}
        assert not any(name.startswith("on") for name in attributes)
        assert not re.search(r"url\(|@import|https?://", text)
        assert "\x1b" not in text and "\u202e" not in text
        assert "default-src 'none'" in text and "style-src 'sha256-" in text


def test_what_has_only_begun_has_a_page(tmp_path: Path):
    (tmp_path / "run.json").write_text('{"method": "sft", "adaptation": "full"}')
    text = training_page(read_numbers(tmp_path), "new")
    assert "No step is finished yet" in text and "all weights" in text
    run = RunDirectory(tmp_path / "run")
    run.begin(manifest(), [])
    assert "No finished step has a rollout yet." in collected(run.folder)
    done = show(str(run.folder))
    assert done.exit_code == 0 and "0 rollouts, 0 failed, in 0 groups" in done.stdout


def test_a_page_tells_the_numbers(folder: Path):
    told = " ".join(Tags(collected(folder)).text.split())
    for fact in (
        "Rollouts3 2 finished, 1 failed", "Unscored stages 12%", "Malformed rollouts 33%",
        "1 criteria added, 1 retired", "answer score 1.00 against 0.25", "judge2", "1 accepted",
        "step 1: answer score", "Best, plan 0.50", "Worst, review unscored",
    ):  # fmt: skip
        assert fact.replace(" ", "") in told.replace(" ", ""), fact
    run = run_numbers(RunDirectory(folder))
    variety = run.variety.describe()
    assert variety and all(line[1:] in told for line in variety)
    assert scaffold_means(run) == [(3, 1, 1.0), (0, 2, 0.25)], "what was shown of the rubric"


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


FLOOR, INNER = HEIGHT - BOTTOM, WIDTH - LEFT - RIGHT


def rects(svg: str) -> list[tuple[float, float, float, float]]:
    """x, y, width, height of each."""
    found = re.findall(r'<rect [^>]*x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)"', svg)
    return [tuple(map(float, one)) for one in found]  # type: ignore[misc]


def test_a_line_is_broken_where_a_value_is_not_known():
    svg = curves([Series("s", "plan", [0.0, 1.0, None, 0.5])])
    first, second = re.findall(r'points="(.*?)"', svg)
    step = INNER / 4
    assert first == f"{LEFT + step / 2:.1f},{FLOOR:.1f} {LEFT + 1.5 * step:.1f},{TOP:.1f}"
    assert second == f"{LEFT + 3.5 * step:.1f},{(FLOOR + TOP) / 2:.1f}"
    assert svg.count("<circle") == 3


def test_a_range_goes_there_along_the_highest_and_back_along_the_lowest():
    svg = curves([Series("s", "plan", [0.5, 0.5], low=[0.0, 0.0], high=[1.0, 1.0])])
    (polygon,) = re.findall(r'<polygon class="range plan" points="(.*?)"', svg)
    heights = [float(point.split(",")[1]) for point in polygon.split()]
    assert heights == [TOP, TOP, FLOOR, FLOOR]


def test_values_outside_the_axis_stay_inside_the_picture():
    svg = curves([Series("s", "plan", [-3.0, 7.0])])
    assert {float(p.split(",")[1]) for p in re.findall(r'points="(.*?)"', svg)[0].split()} == {
        float(FLOOR), float(TOP),
    }  # fmt: skip


def test_counts_by_tenths():
    svg = histogram([0.0, 0.05, 0.1, 0.95, 1.0, -0.5], "plan", "scores")
    heights = [height for *_, height in rects(svg)]
    # Four is the axis: three in the first tenth, one in the second, two in the last.
    unit = (FLOOR - TOP) / 4
    assert heights == pytest.approx([3 * unit, unit, *[0] * 7, 2 * unit], abs=0.06)
    assert "3, 1, 0, 0, 0, 0, 0, 0, 0, 2" in svg


@pytest.mark.parametrize(
    ("value", "top"), [(0.0, 1), (0.03, 0.05), (7, 10), (120, 200), (1e6, 1e6)]
)
def test_an_axis_ends_at_a_round_number(value: float, top: float):
    svg = bars([value], "accent", "b")
    ((_, _, _, height),) = rects(svg)
    assert height == pytest.approx(value / top * (FLOOR - TOP), abs=0.06)


def test_a_step_without_a_value_has_no_bar():
    assert len(rects(bars([1.0, None, 2.0], "accent", "b"))) == 2
    assert rects(bars([], "accent", "b")) == []


def test_what_comes_stands_above_what_goes():
    (up, _), (down, _) = (
        [(y, h) for _, y, _, h in rects(up_and_down(counts, goes, ("in", "out"))) if h]
        + [(0.0, 0.0)]
        for counts, goes in (([2], [0]), ([0], [2]))
    )
    middle = (TOP + FLOOR) / 2
    assert up == (TOP, middle - TOP) and down == (middle, middle - TOP)


def test_a_picture_is_told_to_those_who_do_not_see_it():
    svg = curves([Series('a "name" <b>', "plan", [0.25, None])], unit="%")
    [(_, attributes), *_] = Tags(svg).tags
    assert attributes["aria-label"] == 'a "name" <b> by step: 0.25%, none'
    assert "<b>" not in svg


def test_many_steps_have_no_dots_and_thin_bars():
    assert "<circle" not in curves([Series("s", "plan", [0.5] * 200)])
    found = rects(bars([1.0] * 500, "accent", "b"))
    assert all(0 < width < 1 and LEFT <= x <= WIDTH - RIGHT for x, _, width, _ in found)
