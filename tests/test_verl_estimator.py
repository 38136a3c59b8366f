"""Stage-wise GRPO on verl's tensors: the project's own advantages, by way of stage codes."""

import numpy as np
import pytest
import torch

from training.advantages import stage_advantages
from training.returns import PAPER, broadcast, identity, stage_returns
from training.verl_engine.estimator import ss_grpo_advantages
from training.verl_engine.stage_codes import decoded, encoded

NAN = float("nan")
STAGES = (
    (-1, 0, 0, -1, 1, 2, 3, 3),
    (0, 1, 1, -1, -1, 2, 3),
    (0, 0, 1, 3, 3, 3, 3, 3, 3),
    (0, 1, 2, 3),
)
SCORES = ((0.2, 0.0, 1.0, 0.5), (0.9, 0.5, None, 1.0), (0.4, 1.0, 0.0, 0.0), (0.1, 0.3, 0.6, 0.7))
QUESTIONS = ["one", "one", "one", "two"]


def batch(absent: dict[tuple[int, int], bool] | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """The codes and the mask of the responses above, padded on the right."""
    codes, masks = [], []
    for number, (stages, scores) in enumerate(zip(STAGES, SCORES, strict=True)):
        without = [bool(absent and absent.get((number, k))) for k in range(4)]
        codes.append(encoded(stages, scores, without))
        masks.append(torch.tensor([float(stage >= 0) for stage in stages]))
    pad = torch.nn.utils.rnn.pad_sequence
    return pad(codes, batch_first=True), pad(masks, batch_first=True)


@pytest.mark.parametrize("dependence", [PAPER, identity(), broadcast()])
def test_advantages_on_verls_tensors_are_those_of_the_project(dependence: object) -> None:
    codes, mask = batch({(0, 1): True})
    found, returns = ss_grpo_advantages(codes, mask, QUESTIONS, dependence)  # type: ignore[arg-type]
    scores = np.array([[NAN if s is None else s for s in row] for row in SCORES[:3]])
    absent = np.zeros((3, 4), dtype=np.bool_)
    absent[0, 1] = True
    wanted = stage_returns(scores, dependence, absent)  # type: ignore[arg-type]
    values = stage_advantages(wanted).values
    for row, stages in enumerate(STAGES[:3]):
        for place, stage in enumerate(stages):
            told = values[row, stage] if stage >= 0 else 0.0
            assert float(found[row, place]) == pytest.approx(told, abs=1e-4), (row, place)
            known = np.nan_to_num(wanted[row, stage]) if stage >= 0 else 0.0
            assert float(returns[row, place]) == pytest.approx(known, abs=1e-5)
        assert not found[row, len(stages) :].any(), "padding"
    assert np.abs(values).max() > 0.5


def test_answer_only_by_hand() -> None:
    """Answers of 0.5, 1 and 0: mean 0.5, deviation sqrt(1/6); each member's tokens get its own."""
    codes, mask = batch()
    found, _ = ss_grpo_advantages(codes, mask, QUESTIONS, broadcast())
    assert found[0].tolist() == [0.0] * 9
    expected = 0.5 / (1 / 6) ** 0.5
    assert found[1, 0].item() == pytest.approx(expected, abs=1e-4)
    assert found[2, 3].item() == pytest.approx(-expected, abs=1e-4)
    assert not found[1, 3:5].any(), "a tool's tokens"


def test_a_question_with_one_response_teaches_nothing() -> None:
    codes, mask = batch()
    found, returns = ss_grpo_advantages(codes, mask, QUESTIONS, PAPER)
    assert not found[3].any()
    assert returns[3, 3].item() == pytest.approx(0.7, abs=1e-5)


def test_a_score_of_zero_is_told_from_an_unknown_and_an_absent_one() -> None:
    codes = encoded([0, 1, 2, 3, 3], [0.0, None, 0.3, 1.0], [False, False, True, False])
    assert codes.tolist() == [5.0, 11.0, 12.5, 18.0, 16.0]
    found = decoded(codes.unsqueeze(0), torch.ones(1, 5), 4)
    assert found.stages.tolist() == [[0, 1, 2, 3, 3]]
    np.testing.assert_array_equal(found.scores, [[0.0, NAN, NAN, 1.0]])
    assert found.absent.tolist() == [[False, False, True, False]]


def test_a_response_shorter_than_the_stages_leaves_the_last_unknown() -> None:
    codes = encoded([0, 3], [0.5, 0.5, 0.5, 0.5], [False] * 4)
    found = decoded(codes.unsqueeze(0), torch.ones(1, 2), 4)
    np.testing.assert_array_equal(found.scores, [[0.5, 0.5, NAN, NAN]])


@pytest.mark.parametrize("spoilt", [0.25, -1.0, 40.0])
def test_rewards_that_are_no_codes_are_refused(spoilt: float) -> None:
    codes, mask = batch()
    codes[0, 6] += spoilt
    with pytest.raises(ValueError, match="use_kl_in_reward"):
        ss_grpo_advantages(codes, mask, QUESTIONS, PAPER)
    with pytest.raises(ValueError, match="use_kl_in_reward"):
        ss_grpo_advantages(torch.zeros_like(codes), mask, QUESTIONS, PAPER)
    with pytest.raises(ValueError, match="not in"):
        encoded([0], [1.5], [False])
