r"""LaTeX as a reader of the paper sees it: sections, text, formulas once, notes, tables and lists.

Commands are not run: what is known is followed, of others the arguments in braces are text.
pylatexenc was measured: 3.4 s for a megabyte, where this takes 1.0; it writes 10^5 as 105, keeps
what is struck out, and tells no columns.
"""

import re
import unicodedata
from collections.abc import Callable
from functools import partial

from rubricem.agent.sources.readers.document import Document, Input
from rubricem.agent.sources.readers.encoding import names_of
from rubricem.agent.sources.readers.plain.writing import (
    Blocks,
    HtmlCell,
    formula,
    plain,
    sections_of,
    table,
    word_of_code,
)

_TOKEN = re.compile(
    r"\\(?P<word>[a-zA-Z@]{1,40})(?P<star>\*?)|\\(?P<sign>[^a-zA-Z])|(?P<open>\{)|(?P<close>\})"
    r"|(?P<dollars>\$\$?)|(?P<gap>\n[ \t]*\n\s*)|(?P<comment>%[^\n]*(?:\n(?![ \t]*\n)[ \t]*)?)"
    r"|(?P<plain>[^\\{}$\n&~%]+|\n|&|~)"
)
_NAMES = names_of("tex")
_SIGNS, _ACCENTS, _LEVELS, _VERBATIM = (
    _NAMES[name] for name in ("signs", "accents", "levels", "verbatim")
)
_DROPPED = dict.fromkeys(_NAMES["dropped_one"], 1) | dict.fromkeys(_NAMES["dropped_two"], 2)
"""how many of a command's arguments are no text"""
_DEEPEST = 100
_LONGEST = 5000
"""characters of a formula"""
_CELL, _ROW, _SPANS, _RULE = "\x1d", "\x1c", "\x1b", "\x19"
"""where a cell and a row begin in a table, before how many of them a cell covers, and a rule"""
_OPTION = re.compile(r"\s{0,20}\[((?:[^\[\]]|\[[^\[\]]{0,200}\]){0,1000}+)\]")
_THEOREM = re.compile(r"\\newtheorem\*?\{(\w{1,40})\}(?:\[\w{1,40}\])?\{([^{}]{1,60})\}")
_SPACE = re.compile(r"(?:[ \t]++|%[^\n]*+|\n(?![ \t]*\n))*+")
_NO_MATH = re.compile(
    r"(\\begin\{(\w{1,20})\*?\}.*?\\end\{\2\*?\})|\\(?:label|tag)\{[^{}]{0,99}\}|\\nonumber|\\notag"
    r"|(\\\\)|(?<!\\)(?:&|%[^\n]*)",
    re.S,
)
_math = partial(_NO_MATH.sub, lambda found: found[1] or _ROW * bool(found[3]))
"""a formula without what is not seen, its lines apart; what begins and ends within it stays"""
_BRACE = re.compile(r"\\.|[{}]", re.S)
_BRACED = r"\{((?:[^{}\\]|\\.|\{(?:[^{}\\]|\\.|\{(?:[^{}\\]|\\.)*+\})*+\}){0,2000}+)\}"
_DEFINED = re.compile(
    r"\\(?:newcommand\*?|def)[ \t]{0,9}\{?\\([a-zA-Z]{1,40})\}?[ \t]{0,9}"
    rf"(?:\[(\d)\](?:\[([^\[\]]{{0,200}})\])?|((?:#\d)*+))\s{{0,9}}{_BRACED}",
    re.S,
)
_VERBATIMS = rf"\\begin\{{(?P<kind>{'|'.join(_VERBATIM)})\*?\}}.*?\\end\{{(?P=kind)|\\verb(\W).*?\2"
_PASSES, _MOST_WRITTEN = 5, 200_000
"""commands within each other that a document defines, and the characters that it gains by them"""


