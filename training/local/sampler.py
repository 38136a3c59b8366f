"""Sampling by torch in this process: the turns of many rollouts are written together.

All turns under way are rows of one batch, and each pass writes a token of every row. A row keeps
the keys and values of its tokens. A turn begins in the free row that has read most of its prefix,
or has that copied from a row that has read more; only the rest is read, by a pass of its own.

Tokens are drawn from a turn's own generator, so they do not depend on the turns beside it but for
rounding. Prompts are written and text is encoded by the tokeniser that every other sampler uses.
"""

import asyncio
import codecs
import copy
import queue
import random
import threading
from array import array
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicLayer

from rubricem.agent.models.llama import LlamaConfig, LlamaPolicy, free_cores
from rubricem.agent.models.replies import Piece, TokenReading
from rubricem.agent.weights.checkpoints import gguf_fields, is_checkpoint, note_of
from rubricem.agent.weights.store import WeightsStore
from rubricem.memory.errors import PolicyError, SettingsError, WeightsError, boundary
from rubricem.memory.schema import Completion, Message, OnText, Sampling, StopPredicate, Usage
from rubricem.training.local.checkpoints import read_weights
from rubricem.training.local.load import load_base, memory_told, release_memory, vocabulary_size
from rubricem.training.local.weights import Adapter

CPU = torch.device("cpu")


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
        bytes_of = {letter: byte for byte, letter in enumerate(_letters())}
        ends = {int.from_bytes(told[n], "little") for n in names[3:] if n in told}
        return cls(
            pieces=tuple(
                b"" if number in control else bytes(bytes_of[c] for c in word if c in bytes_of)
                for number, word in enumerate(words)
            ),
            ends=frozenset(ends | {number for number in control if words[number] in END_NAMES}),
        )


CONTROL = 3
"""the kind of a token in a GGUF file that is not text"""
END_NAMES = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>")


def _letters() -> Iterator[str]:
    """The letter by which byte-level BPE writes each byte: its own, or one beyond the 255."""
    shown = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    for byte in range(256):
        yield chr(byte if byte in shown else next(others))


@dataclass(eq=False, slots=True)
class _OpenTurn:
    """One text under way."""

    ids: list[int]
    """its prompt, and what has been written"""
    prompt: int
    sampling: Sampling
    reading: TokenReading
    end: Callable[[Exception | None], None]
    draw: random.Random
    decoder: codecs.IncrementalDecoder
    cached: int = 0
    """tokens of the prompt that had been read for another turn"""
    cancelled: bool = False
    fault: Exception | None = None
    """what its own reading raised"""

    @property
    def over(self) -> bool:
        return self.cancelled or self.fault is not None or self.reading.complete

    def take(self, token: int, logprob: float, vocabulary: Vocabulary, most: int) -> None:
        """One token more; `most`: of the prompt and what is written."""
        self.ids.append(token)
        try:
            self._read(token, logprob, vocabulary, most)
        except Exception as fault:  # such as the caller's predicate: the other turns go on
            self.fault = fault

    def _read(self, token: int, logprob: float, vocabulary: Vocabulary, most: int) -> None:
        if token in vocabulary.ends:
            self.reading.finish = "eos"
            return
        # A token may end inside a character; the decoder holds its bytes back until it is whole.
        said = vocabulary.pieces[token] if token < len(vocabulary.pieces) else b""
        self.reading.take(Piece(self.decoder.decode(said), (token,), (logprob,)))
        written = len(self.ids) - self.prompt
        if not self.reading.complete and (
            written >= self.sampling.max_tokens or len(self.ids) >= most
        ):
            self.reading.finish = "length"


ROOM = 512
"""tokens that a row has room for at first; it doubles"""


@dataclass(slots=True)
class _Pass:
    """Where the pass that is under way writes and reads."""

    rows: slice
    begin: int = 0
    """of one row: the place of its first token"""
    places: Tensor | None = None
    """of several rows: the place of each one's only token; None: one row"""
    width: int = 0
    """tokens that the longest of them has then"""


