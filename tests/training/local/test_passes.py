"""Rows that begin alike go through the model once as far as they do, and nothing else changes."""

from pathlib import Path
from typing import Any

import pytest
import torch

from rubricem.training.local.learner import Learner
from rubricem.training.local.load import load_learner
from rubricem.training.local.local_config import EngineConfig
from rubricem.training.local.passes import Fork, LowerBlocks, PassPlan, PlanSizes
from rubricem.training.local.ranks import ALONE, Ranks
from rubricem.training.local.weights import blocks_of
from rubricem.training.objective.batch import window_weights
from rubricem.training.objective.objective_config import ObjectiveConfig
from rubricem.training.rows.row import TrainRow
from tests.support.rows import row

pytestmark = pytest.mark.usefixtures("one_thread")

SYSTEM = tuple(range(20))
QUESTIONS = (tuple(range(30, 42)), tuple(range(50, 62)))


def begun(
    group: int, member: int, written: tuple[int, ...], trained: int | None = None
) -> TrainRow:
    """A row behind its question, of whose written tokens all but the second are trained."""
    ids = (*SYSTEM, *QUESTIONS[group], *written)
    most = len(ids) if trained is None else 32 + trained
    mask = tuple(int(32 <= place < most and place != 33) for place in range(len(ids)))
    advantage = (1.0, -0.5, 0.25, -1.5)[member]
    return row(
        4 * group + member, "policy", group=f"g{group}", ids=ids, loss_mask=mask,
        advantages=tuple(advantage * on for on in mask), stages=(-1,) * len(ids),
        behaviour_logprobs=tuple(-4.5 * on for on in mask),
    )  # fmt: skip


def family() -> list[TrainRow]:
    """Two groups: rows that part at once, later, never, or end within another one."""
    long = tuple(range(70, 90))
    return [
        begun(0, 0, long), begun(1, 0, (3, 5, 7)),
        begun(0, 1, (*long[:10], 99, 98, 97)), begun(1, 1, (3, 5, 7)),
        begun(0, 2, (5, *long)), begun(1, 2, (3, 5, 7, 9, 11, 13)),
        begun(0, 3, long, trained=8), begun(1, 3, (64,)),
    ]  # fmt: skip


def shape(plan: PassPlan) -> list[Any]:
    """Of a branch its length and what is behind it; of a batch the ids of its rows, as lengths."""
    return [
        (part.ids.numel(), shape(part.behind)) if isinstance(part, Fork) else part.lengths.tolist()
        for part in plan.parts
    ]


@pytest.mark.parametrize(
    ("micro_batch", "least", "wanted"),
    [
        # All eight share 20 tokens. Of the first group four share 12 more, and three another 6,
        # since the one that ends first keeps a token of its own; in the second that is so at 11.
        (1, 12, [(20, [(12, [(6, [[52], [52], [45]]), [53]]), (11, [[33], [35], [35], [38]])])]),
        (2, 12, [(20, [(12, [(6, [[52, 52], [45]]), [53]]), (11, [[38, 35], [35, 33]])])]),
        (1, 34, [(20, [(12, [[53], [52], [52], [45]]), [33], [35], [35], [38]])]),
        (1, 140, [(20, [[53], [52], [52], [45], [33], [35], [35], [38]])]),
        (1, 141, [[53], [52], [52], [45], [33], [35], [35], [38]]),
    ],
)
def test_a_branch_is_what_saves_tokens_enough(micro_batch: int, least: int, wanted: Any) -> None:
    rows = family()
    assert shape(PassPlan.grow(rows, window_weights(rows), micro_batch, least)) == wanted


