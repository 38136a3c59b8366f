"""TRL's GRPOTrainer on rows that are there already: one method is another one, and one is silent.

Where TRL would generate, score and normalise, the window's rows are laid out with their own
advantages. TRL 1.16 takes (B, T) advantages from subclasses by intent; the method is not public,
so the version is pinned to its minor. Two more are listened to, for the ratios of whole rows
(`training.objective_numbers`).

TRL repeats one prompt `num_generations` times over all ranks. Its data set has one entry for each
window here, and one group is the whole generation batch, so that each rank learns which window it
is at from any of its entries.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import use_adapter

from training.local.ranks import Ranks
from training.loss_metrics import LossMetrics
from training.objective_config import ObjectiveConfig
from training.rows import TrainRow
from training.trl_engine.batches import Inputs, WindowRows, needs_old, sampler_gap, sequences_of

WINDOW = "window"
"""the column of the data set that holds a window's number"""


class RowsTrainer(GRPOTrainer):
    """A GRPOTrainer whose steps are given windows of rows."""

    def __init__(
        self,
        windows: Sequence[Sequence[TrainRow]],
        objective: ObjectiveConfig,
        ranks: Ranks,
        **more: Any,
    ) -> None:
        """`more`: what GRPOTrainer takes; every window has a row with a gradient."""
        self._windows, self._objective, self._ranks = windows, objective, ranks
        self._measured = LossMetrics()
        super().__init__(reward_funcs=_unasked, **more)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Inputs:
        rows = self._windows[inputs[0][WINDOW]]
        window = WindowRows(rows, self._objective, self._ranks, len(inputs))
        window.to(self.accelerator.device)
        old = None
        with torch.no_grad():
            if needs_old(self._objective, self.num_iterations):
                old = self._logprobs_of(window)
            found = window.inputs(old)
            if self.beta:
                found["ref_per_token_logps"] = self._reference_of(window)
        return found

    def _get_per_token_logps_and_entropies(self, *model_inputs: Any, **more: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*model_inputs, **more)
        self._newest: Tensor = found[0].detach()
        return found

    def _compute_loss(self, model: Any, inputs: Inputs) -> Tensor:
        loss: Tensor = super()._compute_loss(model, inputs)  # type: ignore[no-untyped-call]
        self._measured += sequences_of(inputs, self._newest)
        if self.state.global_step % self.num_iterations == 0:  # the policy before the update
            self._measured += sampler_gap(inputs, self._newest)
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """With what was measured on all ranks since the last update."""
        measured = sum(self._ranks.gathered(self._measured), LossMetrics()).report()
        self._measured = LossMetrics()
        del measured["tokens"]  # a window's are counted beside it
        super().log(logs | measured, start_time)

    def _send_telemetry(self) -> None:
        """TRL tells its makers of each training otherwise; nothing leaves this machine unasked."""

    def _logprobs_of(self, window: WindowRows) -> Tensor:
        kept, at_once = window.width - window.split, self.args.per_device_train_batch_size
        found: Tensor = self._get_per_token_logps_and_entropies(
            self.model, window.ids, window.attended, kept, at_once
        )[0]
        return found

    def _reference_of(self, window: WindowRows) -> Tensor:
        """By the adapter that the training began with, which TRL has put aside as `ref`."""
        model = self.accelerator.unwrap_model(self.model)
        with use_adapter(model, "ref"):
            return self._logprobs_of(window)


def _unasked(**columns: Any) -> list[float | None]:
    """TRL asks for a reward function; rows have been scored."""
    raise AssertionError("no completion is generated, so none is scored")
