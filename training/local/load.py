"""From weights on disk to a learner, and from a checkpoint to a model of its own.

A training begins with a GGUF file, dequantised, or with a folder of safetensors of any causal
language model of transformers. Rows carry token ids, so no tokenizer is loaded.

A learner is on its device, or divided over its ranks by torch's fully sharded data parallelism
(FSDP2), with parameters and sums of gradients in float32.
"""

import asyncio
import ctypes
import gc
import hashlib
import json
import math
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from rubricem.agent.weights.checkpoints import gguf_fields, note_of
from rubricem.agent.weights.store import WeightsStore, weights_dir
from rubricem.memory.errors import PolicyError, SettingsError, WeightsError, boundary
from rubricem.memory.runs import hash_of, writable
from rubricem.training.local.checkpoints import SERVED, fault, read_weights
from rubricem.training.local.learner import Learner
from rubricem.training.local.local_config import EngineConfig
from rubricem.training.local.logprobs import PIECE, Score, batch_logprobs
from rubricem.training.local.ranks import Ranks
from rubricem.training.local.weights import Adapter, FullWeights
from rubricem.training.objective.batch import Batch
from rubricem.training.rows.row import TrainRow


@dataclass(frozen=True, slots=True)
class Base:
    """The weights that a training begins with."""

    name: str
    """by which llama.cpp's weights can be found again, or the folder's"""
    path: Path
    """a GGUF file, or a folder"""
    sha256: str

    @property
    def gguf(self) -> Path | None:
        """The file that llama.cpp loads; None if it can serve nothing trained from it."""
        return self.path if self.path.is_file() else None

    @classmethod
    async def find(cls, name: str, weights_dir: Path | None = None) -> "Base":
        """The weights of a model's name, fetched if they are not on disk.

        Raises SettingsError for an unknown name, WeightsError for weights that are damaged or
        cannot be fetched.
        """
        path = await find_weights(name, weights_dir)
        if path.is_file():
            return cls(name, path, await WeightsStore.base_sha256(name, path))

        def hash_files() -> str:
            """Hashes of the configuration and the weights, by name."""
            digest = hashlib.sha256()
            for file in sorted([path / "config.json", *path.glob("*.safetensors")]):
                digest.update(bytes.fromhex(hash_of(file)))
            return digest.hexdigest()

        return cls(name, path, await asyncio.to_thread(hash_files))


async def find_weights(name: str, weights_dir: Path | None) -> Path:
    """The GGUF file, fetched if it is not on disk, or the folder of a model's name."""
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        check_folder(folder)
        return folder
    return await WeightsStore(weights_dir).model(name)


def check_folder(folder: Path) -> None:
    """Raises SettingsError for a folder without all of the model's weights."""
    listed, index = {"model.safetensors"}, folder / "model.safetensors.index.json"
    if index.is_file():
        with boundary(WeightsError, f"reading {index}"):
            listed = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    if missing := sorted(name for name in listed if not (folder / name).is_file()):
        raise SettingsError(
            f"{folder} has a config.json and no {missing[0]}, so it holds no whole model.",
            "Put its weights there, as safetensors.",
        )


def load_base(path: Path, dtype: str = "float32") -> Any:
    """The model as a transformers causal LM in evaluation mode, frozen, on the CPU.

    The 0.5B takes half a minute and 4 GB at the peak. Raises WeightsError for weights that cannot
    be read as a model, PolicyError if they do not fit into memory, SettingsError for a GGUF file of
    a kind that cannot be trained.
    """
    check_decoder(path)
    kind = getattr(torch, dtype)
    cache = None
    if path.is_file() and path.stat().st_size >= CACHED_FROM:
        cache = weights_dir() / "torch" / f"{path.stem}-{hash_of(path)[:16]}-{dtype}"
    model = _read_whole(cache if cache and cache.is_dir() else path, kind)
    for module in model.modules():
        # Passes over one row must agree, also where a layer is told to train for checkpointing.
        for name, value in vars(module).items():
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    for parameter in model.parameters():
        # Weights alone: the rotary frequencies are buffers, and rounded they put far tokens wrong.
        parameter.data = parameter.data.to(kind)
    if cache and not cache.is_dir():
        _keep(model, cache)
    release_memory()
    return model.requires_grad_(False).eval()


