"""Chains of rubrics written by teachers: the right ones are kept, the wrong ones redone once.

A first teacher compares a pair as any judge does. Where its verdict is wrong, or there is none, a
second one is shown the right verdict and the wrong trace, and writes it anew; what is still not
right is dropped (RM-R1, arXiv:2505.02387, section 3.2).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files

from agent.prompting import fill
from judge.answers import CHARACTERS
from judge.building import JudgeModel, LocalModel
from judge.fitting import fitted
from judge.pairwise_forms import ChainForm, chain_messages, verdict_end
from judge.pairwise_parsing import Side, verdict_of, without_tags
from memory.errors import JudgeError, PolicyError
from memory.interfaces import Completion, Message, Sampling
from memory.schema import Value
from memory.text import cut, fenced
from training.judge_training.pairs import ShownPair

FAILED = "the teacher failed"
WRONG_CHARACTERS = 20_000
"""of a wrong trace that is shown to the second teacher"""
MessagesOf = Callable[[int], Sequence[Message]]
"""From the characters that there is room for to what is asked."""


class Trace(Value):
    """A comparison that arrives at the right verdict."""

    pair: str
    better: Side
    text: str
    teacher: str
    redone: bool = False
    """written by the second teacher, who knew the verdict"""


@dataclass(frozen=True, slots=True)
class Teacher:
    """A model that writes comparisons: one that answers messages, or continues token ids."""

    model: JudgeModel
    max_tokens: int

    async def write(self, messages_of: MessagesOf) -> Completion:
        """Raises PolicyError where the model fails, JudgeError where the pair is too long."""
        sampling = Sampling(max_tokens=self.max_tokens, temperature=0.0, seed=0)
        model = self.model
        if isinstance(model, LocalModel):
            _, prefix = await fitted(model, messages_of, self.max_tokens)
            return await model.complete(prefix, sampling, verdict_end)
        return await model.chat(messages_of(CHARACTERS), sampling)


@dataclass(frozen=True, slots=True)
class Teachers:
    """Who writes traces, and in which form."""

    form: ChainForm
    first: Teacher
    second: Teacher | None = None

    async def trace(self, pair: ShownPair) -> Trace | str:
        """The trace of a pair, or the reason why there is none."""
        asked = partial(chain_messages, self.form, pair.question, pair.first, pair.second)
        try:
            said = await self.first.write(asked)
            if not (wrong := _wrong(said, pair.better)):
                return _trace(pair, said, self.first)
            if self.second is None:
                return wrong
            said = await self.second.write(partial(_redoing, asked, said.text, wrong, pair.better))
        except (PolicyError, JudgeError) as error:
            return f"{FAILED}: {error}"
        if still := _wrong(said, pair.better):
            return f"{still}, also when it was redone"
        return _trace(pair, said, self.second, redone=True)


def _wrong(said: Completion, better: Side) -> str:
    """What is wrong with a trace, as the end of a sentence about it; empty where nothing is."""
    if said.stop_reason == "length":
        return "was cut off by its limit of tokens"
    verdict = verdict_of(said.text)
    if verdict is None:
        return "named no winner"
    return "" if verdict == better else "named the other reply"


def _trace(pair: ShownPair, said: Completion, by: Teacher, redone: bool = False) -> Trace:
    text = said.text[: verdict_end(said.text)].rpartition("</think>")[2].strip()
    return Trace(pair=pair.id, better=pair.better, text=text, teacher=by.model.name, redone=redone)


def _redoing(
    asked: MessagesOf, trace: str, fault: str, better: Side, characters: int
) -> list[Message]:
    """The pair as before, the wrong trace, and what is known of it."""
    # The wrong trace takes its share of the room: a part of what there is, at most.
    room = min(characters // 4, WRONG_CHARACTERS)
    system, user = asked(characters - room)
    earlier = fenced({"earlier comparison": cut(without_tags(trace), room)})
    told = fill(_redo(), {"fault": fault, "better": better})
    return [system, Message("user", f"{user.content}\n\n{earlier}\n\n{told}")]


@cache
def _redo() -> str:
    path = files("training") / "prompts" / "redo_trace.md"
    return path.read_text(encoding="utf-8").strip()
