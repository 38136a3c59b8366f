"""The ids of sources as models and people write them."""

import re

_RANGE = re.compile(r"\b[sS](\d{1,4})\s?[\u2013\u2014-]\s?[sS]?(\d{1,4})\b")
LONGEST_RANGE = 40


def one_by_one(text: str) -> str:
    """The text with each range of ids written out: S7-S9 as S7, S8, S9."""

    def ids(found: re.Match[str]) -> str:
        every = range(int(found[1]), int(found[2]) + 1)
        some = 1 < len(every) <= LONGEST_RANGE
        return ", ".join(f"S{number}" for number in every) if some else found[0]

    return _RANGE.sub(ids, text)


def ids_named(text: str) -> list[str]:
    """The ids that a text names, in whatever form a report reads them: s1, S_01, S1-S3."""
    return [f"S{n}" for n in re.findall(r"\bs[_-]?0*(\d+)\b", one_by_one(text), re.I)]
