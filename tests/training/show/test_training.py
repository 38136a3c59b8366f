"""The numbers of a step and a round: worked by hand, and each of them explained in the docs."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rubricem.judge.base import NO_CRITERIA
from rubricem.memory.schema import (
    Author,
    Criterion,
    Judgement,
    Segment,
    Stage,
    StageScore,
    Usage,
    Verdict,
)
from rubricem.training.local.learner import memory_peak, window_numbers
from rubricem.training.rounds.fit import train
from rubricem.training.rounds.numbers import (
    form_numbers,
    judge_numbers,
    numbers_of,
    reward_intervals,
    rows_numbers,
)
from rubricem.training.rounds.update import RoundGroup, RoundRows
from rubricem.training.rows.credit import CREDITS
from rubricem.training.show.events import OF_JUDGE, OF_ROUNDS, OF_UPDATES, pattern
from rubricem.training.show.training import reward_figures
from rubricem.training.statistics import mean_interval
from tests.conftest import ROOT
from tests.support.collected import judgement
from tests.support.rows import config_of, row
from tests.training.rounds.test_numbers import group
from tests.training.rows.test_compile import rollout

EXPLAINED = (ROOT / "docs" / "training_numbers.md").read_text(encoding="utf-8")


def listed() -> list[str]:
    """The names in the tables of the page."""
    cells = (line.split("|")[1] for line in EXPLAINED.splitlines() if line.startswith("| `"))
    return [name for cell in cells for name in re.findall(r"`(.+?)`", cell)]


def explained() -> re.Pattern[str]:
    """What matches every name in the tables of the page, and no other."""
    return re.compile("|".join(map(pattern, listed())))


def test_the_names_that_there_can_be_are_those_explained():
    others = {"reward/{stage}/low", "reward/{stage}/high", "updates", "saved_at"}
    of_judge = (n for n in OF_JUDGE if not n.startswith("judge_"))  # an {objective}'s otherwise
    assert sorted(listed()) == sorted({*OF_UPDATES, *OF_ROUNDS, *others, *of_judge})


def unexplained(names: object) -> list[str]:
    return [name for name in names if not explained().fullmatch(name)]  # type: ignore[attr-defined]


def scored(*points: tuple[str, float, bool], missing: bool = False) -> StageScore:
    verdicts = tuple(
        Verdict(criterion=Criterion(title=t, description=t, positive=good), points=p)
        for t, p, good in points
    )
    return StageScore(stage=Stage.PLAN, score=0.5, verdicts=verdicts, missing=missing)


def test_a_criterion_is_its_mean_over_all_runs_and_a_flaw_counts_for_its_absence():
    scores = [scored(("a", 2, True), ("flaw", 2, False)), scored(("a", 1, True), missing=True)]
    one = group([0.5] * 4, [0.5] * 4)
    judged = tuple(
        Judgement(trajectory_id=run.id, judge="j",
                  stages=(score, *judgement(run, [0.5] * 4).stages[1:]))
        for run, score in zip(one.group.trajectories, scores, strict=True)
    )  # fmt: skip
    found = judge_numbers([RoundGroup("g", one.group, judged, None)])
    assert found["criterion/plan/max"] == 0.75, "of a: whole once, half once"
    assert found["criterion/plan/min"] == 0.0, "of the flaw, which is there"
    assert found["missing_share/plan"] == 0.5 and found["missing_share/answer"] == 0.0
    assert found["reward/mean"] == 0.5


def test_what_the_judge_took_is_told_and_a_price_only_where_it_is_known():
    one = group([0.5] * 4)
    spent = Usage(prompt_tokens=100, completion_tokens=10, cost=0.25, calls=4)
    known = judge_numbers([RoundGroup("g", one.group, one.judgements, None, spent)])
    assert (known["judge/calls"], known["judge/tokens_read"], known["judge/cost"]) == (4, 100, 0.25)
    unknown = Usage(prompt_tokens=1, calls=1)
    both = judge_numbers([RoundGroup("g", one.group, one.judgements, None, unknown)])
    assert "judge/cost" not in both and both["judge/calls"] == 1
    assert "judge/calls" not in judge_numbers([one])


def test_how_long_the_judge_takes_is_told_of_each_group_of_which_it_was_noted():
    one = group([0.5] * 4)
    groups = [replace(one, judging_seconds=seconds) for seconds in (1.0, 4.0, None)]
    found = judge_numbers(groups)
    assert (found["seconds/judge_group/mean"], found["seconds/judge_group/max"]) == (2.5, 4.0)
    assert not any("seconds" in name for name in judge_numbers([one]))


def test_a_stage_that_the_judge_failed_at_is_told_from_one_without_criteria():
    found = judge_numbers([group([0.5, 0.5, 0.5, None])])
    assert found["unscored_share"] == 0.25 and found["judge/failed_share"] == 0.25
    assert found["no_criteria_share"] == 0
    one = group([0.5, 0.5, 0.5, 0.5])
    absent = StageScore(stage=Stage.ANSWER, unscored_reason=NO_CRITERIA)
    judged = [j.model_copy(update={"stages": (*j.stages[:3], absent)}) for j in one.judgements]
    found = judge_numbers([replace(one, judgements=tuple(judged))])
    assert found["unscored_share"] == found["judge/failed_share"] == 0
    assert found["no_criteria_share"] == 0.25
    assert ("without criteria", "25%") in reward_figures(found)


def test_lengths_are_told_by_author_and_stage_and_errors_of_tools_are_counted():
    failed = Segment(author=Author.TOOL, stage=Stage.RESEARCH, text='\n<tool_output error="away">')
    other = Segment(author=Author.POLICY, stage=Stage.PLAN, text="x", retokenised=True)
    found = form_numbers([rollout("one"), rollout("two", failed, other)])
    assert found["tokens/policy/mean"] == 4, "of the other run not all tokens are known"
    assert found["tokens/policy/plan/mean"] == 1 and found["tokens/tool/research/mean"] == 1
    assert found["tokens/prompt/mean"] == 2 and "tokens/tool/plan/mean" not in found
    assert found["tool_error_share"] == pytest.approx(1 / 3)
    assert found["retokenised_share"] == pytest.approx(1 / 9), "retried attempts do not count"


def test_an_interval_is_around_its_mean_narrower_for_more_values_and_of_two_at_least():
    few, many = mean_interval([0.0, 1.0] * 3), mean_interval([0.0, 1.0] * 30)
    assert few is not None and many is not None
    assert few[0] < many[0] < 0.5 < many[1] < few[1]
    assert mean_interval([0.4] * 3) == (pytest.approx(0.4), pytest.approx(0.4))
    assert mean_interval([1.0]) is None
    # The mean's standard error is 0.5 / sqrt(60); 1.96 of them are 0.127.
    assert many[1] - many[0] == pytest.approx(2 * 0.127, abs=0.02)
    ends = reward_intervals([group([0.2] * 4, [0.6, 0.2, 0.2, None])])
    assert ends["reward/plan/low"] < 0.4 < ends["reward/plan/high"]
    assert "reward/answer/low" not in ends, "one score has no interval"


def test_a_window_is_told_by_its_rows():
    found = window_numbers([row(0, "policy", 1.0, stages=(-1,) * 10 + (0,) * 14), row(2, "policy")])
    assert (found["groups"], found["row_tokens/mean"], found["prompt_tokens/mean"]) == (2, 24, 10)
    assert found["advantage/plan/mean"] == 1.0
    assert not any("advantage" in name for name in window_numbers([row(0, "sft")]))


def test_the_peak_is_of_this_process():
    held = bytearray(64_000_000)
    assert memory_peak(torch.device("cpu")) > len(held)


@pytest.mark.usefixtures("one_thread")
async def test_every_number_of_a_step_is_explained(tiny: Path, tmp_path: Path) -> None:
    rows = [
        row(
            n, "policy", 1.0 if n % 2 else -1.0, stages=(-1,) * 10 + (0,) * 6 + (-1,) * 3 + (3,) * 5
        )
        for n in range(2)
    ]
    config = config_of(tmp_path, tiny, rows, objective={"beta": 0.1, "dual_clip": 3.0}, passes=2)
    [step] = (await train(config, "ss-grpo", lambda line: None)).steps
    assert unexplained(step) == []
    assert step["padding_share"] == 0.0 and step["memory_peak"] > 1e6
    assert step["trained_per_second"] < step["tokens_per_second"]
    assert unexplained(["reward/plan/average", "los"]) == ["reward/plan/average", "los"]


@pytest.mark.usefixtures("one_thread")
async def test_padding_is_what_shorter_rows_leave_of_the_longest(
    tiny: Path, tmp_path: Path
) -> None:
    fields = {"ids": row(1).ids[:12], "loss_mask": (0,) * 10 + (1,) * 2, "stages": (-1,) * 12}
    fields |= {"advantages": (0.0,) * 10 + (1.0,) * 2, "behaviour_logprobs": (0.0,) * 12}
    short = row(1, **fields)
    config = config_of(tmp_path, tiny, [row(0), short], micro_batch=2)
    [step] = (await train(config, "sft", lambda line: None)).steps
    assert step["padding_share"] == pytest.approx(0.25) and step["tokens_read"] == 36


def test_every_number_of_a_round_is_explained():
    one = group([0.2, 0.5, 0.5, None], [0.6, 0.5, 0.5, 1.0])
    groups = [replace(one, judging_seconds=1.0)]
    found = numbers_of(groups, CREDITS["identity"])
    rows = RoundRows((row(0, "policy"),), {"longer than 10 tokens": 2}, 1)
    told = found | rows_numbers(rows, RoundRows()) | reward_intervals(groups)
    assert len(told) > 40 and unexplained(told) == []
