"""Ratios of whole sequences: their medians and tails, by hand, however a window is cut."""

import math

import pytest
import torch

from tests.objective_rows import logs, row
from training.loss_metrics import LossMetrics
from training.objective import clipped_objective
from training.objective_config import ObjectiveConfig
from training.packing import pack
from training.tensors import collate

pytestmark = pytest.mark.usefixtures("one_thread")
HALF = math.log(0.5)


def test_a_sequence_ratio_is_the_product_of_its_tokens_ratios() -> None:
    rows = [row((1.0, 1.0), name=name, behaviour=(HALF, HALF)) for name in "ab"]
    rows.append(row((1.0, 1.0), name="c", behaviour=(math.log(0.1), math.log(0.01))))
    new = torch.cat([logs(0.5, 0.25), logs(1.0, 1.0), logs(1.0, 1.0)])
    told = clipped_objective(collate(rows), new).metrics.report()
    # Products 1/2, 4 and 1000.
    assert told["sequence_ratio_median"] == pytest.approx(4.0, rel=1e-5)
    counts = [told[f"sequence_ratio_above_{bound}"] for bound in (2, 10, 100)]
    assert counts == [2, 1, 1]


def test_packed_rows_have_the_ratios_of_padded_ones() -> None:
    rows = [row((1.0,), name="a", behaviour=(HALF,)), row((1.0, 1.0), behaviour=(HALF, HALF))]
    padded = torch.cat([torch.cat([logs(1.0), torch.zeros(1, 1)], dim=1), logs(1.0, 1.0)])
    packed = torch.cat([logs(1.0), logs(1.0, 1.0)], dim=1)
    one = clipped_objective(collate(rows), padded).metrics
    other = clipped_objective(pack(rows), packed).metrics
    assert one.rows["sequence_ratio"] == pytest.approx((math.log(2), math.log(4)))
    assert other.rows["sequence_ratio"] == pytest.approx(one.rows["sequence_ratio"])


def test_novelty_is_the_mean_token_ratio_to_the_reference() -> None:
    of = row((1.0, 1.0), behaviour=(HALF, HALF))
    config = ObjectiveConfig(beta=0.1)
    told = clipped_objective(collate([of]), logs(0.5, 0.8), None, logs(0.25, 0.1), config)
    # Ratios 2 and 8: their geometric mean is 4.
    assert told.metrics.report()["novelty_median"] == pytest.approx(4.0, rel=1e-5)
    assert "novelty_median" not in clipped_objective(collate([of]), logs(0.5, 0.8)).metrics.report()


def test_only_trained_policy_rows_have_a_sequence_ratio() -> None:
    rows = [
        row((1.0,), name="reflects", objective="reflect", behaviour=(math.log(0.01),)),
        row((1.0,), name="silent", mask=(0,)),
        row((1.0,), name="policy", behaviour=(HALF,)),
    ]
    found = clipped_objective(collate(rows), torch.cat([logs(0.5)] * 3)).metrics
    assert found.rows["sequence_ratio"] == pytest.approx((0.0,), abs=1e-6)


def test_medians_are_of_all_parts_of_a_window_and_stay_finite() -> None:
    parts = [LossMetrics(rows={"x": values}) for values in ((0.0, 1e6), (1e6,))]
    told = (parts[0] + parts[1]).report()
    assert told["x_median"] == math.exp(700.0) < math.inf
    assert told["x_above_100"] == 2.0
