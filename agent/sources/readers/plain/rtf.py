"""RTF: text with control words, of which those that change the text are followed.

striprtf was measured: it is fast (0.1 s for a megabyte, where this takes 0.6), but writes 10^5 as
105, keeps what is struck out or deleted, and glues cells by bars without their columns.
"""

import codecs
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from rubricem.agent.sources.readers.document import Document, Input
from rubricem.agent.sources.readers.encoding import names_of
from rubricem.agent.sources.readers.plain.writing import Blocks, plain, sections_of, table
from rubricem.memory.errors import SourceError

_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|((?:\\'[0-9a-fA-F]{2}){1,999})|\\([^a-zA-Z])|([{}])"
    rb"|[\r\n]+|([^\\{}\r\n]+)"
)
_NAMES = names_of("rtf")
_SKIPPED, _SIGNS, _STYLES = frozenset(_NAMES["skipped"]), _NAMES["signs"], _NAMES["styles"]
_CODECS = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850"}
_DEEPEST = 500
_TITLE = re.compile(rb"\{\\title ((?:[^\\{}]|\\'[0-9a-f]{2}){1,400}+)\}")
_BULLET = re.compile(r"(?:[•·▪–-]|(\d{1,3}[.)]))\s+(?=\S)")  # noqa: RUF001


@dataclass(frozen=True, slots=True)
class _State:
    """What holds within a group."""

    skipped: bool = False
    raised: str = ""
    """the element of a superscript or subscript"""
    struck: bool = False
    font: int = -1
    unicode_skip: int = 1
    marker: bool = False
    """within what stands before an item of a list"""
    note: bool = False


class _Rtf:
    """Control words on their way into HTML."""

    def __init__(self) -> None:
        self.page = Blocks()
        self._line: list[str] = []
        self._above: list[list[str]] = []
        """lines that a note stands within"""
        self._cells: list[str] = []
        self._rows: list[list[str]] = []
        self._merged: list[str] = [""]
        """of the cells of a row, and the next one: the word that it goes on with, if it does"""
        self._states = [_State()]
        self.codec = "cp1252"
        self._fonts: dict[int, str] = {}
        self._font = -1
        """the one that was named last"""
        self._bytes = bytearray()
        self._left = 0
        """characters that stand for the last one where Unicode is not read"""
        self._in_table, self._marker, self._indent, self._level = False, "", 0, 0
        """of a paragraph: what stands before an item, its indent, and the level of a heading"""

    def html(self, content: bytes) -> str:
        for found in _TOKEN.finditer(content):
            word, number, coded, sign, brace, text = found.groups()
            if coded or text:
                told = _coded(coded) if coded else text
                skipped = min(self._left, len(told))
                self._left -= skipped
                self._bytes += told[skipped:]
                continue
            self._flush()
            if brace == b"{":
                if len(self._states) > _DEEPEST:
                    raise SourceError(f"It has groups more than {_DEEPEST} deep.", "Save it anew.")
                self._states.append(self._states[-1])
            elif brace == b"}" and len(self._states) > 1:
                ended = self._states.pop()
                if ended.note and not self._states[-1].note and self._above:
                    told, self._line = "".join(self._line).strip(), self._above.pop()
                    self._line.append(self.page.noted(told))
            elif sign == b"*":
                self._set(skipped=True)
            elif sign:
                self._add(_SIGNS.get(sign.decode("latin-1"), ""))
            elif word:
                self._word(word.decode(), int(number) if number else None)
        self._flush()
        self._paragraph()
        self._end_table()
        # Adjacent runs of one superscript are one: 10^-3 may be written in two.
        page = re.sub(r"</(sup|sub)><\1>", "", self.page.html())
        # A character beyond 16 bits is written as its two halves.
        return page.encode("utf-16", "surrogatepass").decode("utf-16", "ignore")

    def _set(self, **changed: Any) -> None:
        self._states[-1] = replace(self._states[-1], **changed)

    def _word(self, word: str, number: int | None) -> None:
        if word in _SKIPPED:
            self._set(skipped=True)
        elif word in _SIGNS:
            self._add(_SIGNS[word])
        elif word in _STYLES:
            name, value = _STYLES[word]
            self._set(**{name: value if number != 0 else type(value)()})
        elif word in ("par", "cell", "row", "sect", "page"):
            self._break(word)
        elif word in _CODECS:
            self.codec = _CODECS[word]
        elif number is not None:
            self._numbered(word, number)
        else:
            self._begin(word)

    def _begin(self, word: str) -> None:
        if word == "plain":
            self._set(raised="", struck=False)
        elif word in ("listtext", "pntext"):
            self._set(marker=True, skipped=False)
        elif word == "footnote" and not (self._states[-2:][0].skipped or self._states[-1].note):
            self._above.append(self._line)
            self._line = []
            self._set(note=True, skipped=False)
        elif word in ("shptxt", "result"):  # what a box and an object show
            self._set(skipped=False)
        elif word == "intbl":
            self._in_table = True
        elif word == "trowd":
            self._merged = [""]
        elif word in ("clmrg", "clvmrg"):
            self._merged[-1] = word
        elif word == "pard":
            self._in_table, self._level, self._indent, self._marker = False, 0, 0, ""

    def _numbered(self, word: str, number: int) -> None:
        if word == "ansicpg":
            with suppress(LookupError):
                self.codec = codecs.lookup(f"cp{number}").name
        elif word == "f":
            self._font = number
            self._set(font=number)
        elif word == "fcharset":
            self._fonts[self._font] = _NAMES["charsets"].get(str(number), self.codec)
        elif word == "u":
            self._add(chr(number % 0x10000))
            self._left = self._states[-1].unicode_skip
        elif word == "uc":
            self._set(unicode_skip=number)
        elif word in ("li", "ilvl"):
            self._indent = max(self._indent, number * (360 if word == "ilvl" else 1))
        elif word == "cellx":
            self._merged.append("")
        elif word == "outlinelevel":
            self._level = min(max(number, 0), 8) + 1

    def _flush(self) -> None:
        if self._bytes:
            codec = self._fonts.get(self._states[-1].font, self.codec)
            told = self._bytes.decode(codec, "replace")
            self._bytes.clear()
            self._add(told)

    def _add(self, text: str) -> None:
        state = self._states[-1]
        if state.skipped or state.struck or not text:
            return
        if state.marker:
            self._marker += text
            return
        raised, text = state.raised, plain(text)
        self._line.append(f"<{raised}>{text}</{raised}>" if raised else text)

    def _break(self, word: str) -> None:
        if self._states[-1].skipped:
            return
        if self._states[-1].note or (self._in_table and word not in ("cell", "row")):
            self._line.append(" ")
        elif word == "cell":
            self._cells.append("".join(self._line).strip())
            self._line = []
        elif word == "row":
            above = self._rows[-1] if self._rows else []
            for at, word in enumerate(self._merged[: len(self._cells)]):
                if word == "clmrg" and at:
                    self._cells[at] = self._cells[at - 1]
                elif word == "clvmrg" and at < len(above):
                    self._cells[at] = above[at]
            self._rows.append(self._cells)
            self._cells, self._line = [], []
        else:
            self._paragraph()

    def _paragraph(self) -> None:
        text, self._line = "".join(self._line).strip(), []
        if not text:
            return
        self._end_table()
        marker = self._marker.strip()
        if not marker and self._indent and (typed := _BULLET.match(text)):
            marker, text = typed[0].strip(), text[typed.end() :]
        if marker:
            self.page.item(self._indent, marker if marker[:1].isalnum() else "")
            self.page.say(text, self._indent + 1)
            self._marker = ""
        elif self._level:
            self.page.head(self._level, text)
        else:
            self.page.add(f"<p>{text}</p>\n")

    def _end_table(self) -> None:
        if self._rows:
            self.page.add(table(self._rows))
            self._rows = []


def _coded(text: bytes) -> bytes:
    """The bytes that are written by their numbers."""
    return bytes.fromhex(text.replace(b"\\'", b"").decode())


def read_rtf(given: Input) -> Document:
    content = given.content()
    if not content.lstrip().startswith(b"{\\rtf"):
        raise SourceError(f"{given.name} is no rtf file.", "Save it as rtf, or as txt.")
    reader = _Rtf()
    sections, found = sections_of(reader.html(content)), _TITLE.search(content[:50_000])
    told = re.sub(rb"(?:\\'..)+", lambda m: _coded(m[0]), found[1] if found else b"")
    title = told.decode(reader.codec, "replace")
    return Document.of(given, sections, title)
