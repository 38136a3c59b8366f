"""The model that TRL trains: the same base and, to the last bit, the same adapter as `local`'s."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import peft
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from training.local.base_model import load_base
from training.local.checkpoint_files import read_weights
from training.local.config import EngineConfig
from training.local.loading import adapter_config
from training.local.lora import adaptable, first_a

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


def described(model: Any, config: EngineConfig, base: str) -> dict[str, Any]:
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
