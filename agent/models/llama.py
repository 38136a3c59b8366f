"""The embedded policy: llama.cpp in this process, token ids in and token ids out.

`handle_completions` of xllamacpp runs a request on llama.cpp's own thread and calls back for every
token. The end of a text is determined by our own predicate, which cancels the request: llama.cpp's
`stop` would cut inside a token. Tokenising uses its loopback HTTP server, closed to others by a
random key. Log-probabilities are natural, of the raw model at temperature 1.

Reading the system prompt takes half a minute on two cores: its state is cached on disk beside the
weights, under a name made of the weights' version and the prompt's ids.
"""

import asyncio
import codecs
import importlib.metadata
import math
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from rubricem.agent.models.limits import paid, paying
from rubricem.agent.models.policy import before_thought, learn_markers
from rubricem.agent.models.replies import Piece, TokenReading
from rubricem.agent.weights.templates import ChatTemplate, template_in
from rubricem.memory.errors import PolicyError, boundary
from rubricem.memory.runs import hash_of
from rubricem.memory.schema import Completion, Message, OnText, Sampling, StopPredicate, Usage
from rubricem.memory.text import digest_of


def _tokens_in(choice: dict[str, Any]) -> list[dict[str, Any]]:
    return (choice.get("logprobs") or {}).get("content") or []


@dataclass
class TokenStream:
    """A text that is being written, as it arrives on llama.cpp's own thread."""

    reading: TokenReading
    refused: dict[str, Any] = field(default_factory=dict)
    fault: Exception | None = None
    cancelled: bool = False
    sampled: int = 0
    """tokens that llama.cpp says it has sampled"""
    unnamed: list[int] = field(default_factory=list)
    """places in `reading.ids` of tokens before which others were sampled whose ids did not come"""

    def __post_init__(self) -> None:
        # A token may end inside a character; the decoder holds its bytes back until it is whole.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, chunk: dict[str, Any]) -> bool:
        """Called for each chunk; True ends the request."""
        if "error" in chunk:
            self.refused = chunk
        elif not self.cancelled and not self.reading.ended:
            # xllamacpp drops what a callback raises.
            try:
                self._read(chunk)
                return self.reading.ended is not None
            except Exception as fault:
                self.fault = fault
        return True

    def _read(self, chunk: dict[str, Any]) -> None:
        choice = (chunk.get("choices") or [{}])[0]
        named = len(self.reading.ids)
        for token in _tokens_in(choice):
            # The end-of-turn token is an action without text, told by `finish`.
            if token["bytes"] or token["token"]:
                text = self._decoder.decode(bytes(token["bytes"]))
                self.reading.take(Piece(text, (token["id"],), (float(token["logprob"]),)))
        if finish := choice.get("finish_reason"):
            self.reading.finish = "length" if finish == "length" else "eos"
        named = len(self.reading.ids) - named
        timings = chunk.get("timings", {})
        self.reading.cached = timings.get("cache_n", self.reading.cached)
        before, self.sampled = self.sampled, timings.get("predicted_n", self.sampled)
        if named and self.sampled - before > named:
            self.unnamed.append(len(self.reading.ids) - 1)


SHOWN = 256
"""likeliest tokens looked at first; the whole vocabulary costs seconds a call"""
VOCABULARY = 1_000_000
"""more than any model has: all of its tokens"""


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


LEAST_KEPT = 256
"""tokens of a prompt that are worth a file"""
MOST_STATES = 3
"""kept beside the weights, some 40 MB each for the 1.5B"""
EARLIER_PROMPTS_MIB = 512
"""kept to be gone on with, some 20,000 tokens of the 1.5B; llama.cpp alone would keep 8 GB"""


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """How the embedded model is run."""

    context_tokens: int = 8192
    threads: int | None = None
    """None: the physical cores that nothing else keeps busy"""
    slots: int = 1
    """questions answered at the same time, each with its own cached prefix"""
    adapter: Path | None = None
    states: Path | None = None
    """an existing folder for what was made of system prompts; None: they are read anew"""


