"""The charts of a training's page: losses, rewards, divergences, lengths, work, held-out figures.

A long training is drawn in buckets of neighbouring steps, by their mean.

A training as one self-contained page: no script, nothing loaded, every text escaped.

The card of a checkpoint: what was trained, of what, on what, how it went, and what to expect.

In the form of the Hugging Face hub's model cards (Mitchell et al., 2019, arXiv:1810.03993): a
head in YAML, then Markdown. What names a file of the training's machine is cut to the file's own
name, so a card can go wherever its checkpoint goes.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from rubricem.agent.weights.catalogue import CATALOGUE, Weights
from rubricem.agent.weights.checkpoints import Checkpoint
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import Stage
from rubricem.memory.text import one_line
from rubricem.training.objective.objective_config import READ_BY_IMITATION
from rubricem.training.rows.credit import RowRule, credit_name
from rubricem.training.show.collected_page import rendered
from rubricem.training.show.svg import Series, Span, Values, curves
from rubricem.training.show.training import (
    PAIR_HEADS,
    KeptNumbers,
    Numbered,
    about,
    asked_rows,
    facts,
    number,
    pair_rows,
    settings,
    shown_numbers,
)

MOST = 240
"""points of a line at most"""
COLOURS = ("accent", "good", "bad")
GIGABYTES = 1e-9
Drawn = tuple[tuple[str, str], ...]
"""metrics with what they are called in the chart, in the order of the colours"""
_STAGES = tuple(stage.value for stage in Stage)


@dataclass(frozen=True, slots=True)
class Plan:
    """One chart: its lines, and how their values are shown."""

    title: str
    note: str
    drawn: Drawn
    share: bool = False
    """drawn from 0 to 100%"""
    factor: float = 1.0
    colours: tuple[str, ...] = COLOURS


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart that has something to show."""

    title: str
    note: str
    last: str
    """of a single line, its last value"""
    keys: tuple[tuple[str, str], ...]
    """of several lines, the colour and the name of each"""
    svg: str


def _by_stage(name: str) -> Drawn:
    return tuple((name.format(stage), stage) for stage in _STAGES)


REWARDS = (
    Plan("Reward by stage", "mean score, 0 to 1", _by_stage("reward/{}/mean"), colours=_STAGES),
    Plan("Unscored and failed", "share of stages, of rollouts", (
        ("unscored_share", "unscored"), ("malformed_share", "malformed"),
        ("failed_share", "failed")), share=True),
    Plan("Groups without spread", "share that teaches a stage nothing",
         _by_stage("groups_without_spread/{}"), share=True, colours=_STAGES),
    Plan("Largest advantage", "by stage", _by_stage("advantage/{}/size/max"), colours=_STAGES),
    Plan("Reflections", "score of the candidates", (
        ("reflection/score/mean", "mean"), ("reflection/score/max", "best"))),
)  # fmt: skip
UPDATES = (
    Plan("Loss", "of each update", (("loss", "loss"),)),
    Plan("Loss by objective", "what each adds", (
        ("policy_loss", "policy"), ("reflect_loss", "reflection"), ("judge_loss", "judge"))),
    Plan("Negative log-likelihood", "nats a token", (("negative_log_likelihood", "nats"),)),
    Plan("Gradient norm", "before it is clipped", (("grad_norm", "norm"),)),
    Plan("Divergence", "k3 in nats a token", (
        ("kl_old", "old policy"), ("kl_reference", "reference"), ("kl_behaviour", "sampler"))),
    Plan("Clipped tokens", "share without a gradient", (
        ("clipped_low", "low"), ("clipped_high", "high"), ("clipped_dual", "dual")), share=True),
    Plan("Surprise", "nats a token, one sample of the entropy", (("surprise", "nats"),)),
    Plan("Ratio", "to the old policy", (("ratio", "mean"), ("ratio_max", "largest"))),
    Plan("Sampler and trainer", "gap in nats a token", (
        ("sampler_gap", "mean"), ("scaffold_gap", "scaffold"))),
    Plan("Effective sample size", "share of the trained tokens", (("ess", "share"),), share=True),
    Plan("Learning rate", "", (("rate", "rate"),)),
)  # fmt: skip
WORK = (
    Plan("Length of a rollout", "mean tokens", (
        ("tokens/policy/mean", "policy"), ("tokens/tool/mean", "tools"))),
    Plan("Tool calls", "of a rollout, mean", (("tool_calls/mean", "calls"),)),
    Plan("Broken off", "share of rollouts, of tool output", (
        ("cut_off_share", "cut off"), ("tool_error_share", "tool errors")), share=True),
    Plan("Staleness", "updates behind the trained policy", (
        ("staleness/mean", "mean"), ("staleness/max", "most"))),
    Plan("Rows", "trained in a round", (("rows/policy", "policy"), ("rows/reflect", "reflection"),
                                        ("dropped", "dropped"))),
    Plan("Time of a round", "seconds", (
        ("seconds/rollout", "rollouts"), ("seconds/judge", "judge"), ("seconds/train", "update"))),
    Plan("Length of a row", "tokens", (("row_tokens/mean", "mean"), ("row_tokens/max", "longest"))),
    Plan("Speed", "tokens a second", (
        ("tokens_per_second", "read"), ("trained_per_second", "trained"))),
    Plan("Padding", "share of what is read", (("padding_share", "padding"),), share=True),
    Plan("Memory peak", "gigabytes", (("memory_peak", "GB"),), factor=GIGABYTES),
)  # fmt: skip


