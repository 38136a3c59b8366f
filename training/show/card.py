"""The card of a checkpoint: what was trained, of what, on what, how it went, and what to expect.

In the form of the Hugging Face hub's model cards (Mitchell et al., 2019, arXiv:1810.03993): a
head in YAML, then Markdown. What names a file of the training's machine is cut to the file's own
name, so a card can go wherever its checkpoint goes.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from rubricem.agent.weights.catalogue import CATALOGUE, Weights
from rubricem.agent.weights.checkpoints import Checkpoint
from rubricem.memory.text import one_line
from rubricem.training.objective.objective_config import READ_BY_IMITATION
from rubricem.training.rows.credit import RowRule, credit_name
from rubricem.training.show.training import (
    ASKED_HEADS,
    PAIR_HEADS,
    KeptNumbers,
    asked_rows,
    number,
    pair_rows,
    settings,
    shown_numbers,
)

CARD = "MODEL_CARD.md"
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
    "matrix": "a matrix of its own, which stands among the settings",
}
_REWARDED = {
    "answer": ", +1 for the right verdict and -1 for the other one and for none",
    "answer+format": ", 1 for the right verdict and 1 for a text of exactly the form asked for",
}
"""by `reward` under [grpo], as the run's record has it"""
_IN_TEXT = {"rows", "base_sha256", "model", "method"}
"""of the run's record, what the card tells elsewhere"""
_AS_POLICY = """\
- It was made to answer in the four tagged stages of `rubricem`, with its tools; elsewhere it is
  at best as good as its base model.
- Rewards are a judge model's scores, and no measure of truth. Check the cited sources.
"""
_AS_JUDGE = """\
- It was made to compare two replies in the form that is named above, and for nothing else.
- It is right as often as its labelled pairs say, on questions like theirs; measure it on yours.
"""
_LIMITS = """\
- Its numbers are of this training's own questions and seeds; intervals are over questions alone.
- It was not examined for safety, bias or use in other languages than its questions had.
- Limits and licence of the base model hold for it as well."""


def model_card(
    note: Checkpoint, kept: KeptNumbers, trained_on: Mapping[str, Any], metrics: Mapping[str, Any]
) -> str:
    """The card's text. `trained_on` are counts and hashes, `metrics` those of the last step."""
    # The catalogue's entry of the very bytes that the training began with.
    weights = next((w for w in CATALOGUE if w.files[0].sha256 == note.base_sha256), None)
    began = " from ".join(f"`{_plain(version)}`" for version in reversed(note.lineage))
    began = f"{began}, from the base model" if began else "the base model"
    sections = {
        "What it is": _about(note, weights, kept),
        "Data": _table(("", ""), settings(trained_on)),
        "Objective and hyper-parameters": _table(("setting", "value"), _settings(note, kept)),
        "Lineage": f"Training began with {began}.",
        f"Numbers of step {note.step}": _numbers(note, metrics),
        "Held-out pairs" if note.judge else "Held-out questions": _card_held_out(note, kept),
        "Canary": _canary(kept),
        "How to use it": _usage(note, weights),
        "Limits": (_AS_JUDGE if note.judge else _AS_POLICY) + _LIMITS,
    }
    name = f"{_name(note, weights)}, {note.method}, step {note.step}"
    body = "\n\n".join(f"## {head}\n\n{text}" for head, text in sections.items())
    return f"{_front_matter(note, weights)}\n\n# {name}\n\n{body}\n"


def _name(note: Checkpoint, weights: Weights | None) -> str:
    return weights.name if weights else _plain(PurePath(note.base).name)


def _front_matter(note: Checkpoint, weights: Weights | None) -> str:
    """The YAML head; its strings are written as in JSON, which YAML reads alike."""
    lora = note.adaptation == "lora"
    head: dict[str, Any] = {
        "license": weights.licence.lower() if weights else UNKNOWN,
        "base_model": weights.repo if weights else _name(note, weights),
        "base_model_relation": "adapter" if lora else "finetune",
        "library_name": "peft" if lora else "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["rubricem", note.method, note.adaptation],
    }
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in head.items()]
    return "\n".join(["---", *lines, "---"])


