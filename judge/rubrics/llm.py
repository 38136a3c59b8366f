"""A rubric whose score a language model writes, and clients for such models.

The clients are OpenAI-compatible, or one of our chat models. Each counts its usage, also of calls
that failed. They have no cache and no limit on calls in flight; a `ChatClient` has the limits and
retries of its model. Callers can route the calls of an `LLMJudge` through a store of replies:
`asking_through`.

The template contains {action} and {observation}. Unless a pattern is given, the reply is read as
people write scores: `Score: 0.8`, `8/10`, `7 out of 10`, `40 %`, `0,7`. The last number counts that
is named a score; where none is, the last that is a line or a sentence by itself, one that the reply
begins with, or its last number, if that is within the scale and no part of a count. A denominator
or a percent sign divides it. Of "0.4 or 0.6" and "from 0.4 to 0.6" neither counts.
"""

import copy
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from string import Formatter
from typing import Any, Protocol

from rubricem.judge.rubrics.core import Rubric
from rubricem.memory.asking import chat_once
from rubricem.memory.errors import JudgeError, RubricemError, SettingsError, boundary
from rubricem.memory.schema import NO_USAGE, ChatModel, Message, Sampling, Usage
from rubricem.memory.text import one_line, split_thinking, without_markers

MOST_TOKENS, LONGER = 256, 4096
"""of one reply: OpenEnv's, and one that may give its reasons first"""
SLIGHTLY_ABOVE = 1.5
"""up to which a score beyond 1 is clipped, not taken to be on another scale"""
SHOWN = 120
"""characters quoted of a reply that could not be read"""
HOSTS = {"openai": "https://api.openai.com", "anthropic": "https://api.anthropic.com"}
"""by provider; both use OpenAI's protocol under /v1"""
Reply = dict[str, Any]
"""`text` and `usage`"""
Through = Callable[[str, Callable[[], Awaitable[Reply]]], Awaitable[Reply]]
"""Returns the stored reply of a call, which is named by everything it depends on, or makes it."""
_noted: ContextVar[list[Usage] | None] = ContextVar("noted", default=None)
_through: ContextVar[Through | None] = ContextVar("through", default=None)
_unread_raises: ContextVar[bool] = ContextVar("unread_raises", default=False)


class Completer(Protocol):
    """A model for a judge: an `LLMClient`, or anything with its one method."""

    async def complete(self, prompt: str, **kwargs: Any) -> str: ...


@contextmanager
def note_usage() -> Iterator[list[Usage]]:
    """The usage of the calls inside, with whichever client, also in tasks begun inside."""
    used: list[Usage] = []
    outside = _noted.set(used)
    try:
        yield used
    finally:
        _noted.reset(outside)


@contextmanager
def asking_through(through: Through) -> Iterator[None]:
    """Route calls inside, with whichever client, through this, also in tasks begun inside."""
    outside = _through.set(through)
    try:
        yield
    finally:
        _through.reset(outside)


@contextmanager
def unread_raises() -> Iterator[None]:
    """Make a judge inside raise if a reply has no readable score, also in tasks begun inside.

    A default score that was chosen, that is one other than OpenEnv's 0, still applies.
    """
    outside = _unread_raises.set(True)
    try:
        yield
    finally:
        _unread_raises.reset(outside)


async def ask_client(client: Completer, prompt: str) -> str:
    """The client's reply, through the store of replies if there is one."""
    if (through := _through.get()) is None:
        return await client.complete(prompt)

    async def ask() -> Reply:
        with note_usage() as used:
            try:
                text = await client.complete(prompt)
            except RubricemError as error:
                error.usage = error.usage or sum(used, NO_USAGE)
                raise
        return {"text": text, "usage": sum(used, NO_USAGE).model_dump(mode="json")}

    identity = getattr(client, "identity", type(client).__qualname__)
    try:
        reply = await through(f"rubric\0{identity}\0{prompt}", ask)
    except RubricemError as error:
        _note(error.usage or NO_USAGE)
        raise
    _note(Usage.model_validate(reply["usage"]))
    return str(reply["text"])


def _note(used: Usage) -> None:
    if (notes := _noted.get()) is not None:
        notes.append(used)


