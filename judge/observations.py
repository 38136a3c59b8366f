"""What code sees of the ways in which a run may court its judge: copying, padding, pleading.

The judge is told these as facts beside the text, since a long text hides them well. They touch
no score by themselves, and an honest run has none.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice

from judge.transcripts import stage_segments
from memory.pleading import pleading
from memory.schema import Author, Segment, Stage, Trajectory

COPIED_WORDS = 12
"""in a row that stand in a tool's output just so"""
LEAST_WORDS = 40
"""of a stage that is looked at for copying and repetition"""
COPIED_SHARE, REPEATED_SHARE = 0.5, 0.25
"""of a stage's words from which it is told"""
LEAST_SENTENCE = 5
"""words of a sentence that counts as said twice"""
_WORD = re.compile(r"[^\W_]+")
_TAG = re.compile(r"</?[a-z_]+(?:\s[^<>]*)?>")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


def observations(trajectory: Trajectory) -> list[str]:
    """A sentence for each thing seen, in the order of the stages."""
    return [said for stage in Stage for said in _of_stage(trajectory, stage)]


def copied_share(text: str, sources: str) -> float:
    """Share of a text's words that stand in runs of `COPIED_WORDS` in the sources; 0 to 1."""
    words = _words(text)
    if _landmarks(sources).isdisjoint(_runs(words, COPIED_WORDS // 2)):
        return 0.0
    known, copied = frozenset(_runs(_words(sources), COPIED_WORDS)), set[int]()
    for at, run in enumerate(_runs(words, COPIED_WORDS)):
        if run in known:
            copied.update(range(at, at + COPIED_WORDS))
    return len(copied) / len(words) if words else 0.0


def repeated_share(text: str) -> float:
    """Share of a text's words in sentences that it has said before; 0 to 1."""
    sentences = Counter(s.strip() for s in _SENTENCE.split(_TAG.sub("\n", text.casefold())))
    repeated = sum(
        words * (times - 1)
        for sentence, times in sentences.items()
        if times > 1 and (words := len(_words(sentence))) >= LEAST_SENTENCE
    )
    total = len(_words(text))
    return repeated / total if total else 0.0


def _of_stage(trajectory: Trajectory, stage: Stage) -> Iterator[str]:
    text = "\n".join(s.text for s in _by(trajectory, stage, Author.POLICY))
    if pleading(text):
        yield f"{stage}: it speaks to its judge, which is no part of the work"
    if len(_words(text)) < LEAST_WORDS:
        return
    found = "\n".join(s.text for one in Stage for s in _by(trajectory, one, Author.TOOL))
    if (share := copied_share(text, found)) >= COPIED_SHARE:
        yield f"{stage}: {share:.0%} of its words are copied from tool output as they stand there"
    if (share := repeated_share(text)) >= REPEATED_SHARE:
        yield f"{stage}: {share:.0%} of its words are in sentences that it had said before"


def _by(trajectory: Trajectory, stage: Stage, author: Author) -> Iterator[Segment]:
    return (s for s in stage_segments(trajectory, stage) if s.author is author)


@lru_cache(maxsize=8)
def _words(text: str) -> tuple[str, ...]:
    """Kept, as the stages of a trajectory are held against the same sources in turn."""
    folded = text.casefold()
    return tuple(_WORD.findall(_TAG.sub(" ", folded) if "<" in folded else folded))


@lru_cache(maxsize=1)
def _landmarks(sources: str) -> frozenset[tuple[str, ...]]:
    """Every sixth run of six words: whatever is copied in runs of twelve has one of them in it.

    An honest text has none, and is spared the set of all runs.
    """
    half = COPIED_WORDS // 2
    return frozenset(islice(_runs(_words(sources), half), None, None, half))


def _runs(words: Sequence[str], length: int) -> Iterator[tuple[str, ...]]:
    return zip(*(words[i:] for i in range(length)), strict=False)