CACHED_FROM = 64 << 20
"""bytes of a GGUF file whose weights are kept as torch reads them; the 0.5B's take 47 s to make"""


def _keep(model: Any, cache: Path) -> None:
    """Whole or not at all; where the disk has no room they are made anew each time."""
    temporary = cache.with_name(f".{cache.name}.{os.getpid()}")
    try:
        temporary.mkdir(parents=True)
        needed = sum(weight.numel() * weight.element_size() for weight in model.parameters())
        if shutil.disk_usage(temporary).free > 2 * needed:
            model.save_pretrained(temporary)
            temporary.rename(cache)
    except OSError:
        pass
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def release_memory() -> None:
    """Give memory that was freed back to the system, where glibc holds on to it.

    Threads have heaps of their own, each of which keeps what it once needed: between loading,
    sampling and updates of the 0.5B that came to 5 GB.
    """
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)


HERE = {"local_files_only": True, "trust_remote_code": False}
"""how transformers loads a model: code in its folder is never run, and nobody is asked whether it
may"""


def config_in(path: Path) -> Any:
    """The model's configuration, of a GGUF file or a folder, as a copy for the caller.

    A GGUF file's metadata, its vocabulary among them, takes some 10 s of CPU to read for the 0.5B,
    so the result for a file is cached as long as it is unchanged.
    """
    from transformers import AutoConfig

    if path.is_dir():
        return AutoConfig.from_pretrained(str(path), **HERE)
    told = path.stat()
    return deepcopy(_gguf_config(path, told.st_mtime_ns, told.st_size))


@lru_cache(maxsize=4)
def _gguf_config(path: Path, changed: int, size: int) -> Any:
    from transformers import AutoConfig

    found = AutoConfig.from_pretrained(str(path.parent), **HERE, gguf_file=path.name)
    named = f"{found.model_type}.attention.key_length".encode()
    with path.open("rb") as file:
        if told := gguf_fields(file, [named]):  # transformers passes it over
            found.head_dim = int.from_bytes(told[named], "little")
    return found


def _read_whole(path: Path, dtype: torch.dtype) -> Any:
    """A model all of whose weights are there, in their configured shapes; a GGUF's in float32."""
    import transformers
    from transformers.utils import logging

    logging.disable_progress_bar()
    place, more = path, {**HERE, "use_safetensors": True, "dtype": dtype}
    if path.is_file():
        place, more = path.parent, {"gguf_file": path.name, "dtype": torch.float32}
        more["config"] = config_in(path)
        # A transformers that can compute with a file's own blocks is to write them out instead.
        if blocks := getattr(transformers, "GgufConfig", None):
            more["quantization_config"] = blocks(dequantize=True)
    # The reader of GGUF files draws a bar of its own that has no switch.
    with _reading(str(path)), redirect_stderr(StringIO()):
        kind: Any = transformers.AutoModelForCausalLM
        model, told = kind.from_pretrained(str(place), output_loading_info=True, **more)
        if lacking := sorted(map(str, (*told["missing_keys"], *told["mismatched_keys"]))):
            raise WeightsError(  # they would be drawn at random
                f"{path} lacks {len(lacking)} weights of its own configuration, such as "
                f"{lacking[0]}.",
                "Fetch the model from its maker once more.",
            )
    return model


