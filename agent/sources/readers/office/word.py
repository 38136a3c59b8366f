"""Word, from the package's own XML (ECMA-376, WordprocessingML).

Content controls, tables, text boxes, notes, charts and accepted insertions count as text; what is
deleted, struck through or hidden does not. A heading is a paragraph whose style, or a style that it
is based on, is called "heading N" or has an outline level. (mammoth knows neither outline levels
nor styles based on others, and takes ten times as long; python-docx reads no notes, formulas or
text boxes.)
"""

import re
from collections.abc import Iterator
from functools import partial
from itertools import chain, takewhile
from operator import is_not

from lxml import etree

from rubricem.agent.sources.readers.encoding import decode, names_of
from rubricem.agent.sources.readers.office.drawing import SCRIPTS, add_parts, formulas_of, is_on
from rubricem.agent.sources.readers.office.page import Page, Run, count_of, line_of, style_chain
from rubricem.agent.sources.readers.packages import Package, Sections, package_reader, value_of
from rubricem.agent.sources.readers.pages.markup import counted
from rubricem.agent.sources.readers.pages.seen import visible

_FORMS = {"lowerLetter": "a", "upperLetter": "A", "lowerRoman": "i", "upperRoman": "I"}
_FORMS["decimalZero"] = "01"
_TITLE = -1
_HEADING = re.compile(r"heading ([1-9]\d?)")
_DEEPER = re.compile("list (?:bullet|number) ([2-5])")
_PART = "word/document.xml"
_INNER = frozenset({"sdt", "sdtContent", "customXml", "ins", "moveTo", "smartTag", "body"})
_NO_TEXT = frozenset({"Fallback", "pPr", "rPr", "sdtPr", "instrText", "rt", "del", "moveFrom"})
_SIGNS = {"tab": " ", "ptab": " ", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_MOVED = 4
"""half points from which on a position is that of a superscript or subscript"""
_BOXES = ("drawing", "pict", "AlternateContent", "object")
"""what stands apart from the line that it is anchored in"""
_CODE_STYLES = ("source code", "html preformatted")
_TERMS = {"definition term": "dt", "definition": "dd"}
_SYMBOLS, _DINGBATS = names_of("symbols"), names_of("dingbats")
"""characters of these fonts, which text holds by number alone"""


@package_reader
def read_word(package: Package) -> tuple[str, Sections]:
    body = _Body(package)
    body.read_margins()
    body.read(package.body(_PART))
    return body.title, body.page.sections()


class _Numbering:
    """The numbers and bullets of list items, counted in the order of the document."""

    def __init__(self, root: etree._Element) -> None:
        numbers = {e.get("numId", ""): e for e in root.iterchildren("num")}
        self._abstract = {key: value_of(e, "abstractNumId") for key, e in numbers.items()}
        self._levels = {
            (kind.get("abstractNumId", ""), level.get("ilvl", "")): level
            for kind in root.iterchildren("abstractNum")
            for level in kind.iterchildren("lvl")
        }
        self._starts = {
            (key, each.get("ilvl", "")): value_of(each, "startOverride")
            for key, e in numbers.items()
            for each in e.iterchildren("lvlOverride")
        }
        self._counts: dict[str, dict[int, int]] = {}

    def mark(self, number: str, level: int) -> str:
        """`-`, or the item's number as it is shown."""
        key = self._abstract.get(number, "")
        own = self._levels.get((key, str(level)))
        text = value_of(own, "lvlText")
        if value_of(own, "numFmt") in ("bullet", "none", "") or "%" not in text:
            return "-"
        counts = self._counts.setdefault(key, {})
        begin = self._starts.pop((number, str(level)), "")
        if begin.isdecimal() or level not in counts:
            start = begin if begin.isdecimal() else value_of(own, "start")
            counts[level] = int(start) - 1 if start.isdecimal() else 0
        counts[level] += 1
        for deeper in [each for each in counts if each > level]:
            del counts[deeper]

        def count(found: re.Match[str]) -> str:
            form = value_of(self._levels.get((key, str(int(found[1]) - 1))), "numFmt")
            form = "" if own is not None and own.find("isLgl") is not None else form
            return counted(counts.get(int(found[1]) - 1, 1), _FORMS.get(form, ""))

        shown = re.sub(r"%([1-9])", count, text)
        return f"{shown}." if shown.isalnum() else shown


class _Body:
    """Reads the body as a page; notes come at the end of the section that has their mark."""

    def __init__(self, package: Package) -> None:
        self.page = Page()
        self.title = ""
        self._package = package
        styles = package.part("word/styles.xml").iterchildren("style")
        self._styles = {e.get("styleId", ""): e for e in styles}
        self._numbering = _Numbering(package.part("word/numbering.xml"))
        self._comments = self._noted("comment")
        self._notes = {kind: self._noted(kind) for kind in ("footnote", "endnote")}
        self._marks: dict[str, dict[str, str]] = {kind: {} for kind in self._notes}
        self._forms = {"endnote": "i"} if self._notes["footnote"] else {}
        self._boxes: list[etree._Element] = []
        self._codes: list[bool] = []
        """of the fields that are open in a paragraph, whether they have not come to their result"""

    def _noted(self, kind: str) -> dict[str, etree._Element]:
        """Footnotes, endnotes or comments by their ids; they are taken out as they are told."""
        notes = self._package.part(f"word/{kind}s.xml").iterchildren(kind)
        # What draws the line above the notes is among them.
        return {e.get("id", ""): e for e in notes if e.get("type", "normal") == "normal"}

    def read(self, parent: etree._Element) -> None:
        for element in parent:
            if element.tag == "p":
                self._paragraph(element)
            elif element.tag == "tbl":
                self._table(element)
            elif element.tag in _INNER:
                self.read(element)
            elif element.tag in ("oMathPara", "oMath"):
                self.page.add("p", formulas_of(element))
            elif element.tag == "altChunk":
                self._read_chunk(element.get("id", ""))

    def _read_chunk(self, key: str) -> None:
        """A page of the web that stands in the place of paragraphs until Word saves the file."""
        part = self._package.relations(_PART).get(key, "")
        text, _ = decode(b"".join(self._package.pieces(part)), "")
        if not part.lower().endswith((".htm", ".html", ".xhtml")):
            self.page.add("p", [("", f"[{part.rpartition('/')[2]}, which is not read]")])
        elif (tree := visible(text)) is not None:
            self.page.block("div").extend(tree.iter("body"))

    def read_margins(self) -> None:
        """What is above and below each page, but for its number, as notes of the first section."""
        told = set[str]()
        for part in sorted(self._package.relations(_PART).values()):
            kind = next((kind for kind in ("header", "footer") if f"/{kind}" in part), "")
            root = self._package.part(part if kind else "")
            for paragraph in root.iter("p"):
                codes = "".join(e.text or "" for e in paragraph.iter("instrText"))
                codes += "".join(e.get("instr", "") for e in paragraph.iter("fldSimple"))
                line = "" if "PAGE" in codes else line_of(self._runs(paragraph))
                if line and line not in told:
                    told.add(line)
                    self.page.note(kind, [[("", line)]])

    def _paragraph(self, element: etree._Element) -> None:
        page, runs = self.page, self._runs(element)
        styles = self._based(value_of(element, "pPr/pStyle"))
        if any(is_on(style.find("rPr"), "vanish") for style in styles):
            return
        name = value_of(styles[0], "name").casefold() if styles else ""
        level = next(filter(None, map(_level, (element, *styles))), 0)
        if level == _TITLE:
            self.title = self.title or line_of(runs)
        elif level:
            mark = self._list_mark([element, *styles], name).strip(" -")
            page.head(level, chain([("", f"{mark} ")] * bool(mark), runs))
        elif name in _CODE_STYLES:
            page.code(runs)
        elif name in _TERMS:
            page.add(_TERMS[name], runs, inside="dl")
        elif mark := self._list_mark([element, *styles], name):
            page.add("li", runs, inside="ul", mark=mark)
        else:
            page.add("p", runs)
        self._read_boxes()

    def _based(self, style: str) -> list[etree._Element]:
        return style_chain(self._styles, style, lambda e: value_of(e, "basedOn"))

    def _read_boxes(self) -> None:
        if self.page.is_in_cell:
            return
        boxes, self._boxes = self._boxes, []
        for box in boxes:
            for content in box.iter("txbxContent"):
                above = takewhile(partial(is_not, box), content.iterancestors())
                if not any(each.tag in ("Fallback", "txbxContent") for each in above):
                    self.read(content)
            add_parts(self.page, self._package, _PART, box)
            for drawn in box.iter("docPr"):
                self.page.image(drawn.get("descr", ""))

    def _list_mark(self, styles: list[etree._Element], name: str) -> str:
        """What stands before a list item, indented by its level; "" if the paragraph is none.

        `styles`: the paragraph itself and those that it is based on; `name`: of the first of them.
        """
        for listed in (e for each in styles for e in each.iterfind("pPr/numPr")):
            number, level = value_of(listed, "numId"), value_of(listed, "ilvl")
            if number == "0":
                return ""
            deep = int(level) if re.fullmatch("[0-9]", level) else 0
            mark = self._numbering.mark(number, deep)
            # Word's own styles for deeper lists have numberings of one level.
            shown = _DEEPER.fullmatch(name)
            return "  " * max(deep, int(shown[1]) - 1 if shown else 0) + mark
        return ""

    def _table(self, table: etree._Element) -> None:
        rows = [row for row in _own(table, "tr") if row.find("trPr/del") is None]
        cells = [list(_own(row, "tc")) for row in rows]
        if len(cells) == 1 and len(cells[0]) == 1:
            self.read(cells[0][0])  # a box around text
            return
        told, is_head = self.page.block("table", role="table"), True
        begun: dict[int, etree._Element] = {}
        """by column, the cell that may go on below"""
        for row, inner in zip(rows, cells, strict=True):
            line = etree.SubElement(told, "tr")
            is_head = is_head and is_on(row, "trPr/tblHeader")
            if column := count_of(value_of(row, "trPr/gridBefore"), 0):
                etree.SubElement(line, "td", colspan=str(column))
            for cell in inner:
                merged = cell.find("tcPr/vMerge")
                wide = count_of(value_of(cell, "tcPr/gridSpan"))
                goes_on = merged is not None and merged.get("val", "continue") == "continue"
                if goes_on and column in begun:
                    begun[column].set("rowspan", str(int(begun[column].get("rowspan", "1")) + 1))
                else:
                    texts = (e.getparent() for e in cell.iter("t") if (e.text or "").strip())
                    bold = [run is not None and is_on(run.find("rPr"), "b") for run in texts]
                    named = is_head or (bold and all(bold))
                    own = etree.SubElement(line, "th" if named else "td", colspan=str(wide))
                    begun.pop(column, None)
                    if merged is not None:
                        begun[column] = own
                    with self.page.within(own):
                        self.read(cell)
                column += wide
        self._read_boxes()

    def _runs(self, element: etree._Element, *, linked: bool = False) -> Iterator[Run]:
        tag = element.tag
        if tag == "p":
            self._codes.clear()
        if tag == "r":
            for mark in element.iterchildren("fldChar"):
                turned = {"begin": [*self._codes[-1:], True], "separate": [False]}
                self._codes[-1:] = turned.get(mark.get("fldCharType", ""), [])
            if not any(self._codes):  # else the result of a field is in the code of another one
                yield from self._run(element, linked=linked)
        elif tag in ("oMath", "oMathPara"):
            yield from formulas_of(element)
        elif tag in _BOXES:
            self._boxes.append(element)
        elif tag not in _NO_TEXT:
            linked = linked or (tag == "hyperlink" and bool(element.get("anchor")))
            for child in element:
                yield from self._runs(child, linked=linked)

    def _run(self, run: etree._Element, *, linked: bool) -> Iterator[Run]:
        at = self._standing(run)
        if at is None:
            return
        at = "note" if linked and at == "sup" else at
        for element in run:
            tag = element.tag
            if tag == "t":
                yield at, element.text or ""
            elif tag in _SIGNS:
                yield "" if at == "note" else at, _SIGNS[tag]
            elif tag == "sym":
                yield at, _symbol(element)
            elif tag in ("footnoteReference", "endnoteReference"):
                has_own = element.get("customMarkFollows") in ("1", "true", "on")
                own = "".join(e.text or "" for e in run.iterchildren("t")) if has_own else ""
                yield "", self._mark(tag.removesuffix("Reference"), element.get("id", ""), own)
                if has_own:
                    return
            elif tag == "commentReference":
                comment = self._comments.pop(element.get("id", ""), None)
                if comment is not None:
                    by = " ".join(("comment", comment.get("author", ""))).strip()
                    self.page.note(by, (self._runs(p) for p in comment.iter("p")))
            else:
                yield from self._runs(element, linked=linked)

    def _mark(self, kind: str, key: str, own: str = "") -> str:
        """The mark of a note, which is told when it is met first."""
        marks = self._marks[kind]
        mark = marks.setdefault(key, own or counted(len(marks) + 1, self._forms.get(kind, "")))
        if (note := self._notes[kind].pop(key, None)) is not None:
            self.page.note(mark, (self._runs(p) for p in note.iter("p")))
        return f"[{mark}]"

    def _standing(self, run: etree._Element) -> str | None:
        """How a run stands on its line; None if it is struck through or hidden."""
        layout = run.find("rPr")
        if layout is None or not len(layout):
            return ""
        styles = self._based(value_of(layout, "rStyle"))
        for element in chain(layout, *(style.iterfind("rPr/*") for style in styles)):
            tag, to = element.tag, element.get("val", "")
            if tag in ("strike", "dstrike", "vanish") and is_on(element.getparent(), tag):
                return None
            if tag == "vertAlign":
                return SCRIPTS.get(to, "")
            if tag == "position" and count_of(to.strip("-"), 0) >= _MOVED:
                return "sub" if to[0] == "-" else "sup"
        return ""


def _own(parent: etree._Element, tag: str) -> Iterator[etree._Element]:
    """The rows of a table or the cells of a row, those within content controls too."""
    for element in parent:
        if element.tag == tag:
            yield element
        elif element.tag in _INNER:
            yield from _own(element, tag)


def _symbol(element: etree._Element) -> str:
    code, font = element.get("char", ""), element.get("font", "").casefold()
    sign = chr(int(code, 16) & 0xFF) if re.fullmatch("[0-9A-Fa-f]{1,4}", code) else ""
    known = _DINGBATS if "dings" in font else _SYMBOLS
    return known.get(sign) or (sign if " " <= sign < "\x7f" and font == "symbol" else "")


def _level(element: etree._Element) -> int:
    """The heading level that a paragraph or a style sets, `_TITLE`, or 0 for neither."""
    name = value_of(element, "name").casefold()
    if head := _HEADING.fullmatch(name):
        return int(head[1])
    level = value_of(element, "pPr/outlineLvl")
    outlined = int(level) + 1 if re.fullmatch("[0-8]", level) else 0
    return _TITLE if name == "title" else outlined
