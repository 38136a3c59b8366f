"""How a model scores attempts against one another: by writing JSON, or by its probabilities."""

import hashlib

from pydantic import BaseModel, model_validator

from judge.choice_judge import expected
from judge.prompting import filled, prompt
from judge.relative import CHARACTERS, Attempts, Read
from judge.score_forms import GivenScore, id_fault, in_unit_range
from memory.asking import TRIES, ask_json
from memory.errors import JudgeError
from memory.interfaces import ChatModel, ChoiceReader, Message
from memory.schema import NO_USAGE, Usage
from memory.text import cut, fenced

DIGITS = tuple("0123456789")
CHARACTERS_A_TOKEN = 3
ASKED_TOKENS = 200
"""left free for the question about one attempt"""
SHRINK = 0.85


class ChatAttemptReader:
    """An `AttemptReader` over a chat server: one call for the whole group."""

    def __init__(
        self,
        model: ChatModel,
        rubric: str = "",
        tries: int = TRIES,
        characters: int = CHARACTERS,
    ) -> None:
        self._model = model
        self._rubric = rubric.strip() or prompt("relative_rubric")
        self._tries = tries
        self.characters = characters

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def rubric_version(self) -> str:
        return version_of(self._rubric)

    async def read(self, attempts: Attempts, seed: int) -> Read:
        names = [str(number) for number in range(1, len(attempts.texts) + 1)]

        class Scores(BaseModel):
            """The reply: exactly one entry for each number, on one scale."""

            scores: list[GivenScore]

            @model_validator(mode="after")
            def _whole(self) -> "Scores":
                if fault := id_fault([given.id for given in self.scores], names):
                    raise ValueError(fault)
                in_unit_range([given.score for given in self.scores])
                return self

        messages = [
            Message("system", filled("relative", rubric=self._rubric)),
            Message("user", shown(attempts)),
        ]
        reply, usage = await ask_json(self._model, messages, Scores, self._tries, seed=seed)
        ordered = sorted(reply.scores, key=lambda given: int(given.id))
        values = in_unit_range([given.score for given in ordered])
        said = (given.explanation for given in ordered)
        return Read(tuple(zip(values, said, strict=True)), usage)


class ChoiceAttemptReader:
    """An `AttemptReader` over probabilities: the expected grade of each attempt, 0 to 9, over 9.

    All attempts are one prefix that stays in the model's cache. It explains nothing.
    """

    def __init__(self, reader: ChoiceReader) -> None:
        self._reader = reader
        self.characters = reader.context_tokens * CHARACTERS_A_TOKEN

    @property
    def name(self) -> str:
        return self._reader.name

    @property
    def rubric_version(self) -> str:
        return version_of(prompt("relative_choice"))

    async def read(self, attempts: Attempts, seed: int) -> Read:
        before = await self._fitted(attempts)
        scores, usage = list[tuple[float, str]](), NO_USAGE
        for number in range(1, len(attempts.texts) + 1):
            text = f"{before}\n\nThe grade of attempt {number}, from 0 to 9?"
            prefix = await self._reader.render(_messages(text))
            chances = await self._reader.weigh(prefix, DIGITS)
            scores.append((expected(chances) / (len(DIGITS) - 1), ""))
            usage += Usage(prompt_tokens=len(prefix), cost=0.0, calls=1)
        return Read(tuple(scores), usage)

    async def _fitted(self, attempts: Attempts) -> str:
        """All attempts, cut alike until they leave room. Raises JudgeError if they never do."""
        most = self._reader.context_tokens - ASKED_TOKENS
        longest = max(map(len, (attempts.shared, *attempts.texts)))
        while longest > 60:
            texts = tuple(cut(text, longest) for text in attempts.texts)
            short = Attempts(attempts.question, cut(attempts.shared, longest), texts)
            tokens = len(await self._reader.render(_messages(shown(short))))
            if tokens <= most:
                return shown(short)
            longest = int(longest * min(SHRINK, most / tokens))
        raise JudgeError(
            "so many attempts do not fit the judge's context",
            "Raise context_tokens, judge smaller groups, or judge with a server's model.",
        )


def version_of(rubric: str) -> str:
    """Names a text of standards, as it is kept and looked up."""
    return f"relative-{hashlib.sha256(rubric.encode()).hexdigest()[:8]}"


def shown(attempts: Attempts) -> str:
    """The task, what is shared, then the attempts under their numbers."""
    parts = [fenced({"task": attempts.question})]
    if attempts.shared:
        parts.append(f"What all attempts have in common:\n{attempts.shared}")
    numbered = enumerate(attempts.texts, start=1)
    return "\n\n".join([*parts, *(f"Attempt {number}:\n{text}" for number, text in numbered)])


def _messages(text: str) -> list[Message]:
    return [Message("system", prompt("relative_choice")), Message("user", text)]
