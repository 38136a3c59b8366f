"""RTF: text with control words, of which those that change the text are followed.

striprtf was tried: it knows no superscripts, notes or deleted text, and writes cells glued by bars.
"""

import codecs
import re
from dataclasses import dataclass, replace
from html import escape

from rubricem.agent.sources.readers.document import Document, Input, title_of
from rubricem.agent.sources.readers.plain.writing import note, note_link, sections_of, table
from rubricem.memory.errors import SourceError

_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|[\r\n]+"
    rb"|([^\\{}\r\n]+)"
)
_SKIPPED = frozenset((
    "fonttbl", "colortbl", "stylesheet", "info", "pict", "object", "listtable",
    "listoverridetable", "generator", "themedata", "colorschememapping", "datastore",
    "latentstyles", "xmlnstbl", "rsidtbl", "fldinst", "header", "headerl", "headerr", "headerf",
    "footer", "footerl", "footerr", "footerf", "nonshppict", "filetbl", "pgptbl", "mmathPr",
    "bkmkstart", "bkmkend", "annotation", "atnid", "atnauthor", "atrfstart", "atrfend", "revtbl",
))  # fmt: skip
_SIGNS = {
    "tab": " ", "emdash": "—", "endash": "–", "lquote": "‘", "rquote": "’",  # noqa: RUF001
    "ldblquote": "“", "rdblquote": "”", "bullet": "•", "line": " ", "~": "\xa0",
    "_": "-", "-": "", "\\": "\\", "{": "{", "}": "}", "emspace": " ", "enspace": " ",
}  # fmt: skip
_STYLES = frozenset(
    ("super", "sub", "nosupersub", "up", "dn", "plain", "strike", "striked", "deleted")
)
_NUMBERED = frozenset(("ansicpg", "f", "fcharset", "u", "uc", "li", "ilvl", "outlinelevel"))
_CODECS = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850"}
_CHARSETS = {
    0: "cp1252", 77: "mac_roman", 128: "cp932", 129: "cp949", 134: "gb18030", 136: "big5",
    161: "cp1253", 162: "cp1254", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251",
    222: "cp874", 238: "cp1250",
}  # fmt: skip
_DEEPEST = 500
_DEEPEST_LIST = 20


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
        self.page: list[str] = []
        self.notes: list[str] = []
        self._line: list[str] = []
        self._above: list[list[str]] = []
        """lines that a note stands within"""
        self._cells: list[str] = []
        self._rows: list[list[str]] = []
        self._in_table = False
        self._marker = ""
        self._indent = 0
        self._items: list[tuple[int, str, str]] = []
        """of a list: indent, its element and text"""
        self._states = [_State()]
        self._codec = "cp1252"
        self._fonts: dict[int, str] = {}
        self._bytes = b""
        self._left = 0
        """characters that stand for the last one where Unicode is not read"""
        self._heading = 0
        self._surrogate = 0
        self._font_defined = -1

    def feed(self, content: bytes) -> None:
        for found in _TOKEN.finditer(content):
            word, number, coded, sign, brace, text = found.groups()
            if coded:
                self._add_bytes(bytes([int(coded, 16)]))
                continue
            if text:
                self._add_bytes(text)
                continue
            self._flush()
            if brace == b"{":
                if len(self._states) > _DEEPEST:
                    raise SourceError(f"It has groups more than {_DEEPEST} deep.", "Save it anew.")
                self._states.append(self._states[-1])
            elif brace == b"}" and len(self._states) > 1:
                self._end_group()
            elif sign == b"*":
                self._set(skipped=True)
            elif sign:
                self._add(_SIGNS.get(sign.decode("latin-1"), ""))
            elif word:
                self._word(word.decode(), int(number) if number else None)
        self._flush()
        self._paragraph()
        self._end_list()
        self._end_table()

    def _set(self, **changed: bool | int | str) -> None:
        self._states[-1] = replace(self._states[-1], **changed)  # type: ignore[arg-type]

    def _end_group(self) -> None:
        ended = self._states.pop()
        if ended.note and not self._states[-1].note and self._above:
            text = "".join(self._line).strip()
            self._line = self._above.pop()
            mark = str(len(self.notes) + 1)
            self.notes.append(note(mark, text))
            self._line.append(note_link(mark))

    def _word(self, word: str, number: int | None) -> None:
        if word in _SKIPPED:
            self._set(skipped=True)
        elif number is not None and word in _NUMBERED:
            self._numbered(word, number)
        elif word in _SIGNS:
            self._add(_SIGNS[word])
        elif word in _STYLES:
            self._style(word, number)
        elif word in ("par", "cell", "row", "sect", "page"):
            self._break(word)
        elif word in _CODECS:
            self._codec = _CODECS[word]
        elif word in ("footnote", "listtext", "pntext"):
            self._begin(word)
        elif word == "intbl":
            self._in_table = True
        elif word == "pard":
            self._in_table, self._heading, self._indent, self._marker = False, 0, 0, ""

    def _begin(self, word: str) -> None:
        if word != "footnote":
            self._set(marker=True, skipped=False)
        elif not (self._states[-1].skipped or self._states[-1].note):
            self._above.append(self._line)
            self._line = []
            self._set(note=True)

    def _numbered(self, word: str, number: int) -> None:
        if word == "ansicpg":
            named = f"cp{number}" if number != 65001 else "utf-8"
            self._codec = named if _known(named) else self._codec
        elif word == "f":
            self._font_defined = number
            self._set(font=number)
        elif word == "fcharset":
            self._fonts[self._font_defined] = _CHARSETS.get(number, self._codec)
        elif word == "u":
            self._unicode(number)
        elif word == "uc":
            self._set(unicode_skip=number)
        elif word in ("li", "ilvl"):
            self._indent = max(self._indent, number * (360 if word == "ilvl" else 1))
        elif word == "outlinelevel":
            self._heading = min(max(number, 0), 8) + 1

    def _style(self, word: str, number: int | None) -> None:
        off = number == 0
        if word in ("super", "sub", "up", "dn"):
            element = {"super": "sup", "up": "sup"}.get(word, "sub")
            self._set(raised="" if off else element)
        elif word == "nosupersub":
            self._set(raised="")
        elif word == "plain":
            self._set(raised="", struck=False)
        else:
            self._set(struck=not off)

    def _unicode(self, number: int) -> None:
        number %= 0x10000
        if 0xD800 <= number < 0xDC00:
            self._surrogate = number
        else:
            if 0xDC00 <= number < 0xE000 and self._surrogate:
                number = 0x10000 + ((self._surrogate - 0xD800) << 10) + number - 0xDC00
            self._surrogate = 0
            self._add(chr(number) if not 0xD800 <= number < 0xE000 else "")
        self._left = self._states[-1].unicode_skip

    def _add_bytes(self, text: bytes) -> None:
        skipped = min(self._left, len(text))
        self._left -= skipped
        self._bytes += text[skipped:]

    def _flush(self) -> None:
        if self._bytes:
            codec = self._fonts.get(self._states[-1].font, self._codec)
            told, self._bytes = self._bytes.decode(codec, "replace"), b""
            self._add(told)

    def _add(self, text: str) -> None:
        state = self._states[-1]
        if state.skipped or state.struck or not text:
            return
        if state.marker:
            self._marker += text
            return
        text = escape(text, quote=False)
        self._line.append(f"<{state.raised}>{text}</{state.raised}>" if state.raised else text)

    def _break(self, word: str) -> None:
        if self._states[-1].skipped:
            return
        if self._states[-1].note:
            self._line.append(" ")
        elif word == "cell":
            self._cells.append("".join(self._line).strip())
            self._line = []
        elif word == "row":
            self._rows.append(self._cells)
            self._cells, self._line = [], []
        elif self._in_table:
            self._line.append(" ")
        else:
            self._paragraph()

    def _paragraph(self) -> None:
        text = "".join(self._line).strip()
        self._line = []
        if not text:
            return
        self._end_table()
        if marker := self._marker.strip():
            self._items.append((self._indent, "ol" if marker[:1].isalnum() else "ul", text))
            self._marker = ""
            return
        self._end_list()
        element = f"h{min(self._heading, 6)}" if self._heading else "p"
        self.page.append(f"<{element}>{text}</{element}>\n")

    def _end_list(self) -> None:
        """Write the items so far as lists within lists, by how far they are indented."""
        within: list[tuple[int, str]] = []
        for indent, element, text in self._items:
            while len(within) > 1 and within[-1][0] > indent:
                self.page.append(f"</li></{within.pop()[1]}>")
            if within and (within[-1][0] >= indent or len(within) >= _DEEPEST_LIST):
                self.page.append("</li>")
            else:
                self.page.append(f"<{element}>")
                within.append((indent, element))
            self.page.append(f"<li>{text}")
        self.page += (f"</li></{element}>\n" for _, element in reversed(within))
        self._items = []

    def _end_table(self) -> None:
        if self._rows:
            self.page.append(table(self._rows))
            self._rows = []


def _known(codec: str) -> bool:
    try:
        codecs.lookup(codec)
    except LookupError:
        return False
    return True


_TITLE = re.compile(rb"\{\\title ((?:[^\\{}]|\\'[0-9a-f]{2}){1,400}+)\}")


def read_rtf(given: Input) -> Document:
    content = given.content()
    if not content.lstrip().startswith(b"{\\rtf"):
        raise SourceError(f"{given.name} is no rtf file.", "Save it as rtf, or as txt.")
    reader = _Rtf()
    reader.feed(content)
    page = "".join((*reader.page, *reader.notes))
    # Adjacent runs of one superscript are one: 10^-3 may be written in two.
    page = re.sub(r"</(sup|sub)><\1>", "", page)
    sections = sections_of(f"<body>{page}</body>")
    found = _TITLE.search(content[:50_000])
    title = found[1].decode("cp1252", "replace") if found and b"\\" not in found[1] else ""
    return Document(title_of(sections, given.stem, title), sections)


READERS = {".rtf": read_rtf}