class _Counting:
    """Counts the usage of its calls."""

    usage: Usage = NO_USAGE
    """of all calls so far"""

    def _count(self, used: Usage) -> None:
        self.usage += used
        _note(used)


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
        """The model's reply to a prompt; `kwargs` apply to this one request."""


class OpenAIClient(LLMClient, _Counting):
    """Any server with OpenAI's chat protocol. Raises JudgeError without a reply.

    The error says whether the server is away. The cost of its calls is unknown.
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

    @property
    def identity(self) -> str:
        """What a reply depends on besides the prompt; not where the server is."""
        return f"{self.model}\0{self.system_prompt}\0{self.temperature}\0{self.max_tokens}"

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
        except JudgeError as error:
            from openai import APIConnectionError, InternalServerError, RateLimitError

            away = APIConnectionError | InternalServerError | RateLimitError
            error.away = isinstance(error.__cause__, away)
            raise
        finally:
            self._count(used)
        if not reply.choices:
            raise JudgeError(f"{self.model} at {self.base_url} sent a reply without any choice.")
        return reply.choices[0].message.content or ""

    async def aclose(self) -> None:
        await self._server.close()


class ChatClient(_Counting):
    """A chat model of ours as a judge's client. Raises PolicyError without a reply."""

    def __init__(
        self, model: ChatModel, system_prompt: str | None = None, max_tokens: int = LONGER
    ) -> None:
        self._model = model
        self._before = [] if system_prompt is None else [Message("system", system_prompt)]
        self._max_tokens = max_tokens

    @property
    def identity(self) -> str:
        """As an `OpenAIClient` has it."""
        return f"{self._model.name}\0{self._before}\0{self._max_tokens}"

    async def complete(self, prompt: str, **kwargs: Any) -> str:
        settings = {"temperature": 0.0, "max_tokens": self._max_tokens, **kwargs}
        messages = [*self._before, Message("user", prompt)]
        try:
            reply, used = await chat_once(self._model, messages, Sampling(**settings))
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


_NUMBER = r"[-+\u2212]?(?:\d+(?:[.,]\d+)?|[.,]\d+)(?:e[-+]?\d+)?"
_BEFORE = r"(?<![\w.,])(?<![\w.,][-+\u2212\u2013])"
_OF = (
    r"(?:\s*(?P<percent>%|percent\b)|\s*\(?\s*(?P<of>/|out\s+of\b|of\b)\s*(?:a\s+possible\s+)?"
    rf"(?P<whole>{_NUMBER}))?"
)
_VALUE = rf"{_BEFORE}(?P<value>{_NUMBER})(?!\w|[.,]\d|[-\u2013][\d.]){_OF}"
_ANY = re.compile(_VALUE, re.I)
_EITHER = rf"{_BEFORE}{_NUMBER}(?:\s*%|\s*/\s*{_NUMBER})?"
_UNDECIDED = re.compile(
    rf"\bbetween\s+{_EITHER}\s+and\s+{_EITHER}|{_EITHER}\s+(?:or|to)\s+(?:\w+\s+)?{_EITHER}", re.I
)
_ALONE = re.compile(rf"(?:^|(?<=[.!?:]\s))[^\w\n.,+\u2212-]*{_VALUE}[^\w\n]*$", re.I | re.M)
_FIRST = re.compile(rf"[^\w.,+\u2212-]*{_VALUE}", re.I)
_LABEL = r"\b(?:score|rating|grade|reward|overall)\b[\"'*_`\s]*(?:\([^()\n]*\)[\"'*_`\s]*)?"
_GIVEN, _LABELLED = (
    re.compile(rf"{_LABEL}{sign}[\"'*_`\s]*{_VALUE}", re.I)
    for sign in ("(?:[:=]|is|would be)", "(?:of|at)?")  # also "a score of 1 would need more"
)


