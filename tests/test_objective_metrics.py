"""The numbers of a loss, worked by hand, and how those of a window come from its parts."""

import math

import pytest
import torch

from tests.objective_rows import logs, row
from training.loss_metrics import Ledger, LossMetrics
from training.objective import clipped_objective, imitation_objective
from training.tensors import collate

pytestmark = pytest.mark.usefixtures("one_thread")


def test_each_stage_tells_its_own_mean_advantage_and_loss() -> None:
    p = tuple(map(math.log, (0.5, 0.5, 0.5)))
    of = row((1.0, -2.0, -4.0), behaviour=p, stages=(0, 1, 1))
    told = clipped_objective(collate([of]), logs(0.5, 0.5, 0.5)).metrics.report()
    assert (told["plan_advantage_size"], told["research_advantage_size"]) == (1.0, 3.0)
    assert (told["plan_loss"], told["research_loss"]) == pytest.approx((-1.0, 3.0))
    assert told["advantage_size"] == pytest.approx(7 / 3)
    assert "answer_loss" not in told, "no token of it was measured"


def test_an_objective_tells_its_own_clipping_and_what_it_adds_to_the_loss() -> None:
    p = (math.log(0.5), math.log(0.5))
    rows = [row((1.0, 1.0), name=n, objective=o, behaviour=p) for n, o in
            (("a", "policy"), ("b", "judge"))]  # fmt: skip
    new = torch.cat([logs(0.5, 0.5), logs(0.9, 0.5)])
    old = torch.cat([logs(0.5, 0.5), logs(0.5, 0.5)])
    result = clipped_objective(collate(rows), new, old)
    told = result.metrics.report()
    assert (told["policy_clipped_high"], told["judge_clipped_high"]) == (0.0, 0.5)
    assert told["clipped_high"] == 0.25
    assert (told["policy_loss"], told["judge_loss"]) == pytest.approx((-1.0, -1.1))
    assert told["policy_loss"] + told["judge_loss"] == pytest.approx(result.loss.item())
    k3 = 0.5 / 0.9 - math.log(0.5 / 0.9) - 1
    assert told["judge_kl_old"] == pytest.approx(k3 / 2, rel=1e-4)
    assert told["kl_old"] == pytest.approx(k3 / 4, rel=1e-4)
    assert told["surprise"] == pytest.approx(-(3 * math.log(0.5) + math.log(0.9)) / 4)


def test_divergence_from_the_sampler_is_measured_at_the_new_policy() -> None:
    of = row((1.0,), behaviour=(math.log(0.5),))
    told = clipped_objective(collate([of]), logs(0.25), logs(0.5)).metrics.report()
    assert told["sampler_gap"] == pytest.approx(0.0, abs=1e-6)
    assert told["kl_behaviour"] == pytest.approx(2 - math.log(2) - 1)


def test_parts_add_up_to_means_by_tokens_sums_and_peaks() -> None:
    one = LossMetrics({"tokens": 1.0, "x": 4.0, "s": 2.0}, {"x": 1.0}, {"x": 4.0})
    other = LossMetrics({"tokens": 3.0, "x": 2.0, "y": 6.0}, {"x": 3.0, "y": 3.0}, {"x": 1.0})
    told = (one + other).report()
    assert told == {"tokens": 4.0, "s": 2.0, "x": 1.5, "y": 2.0, "x_max": 4.0}
    assert (LossMetrics() + one).report() == one.report()


def test_effective_samples_are_counted_over_the_window_and_not_averaged() -> None:
    parts = [
        LossMetrics({"importance": w, "importance_square": w * w},
                    {"importance": 1.0, "importance_square": 1.0})
        for w in (1.0, 3.0)
    ]  # fmt: skip
    assert [part.report()["ess"] for part in parts] == [1.0, 1.0]
    assert (parts[0] + parts[1]).report()["ess"] == pytest.approx(16 / (2 * 10))


def test_batch_without_a_trained_token_has_no_loss_and_adds_nothing() -> None:
    silent = collate([row((1.0, 1.0), mask=(0, 0)), row((1.0, 1.0), name="s", mask=(0, 0))])
    new = torch.zeros(2, 3, requires_grad=True)
    for result in (clipped_objective(silent, new), imitation_objective(silent, new)):
        result.loss.backward()
        assert result.loss.item() == 0.0
        assert set(result.metrics.report().values()) == {0.0}
    assert new.grad is not None and not new.grad.any()


def test_a_ledger_reads_nothing_outside_its_tokens() -> None:
    ledger = Ledger()
    where = torch.tensor([[True, False]])
    ledger.mean("x", torch.tensor([[2.0, math.nan]]), where)
    ledger.peak("x", torch.tensor([[2.0, math.inf]]), where)
    assert ledger.closed().report() == {"tokens": 0.0, "x": 2.0, "x_max": 2.0}