class _Layer(DynamicLayer):  # type: ignore[no-untyped-call]
    """The keys and values of one block, (rows, heads, room, width)."""

    def __init__(self, under_way: _Pass, rows: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._pass, self._rows = under_way, rows

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **more: Any
    ) -> tuple[Tensor, Tensor]:
        told = self._pass
        if not self.is_initialized:
            self.dtype, self.device = key_states.dtype, key_states.device
            self.keys, self.values = (
                made.new_zeros(self._rows, made.shape[1], ROOM, made.shape[3])
                for made in (key_states, value_states)
            )
            self.is_initialized = True
        assert self.keys is not None and self.values is not None
        while self.keys.shape[2] < told.width:
            self.keys, self.values = (
                torch.cat([held, torch.zeros_like(held)], dim=2)
                for held in (self.keys, self.values)
            )
        keys, values = self.keys[told.rows], self.values[told.rows]
        if told.places is None:
            keys[:, :, told.begin : told.width] = key_states
            values[:, :, told.begin : told.width] = value_states
        else:
            rows = torch.arange(len(keys), device=keys.device)
            keys[rows, :, told.places] = key_states[:, :, 0]
            values[rows, :, told.places] = value_states[:, :, 0]
        return keys[:, :, : told.width], values[:, :, : told.width]

    def copy_row(self, source: int, target: int, count: int) -> None:
        """Have the first so many tokens of a row in another one."""
        if self.is_initialized:
            for held in (self.keys, self.values):
                assert held is not None
                held[target, :, :count] = held[source, :, :count]

    def swap_rows(self, one: int, other: int, count: int) -> None:
        """Exchange the first so many tokens of two rows."""
        if self.is_initialized:
            for held in (self.keys, self.values):
                assert held is not None
                held[[one, other], :, :count] = held[[other, one], :, :count]


class RowCache:
    """What each row of a model's batch has read; the rows in use are the first ones."""

    def __init__(self, model: Any, rows: int) -> None:
        self._model, self._pass = model, _Pass(slice(0, 0))
        blocks = model.config.get_text_config().num_hidden_layers
        self._layers = [_Layer(self._pass, rows) for _ in range(blocks)]
        self._cache = Cache(layers=list(self._layers))
        self.read: list[list[int]] = [[] for _ in range(rows)]
        """the tokens of each row whose keys and values are known"""

    def begin(self, used: int, ids: Sequence[int]) -> int:
        """Have row `used`, the first free one, begin as these ids do; returns how far it does."""
        free = range(used, len(self.read))
        shared = [_common_length(held, ids) for held in self.read]
        # Of rows that know as little, the one with the least to lose.
        row = max(free, key=lambda n: (shared[n], -len(self.read[n])))
        self._swap(row, used)
        shared[row], shared[used] = shared[used], shared[row]
        donor = max(range(len(shared)), key=shared.__getitem__)
        if shared[donor] > shared[used]:
            for layer in self._layers:
                layer.copy_row(donor, used, shared[donor])
        self.read[used] = list(ids[: shared[donor]])
        return shared[donor]

    def end(self, row: int, used: int) -> None:
        """Free a row: the last one in use takes its place, and what it has read stays known."""
        self._swap(row, used - 1)

    def _swap(self, one: int, other: int) -> None:
        if one != other:
            count = max(len(self.read[one]), len(self.read[other]))
            for layer in self._layers:
                layer.swap_rows(one, other, count)
            self.read[one], self.read[other] = self.read[other], self.read[one]

    def extend(self, row: int, ids: Sequence[int]) -> Tensor:
        """Read more tokens of one row; returns the last state of each, (n, hidden)."""
        device, begin = self._model.device, len(self.read[row])
        width = begin + len(ids)
        self._tell(slice(row, row + 1), begin, None, width)
        places = torch.arange(begin, width, device=device)
        seen = torch.arange(width, device=device) <= places.unsqueeze(1)
        states = self._through(torch.tensor([ids], device=device), places.unsqueeze(0), seen[None])
        self.read[row] += ids
        return states[0]

    def step(self, ids: Sequence[int]) -> Tensor:
        """Read one token in each of the first rows; returns their last states, (n, hidden)."""
        device = self._model.device
        places = torch.tensor([len(self.read[row]) for row in range(len(ids))], device=device)
        width = int(places.max()) + 1
        self._tell(slice(0, len(ids)), 0, places, width)
        seen = torch.arange(width, device=device) <= places.unsqueeze(1)
        tokens = torch.tensor(ids, device=device).unsqueeze(1)
        states = self._through(tokens, places.unsqueeze(1), seen.unsqueeze(1))
        for row, token in enumerate(ids):
            self.read[row].append(token)
        return states[:, 0]

    def _tell(self, rows: slice, begin: int, places: Tensor | None, width: int) -> None:
        told = self._pass
        told.rows, told.begin, told.places, told.width = rows, begin, places, width

    def _through(self, ids: Tensor, places: Tensor, seen: Tensor) -> Tensor:
        """(rows, n) tokens and places, and what each token sees, (rows, n, width)."""
        found: Tensor = self._model.base_model(
            input_ids=ids,
            position_ids=places,
            attention_mask=seen.unsqueeze(1),
            past_key_values=self._cache,
            use_cache=True,
        ).last_hidden_state
        return found


