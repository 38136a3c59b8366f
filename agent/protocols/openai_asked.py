"""What is asked through OpenAI's interface: a question, and what was said before it.

The last message is the question. What a run cannot do - call the caller's tools, look at
pictures, answer several times over - is refused by name. How the text is sampled is this
server's own setting, so `temperature` and its like are read and not used; messages of `system`
and `developer` speak to a chat model and are passed over.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.protocols.openai_errors import Unfit
from agent.question import LONGEST_QUESTION
from agent.serve.asked import RunAsked

MODEL = "rubricem"
"""the one model that there is, whatever model writes behind it"""
_PASSED_OVER = ("system", "developer")
_TEXTS = ("text", "input_text", "output_text")
LONGEST_TURN = 3000
"""characters of an earlier message, where it is told as text"""
MOST_TURNS = 6
"""earlier messages that are told so, as far as the question leaves room for them"""
_BEFORE = "What was said before this question:"

_EMPTY: tuple[Any, ...] = (None, False, [], {}, "", "none", "auto", 0)


class Asked(BaseModel):
    """The fields that both kinds of request share; unknown ones are passed over."""

    model_config = ConfigDict(extra="allow", frozen=True)

    model: str = MODEL
    stream: bool = False
    rubricem: dict[str, Any] | None = None
    """what a run may be given besides: `format`, `source`, `max_seconds` and so on"""

    def refuse(self, kinds: Mapping[str, str]) -> None:
        """Raise Unfit where the model is another, or a field asks for what there is not."""
        if self.model != MODEL:
            message = f"The model {self.model[:80]!r} does not exist; use {MODEL!r}."
            raise Unfit(message, "model", "model_not_found", 404)
        for name, said in kinds.items():
            if (self.model_extra or {}).get(name) not in _EMPTY:
                raise Unfit(f"{name} is not supported: {said}.", name, "unsupported_parameter")

    def run(self, question: str, conversation: str | None) -> RunAsked:
        """The run that is asked for; nobody is there to decide on its plan."""
        options = {**(self.rubricem or {}), "approve_plan": False, "clarify": False}
        thread = conversation or options.get("thread")
        try:
            return RunAsked.model_validate({**options, "question": question, "thread": thread})
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(["rubricem", *map(str, first["loc"])])
            raise Unfit(f"{place}: {first['msg']}.", place) from error


class StreamOptions(BaseModel):
    include_usage: bool = False


class ChatAsked(Asked):
    """The body of a chat completion."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    n: int | None = None
    stream_options: StreamOptions | None = None


class ResponseAsked(Asked):
    """The body of a response."""

    input: str | list[dict[str, Any]]
    previous_response_id: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One message: who said what."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A question and the messages before it, the latest last."""

    question: str
    earlier: tuple[Turn, ...] = ()

    def as_question(self) -> str:
        """The question with what was said before as text, for a thread that no run is known of."""
        if not self.earlier:
            return self.question
        said, room = list[str](), LONGEST_QUESTION - len(self.question) - len(_BEFORE) - 2
        for turn in reversed(self.earlier[-MOST_TURNS:]):
            line = f"{turn.role.capitalize()}: {_cut(turn.text)}"
            room -= len(line) + 2
            if room < 0:
                break
            said.append(line)
        return "\n\n".join([self.question, _BEFORE, *reversed(said)]) if said else self.question


def dialogue(messages: Sequence[Mapping[str, Any]], place: str) -> Dialogue:
    """The question of a list of messages. Raises Unfit unless a text of the user comes last."""
    turns = [
        _turn(message, f"{place}.{at}")
        for at, message in enumerate(messages)
        if message.get("role") not in _PASSED_OVER and message.get("type") != "reasoning"
    ]
    if not turns or turns[-1].role != "user":
        raise Unfit("The last message must be the user's: it is the question.", place)
    return Dialogue(turns[-1].text, tuple(turns[:-1]))


def _turn(message: Mapping[str, Any], place: str) -> Turn:
    role = message.get("role")
    if role not in ("user", "assistant") or message.get("tool_calls"):
        said = role if isinstance(role, str) else message.get("type")
        raise Unfit(f"{place}: a message of {said!r} is not supported.", place)
    content = message.get("content")
    if isinstance(content, str):
        return Turn(role, content)
    if not isinstance(content, list):
        raise Unfit(f"{place}.content must be a text or a list of texts.", f"{place}.content")
    return Turn(role, "\n".join(_part(part, f"{place}.content") for part in content))


def _part(part: Any, place: str) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind not in _TEXTS or not isinstance(part.get("text"), str):
        raise Unfit(
            f"{place}: a part of type {kind!r} is not supported: only text is read.",
            place,
            "unsupported_content",
        )
    text: str = part["text"]
    return text


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TURN else text[:LONGEST_TURN] + " ..."
