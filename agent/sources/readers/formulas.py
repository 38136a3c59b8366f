"""Formulas, superscripts and subscripts as linear text, alike in all kinds of files.

A power is `10^-3` or `x^(n+1)`, a subscript `v_max`, a fraction `(1)/(2)`, a root `sqrt(x^2+1)` or
`root(3)(x)`, a sum `sum_(i=1)^(n) x_i`, a matrix `[a, b; c, d]`. MathML and Office's own markup
(OMML) are both read by the names of their elements. No library does this: those that convert
formulas need style sheets of XSLT, or write TeX.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate

from lxml import etree

_DEEPEST = 100
"""levels of a formula; of what is deeper only the characters are told"""
_LONGEST_TEX = 2000
"""characters of a formula in TeX that are read as such"""
_RELATIONS = "=≠≈≡≅∼≃<>≤≥≪≫∝→⇒⇔↔←∈∉⊂⊆:="
_SPACED = frozenset({*_RELATIONS, ":=", "<=", ">=", "==", "!="})
_LARGE = {"∑": "sum", "∏": "prod", "∫": "int", "∬": "iint", "∭": "iiint", "∮": "oint"}
_LIMITED = frozenset({*_LARGE.values(), *"⋃⋂∐⨁⨂⋀⋁", "lim", "max", "min", "sup", "inf"})
"""what has its limits below and above, always in brackets"""
_ACCENTS = {
    name: sign
    for sign, names in {
        "hat": "^ˆ\u0302",
        "bar": "¯‾ˉ\u0304\u0305―",
        "vec": "→⃗\u20d7",
        "dot": "˙.\u0307",
        "ddot": "¨\u0308",
        "tilde": "~˜\u0303∼",
        "underline": "_\u0332",
    }.items()
    for name in names
}
# Invisible marks that say "applied to", "times", "and" and "plus".
_SIGNS = str.maketrans({"\u2061": "", "\u2062": "", "\u2063": ",", "\u2064": " ", "−": "-"})
_SPACE = re.compile(r"\s+")
_BARE = re.compile(r"[-+]?(?:\d+(?:[.,]\d+)?|[^\W\d_]+)|[*∗∞+†‡#′″]|-")
_SCRIPT_ENDS = re.compile(r"[\^_](?:[-+]?\w+|\([^()]*\))\Z")
_WORD_ENDS = re.compile(r"[^\W\d_]{2,}\Z")
_LOOKED_AT = 40
"""characters before and after something that are looked at"""
_WORD = re.compile(r"[^\W\d_]{2,}")
_ATOM = re.compile(r"\w+(?:[.,]\d+)?|[^\w\s]?|[a-z]+\([^()]*\)")


def script(sign: str, text: str, *, bound: bool = False) -> str:
    """`^5`, `_max` or, where it is longer, `^(n+1)`; `bound`: in brackets in any case."""
    text = _SPACE.sub(" ", text).strip().translate(_SIGNS)
    text = re.sub(rf" ([{_RELATIONS}]+) ", r"\1", text)
    if not text:
        return ""
    if sign == "^" and text in ("°", "∘", "′", "″", "‴"):
        return "°" if text == "∘" else text
    return f"{sign}{text}" if _BARE.fullmatch(text) and not bound else f"{sign}({text})"


def fraction(above: str, below: str, *, barless: bool = False) -> str:
    form = "binom({}, {})" if barless else "({})/({})"
    return form.format(above.strip(), below.strip())


def root(of: str, degree: str = "") -> str:
    return f"root({degree.strip()})({of.strip()})" if degree.strip() else f"sqrt({of.strip()})"


def _joined(parts: Iterable[str]) -> str:
    """Parts beside each other, parted where they would be read as one."""
    line = before = ""
    for part in parts:
        ends, begins = line[-1:], part[:1]
        if begins.isalnum() and (ends.isalnum() or ends == ")"):
            words = ends.isalpha() and (_WORD_ENDS.search(before) or _WORD.match(part))
            line += " " if words or _SCRIPT_ENDS.search(line[-_LOOKED_AT:]) else ""
        elif begins == "(" and ")/(" in part and (ends.isdigit() or _WORD_ENDS.search(before)):
            line += " "
        line, before = line + part, part or before
    return line


def _is_whole(text: str) -> bool:
    """Whether a power of it needs no brackets around it."""
    if text[:1] not in ("(", "[") or text[-1:] not in (")", "]"):
        return _ATOM.fullmatch(text) is not None
    depths = [*accumulate((c in "([") - (c in ")]") for c in text)]
    return 0 not in depths[:-1]


def _with_scripts(base: str, lower: str, upper: str) -> str:
    if base in _LIMITED:
        found = script("_", lower, bound=True) + script("^", upper, bound=True)
        return f"{base}{found} " if found else base
    if not _is_whole(base.strip()):
        base = f"({base.strip()})"
    # `e^iwt` would be the power of a word, whereas `v_max` is no product.
    several = _WORD.fullmatch(upper.strip()) is not None
    return base.strip() + script("_", lower) + script("^", upper, bound=several)


def _accented(base: str, sign: str, script_sign: str) -> str:
    sign = sign.strip()
    if name := _ACCENTS.get(sign):
        return f"{'underline' if script_sign == '_' and name == 'bar' else name}({base.strip()})"
    if sign in ("⏞", "⏟", "︷", "︸"):
        return base
    return _with_scripts(base, *((sign, "") if script_sign == "_" else ("", sign)))


def _rows(rows: Iterable[Sequence[str]], joint: str) -> str:
    return "; ".join(joint.join(cell.strip() for cell in row) for row in rows)


def _tag(element: etree._Element) -> str:
    name = element.tag if isinstance(element.tag, str) else ""
    return name.rpartition("}")[2].rpartition(":")[2]


def _attribute(element: etree._Element, name: str, default: str = "") -> str:
    found = (v for k, v in element.attrib.items() if str(k).rpartition("}")[2] == name)
    return str(next(found, default))


Told = Callable[[etree._Element, int], str]

# MathML

_TOKENS = frozenset({"mi", "mn", "mo", "ms", "mtext", "ci", "cn", "csymbol"})
_UNSEEN = frozenset({"annotation", "annotation-xml", "mphantom", "none", "mprescripts"})


def linear_mathml(element: etree._Element) -> str:
    """A `math` element, as a reader sees it: without its annotations, unless it has nothing else.

    Names of elements may have a namespace or, as HTML is parsed, none.
    """
    told = _SPACE.sub(" ", _mathml(element, 0)).strip()
    if not told:
        notes = (each for each in element.iter() if _tag(each) == "annotation")
        told = next((" ".join((each.text or "").split()) for each in notes), "")
    return told


@lru_cache(1000)
def linear_tex(tex: str) -> str:
    """A formula in TeX as `linear_mathml` tells it, or as it is where it cannot be read."""
    from latex2mathml.converter import convert

    try:
        return linear_mathml(etree.fromstring(convert(tex))) if len(tex) <= _LONGEST_TEX else tex
    except Exception:  # it raises what it will on what is no TeX
        return tex


def _mathml(element: etree._Element, level: int) -> str:
    tag, inner = _tag(element), level + 1
    if not tag or tag in _UNSEEN:
        return ""
    if tag in _TOKENS or level > _DEEPEST:
        return _token(tag, "".join(map(str, element.itertext())))
    if tag == "mspace":
        return " "
    parts = [each for each in element if _tag(each)]
    rule = _MATHML.get(tag)
    if rule is None:
        return _row(parts, inner)
    if tag in _FIXED and len(parts) < _FIXED[tag]:
        return _row(parts, inner)
    return rule(element, parts, inner)


def _token(tag: str, text: str) -> str:
    text = _SPACE.sub(" ", text.replace("\u00a0", " "))
    if tag == "mtext":
        return text
    text = text.strip().translate(_SIGNS)
    text = _LARGE.get(text, text) if tag == "mo" else text
    return f" {text} " if text in _SPACED else f"{text} " if text in (",", ";") else text


def _row(parts: Sequence[etree._Element], level: int) -> str:
    return _joined(_mathml(each, level) for each in parts)


def _fenced(element: etree._Element, parts: Sequence[etree._Element], level: int) -> str:
    signs = [*"".join(_attribute(element, "separators", ",").split())]
    told = ""
    for n, each in enumerate(parts):
        told += (f"{signs[min(n, len(signs)) - 1]} " if n and signs else "") + _mathml(each, level)
    return _attribute(element, "open", "(") + told + _attribute(element, "close", ")")


def _over_and_under(element: etree._Element, parts: Sequence[etree._Element], level: int) -> str:
    base, *others = (_mathml(each, level).strip() for each in parts[:3])
    if _tag(element) == "munderover":
        return _with_scripts(base, *others)
    return _accented(base, others[0], "_" if _tag(element) == "munder" else "^")


def _multiscripts(element: etree._Element, parts: Sequence[etree._Element], level: int) -> str:
    at = next((n for n, each in enumerate(parts) if _tag(each) == "mprescripts"), len(parts))
    behind, before = parts[1:at], parts[at + 1 :]
    told = [_mathml(each, level) for each in (*before, *behind)]
    some = [script("^" if n % 2 else "_", each) for n, each in enumerate(told)]
    return "".join((*some[: len(before)], _mathml(parts[0], level), *some[len(before) :]))


def _mathml_table(element: etree._Element, parts: Sequence[etree._Element], level: int) -> str:
    # The brackets of a matrix stand beside it; without them it lays out lines.
    earlier = element.getprevious()
    above = element.getparent()
    if earlier is None and above is not None and _tag(above) in ("mrow", "mstyle", "mpadded"):
        earlier = above.getprevious()
    fenced = above is not None and _tag(above) == "mfenced"
    if earlier is not None and _tag(earlier) == "mo":
        fenced = fenced or bool("".join(map(str, earlier.itertext())).strip())
    rows = ([_mathml(cell, level + 1) for cell in row if _tag(cell) == "mtd"] for row in parts)
    return _rows(rows, ", " if fenced else " ")


def _mathml_fraction(element: etree._Element, parts: Sequence[etree._Element], level: int) -> str:
    two = _mathml(parts[0], level), _mathml(parts[1], level)
    barless = re.match(r"0+(?:\.0*)?(?:[a-z%]|\Z)", _attribute(element, "linethickness", "1"))
    return fraction(*two, barless=barless is not None)


def _applied(element: etree._Element, parts: Sequence[etree._Element], level: int) -> str:
    """Content MathML, of which few pages have nothing else: an operator and its arguments."""
    if not parts:
        return ""
    name = _mathml(parts[0], level) or _tag(parts[0])
    return f"{name}({', '.join(_mathml(each, level) for each in parts[1:])})"


_FIXED = dict.fromkeys(("mfrac", "mroot", "msup", "msub", "mover", "munder"), 2)
_FIXED |= dict.fromkeys(("msubsup", "munderover"), 3) | dict.fromkeys(("mmultiscripts",), 1)
"""how many parts an element must have to be read by its rule"""
_MATHML: dict[str, Callable[[etree._Element, Sequence[etree._Element], int], str]] = {
    "semantics": lambda e, parts, n: _row(parts[:1], n),
    "maction": lambda e, parts, n: _row(parts[:1], n),
    "mfrac": _mathml_fraction,
    "msqrt": lambda e, parts, n: root(_row(parts, n)),
    "mroot": lambda e, parts, n: root(_mathml(parts[0], n), _mathml(parts[1], n)),
    "msup": lambda e, parts, n: _with_scripts(_mathml(parts[0], n), "", _mathml(parts[1], n)),
    "msub": lambda e, parts, n: _with_scripts(_mathml(parts[0], n), _mathml(parts[1], n), ""),
    "msubsup": lambda e, parts, n: _with_scripts(*(_mathml(each, n) for each in parts[:3])),
    "munder": _over_and_under,
    "mover": _over_and_under,
    "munderover": _over_and_under,
    "mmultiscripts": _multiscripts,
    "mfenced": _fenced,
    "mtable": _mathml_table,
    "apply": _applied,
}

# Office's markup


def linear_omml(element: etree._Element) -> str:
    """An `oMath` or `oMathPara` element of Office; of the latter each formula is a line."""
    if _tag(element) == "oMathPara":
        return "\n".join(linear_omml(each) for each in element if _tag(each) == "oMath")
    return _SPACE.sub(" ", _omml(element, 0)).strip()


_OFFICE_UNSEEN = frozenset({"del", "moveFrom", "instrText", "delText"})


def _omml(element: etree._Element, level: int) -> str:
    tag = _tag(element)
    if not tag or tag in _OFFICE_UNSEEN or tag.endswith("Pr"):
        return ""
    if tag == "t":
        return _runs(element.text or "")
    if tag in ("br", "tab", "cr"):
        return " "
    if level > _DEEPEST:
        return "".join(map(str, element.itertext()))
    rule = _OMML.get(tag)
    if rule is None:
        return _joined(_omml(each, level + 1) for each in element)
    return rule(element, level + 1)


def _runs(text: str) -> str:
    """Characters of a run, which holds operators as well as names."""
    text = text.replace("\u00a0", " ").translate(_SIGNS)
    return re.sub(rf" ?([{_RELATIONS}]+) ?", r" \1 ", text)


def _part(element: etree._Element, name: str, level: int) -> str:
    return "".join(_omml(each, level) for each in element if _tag(each) == name)


def _parts(element: etree._Element, name: str, level: int) -> list[str]:
    return [_omml(each, level) for each in element if _tag(each) == name]


def _property(element: etree._Element, name: str, default: str = "") -> str:
    """The value of a property; `default` where the property is missing or says none."""
    own = (each for each in element if _tag(each) == f"{_tag(element)}Pr")
    found = (_attribute(each, "val", default) for e in own for each in e if _tag(each) == name)
    return next(found, default)


def _office_scripts(element: etree._Element, level: int) -> str:
    base = _part(element, "e", level)
    lower, upper = _part(element, "sub", level), _part(element, "sup", level)
    if _tag(element) == "sPre":
        return script("_", lower) + script("^", upper) + base
    return _with_scripts(base.strip(), lower, upper)


def _nary(element: etree._Element, level: int) -> str:
    sign = _property(element, "chr", "∫")
    base = _LARGE.get(sign, sign)
    limits = script("_", _part(element, "sub", level), bound=True)
    limits += script("^", _part(element, "sup", level), bound=True)
    return f"{base}{limits} {_part(element, 'e', level)}"


def _limit(element: etree._Element, level: int) -> str:
    base, limit = _part(element, "e", level).strip(), _part(element, "lim", level)
    return _with_scripts(base, *((limit, "") if _tag(element) == "limLow" else ("", limit)))


def _office_accent(element: etree._Element, level: int) -> str:
    base = _part(element, "e", level)
    match _tag(element):
        case "acc":
            return _accented(base, _property(element, "chr", "\u0302"), "^")
        case "bar":
            return _accented(base, "¯", "^" if _property(element, "pos") == "top" else "_")
    return base


_HIDDEN = ("0", "off", "false")
_OMML: dict[str, Told] = {
    "f": lambda e, n: fraction(
        _part(e, "num", n), _part(e, "den", n), barless=_property(e, "type") == "noBar"
    ),
    "rad": lambda e, n: root(_part(e, "e", n), _part(e, "deg", n)),
    "nary": _nary,
    "d": lambda e, n: "".join(
        (
            _property(e, "begChr", "("),
            _property(e, "sepChr", "|").join(_parts(e, "e", n)),
            _property(e, "endChr", ")"),
        )
    ),
    "func": lambda e, n: _joined((_part(e, "fName", n), _part(e, "e", n))),
    "m": lambda e, n: _rows([_parts(row, "e", n + 1) for row in e if _tag(row) == "mr"], ", "),
    "eqArr": lambda e, n: _rows([[each] for each in _parts(e, "e", n)], ""),
    "phant": lambda e, n: "" if _property(e, "show", "1") in _HIDDEN else _part(e, "e", n),
    **dict.fromkeys(("sSup", "sSub", "sSubSup", "sPre"), _office_scripts),
    **dict.fromkeys(("limLow", "limUpp"), _limit),
    **dict.fromkeys(("acc", "bar", "groupChr"), _office_accent),
}

# Superscripts and subscripts of running text

_OPERATOR = r"[+=×·÷<>≤≥≈±]|[-−](?=\s?[\d(])"
_BESIDE = re.compile(rf"\s?(?:{_OPERATOR})")
_AFTER_OPERATOR = re.compile(r"[-−+=×·÷<>≤≥≈±]\s?[\d.,]+\Z|[+=×·÷<>≤≥≈±]\s?[^\W\d_]{1,3}\Z")
_NUMBER = re.compile(r"(?<![\w.,])[\d.,]*\d\Z")
_TEN_OR_TWO = re.compile(r"(?<![\w.,])(?:10|2)\Z|[×·x*]\s?10\Z")
_VARIABLE = re.compile(r"(?:(?<![^\W\d_])[^\W\d_]|[)\]}|]|[\^_][-+]?\w+)\Z")
_UNIT = re.compile(
    r"(?<![^\W\d_])(?:[µμmcdknMGh]?(?:m|g|s|l|V|A|W|N|J|Pa|Hz|mol|eV|K|T|Ω)|°C|ft|yd|px|sinh?|cosh?"
    r"|tanh?|log|ln)\Z|\d\s?(?:in|mi|min|sec|ha|bar|rad)\Z"
)
_ORDINAL = re.compile(r"st|nd|rd|th|ers?|[eè]?res?|ère|i?[eè]mes?|es?|n?de|os?|[ºª]|ter?", re.I)
_ABBREVIATED = re.compile(r"(?:\b[Nn]os?|\bM(?:me|lle|mes|lles|gr|r|rs|c)|\bDr|\bSt|\bn?th)\Z")
_TRADE = {"TM": "™", "(TM)": "™", "SM": "℠", "R": "®", "(R)": "®", "C": "©", "(C)": "©"}
_MARKS = "*†‡§¶"
_PLUS_OR_MINUS = "+-−"
_SIGNED = re.compile(r"[-−+]\s?\w")
_ION = re.compile(r"\d*[-−+]")
_BETWEEN_MARKS = (",", ";", "–")
_MARK_ENDS = re.compile(r"\[\w{1,4}\][,;–]?\Z")
_SEVERAL_MARKS = re.compile(r"[\d,;\s–-]+")


def note_mark(text: str) -> str:
    """`[1]`, whatever brackets the mark has already."""
    return f"[{text.strip().strip('[]()').strip()}]"


def raised(text: str, before: str, after: str = "", *, noted: bool = False) -> str:
    """A superscript as it follows `before`: `^5`, a mark `[1]`, or as it is (`5th`, `™`).

    `after`: the text that follows; some of either is enough. `noted`: whether the document says by
    a link, a class or otherwise that it is the mark of a note. A bare number is one too, unless its
    base is 10, 2, a letter, a unit or a bracket, or an operator stands beside it.
    """
    text, base = _SPACE.sub(" ", text).strip(), before[-_LOOKED_AT:]
    if noted or (text and not text.strip(_MARKS) and not _VARIABLE.search(base)):
        return note_mark(text)
    if not text or text[0] in "[™®©℠\u200b" or text in _BETWEEN_MARKS:
        return text
    if _MARK_ENDS.search(base) and _SEVERAL_MARKS.fullmatch(text):
        return note_mark(text)
    if text in _TRADE and base[-1:].isalpha():
        return _TRADE[text]
    if text in ("o", "O", "º", "°") and base.rstrip()[-1:].isdigit():
        return "°" if re.match(r"\s?[CF]\b", after) else text
    if (_ORDINAL.fullmatch(text) and base[-1:].isdigit()) or _ABBREVIATED.search(base + text):
        return text
    if not base[-1:].strip() or base[-1] in "\"'“‘":
        isotope = text.isdigit() and _SYMBOL.match(after)
        return f"^{text}" if isotope else note_mark(text) if text.isdigit() else text
    if _is_power(text, base, after):
        # The charge of an ion could else be read as a sum: Ca^(2+).
        charged = len(text) > 1 and text[-1] in _PLUS_OR_MINUS
        return _bounded(script("^", text, bound=charged), after)
    if len(text) == 1 or _SEVERAL_MARKS.fullmatch(text):
        return note_mark(text)
    return f" {text}" + (" " if after[:1].isalnum() else "")


def _is_power(text: str, base: str, after: str) -> bool:
    if any(each.search(base) for each in (_TEN_OR_TWO, _VARIABLE, _UNIT, _AFTER_OPERATOR)):
        return True
    if _SIGNED.match(text) or _ION.fullmatch(text):
        return True
    if not _NUMBER.search(base):
        return False
    if _BESIDE.match(after):
        return True
    # A letter behind a number is an exponent from the middle of the alphabet on, as in 3^n.
    return not (_SEVERAL_MARKS.fullmatch(text) or text in "abcdefgh")


def _bounded(told: str, after: str) -> str:
    return f"{told} " if after[:1].isalnum() and not told.endswith(")") else told


_ELEMENT = (
    "A[cglmrstu]|B[aehikr]?|C[adeflmorsu]?|D[bsy]|E[rsu]|F[elmr]?|G[ade]|H[efgos]?|I[nr]?|Kr?|L[airuv]"
    "|M[cdgnot]|N[abdehiop]?|O[gs]?|P[abdmortu]?|R[abefghnu]|S[bcegimnr]?|T[abcehilms]|U|V|W|Xe|Yb?|Z[nr]"
)
_FORMULA = re.compile(rf"(?:(?:{_ELEMENT})\d*|[()\[\]]\d*)+")
_MOLECULE = re.compile(r"(?:[HNOFI]|Cl|Br)2|O3|S8|P4|C[67]0")
_SYMBOLS = re.compile(_ELEMENT)
_SYMBOL = re.compile(rf"(?:{_ELEMENT})(?![a-z])")
_FORMULA_BEFORE = re.compile(r"[A-Za-z0-9()\[\]]+\Z")
_FORMULA_AFTER = re.compile(r"[A-Za-z0-9()\[\]]*")


def lowered(text: str, before: str, after: str = "") -> str:
    """A subscript as it follows `before`: `_max`, `_(n+1)`, or digits alone in `H2O`."""
    text, base = _SPACE.sub(" ", text).strip(), before[-_LOOKED_AT:]
    if not text or not base[-1:].strip():
        return text
    if text.isdigit() and (led := _FORMULA_BEFORE.search(base)):
        follows = _FORMULA_AFTER.match(after[:_LOOKED_AT])
        whole = f"{led[0]}{text}{follows[0] if follows else ''}"
        several = len(_SYMBOLS.findall(whole)) > 1 and _FORMULA.fullmatch(whole)
        if text != "1" and text[0] != "0" and (several or _MOLECULE.fullmatch(whole)):
            return text
    return _bounded(script("_", text), after)