def test_tokens_of_a_branch_are_counted_once() -> None:
    rows = family()
    sizes = PlanSizes.of(PassPlan.grow(rows, window_weights(rows), 2, 12))
    whole, saved = 53 + 2 * 52 + 45 + 33 + 2 * 35 + 38, 7 * 20 + 3 * 12 + 2 * 6 + 3 * 11
    assert (sizes.batches, sizes.rows, sizes.read) == (5, whole, whole - saved)
    assert sizes.places == sizes.read + 3 + 2, "two shorter rows are padded"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"adaptation": "full"},
        {"micro_batch": 3},
        {"adapted_blocks": 1},
        {"passes": 2, "objective": ObjectiveConfig(beta=0.1)},
        {"method": "sft"},
    ],
)
def test_loss_and_gradient_are_those_of_whole_rows(tiny: Path, settings: dict[str, Any]) -> None:
    found = []
    for shares in (False, True):
        values = {"share_prefixes": shares, "max_grad_norm": 1e9, **settings}
        method = values.pop("method", "ss-grpo")
        config = EngineConfig(out=Path("unused"), dtype="float32", device="cpu", **values)
        learner = load_learner(config, tiny, ALONE)
        for name, weight in learner.model.named_parameters():
            if "lora_b" in name:  # else all of A has a gradient of 0
                torch.nn.init.normal_(weight, std=0.05, generator=torch.Generator().manual_seed(1))
        take = learner.sft_step if method == "sft" else learner.ss_grpo_step
        metrics = take([r.silent() if r.id == "row5" else r for r in family()], 1e-5)
        assert (metrics["shared_share"] > 0.5) is shares
        found.append((metrics, [weight.grad for weight in learner.weights.parameters()]))
    (plain, wanted), (shared, gradients) = found
    assert shared["loss"] == pytest.approx(plain["loss"], abs=1e-5)
    assert shared["tokens"] == plain["tokens"]
    scale = max(float(one.abs().max()) for one in wanted if one is not None)
    assert scale > 1e-3
    for mine, whole in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(mine, whole, rtol=1e-5, atol=1e-5 * scale)


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("room", [1 << 29, 40_000, 0])
def test_what_lies_below_the_adapters_is_gone_through_once_a_window(
    tiny: Path, shares: bool, room: int
) -> None:
    values: Any = {"share_prefixes": shares, "passes": 2, "adapted_blocks": 1}
    objective = ObjectiveConfig(beta=0.1)
    config = EngineConfig(
        out=Path("unused"), dtype="float32", device="cpu", objective=objective, **values
    )
    found, calls = [], []
    for keeps in (False, True):
        loaded = load_learner(config, tiny, ALONE)
        lower = blocks_of(loaded.model)[1][:-1]
        kept = LowerBlocks(lower, room) if keeps else LowerBlocks()
        learner = Learner(loaded.model, loaded.weights, loaded.config, lower=kept)
        count: list[int] = []
        lower[0].mlp.register_forward_hook(lambda *_, count=count: count.append(1))  # type: ignore[misc,operator,union-attr]
        metrics = [learner.ss_grpo_step(family(), 0.01) for _ in range(2)]
        found.append((metrics, learner.weights.state()))
        calls.append(len(count))
    (plain, wanted), (once, state) = found
    for mine, whole in zip(once, plain, strict=True):
        assert {n: mine[n] for n in ("loss", "kl_reference", "grad_norm")} == {
            n: whole[n] for n in ("loss", "kl_reference", "grad_norm")
        }
    assert all(torch.equal(state[name], wanted[name]) for name in state)
    most, least = calls[0], calls[0] // 3  # the reference's pass, and two of the policy
    assert (
        calls[1] == most
        if not room
        else calls[1] == least
        if room > 1e6
        else (least < calls[1] < most)
    )


def test_ranks_take_runs_of_about_as_many_tokens_that_begin_alike() -> None:
    rows = family()
    runs = [Ranks(rank, 2).run_of(rows) for rank in (0, 1)]
    assert [{row.group for row in run} for run in runs] == [{"g0"}, {"g0", "g1"}]
    assert sorted(row.id for run in runs for row in run) == sorted(row.id for row in rows)
    assert Ranks(0, 2).run_of([]) == [] and Ranks(1, 2).run_of(rows[:1]) == rows[:1]
