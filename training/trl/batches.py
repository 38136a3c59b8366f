"""A window as the tensors that TRL's loss takes, so that it comes to our objective's number.

TRL's loss (its type dapo) of a window with N trained tokens is

    sum over tokens of ( -L(r, A') + beta * k3 ) / N

L is homogeneous in the advantage: L(r, c A) = c L(r, A) for c >= 0. So what a token counts in its
window, c (`training.objective.batch`), and the weight w for what separates the old policy from the
sampler go into the advantage: A' = N * c * w * A. Only the divergence is divided by N as it is,
which is its share in our objective where the aggregation is `token-mean`.

TRL lays a prompt, padded on its left, before a completion. Here both are padded on the right alone:
every row is divided at the same place, before the first token that any of them trains, so that
position ids count from each row's beginning whatever the model makes of them.

The model that TRL trains has the same base and, to the last bit, the same adapter as `local`'s.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import peft
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from rubricem.training.local.base import load_base
from rubricem.training.local.checkpoints import read_weights
from rubricem.training.local.learner import moves
from rubricem.training.local.load import adapter_config
from rubricem.training.local.local_config import EngineConfig
from rubricem.training.local.ranks import Ranks, share, silent
from rubricem.training.local.weights import adaptable, first_a
from rubricem.training.objective.batch import collate, window_weights
from rubricem.training.objective.objective import LossMetrics, clipped_terms, sequence_logs
from rubricem.training.objective.objective_config import ObjectiveConfig
from rubricem.training.rows.row import OBJECTIVES, TrainRow

Inputs = dict[str, Tensor]
"""what `GRPOTrainer._compute_loss` reads, by its names; (B, P) and (B, C) of P + C = T positions"""
BEHAVIOUR, SAMPLED, POLICY = "rubricem_behaviour", "rubricem_sampled", "rubricem_policy"
"""what TRL passes on unread, for our own numbers: the sampler's log-probabilities, where they are
of these very ids, and where a policy row is trained"""


def needs_old(objective: ObjectiveConfig, passes: int) -> bool:
    """Whether the policy before the update is computed by a pass of its own.

    With one pass TRL takes the policy in the loss for it, as our engine does, which gives no
    importance weight ahead of the loss.
    """
    if objective.correction == "bypass":
        return False
    return passes > 1 or objective.importance != "none"


def with_gradient(rows: Sequence[TrainRow], objective: ObjectiveConfig) -> list[TrainRow]:
    """The rows of a window that have a gradient; the others are counted alone."""
    return [row for row in rows if objective.beta or moves(row)]


def parts_of(rows: int, ranks: Ranks, micro_batch: int) -> int:
    """How many micro-batches of each rank so many rows make."""
    return -(-rows // (ranks.world * micro_batch))


class WindowRows:
    """One rank's rows of one window, filled up to a fixed count by rows that train nothing."""

    def __init__(
        self, rows: Sequence[TrainRow], objective: ObjectiveConfig, ranks: Ranks, count: int
    ) -> None:
        self._objective = objective
        window = window_weights(rows, objective)
        self.tokens = window.whole.tokens
        """trained tokens of the window, on all ranks"""
        moving = with_gradient(rows, objective)
        mine = [row for part in share([[row] for row in moving], ranks) for row in part]
        shortest = min(moving, key=lambda row: len(row.ids))
        batch = collate([*mine, *[silent(shortest)] * (count - len(mine))], window)
        self.batch = batch
        trained = batch.mask.any(dim=0).nonzero()
        self.split = int(trained.min()) if len(trained) else 1
        self.width = int(trained.max()) + 1 if len(trained) else 2

    def to(self, device: torch.device) -> None:
        self.batch = self.batch.to(device)

    @property
    def ids(self) -> Tensor:
        """(B, T); what stands after the last trained token is left out."""
        return self.batch.ids[:, : self.width]

    @property
    def attended(self) -> Tensor:
        """(B, T) int64, 1 where a row has a token."""
        reach = self.batch.lengths.to(self.batch.ids.device).unsqueeze(1)
        return (self.batch.position[:, : self.width] < reach).long()

    def inputs(self, old: Tensor | None) -> Inputs:
        """What TRL's loss takes; `old` (B, C): log-probabilities of the policy before the update.

        Given by `needs_old`; with the correction bypass the sampler's stand in their place.
        """
        batch, split, tail = self.batch, self.split, slice(self.split, self.width)
        scale = batch.weights * self.tokens
        if old is not None:
            before = old.new_zeros(batch.ids.shape)
            before[:, tail] = old
            scale = scale * clipped_terms(batch, before, None, None, self._objective).importance
        found = {
            "prompt_ids": self.ids[:, :split],
            "prompt_mask": self.attended[:, :split],
            "completion_ids": self.ids[:, split:],
            "completion_mask": self.attended[:, split:],
            "tool_mask": batch.mask[:, tail].long(),
            "advantages": (batch.advantages * scale)[:, tail],
            "num_items_in_batch": torch.tensor(float(self.tokens), device=batch.ids.device),
            BEHAVIOUR: batch.behaviour[:, tail],
            SAMPLED: batch.sampled[:, tail],
            POLICY: (batch.objectives == OBJECTIVES.index("policy"))[:, tail],
        }
        if self._objective.correction == "bypass":
            old = batch.behaviour[:, tail]
        return found if old is None else found | {"old_per_token_logps": old}


