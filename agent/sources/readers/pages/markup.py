"""HTML and XHTML, from the disk, from books and mails and from the web: `page_of` reads all.

What readers do not see is left out first (`seen.py`), then what surrounds the text
(`surroundings.py`). What is left is read in one walk over its elements, into blocks.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lxml import etree

from rubricem.agent.sources.readers import formulas
from rubricem.agent.sources.readers.document import (
    LONGEST_NAME,
    BlockKind,
    Document,
    Input,
    Outline,
    Section,
)
from rubricem.agent.sources.readers.encoding import names_of
from rubricem.agent.sources.readers.pages import seen
from rubricem.agent.sources.readers.pages.surroundings import main_of, surroundings_of, text_of
from rubricem.agent.sources.readers.tables import Cell, grid_of, table_blocks, within_cell

_DEEPEST = 20
"""levels of elements within a superscript that are told apart"""
_LOOKED_AT = 40
"""characters before and after a superscript"""
_LEAST_VERSE = 4
_LONGEST_VERSE = 60
"""lines of a paragraph, and characters of each, that are kept as lines"""
_TEX_IMAGE = re.compile(r"(?:\A|[\s_-])(?:math|tex|latex)(?:[\s_-]|\Z)", re.I)
_WIDEST = 40
"""spaces before a line of a list within lists"""


def _folded(text: str) -> str:
    folded = " ".join(text.replace("\u00ad", "").split())
    return folded if folded.isprintable() else seen.CONTROLS.sub("", folded).strip()


def _told(element: etree._Element, level: int = 0) -> str:
    """The text of an element in a line, with the superscripts and subscripts in it."""
    if not len(element) or level > _DEEPEST:
        return text_of(element)
    parts = [element.text or ""]
    for child in element:
        text = _told(child, level + 1)
        if child.tag in ("sup", "sub"):
            text = formulas.script("^" if child.tag == "sup" else "_", text)
        parts += (text, child.tail or "")
    return "".join(parts)


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text and re.fullmatch(r"-?[0-9]{1,9}", text.strip()) else otherwise


NUMBERED = names_of("looks")["numbered"]
_MOST_COUNTED = 4000
_ROMAN = "m cm d cd c xc l xl x ix v iv i"


def counted(number: int, form: str) -> str:
    """The number of an item or a note as `form` has it: a, A, i, I, 01, or in decimal digits."""
    told = f"{number:02}" if form[:2] == "01" else str(number)
    if form in ("a", "A") and 0 < number < _MOST_COUNTED:
        told = chr(97 + (number - 1) % 26) * ((number - 1) // 26 + 1)
    elif form in ("i", "I") and 0 < number < _MOST_COUNTED:
        told, values = "", (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1)
        for value, sign in zip(values, _ROMAN.split(), strict=True):
            told += sign * (number // value)
            number %= value
    return told.upper() if form.isupper() else told


@dataclass
class _List:
    """A list whose items are being read."""

    style: str = ""
    """ "" for one that is not ordered, else how its numbers are written"""
    number: int = 1
    step: int = 1

    def marker(self, item: etree._Element) -> str:
        if mark := item.get("mark"):  # of an item that office's readers have counted
            return f"{mark} "
        if not self.style:
            return "- "
        number = _number(item.get("value"), self.number)
        self.number = number + self.step
        return f"{counted(number, self.style)}. "


@dataclass
class _Table:
    """A table whose cells are being read."""

    rows: list[list[Cell]] = field(default_factory=list)
    cell: list[str] | None = None
    """the lines of the cell that is being read"""
    in_head: bool = False
    depth: int = 0
    """tables within its cells that only lay them out"""
    around: "_Table | None" = None
    """that of the cell which this one is in"""


_MOST_ROWS, _MOST_COLUMNS = 65_534, 1000
"""over which a cell goes; those of HTML's standard"""


def _span(text: str | None, most: int) -> int:
    return 1 if text is None else min(_number(text, 1) or most, most)


_LONGEST_CELL = 1500
"""characters; what is longer is a part of the page, and its table only lays that out"""
_ROWS = etree.XPath("tr | thead/tr | tbody/tr | tfoot/tr")


