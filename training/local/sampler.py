"""Sampling by torch in this process: the turns of many rollouts are written together.

All turns under way are rows of one batch, and each pass writes a token of every row. A row keeps
the keys and values of its tokens. A turn begins in the free row that has read most of its prefix,
or has that copied from a row that has read more; only the rest is read, by a pass of its own.
`generate` of transformers lets no turn join a batch that is under way, and keeps nothing of a
prefix; its continuous batching has one seed for all.

Tokens are drawn from a turn's own generator, so they do not depend on the turns beside it but for
rounding. Prompts are written and text is encoded by the tokeniser that every other sampler uses.
"""

import asyncio
import codecs
import copy
from array import array
from collections import deque
from collections.abc import AsyncIterator, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer
from transformers.convert_slow_tokenizer import bytes_to_unicode

from rubricem.agent.models.llama import LlamaConfig, LlamaPolicy, free_cores
from rubricem.agent.models.replies import Piece, TokenReading
from rubricem.agent.weights.checkpoints import gguf_fields, is_checkpoint, note_of
from rubricem.agent.weights.store import WeightsStore
from rubricem.memory.errors import PolicyError, SettingsError, WeightsError, boundary
from rubricem.memory.schema import Completion, Message, OnText, Sampling, StopPredicate, Usage
from rubricem.training.local.checkpoints import read_weights
from rubricem.training.local.load import load_base, memory_told, release_memory, vocabulary_size
from rubricem.training.local.ranks import CPU
from rubricem.training.local.weights import Adapter

CONTROL = 3
"""the kind of a token in a GGUF file that is not text"""
END_NAMES = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a model's tokens say."""

    pieces: tuple[bytes, ...]
    """by id; control tokens say nothing"""
    ends: frozenset[int]
    """tokens that end a turn"""

    @classmethod
    def of(cls, gguf: Path) -> "Vocabulary":
        """That of a GGUF file with byte-level BPE. Raises WeightsError for another kind."""
        names = ("tokens", "token_type", "model", "eos_token_id", "eot_token_id")
        wanted = {name: f"tokenizer.ggml.{name}".encode() for name in names}
        with boundary(WeightsError, f"reading the vocabulary of {gguf.name}"), gguf.open("rb") as f:
            found = gguf_fields(f, wanted.values())
            told = {name: found[field] for name, field in wanted.items() if field in found}
        if told.get("model") != b"gpt2":
            raise WeightsError(
                f"{gguf.name} has tokens of a kind that torch cannot write: {told.get('model')!r}.",
                "Leave `sampler` out under [rounds]: llama.cpp samples from it.",
            )
        words = [word.decode(errors="replace") for word in told["tokens"]]
        kinds = array("i", told.get("token_type", b""))
        control = {number for number, kind in enumerate(kinds) if kind == CONTROL}
        told_by = bytes_to_unicode()  # type: ignore[no-untyped-call]
        bytes_of = {letter: byte for byte, letter in told_by.items()}
        ends = {int.from_bytes(told[n], "little") for n in names[3:] if n in told}
        return cls(
            pieces=tuple(
                b"" if number in control else bytes(bytes_of[c] for c in word if c in bytes_of)
                for number, word in enumerate(words)
            ),
            ends=frozenset(ends | {number for number in control if words[number] in END_NAMES}),
        )


ROOM = 512
"""tokens that a row has room for at first; it doubles"""


class _Layer(DynamicLayer):  # type: ignore[no-untyped-call]
    """The keys and values of one block, (rows, heads, room, width)."""

    def __init__(self, told: "RowCache") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._told = told

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **more: Any
    ) -> tuple[Tensor, Tensor]:
        told = self._told
        if not self.is_initialized:
            self.dtype, self.device = key_states.dtype, key_states.device
            self.keys, self.values = (
                made.new_zeros(len(told.read), made.shape[1], ROOM, made.shape[3])
                for made in (key_states, value_states)
            )
            self.is_initialized = True
        assert self.keys is not None and self.values is not None
        while self.keys.shape[2] < told.width:
            self.keys, self.values = (
                torch.cat([held, torch.zeros_like(held)], dim=2)
                for held in (self.keys, self.values)
            )
        for held, made in ((self.keys, key_states), (self.values, value_states)):
            held[told.rows.unsqueeze(1), :, told.places] = made.transpose(1, 2)
        return self.keys[told.rows, :, : told.width], self.values[told.rows, :, : told.width]

    def copy_row(self, source: int, target: int, count: int) -> None:
        """Have the first so many tokens of a row in another one."""
        for held in (self.keys, self.values):
            assert held is not None
            held[target, :, :count] = held[source, :, :count]


