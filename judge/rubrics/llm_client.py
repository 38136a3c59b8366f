"""Clients for a judge that asks a language model: OpenAI-compatible, or one of our chat models.

Each counts what it used, also for calls that failed. They hold no cache and no limit on how
many calls are in flight; a `ChatClient` has the limits and retries of the model it stands on.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from memory.asking import counted
from memory.errors import JudgeError, RubricemError, SettingsError, boundary
from memory.interfaces import ChatModel, Message, Sampling
from memory.schema import NO_USAGE, Usage

MOST_TOKENS = 256
"""of one reply"""
HOSTS = {"openai": "https://api.openai.com", "anthropic": "https://api.anthropic.com"}
"""by provider; both speak OpenAI's protocol under /v1"""
_noted: ContextVar[list[Usage] | None] = ContextVar("noted", default=None)


@contextmanager
def noted() -> Iterator[list[Usage]]:
    """What the calls inside use, whichever client makes them, in tasks begun inside as well."""
    used: list[Usage] = []
    outside = _noted.set(used)
    try:
        yield used
    finally:
        _noted.reset(outside)


class _Counting:
    """Counts what its calls use."""

    usage: Usage = NO_USAGE
    """of all calls so far"""

    def _count(self, used: Usage) -> None:
        self.usage += used
        if (notes := _noted.get()) is not None:
            notes.append(used)


class LLMClient(ABC):
    """A model at an endpoint and port."""

    def __init__(self, endpoint: str, port: int) -> None:
        self.endpoint = endpoint
        self.port = port

    @property
    def base_url(self) -> str:
        return f"{self.endpoint}:{self.port}"

    @abstractmethod
    async def complete(self, prompt: str, **kwargs: Any) -> str:
        """The model's reply to a prompt; `kwargs` go with this one request."""


class OpenAIClient(LLMClient, _Counting):
    """Any server that speaks OpenAI's chat protocol. Raises JudgeError when it gives no reply.

    What its calls cost is not known.
    """

    def __init__(
        self,
        endpoint: str,
        port: int,
        model: str,
        api_key: str | None = None,
        system_prompt: str | None = None,
        temperature: float = 0.0,
        max_tokens: int = MOST_TOKENS,
    ) -> None:
        from openai import AsyncOpenAI

        super().__init__(endpoint, port)
        self.model = model
        self.system_prompt = system_prompt
        self.temperature = temperature
        self.max_tokens = max_tokens
        key = "not-needed" if api_key is None else api_key
        self._server = AsyncOpenAI(base_url=f"{self.base_url}/v1", api_key=key)

    async def complete(self, prompt: str, **kwargs: Any) -> str:
        settings = {"temperature": self.temperature, "max_tokens": self.max_tokens, **kwargs}
        messages = [{"role": "user", "content": prompt}]
        if self.system_prompt is not None:
            messages.insert(0, {"role": "system", "content": self.system_prompt})
        create: Any = self._server.chat.completions.create
        used = Usage(calls=1)
        try:
            with boundary(JudgeError, f"Asking {self.model} at {self.base_url}"):
                reply = await create(model=self.model, messages=messages, **settings)
            if reply.usage is not None:
                used += Usage(
                    prompt_tokens=reply.usage.prompt_tokens,
                    completion_tokens=reply.usage.completion_tokens,
                )
        finally:
            self._count(used)
        if not reply.choices:
            raise JudgeError(f"{self.model} at {self.base_url} sent a reply without any choice.")
        return reply.choices[0].message.content or ""

    async def aclose(self) -> None:
        await self._server.close()


class ChatClient(_Counting):
    """A chat model of ours, asked as a judge's client. Raises PolicyError without a reply."""

    def __init__(
        self, model: ChatModel, system_prompt: str | None = None, max_tokens: int = MOST_TOKENS
    ) -> None:
        self._model = model
        self._before = [] if system_prompt is None else [Message("system", system_prompt)]
        self._max_tokens = max_tokens

    async def complete(self, prompt: str, **kwargs: Any) -> str:
        settings = {"temperature": 0.0, "max_tokens": self._max_tokens, **kwargs}
        messages = [*self._before, Message("user", prompt)]
        try:
            reply, used = await counted(self._model, messages, Sampling(**settings))
        except RubricemError as error:
            self._count(error.usage or NO_USAGE)
            raise
        self._count(used)
        return reply.text


def create_llm_client(
    provider: str,
    model: str,
    api_key: str,
    *,
    system_prompt: str | None = None,
    temperature: float = 0.0,
    max_tokens: int = MOST_TOKENS,
) -> OpenAIClient:
    """A client for a hosted provider, openai or anthropic. Raises SettingsError for another."""
    host = HOSTS.get(provider.lower())
    if host is None:
        raise SettingsError(
            f"No judge's provider is called {provider!r}.",
            f"Name one of {', '.join(HOSTS)}, or make an OpenAIClient for a server of your own.",
        )
    return OpenAIClient(host, 443, model, api_key, system_prompt, temperature, max_tokens)