def _is_data(table: etree._Element) -> bool:
    """Whether a table is one, and does not only lay out a page."""
    if (role := table.get("role")) in ("presentation", "none", "table"):
        return role == "table"
    rows = _ROWS(table)
    if any(cell.tag == "th" for row in rows[:2] for cell in row):
        return True
    if len(rows) < 2 or max(len(row) for row in rows) < 2:
        return False
    parts = table.iter("table", "h1", "h2", "h3", "h4", "pre")
    if next((part for part in parts if part is not table), None) is not None:
        return False
    return all(len(text_of(row)) < _LONGEST_CELL for row in rows)


_BOLD = etree.XPath("boolean(.//text()[normalize-space()][not(ancestor::b or ancestor::strong)])")


def _is_bold(cell: etree._Element) -> bool:
    """Whether all that a cell says is set in bold, as its author's way to make it a header."""
    return len(cell) > 0 and not _BOLD(cell)


class _Walk:
    """Reads a page from its first element to its last, into the blocks of an outline."""

    def __init__(self, root: etree._Element, *, tex: bool) -> None:
        self.tex = tex
        self.outline = Outline()
        self.pieces: list[str] = []
        """of the line that is being read, as the page has them; a line break is a vertical tab"""
        self.kind, self.lines = BlockKind.PARAGRAPH, list[str]()
        """the block that is being read"""
        self.tight = False
        """whether the next line belongs to that block"""
        self.first: str | None = None
        """what the next line begins with, as the first of an item or of a note"""
        self.indents = [""]
        self.lists: list[_List] = []
        self.entries: list[str] = []
        """the indents of the lists of terms that are open"""
        self.part = ""
        """what the last part of an entry was, "term" or "meaning"."""
        self.pre = self.heading = 0
        self.note: etree._Element | None = None
        self.is_note = self.in_address = False
        """whether the line begins with a mark"""
        self.table: _Table | None = None
        self.marks = {_told(e).strip() for e in root.iter("sup") if _begins(e)}
        self._walk(root)
        self.flush()
        self.close()

    def _walk(self, root: etree._Element) -> None:
        pieces, starts, ends = self.pieces, _STARTS, _ENDS
        walker = etree.iterwalk(root, events=("start", "end"))
        for event, element in walker:
            tag = element.tag
            if event == "start":
                if tag in starts and starts[tag](self, element):
                    walker.skip_subtree()
                elif text := element.text:
                    pieces.append(text)
            else:
                if tag in ends:
                    ends[tag](self, element)
                if (tail := element.tail) and element is not root:
                    pieces.append(tail)

    def flush(self) -> None:
        """A line ends, as a block begins or ends."""
        if not self.pieces:
            return
        if self.heading or self.pre:
            if not self.pieces[-1].endswith("\n"):
                self.pieces.append("\n")
            return
        text = "".join(self.pieces)
        self.pieces.clear()
        if self.tex and ("\\" in text or "$$" in text):
            text = seen.TEX_BETWEEN.sub(lambda m: formulas.linear_tex("".join(m.groups(""))), text)
        if "\v" not in text:
            self.put([_folded(text)], BlockKind.PARAGRAPH)
            return
        lines = [line for part in text.split("\v") if (line := _folded(part))]
        verse = len(lines) >= _LEAST_VERSE and max(map(len, lines)) <= _LONGEST_VERSE
        verse, self.in_address = verse or self.in_address, False
        self.put(lines if verse else [" ".join(lines)], BlockKind.PARAGRAPH)

    def put(self, lines: Sequence[str], kind: BlockKind) -> None:
        """Add lines to the block that is being read, or begin one of them."""
        if not lines or not any(lines):
            return
        if self.table is not None and self.table.cell is not None:
            self.table.cell.append(" ".join(lines))
            return
        if self.note is not None or self.is_note:
            kind, self.is_note = BlockKind.NOTE, False
            if self.first and self.note is not None:
                # Its first line without the mark, which it is told with.
                mark = re.escape(own := self.note.get(seen.NOTE_MARK, ""))
                end = "[.):]" if own.isalnum() else "[.):]?"
                marked = rf"\A[\s^↑]*(?:[.):](?=\s)|\[\s*(?:{mark})?\s*\]|{mark}{end}(?=\s))?\s*"
                lines = [*filter(None, (re.sub(marked, "", lines[0]), *lines[1:]))]
                if not lines:
                    return
        elif (self.lists or self.entries) and (kind is not BlockKind.CODE or self.lists):
            kind = BlockKind.LIST
        indent = self.indents[-1]
        first = indent if self.first is None else self.first
        self.first = None
        if not self.tight:
            self.close()
            self.kind = kind
        self.lines.append((first + lines[0]).rstrip())
        self.lines += [(indent + line).rstrip() for line in lines[1:]]
        self.tight = bool(self.lists) or self.note is not None

    def close(self) -> None:
        """The block that is being read ends."""
        self.outline.add(self.kind, "\n".join(self.lines))
        self.lines.clear()
        self.tight = False

    # What begins and ends with an element; true where what is in it has been read already.

    def block(self, element: etree._Element) -> bool:
        self.flush()
        if (mark := element.get(seen.NOTE_MARK)) and self.note is None and self.table is None:
            self.close()
            self.note, self.first = element, f"[{mark}] "
            self.indents.append("")
        return False

    def end_block(self, element: etree._Element) -> None:
        self.flush()
        if self.note is element:
            self.close()
            self.note = self.first = None
            self.indents.pop()

    def _leave_heading(self, element: etree._Element) -> None:
        """A heading ends where a list or a table begins, even if the page does not say so."""
        self.flush()
        if self.heading and not self.pre:
            self.end_head(element)

    def begin_list(self, element: etree._Element) -> bool:
        self._leave_heading(element)
        style, number, step = "", 1, 1
        if element.tag == "ol":
            named = re.findall(r"[\w-]+", f"{element.get('style')} {element.get('class')}")
            style = element.get("type") or next(filter(None, map(NUMBERED.get, named)), "1")
            backwards = element.get("reversed") is not None
            number = _number(element.get("start"), len(element.findall("li")) if backwards else 1)
            step = -1 if backwards else 1
        self.lists.append(_List(style, number, step))
        return False

    def end_list(self, element: etree._Element) -> None:
        self.flush()
        if self.lists:
            self.lists.pop()
        if not self.lists and self.note is None:
            self.tight = False

    def item(self, element: etree._Element) -> bool:
        self.flush()
        marker = self.lists[-1].marker(element) if self.lists else "- "
        if self.table is not None and self.table.cell and element.getprevious() is not None:
            self.table.cell[-1] += ";"
        indent = self.indents[-1]
        self.indents.append((indent + "  ")[:_WIDEST])
        self.block(element)
        if self.note is not element and self.note is None:
            self.first = None if self.pre else indent + marker
        return False

    def end_item(self, element: etree._Element) -> None:
        self.end_block(element)
        self.indents.pop()
        if self.note is None:
            self.first = None

    def begin_entries(self, element: etree._Element) -> bool:
        self._leave_heading(element)
        indent, self.part = self.indents[-1], ""
        if self.entries and indent == self.entries[-1] + "    ":
            # The terms of entries within a meaning stand at the margin as well, to be told as such.
            indent = self.entries[-1]
        self.entries.append(indent)
        self.indents.append(indent)
        return False

    def end_entries(self, element: etree._Element) -> None:
        self.flush()
        if self.entries:
            self.entries.pop()
            self.indents.pop()
        self.part, self.tight = "", bool(self.lists) or self.note is not None

    def term(self, element: etree._Element) -> bool:
        self.flush()
        for kind in element.iterfind("span[@class='classifier']"):
            kind.text = f" : {kind.text or ''}"  # as Sphinx's sheets show it
        self.tight, self.part = self.part == "term" or bool(self.lists), "term"
        return False

    def end_term(self, element: etree._Element) -> None:
        self.flush()
        self.part, self.tight = "term", bool(self.lines)

    def meaning(self, element: etree._Element) -> bool:
        self.flush()
        self.tight = bool(self.part and self.lines) or bool(self.lists)
        # One that the page does not close lies in the one before.
        above = element.getparent()
        deeper = above is None or above.tag != "dd"
        self.indents.append((self.indents[-1] + "    " * deeper)[:_WIDEST])
        return False

    def end_meaning(self, element: etree._Element) -> None:
        self.flush()
        self.indents.pop()
        self.part = "meaning"

    def preformatted(self, element: etree._Element) -> bool:
        self._leave_heading(element)
        self.pre += 1
        return False

    def end_preformatted(self, element: etree._Element) -> None:
        self.pre -= 1
        if self.pre or self.heading:
            return
        text = seen.CONTROLS.sub("", "".join(self.pieces)).expandtabs()
        self.pieces.clear()
        if text.strip():
            self.put(text.strip("\n").splitlines(), BlockKind.CODE)

    def head(self, element: etree._Element) -> bool:
        self._leave_heading(element)
        if self.table is None and not self.pre:
            self.close()
            self.heading = int(str(element.tag)[1])
        return False

    def end_head(self, element: etree._Element) -> None:
        if not self.heading:
            self.flush()
            return
        name = _folded("".join(self.pieces))
        self.pieces.clear()
        level, self.heading = self.heading, 0
        if name:
            self.outline.head(level, name, told=True)
        if len(name) > LONGEST_NAME:  # all of it is told, if not as a heading
            self.put([name], BlockKind.PARAGRAPH)

    def begin_table(self, element: etree._Element) -> bool:
        self._leave_heading(element)
        is_data = not self.pre and _is_data(element)
        if self.table is not None and (self.table.depth or self.table.cell is None or not is_data):
            self.table.depth += 1
        elif is_data:
            self.table = _Table(around=self.table)
        return False

    def end_table(self, element: etree._Element) -> None:
        self.flush()
        if self.table is None or self.table.depth:
            if self.table is not None:
                self.table.depth -= 1
            return
        rows, self.table = self.table.rows, self.table.around
        grid, headers = grid_of(rows)
        if self.table is not None:
            self.put([within_cell(grid, headers)], BlockKind.TABLE)
            return
        for block in table_blocks(grid, headers):
            if self.lists or self.note is not None or self.indents[-1]:
                self.put(block.text.splitlines(), block.kind)
            else:
                self.close()
                self.outline.add(block.kind, block.text, block.place)

    def row(self, element: etree._Element) -> bool:
        self.flush()
        if self.table is not None and not self.table.depth:
            self.table.rows.append([])
            above = element.getparent()
            self.table.in_head = above is not None and above.tag == "thead"
        return False

    def cell(self, element: etree._Element) -> bool:
        self.flush()
        if self.table is not None and not self.table.depth:
            self.table.cell = []
        return False

    def end_cell(self, element: etree._Element) -> None:
        self.flush()
        table = self.table
        if table is not None and not table.depth and table.cell is not None:
            named = element.tag == "th" or table.in_head or _is_bold(element)
            rows = _span(element.get("rowspan"), _MOST_ROWS)
            columns = _span(element.get("colspan"), _MOST_COLUMNS)
            table.rows = table.rows or [[]]
            table.rows[-1].append(Cell(" ".join(table.cell).rstrip(";"), rows, columns, named))
            table.cell = None

    def break_line(self, element: etree._Element) -> bool:
        if self.pre or self.heading:
            self.pieces.append("\n")
        elif "".join(self.pieces[-2:]).rstrip(" \t\r\n").endswith("\v"):
            self.flush()
        else:
            self.pieces.append("\v")
            self.in_address = getattr(element.getparent(), "tag", "") == "address"
        return True

    def raise_or_lower(self, element: etree._Element) -> bool:
        """A superscript or subscript, as its line has it so far."""
        text, after = _told(element).strip(), (element.tail or "")[:_LOOKED_AT]
        before = "".join(self.pieces[-8:])[-_LOOKED_AT:]
        if element.tag == "sub":
            self.pieces.append(formulas.lowered(text, before, after))
            return True
        below = element.getnext()
        if below is not None and below.tag == "sub":
            after += f"_{text_of(below).strip()}"
        named = f"{element.get('class', '')} {element.get('id', '')}".lower()
        linked = next(element.iter("a"), None) is not None
        known = text in self.marks and before[-1:].isdigit()
        marked = linked or known or seen.NAMED_NOTE.search(named)
        noted = bool(marked and seen.MARK.fullmatch(text))
        told = formulas.raised(text, before, after, noted=noted)
        self.is_note = told[:1] == "[" and not (self.heading or before.strip())
        self.pieces.append(told)
        return True

    def formula(self, element: etree._Element) -> bool:
        told = formulas.linear_mathml(element)
        inline = self.heading or self.pre or (self.table and self.table.cell is not None)
        if "block" in (element.get("display"), element.get("mode")) and not inline:
            self.flush()
            self.put([told], BlockKind.FORMULA)
        else:
            self.pieces.append(told)
        return True

    def image(self, element: etree._Element) -> bool:
        """What stands for an image, unless that names where a link leads."""
        alt = seen.CONTROLS.sub("", element.get("alt", "")).strip()
        if _TEX_IMAGE.search(element.get("class", "")):
            self.pieces.append(formulas.linear_tex(alt))
        elif alt and not self.pre and next(element.iterancestors("a"), None) is None:
            self.pieces.append(f" [image: {alt}] ")
        return True

    def control(self, element: etree._Element) -> bool:
        if element.get("type") == "checkbox" and (self.lists or self.table):
            self.pieces.append("[x] " if element.get("checked") is not None else "[ ] ")
        return True

    def quote(self, element: etree._Element) -> bool:
        self.pieces.append("“")
        return False

    def end_quote(self, element: etree._Element) -> None:
        self.pieces.append("”")

    def reading(self, element: etree._Element) -> bool:
        """How characters above are spoken."""
        self.pieces.append(f"({text_of(element).strip()})")
        return True


