"""Where a text that a model is still writing must end, whatever the model intends.

Small models fall into endless repetition: the tail of the text becomes one block, written
again and again until the token limit. Every model client looks for that as text arrives.
"""

LONGEST_BLOCK = 120
SHORTEST_TAIL = 240
REPEATS = 4
SAME_CHARACTER = 200
CHECK_EVERY = 64
"""New characters between two looks; one look costs some 20 microseconds."""


def looping(text: str) -> bool:
    """Whether the text ends in one block written at least four times over 240 characters.

    Blocks are of 2 to 120 characters, and the last one may be cut short; one and the same
    character 200 times counts as well. Only the last 480 characters are looked at.
    """
    tail = text[-LONGEST_BLOCK * REPEATS :]
    if len(tail) >= SAME_CHARACTER and tail.endswith(tail[-1] * SAME_CHARACTER):
        return True
    return any(_repeats(tail, block) for block in range(2, LONGEST_BLOCK + 1))


def _repeats(tail: str, block: int) -> bool:
    """Whether a whole span at the end has the period `block`."""
    span = max(SHORTEST_TAIL, block * REPEATS)
    if len(tail) < span or tail[-1] != tail[-1 - block]:
        return False
    return tail[-span:-block] == tail[block - span :]
