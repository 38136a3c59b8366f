r"""LaTeX as a reader of the paper sees it: sections, text, formulas once, notes, tables and lists.

Commands are not run: what is known is followed, of others the arguments in braces are text.
pylatexenc was tried: it tells no notes and glues the cells of tables.
"""

import re
from collections.abc import Callable, Iterator
from html import escape

from rubricem.agent.sources.readers.document import Document, Input, title_of
from rubricem.agent.sources.readers.encoding import decode
from rubricem.agent.sources.readers.plain import writing

_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*+)%[^\n]*\n?[ \t]*")
_TOKEN = re.compile(
    r"\\(?P<word>[a-zA-Z@]{1,40})(?P<star>\*?)|\\(?P<sign>[^a-zA-Z])|(?P<open>\{)|(?P<close>\})"
    r"|(?P<dollars>\$\$?)|(?P<gap>\n[ \t]*\n\s*)|(?P<plain>[^\\{}$\n&~]+|\n|&|~)"
)
_LEVELS = {
    "part": 1, "chapter": 1, "section": 2, "subsection": 3, "subsubsection": 4, "paragraph": 5,
    "subparagraph": 6,
}  # fmt: skip
_FORMULAS = frozenset((
    "equation", "align", "gather", "multline", "eqnarray", "displaymath", "math", "flalign",
    "alignat",
))  # fmt: skip
_VERBATIM = frozenset(("verbatim", "lstlisting", "minted", "Verbatim", "alltt", "code"))
_TABLES = frozenset(
    ("tabular", "tabularx", "longtable", "tabulary", "array", "supertabular", "tblr")
)
_LEFT_OUT = frozenset(("comment", "tikzpicture", "picture", "filecontents", "pgfpicture", "CCSXML"))
_SIGNS = {
    "textbackslash": "\\", "ldots": "…", "dots": "…", "textellipsis": "…", "S": "§", "P": "¶",
    "copyright": "©", "textregistered": "®", "texttrademark": "™", "textdegree": "°", "degree": "°",
    "pounds": "£", "euro": "€", "texteuro": "€", "textmu": "µ", "aa": "å", "AA": "Å", "ae": "æ",
    "AE": "Æ", "o": "ø", "O": "Ø", "l": "ł", "L": "Ł", "ss": "ß", "oe": "œ", "OE": "Œ", "i": "ı",  # noqa: RUF001
    "textendash": "–", "textemdash": "—", "LaTeX": "LaTeX", "TeX": "TeX", "quad": " ",  # noqa: RUF001
    "qquad": " ", "newline": " ", "linebreak": " ", "textasciitilde": "~", "textbar": "|",
    "textless": "<", "textgreater": ">", "textbullet": "•", "slash": "/", "textquotesingle": "'",
    "dag": "†", "ddag": "‡", "textasciicircum": "^", "textunderscore": "_", "par": "\n\n",
}  # fmt: skip
_ACCENTS = {
    "`": "\u0300", "'": "\u0301", "^": "\u0302", '"': "\u0308", "~": "\u0303", "=": "\u0304",
    ".": "\u0307", "u": "\u0306", "v": "\u030c", "H": "\u030b", "c": "\u0327", "k": "\u0328",
    "r": "\u030a", "d": "\u0323", "b": "\u0331",
}  # fmt: skip
_DROPPED = dict.fromkeys((
    "label", "vspace", "hspace", "usepackage", "documentclass", "input", "include",
    "bibliographystyle", "bibliography", "hypertarget", "includegraphics", "def", "pagestyle",
    "thispagestyle", "cline", "cmidrule", "graphicspath", "color", "index", "phantom",
    "hypersetup", "sout", "st", "xout", "todo", "selectlanguage", "geometry", "addbibresource",
    "nocite", "textcolor", "raisebox", "parbox", "thanks",
), 1) | dict.fromkeys((
    "setlength", "setcounter", "addtolength", "newcommand", "renewcommand", "providecommand",
    "rule", "newtheorem", "addcontentsline", "markboth", "fontsize", "PassOptionsToPackage",
    "resizebox", "definecolor",
), 2)  # fmt: skip
"""how many of a command's arguments are no text"""
_CAPTION = re.compile(
    r"\\caption(?:\[[^\]]{0,400}\])?\{([^{}]{1,1000})\}(?:\\label\{[^{}]{0,99}\})?"
    r"(?:\s{0,9}(?:\\tabularnewline|\\\\))?"
)
_RULES = re.compile(
    r"\\(?:top|mid|bottom)rule(?:\[[^\]]{0,40}\])?|\\hline|\\end(?:first|last)?(?:head|foot)\b"
    r"|\\c(?:line|midrule)(?:\([^()]{0,9}\))?\{[^{}]{0,40}\}|\\noalign\{[^{}]{0,99}\}"
    r"|\\addlinespace(?:\[[^\]]{0,40}\])?"
)
_DEEPEST = 100
_LONGEST = 5000
"""characters of one formula, or of an argument that is no text"""