class LlamaPolicy:
    """A `TokenPolicy` and `ChoiceReader` over one loaded GGUF file; close it to free memory."""

    def __init__(self, server: Any, name: str, version: str, config: LlamaConfig, key: str) -> None:
        self.name = name
        self.version = version
        self.context_tokens = config.context_tokens
        self._server = server
        self._http = httpx2.AsyncClient(
            base_url=server.listening_address,
            headers={"authorization": f"Bearer {key}"},
            trust_env=False,
            verify=False,  # there is no TLS, and certificates take 20 ms to read
            timeout=60,
            # llama.cpp closes an idle connection after five seconds, maybe just as it is used.
            limits=httpx2.Limits(keepalive_expiry=2),
        )
        self._slots = asyncio.Semaphore(config.slots)
        self._states = config.states
        self._warm = asyncio.Lock()
        self._template = ChatTemplate(name, "", {})

    @classmethod
    async def load(
        cls, path: Path, name: str, version: str, config: LlamaConfig | None = None
    ) -> "LlamaPolicy":
        """Load the weights in a worker thread. Raises PolicyError if llama.cpp refuses them."""
        config = config or LlamaConfig()
        key = secrets.token_urlsafe(16)
        with boundary(PolicyError, f"loading {path.name}"):
            server = await asyncio.to_thread(_start, path, config, key)
        policy = cls(server, name, version, config, key)
        with boundary(PolicyError, f"loading {path.name}"):
            told = (await policy._http.get("/props")).json()
        text = await asyncio.to_thread(template_in, path)
        tokens = {each: str(told.get(each) or "") for each in ("bos_token", "eos_token")}
        policy._template = ChatTemplate(path.name, text, tokens)
        read = partial(policy._tokenize, parse_special=True)
        await learn_markers(await policy._rendered([Message("user", "?")]), read)
        return policy

    async def aclose(self) -> None:
        await self._http.aclose()
        server, self._server = self._server, None
        await asyncio.to_thread(lambda held: None, server)
        del server

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        rendered = before_thought(await self._rendered(messages))
        if self._states is not None and len(messages) > 1 and messages[0].role == "system":
            head, said, _ = rendered.rpartition(messages[1].content)
            if said:
                await self._recall_state(await self._tokenize(head, parse_special=True))
        return await self._tokenize(rendered, parse_special=True)

    async def _rendered(self, messages: Sequence[Message]) -> str:
        return await asyncio.to_thread(self._template.render, messages)

    async def _recall_state(self, head: tuple[int, ...]) -> None:
        """Bring back what was made of a prompt's beginning, or make and keep it; once a process.

        Nothing depends on it but time: where the disk is full or the file damaged, it is read anew.
        A damaged one would end the process in llama.cpp, so each carries its hash in a file beside.
        """
        async with self._warm:
            folder, self._states = self._states, None
            if folder is None or len(head) < LEAST_KEPT:
                return
            # Another llama.cpp may lay its states out in another way.
            made_by = await asyncio.to_thread(importlib.metadata.version, "xllamacpp")
            named = f"{self.version}\0{self.context_tokens}\0{made_by}\0{head}"
            name = f"state-{digest_of(named, 24)}"
            state, told = folder / f"{name}.bin", folder / f"{name}.sha256"
            try:
                if await asyncio.to_thread(_whole, state, told):
                    await self._post("/slots/0?action=restore", {"filename": state.name})
                    return
                await self.complete(head, Sampling(max_tokens=1, temperature=0.0))
                await self._post("/slots/0?action=save", {"filename": state.name})
                await asyncio.to_thread(lambda: told.write_text(hash_of(state)))
            except (PolicyError, OSError):
                return
            await asyncio.to_thread(_drop_older, folder)

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self._tokenize(text, parse_special=False)

    async def complete(
        self,
        prefix: Sequence[int],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        loop = asyncio.get_running_loop()

        def emit(text: str) -> None:
            if on_text:
                loop.call_soon_threadsafe(on_text, text)

        stream = TokenStream(TokenReading(stop, emit))
        most = Usage(prompt_tokens=len(prefix), completion_tokens=sampling.max_tokens)
        async with paying(most):
            await self._ask(completion_request(prefix, sampling), stream)
        if stream.fault:
            told = f"{type(stream.fault).__name__}: {stream.fault}"
            raise PolicyError(f"the embedded model's text could not be read: {told}")
        usage = Usage(
            prompt_tokens=len(prefix),
            cached_tokens=stream.reading.cached,
            completion_tokens=len(stream.reading.ids),
            cost=0.0,
            calls=1,
        )
        return await self._mend(stream.reading.completion(paid(usage)), stream.unnamed)

    async def weigh(self, prefix: Sequence[int], options: Sequence[str]) -> tuple[float, ...]:
        """Probability of each option as the next text, over the options alone: sums to 1.

        Options differ in their first token, which is all that is looked at.
        """
        firsts = [(await self.encode(option))[0] for option in options]
        if len(set(firsts)) < len(firsts):
            raise PolicyError(f"the options {', '.join(options)} begin with the same token")
        request = {"prompt": list(prefix), "stream": False, "n_predict": 1, "temperature": 0.0}
        request |= {"ignore_eos": True, "cache_prompt": True}
        for shown in (SHOWN, VOCABULARY):
            reply = await self._ask({**request, "n_probs": shown})
            written = _tokens_in(reply["choices"][0])
            logprobs = {t["id"]: t["logprob"] for one in written for t in one["top_logprobs"]}
            if all(first in logprobs for first in firsts):
                break
        return shares([logprobs.get(first) for first in firsts])

    async def _ask(self, request: dict[str, Any], heard: TokenStream | None = None) -> Any:
        """The reply to a request, in a slot of its own, on a worker thread; or its pieces."""
        async with self._slots:
            ask = self._server.handle_completions
            call = asyncio.to_thread(ask, request, *[heard.take] if heard else ())
            task = asyncio.ensure_future(call)
            try:
                reply = await asyncio.shield(task)
            except asyncio.CancelledError:
                # The worker thread cannot be interrupted: ask it to stop and wait for it, so
                # that the slot is free when the next caller gets it.
                if heard:
                    heard.cancelled = True
                await asyncio.wait([task])
                raise
        if error := (heard.refused if heard else reply).get("error"):
            raise PolicyError(
                f"the embedded model refused the request: {error.get('message', error)}",
                "Ask a shorter question, allow fewer tool calls, or raise context_tokens.",
            )
        return reply

    async def _mend(self, completion: Completion, unnamed: Sequence[int]) -> Completion:
        """The completion with the ids that were not named, and then without log-probabilities.

        Of a character that takes several tokens llama.cpp streams only the last one's id.
        """
        ids, ends = list(completion.token_ids or ()), list(completion.token_ends or ())
        for place in sorted((p for p in unnamed if p < len(ids)), reverse=True):
            start = ends[place - 1] if place else 0
            whole = await self.encode(completion.text[start : ends[place]])
            ids[place : place + 1] = whole
            ends[place : place + 1] = [start] * (len(whole) - 1) + [ends[place]]
        if len(ids) == len(completion.token_ids or ()):
            return completion
        usage = completion.usage.model_copy(update={"completion_tokens": len(ids)})
        return replace(
            completion, token_ids=tuple(ids), token_ends=tuple(ends), logprobs=None, usage=usage
        )

    async def _tokenize(self, text: str, *, parse_special: bool) -> tuple[int, ...]:
        body = {"content": text, "parse_special": parse_special, "add_special": False}
        return tuple((await self._post("/tokenize", body))["tokens"])

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        with boundary(PolicyError, f"the embedded model's {path}"):
            reply = await self._http.post(path, json=body)
            reply.raise_for_status()
            return reply.json()


def _drop_older(folder: Path) -> None:
    """Keep the latest states: a judge's prompts and a policy's take turns."""
    kept = sorted(folder.glob("state-*.bin"), key=lambda file: -file.stat().st_mtime)
    for other in kept[MOST_STATES:]:
        other.with_suffix(".sha256").unlink(missing_ok=True)
        other.unlink(missing_ok=True)


def _whole(file: Path, told: Path) -> bool:
    """Whether a file is there and is what the digest beside it says."""
    try:
        return told.read_text() == hash_of(file)
    except (OSError, UnicodeDecodeError):
        return False


def _start(path: Path, config: LlamaConfig, key: str) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = config.context_tokens * config.slots
    params.n_parallel = config.slots
    params.port = 0
    params.api_keys = [key]
    params.chat_template = "chatml"  # nothing is rendered by it
    params.verbosity = -1
    params.warmup = False
    params.cache_ram_mib = EARLIER_PROMPTS_MIB
    threads = config.threads or free_cores()
    for pool in (params.cpuparams, params.cpuparams_batch):
        pool.n_threads = threads
    if config.states is not None:
        params.slot_save_path = f"{config.states}/"
        params.endpoint_slots = True
    if config.adapter is not None:
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(config.adapter), 1.0)]
    return xllamacpp.Server(params)


