"""What of a text fits the context of a local model."""

from collections.abc import Callable, Sequence

from memory.errors import JudgeError
from memory.interfaces import ChoiceReader, Message, TokenPolicy

CHARACTERS_PER_TOKEN = 4
LEAST_CHARACTERS = 200
SHRINK = 0.85


async def fitted(
    reader: ChoiceReader | TokenPolicy, messages_of: Callable[[int], Sequence[Message]], spare: int
) -> tuple[int, tuple[int, ...]]:
    """The most characters for which the messages leave `spare` tokens, and the messages' ids.

    `messages_of` makes messages that hold so many characters of what may be cut. Raises
    JudgeError where what may not be cut does not fit.
    """
    most = reader.context_tokens - spare
    characters = most * CHARACTERS_PER_TOKEN
    while characters > LEAST_CHARACTERS:
        prefix = await reader.render(messages_of(characters))
        if len(prefix) <= most:
            return characters, prefix
        characters = int(characters * min(SHRINK, most / len(prefix)))
    raise JudgeError(
        "the question alone fills the judge's context",
        "Raise context_tokens, or judge with a server's model.",
    )