class RowCache:
    """What each row of a model's batch has read."""

    rows: Tensor
    """(n,): which rows the pass under way reads more of"""
    places: Tensor
    """(n, t): where its tokens stand in their rows"""
    width: int
    """tokens that the longest of these rows has then"""

    def __init__(self, model: Any, rows: int) -> None:
        self._model = model
        blocks = model.config.get_text_config().num_hidden_layers
        self._layers = [_Layer(self) for _ in range(blocks)]
        self._cache = Cache(layers=list(self._layers))
        self.read: list[list[int]] = [[] for _ in range(rows)]
        """the tokens of each row whose keys and values are known"""

    def begin(self, free: Collection[int], ids: Sequence[int]) -> tuple[int, int]:
        """Have a free row begin as these ids do; returns its number, and how far it does."""
        shared = [_common_length(held, ids) for held in self.read]
        # Of rows that know as little, the one with the least to lose.
        row = max(free, key=lambda n: (shared[n], -len(self.read[n])))
        donor = max(range(len(shared)), key=shared.__getitem__)
        if shared[donor] > shared[row]:
            for layer in self._layers:
                layer.copy_row(donor, row, shared[donor])
        self.read[row] = list(ids[: shared[donor]])
        return row, shared[donor]

    def extend(self, rows: Sequence[int], ids: Sequence[Sequence[int]]) -> Tensor:
        """Read t more tokens of each of n rows; returns the last state of each, (n, hidden)."""
        device = self._model.device
        tokens = torch.tensor(ids, device=device)
        begun = torch.tensor([len(self.read[row]) for row in rows], device=device)
        self.rows = torch.tensor(rows, device=device)
        self.places = begun.unsqueeze(1) + torch.arange(tokens.shape[1], device=device)
        self.width = int(self.places.max()) + 1
        seen = torch.arange(self.width, device=device) <= self.places.unsqueeze(2)
        states: Tensor = self._model.base_model(
            input_ids=tokens,
            position_ids=self.places,
            attention_mask=seen.unsqueeze(1),
            past_key_values=self._cache,
            use_cache=True,
        ).last_hidden_state
        for row, more in zip(rows, ids, strict=True):
            self.read[row] += more
        return states[:, -1]


def _common_length(held: Sequence[int], ids: Sequence[int]) -> int:
    """How many tokens a row and a prefix have alike; the prefix's last one is always read."""
    most = min(len(held), len(ids) - 1)
    return next((place for place in range(most) if held[place] != ids[place]), most)


@torch.inference_mode()
def check_rows_apart(model: Any) -> None:
    """Raises SettingsError for a model that cannot read rows of uneven lengths side by side."""
    words = vocabulary_size(model)
    one, other = ([n % words for n in range(start, start + 6)] for start in (1, 9))
    try:
        rows = RowCache(model, 2)
        rows.extend([0], [one[:4]])
        rows.extend([1], [other[:1]])
        together = rows.extend([1, 0], [other[1:3], one[4:]])
        alone = torch.stack(
            [
                model.base_model(
                    input_ids=torch.tensor([text], device=model.device), use_cache=False
                ).last_hidden_state[0, -1]
                for text in (other[:3], one)
            ]
        )
        apart = float(((together - alone).float().norm(dim=1) / alone.float().norm(dim=1)).max())
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
        apart = 1.0
    if not apart <= torch.finfo(model.dtype).eps ** 0.5:
        raise SettingsError(
            f"a {model.config.model_type} model cannot write several texts side by side.",
            "Leave `sampler` out under [rounds]: llama.cpp or a server samples from it.",
        )


