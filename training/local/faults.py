"""What can go wrong in a step though its configuration is sound, each in a sentence."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from memory.errors import PolicyError, SettingsError
from training.rows import TrainRow

_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


def check_rows(rows: Sequence[TrainRow], model: Any) -> None:
    """Raises SettingsError for a row that the model cannot read: another tokenizer's, or too long.

    Ids below the vocabulary's end may still be another tokenizer's: see `check_tokenizer`; where a
    row carries the sampler's log-probabilities, those give it away in the step.
    """
    words = _words(model)
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    for row in rows:
        if row.ids and not 0 <= min(row.ids) <= max(row.ids) < words:
            wrong = max(row.ids) if max(row.ids) >= words else min(row.ids)
            raise SettingsError(
                f"row {row.id} has the token id {wrong}, and the model knows {words:,} tokens: "
                "the row is of another tokenizer.",
                "Train the model that the rows were collected with.",
            )
        if context and len(row.ids) > context:
            raise SettingsError(
                f"row {row.id} has {len(row.ids):,} tokens, and the model reads {context:,}.",
                f"Set max_row_tokens to {context} or less.",
            )


def check_tokenizer(rows: Sequence[TrainRow], own: str) -> None:
    """Raises SettingsError for a row whose ids are of another vocabulary, where both are known."""
    wrong = [row for row in rows if own and row.tokenizer not in ("", own)]
    if wrong:
        raise SettingsError(
            f"the ids of row {wrong[0].id} are of another tokenizer than the model's.",
            "Name the collected run itself under rows, or export it by --model with this model.",
        )


def check_output(model: Any) -> None:
    """Raises SettingsError for a model that scales or caps its logits.

    They are computed in pieces from the output layer, so that would be left out.
    """
    ids = torch.arange(2, 6, device=model.device).unsqueeze(0)
    with torch.no_grad():
        whole = model(input_ids=ids, use_cache=False).logits
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        plain = model.get_output_embeddings()(hidden)
    if not torch.allclose(whole.float(), plain.float(), rtol=1e-3, atol=1e-3):
        raise SettingsError(
            f"a {model.config.model_type} model scales or caps its logits, which is not done here.",
            "Train a model whose logits are those of its output layer, or by the engine trl.",
        )


def check_packing(model: Any) -> None:
    """Raises SettingsError for a model that does not tell packed rows from one another.

    Some read no borders from the position ids: those with a recurrent state or a convolution see
    across them, and so do some with attention whose positions are not given (OPT, BLOOM, MPT).
    """
    ids = (torch.arange(12, device=model.device) % _words(model)).unsqueeze(0)
    first, second = slice(5), slice(5, 12)
    position = torch.tensor([[*range(5), *range(7)]], device=model.device)

    def states(ids: Tensor, position: Tensor) -> Tensor:
        found = model.base_model(input_ids=ids, position_ids=position, use_cache=False)
        state: Tensor = found.last_hidden_state.float()
        return state

    with torch.no_grad():
        packed = states(ids, position)
        alone = torch.cat([states(ids[:, row], position[:, row]) for row in (first, second)], 1)
    apart = (packed - alone).norm(dim=-1).max() / alone.norm(dim=-1).mean()
    # Half of the digits: of the 0.5B in bfloat16 rounding comes to 0.02 and mixing to 1.
    if not float(apart) <= torch.finfo(model.dtype).eps ** 0.5:
        raise SettingsError(
            f"a {model.config.model_type} model mixes rows that are packed into one sequence.",
            "Leave pack_tokens out, and set micro_batch, by which rows are padded.",
        )


def _words(model: Any) -> int:
    return int(model.get_input_embeddings().num_embeddings)


@contextmanager
def memory_told(device: torch.device) -> Iterator[None]:
    """Say in a sentence that the memory was not enough."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(t in str(error) for t in _NO_MEMORY):
            raise
        where = "the GPU's memory" if device.type == "cuda" else "the memory"
        raise PolicyError(
            f"{where} is not enough for this training.",
            "Set a smaller pack_tokens or micro_batch, gradient_checkpointing = true, a smaller "
            'max_row_tokens, or the adaptation "lora"; then go on by the same command.',
        ) from error
