"""The objective worked by hand; what masked positions hold reaches neither loss nor gradient.

Settings of the objective: what contradicts itself is refused in a sentence.

The numbers of a loss, worked by hand, and how those of a window come from its parts.

The three ratios of a rollout under a rubric scaffold, each by hand from rows to the loss.

Ratios of whole sequences: their medians and tails, by hand, however a window is cut.
"""

import math
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import Author, ScaffoldedPrompt, Segment, Stage, Trajectory
from rubricem.training.objective.batch import Batch, window_weights
from rubricem.training.objective.objective import (
    ClippedTerms,
    LossMetrics,
    ObjectiveResult,
    clipped_objective,
    imitation_objective,
)
from rubricem.training.objective.objective_config import ObjectiveConfig
from rubricem.training.rows.credit import policy_rows, row_rule
from rubricem.training.rows.row import TrainRow
from tests.support.collected import judgement
from tests.support.objective import Bigrams, logs, row
from tests.training.rows.test_credit import group, rollout

pytestmark = pytest.mark.usefixtures("one_thread")
NAN = float("nan")


def objective(
    of: TrainRow, new: Tensor, old: Tensor | None, ref: Tensor | None = None, **settings: Any
) -> ObjectiveResult:
    config = ObjectiveConfig(**settings)
    return clipped_objective(
        Batch.collate([of], window_weights([of], config)), new, old, ref, config
    )


def alike(*advantages: float, p: tuple[float, ...]) -> TrainRow:
    """A row whose sampler had the probabilities p."""
    return row(advantages, behaviour=tuple(map(math.log, p)))


def gradient(result: ObjectiveResult, of: Tensor) -> list[float]:
    result.loss.backward()
    assert of.grad is not None and of.grad[0, 0] == 0.0
    return of.grad[0, 1:].tolist()  # type: ignore[no-any-return]


