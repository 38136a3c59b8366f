"""Sampling by torch in this process: the turns of many rollouts are written together.

All turns under way are rows of one batch, and each pass writes a token of every row. A row keeps
the keys and values of its tokens. A turn begins in the free row that has read most of its prefix,
or has that copied from a row that has read more; only the rest is read, on a GPU together with
that of other turns. There the writing pass always has all rows, so it is recorded as a CUDA graph
and replayed: started from Python, its 2,000 kernels take longer to launch than to run.
`generate` of transformers lets no turn join a batch that is under way, and keeps nothing of a
prefix; its continuous batching has one seed for all.

Tokens are drawn by a turn's own generator, so they do not depend on the turns beside it but for
rounding. Prompts are written and text is encoded by the tokeniser that every other sampler uses.
"""

import asyncio
import codecs
import copy
import random
import threading
from array import array
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.cache_utils import Cache, DynamicLayer
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import AttentionInterface

from rubricem.agent.models.llama import LlamaConfig, LlamaPolicy, free_cores
from rubricem.agent.models.replies import Piece, TokenReading
from rubricem.agent.weights.checkpoints import gguf_fields, is_checkpoint, note_of
from rubricem.agent.weights.store import WeightsStore
from rubricem.memory.errors import PolicyError, WeightsError, boundary
from rubricem.memory.schema import Completion, Message, OnText, Sampling, StopPredicate, Usage
from rubricem.training.local.checkpoints import read_weights
from rubricem.training.local.load import load_base, memory_told, release_memory
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
        told_by = bytes_to_unicode()
        bytes_of = {letter: byte for byte, letter in told_by.items()}
        ends = {int.from_bytes(told[n], "little") for n in names[3:] if n in told}
        return cls(
            pieces=tuple(
                b"" if number in control else bytes(bytes_of[c] for c in word if c in bytes_of)
                for number, word in enumerate(words)
            ),
            ends=frozenset(ends | {number for number in control if words[number] in END_NAMES}),
        )


ROOM, ROOM_OF_A_GPU = 512, 2048
"""tokens that a row has room for at first; it doubles, and then the pass is recorded anew"""
READ_AT_ONCE = 32_768
"""tokens that a GPU reads in a pass, at most, with their padding"""


class _Layer(DynamicLayer):  # type: ignore[misc]
    """One block's part of what the rows have read."""

    def __init__(self, told: "RowCache", number: int) -> None:
        super().__init__()
        self._told, self._number = told, number

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **more: Any
    ) -> tuple[Tensor, Tensor]:
        told = self._told
        both = told.hold(key_states)[self._number]
        for held, made in zip(both, (key_states, value_states), strict=True):
            held[told.rows.unsqueeze(1), :, told.places] = made.transpose(1, 2)
        read = both[:, :, :, : told.width]
        keys, values = read if told.all_rows else read[:, told.rows]
        return keys, values