def _begins(element: etree._Element) -> bool:
    """Whether an element begins the text of what it is in, however that is set."""
    above = element.getparent()
    if above is None or element.getprevious() is not None or (above.text or "").strip():
        return False
    return above.tag not in ("small", "font", "span", "b", "strong", "i", "em") or _begins(above)


_Start = Callable[[_Walk, etree._Element], bool]
_End = Callable[[_Walk, etree._Element], None]
_BLOCKS = names_of("looks")["blocks"]
_STARTS: dict[str, _Start] = dict.fromkeys(_BLOCKS, _Walk.block)
_ENDS: dict[str, _End] = dict.fromkeys(_BLOCKS, _Walk.end_block)
_BOTH: dict[str, tuple[_Start, _End]] = {
    "ul ol menu dir": (_Walk.begin_list, _Walk.end_list),
    "li": (_Walk.item, _Walk.end_item),
    "dl": (_Walk.begin_entries, _Walk.end_entries),
    "dt": (_Walk.term, _Walk.end_term),
    "dd": (_Walk.meaning, _Walk.end_meaning),
    "pre listing xmp": (_Walk.preformatted, _Walk.end_preformatted),
    "h1 h2 h3 h4 h5 h6": (_Walk.head, _Walk.end_head),
    "table": (_Walk.begin_table, _Walk.end_table),
    "tr": (_Walk.row, _Walk.end_block),
    "td th": (_Walk.cell, _Walk.end_cell),
    "q": (_Walk.quote, _Walk.end_quote),
}
for _names, (_start, _end) in _BOTH.items():
    _STARTS |= dict.fromkeys(_names.split(), _start)
    _ENDS |= dict.fromkeys(_names.split(), _end)
