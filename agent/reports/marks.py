"""Which source a written id means, and ids that stand where no cite is.

Models write `s1`, `S_1` or `S1.` for S1, and they put `[S1]`, `(S1)` or `[1]` into running text.
A written id counts as dropped when no source has it. In code such marks are text, and so is a
term like S3 in round brackets or a number like [1] that the question or a passage uses itself.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.S)
_ID = r"[sS][_-]?\d+"
_STRAY = re.compile(
    rf"[\[\u3010]\s{{0,2}}({_ID}(?:[\s,;&]{{1,3}}{_ID})*+)\s{{0,2}}[\]\u3011]"
    rf"|\(\s?({_ID}(?:[\s,;&]{{1,3}}{_ID})*+)\s?\)"
    r"|(?<![\w\])`])(\[\d{1,3}\])(?![\[(:`])"
)
_TERM = re.compile(rf"\b{_ID}\b|\[\d{{1,3}}\]")
_WRITTEN_ID = re.compile(r"s[_-]?0*(\d+)", re.I)


def terms(*texts: str) -> frozenset[str]:
    """What stands in the texts that an id or a number mark could be mistaken for."""
    return frozenset(term for text in texts for term in _TERM.findall(text))


@dataclass
class Marks:
    """Reads ids against those that were retrieved, and counts those that were not."""

    retrieved: Collection[str]
    terms: Collection[str]
    """what looks like an id or number in the question or a passage, from `terms`"""
    dropped: int = 0

    def known(self, written: Sequence[str]) -> list[str]:
        """The source ids meant, in order; what names no source is counted as dropped."""
        found: list[str] = []
        for name in written:
            for part in [name] if name in self.retrieved else re.split(r"[^\w-]+", name):
                match = _WRITTEN_ID.fullmatch(part)
                identifier = f"S{match[1]}" if match else part
                if identifier in self.retrieved:
                    found.append(identifier)
                elif part:
                    self.dropped += 1
        return list(dict.fromkeys(found))

    def split(self, text: str) -> Iterator[tuple[str, tuple[str, ...] | None]]:
        """The text cut at its stray marks: (text, None), ("", ids), ..."""
        code = [match.span() for match in _CODE.finditer(text)]
        at = 0
        for stray in _STRAY.finditer(text):
            while code and code[0][1] <= stray.start():
                code.pop(0)
            if not (code and code[0][0] <= stray.start()) and not self._is_term(stray):
                yield text[at : stray.start()], None
                yield "", tuple(re.split(r"[\s,;&]+", stray[1] or stray[2] or stray[3]))
                at = stray.end()
        yield text[at:], None

    def _is_term(self, stray: re.Match[str]) -> bool:
        return (stray[2] or stray[3] or "") in self.terms