def charts(plans: Sequence[Plan], kept: KeptNumbers) -> list[Chart]:
    """Those that have a value to show."""
    return [chart for plan in plans if (chart := _chart(plan, kept.steps))]


def held_out_charts(kept: KeptNumbers) -> list[Chart]:
    """Of each stage the mean score with its 95% interval, by the rounds before the asking."""
    return [chart for stage in _STAGES if (chart := _held_out(stage, kept.held_out))]


def _chart(plan: Plan, steps: Numbered) -> Chart | None:
    factor = 100.0 if plan.share else plan.factor
    found = [
        (label, colour, [_times(number(metrics, name), factor) for _, metrics in steps])
        for (name, label), colour in zip(plan.drawn, plan.colours, strict=False)
    ]
    found = [one for one in found if any(value is not None for value in one[2])]
    if not found:
        return None
    numbers, unit = [step for step, _ in steps], "%" if plan.share else ""
    series = [Series(label, colour, _bucketed(values)) for label, colour, values in found]
    last = next((v for v in reversed(found[0][2]) if v is not None), None)
    return Chart(
        plan.title,
        plan.note,
        f"{_told(last)}{unit}" if len(found) == 1 else "",
        tuple((colour, label) for label, colour, _ in found) if len(found) > 1 else (),
        curves(series, _span(series, plan), unit, _first_of(numbers)),
    )


def _held_out(stage: str, asked: Numbered) -> Chart | None:
    name = f"reward/{stage}"
    mean, low, high = (
        [number(found, f"{name}/{part}") for _, found in asked] for part in ("mean", "low", "high")
    )
    last = next((value for value in reversed(mean) if value is not None), None)
    if last is None:
        return None
    known = [None not in ends for ends in zip(mean, low, high, strict=True)]
    low, high = ([v if on else None for v, on in zip(part, known, strict=True)]
                 for part in (low, high))  # fmt: skip
    series = Series(f"{stage} after so many rounds", stage, mean, low, high)
    drawn = curves([series], Span(0.0, 1.0), steps=[updates for updates, _ in asked])
    note, ends = "by the rounds before the asking", (low[-1], high[-1])
    if ends[0] is not None and ends[1] is not None:
        note += f"; the last {ends[0]:.2f} to {ends[1]:.2f}"
    return Chart(stage.capitalize(), note, f"{last:.2f}", (), drawn)


def _bucketed(values: Values) -> list[float | None]:
    """At most MOST values: the means of as many neighbours each."""
    size = math.ceil(len(values) / MOST)
    buckets = (values[start : start + size] for start in range(0, len(values), size))
    known = ([value for value in bucket if value is not None] for bucket in buckets)
    return [sum(bucket) / len(bucket) if bucket else None for bucket in known]


def _first_of(numbers: Sequence[int]) -> list[int]:
    """The number of the first step of each bucket."""
    return list(numbers[:: math.ceil(len(numbers) / MOST)])