# Advantages `a`, probabilities of the sampler `p`, of the new, the old (as the sampler's where none
# is named) and the reference policy; then the loss, its gradient, and what is told.
CASES: dict[str, dict[str, Any]] = {
    "a rise is clipped at 1.2 and a fall for a negative advantage alone": {
        # ratios 1, 1.8, 0.5, 0.5
        "a": (1, 2, 1, -1), "p": (0.5, 0.5, 0.4, 0.4), "new": (0.5, 0.9, 0.2, 0.2),
        "loss": -(1.0 + 1.2 * 2.0 + 0.5 * 1.0 - 0.8) / 4,
        "told": {"clipped_high": 0.25, "clipped_low": 0.25, "tokens": 4, "ratio": 3.8 / 4,
                 "ratio_max": 1.8, "policy_loss": -(1.0 + 1.2 * 2.0 + 0.5 * 1.0 - 0.8) / 4},
    },
    "clip bounds are not bound to be alike": {
        "a": (1, -1), "p": (0.5, 0.5), "new": (0.9, 0.1), "settings": {"clip": (0.5, 0.3)},
        "loss": -(1.3 - 0.5) / 2,
    },
    "the gradient at the old policy is the advantage and clipped tokens have none": {
        "a": (3, 2, -1), "p": (0.5, 0.5, 0.4), "new": (0.5, 0.9, 0.2),
        "loss": -(3.0 + 1.2 * 2 - 0.8) / 3, "gradient": [-3.0 / 3, 0.0, 0.0],
    },
    "the first pass needs no old policy": {
        "a": (3, 2), "p": (0.5, 0.9), "new": (0.5, 0.9), "old": None,
        "loss": -2.5, "gradient": [-1.5, -1.0],
    },
    "truncated importance is held at its cap and constant": {
        # old / behaviour = 0.5 and 4, of which the second is held at 2
        "a": (1, 1), "p": (0.8, 0.1), "new": (0.4, 0.4), "old": (0.4, 0.4),
        "loss": -(0.5 + 2.0) / 2, "gradient": [-0.25, -1.0],
        "told": {"importance_truncated": 0.5, "sampler_gap_max": math.log(4),
                 "ess": 2.5**2 / (2 * (0.25 + 4))},
    },
    "bypass forms the ratio to the sampler and clips there": {
        "a": (1, 1), "p": (0.4, 0.5), "new": (0.44, 0.9), "old": (0.9, 0.9),
        "settings": {"importance": "bypass"},
        "loss": -(1.1 + 1.2) / 2, "gradient": [-1.1 / 2, 0.0],
    },
    "the divergence from the reference pulls by 1 - ref / new": {
        "a": (0, 0), "p": (0.5, 0.25), "new": (0.5, 0.25), "ref": (0.25, 0.25),
        "settings": {"beta": 0.1}, "loss": 0.1 * (0.5 - math.log(0.5) - 1) / 2,
        "gradient": [0.1 * 0.5 / 2, 0.0],
        "told": {"kl_reference": (0.5 - math.log(0.5) - 1) / 2},
    },
    "the divergence from the sampler is measured at the new policy": {
        "a": (1,), "p": (0.5,), "new": (0.25,), "loss": -0.5,
        "told": {"sampler_gap": 0.0, "kl_behaviour": 2 - math.log(2) - 1},
    },
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_objective_by_hand(case: dict[str, Any]) -> None:
    new, old, ref = logs(*case["new"]).requires_grad_(), case.get("old", case["p"]), case.get("ref")
    result = objective(
        alike(*case["a"], p=case["p"]), new, old and logs(*old), ref and logs(*ref),
        **case.get("settings", {}),
    )  # fmt: skip
    assert result.loss.item() == pytest.approx(case["loss"])
    report = result.metrics.report()
    for name, value in case.get("told", {}).items():
        assert report.get(name) == (None if value is None else pytest.approx(value, abs=1e-6)), name
    if "gradient" in case:
        assert gradient(result, new) == pytest.approx(case["gradient"])


def test_untrained_tokens_get_a_gradient_of_exactly_zero_whatever_stands_there() -> None:
    of = row((NAN, 2.0, 5.0), behaviour=(NAN, -0.5, -NAN), mask=(0, 1, 0))
    new = torch.tensor([[NAN, NAN, -0.5, 1e9]], requires_grad=True)
    junk = torch.tensor([[-NAN, 1e9, -0.5, -1e9]])
    result = objective(of, new, junk, junk, beta=0.5)
    assert gradient(result, new) == [0.0, -2.0, 0.0]
    assert result.loss.item() == -2.0
    assert all(math.isfinite(value) for value in result.metrics.report().values())


def test_far_off_token_stays_finite() -> None:
    new = torch.tensor([[0.0, -1.0, -900.0]], requires_grad=True)
    old = torch.tensor([[0.0, -900.0, -1.0]])
    result = objective(row((-1.0, 1.0)), new, old, old, beta=0.1)
    assert all(map(math.isfinite, gradient(result, new))) and result.loss.isfinite()


def test_imitation_is_the_mean_negative_log_likelihood() -> None:
    new = logs(0.5, 0.25).requires_grad_()
    result = imitation_objective(Batch.collate([row((1.0, 1.0), objective="sft")]), new)
    assert result.loss.item() == pytest.approx((math.log(2) + math.log(4)) / 2)
    assert gradient(result, new) == [-0.5, -0.5]
    half = Batch.collate([row((1.0, 1.0), objective="sft", weight=0.5)])
    assert imitation_objective(half, logs(0.5, 0.5)).loss.item() == pytest.approx(math.log(2) / 2)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"clip": (1.0, 0.2)}, "how far the ratio may fall"),
        ({"clip": (0.2, 0.0)}, "how far the ratio may fall"),
        ({"beta": float("nan")}, "finite number"),
        ({"clip_high": 0.3}, "Extra inputs are not permitted"),
    ],
)
def test_settings_that_contradict_or_are_unknown_are_refused(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValidationError, match=sentence):
        ObjectiveConfig(**settings)