def attend(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor,
    attention_mask: Tensor | None, scaling: float | None = None, **more: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Attention as transformers asks for it; query heads with the same keys share them.

    Those of one token are several queries to the same keys, (n, key heads, queries, d): that they
    have no order among themselves does not matter, since the mask is the same for all.
    """
    n, heads, tokens, _ = query.shape
    if tokens > 1:
        found: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **more
        )
        return found
    asked = query.reshape(n, key.shape[1], heads // key.shape[1], -1)
    given = scaled_dot_product_attention(asked, key, value, attention_mask, scale=scaling)
    return given.reshape(n, 1, heads, -1), None


ATTENTION = "rubricem_rows"
AttentionInterface.register(ATTENTION, attend)


class RowCache:
    """What each row of a model's batch has read."""

    rows: Tensor
    """(n,): which rows the pass under way reads more of"""
    all_rows = False
    """whether these are all, in their order"""
    places: Tensor
    """(n, t): where its tokens stand in their rows"""
    width: int
    """tokens that the longest of these rows has then"""

    def __init__(self, model: Any, rows: int) -> None:
        self._model, self._count = model, rows
        model.set_attn_implementation(ATTENTION)
        self._blocks = model.config.get_text_config().num_hidden_layers
        self._cache = Cache(layers=[_Layer(self, number) for number in range(self._blocks)])
        self._held: Tensor | None = None
        """(blocks, 2, rows, heads, room, d): keys and values"""
        self._on_gpu = model.device.type == "cuda"
        room = ROOM_OF_A_GPU if self._on_gpu else ROOM
        self._read = np.full((rows, room), -1, np.int32)
        """the tokens of each row whose keys and values are known"""
        self._recorded: Callable[[Tensor], Tensor] | None = None

    @property
    def _room(self) -> int:
        """For the tokens of a row; the last place takes what belongs to none."""
        return self._read.shape[1] - 1

    def hold(self, states: Tensor) -> Tensor:
        """The keys and values of all blocks; `states`: such of one, (n, heads, t, d)."""
        if self._held is None:
            shape = (self._blocks, 2, self._count, states.shape[1], self._room + 1, states.shape[3])
            self._held = states.new_zeros(shape)
        return self._held

    def _make_room(self, tokens: int) -> None:
        while tokens > self._room:
            self._recorded = None
            self._read = np.concatenate([self._read, np.full_like(self._read, -1)], axis=1)
            if self._held is not None:
                self._held = torch.cat([self._held, torch.zeros_like(self._held)], dim=4)

    def begin(self, free: Collection[int], ids: Sequence[int]) -> tuple[int, int]:
        """Have a free row begin as these ids do; returns its number, and how far it does."""
        self._make_room(len(ids))
        alike = self._read[:, : len(ids)] == np.asarray(ids, np.int32)
        alike[:, -1] = False  # the last one is always read
        shared = alike.argmin(axis=1)
        known = (self._read >= 0).sum(axis=1)
        # Of rows that know as little, the one with the least to lose.
        row = max(free, key=lambda n: (shared[n], -known[n]))
        donor, count = int(shared.argmax()), int(shared.max())
        if count > shared[row] and self._held is not None:
            self._held[:, :, row, :, :count] = self._held[:, :, donor, :, :count]
        self._read[row] = -1
        self._read[row, :count] = ids[:count]
        return row, count

    def extend(self, rows: Sequence[int], ids: Sequence[Sequence[int]]) -> Tensor:
        """Read more tokens of each of n rows; returns the last state of each, (n, hidden)."""
        lengths, begun = [len(more) for more in ids], (self._read[rows] >= 0).sum(axis=1)
        self._make_room(int((begun + lengths).max()))
        longest = max(lengths)
        tokens = np.zeros((len(rows), longest), np.int64)
        places = np.full((len(rows), longest), self._room, np.int64)
        for number, (row, more, start) in enumerate(zip(rows, ids, begun, strict=True)):
            tokens[number, : len(more)] = self._read[row, start : start + len(more)] = more
            places[number, : len(more)] = range(start, start + len(more))
        device = self._model.device
        self.rows, self.all_rows = torch.tensor(rows, device=device), False
        self.width = int((begun + lengths).max())
        states = self._states(*(torch.from_numpy(told).to(device) for told in (tokens, places)))
        return states[range(len(rows)), [length - 1 for length in lengths]]

    def _states(self, tokens: Tensor, places: Tensor) -> Tensor:
        """(n, t, hidden) of (n, t) tokens, in the rows and the width that are set."""
        self.places = places
        seen = torch.arange(self.width, device=places.device) <= places.unsqueeze(2)
        states: Tensor = self._model.base_model(
            input_ids=tokens,
            position_ids=places,
            attention_mask=seen.unsqueeze(1),
            past_key_values=self._cache,
            use_cache=True,
        ).last_hidden_state
        return states

    def write(self, draws: Mapping[int, "Draw"]) -> dict[int, tuple[int, float]]:
        """By row what it draws after its last token, and the log-probability at temperature 1."""
        for row, draw in draws.items():
            self._make_room(draw.place + 1)
            self._read[row, draw.place] = draw.token
        rows = range(self._count) if self._on_gpu else list(draws)
        idle = Draw(0, self._room, 0.0, 0.0)
        asked = torch.tensor([draws.get(row, idle) for row in rows], dtype=torch.float64)
        self.rows, self.all_rows = torch.tensor(rows, device=self._model.device), self._on_gpu
        if self._on_gpu:
            self.width = self._room + 1
            self._recorded = self._recorded or record(self._draw, asked.to(self.rows.device))
            found = self._recorded(asked).tolist()
        else:
            self.width = max(draw.place for draw in draws.values()) + 1
            found = self._draw(asked).tolist()
        return {row: (int(found[n][0]), found[n][1]) for n, row in enumerate(rows) if row in draws}

    def _draw(self, asked: Tensor) -> Tensor:
        """(n, 2) tokens and their log-probabilities of (n, 4) draws."""
        tokens, places, heats, lucks = asked.unbind(1)
        states = self._states(tokens.long().unsqueeze(1), places.long().unsqueeze(1))
        logits = self._model.get_output_embeddings()(states[:, 0]).float()
        return torch.stack(draw_tokens(logits, heats, lucks), dim=1)


class Draw(NamedTuple):
    """What one row is to write its next token by."""

    token: int
    """its last one, which is read now"""
    place: int
    """where that stands"""
    temperature: float
    luck: float
    """in [0, 1): of the tokens in their order, the one that this share of the mass reaches"""


_RECORDING = threading.Lock()
"""a round and held-out questions have samplers of their own in one process"""


def record(of: Callable[[Tensor], Tensor], given: Tensor) -> Callable[[Tensor], Tensor]:
    """A function of one tensor on a GPU as a CUDA graph, or as it is where it cannot be recorded.

    Returns it with its result in main memory.
    """
    try:
        with _RECORDING:
            beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            # What a first call makes, such as workspaces of libraries, may not be part of a graph.
            beside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(beside):
                of(given)
            torch.cuda.current_stream().wait_stream(beside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                found = of(given)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # an operation of the model that waits for the GPU, or an old driver
        return lambda asked: of(asked.to(given.device)).cpu()

    def replay(asked: Tensor) -> Tensor:
        given.copy_(asked)
        graph.replay()
        return found.cpu()

    return replay


def draw_tokens(logits: Tensor, heats: Tensor, lucks: Tensor) -> tuple[Tensor, Tensor]:
    """A token of each row of (n, V) float32 logits, and its log-probability at temperature 1.

    `heats` (n,) are temperatures, 0 for the likeliest token, `lucks` (n,) are uniform in [0, 1).
    Sums of 150,000 probabilities are float64, or the unlikely ones would be lost in them.
    """
    warm = heats > 0
    scaled = logits / torch.where(warm, heats, 1.0).float().unsqueeze(1)
    sums = scaled.softmax(-1, dtype=torch.float64).cumsum(-1)
    drawn = (sums <= lucks.unsqueeze(1) * sums[:, -1:]).sum(-1)
    tokens = torch.where(warm, drawn.clamp(max=logits.shape[1] - 1), logits.argmax(-1))
    chosen = logits.gather(1, tokens.unsqueeze(1)).squeeze(1) - logits.logsumexp(-1)
    return tokens.double(), chosen.double()


@dataclass(eq=False, slots=True)
class _OpenTurn:
    """One text under way."""

    ids: list[int]
    """its prompt, and what has been written"""
    prompt: int
    sampling: Sampling
    reading: TokenReading
    luck: random.Random
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
        turn = _OpenTurn(
            ids=list(prefix),
            prompt=len(prefix),
            sampling=sampling,
            reading=TokenReading(stop, on_text),
            luck=random.Random(sampling.seed),
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
        with memory_told(self._model.device, "sampling", FEWER):
            self._admit()
            draws = {
                row: Draw(
                    turn.ids[-1], len(turn.ids) - 1,
                    turn.sampling.temperature or 0.0, turn.luck.random(),
                )
                for row, turn in self._active.items()
            }  # fmt: skip
            found = self._rows.write(draws) if draws else {}
            return [(self._active[row], *drawn) for row, drawn in found.items()]

    def _admit(self) -> None:
        """Read the prefixes of the turns that wait: one by one, or on a GPU many at once."""
        on_gpu, rest = self._model.device.type == "cuda", dict[int, list[int]]()

        def read() -> None:
            if rest:
                self._rows.extend(list(rest), list(rest.values()))
                rest.clear()

        while self._waiting and len(self._active) < self._config.slots:
            turn = self._waiting[0]
            if not turn.done.done():
                if not on_gpu:
                    read()  # so that what it begins with can be copied
                free = set(range(self._config.slots)) - self._active.keys()
                row, turn.cached = self._rows.begin(free, turn.ids)
                self._active[row] = turn
                if more := turn.ids[turn.cached : -1]:
                    longest = max(map(len, (more, *rest.values())))
                    if longest * (len(rest) + 1) > READ_AT_ONCE:
                        read()
                    rest[row] = more
            self._waiting.popleft()
        read()


FEWER = "Set a lower concurrency (RUBRICEM_CONCURRENCY): rows written at once each hold their text."
LEAST_CONTEXT = 256
"""tokens that llama.cpp has room for where it only encodes"""


@asynccontextmanager
async def open_torch(
    model: str, weights_dir: Path, config: TorchConfig
) -> AsyncIterator[TorchPolicy]:
    """The policy of a catalogue name, a GGUF file or a checkpoint; freed at the end.

    Raises WeightsError as `WeightsStore.model_files` does.
    """
    files = await WeightsStore(weights_dir).model_files(model)
    told = LlamaConfig(context_tokens=LEAST_CONTEXT, threads=1)
    tokeniser = await LlamaPolicy.load(files.path, files.name, files.version, told)
    try:
        words = await asyncio.to_thread(Vocabulary.of, files.path)
        with memory_told(config.device, "sampling", FEWER):
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
    told = path.stat()
    base = _base(path, told.st_mtime_ns, told.st_size, config.dtype, config.device)
    # A model of its own over the weights of a file, which all models over it share.
    model = copy.deepcopy(base, {id(weight): weight for weight in base.parameters()})
    if checkpoint:
        state = read_weights(checkpoint, "lora")
        for weight in Adapter.restore(model, state, note_of(checkpoint).alpha).parameters():
            weight.data = weight.data.to(base.dtype)  # once, and not at each pass
    return model.to(config.device)


@lru_cache(maxsize=1)
def _base(path: Path, changed: int, size: int, dtype: str, device: torch.device) -> Any:
    """Frozen weights, which take half a minute to read from the 0.5B's file."""
    return load_base(path, dtype).to(device)