def _span(series: Sequence[Series], plan: Plan) -> Span:
    """Two steps of a round size around all values, from 0 where that is near, or of work."""
    known = [value for one in series for value in one.values if value is not None]
    low, high = min(known), max(known)
    if plan.drawn[0][0].startswith("reward/"):
        return Span(0.0, 1.0)
    if low >= 0 and (plan in WORK or low == high or low <= 0.7 * high):
        low = 0.0
    elif high <= 0 and (low == high or high >= 0.7 * low):
        high = 0.0
    step = _round_step((high - low) / 2)
    while (bottom := math.floor(low / step + 1e-9) * step) + 2 * step < high - 1e-9 * step:
        step = _round_step(step * 1.1)
    return Span(bottom, bottom + 2 * step)


def _round_step(size: float) -> float:
    """The next of 1, 2, 5, 10 times a power of ten; 0.5 for none, as between 0 and 1."""
    if size <= 0:
        return 0.5
    power = 10.0 ** math.floor(math.log10(size))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= size * (1 - 1e-9))


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _told(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if abs(value) < 1e4 else f"{value:,.0f}"


def write_training_page(path: Path, kept: KeptNumbers, title: str) -> None:
    """Write the page; `title` names the training, by its folder."""
    write_atomically(path, training_page(kept, title))


def training_page(kept: KeptNumbers, title: str) -> str:
    """Curves of everything that was measured; what was not has no chart."""
    return rendered(
        "training_page.html",
        {},
        title=title,
        about=about(kept),
        facts=facts(kept),
        kept=kept,
        stages=[stage.value for stage in Stage],
        asked=asked_rows(kept),
        pair_heads=PAIR_HEADS,
        pairs=pair_rows(kept),
        held_out=held_out_charts(kept),
        rewards=charts(REWARDS, kept),
        updates=charts(UPDATES, kept),
        work=charts(WORK, kept),
        settings=settings(kept.record),
        numbers=shown_numbers(kept.last),
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
    weights = _published(note)
    sections = {
        "What it is": _about(note, weights, kept),
        "Data": _table(("", ""), settings(trained_on)),
        "Objective and hyper-parameters": _table(("setting", "value"), _settings(note, kept)),
        "Lineage": _lineage(note),
        f"Numbers of step {note.step}": _numbers(note, metrics),
        "Held-out pairs" if note.judge else "Held-out questions": _card_held_out(note, kept),
        "Canary": _canary(kept),
        "How to use it": _usage(note, weights),
        "Limits": (_AS_JUDGE if note.judge else _AS_POLICY) + _LIMITS,
    }
    name = f"{_name(note, weights)}, {note.method}, step {note.step}"
    body = "\n\n".join(f"## {head}\n\n{text}" for head, text in sections.items())
    return f"{_front_matter(note, weights)}\n\n# {name}\n\n{body}\n"


def _published(note: Checkpoint) -> Weights | None:
    """The catalogue's entry of the very bytes that the training began with."""
    return next((w for w in CATALOGUE if w.files[0].sha256 == note.base_sha256), None)


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
    told = settings({n: value for n, value in kept.record.items() if n not in _IN_TEXT})
    if note.method != "sft":
        return told
    return [one for one in told if one[0] != "passes" and not _unread_by_imitation(one[0])]


def _numbers(note: Checkpoint, metrics: Mapping[str, Any]) -> str:
    pages = "docs/training_numbers.md and docs/judge_training.md say"
    told = pages if note.judge else "docs/training_numbers.md says"
    table = _table(("metric", "value"), shown_numbers(metrics))
    return f"In the project, {told} what each is, and its unit.\n\n{table}"


def _unread_by_imitation(name: str) -> bool:
    table, _, key = name.rpartition(".")
    return table == "objective" and key not in READ_BY_IMITATION


def _lineage(note: Checkpoint) -> str:
    if not note.lineage:
        return "Training began with the base model."
    began = " from ".join(f"`{_plain(version)}`" for version in reversed(note.lineage))
    return f"Training began with {began}, from the base model."


def _card_held_out(note: Checkpoint, kept: KeptNumbers) -> str:
    if note.judge:
        if not kept.pairs:
            return "No pair was held out, or none has been judged yet."
        return "In both orders, with 95% intervals.\n\n" + _table(PAIR_HEADS, pair_rows(kept))
    if not kept.held_out:
        return "No question was held out, or none has been asked yet."
    heads = ("after rounds", "questions", *Stage, "unscored", "malformed")
    return "Mean scores in [0, 1], with 95% intervals.\n\n" + _table(heads, asked_rows(kept))


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