def sampler_gap(inputs: Inputs, new: Tensor) -> LossMetrics:
    """How far the policy (B, C) is from what the sampler computed for a micro-batch's tokens."""
    where = inputs[SAMPLED]
    gap = (new - inputs[BEHAVIOUR]).abs().masked_fill(~where, 0.0)
    name = "sampler_gap"
    return LossMetrics(totals={name: float(gap.sum())}, tokens={name: float(where.sum())})


def sequences_of(inputs: Inputs, new: Tensor) -> LossMetrics:
    """The ratios of whole rows of a micro-batch, from the policy's log-probabilities (B, C)."""
    reference = inputs.get("ref_per_token_logps")
    sums = partial(torch.sum, dim=1)
    logs = sequence_logs(sums, new, inputs[BEHAVIOUR], inputs[POLICY], reference)
    return LossMetrics(rows={name: tuple(values.tolist()) for name, values in logs.items()})


PAD = "<pad>"


def load_policy(config: EngineConfig, path: Path) -> Any:
    """A causal language model of transformers; with an adapter, as a PeftModel.

    `config.dtype` is settled; all weights in training are float32, whatever is computed with.
    """
    model = load_base(path, "float32" if config.adaptation == "full" else config.dtype)
    if config.adaptation == "full":
        return model.requires_grad_(True)
    names = adaptable(model)
    random = torch.Generator().manual_seed(config.seed)
    layers = {name: model.get_submodule(name) for name in names}
    starts = {name: first_a(layer, config.rank, random) for name, layer in layers.items()}
    settings = peft.LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,  # type: ignore[arg-type]
        lora_dropout=0.0,
        target_modules=names,
        task_type="CAUSAL_LM",
    )
    adapted = peft.get_peft_model(model, settings)
    # With a name, peft would look at each save for that model on the network.
    adapted.peft_config["default"].base_model_name_or_path = ""
    state = {f"base_model.model.{name}.lora_A.weight": start for name, start in starts.items()}
    if config.start_adapter is not None:
        state = read_weights(config.start_adapter, "lora")
    peft.set_peft_model_state_dict(adapted, state)
    return adapted


def describe(model: Any, config: EngineConfig, base: str) -> dict[str, Any]:
    """What stands beside the weights, before TRL writes its tokenizer's ids into it."""
    if config.adaptation == "full":
        whole: dict[str, Any] = model.config.to_dict()
        return whole | {"dtype": "float32"}
    targets = {name.rpartition(".")[2] for name in model.peft_config["default"].target_modules}
    return adapter_config(config.rank, config.alpha, sorted(targets), base)


def trained_state(
    model: nn.Module, whole: Mapping[str, Tensor], adaptation: str
) -> dict[str, Tensor]:
    """Of all of a model's weights those that are trained, named as in a checkpoint of `local`."""
    if adaptation == "lora":
        whole = peft.get_peft_model_state_dict(model, state_dict=dict(whole))
    names = {name for name, _ in model.named_parameters()} if adaptation == "full" else set(whole)
    return {n: t.detach().cpu().float().contiguous() for n, t in whole.items() if n in names}


def no_tokenizer() -> PreTrainedTokenizerFast:
    """One that knows padding alone: rows carry token ids, and TRL asks for a tokenizer."""
    bare = Tokenizer(WordLevel({PAD: 0}, unk_token=PAD))
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bare, pad_token=PAD, eos_token=PAD
    )