def draw_tokens(
    logits: Tensor, told: Sequence[Sampling], draws: Sequence[torch.Generator]
) -> tuple[list[int], list[float]]:
    """A token of each row of (n, V) float32 logits, and its log-probability at temperature 1.

    With -log of a number of the exponential distribution added to each logit, the largest is one
    drawn by the probabilities (Gumbel-max). Of `told` the temperature is followed.
    """
    heat = torch.tensor([one.temperature or 1.0 for one in told], device=logits.device)
    waits = torch.ones_like(logits)
    for row, sampling, draw in zip(waits, told, draws, strict=True):
        if sampling.temperature:
            row.exponential_(generator=draw)
    tokens = (logits / heat.unsqueeze(1) - waits.log_()).argmax(-1)
    chosen = logits.gather(1, tokens.unsqueeze(1)).squeeze(1) - logits.logsumexp(-1)
    return tokens.tolist(), chosen.tolist()


@dataclass(eq=False, slots=True)
class _OpenTurn:
    """One text under way."""

    ids: list[int]
    """its prompt, and what has been written"""
    prompt: int
    sampling: Sampling
    reading: TokenReading
    draw: torch.Generator
    done: "asyncio.Future[None]"
    decoder: codecs.IncrementalDecoder
    cached: int = 0
    """tokens of the prompt that had been read for another turn"""

    def take(self, token: int, logprob: float, vocabulary: Vocabulary, most: int) -> None:
        """One token more; `most`: of the prompt and what is written."""
        reading = self.reading
        self.ids.append(token)
        if token in vocabulary.ends:
            reading.finish = "eos"
        else:
            # One may end inside a character; the decoder holds its bytes back until it is whole.
            said = vocabulary.pieces[token] if token < len(vocabulary.pieces) else b""
            reading.take(Piece(self.decoder.decode(said), (token,), (logprob,)))
            written = len(self.ids) - self.prompt
            if written >= self.sampling.max_tokens or len(self.ids) >= most:
                reading.finish = reading.finish or "length"
        if reading.complete and not self.done.done():
            self.done.set_result(None)


@dataclass(frozen=True, slots=True)
class TorchConfig:
    """How a model is sampled."""

    slots: int
    """turns written at the same time"""
    context_tokens: int
    """of a prompt and its turn"""
    dtype: str = "float32"
    device: torch.device = CPU
    threads: int | None = None
    """None: the physical cores that nothing else keeps busy"""


