"""The learner on a tiny random model: log-probabilities, gradients, windows, the reference."""

from pathlib import Path

import pytest
import torch

from rubricem.training.local.learner import Learner
from rubricem.training.local.logprobs import batch_logprobs
from rubricem.training.objective.batch import Batch, cut
from rubricem.training.objective.objective_config import ObjectiveConfig
from rubricem.training.rounds.fit import train
from rubricem.training.rows.row import TrainRow
from tests.support.rows import (
    adapter_of,
    config_of,
    learner,
    logprobs,
    policy_rows,
    row,
    window_loss,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_fresh_adapter_changes_nothing_and_a_trained_one_does(tiny: Path) -> None:
    one, rows = learner(tiny), [row(0), row(1)]
    fresh, nothing = logprobs(one, rows), adapter_of(one).snapshot()
    for weight in nothing.values():
        weight.zero_()
    with adapter_of(one).as_in(nothing):
        torch.testing.assert_close(logprobs(one, rows), fresh)
    one.sft_step(rows, 0.01)
    trained = logprobs(one, rows)
    assert float((trained - fresh).sum()) > 0.1, "imitated tokens are likelier"
    with adapter_of(one).as_in(nothing):
        torch.testing.assert_close(logprobs(one, rows), fresh, msg="the base is frozen")


def test_logprobs_are_those_of_the_whole_softmax_and_zero_where_not_trained(tiny: Path) -> None:
    none = (0.0,) * 3
    short = {"advantages": none, "behaviour_logprobs": none, "stages": (-1,) * 3}
    one = learner(tiny)
    rows = [row(0), row(1, ids=(5, 9, 7), loss_mask=(0, 1, 1), **short)]
    found = logprobs(one, rows)
    for line, one_row in zip(found, rows, strict=True):
        with torch.no_grad():
            whole = torch.log_softmax(one.model(torch.tensor([one_row.ids])).logits[0], -1)
        for place, token in enumerate(one_row.ids):
            wanted = float(whole[place - 1, token]) if one_row.loss_mask[place] else 0.0
            assert float(line[place]) == pytest.approx(wanted, abs=1e-5)


def test_the_policy_gradient_raises_good_tokens_and_lowers_bad_ones(tiny: Path) -> None:
    one, rows = learner(tiny), policy_rows(2)
    before = logprobs(one, rows).sum(1)
    metrics = one.ss_grpo_step(rows, 0.01)
    after = logprobs(one, rows).sum(1)
    assert after[1] > before[1] and after[0] < before[0]
    assert metrics["ratio"] == pytest.approx(1.0), "old and new are one policy in the first pass"
    assert metrics["tokens"] == 22


def test_a_window_gives_one_gradient_however_its_rows_lie(tiny: Path) -> None:
    rows = policy_rows(4)
    states = []
    for order in (rows, rows[::-1]):
        one = learner(tiny)
        one.ss_grpo_step(order, 0.01)
        states.append(one.weights.state())
    one = learner(tiny)
    batch = Batch.collate(rows)
    loss = -(batch_logprobs(one.model, batch) * batch.advantages * _weights(one, rows)).sum() / 44
    loss.backward()
    torch.nn.utils.clip_grad_norm_(one.weights.parameters(), 1.0)
    for group in one.optimizer.param_groups:
        group["lr"] = 0.01
    one.optimizer.step()
    for state in states:
        for name, value in one.weights.state().items():
            torch.testing.assert_close(state[name], value, rtol=1e-3, atol=1e-5)


def _weights(one: Learner, rows: list[TrainRow]) -> torch.Tensor:
    """min(exp(old - behaviour), 2), the truncated correction for the sampler."""
    return (logprobs(one, rows) - Batch.collate(rows).behaviour).exp().clamp(max=2.0)


def test_rows_without_advantage_cost_nothing_and_are_counted(tiny: Path) -> None:
    one = learner(tiny)
    before = one.weights.state()
    metrics = one.ss_grpo_step([row(0, "policy", 0.0), row(1, "policy", 0.0)], 0.01)
    assert metrics["rows_without_gradient"] == 2
    assert all(torch.equal(before[n], value) for n, value in one.weights.state().items())


def test_the_reference_is_the_adapter_at_the_start(tiny: Path) -> None:
    one = learner(tiny, objective=ObjectiveConfig(beta=0.5))
    first = one.ss_grpo_step(policy_rows(2), 0.01)
    second = one.ss_grpo_step(policy_rows(2), 0.01)
    assert first["kl_reference"] == pytest.approx(0.0, abs=1e-6)
    assert second["kl_reference"] > 1e-3
    fresh = learner(tiny, objective=ObjectiveConfig(beta=0.5))
    fresh.start_from(one.weights.state())
    again = fresh.ss_grpo_step(policy_rows(2), 0.01)
    assert again["kl_reference"] == pytest.approx(0.0, abs=1e-6)


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


@pytest.mark.parametrize("beta", [0.0, pytest.param(0.5, marks=pytest.mark.slow)])
def test_a_gpu_out_of_memory_is_given_half_and_the_step_is_that_of_single_rows(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, beta: float
) -> None:
    """A fake that holds 60 tokens at once, of rows of 24."""
    settings = {"objective": ObjectiveConfig(beta=beta)}
    alone = learner(tiny, **settings)
    wanted = alone.ss_grpo_step(policy_rows(6), 0.01)
    one, tried = learner(tiny, **settings), list[int]()
    one.room = 24 * 6

    def scored(batch: Batch) -> torch.Tensor:
        tried.append(batch.ids.numel())
        if tried[-1] > 60:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return batch_logprobs(one.model, batch)

    monkeypatch.setattr(one, "_score", scored)
    found = one.ss_grpo_step(policy_rows(6), 0.01)
    assert tried[:3] == [24 * 6, 24 * 3, 24] and set(tried[2:]) == {24}
    assert window_loss(found) == pytest.approx(window_loss(wanted), abs=1e-6)
    for name, value in alone.weights.state().items():
        torch.testing.assert_close(one.weights.state()[name], value)
    monkeypatch.setattr(one, "_score", lambda batch: scored(batch.collate(policy_rows(6))))
    with pytest.raises(torch.OutOfMemoryError):
        one.ss_grpo_step(policy_rows(2), 0.01)


def test_parts_are_filled_by_tokens_with_their_padding() -> None:
    def of(length: int) -> TrainRow:
        short = dict.fromkeys(("ids", "loss_mask", "stages"), (0,) * length)
        floats = dict.fromkeys(("advantages", "behaviour_logprobs"), (0.0,) * length)
        return row(length, **short, **floats)

    rows = [of(n) for n in (3, 10, 4, 9, 2)]
    parts = [[len(one.ids) for one in part] for part in cut(rows, None, 20)]
    assert parts == [[10, 9], [4, 3, 2]]
    assert [len(part) for part in cut(rows, None, 6)] == [1, 1, 1, 2], "a row may be longer"
    assert [len(part) for part in cut(rows, 2, 100)] == [2, 2, 1]
