"""The card of a checkpoint: what was trained, from what, on what, how it went, and what to expect.

In the form of the Hugging Face hub's model cards (Mitchell et al., 2019, arXiv:1810.03993): a head
in YAML, then Markdown. Paths of the training's machine are cut to file names.
"""

import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from rubricem.agent.reports.page import cell, fill_template
from rubricem.agent.weights.catalogue import Weights, catalogue
from rubricem.agent.weights.checkpoints import Checkpoint
from rubricem.training.rows.credit import RowRule
from rubricem.training.show import training
from rubricem.training.show.training import KeptNumbers

CARD = "README.md"
UNKNOWN = "unknown"
METHODS = {
    "sft": "imitation of accepted traces (supervised fine-tuning)",
    "ss-grpo": "the policy gradient on judged groups of rollouts",
    "judge-grpo": "GRPO on a judge's reasoning and verdict (RM-R1, arXiv:2505.02387)",
}


def model_card(
    note: Checkpoint, kept: KeptNumbers, trained_on: Mapping[str, Any], metrics: Mapping[str, Any]
) -> str:
    """The card's text. `trained_on` are counts and hashes, `metrics` those of the last step."""
    # The catalogue's entry of the very bytes that the training began with.
    weights = next((w for w in catalogue() if w.files[0].sha256 == note.base_sha256), None)
    lora, name = note.adaptation == "lora", cell(PurePath(note.base).name)
    rule, credit = kept.record.get("rule"), UNKNOWN
    if note.method == "ss-grpo" and rule is not None:
        credit = RowRule.model_validate(rule).name
    about = {
        "base": f"{weights.name} ({weights.repo})" if weights else name,
        "base SHA-256": note.base_sha256,
        "licence of the base": weights.licence if weights else UNKNOWN,
        "method": METHODS.get(note.method, note.method),
        "credit": credit if note.method == "ss-grpo" else "",
        "trained": f"LoRA of rank {note.rank}, alpha {note.alpha:g}" if lora else "all weights",
        "judges in the form": note.judge or "",
        "steps": f"{note.step}",
        "weights SHA-256": note.adapter_sha256,
    }
    return fill_template(
        "rubricem.training.show",
        "model_card.md",
        note=note,
        name=weights.name if weights else name,
        # Strings of YAML are written as in JSON, which is also YAML.
        head={
            "license": weights.licence.lower() if weights else UNKNOWN,
            "base_model": weights.repo if weights else name,
            "base_model_relation": "adapter" if lora else "finetune",
            "library_name": "peft" if lora else "transformers",
            "pipeline_tag": "text-generation",
            "tags": ["rubricem", note.method, note.adaptation],
        },
        about=[one for one in about.items() if one[1]],
        trained_on=list(training.settings_in(trained_on)),
        settings=list(training.settings_in(kept.record)),
        metrics=training.format_numbers(metrics),
        held_out=training.held_out_rows(kept),
        canary=training.format_numbers(kept.canary),
        gguf=_gguf(note, weights),
    )


def _gguf(note: Checkpoint, weights: Weights | None) -> str:
    """The additional argument for peft, if the base model is in a GGUF file."""
    path = note.base.rpartition(":")[2]
    name = weights.files[0].path if weights else cell(PurePath(path).name)
    return f", gguf_file={json.dumps(name)}" if name.lower().endswith(".gguf") else ""