def _common_length(held: Sequence[int], ids: Sequence[int]) -> int:
    """How many tokens a row and a prefix have alike; the prefix's last one is always read."""
    most = min(len(held), len(ids) - 1)
    return next((place for place in range(most) if held[place] != ids[place]), most)


@torch.inference_mode()
def check_rows_apart(model: Any) -> None:
    """Raises SettingsError for a model that cannot read rows of uneven lengths side by side."""
    words = vocabulary_size(model)
    texts = [[n % words for n in range(start, start + 6)] for start in (1, 9, 17)]
    alone = []
    for text in texts:
        ids = torch.tensor([text], device=model.device)
        alone.append(model.base_model(input_ids=ids, use_cache=False).last_hidden_state[0, -1])
    try:
        rows = RowCache(model, 3)
        for row, text in enumerate(texts):
            rows.begin(row, text)
            rows.extend(row, text[: row + 1])
        together: dict[int, Tensor] = {}
        for _ in range(5):
            going = [row for row in range(3) if len(rows.read[row]) < 6]
            # Rows in use are the first ones, and the shortest is row 0.
            states = rows.step([texts[row][len(rows.read[row])] for row in going])
            together |= dict(zip(going, states, strict=True))
        apart = max(
            float((together[row] - alone[row]).float().norm() / alone[row].float().norm())
            for row in range(3)
        )
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
        apart = 1.0
    if not apart <= torch.finfo(model.dtype).eps ** 0.5:
        raise SettingsError(
            f"a {model.config.model_type} model cannot write several texts side by side.",
            "Leave `sampler` out under [rounds]: llama.cpp or a server samples from it.",
        )


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