def score_in(text: str, scale: float = 1.0) -> float | None:
    """The score as written, over `scale` or over the denominator that it states.

    None if there is no finite number that stands as a score.
    """
    said = _UNDECIDED.sub("either", split_thinking(text)[1])
    for named in (_GIVEN, _LABELLED, _ALONE):
        if scores := list(named.finditer(said)):
            return _value(scores[-1], scale)
    counts = [found for found in _ANY.finditer(said) if (found["of"] or "").lower() != "of"]
    found = _FIRST.match(said) or (counts[-1] if counts else None)
    score = None if found is None else _value(found, scale)
    return score if score is not None and 0 <= score <= 1 else None


def _value(found: re.Match[str], scale: float) -> float | None:
    score = _number(found["value"])
    whole = _number(found["whole"]) if found["whole"] else 100.0 if found["percent"] else scale
    return score / whole if whole > 0 and math.isfinite(score / whole) else None


def _number(text: str) -> float:
    return float(text.replace(",", ".").replace("\u2212", "-"))


_FIELDS = ("action", "observation")
_FIELD = re.compile(r"\{(action|observation)\}")


class LLMJudge(Rubric):
    """The number in the model's reply, divided by `scale`; `default_score` if there is none.

    A number that states its own denominator, as `8/10` or `80 %`, is divided by that alone.
    `score_pattern` is a regular expression: the number is in its first group, or in the whole match
    if it has none, at the first match. `normalize` then clips the score to [0, 1]; the default
    score is not clipped, and may be NaN for unknown; its 0 is OpenEnv's, but where our judges
    compose rewards a missing score is an error instead (`unread_raises`): a failure is no bad
    score. `scale` is the best score that the prompt allows, such as 10. What the client raises is
    raised.
    """

    _state_names = ("prompt_template", "score_pattern", "default_score", "normalize", "scale")

    def __init__(
        self,
        prompt_template: str,
        client: Completer,
        *,
        score_pattern: str | None = None,
        default_score: float = 0.0,
        normalize: bool = True,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.prompt_template = prompt_template
        self.default_score = default_score
        self.normalize = normalize
        self.scale = scale
        self._client = client
        self.score_pattern = score_pattern

    @property
    def scale(self) -> float:
        """Above 0."""
        return self._scale

    @scale.setter
    def scale(self, scale: float) -> None:
        if not 0 < scale < math.inf:
            raise ValueError(f"scale must be a number above 0, not {scale}")
        self._scale = scale

    @property
    def score_pattern(self) -> str | None:
        return self._score_pattern.pattern if self._score_pattern else None

    @score_pattern.setter
    def score_pattern(self, pattern: str | None) -> None:
        self._score_pattern = None if pattern is None else re.compile(pattern)

    async def forward(self, action: Any, observation: Any) -> float:
        template, values = self.prompt_template, {"action": action, "observation": observation}
        # Braces that are no field, as in an example of JSON, stay as they are.
        filled = (
            template.format(**values)
            if _is_format(template)
            else _FIELD.sub(lambda field: str(values[field[1]]), template)
        )
        prompt = without_markers(filled)
        reply = await ask_client(self._client, prompt)
        score = self._read(reply)
        beyond = self.normalize and score is not None and score > SLIGHTLY_ABOVE
        # Clipped, a score on another scale than the one asked for would be the best of its group.
        if score is None or (beyond and _unread_raises.get()):
            if _unread_raises.get() and not self.default_score:
                raise JudgeError(
                    f"no score can be read in its model's reply {one_line(reply, SHOWN)!r}",
                    "Have the prompt ask for a number up to scale, or give score_pattern.",
                )
            return self.default_score
        return min(max(score, 0.0), 1.0) if self.normalize else score

    def __deepcopy__(self, memo: dict[int, Any]) -> "LLMJudge":
        # A client is a connection, which copies share.
        memo[id(self._client)] = self._client
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def _read(self, reply: str) -> float | None:
        """The score over `scale`."""
        if self._score_pattern is None:
            return score_in(reply, self.scale)
        found = self._score_pattern.search(reply)
        if found is None:
            return None
        try:
            return float(found[1] if found.lastindex else found[0]) / self.scale
        except (TypeError, ValueError):
            return None


def _is_format(template: str) -> bool:
    """Whether str.format can fill it, so that {{ and fields such as {action.text} work."""
    try:
        names = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError:
        return False
    return all(re.split(r"[.\[]", name, maxsplit=1)[0] in _FIELDS for name in names)