def test_each_stage_tells_its_own_mean_loss() -> None:
    p = tuple(map(math.log, (0.5, 0.5, 0.5)))
    of = row((1.0, -2.0, -4.0), behaviour=p, stages=(0, 1, 1))
    told = clipped_objective(Batch.collate([of]), logs(0.5, 0.5, 0.5)).metrics.report()
    assert (told["plan_loss"], told["research_loss"]) == pytest.approx((-1.0, 3.0))
    assert told["advantage_size"] == pytest.approx(7 / 3)
    assert "answer_loss" not in told, "no token of it was measured"


def test_an_objective_tells_what_it_adds_to_the_loss() -> None:
    p = (math.log(0.5), math.log(0.5))
    rows = [row((1.0, 1.0), name=n, objective=o, behaviour=p) for n, o in
            (("a", "policy"), ("b", "judge"))]  # fmt: skip
    new = torch.cat([logs(0.5, 0.5), logs(0.9, 0.5)])
    old = torch.cat([logs(0.5, 0.5), logs(0.5, 0.5)])
    result = clipped_objective(Batch.collate(rows), new, old)
    told = result.metrics.report()
    assert told["clipped_high"] == 0.25
    assert (told["policy_loss"], told["judge_loss"]) == pytest.approx((-1.0, -1.1))
    assert told["policy_loss"] + told["judge_loss"] == pytest.approx(result.loss.item())
    k3 = 0.5 / 0.9 - math.log(0.5 / 0.9) - 1
    assert told["kl_old"] == pytest.approx(k3 / 4, rel=1e-4)
    assert told["surprise"] == pytest.approx(-(3 * math.log(0.5) + math.log(0.9)) / 4)


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


UNDER_SCAFFOLD, WITHOUT, AFTER = 0.8, 0.4, 0.44
"""probabilities of the one token: the sampler's, the old policy's without scaffold, the new"""


def one_token(name: str, scaffold: bool) -> Trajectory:
    """An answer of one token after the prompt 1 2, in which 2 is the scaffold."""
    token = Segment(author=Author.POLICY, stage=Stage.ANSWER, turn=1, text="d", token_ids=(5,),
                    logprobs=(math.log(UNDER_SCAFFOLD),))  # fmt: skip
    shown = ScaffoldedPrompt(text="!", shown=1, bare_ids=(1,)) if scaffold else None
    prompt = Segment(author=Author.PROMPT, text="q", token_ids=(1, 2) if scaffold else (1,))
    return rollout(name, segments=(prompt, token), scaffold=shown, system="s!")


SHOWN, BARE = one_token("shown", True), one_token("bare", False)


def rows() -> tuple[TrainRow, TrainRow]:
    judged = [judgement(SHOWN, [0.0, 0.0, 0.0, 1.0]), judgement(BARE, [0.0] * 4)]
    found = policy_rows(group(SHOWN, BARE), judged, row_rule("answer-only")).rows
    return found[0], found[1]


def loss(of: TrainRow, new: torch.Tensor, old: torch.Tensor, **config: Any) -> ObjectiveResult:
    settings = ObjectiveConfig(**config)
    return clipped_objective(
        Batch.collate([of], window_weights([of], settings)), new, old, None, settings
    )


def test_unscaffolded_is_formed_to_the_old_policy_computed_without_the_scaffold():
    row, _ = rows()
    assert row.ids == (1, 5) and row.recompute_logprobs
    told = loss(row, logs(AFTER), logs(WITHOUT))
    # pi(o|q) / pi_old(o|q) = 0.44 / 0.4, and the gap to the sampler weighs nothing.
    assert told.loss.item() == pytest.approx(-1.1, rel=1e-4)
    report = told.metrics.report()
    assert (report["importance"], report["scaffold_gap"]) == (1.0, pytest.approx(math.log(2)))
    assert "sampler_gap" not in report and "kl_behaviour" not in report


def test_bypass_is_refused_where_the_sampler_saw_another_prompt():
    with pytest.raises(SettingsError, match="was sampled under another prompt") as told:
        loss(rows()[0], logs(AFTER), logs(WITHOUT), importance="bypass")
    assert "importance to truncate" in told.value.remedy