class TorchSampler:
    """A thread that writes turns by a model of transformers; close it to free memory."""

    def __init__(self, model: Any, vocabulary: Vocabulary, config: TorchConfig) -> None:
        """Raises SettingsError for a model whose rows cannot be kept apart."""
        self._model, self._vocabulary, self.config = model, vocabulary, config
        check_rows_apart(model)
        self._arriving: queue.SimpleQueue[_OpenTurn | None] = queue.SimpleQueue()
        self._rows, self._active = RowCache(model, config.slots), list[_OpenTurn]()
        self._waiting = deque[_OpenTurn]()
        self._gate, self._closed = threading.Lock(), False
        self._thread = threading.Thread(target=self._work, name="sampler", daemon=True)
        self._thread.start()

    def submit(self, turn: _OpenTurn) -> None:
        with self._gate:
            if not self._closed:
                self._arriving.put(turn)
                return
        turn.end(_closing_error())

    def close(self) -> None:
        """Blocks until the pass under way has ended; turns that have not are ended by an error."""
        with self._gate:
            self._closed = True
            self._arriving.put(None)
        self._thread.join()

    @torch.inference_mode()
    def _work(self) -> None:
        # A thread has as many threads for its products as there are cores, whatever others set.
        torch.set_num_threads(self.config.threads or free_cores())
        while self._take_arrivals():
            try:
                with memory_told(self._model.device):
                    self._leave_ended()
                    while self._waiting and len(self._active) < self.config.slots:
                        self._admit(self._waiting.popleft())
                    if self._active:
                        self._write()
            except Exception as error:
                self._fail(error)
        self._fail(_closing_error())

    def _take_arrivals(self) -> bool:
        """Whether to go on; waits where there is nothing to do."""
        while True:
            idle = not (self._active or self._waiting)
            try:
                turn = self._arriving.get(block=idle)
            except queue.Empty:
                return True
            if turn is None:
                return False
            self._waiting.append(turn)

    def _leave_ended(self) -> None:
        for row in reversed(range(len(self._active))):
            turn = self._active[row]
            if turn.over:
                self._rows.end(row, len(self._active))
                self._active[row] = self._active[-1]
                self._active.pop()
                turn.end(turn.fault)

    def _admit(self, turn: _OpenTurn) -> None:
        if turn.cancelled:
            turn.end(None)
            return
        row = len(self._active)
        turn.cached = self._rows.begin(row, turn.ids)
        self._active.append(turn)
        if rest := turn.ids[turn.cached : -1]:
            self._rows.extend(row, rest)

    def _write(self) -> None:
        """A token of every turn."""
        states = self._rows.step([turn.ids[-1] for turn in self._active])
        logits = self._model.get_output_embeddings()(states).float()
        told = [turn.sampling for turn in self._active]
        tokens, logprobs = draw_tokens(logits, told, [turn.draw.random() for turn in self._active])
        for turn, token, logprob in zip(self._active, tokens, logprobs, strict=True):
            turn.take(token, logprob, self._vocabulary, self.config.context_tokens)

    def _fail(self, error: Exception) -> None:
        """End all turns by what ended a pass; what the rows have read is not known any more."""
        turns = [*self._active, *self._waiting]
        self._active.clear()
        self._waiting.clear()
        self._rows = RowCache(self._model, self.config.slots)
        for turn in turns:
            turn.end(error)


def _closing_error() -> PolicyError:
    return PolicyError("the sampler was closed.")


def draw_tokens(
    logits: Tensor, told: Sequence[Sampling], luck: Sequence[float]
) -> tuple[list[int], list[float]]:
    """A token of each row of (n, V) float32 logits, and its log-probability at temperature 1.

    `luck`: a number of [0, 1) for each, by which its token is found among the cumulated
    probabilities. Of `told` the temperature is followed.
    """
    logprobs = logits.log_softmax(-1)
    heat = torch.tensor([one.temperature or 1.0 for one in told], device=logits.device)
    weights = (
        (logits / heat.unsqueeze(1)).softmax(-1) if bool((heat != 1).any()) else logprobs.exp()
    )
    cold = torch.tensor([not one.temperature for one in told], device=logits.device)
    found = _find(weights, torch.tensor(luck, dtype=torch.float64, device=logits.device))
    tokens = torch.where(cold, logits.argmax(-1), found)
    chosen = logprobs.gather(1, tokens.unsqueeze(1)).squeeze(1)
    return tokens.tolist(), chosen.tolist()


BLOCK = 512