class TorchPolicy:
    """A `TokenPolicy` over a model of transformers; its tokeniser is llama.cpp's. Close it."""

    def __init__(
        self, model: Any, vocabulary: Vocabulary, config: TorchConfig, tokeniser: LlamaPolicy,
        name: str, version: str,
    ) -> None:  # fmt: skip
        self.name, self.version, self.context_tokens = name, version, config.context_tokens
        self._model, self._vocabulary, self._config = model, vocabulary, config
        self._tokeniser = tokeniser
        self._rows = RowCache(model, config.slots)
        self._active, self._waiting = dict[int, _OpenTurn](), deque[_OpenTurn]()
        self._closed, self._working = False, asyncio.create_task(self._work())
        # A thread has as many threads for its products as there are cores, whatever others set.
        threads = (config.threads or free_cores(),)
        self._thread = ThreadPoolExecutor(1, "sampler", torch.set_num_threads, threads)

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return await self._tokeniser.render(messages)

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self._tokeniser.encode(text)

    async def complete(
        self,
        prefix: Sequence[int],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        """Raises PolicyError for a prefix that the context has no room for."""
        if not 0 < len(prefix) < self.context_tokens:
            raise PolicyError(
                f"a text of {len(prefix):,} tokens cannot be gone on with: "
                f"the context holds {self.context_tokens:,}.",
                "Ask a shorter question, allow fewer tool calls, or raise context_tokens.",
            )
        draw = torch.Generator(self._config.device)
        if sampling.seed is None:
            draw.seed()
        else:
            draw.manual_seed(sampling.seed)
        turn = _OpenTurn(
            ids=list(prefix),
            prompt=len(prefix),
            sampling=sampling,
            reading=TokenReading(stop, on_text),
            draw=draw,
            done=asyncio.get_running_loop().create_future(),
            decoder=codecs.getincrementaldecoder("utf-8")("replace"),
        )
        self._waiting.append(turn)
        if self._working.done():
            self._working = asyncio.create_task(self._work())
        try:
            await turn.done
        except PolicyError:
            raise
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            raise PolicyError(f"torch could not sample: {told}") from error
        usage = Usage(
            prompt_tokens=len(prefix), cached_tokens=turn.cached,
            completion_tokens=len(turn.reading.ids), cost=0.0, calls=1,
        )  # fmt: skip
        return turn.reading.completion(usage)

    async def aclose(self) -> None:
        """Waits until the pass under way has ended; turns that have not are ended by an error."""
        self._closed = True
        await self._working
        self._thread.shutdown()

    async def _work(self) -> None:
        """Passes as long as there is a turn; what ends one ends all turns."""
        loop = asyncio.get_running_loop()
        while self._waiting or self._active:
            try:
                if self._closed:
                    raise PolicyError("the sampler was closed.")
                for turn, token, logprob in await loop.run_in_executor(self._thread, self._write):
                    if turn.done.done():  # cancelled meanwhile
                        continue
                    try:
                        turn.take(token, logprob, self._vocabulary, self.context_tokens)
                    except Exception as fault:  # such as the caller's predicate
                        turn.done.set_exception(fault)
            except Exception as error:
                for turn in (*self._active.values(), *self._waiting):
                    if not turn.done.done():
                        turn.done.set_exception(error)
                self._waiting.clear()
                self._rows = RowCache(self._model, self._config.slots)
            # One that nobody waits for any more is done, too.
            self._active = {row: t for row, t in self._active.items() if not t.done.done()}

    @torch.inference_mode()
    def _write(self) -> list[tuple[_OpenTurn, int, float]]:
        """A token of every turn, in the sampler's thread."""
        with memory_told(self._model.device):
            while self._waiting and len(self._active) < self._config.slots:
                self._admit(self._waiting[0])
                self._waiting.popleft()
            turns = list(self._active.values())
            if not turns:
                return []
            states = self._rows.extend(list(self._active), [turn.ids[-1:] for turn in turns])
            logits = self._model.get_output_embeddings()(states).float()
            tokens, logprobs = draw_tokens(
                logits, [turn.sampling for turn in turns], [turn.draw for turn in turns]
            )
            return list(zip(turns, tokens, logprobs, strict=True))

    def _admit(self, turn: _OpenTurn) -> None:
        if turn.done.done():
            return
        row, turn.cached = self._rows.begin(
            set(range(self._config.slots)) - self._active.keys(), turn.ids
        )
        self._active[row] = turn
        if rest := turn.ids[turn.cached : -1]:
            self._rows.extend([row], [rest])


LEAST_CONTEXT = 256
"""tokens that llama.cpp has room for where it only encodes"""


@asynccontextmanager
async def open_torch(
    model: str, weights_dir: Path, config: TorchConfig
) -> AsyncIterator[TorchPolicy]:
    """The policy of a catalogue name, a GGUF file or a checkpoint; freed at the end.

    Raises WeightsError as `WeightsStore.model_files` does, SettingsError for a model that cannot
    write several texts side by side.
    """
    files = await WeightsStore(weights_dir).model_files(model)
    told = LlamaConfig(context_tokens=LEAST_CONTEXT, threads=1)
    tokeniser = await LlamaPolicy.load(files.path, files.name, files.version, told)
    try:
        words = await asyncio.to_thread(Vocabulary.of, files.path)
        with memory_told(config.device):
            checkpoint = Path(model) if is_checkpoint(model) else None
            loaded = await asyncio.to_thread(_load, files.path, checkpoint, config)
            policy = TorchPolicy(loaded, words, config, tokeniser, files.name, files.version)
        try:
            yield policy
        finally:
            await policy.aclose()
            del policy, loaded
            await asyncio.to_thread(release_memory)
    finally:
        await tokeniser.aclose()


def _load(path: Path, checkpoint: Path | None, config: TorchConfig) -> Any:
    note = checkpoint and note_of(checkpoint)
    if checkpoint and note and note.adaptation == "full":
        model = load_base(checkpoint, config.dtype)
    else:
        told = path.stat()
        base = _base(path, told.st_mtime_ns, told.st_size, config.dtype, config.device)
        # A model of its own over the weights of a file, which all models over it share.
        model = copy.deepcopy(base, {id(weight): weight for weight in base.parameters()})
        if checkpoint and note:
            Adapter.restore(model, read_weights(checkpoint, "lora"), note.alpha)
    check_rows_apart(model.to(config.device))
    return model


@lru_cache(maxsize=1)
def _base(path: Path, changed: int, size: int, dtype: str, device: torch.device) -> Any:
    """Frozen weights, which take half a minute to read from the 0.5B's file."""
    return load_base(path, dtype).to(device)
