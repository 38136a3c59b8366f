"""What of a configuration TRL 1.16 cannot be told, in a sentence; reading this needs no TRL."""

from memory.errors import SettingsError
from training.local.config import Method, TrainConfig


def check_suits(config: TrainConfig, method: Method) -> None:
    """Raises SettingsError with every setting that has no counterpart in TRL."""
    objective = config.objective
    told = {
        "it has the policy gradient alone, and sft is imitation": method == "sft",
        "it pads rows and does not pack them (pack_tokens)": config.pack_tokens,
        "how weights are sharded is told to accelerate (parallel)": config.parallel == "fsdp",
        "it keeps no reference beside fully trained weights read from a GGUF file (beta)": (
            objective.beta and config.adaptation == "full"
        ),
        f"it divides the divergence by all tokens alike (beta, {objective.aggregation})": (
            objective.beta and objective.aggregation != "token-mean"
        ),
        "it asks no reference but for the divergence (novelty)": (
            config.novelty and not objective.beta
        ),
        "its dual clip (delta) also bounds what lies below the upper clip (dual_clip)": (
            objective.dual_clip is not None and objective.dual_clip < 1 + objective.clip[1]
        ),
    }
    if faults := [clause for clause, wrong in told.items() if wrong]:
        raise SettingsError(
            f"the engine trl cannot do this: {'; '.join(faults)}.",
            'Leave those settings out, or train by the engine "local".',
        )
