"""What a pairwise judge writes, and models that write it by script."""

from collections.abc import Callable, Sequence

from judge.pairwise import Preference
from memory.errors import PolicyError
from memory.interfaces import Completion, Message, OnText, Sampling, StopPredicate, StopReason
from memory.schema import Usage

PAID = Usage(prompt_tokens=100, completion_tokens=20, cost=0.5, calls=1)


def chain(verdict: str, evaluation: str = "The first names the rule.") -> str:
    """A whole chain of rubrics with the given verdict."""
    return (
        "<type>Chat</type>\n<rubric>\n1. Accuracy (60%)\n2. Clarity (40 %)\n"
        "<justify>What is wrong helps nobody.</justify>\n</rubric>\n"
        f"<eval>{evaluation}</eval>\n<answer>[[{verdict}]]</answer>"
    )


class ScriptedChat:
    """A chat model that replies by list or by function; a None is a server that is down."""

    name = "scripted"

    def __init__(
        self,
        script: Sequence[str | None] | Callable[[str], str | None],
        stop_reason: StopReason = "stop",
    ) -> None:
        self.script = script
        self.stop_reason = stop_reason
        self.asked: list[Sequence[Message]] = []

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        self.asked.append(list(messages))
        reply = (
            self.script(messages[1].content)
            if callable(self.script)
            else self.script[len(self.asked) - 1]
        )
        if reply is None:
            raise PolicyError("the server is down", "Start it.")
        return Completion(reply, self.stop_reason, usage=PAID)


class RuledComparer:
    """Prefers by a function of what is shown first and second: A, B or None."""

    name = "ruled"

    def __init__(self, rule: Callable[[str, str], str | None]) -> None:
        self.rule = rule
        self.shown: list[tuple[str, str]] = []

    async def prefer(self, question: str, first: str, second: str) -> Preference:
        self.shown.append((first, second))
        winner = self.rule(first, second)
        if winner is None:
            return Preference(None, "it names no winner", usage=PAID)
        return Preference("A" if winner == "A" else "B", f"{winner} is better", usage=PAID)


def longer(first: str, second: str) -> str:
    return "A" if len(first) > len(second) else "B"


def place(first: str, second: str) -> str:
    """A judge that looks at the place alone."""
    return "A"
