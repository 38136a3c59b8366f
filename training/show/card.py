"""The card of a checkpoint: what was trained, from what, on what, how it went, and what to expect.

In the form of the Hugging Face hub's model cards (Mitchell et al., 2019, arXiv:1810.03993): a head
in YAML, then Markdown. Paths of the training's machine are cut to file names, so a card can go
wherever its checkpoint goes.
"""

import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from rubricem.agent.reports.page import cell, fill_template
from rubricem.agent.weights.catalogue import Weights, catalogue
from rubricem.agent.weights.checkpoints import Checkpoint
from rubricem.training.objective.objective_config import READ_BY_IMITATION
from rubricem.training.rows.credit import RowRule
from rubricem.training.show import training
from rubricem.training.show.training import KeptNumbers

CARD = "README.md"
UNKNOWN = "unknown"
METHODS = {
    "sft": "imitation of accepted traces (supervised fine-tuning); tool output and prompts are "
    "not imitated",
    "ss-grpo": "the policy gradient on judged groups of rollouts",
    "judge-grpo": "GRPO on a judge's reasoning and verdict{rewarded} (RM-R1, arXiv:2505.02387)",
}
CREDIT = {
    "ss-grpo": "SS-GRPO: each stage by its own score and those of later ones (RubricEM, "
    "arXiv:2605.10899)",
    "answer-only": "GRPO: every stage by the answer's score (arXiv:2402.03300)",
    "dr-grpo": "Dr. GRPO: every stage by the answer's score, not scaled (arXiv:2503.20783)",
    "identity": "each stage by its own score alone",
    "sum": "every stage by the sum of all scores",
    "matrix": "a matrix of its own, which stands among the settings",
}
_REWARDED = {
    "answer": ", +1 for the right verdict and -1 for the other one and for none",
    "answer+format": ", 1 for the right verdict and 1 for a text of exactly the form asked for",
}
"""by `reward` under [grpo], as in the run's record"""
_IN_TEXT = {"rows", "base_sha256", "model", "method"}
"""fields of the run's record that the card mentions elsewhere"""


def model_card(
    note: Checkpoint, kept: KeptNumbers, trained_on: Mapping[str, Any], metrics: Mapping[str, Any]
) -> str:
    """The card's text. `trained_on` are counts and hashes, `metrics` those of the last step."""
    # The catalogue's entry of the very bytes that the training began with.
    weights = next((w for w in catalogue() if w.files[0].sha256 == note.base_sha256), None)
    return fill_template(
        "rubricem.training.show",
        "model_card.md",
        note=note,
        name=_name(note, weights),
        head=_head(note, weights),
        about=_about(note, weights, kept),
        trained_on=trained_on,
        settings=_settings(note, kept),
        metrics=metrics,
        kept=kept,
        told=training,
        gguf=_gguf(note, weights),
    )


def _name(note: Checkpoint, weights: Weights | None) -> str:
    return weights.name if weights else cell(PurePath(note.base).name)


def _head(note: Checkpoint, weights: Weights | None) -> dict[str, Any]:
    """The YAML head; its strings are written as in JSON, which is also YAML."""
    lora = note.adaptation == "lora"
    return {
        "license": weights.licence.lower() if weights else UNKNOWN,
        "base_model": weights.repo if weights else _name(note, weights),
        "base_model_relation": "adapter" if lora else "finetune",
        "library_name": "peft" if lora else "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["rubricem", note.method, note.adaptation],
    }


def _about(note: Checkpoint, weights: Weights | None, kept: KeptNumbers) -> list[tuple[str, str]]:
    rewarded = _REWARDED.get(kept.record.get("grpo.reward", ""), "")
    adaptation = f"LoRA of rank {note.rank}, alpha {note.alpha:g}"
    credit = "that of the exported rows, which do not say it"
    if note.method == "ss-grpo" and (rule := kept.record.get("rule")) is not None:
        credit = CREDIT[RowRule.model_validate(rule).name]
    return [
        ("base", f"{_name(note, weights)}{f' ({weights.repo})' if weights else ''}"),
        ("base SHA-256", note.base_sha256),
        ("licence of the base", weights.licence if weights else UNKNOWN),
        ("method", METHODS.get(note.method, note.method).replace("{rewarded}", rewarded)),
        *([("credit", credit)] if note.method == "ss-grpo" else []),
        ("trained", adaptation if note.adaptation == "lora" else "all weights"),
        *([("judges in the form", note.judge)] if note.judge else []),
        ("steps", f"{note.step}"),
        ("weights SHA-256", note.adapter_sha256),
    ]


def _settings(note: Checkpoint, kept: KeptNumbers) -> list[tuple[str, str]]:
    """The settings that the method uses: imitation ignores those of the policy gradient."""

    def read(name: str) -> bool:
        table, _, key = name.rpartition(".")
        return name != "passes" and (table != "objective" or key in READ_BY_IMITATION)

    return [one for one in kept.settings(besides=_IN_TEXT) if note.method != "sft" or read(one[0])]


def _gguf(note: Checkpoint, weights: Weights | None) -> str:
    """The additional argument for peft, if the base model is in a GGUF file."""
    path = note.base.rpartition(":")[2]
    name = weights.files[0].path if weights else cell(PurePath(path).name)
    return f", gguf_file={json.dumps(name)}" if name.lower().endswith(".gguf") else ""