def trl_loss(batch: Batch, logprobs: tuple[Tensor, ...], config: ObjectiveConfig) -> Tensor:
    """TRL's own loss of a window (its type dapo), given ours as advantages.

    It is homogeneous in the advantage, so that a token's weight in its window and its importance
    weight go into that: A' = N * c * w * A.
    """
    from trl.trainer.grpo_trainer import GRPOTrainer

    new, old, ref = logprobs
    bypass = config.importance == "bypass"
    tokens = float(batch.tokens)
    weight = ClippedTerms.of(batch, old, None, None, config).importance
    inputs = {
        "prompt_ids": batch.ids[:, :1],
        "prompt_mask": torch.ones_like(batch.ids[:, :1]),
        "completion_ids": batch.ids[:, 1:],
        "completion_mask": torch.ones_like(batch.ids[:, 1:]),
        "tool_mask": batch.mask[:, 1:].long(),
        "advantages": (batch.advantages * batch.weights * weight * tokens)[:, 1:],
        "num_items_in_batch": torch.tensor(tokens),
        "old_per_token_logps": (batch.behaviour if bypass else old)[:, 1:],
        "ref_per_token_logps": ref[:, 1:],
    }
    logs = (new[:, 1:], torch.zeros_like(new)[:, 1:], None)
    settings: dict[str, Any] = {
        "beta": config.beta, "epsilon_low": config.clip[0], "epsilon_high": config.clip[1],
        "loss_type": "dapo", "importance_sampling_level": "token", "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None, "use_vllm": False, "aux_loss_enabled": False,
        "_entropy_bonus_enabled": False, "current_gradient_accumulation_steps": 1,
        "args.delta": None, "args.use_bias_correction_kl": False, "args.steps_per_generation": 1,
        "accelerator.num_processes": 1, "accelerator.gather": lambda value: value,
        "_get_per_token_logps_and_entropies": lambda *given, **more: logs,
    }  # fmt: skip
    trainer = MagicMock(**settings)
    loss: Tensor = GRPOTrainer._compute_loss(trainer, MagicMock(), inputs)  # type: ignore[no-untyped-call]
    return loss


@pytest.mark.parametrize("settings", [
    {"beta": 0.3},
    {"beta": 0.3, "clip": (0.1, 0.3)},
    {"beta": 0.3, "clip": (0.1, 0.3), "importance": "bypass"},
    {"aggregation": "sequence-mean"},
])  # fmt: skip
def test_five_steps_by_trls_own_loss_are_those_of_ours(settings: dict[str, Any]) -> None:
    rows = [
        row((1.0, -0.5, 2.0, 0.3), name="a", behaviour=(-1.0, -2.0, -0.5, -2.5), mask=(1, 0, 1, 1),
            stages=(0, 0, 1, 3)),
        row((-1.0, 0.8), name="b", behaviour=(-2.0, -1.5), stages=(0, 3), weight=2.0),
        row((1.5, 1.0, -2.0), name="c", objective="reflect", behaviour=(-2.2, -1.0, -3.0)),
    ]  # fmt: skip
    config = ObjectiveConfig(**settings)
    batch = Batch.collate(rows, window_weights(rows, config))
    ends = []
    for by_trl in (False, True):
        policy, start = Bigrams(1), Bigrams(1)
        optimizer, losses = torch.optim.SGD([policy.table], lr=1.0), []
        for _ in range(5):
            new = policy(batch).masked_fill(~batch.mask, 0.0)
            old, ref = (one(batch).masked_fill(~batch.mask, 0.0).detach() for one in (start, start))
            if by_trl:
                loss = trl_loss(batch, (new, old, ref), config)
            else:
                loss = clipped_objective(batch, new, old, ref, config).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        ends.append((losses, policy.table.detach()))
    (ours, mine), (theirs, other) = ends
    assert theirs == pytest.approx(ours, abs=1e-5) and len({round(x, 4) for x in ours}) == 5
    torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
