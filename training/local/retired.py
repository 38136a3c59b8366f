"""Keys of a training's configuration that are gone: what takes their place, and what they were.

Said when a file still has one, and when a run's folder was written with another value than the one
that every run has now.
"""

from collections.abc import Mapping
from typing import Any

from rubricem.memory.errors import SettingsError

WRITTEN_BY = "ec15fe0e"
"""the last version that knew all of them"""
_FIXED = "the judge always works in its default way"
RETIRED: Mapping[str, tuple[str, Any]] = {
    "preset": ("begin with examples/paper.toml", None),
    "engine": ("the project's own engine trains; export rows for others by `rubricem export`",
               "local"),
    "adapted_blocks": ("all blocks are adapted", None),
    "share_prefixes": ("each row is read whole", None),
    "pack_tokens": ("set micro_batch", 0),
    "passes": ("each window makes one update", 1),
    "novelty": ("it is measured where objective.beta is above 0", False),
    "cpu_offload": ('use parallel = "fsdp" over more processes', False),
    "mirror": ("copy `out` elsewhere yourself: its checkpoints are complete or absent", None),
    "best_by": ("choose a checkpoint by metrics.jsonl", None),
    "best_is": ("choose a checkpoint by metrics.jsonl", "lowest"),
    "tensorboard": ('set trackers = ["tensorboard"]', False),
    "min_rate": ("a schedule that falls ends at 0", 0.0),
    "max_steps": ("set epochs and batch", None),
    "bank": ("rounds keep the bank in OUT/data", None),
    "dual_clip": ("only the clip of both sides is left", None),
    "band": ('set importance to "truncate"', [0.5, 5.0]),
    "policy_weight": ("each objective's own mean counts alike", 1.0),
    "reflect_weight": ("each objective's own mean counts alike", 1.0),
    "judge_weight": ("each objective's own mean counts alike", 1.0),
    "both_orders": (_FIXED, False),
    "repeat": (_FIXED, 1),
    "persistent": (_FIXED, False),
    "flip": (_FIXED, False),
    "graded": (_FIXED, False),
    "reflection_tokens": ("a reflection may take what its model needs", None),
    "least_reflection_score": ("it is 0.5, or 0.4 of an embedded judge", None),
    "slots": ("set it in the settings file, as for `rubricem ask`", None),
    "branch": ("whole rollouts are sampled", False),
    "episodes": ("what is learnt is kept as reflections", False),
    "embed_answers": ("it is measured where the bank has its embedding model loaded", False),
    "in_flight": ("servers have each checkpoint under a name of its own", None),
    "ray_address": ("set RAY_ADDRESS in the environment", None),
    "max_staleness": ("rows that lag more than two updates are dropped", 2),
    "limit": ("give a file with as many pairs", None),
    "threads": ("set OMP_NUM_THREADS in the environment", None),
    "device": ("a GPU is used if torch finds one; set CUDA_VISIBLE_DEVICES to choose", None),
    "weight_decay": ("AdamW has none", 0.0),
    "max_grad_norm": ("larger gradients are scaled down to the norm 1", 1.0),
    "token_budget": ("token-sum divides by 4096 tokens a row", 4096),
    "correction": ('set importance to "bypass" for the ratio to the sampler', "decoupled"),
    "cap": ("truncated importance is held at 2", 2.0),
    "decoding": ("set it under settings", None),
    "short": ('set system_prompt to "short"', False),
    "scaffold_decay": ("a scaffold fades by a sigmoid, half of it after a fifth", "sigmoid"),
    "scaffold_ratio": ("the ratio is formed without the scaffold", "unscaffolded"),
    "progress": ("rounds let a scaffold fade", 0.0),
    "reward": ("the verdict alone is rewarded", "answer"),
}  # fmt: skip
"""by name, without its table: what to do instead, and what it was where nothing was set"""


def told_of(name: str) -> str:
    """In a clause, what takes the place of a key; empty if it was never one."""
    return f"it is gone: {RETIRED[name][0]}" if name in RETIRED else ""


def check_record(held: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A run's record, of any version, without what is gone.

    Raises SettingsError if that changed what was learnt.
    """
    kept: dict[str, Any] = {}
    for name, value in held.items():
        if isinstance(value, Mapping):
            kept[name] = check_record(value, where)
            continue
        key = name.rpartition(".")[2]
        if key not in RETIRED:
            kept[name] = value
        elif value is not None and value != RETIRED[key][1]:
            raise SettingsError(
                f"{where} holds a training with {name} = {value!r}, which is gone: "
                f"{RETIRED[key][0]}.",
                f"Continue it by the version {WRITTEN_BY} of rubricem, or begin in another folder.",
            )
    return kept
