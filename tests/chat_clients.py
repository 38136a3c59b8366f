"""Clients of a scripted server, with waits short enough for tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agent.servers.limiter import Limiter
from agent.servers.openai_chat import OpenAIChat
from agent.servers.prices import Prices
from agent.servers.retrying import Retry
from memory.interfaces import Message, Sampling
from tests.waiting import PATIENCE

ASKED = [Message("system", "Be brief."), Message("user", "What is evicted first?")]
SAMPLING = Sampling(max_tokens=64, temperature=0.5)
QUICK = Retry(tries=4, first=0.01, longest=0.05, total=5.0)
KEY = "sk-very-secret-0123456789"


@asynccontextmanager
async def client(base_url: str, **options: Any) -> AsyncIterator[OpenAIChat]:
    """An OpenAIChat with the model name `scripted`, closed at the end."""
    defaults: dict[str, Any] = {
        "api_key": KEY,
        "limiter": Limiter(8),
        "prices": Prices(),
        "timeout": PATIENCE,
        "retry": QUICK,
    }
    chat = OpenAIChat("scripted", base_url, **(defaults | options))
    try:
        yield chat
    finally:
        await chat.aclose()
