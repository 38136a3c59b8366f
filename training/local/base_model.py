"""The policy's weights in torch: a GGUF file, dequantised, frozen.

llama.cpp samples from the quantised file and the trainer differentiates through the same numbers
written out in full, so both are one policy up to rounding; the canary row measures the rest. Rows
carry token ids, so no tokenizer is loaded.
"""

import ctypes
import gc
import os
import time
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from memory.errors import SettingsError, WeightsError, boundary

TRAINABLE = ("qwen2",)
"""architectures whose tensors are laid out in the same order here and in llama.cpp"""
DType = Literal["float32", "bfloat16"]


def load_base(path: Path, dtype: str = "float32") -> Any:
    """The model as a transformers causal LM in evaluation mode, on the CPU.

    The 0.5B takes half a minute and 4 GB at the peak. Raises WeightsError for a file that
    cannot be read as a model, SettingsError for an architecture that cannot be trained.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    # The reader draws a bar of its own that has no switch.
    with boundary(WeightsError, f"reading {path.name} for training"), redirect_stderr(StringIO()):
        model = AutoModelForCausalLM.from_pretrained(
            str(path.parent), gguf_file=path.name, dtype=torch.float32
        )
    if model.config.model_type not in TRAINABLE:
        raise SettingsError(
            f"{path.name} is a {model.config.model_type} model, which cannot be trained here.",
            f"Name a model of the kind {', '.join(TRAINABLE)}, such as 0.5b.",
        )
    return model.to(getattr(torch, dtype)).requires_grad_(False).eval()


def give_back() -> None:
    """Return the memory of what was let go to the system; a model holds itself in cycles.

    Without the trim, glibc keeps three gigabytes of the 0.5B's for itself.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def faster_dtype() -> DType:
    """bfloat16 where this processor multiplies it clearly faster than float32.

    Measured on a layer of the 0.5B's size, since not every processor has instructions for it.
    """
    seconds = {dtype: _seconds(dtype) for dtype in (torch.float32, torch.bfloat16)}
    return "bfloat16" if seconds[torch.bfloat16] < seconds[torch.float32] / 1.3 else "float32"


def _seconds(dtype: torch.dtype) -> float:
    x, weight = torch.ones(512, 896, dtype=dtype), torch.ones(4864, 896, dtype=dtype)
    times = []
    for _ in range(4):
        began = time.perf_counter()
        nn.functional.linear(x, weight)
        times.append(time.perf_counter() - began)
    return min(times)