def completion_request(prefix: Sequence[int], sampling: Sampling) -> dict[str, Any]:
    """What llama.cpp is asked for: one token after another, each with its log-probability."""
    request: dict[str, Any] = {
        "prompt": list(prefix),
        "stream": True,
        "timings_per_token": True,
        "n_predict": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "top_k": 0,
        "repeat_penalty": 1.0,
        "n_probs": 1,
        "cache_prompt": True,
    }
    if sampling.seed is not None:
        request["seed"] = sampling.seed & 0x7FFFFFFF
    if sampling.grammar is not None:
        request["grammar"] = sampling.grammar
    if sampling.dry is not None:
        # Strength and base are DRY's customary ones.
        request |= {"dry_multiplier": 0.8, "dry_base": 1.75, "dry_allowed_length": sampling.dry}
    return request


_STAT = Path("/proc/stat")
_SIBLINGS = Path("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
_IDLE = (3, 4)
"""columns of /proc/stat that are no work: idle, and waiting for a disk"""


def free_cores(seconds: float = 0.3) -> int:
    """Physical cores that no other process used during a look of so many seconds; at least 1."""
    cores = physical_cores()
    if not _STAT.exists():
        return cores
    busy, own = _busy_seconds(), time.process_time()
    time.sleep(seconds)
    others = (_busy_seconds() - busy - (time.process_time() - own)) / seconds
    return max(1, cores - round(max(others, 0.0)))


def physical_cores() -> int:
    """Cores this process may use, those with two hardware threads counted once."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    usable: int = len(affinity(0)) if affinity else os.cpu_count() or 1
    shared = _SIBLINGS.exists() and len(_SIBLINGS.read_text().replace("-", ",").split(",")) > 1
    return max(1, usable // (2 if shared and usable > 2 else 1))


def _busy_seconds() -> float:
    """Processor seconds that all processes together have used since the system started."""
    columns = [int(ticks) for ticks in _STAT.read_text().splitlines()[0].split()[1:9]]
    busy = sum(ticks for column, ticks in enumerate(columns) if column not in _IDLE)
    return busy / os.sysconf("SC_CLK_TCK")
