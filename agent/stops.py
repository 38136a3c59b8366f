"""Where a text that a model is still writing must end, whatever the model intends.

Small models fall into endless repetition: the tail of the text becomes one block, written
again and again until the token limit. Every model client looks for that as text arrives.
"""

from collections.abc import Iterator

SHORTEST_BLOCK, LONGEST_BLOCK = 2, 120
SHORTEST_TAIL = 240
REPEATS = 4
SAME_CHARACTER = 200
CHECK_EVERY = 64
"""new characters between two looks"""
KEY = 16
"""characters that must recur before a block is compared"""


def looping(text: str) -> bool:
    """Whether the text ends in one block written at least four times over 240 characters.

    Blocks are of 2 to 120 characters, and the last one may be cut short; one and the same
    character 200 times counts as well. Only the last 480 characters are looked at.
    """
    tail = text[-LONGEST_BLOCK * REPEATS :]
    if len(tail) >= SAME_CHARACTER and tail.endswith(tail[-1] * SAME_CHARACTER):
        return True
    if len(tail) < SHORTEST_TAIL:
        return False
    return any(_repeats(tail, block) for block in _possible_blocks(tail))


def _possible_blocks(tail: str) -> Iterator[int]:
    """The distances at which the last characters of the tail stood before: mostly none."""
    end = len(tail) - KEY
    start = end
    while (start := tail.rfind(tail[end:], max(0, end - LONGEST_BLOCK), start + KEY - 1)) >= 0:
        if end - start >= SHORTEST_BLOCK:
            yield end - start


def _repeats(tail: str, block: int) -> bool:
    """Whether a whole span at the end has the period `block`."""
    span = max(SHORTEST_TAIL, block * REPEATS)
    return len(tail) >= span and tail[-span:-block] == tail[block - span :]
