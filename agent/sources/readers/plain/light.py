"""Org and AsciiDoc, rewritten as the Markdown that says the same.

No library reads either without a program beside it. What Markdown has no mark for is written as
HTML; comments, drawers and what was struck through are left out.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

from rubricem.agent.sources.readers.document import (
    Block,
    BlockKind,
    Document,
    Input,
    Section,
    title_of,
)
from rubricem.agent.sources.readers.encoding import decode
from rubricem.agent.sources.readers.plain.markdown import markdown_sections
from rubricem.agent.sources.readers.plain.writing import table

_LONGEST = 2000
"""characters of a line whose marks are looked at"""


@dataclass(slots=True)
class _Rewritten:
    lines: list[str] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)
    """what the text says of itself: title, date, tags"""

    def document(self, given: Input, note: str) -> Document:
        sections = markdown_sections("\n".join(self.lines))
        told = "\n".join(f"{name}: {value}" for name, value in self.fields.items() if value)
        first = (Section((), (Block(BlockKind.PARAGRAPH, told),)),) if told else ()
        tags = re.split(r"[:,;\s]+", self.fields.get("filetags") or self.fields.get("keywords", ""))
        title, date = self.fields.get("title", ""), self.fields.get("date", "")
        title = title or title_of(sections, given.stem)
        return Document(title, (*first, *sections), note, date, tuple(filter(None, tags)))


def _reader(rewrite: Callable[[Sequence[str]], _Rewritten]) -> Callable[[Input], Document]:
    def read(given: Input) -> Document:
        text, note = decode(given.content())
        return rewrite(text.splitlines()).document(given, note)

    return read


# Org

_ORG_HEADING = re.compile(r"(\*{1,20})\s+(\S.*)")
_ORG_TAGS = re.compile(r"\s+:[\w@#%]+(?::[\w@#%]+)*:\s*\Z")
_ORG_KEY = re.compile(r"\s*#\+(\w[\w-]{0,40})(?:\[[^\]]{0,200}\])?:?\s*(.*)")
_ORG_ITEM = re.compile(r"(\s*)(?:[-+]|\d+[.)])\s+(\S.*)")
_ORG_TERM = re.compile(r"\s*[-+]\s+(\S.{0,200}?)\s+::\s+(.*)")
_ORG_RULE = re.compile(r"\s*\|[-+|: ]+\Z")
_MARKED = re.compile(r"[][=~+*/_^\\{}<>&$`:#(]| --? ")
_CODE = "\ue000{}\ue001"
_CODED = re.compile("\ue000(\\d+)\ue001")
_EDGE = r"(?<![\w\\{0}]){0}(?=[^\s{0}])([^{0}\n]{{1,400}}?)(?<=\S){0}(?!\w)"


def _marks(*signs: str) -> list[re.Pattern[str]]:
    return [re.compile(_EDGE.format(re.escape(sign))) for sign in signs]


_ORG_CODE, _ORG_OUT, _ORG_PLAIN = _marks("=", "~"), _marks("+"), _marks("*", "/", "_")


def _inline(text: str, codes: Sequence[re.Pattern[str]], rules: Callable[[str], str]) -> str:
    """A line whose code is kept as it is, and whose other marks `rules` rewrites."""
    if not _MARKED.search(text):
        return text
    kept: list[str] = []

    def keep(found: re.Match[str]) -> str:
        kept.append(f"`{found[1]}`")
        return _CODE.format(len(kept) - 1)

    for each in codes:
        text = each.sub(keep, text)
    text = rules(escape(text, quote=False))
    return _CODED.sub(lambda m: kept[int(m[1])] if int(m[1]) < len(kept) else "", text)


def _org_marks(text: str) -> str:
    text = re.sub(r"\[\[([^\[\]]{1,400})\]\[([^\[\]]{1,400})\]\]", r"\2", text)
    text = re.sub(r"\[\[([^\[\]]{1,400})\]\]", r"\1", text)
    text = re.sub(r"\[fn:\w{0,40}:\s*([^\[\]]{1,2000})\]", r"^[\1]", text)
    text = re.sub(r"\[fn:([\w-]{1,40})\]", r"[^\1]", text)
    for each in _ORG_OUT:
        text = each.sub("", text)
    for each in _ORG_PLAIN:
        text = each.sub(r"\1", text)
    text = re.sub(r"\^\{([^{}\n]{1,200})\}", r"<sup>\1</sup>", text)
    text = re.sub(r"(?<=\w)_\{([^{}\n]{1,200})\}", r"<sub>\1</sub>", text)
    return _tex_marks(text)


def _tex_marks(text: str) -> str:
    text = re.sub(r"\\\(([^\n]{1,400}?)\\\)", r"$\1$", text)
    return re.sub(r"\\\[([^\n]{1,400}?)\\\]", r"$$\1$$", text)


def _org(lines: Sequence[str]) -> _Rewritten:
    told = _Rewritten()
    out, ends, literal, listed = told.lines, "", False, False
    for line in lines:
        bare = line.strip()
        if ends:
            if bare.lower() == ends:
                out += ["```", ""] if literal else [""]
                ends = ""
            elif literal:
                out.append(line)
        elif begun := re.match(r"#\+begin_(\w{1,40})", bare, re.I):
            kind = begun[1].lower()
            literal = kind in ("src", "example", "verse")
            ends = f"#+end_{kind}" if literal or kind in ("comment", "export") else ""
            out += ["", "```"] if literal else [""]
        elif key := _ORG_KEY.match(line):
            _org_key(key[1].lower(), key[2], told)
        elif re.fullmatch(r":[\w-]{1,40}:", bare) and bare.lower() != ":end:":
            ends, literal = ":end:", False
        elif bare != "#" and not bare.startswith("# "):
            listed = _org_line(line, listed, out)
    return told


def _org_key(name: str, value: str, told: _Rewritten) -> None:
    if name in ("title", "date", "filetags", "keywords", "author", "description"):
        told.fields[name] = value.strip(" :")
    elif name == "caption":
        told.lines += ["", _inline(value, _ORG_CODE, _org_marks), ""]


def _org_line(line: str, listed: bool, out: list[str]) -> bool:
    """Write a line of running text; returns whether a list goes on below it."""
    if (heading := _ORG_HEADING.match(line[:_LONGEST])) and line[0] == "*":
        level = min(len(heading[1]), 6)
        name = _ORG_TAGS.sub("", heading[2])
        out += ["", f"{'#' * level} {_inline(name, _ORG_CODE, _org_marks)}", ""]
        return False
    if line.lstrip().startswith("|"):
        first = not (out and out[-1].startswith("|"))
        columns = line.count("+") + 1
        if _ORG_RULE.match(line):
            if len(out) > 1 and out[-1].startswith("|") and not out[-2].startswith("|"):
                out.append("|" + "---|" * columns)
        else:
            if not first and not out[-2].startswith("|") and "---" not in out[-1]:
                out.append("|" + "---|" * (out[-1].count("|") - 1))
            out += [""] * first + [_inline(line.strip(), _ORG_CODE, _org_marks)]
        return False
    if term := _ORG_TERM.match(line[:_LONGEST]):
        rules = [_inline(each, _ORG_CODE, _org_marks) for each in term.groups()]
        out += ["", rules[0], "", f":   {rules[1]}"]
        return True
    if note := re.match(r"\[fn:([\w-]{1,40})\]\s+(.*)", line):
        out += ["", f"[^{note[1]}]: {_inline(note[2], _ORG_CODE, _org_marks)}"]
        return False
    if line.lstrip().startswith(": "):
        out += [f"    {line.lstrip()[2:]}"]
        return False
    item = _ORG_ITEM.match(line)
    listed = bool(item) or (listed and (not line.strip() or line[:1].isspace()))
    line = line.removesuffix("\\\\")
    told = _inline(line[:_LONGEST], _ORG_CODE, _org_marks) + line[_LONGEST:]
    out.append(told if listed else told.lstrip())
    return listed


# AsciiDoc

_ADOC_HEADING = re.compile(r"(={1,6})\s+(\S.*)")
_ADOC_FIELD = re.compile(r":(!?[\w-]{1,60}!?):\s*(.*)")
_ADOC_ITEM = re.compile(r"\s*([*.-]{1,6}|\d+\.)\s+(\S.*)")
_ADOC_TERM = re.compile(r"\s*(\S.{0,200}?)(:{2,4}|;;)(?:\s+(.*))?\Z")
_ADOC_BLOCK = re.compile(
    r"(?:-{4,}|\.{4,}|={4,}|\*{4,}|_{4,}|\+{4,}|/{4,}|--|`{3,}\w*|[|,!:]={3,})\Z"
)
_ADOC_CODE = [re.compile(r"(?<!\w)``?([^`\n]{1,400}?)``?(?!\w)")]
_ADOC_SIGNS = {
    "(C)": "©", "(R)": "®", "(TM)": "™", " -- ": " – ", "-&gt;": "→", "=&gt;": "⇒",  # noqa: RUF001
}  # fmt: skip


def _adoc_marks(text: str) -> str:
    text = re.sub(r"footnote:[\w-]{0,40}\[([^\[\]]{1,2000})\]", r"^[\1]", text)
    text = re.sub(r"\[(?:\.?line-through|\.?del)\]#[^#\n]{1,400}#", "", text)
    text = re.sub(r"(?:latexmath|stem|asciimath):\[([^\n]{1,400}?)\](?!\])", r"$\1$", text)
    text = re.sub(
        r"(?:link|xref|mailto|kbd|btn|menu|pass|image):[^\s\[\]]{0,400}\[([^\[\]]{0,400})\]",
        r"\1",
        text,
    )
    text = re.sub(r"(https?://[^\s\[\]]{1,400})\[([^\[\]]{0,400})\]", lambda m: m[2] or m[1], text)
    text = re.sub(
        r"&lt;&lt;([^,&\n]{1,200})(?:,([^&\n]{1,200}))?&gt;&gt;",
        lambda m: (m[2] or m[1]).strip(),
        text,
    )
    text = re.sub(r"\[\[[^\[\]\n]{1,200}\]\]|\[\.?[\w.-]{1,40}\](?=#)", "", text)
    text = re.sub(r"\^([^\s^]{1,100})\^", r"<sup>\1</sup>", text)
    text = re.sub(r"~([^\s~]{1,100})~", r"<sub>\1</sub>", text)
    for each in _ADOC_PLAIN:
        text = each.sub(r"\1", text)
    for sign, told in _ADOC_SIGNS.items():
        text = text.replace(sign, told)
    return text


_ADOC_PLAIN = [re.compile(rf"{s}{s}(\S[^\n]{{0,400}}?){s}{s}") for s in (r"\*", "_", "#")]
_ADOC_PLAIN += _marks("*", "_", "#")


class _Adoc:
    """Lines of AsciiDoc on their way into Markdown."""

    def __init__(self) -> None:
        self.told = _Rewritten()
        self.out = self.told.lines
        self.ends = ""
        self.style = ""
        """what the attributes above a block call it"""
        self.table: list[str] = []
        self.known: dict[str, str] = {}
        self.levels: list[str] = []
        """of a list, its marks from the outermost in"""

    def add(self, line: str) -> None:
        bare = line.strip()
        if self.ends:
            self._within(line, bare)
        elif _ADOC_BLOCK.match(bare) and not (bare.startswith("==") and " " in bare):
            self._open(bare)
        elif bare.startswith("//"):
            return
        elif (found := _ADOC_FIELD.match(line)) and not self.levels:
            self._field(found[1], found[2])
        elif re.fullmatch(r"\[[^\[\]]{0,300}\]", bare):
            self.style = bare.strip("[]").lower()
        elif re.match(r"(?:ifdef|ifndef|endif|ifeval|include|toc|video|audio)::", bare):
            return
        elif found := re.match(r"image::[^\[\]]{0,400}\[([^\[\],]{0,400})", bare):
            self.out += ["", self._line(found[1].strip('"')), ""]
        else:
            self._text(line, bare)

    def _open(self, bare: str) -> None:
        if bare[0] in "|,!:" and bare[1] == "=":
            self.ends, self.table = bare, []
        elif bare[0] in "-.+`" and bare != "--":
            self.ends = bare if bare[0] != "`" else "```"
            self.out += ["", "$$" if self.style.startswith(("stem", "latexmath")) else "```"]
        elif bare[0] == "/":
            self.ends = bare
        else:  # an example, a sidebar, a quote: what is in it is text
            self.out.append("")
        self.levels = []

    def _within(self, line: str, bare: str) -> None:
        if bare != self.ends:
            if self.ends[0] in "|,!:":
                self.table.append(line)
            elif self.ends[0] != "/":
                self.out.append(line)
            return
        if self.ends[0] in "|,!:":
            self.out += ["", _adoc_table(self.table, self.ends[0], self.style, self._line), ""]
        elif self.ends[0] != "/":
            self.out += ["$$" if self.style.startswith(("stem", "latexmath")) else "```", ""]
        self.ends, self.style = "", ""

    def _field(self, name: str, value: str) -> None:
        self.known[name] = value
        called = {"revdate": "date", "docdate": "date"}.get(name, name)
        if called in ("title", "date", "keywords", "author", "description"):
            self.told.fields[called] = value

    def _text(self, line: str, bare: str) -> None:
        heading = _ADOC_HEADING.match(line[:_LONGEST])
        item = _ADOC_ITEM.match(line[:_LONGEST])
        term = _ADOC_TERM.match(line[:_LONGEST])
        if heading:
            self.levels = []
            self.out += ["", f"{'#' * len(heading[1])} {self._line(heading[2])}", ""]
        elif item and not bare.startswith("---"):
            mark = "1." if item[1][0].isdigit() else item[1]
            self.levels = (
                self.levels[: self.levels.index(mark)] if mark in self.levels else self.levels
            )
            self.levels = [*self.levels, mark]
            sign = "1." if mark[0] in ".1" else "-"
            indent = "   " * (len(self.levels) - 1)
            self.out += [""] * (len(self.levels) == 1) + [f"{indent}{sign} {self._line(item[2])}"]
        elif term and not self.levels:
            self.out += ["", self._line(term[1]), "", f":   {self._line(term[3] or '')}"]
        elif bare == "+":
            self.out.append("")
        elif bare.startswith(".") and bare[1:2].isalnum():
            self.out += ["", self._line(bare[1:]), ""]
        elif not bare:
            self.out.append("")
            self.levels = []
        else:
            lead = "   " * len(self.levels) + (
                "    " if self.out and self.out[-1] == ":   " else ""
            )
            self.out.append(lead + self._line(bare.removesuffix(" +")))

    def _line(self, text: str) -> str:
        if self.known and "{" in text:
            text = re.sub(r"\{([\w-]{1,60})\}", lambda m: self.known.get(m[1], m[0]), text)
        if len(text) > _LONGEST:
            return escape(text, quote=False)
        return _inline(text, _ADOC_CODE, _adoc_marks)


def _adoc_table(lines: Sequence[str], sign: str, style: str, inline: Callable[[str], str]) -> str:
    """A table in HTML; a row is a line, or as many cells as the first row or `cols` has."""
    rows, width = [], 0
    if found := re.search(r"cols=\"?(\d+)\*|cols=\"([^\"]{1,200})\"", style):
        width = int(found[1] or 0) or found[2].count(",") + 1
    mark = re.escape("," if sign == "," else sign)
    cells = re.compile(
        rf"(?:(?<=\s)|\A)(?:[\d.+*]{{0,9}}[<>^.]{{0,4}}[a-z]?)(?<!\\){mark}|(?<!\\){mark}"
    )
    loose: list[str] = []
    for line in lines:
        if not line.strip():
            continue
        parts = [
            part.strip() for part in (line.split(",") if sign == "," else cells.split(line)[1:])
        ]
        if not parts and loose:
            loose[-1] += f" {line.strip()}"
            continue
        width = width or len(parts)
        loose += parts
    width = max(width, 1)
    rows = [loose[at : at + width] for at in range(0, len(loose), width)]
    headed = "header" in style or (len(lines) > 1 and not lines[1].strip()) or None
    return table([[inline(cell) for cell in row] for row in rows], 1 if headed else None)


def _adoc(lines: Sequence[str]) -> _Rewritten:
    writer = _Adoc()
    for line in lines:
        writer.add(line)
    return writer.told


READERS = {
    ".org": _reader(_org),
    ".adoc": _reader(_adoc),
    ".asciidoc": _reader(_adoc),
}
