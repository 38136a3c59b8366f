"""A `ChatModel` over any OpenAI-compatible server.

Import this module only where such a server is used: the `openai` package takes half a second.
The end of a text is found by the caller's predicate, never by the server's `stop`; the stream
is then closed. Retries happen here and nowhere else.
"""

import asyncio
import logging
import random
from collections.abc import Sequence

from agent.servers.chat_reading import LATE_SECONDS, Reading, tokens_of
from agent.servers.chat_request import Dialect
from agent.servers.chat_server import ChatServer, Stream
from agent.servers.endpoint import Endpoint
from agent.servers.limiter import Limiter
from agent.servers.prices import Prices, cost
from agent.servers.retrying import AttemptError, Retry
from agent.servers.server_errors import Server
from memory.errors import PolicyError, SettingsError
from memory.interfaces import Completion, Message, OnText, Sampling, StopPredicate
from memory.schema import NO_USAGE, Usage

log = logging.getLogger(__name__)


class OpenAIChat:
    """One model on one server. `timeout` is for the first token and between pieces, in seconds.

    `token_detail` asks for token ids and log-probabilities. `think_is_reasoning` takes
    `<think>` at the start of a reply as the model's own thinking; leave it off for a policy
    whose turns begin with that tag.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        api_key: str | None,
        *,
        limiter: Limiter,
        prices: Prices,
        timeout: float = 120.0,
        retry: Retry | None = None,
        token_detail: bool = False,
        think_is_reasoning: bool = False,
        key_variable: str = "OPENAI_API_KEY",
    ) -> None:
        endpoint = Endpoint.parse(base_url)
        self.model = model
        self.name = f"{model}@{endpoint.host}"
        self._server = Server(endpoint, model, key_variable, api_key or "")
        self._limiter = limiter
        self.price = prices.of(model, endpoint.host)
        self._timeout = timeout
        self._retry = retry or Retry()
        self._http = ChatServer(self._server, Dialect(model, token_detail))
        self._think_is_reasoning = think_is_reasoning

    def __repr__(self) -> str:
        return f"OpenAIChat({self.name!r})"

    async def aclose(self) -> None:
        await self._http.aclose()

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        """The reply, tried as often as `retry` allows; usage includes the failed tries'.

        `on_text` has already been given the pieces of a try that failed later. Raises
        PolicyError.
        """
        spent, waited, tried = NO_USAGE, 0.0, 0
        while True:
            tried += 1
            reading = Reading(stop, on_text, self._think_is_reasoning)
            try:
                async with self._limiter.slot():
                    usage = await self._attempt(messages, sampling, reading)
                return reading.completion(spent + usage)
            except AttemptError as failed:
                spent += failed.usage
                wait = self._wait(failed, tried, waited, spent)
            await asyncio.sleep(wait)
            waited += wait

    def _wait(self, failed: AttemptError, tried: int, waited: float, spent: Usage) -> float:
        """Seconds until the next try; raises PolicyError, with what was paid, if there is none."""
        wait = self._retry.wait(tried, failed.asked, random.random())
        # A pause that no caller has the patience for would only hold them all up.
        if failed.crowded and wait <= self._retry.total:
            self._limiter.pause(wait)
        if not failed.again or tried >= self._retry.tries or waited + wait > self._retry.total:
            times = f", also at try {tried}" if tried > 1 else ""
            error = PolicyError(f"{failed}{times}", failed.remedy, spent)
            error.away = failed.away
            raise error from None
        log.info("%s; try %d follows in %.1f s", failed, tried + 1, wait)
        return wait

    async def _attempt(
        self, messages: Sequence[Message], sampling: Sampling, reading: Reading
    ) -> Usage:
        """One try: fills `reading` and returns what it cost. Raises AttemptError."""
        begun = False
        try:
            async with asyncio.timeout(self._timeout) as deadline:
                async with await self._http.open(messages, sampling) as stream:
                    begun = True
                    await self._read(stream, reading, deadline)
            self._check(reading, sampling)
        except TimeoutError:
            if not reading.complete:
                failed = self._server.silent(self._timeout)
                failed.usage = self._usage(reading) if begun else NO_USAGE
                raise failed from None
        except AttemptError as failed:
            failed.usage = self._usage(reading) if begun else NO_USAGE
            raise
        return self._usage(reading)

    async def _read(self, stream: Stream, reading: Reading, deadline: asyncio.Timeout) -> None:
        """Read to the end, or until a text that has ended goes on all the same."""
        now = asyncio.get_running_loop().time
        while not reading.overdue:
            ended = reading.ended
            try:
                delta = await self._http.next(stream)
            except AttemptError:
                if reading.complete:
                    return
                raise
            if delta is None:
                return
            reading.take(delta)
            if not ended:
                deadline.reschedule(now() + (LATE_SECONDS if reading.ended else self._timeout))

    def _check(self, reading: Reading, sampling: Sampling) -> None:
        """Raises AttemptError unless a whole reply has arrived, with something in it."""
        if not reading.complete:
            raise self._server.cut("")
        if reading.finish == "content_filter" and not reading.ended:
            raise self._server.filtered()
        if reading.text.strip() or reading.ended == "stop":
            return
        if reading.finish == "length":
            raise self._server.endless_thought(sampling.max_tokens)
        raise self._server.wordless()

    def _usage(self, reading: Reading) -> Usage:
        used = tokens_of(reading.usage)
        if not reading.usage:
            return used
        return used.model_copy(update={"cost": cost(used, self.price)})


async def only_model(base_url: str, api_key: str | None) -> str:
    """The id of the one model that a server lists.

    Raises SettingsError if it lists another number of them, PolicyError if it does not answer.
    """
    server = Server(Endpoint.parse(base_url), "", "OPENAI_API_KEY", api_key or "")
    http = ChatServer(server, Dialect(""))
    try:
        known = await http.models()
    except AttemptError as failed:
        raise PolicyError(str(failed), failed.remedy) from None
    finally:
        await http.aclose()
    if len(known) == 1:
        return known[0]
    listed = f": {', '.join(known[:5])}{', ...' if len(known) > 5 else ''}" if known else ""
    raise SettingsError(
        f"{server.endpoint.url} lists {len(known)} models{listed}", "Name one of them (--model)."
    )