def check_decoder(path: Path) -> None:
    """Raises SettingsError for a model that cannot be trained.

    That is one that is no decoder of text alone, or a GGUF file whose kind is not written.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    with _reading(str(path)), redirect_stderr(StringIO()):
        config = config_in(path)
        decodes = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING and not config.is_encoder_decoder
    if not decodes:
        raise SettingsError(
            f"{path} holds a {config.model_type} model, which is no decoder of one text.",
            "Train a decoder, such as Qwen3, Qwen2.5 or Llama.",
        )
    if path.is_file() and config.model_type not in SERVED:
        raise SettingsError(
            f"{path.name} is a GGUF file of a {config.model_type} model, "
            "whose tensors are not written for llama.cpp here.",
            f"Name a GGUF file of the kind {', '.join(SERVED)}, such as 0.5b, or a folder of "
            "safetensors; llama.cpp cannot serve what is trained of a folder.",
        )


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Blame the weights for errors of loading on the CPU, except too little memory."""
    with boundary(WeightsError, f"reading {what} for training"), memory_told(torch.device("cpu")):
        yield


_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


LESS = (
    "Set a smaller micro_batch or max_row_tokens, gradient_checkpointing = true, or the adaptation "
    '"lora"; then continue with the same command.'
)


@contextmanager
def memory_told(device: torch.device, what: str = "training", remedy: str = LESS) -> Iterator[None]:
    """Turn running out of memory into one sentence."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(t in str(error) for t in _NO_MEMORY):
            raise
        where = "the GPU's memory" if device.type == "cuda" else "the memory"
        raise PolicyError(f"{where} is not enough for this {what}.", remedy) from error


def check_rows(rows: Sequence[TrainRow], model: Any) -> None:
    """Raises SettingsError for a row that the model cannot read: another tokenizer's, or too long.

    Ids within the vocabulary may still be another tokenizer's, as a session checks; if a row has
    the sampler's log-probabilities, those reveal it in the step.
    """
    words = vocabulary_size(model)
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    for row in rows:
        if row.ids and not 0 <= min(row.ids) <= max(row.ids) < words:
            wrong = max(row.ids) if max(row.ids) >= words else min(row.ids)
            raise SettingsError(
                f"row {row.id} has the token id {wrong}, and the model knows {words:,} tokens: "
                "the row is of another tokenizer.",
                "Train the model that the rows were collected with.",
            )
        if context and len(row.ids) > context:
            raise SettingsError(
                f"row {row.id} has {len(row.ids):,} tokens, and the model reads {context:,}.",
                f"Set max_row_tokens to {context} or less.",
            )


KEPT_BACK = 0.2
"""share of the free memory for what no formula covers: a sampler beside, fragments, other work"""
ADAM = 16
"""bytes of a trained parameter: itself, its gradient and two moments in float32"""


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What a training takes of each device's memory, estimated in bytes.

    With b bytes a number, L blocks that have a gradient, h the width of a state, f that of the
    layer between, V words, N parameters of which A are trained:

        fixed   = N b (lora) or N (2 at bfloat16, and 4 of a reference) (full) + 16 A + 12 V PIECE
        a token = L (12 h + 4 f) b, or (L h + 12 h + 4 f) b under gradient checkpointing

    A block keeps the inputs of its nonlinear operations (Korthikanti et al., arXiv:2205.05198,
    section 4.1); 12 and 4 are the most that torch kept of Qwen2 and Llama, by adapter or whole, in
    either type. Attention by scaled_dot_product_attention keeps no scores. Logits, and their
    gradient, exist for PIECE masked positions at a time.
    """

    parameters: int
    fixed: int
    token: int
    """for each that goes through the model at the same time"""
    positions: int | None
    """tokens that the model reads"""

    @classmethod
    def of(cls, config: EngineConfig, path: Path, world: int = 1) -> "MemoryNeed":
        """`world`: ranks that fsdp divides the weights over. Raises as `check_decoder`."""
        from transformers import AutoModelForCausalLM

        check_decoder(path)
        with _reading(path.name), redirect_stderr(StringIO()):
            whole = config_in(path)
            with torch.device("meta"):
                model: Any = AutoModelForCausalLM.from_config(whole)
        told, size = whole.get_text_config(), 2 if config.dtype == "bfloat16" else 4
        parameters, hidden = sum(p.numel() for p in model.parameters()), told.hidden_size
        if config.adaptation == "full":
            reference = 4 if config.objective.beta else 0
            fixed = parameters * (ADAM + reference + (size if size == 2 else 0))
        else:
            linear = (m for m in model.modules() if isinstance(m, nn.Linear))
            trained = sum(config.rank * (m.in_features + m.out_features) for m in linear)
            fixed = parameters * size + ADAM * trained
        if config.parallel == "fsdp":
            fixed //= world
        fixed += 12 * vocabulary_size(model) * PIECE
        blocks = told.num_hidden_layers
        block = 12 * hidden + 4 * getattr(told, "intermediate_size", 4 * hidden)
        kept = blocks * hidden + block if config.gradient_checkpointing else blocks * block
        positions = getattr(told, "max_position_embeddings", None)
        return cls(parameters, fixed, kept * size, positions)

    def room(self, free: int) -> int:
        """Tokens that `free` bytes let through the model at the same time."""
        return int((1 - KEPT_BACK) * free - self.fixed) // self.token