def _about(note: Checkpoint, weights: Weights | None, kept: KeptNumbers) -> str:
    rewarded = _REWARDED.get(kept.record.get("grpo.reward", ""), "")
    adaptation = f"LoRA of rank {note.rank}, alpha {note.alpha:g}"
    rows = [
        ("base", f"{_name(note, weights)}{f' ({weights.repo})' if weights else ''}"),
        ("base SHA-256", note.base_sha256),
        ("licence of the base", weights.licence if weights else UNKNOWN),
        ("method", METHODS.get(note.method, note.method).replace("{rewarded}", rewarded)),
        *([("credit", _credit(kept))] if note.method == "ss-grpo" else []),
        ("trained", adaptation if note.adaptation == "lora" else "all weights"),
        *([("judges in the form", note.judge)] if note.judge else []),
        ("steps", f"{note.step}"),
        ("weights SHA-256", note.adapter_sha256),
    ]
    return _table(("", ""), rows)


def _credit(kept: KeptNumbers) -> str:
    """What a stage was credited with, as far as the rows were made by this training."""
    rule = kept.record.get("rule")
    if rule is None:
        return "that of the exported rows, which do not say it"
    return CREDIT[credit_name(RowRule.model_validate(rule))]


def _settings(note: Checkpoint, kept: KeptNumbers) -> list[tuple[str, str]]:
    """Those that the method reads: imitation makes no use of the policy gradient's."""

    def read(name: str) -> bool:
        table, _, key = name.rpartition(".")
        return name != "passes" and (table != "objective" or key in READ_BY_IMITATION)

    told = settings({n: value for n, value in kept.record.items() if n not in _IN_TEXT})
    return [one for one in told if note.method != "sft" or read(one[0])]


def _numbers(note: Checkpoint, metrics: Mapping[str, Any]) -> str:
    pages = "docs/training_numbers.md and docs/judge_training.md say"
    told = pages if note.judge else "docs/training_numbers.md says"
    table = _table(("metric", "value"), shown_numbers(metrics))
    return f"In the project, {told} what each is, and its unit.\n\n{table}"


def _card_held_out(note: Checkpoint, kept: KeptNumbers) -> str:
    if note.judge:
        if not kept.pairs:
            return "No pair was held out, or none has been judged yet."
        return "In both orders, with 95% intervals.\n\n" + _table(PAIR_HEADS, pair_rows(kept))
    if not kept.held_out:
        return "No question was held out, or none has been asked yet."
    return "Mean scores in [0, 1], with 95% intervals.\n\n" + _table(ASKED_HEADS, asked_rows(kept))


def _canary(kept: KeptNumbers) -> str:
    gap, moved = number(kept.canary, "mean"), number(kept.canary, "moved")
    if gap is None or moved is None:
        return "Not compared: that is done once, of the checkpoint after the last step."
    return (
        f"llama.cpp and the trainer differ by {gap:.4f} nats a token on the canary row; the "
        f"training moved it by {moved:.4f}."
    )


def _usage(note: Checkpoint, weights: Weights | None) -> str:
    parts = []
    if note.served:
        asking = 'rubricem ask --model PATH/TO/THIS/FOLDER "Your question"'
        judging = "rubricem judge eval PAIRS.jsonl --judge pairwise --model PATH/TO/THIS/FOLDER"
        parts.append(f"```sh\n{judging if note.judge else asking}\n```")
    if note.adaptation == "full":
        load = 'model = AutoModelForCausalLM.from_pretrained("PATH/TO/THIS/FOLDER")'
        parts.append(f"```python\nfrom transformers import AutoModelForCausalLM\n\n{load}\n```")
        return "\n\n".join(parts)
    base = '"FOLDER/OF/THE/BASE"'
    if weights:
        base = f'"{weights.repo}", gguf_file="{weights.files[0].path}"'
    elif note.base.lower().endswith(".gguf"):
        base += f", gguf_file={json.dumps(_name(note, weights))}"
    parts.append(
        "```python\nfrom peft import PeftModel\nfrom transformers import AutoModelForCausalLM\n\n"
        f"base = AutoModelForCausalLM.from_pretrained({base})\n"
        'model = PeftModel.from_pretrained(base, "PATH/TO/THIS/FOLDER")\n```'
    )
    return "\n\n".join(parts)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [_row(heads), _row(["---"] * len(heads)), *map(_row, rows)]
    return "\n".join(lines) if len(lines) > 2 else "Nothing was told."


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_plain, cells))} |"


def _plain(text: str) -> str:
    """One line, in which nothing ends a table's cell or begins a tag."""
    return one_line(text, 400).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
