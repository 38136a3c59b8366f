"""The pairwise judge over a chat server: it writes a chain of rubrics that ends in a verdict."""

from collections.abc import Sequence

from judge.answers import CHARACTERS, QUESTION_CHARACTERS
from judge.pairwise import Preference
from judge.pairwise_parsing import Chain, parse_chain, real_quotes, without_tags
from judge.prompting import prompt
from memory.asking import MOST_TOKENS, TRIES, Forgetting, counted, spent
from memory.errors import RubricemError
from memory.interfaces import ChatModel, Completion, Message, Sampling
from memory.schema import NO_USAGE
from memory.text import cut, fenced, without_markers

SHOWN_CHARACTERS = 4_000
"""of a text without a verdict that is shown to the model again"""
REASON_CHARACTERS = 600


class ChatComparer:
    """A `Comparer` over a chat server."""

    def __init__(self, model: ChatModel, tries: int = TRIES, characters: int = CHARACTERS) -> None:
        self._model = model
        self._tries = tries
        self._characters = characters

    @property
    def name(self) -> str:
        return self._model.name

    async def prefer(self, question: str, first: str, second: str) -> Preference:
        """The model's verdict; asked for again, with what was wrong, while there is none."""
        asked = shown_pair(question, first, second, self._characters)
        messages = [Message("system", prompt("pairwise")), Message("user", asked)]
        talk, used, fault, text = list(messages), NO_USAGE, "", ""
        for attempt in range(self._tries):
            sampling = Sampling(max_tokens=MOST_TOKENS, temperature=0.0, seed=attempt)
            try:
                reply, used = await counted(self._model, talk, sampling, used)
            except RubricemError as error:
                return Preference(None, f"{error} {error.remedy}".strip(), usage=spent(error))
            text, chain = reply.text, parse_chain(reply.text)
            if chain.verdict is not None:
                reason = reason_of(chain, first, second)
                return Preference(chain.verdict, reason, chain=chain, text=reply.text, usage=used)
            if isinstance(self._model, Forgetting):
                await self._model.forget(talk, sampling)
            fault = _fault(reply)
            talk = [*messages, *_correction(reply.text, fault)]
        said = f"{self.name} named no winner in {self._tries} tries: {fault}"
        return Preference(None, said, text=text, usage=used)


def shown_pair(question: str, first: str, second: str, characters: int) -> str:
    """Question and replies, fenced, with the judge's own tags disarmed; long replies are cut."""
    room = max(characters // 2, characters - min(len(first), len(second)))
    return fenced(
        {
            "request": cut(question, QUESTION_CHARACTERS),
            "reply A": cut(without_tags(first), room),
            "reply B": cut(without_tags(second), room),
        }
    )


def _fault(reply: Completion) -> str:
    if reply.stop_reason == "length":
        return "it was cut off before its verdict; write less"
    return "it does not end in <answer>[[A]]</answer> or <answer>[[B]]</answer>"


def _correction(reply: str, fault: str) -> Sequence[Message]:
    """The text without a verdict, and what it lacks; servers refuse an empty message."""
    again = f"That reply cannot be used: {fault}. Write the whole comparison again."
    said = [Message("assistant", cut(reply, SHOWN_CHARACTERS))] if reply.strip() else []
    return [*said, Message("user", again)]


def reason_of(chain: Chain, first: str, second: str) -> str:
    """Its rubric and evaluation, or what comes closest; and whether its quotes are real."""
    why = " ".join((chain.evaluation or chain.solution).split())
    shown = (without_markers(without_tags(reply)) for reply in (first, second))
    invented = len(chain.quotes) - len(real_quotes(chain, *shown))
    told = f"({invented} of its {len(chain.quotes)} quotes do not stand there.)"
    parts = (_rubric(chain), cut(why, REASON_CHARACTERS), told if invented else "")
    return " ".join(filter(None, parts))


def _rubric(chain: Chain) -> str:
    """The standard that the judge set itself, in one line."""
    items = [
        item.text if item.percent is None else f"{item.text} ({item.percent:g}%)"
        for item in chain.rubric
    ]
    return f"By {cut('; '.join(items), REASON_CHARACTERS)}:" if items else ""