_STARTS |= dict.fromkeys(("sup", "sub"), _Walk.raise_or_lower)
_STARTS |= dict.fromkeys(("math", "m:math", "mml:math"), _Walk.formula)
_STARTS |= {"br": _Walk.break_line, "img": _Walk.image, "input": _Walk.control, "rt": _Walk.reading}


def sections_of(root: etree._Element) -> tuple[Section, ...]:
    """What an element holds, all of which is seen."""
    return _Walk(root, tex=False).outline.sections()


def page_of(text: str, notes: seen.Notes | None = None) -> tuple[str, tuple[Section, ...]]:
    """(the page's title or "", its sections); `notes`: those of the book that it is of."""
    tex = any(sign in text for sign in seen.SIGNS_OF_TEX)
    if (tree := seen.visible(text, tex=tex)) is None:
        return "", ()
    title = _folded(tree.findtext(".//title") or "")
    for in_full in (False, True):
        body = tree.find("body")
        root = tree if body is None else body
        seen.tell_notes(root, notes or seen.Notes())
        if not in_full:
            seen.empty([*surroundings_of(root)])
            root = main_of(root)
        sections = _Walk(root, tex=tex).outline.sections()
        if sections or (tree := seen.visible(text, tex=tex, sheets=False)) is None:
            break
    return title, sections


def read_html(given: Input) -> Document:
    text, note = given.text()
    title, sections = page_of(text)
    return Document.of(given, sections, title, note)