class _Tex:
    """A document's source on its way into HTML, token by token."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._level = 0
        self.notes: list[str] = []
        self.title, self.date = "", ""

    def page(self) -> str:
        begins = self._source.find("\\begin{document}")
        head = self._source[: max(begins, 0)]
        for name in ("title", "date"):
            if (at := head.rfind(f"\\{name}{{")) >= 0:
                self._at = at + len(name) + 1
                setattr(self, name, _bare(self._inner()))
        self._at = begins + len("\\begin{document}") if begins >= 0 else 0
        return _paragraphs(self._told()) + "".join(self.notes)

    def _told(self, ends: Callable[[re.Match[str]], bool] = lambda token: False) -> str:
        """What is read until a token that ends it, or the end."""
        if self._level > _DEEPEST:
            return ""
        self._level += 1
        parts: list[str] = []
        while token := _TOKEN.match(self._source, self._at):
            self._at = token.end()
            if ends(token):
                break
            parts.append(self._token(token))
        self._level -= 1
        return "".join(parts)

    def _token(self, token: re.Match[str]) -> str:
        if word := token["word"]:
            return self._word(word)
        if sign := token["sign"]:
            if sign in "([":
                return self._formula(")" if sign == "(" else "]", display=sign == "[")
            if sign in _ACCENTS:
                return self._accented(_ACCENTS[sign])
            gap = sign in "\\,; \n:"
            return " " if gap else "" if sign in "-/@!" else escape(sign, quote=False)
        if token["open"]:
            return self._told(_closes)
        if dollars := token["dollars"]:
            end = self._source.find(dollars, self._at, self._at + _LONGEST)
            if end < 0:
                return "$"
            tex, self._at = self._source[self._at : end], end + len(dollars)
            return writing.formula(tex, display=len(dollars) == 2)
        if token["gap"]:
            return "\n\n"
        return _typed(token["plain"] or "")

    def _word(self, word: str) -> str:
        if word == "begin":
            return self._environment(self._argument())
        if word in _SIGNS:
            self._skip_space()
            return escape(_SIGNS[word], quote=False)
        if rule := _COMMANDS.get(word):
            return rule(self)
        if word in _LEVELS:
            self._option()
            return f"\n\n<h{_LEVELS[word]}>{_bare(self._inner())}</h{_LEVELS[word]}>\n\n"
        if "cite" in word or word in ("ref", "eqref", "autoref", "cref", "Cref", "pageref"):
            self._option()
            self._option()
            return f"[{escape(self._argument())}]"
        if word in _ACCENTS:
            return self._accented(_ACCENTS[word])
        for _ in range(_DROPPED.get(word, 0)):
            self._option()
            self._argument()
        self._option()
        return " " if self._skip_space() else ""

    def _footnote(self) -> str:
        self._option()
        self.notes.append("")
        mark = str(len(self.notes))
        self.notes[int(mark) - 1] = writing.note(mark, self._inner())
        return writing.note_link(mark)

    def _raised(self, element: str) -> str:
        return f"<{element}>{self._inner()}</{element}>"

    def _caption(self) -> str:
        self._option()
        return f"\n\n{self._inner()}\n\n"

    def _behind(self, count: int) -> str:
        """The argument behind so many that are no text."""
        for _ in range(count):
            self._argument()
        return self._inner()

    def _end(self) -> str:
        """The end of nothing that was begun."""
        self._argument()
        return "\n\n"

    def _environment(self, name: str) -> str:
        base = name.rstrip("*")
        if base in _FORMULAS:
            tex = self._raw(name)
            rows = [
                re.sub(r"\\(?:label|tag)\{[^{}]{0,99}\}|\\nonumber|\\notag|&", "", row)
                for row in tex.split("\\\\")
            ]
            return (
                "\n\n"
                + "\n\n".join(writing.formula(row, display=True) for row in rows if row.strip())
                + "\n\n"
            )
        if base in _VERBATIM:
            self._option()
            return f"\n\n{writing.code(self._raw(name))}\n\n"
        if base in _LEFT_OUT:
            self._raw(name)
            return ""
        self._option()
        if base in _TABLES:
            if base in ("tabularx", "tabulary"):
                self._argument()
            self._argument()
            return self._table(name)
        if base in ("itemize", "enumerate", "description"):
            return self._list(base)
        if base in ("minipage", "multicols", "thebibliography", "adjustbox"):
            self._argument()
        inner = self._told(self._ends)
        if base == "abstract":
            return f"\n\n<h2>Abstract</h2>\n\n{inner}\n\n"
        return f"\n\n{inner}\n\n"

    def _ends(self, token: re.Match[str]) -> bool:
        """Whether a token ends an environment, whose name is then read as well."""
        if token["word"] == "end":
            self._argument()
        return token["word"] == "end"

    def _raw(self, name: str) -> str:
        mark = f"\\end{{{name}}}"
        end = self._source.find(mark, self._at)
        end = len(self._source) if end < 0 else end
        raw, self._at = self._source[self._at : end], min(end + len(mark), len(self._source))
        return raw.strip("\n")

    def _list(self, base: str) -> str:
        items: list[tuple[str, str]] = []
        ended = ""

        def ends(token: re.Match[str]) -> bool:
            nonlocal ended
            ended = "end" if self._ends(token) else token["word"] or ""
            return ended in ("end", "item")

        self._told(ends)
        while ended == "item":
            ended, term = "", self._aside(self._option())
            text = self._told(ends).strip()
            lead = f"{term} " if term and base != "description" else ""
            items.append((term, _paragraphs(f"{lead}{text}")))
        if base == "description":
            told = "".join(f"<dt>{term}</dt><dd>{text}</dd>" for term, text in items)
            return f"\n\n<dl>{told}</dl>\n\n"
        element = "ol" if base == "enumerate" else "ul"
        told = "".join(f"<li>{text}</li>" for _, text in items)
        return f"\n\n<{element}>{told}</{element}>\n\n"

    def _table(self, name: str) -> str:
        raw = self._raw(name)
        captions = [found[1] for found in _CAPTION.finditer(raw)]
        raw = _RULES.sub("", _CAPTION.sub("", raw))
        told: list[list[str]] = []
        for row in re.split(r"\\\\(?:\*|\[[^\]]{0,40}\])?|\\tabularnewline", raw):
            several = map(self._cell, re.split(r"(?<!\\)&", row))
            cells = [cell for each in several for cell in each]
            if any(cells) and cells not in told[:1]:  # a long table repeats its header
                told.append(cells)
        above = "".join(f"<p>{self._aside(each)}</p>" for each in captions[:1])
        return f"\n\n{above}{writing.table(told)}\n\n"

    def _cell(self, source: str) -> list[str]:
        spans = re.match(r"\s*\\multicolumn\{(\d{1,3})\}", source)
        return [_bare(self._aside(source))] * (int(spans[1]) if spans else 1)

    def _formula(self, close: str, *, display: bool) -> str:
        end = self._source.find(f"\\{close}", self._at, self._at + _LONGEST)
        if end < 0:
            return ""
        tex, self._at = self._source[self._at : end], end + 2
        return writing.formula(tex, display=display)

    def _inner(self) -> str:
        """The argument that follows, told as text."""
        self._skip_space()
        if self._source[self._at : self._at + 1] != "{":
            return self._aside(self._argument())
        self._at += 1
        return self._told(_closes).strip()

    def _aside(self, source: str) -> str:
        """Source from elsewhere told as text."""
        if not source or self._level > _DEEPEST:
            return ""
        within = _Tex(source)
        within.notes, within._level = self.notes, self._level + 10
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
        depth, start = 0, self._at + 1
        for brace in re.compile(r"\\.|[{}]", re.S).finditer(
            self._source, self._at, self._at + _LONGEST
        ):
            depth += {"{": 1, "}": -1}.get(brace[0], 0)
            if depth == 0:
                self._at = brace.end()
                return self._source[start : brace.start()]
        self._at = start
        return ""

    def _option(self) -> str:
        """The source within the brackets that follow, if any."""
        found = re.compile(r"\s{0,20}\[((?:[^\[\]]|\[[^\[\]]{0,200}\]){0,1000}+)\]").match(
            self._source, self._at
        )
        if not found or "\n\n" in found[0]:
            return ""
        self._at = found.end()
        return found[1]

    def _skip_space(self) -> bool:
        start = self._at
        found = re.compile(r"[ \t]*+(?:\n(?![ \t]*\n)[ \t]*+)?").match(self._source, self._at)
        self._at = found.end() if found else self._at
        return self._at > start

    def _accented(self, accent: str) -> str:
        import unicodedata

        letter = self._argument().removeprefix("\\") or " "
        return escape(unicodedata.normalize("NFC", letter[0] + accent) + letter[1:], quote=False)

    def _quantity(self, count: int) -> str:
        """A number and its unit, as the package siunitx sets them."""
        self._option()
        number, *units = [self._argument() for _ in range(count)]
        number = re.sub(r"(?<=\d)[eE]([-+]?\d+)", r" x 10^\1", number)
        units = [
            re.sub(r"\s*/\s*", "/", re.sub(r"[\\{}]", " ", u.replace("\\per", "/"))) for u in units
        ]
        return escape(" ".join((number, *map(str.strip, units))), quote=False)

    def _verb(self) -> str:
        mark = self._source[self._at : self._at + 1]
        end = (
            self._source.find({"{": "}"}.get(mark, mark), self._at + 1, self._at + 1000)
            if mark
            else -1
        )
        if end < 0:
            return ""
        told, self._at = self._source[self._at + 1 : end], end + 1
        return f"<code>{escape(told, quote=False)}</code>"


def _closes(token: re.Match[str]) -> bool:
    return token["close"] is not None


_COMMANDS: dict[str, Callable[[_Tex], str]] = {
    **dict.fromkeys(("footnote", "endnote"), _Tex._footnote),
    **dict.fromkeys(("verb", "lstinline", "mintinline"), _Tex._verb),
    **dict.fromkeys(("url", "path", "nolinkurl", "ce"), lambda tex: escape(tex._argument())),
    **dict.fromkeys(("SI", "qty"), lambda tex: tex._quantity(2)),
    **dict.fromkeys(("num", "si", "unit"), lambda tex: tex._quantity(1)),
    "textsuperscript": lambda tex: tex._raised("sup"),
    "textsubscript": lambda tex: tex._raised("sub"),
    "ensuremath": lambda tex: writing.formula(tex._argument()),
    "href": lambda tex: tex._behind(1),
    "multicolumn": lambda tex: tex._behind(2),
    "multirow": lambda tex: tex._behind(2),
    "caption": _Tex._caption,
    "end": _Tex._end,
}


def _typed(text: str) -> str:
    """Characters as they are set: quotes and dashes are typed as several."""
    for typed, set_as in (("---", "—"), ("--", "–"), ("``", "“"), ("''", "”"), ("~", " ")):  # noqa: RUF001
        text = text.replace(typed, set_as)
    return escape("" if text == "&" else text, quote=False)


def _bare(page: str) -> str:
    return re.sub(r"\s+", " ", page).strip()


_BLOCK = re.compile(r"\s*<(?:h\d|table|ul|ol|dl|pre|p|div|math[^>]{0,99}display=\"block\")")


def _paragraphs(told: str) -> str:
    """HTML of paragraphs that are parted by empty lines."""
    parts: list[str] = []
    whole = ""
    for part in re.split(r"\n\n+", told):
        whole = f"{whole}\n\n{part}" if whole else part
        if whole.count("<pre>") > whole.count("</pre>"):
            continue
        if whole.strip():
            parts.append(whole if _BLOCK.match(whole) else f"<p>{whole.strip()}</p>\n")
        whole = ""
    return "".join(parts) + whole


def _uncommented(text: str) -> Iterator[str]:
    """The source without its comments, which are none where it is set as it is typed."""
    at = 0
    for begun in re.finditer(r"^[ \t]*\\begin\{(\w{1,20}\*?)\}", text, re.M):
        if begun.start() >= at and begun[1].rstrip("*") in _VERBATIM:
            end = text.find(f"\\end{{{begun[1]}}}", begun.end())
            if end < 0:
                break
            yield _COMMENT.sub(r"\1", text[at : begun.start()])
            yield text[begun.start() : end]
            at = end
    yield _COMMENT.sub(r"\1", text[at:])


def read_tex(given: Input) -> Document:
    text, said = decode(given.content())
    reader = _Tex("".join(_uncommented(text.replace("\r\n", "\n").replace("\r", "\n"))))
    sections = writing.sections_of(f"<body>{reader.page()}</body>")
    return Document(title_of(sections, given.stem, reader.title), sections, said, reader.date)


READERS = dict.fromkeys((".tex", ".latex", ".ltx"), read_tex)