def row_limit(config: EngineConfig, path: Path, free: int, world: int = 1) -> int:
    """Tokens of the longest row that the model's context and `free` bytes of memory allow.

    Raises SettingsError if not even the weights fit, WeightsError for an unreadable model.
    """
    memory = MemoryNeed.of(config, path, world)
    limit = memory.room(free) // (config.micro_batch or 1)
    if limit < 2:
        raise SettingsError(
            f"{free / 1e9:.1f} GB of memory are free, and training {path.name} takes about "
            f"{memory.fixed / (1 - KEPT_BACK) / 1e9:.1f} GB before its first row.",
            'Free some, set the adaptation "lora" or the dtype "bfloat16", or set max_row_tokens '
            "to try it all the same.",
        )
    return min(limit, memory.positions or limit)


def vocabulary_size(model: Any) -> int:
    return int(model.get_input_embeddings().num_embeddings)


def load_learner(config: EngineConfig, path: Path, ranks: Ranks) -> Learner:
    """The model of a path with its trainable part, as a training begins.

    `config.dtype` is set. Raises WeightsError for unreadable weights, SettingsError for a model or
    a start adapter that does not suit the configuration.
    """
    full, divided = config.adaptation == "full", config.parallel == "fsdp" and ranks.world > 1
    dtype = getattr(torch, config.dtype)
    model = load_base(path, "float32" if full else config.dtype)
    _check_output(model)
    if config.gradient_checkpointing:
        _checkpoint_activations(model)
    adapter = None if full else Adapter.attach(model, config.rank, config.alpha, config.seed)
    score: Score | None = None
    if divided:  # block by block, so that no device ever holds all weights
        score = _shard(model, ranks, dtype if full else None)
    else:
        model.to(ranks.device)
    # A sampler is some hundredths of a nat from its own trainer; ids of another tokenizer are as
    # unlikely as by chance.
    most_gap = math.log(vocabulary_size(model))
    weights = adapter or FullWeights(model, torch.float32 if divided else dtype)
    learner = Learner(model, weights, config, ranks, score, most_gap)
    if config.start_adapter is not None:
        with boundary(SettingsError, "taking over the start adapter"):
            learner.start_from(read_weights(config.start_adapter, "lora"))
    return learner


