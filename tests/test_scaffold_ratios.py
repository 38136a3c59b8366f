"""The three ratios of a rollout under a rubric scaffold, each by hand from rows to the loss."""

import math
from typing import Any

import pytest
import torch

from memory.errors import SettingsError
from memory.schema import Author, ScaffoldedPrompt, Segment, Stage, Trajectory
from tests.collected import judgement
from tests.objective_rows import logs
from tests.test_compiling import group, rollout
from training.compiling import policy_rows
from training.objective import ObjectiveResult, clipped_objective
from training.objective_config import ObjectiveConfig
from training.row_rule import row_rule
from training.rows import TrainRow
from training.tensors import collate
from training.window_weights import window_weights

pytestmark = pytest.mark.usefixtures("one_thread")
BYPASS = {"correction": "bypass", "importance": "none"}
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


def rows(ratio: str) -> tuple[TrainRow, TrainRow]:
    judged = [judgement(SHOWN, [0.0, 0.0, 0.0, 1.0]), judgement(BARE, [0.0] * 4)]
    found = policy_rows(group(SHOWN, BARE), judged, row_rule("answer-only", ratio)).rows
    return found[0], found[1]


def loss(of: TrainRow, new: torch.Tensor, old: torch.Tensor, **config: Any) -> ObjectiveResult:
    settings = ObjectiveConfig(**config)
    return clipped_objective(
        collate([of], window_weights([of], settings)), new, old, None, settings
    )


def test_unscaffolded_is_formed_to_the_old_policy_computed_without_the_scaffold():
    row, _ = rows("unscaffolded")
    assert row.ids == (1, 5) and row.scaffolded_prompt == (1, 2)
    assert row.recompute_logprobs and not row.across_prompts
    told = loss(row, logs(AFTER), logs(WITHOUT))
    # pi(o|q) / pi_old(o|q) = 0.44 / 0.4, and the gap to the sampler weighs nothing.
    assert told.loss.item() == pytest.approx(-1.1, rel=1e-4)
    assert told.metrics.report()["scaffold_gap"] == pytest.approx(math.log(2))


def test_behaviour_is_formed_to_what_the_sampler_computed_under_the_scaffold():
    row, _ = rows("behaviour")
    assert row.ids == (1, 5) and row.scaffolded_prompt == (1, 2)
    assert row.across_prompts and not row.recompute_logprobs
    told = loss(row, logs(AFTER), logs(WITHOUT), **BYPASS)
    # pi(o|q) / pi_old(o|q_S) = 0.44 / 0.8: below the clip, which a positive advantage lets be.
    assert told.loss.item() == pytest.approx(-0.55, rel=1e-4)
    assert told.metrics.report()["scaffold_gap"] == pytest.approx(math.log(2))
    held = loss(row, logs(0.99), logs(WITHOUT), **BYPASS)
    assert held.loss.item() == pytest.approx(-1.2, rel=1e-4), "0.99 / 0.8 is clipped at 1.2"


def test_scaffolded_keeps_the_scaffold_in_the_row_and_in_both_policies():
    row, _ = rows("scaffolded")
    assert row.ids == (1, 2, 5) and row.prompt_tokens == 2 and row.scaffolded_prompt == ()
    assert not row.recompute_logprobs and not row.across_prompts
    # The trainer sees the ids with the scaffold: pi(o|q_S) / pi_old(o|q_S) = 0.88 / 0.8.
    nowhere = torch.tensor([[math.nan]])
    new, old = (torch.cat([nowhere, logs(p)], dim=1) for p in (0.88, UNDER_SCAFFOLD))
    told = loss(row, new, old)
    assert told.loss.item() == pytest.approx(-1.1, rel=1e-4)
    assert told.metrics.report()["sampler_gap"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("ratio", ["unscaffolded", "behaviour", "scaffolded"])
def test_a_rollout_without_scaffold_is_the_same_row_by_every_ratio(ratio: str):
    _, row = rows(ratio)
    assert row == rows("unscaffolded")[1]
    assert row.ids == (1, 5) and row.scaffolded_prompt == () and not row.recompute_logprobs


def test_a_ratio_across_prompts_is_refused_where_it_would_not_be_formed():
    with pytest.raises(SettingsError, match="computed under another prompt") as told:
        loss(rows("behaviour")[0], logs(AFTER), logs(WITHOUT))
    assert "correction to bypass" in told.value.remedy
    with pytest.raises(SettingsError, match="was sampled under another prompt") as told:
        loss(rows("unscaffolded")[0], logs(AFTER), logs(WITHOUT), **BYPASS)
    assert "scaffold_ratio behaviour" in told.value.remedy


def test_a_row_cannot_form_its_ratio_to_two_policies():
    row, _ = rows("behaviour")
    with pytest.raises(ValueError, match="two policies"):
        TrainRow(**{**row.model_dump(), "recompute_logprobs": True})
