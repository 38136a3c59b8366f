"""The probabilities that llama.cpp's model gives to a few answers, without letting it write.

One token is asked for with the probabilities of the likeliest others beside it: those of the
raw model at temperature 1, whatever the sampling. What is asked is the first token of each
option; they must differ there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from memory.errors import PolicyError

SHOWN = 256
"""likeliest tokens looked at first; the whole vocabulary costs seconds a call"""
VOCABULARY = 1_000_000
"""more than any model has: all of its tokens"""


def weighing_request(prefix: Sequence[int], shown: int) -> dict[str, Any]:
    """One token after the prefix, with the log-probabilities of the `shown` likeliest."""
    return {
        "prompt": list(prefix),
        "stream": False,
        "n_predict": 1,
        "temperature": 0.0,
        "n_probs": shown,
        "ignore_eos": True,
        "cache_prompt": True,
    }


@dataclass
class Weighing:
    """What comes back for one token: its id and those of the likeliest others."""

    logprobs: dict[int, float] = field(default_factory=dict)
    error: str = ""
    cancelled: bool = False

    def take(self, chunk: dict[str, Any]) -> bool:
        """Called by llama.cpp; a fault is kept, since what a callback raises is dropped."""
        try:
            if "error" in chunk:
                self.error = str(chunk["error"].get("message", chunk["error"]))
            for choice in chunk.get("choices") or ():
                for token in ((choice.get("logprobs") or {}).get("content")) or ():
                    self.logprobs |= {t["id"]: t["logprob"] for t in token["top_logprobs"]}
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
        return bool(self.error) or self.cancelled


def shares(logprobs: Sequence[float | None]) -> tuple[float, ...]:
    """Log-probabilities as probabilities among themselves; None counts as none at all.

    Raises PolicyError when all are None.
    """
    known = [value for value in logprobs if value is not None]
    if not known:
        raise PolicyError(
            "the model gives none of the options any probability",
            "Use an instruct model, or ask with other options.",
        )
    top = max(known)
    weights = [0.0 if value is None else math.exp(value - top) for value in logprobs]
    return tuple(weight / sum(weights) for weight in weights)