def _written_out(source: str) -> str:
    """The source with the commands that it defines itself written out."""
    known: dict[str, tuple[int, list[str], str]] = {}
    """how many arguments each has, what the first is where it is not given, and what it says"""
    left = _MOST_WRITTEN

    def define(found: re.Match[str]) -> str:
        count, default = int(found[2] or found[4].count("#")), found[3]
        told = found[5].replace("\\xspace", " ")
        known[found[1]] = count, [] if default is None else [default], told
        return ""

    def write(found: re.Match[str]) -> str:
        nonlocal left
        if not found["word"]:
            return found[0]
        count, first, told = known[found["word"]]
        given = re.findall(_BRACED, found["given"], re.S)
        if first:
            given.insert(0, first[0] if found["option"] is None else found["option"])
        elif found["option"] is not None:
            told, given = f"{told}[{found['option']}]", []
        left -= len(told) + len(found["given"])
        for number, each in enumerate(given[:count], 1):
            told = told.replace(f"#{number}", each)
        return told + "".join(f"{{{each}}}" for each in given[count:]) if left > 0 else found[0]

    head, begin, body = source.partition("\\begin{document}")
    source = _DEFINED.sub(define, head) + begin + (body.rpartition("\\end{document}")[0] or body)
    named = (
        rf"{_VERBATIMS}|\\(?P<word>{'|'.join(known)})(?![a-zA-Z@])"
        rf"(?:\[(?P<option>[^\[\]]{{0,200}})\])?(?P<given>(?:{_BRACED}){{0,9}})"
    )
    for _ in range(_PASSES if known else 0):
        source = re.sub(named, write, source, flags=re.S)
    return source


