"""How much memory a step took at most."""

import resource
import sys
from typing import Any

UNIT = 1 if sys.platform == "darwin" else 1024
"""bytes in what the system counts a process's memory by"""


def forget_peak(device: Any) -> None:
    """Begin a step: a GPU's peak is counted anew. A process's cannot be."""
    if device.type == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)


def memory_peak(device: Any) -> float:
    """Bytes: on a GPU of its tensors since the step began, else of the process since it began."""
    if device.type == "cuda":
        import torch

        return float(torch.cuda.max_memory_allocated(device))
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT)