def _find(weights: Tensor, luck: Tensor) -> Tensor:
    """(n,): where in each row of (n, V) weights the cumulated ones reach a share of all.

    By blocks first: cumulated as float64, which a share needs, all of them take ten times as long.
    """
    blocks = nn.functional.pad(weights, (0, -weights.shape[1] % BLOCK)).view(
        len(weights), -1, BLOCK
    )
    sums = blocks.sum(-1, dtype=torch.float64).cumsum(-1)
    wanted = luck.unsqueeze(1) * sums[:, -1:]
    block = torch.searchsorted(sums, wanted, right=True).clamp(max=sums.shape[1] - 1)
    chosen = blocks.gather(1, block.unsqueeze(-1).expand(-1, -1, BLOCK)).squeeze(1)
    inside = chosen.cumsum(-1, dtype=torch.float64)
    rest = wanted - (sums.gather(1, block) - inside[:, -1:])
    place = torch.searchsorted(inside, rest, right=True)
    # Sums by another way differ in their last digits: no token without a weight is taken.
    last = (chosen > 0).cumsum(-1).argmax(-1, keepdim=True)
    return (block * BLOCK + torch.minimum(place, last)).squeeze(1)


class TorchPolicy:
    """A `TokenPolicy` that a `TorchSampler` writes; its tokeniser is llama.cpp's."""

    def __init__(
        self, sampler: TorchSampler, tokeniser: LlamaPolicy, name: str, version: str
    ) -> None:
        self.name, self.version = name, version
        self.context_tokens = sampler.config.context_tokens
        self._sampler, self._tokeniser = sampler, tokeniser

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
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def emit(text: str) -> None:
            if on_text:
                loop.call_soon_threadsafe(on_text, text)

        def settle(error: Exception | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def end(error: Exception | None) -> None:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                loop.call_soon_threadsafe(settle, error)

        turn = _OpenTurn(
            ids=list(prefix),
            prompt=len(prefix),
            sampling=sampling,
            reading=TokenReading(stop, emit),
            end=end,
            draw=random.Random(sampling.seed),
            decoder=codecs.getincrementaldecoder("utf-8")("replace"),
        )
        self._sampler.submit(turn)
        try:
            await done
        except PolicyError:
            raise
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            raise PolicyError(f"torch could not sample: {told}") from error
        finally:
            turn.cancelled = True
        usage = Usage(
            prompt_tokens=len(prefix), cached_tokens=turn.cached,
            completion_tokens=len(turn.reading.ids), cost=0.0, calls=1,
        )  # fmt: skip
        return turn.reading.completion(usage)


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

    def start() -> TorchSampler:
        with memory_told(config.device):
            loaded = _load(files.path, Path(model) if is_checkpoint(model) else None, config)
            return TorchSampler(loaded, Vocabulary.of(files.path), config)

    try:
        sampler = await asyncio.to_thread(start)
        try:
            yield TorchPolicy(sampler, tokeniser, files.name, files.version)
        finally:
            await asyncio.to_thread(sampler.close)
            del sampler
            await asyncio.to_thread(release_memory)
    finally:
        await tokeniser.aclose()


def _load(path: Path, checkpoint: Path | None, config: TorchConfig) -> Any:
    note = checkpoint and note_of(checkpoint)
    if checkpoint and note and note.adaptation == "full":
        return load_base(checkpoint, config.dtype).to(config.device)
    told = path.stat()
    base = _base(path, told.st_mtime_ns, told.st_size, config.dtype, config.device)
    # A model of its own over the weights of a file, which all models over it share.
    model = copy.deepcopy(base, {id(weight): weight for weight in base.parameters()})
    if checkpoint and note:
        Adapter.restore(model, read_weights(checkpoint, "lora"), note.alpha)
    return model.to(config.device)


LEAST_CONTEXT = 256
"""tokens that llama.cpp has room for where it only encodes"""


@lru_cache(maxsize=1)
def _base(path: Path, changed: int, size: int, dtype: str, device: torch.device) -> Any:
    """Frozen weights, which take half a minute to read from the 0.5B's file."""
    return load_base(path, dtype).to(device)