class _Tex:
    """A document's source on its way into HTML, token by token."""

    def __init__(self, source: str, page: Blocks) -> None:
        self._source = source
        self._page = page
        """which keeps the notes"""
        self._at = self._level = self._tables = 0
        self._entry, self._deep = "<li>{} ", 0
        """how an item of the list begins with its term"""
        self._captions: list[str] = []
        self._closed: dict[int, int] = {}
        """where each brace that opens is closed"""
        above: list[int] = []
        for brace in _BRACE.finditer(source):
            if brace[0] == "{":
                above.append(brace.start())
            elif brace[0] == "}" and above:
                self._closed[above.pop()] = brace.start()
        self._theorems = {found[1]: found[2] for found in _THEOREM.finditer(source)}
        """what is called so, by the name of its environment"""
        self.title = ""

    def html(self) -> str:
        begins = self._source.find("\\begin{document}")
        told = dict.fromkeys(("title", "author", "date"), "")
        for name in told:
            if (at := self._source.rfind(f"\\{name}{{", 0, max(begins, 0))) >= 0:
                self._at = at + len(f"\\{name}")
                told[name] = self._inner()
        self.title = _bare(re.sub(r"<sup.*?</sup>", "", told["title"]))
        self._at = begins + len("\\begin{document}") if begins >= 0 else 0
        return f"<p>{told['author']}<p>{told['date']}<p>{self._told()}{self._page.html()}"

    def _told(self, end: str = "") -> str:
        """What is read until the brace or the word that ends it, or the end of all."""
        if self._level > _DEEPEST:
            return ""
        self._level += 1
        parts: list[str] = []
        while token := _TOKEN.match(self._source, self._at):
            self._at = token.end()
            if end and end in (token["close"], token["word"]):
                break
            parts.append(self._token(token))
        self._level -= 1
        return "".join(parts)

    def _token(self, token: re.Match[str]) -> str:
        if word := token["word"]:
            return self._word(word)
        if sign := token["sign"]:
            return self._sign(sign)
        if token["open"]:
            return self._told("}")
        if dollars := token["dollars"]:
            return self._formula(dollars, display=len(dollars) == 2, otherwise="$")
        if token["gap"]:
            return "\n<p>"
        if token[0] == "&":
            return _CELL if self._tables else ""
        return _typed(token["plain"] or "")

    def _sign(self, sign: str) -> str:
        if sign in "([":
            return self._formula("\\)" if sign == "(" else "\\]", display=sign == "[")
        if sign in _ACCENTS:
            return self._accented(_ACCENTS[sign])
        if sign == "\\":
            self._option()
            return _ROW if self._tables else " "
        return " " if sign in "\\,; \n:" else "" if sign in "-/@!" else plain(sign)

    def _word(self, word: str) -> str:
        if word in _SIGNS:
            self._skip_space()
            return plain(_SIGNS[word])
        if rule := _COMMANDS.get(word):
            return rule(self)
        if word in _LEVELS:
            return f"<h{_LEVELS[word]}>{_bare(self._inner())}</h{_LEVELS[word]}>\n"
        if "cite" in word or word in ("ref", "eqref", "autoref", "cref", "Cref", "pageref"):
            self._option()
            self._option()
            return f"[{plain(self._argument())}]"
        if word in _ACCENTS:
            return self._accented(_ACCENTS[word])
        for _ in range(_DROPPED.get(word, 0)):
            self._option()
            self._argument()
        self._option()
        told = list[str]()
        while self._source[self._at : self._at + 1] == "{":
            self._at += 1
            told.append(self._told("}"))
        return " ".join(filter(None, told)) if told else " " * self._skip_space()

    def _caption(self) -> str:
        told = self._inner()
        if self._tables:
            self._captions.append(told)
        return "" if self._tables else f"<p>{told}<p>"

    def _behind(self, count: int) -> str:
        """The argument behind so many that are no text."""
        for _ in range(count):
            self._argument()
        return self._inner()

    def _spanning(self, *, rows: bool) -> str:
        """A cell over several columns or rows, each of at most nine."""
        count = self._argument()
        told = self._behind(1)
        spans = f"1{count}" if rows else f"{count}1"
        return told + (_SPANS + spans if self._tables and re.fullmatch("[1-9]", count) else "")

    def _environment(self) -> str:
        name = self._argument()
        base = name.rstrip("*")
        if base in _NAMES["formulas"]:
            rows = filter(str.strip, _math(self._raw(name)).split(_ROW))
            return "".join(formula(row, display=True) for row in rows)
        if base in _NAMES["left_out"]:
            self._raw(name)
            return ""
        title = self._option()
        if base in _VERBATIM:
            return f"<pre>{plain(self._raw(name))}</pre>"
        if base in _NAMES["tables"]:
            return self._table(base)
        if base in _NAMES["laid_out"]:
            self._argument()
        named = f"<p>{self._inner()}<p>" if base.endswith("block") else ""
        self._deep += base == "enumerate"
        above, self._entry = self._entry, "<dt>{}<dd>" if base == "description" else "<li>{} "
        inner = self._told("end")
        _, begun, items = inner.partition(self._entry[:4])
        self._entry = above
        self._argument()
        if base in self._theorems:
            called = f" ({self._aside(title)})" if title else ""
            inner = f"{plain(self._theorems[base])}{called}. {inner}"
        if base == "Highlighting":  # as pandoc writes code
            return f"<pre>{inner}</pre>"
        if element := _LISTS.get(base):
            counted = re.search(r"\\([aA]l(?=ph)|[rR]o(?=man))", title)
            form = _FORMS[counted[1]] if counted else "1aiA"[min(self._deep, 4) - 1]
            self._deep -= base == "enumerate"
            form = f' type="{form}"' if base == "enumerate" else ""
            return f"<{element}{form}>{begun}{items}</{element}>"
        return f"<p>{'<h2>Abstract</h2>' if base == 'abstract' else named}{inner}<p>"

    def _raw(self, name: str) -> str:
        mark = f"\\end{{{name}}}"
        end = self._source.find(mark, self._at)
        end = len(self._source) if end < 0 else end
        raw, self._at = self._source[self._at : end], min(end + len(mark), len(self._source))
        return raw.strip("\n")

    def _item(self) -> str:
        return self._entry.format(self._aside(self._option()))

    def _table(self, base: str) -> str:
        if base in ("tabularx", "tabulary"):
            self._argument()
        self._argument()
        self._tables += 1
        inner = self._told("end")
        self._argument()
        self._tables -= 1
        rows, ruled = list[list[HtmlCell]](), set[int]()
        hanging: dict[int, tuple[str, int]] = {}
        """by column, a cell above that covers the next rows as well, and how many of them"""
        for row in inner.split(_ROW):
            cells, column = list[HtmlCell](), 0
            for each in row.replace(_RULE, "").split(_CELL):
                text, *spans = each.split(_SPANS)
                wide, deep = (max((int(s[n]) for s in spans), default=1) for n in (0, 1))
                above, left = hanging.pop(column, ("", 0))
                text = _bare(text) or above
                if (more := max(deep - 1, left - 1)) > 0:
                    hanging[column] = text, more
                cells.append((text, wide, 1))
                column += wide
            if any(cell[0] for cell in cells) and cells not in rows[:1]:
                ruled.update([len(rows)] * (_RULE in row))
                rows.append(cells)  # a long table repeats its header
        above = "".join(f"<p>{each}</p>" for each in self._captions[:1])
        self._captions.clear()
        # A rule between all rows says nothing of the first ones.
        first = min(ruled - {0}, default=0)
        return f"{above}{table(rows, None if first + 1 in ruled else first)}"

    def _formula(self, close: str, *, display: bool, otherwise: str = "") -> str:
        end = self._source.find(close, self._at, self._at + _LONGEST)
        if end < 0:
            return otherwise
        tex, self._at = self._source[self._at : end], end + len(close)
        return formula(_math(tex).replace(_ROW, " "), display=display)

    def _inner(self) -> str:
        """The argument that follows, told as text."""
        self._option()
        self._skip_space()
        if self._source[self._at : self._at + 1] != "{":
            return self._aside(self._argument())
        self._at += 1
        return self._told("}").strip()

    def _aside(self, source: str) -> str:
        """Source from elsewhere told as text."""
        if not source or self._level > _DEEPEST:
            return ""
        within = _Tex(source, self._page)
        within._level = self._level + 10
        return within._told().strip()

    def _argument(self) -> str:
        """The source within the braces that follow, or a single token."""
        self._skip_space()
        if self._source[self._at : self._at + 1] != "{":
            token = _TOKEN.match(self._source, self._at)
            if not token or token["gap"] or token["close"]:
                return ""
            told = token[0] if token["word"] or token["sign"] else token[0][:1]
            self._at += len(told)
            return told
        start, end = self._at + 1, self._closed.get(self._at, 0)
        self._at = max(start, end + 1)
        return self._source[start:end]

    def _option(self) -> str:
        """The source within the brackets that follow, if any."""
        found = _OPTION.match(self._source, self._at)
        if not found or "\n\n" in found[0]:
            return ""
        self._at = found.end()
        return found[1]

    def _skip_space(self) -> bool:
        start = self._at
        if found := _SPACE.match(self._source, start):
            self._at = found.end()
        return self._at > start

    def _accented(self, accent: str) -> str:
        if not (letter := self._argument().removeprefix("\\")):  # the sign by itself
            return {"\u0303": "~", "\u0302": "^"}.get(accent, "")
        return plain(unicodedata.normalize("NFC", letter[0] + accent) + letter[1:])

    def _quantity(self, count: int) -> str:
        """A number and its unit, as the package siunitx sets them."""
        self._option()
        number, *units = (self._argument() for _ in range(count))
        number = re.sub(r"(?<=\d)[eE]([-+]?\d+)", r" x 10^\1", number)
        told = (re.sub(r"[\\{}]", " ", re.sub(r"\\per\b", "/", unit)) for unit in units)
        return plain(" ".join((number, *(re.sub(r"\s*/\s*", "/", t).strip() for t in told))))

    def _verb(self) -> str:
        mark = self._source[self._at : self._at + 1] or " "
        start = self._at + 1
        end = self._source.find(mark.replace("{", "}"), start, start + 1000)
        if end < 0:
            return ""
        self._at = end + 1
        return word_of_code(self._source[start:end])


