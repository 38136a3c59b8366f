"""A `ChatModel` over any OpenAI-compatible server.

Import this module only where such a server is used: aiohttp takes a fifth of a second.
The end of a text is found by the caller's predicate, never by the server's `stop`; the stream
is then closed.
"""

from collections.abc import Sequence

from agent.servers.chat_reading import Reading, reckoned, tokens_of
from agent.servers.chat_request import Dialect
from agent.servers.chat_server import ChatServer
from agent.servers.endpoint import Endpoint
from agent.servers.limiter import Limiter
from agent.servers.listening import Listener
from agent.servers.model_server import ModelServer
from agent.servers.prices import Prices, cost
from agent.servers.retrying import AttemptError, Retry
from agent.servers.server_errors import Server
from agent.servers.trying import Tries
from memory.errors import PolicyError, SettingsError
from memory.interfaces import Completion, Message, OnText, Sampling, StopPredicate
from memory.schema import Usage


class OpenAIChat:
    """One model on one server. `timeout` is for the first token and between pieces, in seconds.

    `think_is_reasoning` takes `<think>` at the start of a reply as the model's own thinking;
    leave it off for a policy whose turns begin with that tag.
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
        think_is_reasoning: bool = False,
        key_variable: str = "OPENAI_API_KEY",
    ) -> None:
        endpoint = Endpoint.parse(base_url)
        self.model = model
        self.name = f"{model}@{endpoint.host}"
        self._server = Server(endpoint, model, key_variable, api_key or "")
        self.price = prices.of(model, endpoint.host)
        self._listener = Listener(self._server, timeout)
        self._tries = Tries(limiter, retry)
        self._http = ChatServer(self._server, Dialect(model))
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

        async def attempt() -> Reading:
            reading = Reading(stop, on_text, self._think_is_reasoning)
            await self._listener.hear(
                reading,
                lambda: self._http.open(messages, sampling),
                self._http.next,
                lambda: self._usage(reading, messages),
            )
            try:
                self._check(reading, sampling)
            except AttemptError as failed:
                failed.usage = self._usage(reading, messages)
                raise
            return reading

        reading, spent = await self._tries.call(attempt)
        return reading.completion(spent + self._usage(reading, messages))

    def _check(self, reading: Reading, sampling: Sampling) -> None:
        """Raises AttemptError unless there is something in the reply."""
        if reading.finish == "content_filter" and not reading.ended:
            raise self._server.filtered()
        if reading.text.strip() or reading.ended == "stop":
            return
        if reading.finish == "length":
            raise self._server.endless_thought(sampling.max_tokens)
        raise self._server.wordless()

    def _usage(self, reading: Reading, messages: Sequence[Message]) -> Usage:
        """As the server tells it; what costs money and is not told is reckoned from the texts.

        Whoever keeps to a limit of money would else take a reply that was cut off for free.
        """
        used = tokens_of(reading.usage)
        if not reading.usage:
            if self.price is None:
                return used
            used = reckoned((m.content for m in messages), reading.reasoning + reading.raw)
        return used.model_copy(update={"cost": cost(used, self.price)})


async def only_model(base_url: str, api_key: str | None) -> str:
    """The id of the one model that a server lists.

    Raises SettingsError if it lists another number of them, PolicyError if it does not answer.
    """
    server = Server(Endpoint.parse(base_url), "", "OPENAI_API_KEY", api_key or "")
    http = ModelServer(server)
    try:
        known = [str(model["id"]) for model in await http.models()]
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