def _check_output(model: Any) -> None:
    """Raises SettingsError for a model that scales or caps its logits.

    They are computed in pieces from the output layer, so that would be left out.
    """
    ids = torch.arange(2, 6, device=model.device).unsqueeze(0)
    with torch.no_grad():
        whole = model(input_ids=ids, use_cache=False).logits
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        plain = model.get_output_embeddings()(hidden)
    if not torch.allclose(whole.float(), plain.float(), rtol=1e-3, atol=1e-3):
        raise SettingsError(
            f"a {model.config.model_type} model scales or caps its logits, which is not done here.",
            "Train a model whose logits are those of its output layer.",
        )


def _checkpoint_activations(model: Any) -> None:
    """Recompute each block's activations in the backward pass instead of keeping them."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    if not model.supports_gradient_checkpointing:
        raise SettingsError(
            f"a {model.config.model_type} model cannot compute its activations again.",
            "Leave gradient_checkpointing out, and set a smaller micro_batch.",
        )
    old = model.gradient_checkpointing_enable  # the name before transformers 5.20
    getattr(model, "activation_checkpointing_enable", old)({"use_reentrant": False})
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.training = True  # only a block that trains is checkpointed


def decoder_blocks(model: nn.Module) -> Sequence[nn.Module]:
    """The decoder's blocks: the longest list of modules."""
    lists = [tuple(m) for m in model.modules() if isinstance(m, nn.ModuleList)]
    return max(lists, key=len, default=())


class ShardedScorer(nn.Module):
    """A model as one function of a batch, so that all weights are gathered when it is called."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Tensor:
        return batch_logprobs(self.model, batch)


def _shard(model: Any, ranks: Ranks, dtype: torch.dtype | None) -> Score:
    """Divide a model's weights over the ranks, in place; returns the function to call it by.

    `dtype`: of the computation if the weights are float32 masters; None: that of the weights.
    """
    scorer = ShardedScorer(model)
    precision = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    options: dict[str, Any] = {
        "mesh": init_device_mesh(ranks.device.type, (ranks.world,)),
        "mp_policy": precision if dtype else MixedPrecisionPolicy(),
        # Also of the outermost: weights are changed in their parts, and gathered anew after that.
        "reshard_after_forward": True,
    }
    for block in decoder_blocks(model):
        fully_shard(block, **options)
    fully_shard(scorer, **options)
    for module in scorer.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)  # a token's weight is its share already
            module.set_force_sum_reduction_for_comms(True)
    return scorer


_TOKENIZER = ("*token*", "vocab.*", "merges.txt", "chat_template*", "generation_config.json")


async def export_checkpoint(checkpoint: Path, out: Path, weights_dir: Path | None = None) -> Path:
    """Write the whole model of a checkpoint, for transformers, into a new folder; returns that.

    A folder's tokenizer is copied. Raises WeightsError for a damaged checkpoint or other base
    weights, SettingsError for a folder that exists already.
    """
    if wrong := await asyncio.to_thread(fault, checkpoint):
        raise WeightsError(
            f"{checkpoint} is not a whole checkpoint: {wrong}.",
            "Name a checkpoint folder that `rubricem train` has written.",
        )
    note = note_of(checkpoint)
    if out.exists():
        raise SettingsError(f"{out} exists already.", "Name a new folder.")
    base = await Base.find(note.base, weights_dir)
    if base.sha256 != note.base_sha256:
        raise WeightsError(
            f"{checkpoint} was trained on other weights than {base.path.name}.",
            f"Put back the weights whose SHA-256 is {note.base_sha256}.",
        )

    def write() -> None:
        model = load_base(base.path if note.adaptation == "lora" else checkpoint)
        if note.adaptation == "lora":
            Adapter.restore(model, read_weights(checkpoint, "lora"), note.alpha).merge(model)
        temporary = out.with_name(f".{out.name}.part")
        with writable(out):
            shutil.rmtree(temporary, ignore_errors=True)
            model.save_pretrained(temporary)
            for path in (p for name in _TOKENIZER for p in base.path.glob(name)):
                shutil.copy2(path, temporary / path.name)
            temporary.rename(out)

    await asyncio.to_thread(write)
    return out