_COMMANDS: dict[str, Callable[[_Tex], str]] = {
    **dict.fromkeys(
        ("footnote", "endnote", "footnotetext", "thanks"), lambda t: t._page.noted(t._inner())
    ),
    **dict.fromkeys(("IEEEPARstart", "lettrine"), lambda tex: tex._inner() + tex._inner()),
    **dict.fromkeys(("hline", "midrule"), lambda tex: _RULE * bool(tex._tables)),
    **dict.fromkeys(("verb", "lstinline", "mintinline"), _Tex._verb),
    **dict.fromkeys(("url", "path", "nolinkurl", "ce"), lambda tex: plain(tex._argument())),
    **dict.fromkeys(("SI", "qty"), lambda tex: tex._quantity(2)),
    **dict.fromkeys(("num", "si", "unit"), lambda tex: tex._quantity(1)),
    **dict.fromkeys(
        ("SIrange", "qtyrange"), lambda tex: f"{tex._quantity(1)} to {tex._quantity(2)}"
    ),
    "ang": lambda tex: f"{plain(tex._argument())}°",
    **dict.fromkeys(
        ("nicefrac", "sfrac"), lambda tex: f"<sup>{tex._inner()}</sup>/<sub>{tex._inner()}</sub>"
    ),
    "textsuperscript": lambda tex: f"<sup>{tex._inner()}</sup>",
    "textsubscript": lambda tex: f"<sub>{tex._inner()}</sub>",
    "ensuremath": lambda tex: formula(tex._argument()),
    "href": lambda tex: tex._behind(1),
    "multicolumn": lambda tex: tex._spanning(rows=False),
    "multirow": lambda tex: tex._spanning(rows=True),
    "tabularnewline": lambda tex: tex._sign("\\"),
    "caption": _Tex._caption,
    "item": _Tex._item,
    "par": lambda tex: "<p>",
    "bibitem": lambda tex: f"<p>[{plain(tex._option() or tex._argument())}] ",
    "begin": _Tex._environment,
    "end": lambda tex: "<p>" * bool(tex._argument()),
}


def _typed(text: str) -> str:
    """Characters as they are set: quotes and dashes are typed as several."""
    for typed, set_as in (("---", "—"), ("--", "–"), ("``", "“"), ("''", "”"), ("~", " ")):  # noqa: RUF001
        text = text.replace(typed, set_as)
    return plain(text)


def _bare(page: str) -> str:
    return re.sub(r"\s+", " ", page).strip()


_FORMS = {"al": "a", "Al": "A", "ro": "i", "Ro": "I"}  # by how the names of commands begin
_LISTS = {"itemize": "ul", "enumerate": "ol", "description": "dl"}


def read_tex(given: Input) -> Document:
    text, said = given.text()
    text = re.sub(r"\r\n?", "\n", text).translate(dict.fromkeys(range(0x19, 0x20)))
    text = re.sub(r"(\\cmidrule(?:\[[^\[\]]{0,20}\])?)\([a-z]{0,4}\)", r"\1", text)
    text, *unused = text.split("\\iffalse")
    text += "".join(re.split(r"\\fi(?![a-zA-Z])", each, maxsplit=1)[-1] for each in unused)
    if "{beamer}" in text:  # frames have titles, and what is shown on which slide is no text
        text = re.sub(r"(\\[a-zA-Z]{1,40}|[\]}])<[-\d,+.|:a-z()]{1,40}>", r"\1", text)
        text = re.sub(r"(\\begin\{frame\}(?:\[[^\[\]]{0,99}\])?)\s*(?=\{)", r"\1\\frametitle", text)
    reader = _Tex(_written_out(text), Blocks())
    sections = sections_of(reader.html())
    return Document.of(given, sections, reader.title, said)
