"""Formulas, superscripts and subscripts as linear text, alike in all kinds of files.

A power is `10^-3` or `x^(n+1)`, a subscript `v_max`, a fraction `(1)/(2)`, a root `sqrt(x^2+1)` or
`root(3)(x)`, a sum `sum_(i=1)^(n) x_i`, a matrix `[a, b; c, d]`. They are told of MathML, to which
latex2mathml brings TeX, and of the markup of Office (OMML). No library tells MathML
as text: those that convert it need style sheets of XSLT, or write TeX.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import accumulate

from lxml import etree

from rubricem.agent.sources.readers.encoding import names_of

_DEEPEST = 100
"""levels of a formula; of what is deeper only the characters are told"""
_LONGEST_TEX = 2000
"""characters of a formula in TeX that are read as such"""
_RELATIONS = "=≠≈≡≅∼≃<>≤≥≪≫∝→⇒⇔↔←∈∉⊂⊆:="
_SPACED = frozenset({*_RELATIONS, ":=", "<=", ">=", "==", "!="})
_LARGE = {"∑": "sum", "∏": "prod", "∫": "int", "∬": "iint", "∭": "iiint", "∮": "oint"}
_LIMITED = frozenset({*_LARGE.values(), *"⋃⋂∐⨁⨂⋀⋁", "lim", "max", "min", "sup", "inf"})
"""what has its limits below and above, always in brackets"""
_ACCENTS, _TOLD = names_of("accents"), names_of("formulas")
# Invisible marks that say "applied to", "times", "and" and "plus".
_SIGNS = str.maketrans({"\u2061": "", "\u2062": "", "\u2063": ",", "\u2064": " ", "−": "-"})
_BARE = re.compile(r"[-+]?(?:\d+(?:[.,]\d+)?|[^\W\d_]+)|[*∗∞+†‡#′″]|-|\([^()]*\)")
_SCRIPT_ENDS = re.compile(r"[\^_](?:[-+]?\w+|\([^()]*\))\Z")
_WORD_ENDS = re.compile(r"[^\W\d_]{2,}\Z")
_LOOKED_AT = 40
"""characters before and after something that are looked at"""
_WORD = re.compile(r"[^\W\d_]{2,}")
_ATOM = re.compile(r"\w+(?:[.,]\d+)?|[^\w\s]?|[a-z]+\([^()]*\)")


def script(sign: str, text: str, *, bound: bool = False) -> str:
    """`^5`, `_max` or, where it is longer, `^(n+1)`; `bound`: in brackets in any case."""
    text = " ".join(text.split()).translate(_SIGNS)
    text = re.sub(rf" ([{_RELATIONS}]+) ", r"\1", text)
    if sign == "^" and text in ("°", "∘", "′", "″", "‴"):
        return "°" if text == "∘" else text
    if not text or (_BARE.fullmatch(text) and not bound):
        return f"{sign}{text}" if text else ""
    return f"{sign}({text})"


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


def _with_scripts(base: str, lower: str, upper: str) -> str:
    base = base.strip()
    if base in _LIMITED:
        found = script("_", lower, bound=True) + script("^", upper, bound=True)
        return f"{base}{found} " if found else base
    depths = [*accumulate((c in "([") - (c in ")]") for c in base)]
    bracketed = base[:1] in ("(", "[") and base[-1:] in (")", "]") and 0 not in depths[:-1]
    if not bracketed and not _ATOM.fullmatch(base):
        base = f"({base})"
    # `e^iwt` would be the power of a word, whereas `v_max` is no product.
    several = _WORD.fullmatch(upper.strip()) is not None
    return base + script("_", lower) + script("^", upper, bound=several)


def _tag(element: etree._Element) -> str:
    name = element.tag if isinstance(element.tag, str) else ""
    return name.rpartition("}")[2].rpartition(":")[2]


_TOKENS = frozenset({"mi", "mn", "mo", "ms", "mtext", "ci", "cn", "csymbol"})
_UNSEEN = frozenset({"annotation", "annotation-xml", "mphantom", "none", "mprescripts"})
_CELL_ENDS = "\x1f"


def linear_mathml(element: etree._Element) -> str:
    """A `math` element, as a reader sees it: without its annotations, unless it has nothing else.

    Names of elements may have a namespace or, as HTML is parsed, none.
    """
    notes = (each.text or "" for each in element.iter() if _tag(each) == "annotation")
    return " ".join((_mathml(element, 0).strip() or next(notes, "")).split())


@lru_cache(1000)
def linear_tex(tex: str) -> str:
    """A formula in TeX as `linear_mathml` tells it, or as it is where it cannot be read."""
    from latex2mathml.converter import convert

    tex = tex.replace("{,}", r"\text{,}")
    try:
        return linear_mathml(etree.fromstring(convert(tex))) if len(tex) <= _LONGEST_TEX else tex
    except Exception:  # it raises what it will on what is no TeX
        return tex


def _mathml(element: etree._Element, level: int) -> str:
    tag = _tag(element)
    if not tag or tag in _UNSEEN:
        return ""
    if tag in _TOKENS or level > _DEEPEST:
        return _token(tag, "".join(map(str, element.itertext())))
    least, rule = _RULES.get(tag, (0, None))
    several = None if tag not in ("semantics", "maction") else 1
    parts = [_mathml(each, level + 1) for each in [e for e in element if _tag(e)][:several]]
    return _joined(parts) if rule is None or len(parts) < least else rule(element, parts)


def _token(tag: str, text: str) -> str:
    text = re.sub(r"\s+", " ", text)
    if tag == "mtext":
        return text
    text = text.strip().translate(_SIGNS)
    text = _large(text) if tag == "mo" else text
    return f" {text} " if text in _SPACED else f"{text} " if text in (",", ";") else text


def _large(sign: str) -> str:
    return _LARGE.get(sign, sign)


def _fenced(begin: str, signs: str, end: str, parts: list[str]) -> str:
    signs, told = "".join(signs.split()) or " ", parts[0] if parts else ""
    for n, part in enumerate(parts[1:]):
        told += f"{signs[min(n, len(signs) - 1)]} {part}"
    return begin + told + end


def _over_or_under(base: str, sign: str, *, below: bool) -> str:
    base, sign = base.strip(), sign.strip()
    if name := next((name for signs, name in _ACCENTS.items() if sign and sign in signs), ""):
        return f"{'underline' if below and name == 'bar' else name}({base})"
    if sign in ("⏞", "⏟", "︷", "︸"):
        return base
    return _with_scripts(base, *((sign, "") if below else ("", sign)))


def _multiscripts(element: etree._Element, parts: list[str]) -> str:
    tags = [_tag(each) for each in element if _tag(each)]
    at = tags.index("mprescripts") if "mprescripts" in tags else len(tags)
    before, behind = (
        "".join(script("^" if n % 2 else "_", each) for n, each in enumerate(told))
        for told in (parts[at + 1 :], parts[1:at])
    )
    return before + parts[0] + behind


def _table(element: etree._Element, parts: list[str]) -> str:
    # The brackets of a matrix stand beside it; without them it lays out lines.
    above, earlier = element.getparent(), element.getprevious()
    while earlier is None and above is not None and _tag(above) in ("mrow", "mstyle", "mpadded"):
        earlier, above = above.getprevious(), above.getparent()
    fenced = above is not None and _tag(above) == "mfenced"
    if earlier is not None and _tag(earlier) == "mo":
        fenced = fenced or bool("".join(map(str, earlier.itertext())).strip())
    rows = (part.rstrip(_CELL_ENDS).split(_CELL_ENDS) for part in parts)
    return "; ".join((", " if fenced else " ").join(map(str.strip, row)) for row in rows)


_NO_BAR = re.compile(r"0+(?:\.0*)?(?:[a-z%]|\Z)")


def _fraction(above: str, below: str, *, bar: bool) -> str:
    return ("({})/({})" if bar else "binom({}, {})").format(above.strip(), below.strip())


def _root(of: str, degree: str) -> str:
    of, degree = of.strip(), degree.strip()
    return f"root({degree})({of})" if degree else f"sqrt({of})"


_RULES: dict[str, tuple[int, Callable[[etree._Element, list[str]], str]]] = {
    "mspace": (0, lambda e, parts: " "),
    "mfrac": (
        2,
        lambda e, parts: _fraction(*parts[:2], bar=not _NO_BAR.match(e.get("linethickness", "1"))),
    ),
    "msqrt": (0, lambda e, parts: f"sqrt({_joined(parts).strip()})"),
    "mroot": (2, lambda e, parts: _root(*parts[:2])),
    "msup": (2, lambda e, parts: _with_scripts(parts[0], "", parts[1])),
    "msub": (2, lambda e, parts: _with_scripts(parts[0], parts[1], "")),
    "msubsup": (3, lambda e, parts: _with_scripts(*parts[:3])),
    "munderover": (3, lambda e, parts: _with_scripts(*parts[:3])),
    "munder": (2, lambda e, parts: _over_or_under(*parts[:2], below=True)),
    "mover": (2, lambda e, parts: _over_or_under(*parts[:2], below=False)),
    "mmultiscripts": (1, _multiscripts),
    "mfenced": (
        0,
        lambda e, parts: _fenced(
            e.get("open", "("), e.get("separators", ","), e.get("close", ")"), parts
        ),
    ),
    "mtable": (0, _table),
    "mtd": (0, lambda e, parts: _joined(parts) + _CELL_ENDS),
    # Content MathML, of which few pages have nothing else: an operator and its arguments.
    "apply": (1, lambda e, parts: f"{parts[0] or _tag(e[0])}({', '.join(parts[1:])})"),
}
"""by the names of elements, how many parts they must have, and how they are told of those"""

_UNSEEN_IN_OFFICE = frozenset({"del", "moveFrom", "instrText", "delText"})


def linear_office(element: etree._Element, level: int = 0) -> str:
    """A formula of Office, such as `oMath`, as a reader sees it."""
    tag = _tag(element)
    if tag == "t" or level > _DEEPEST:
        text = "".join(map(str, element.itertext())).translate(_SIGNS)
        return re.sub(rf" ?([{_RELATIONS}]+) ?", r" \1 ", text)
    told, parts = list[str](), defaultdict[str, str](str)
    for child in element:
        name = _tag(child)
        if name == f"{tag}Pr":
            parts |= {f"@{_tag(each)}": each.get("val", "") for each in child}
        elif name and name not in _UNSEEN_IN_OFFICE and not name.endswith("Pr"):
            told.append(linear_office(child, level + 1))
            parts[name] = _joined((parts[name], told[-1]))
    if tag == "d":
        begin, signs, end = (parts.get(f"@{name}", sign) for name, sign in _FENCES.items())
        return _fenced(begin, signs, end, told)
    if tag in ("m", "mr", "eqArr"):
        return (", " if tag == "mr" else "; ").join(map(str.strip, told))
    return _OFFICE[tag](parts) if tag in _OFFICE else _joined(told)


_FENCES = {"begChr": "(", "sepChr": "|", "endChr": ")"}
_OFFICE: dict[str, Callable[[defaultdict[str, str]], str]] = {
    **dict.fromkeys(("br", "tab", "cr"), lambda of: " "),
    **dict.fromkeys(
        ("sSup", "sSub", "sSubSup"), lambda of: _with_scripts(of["e"], of["sub"], of["sup"])
    ),
    "f": lambda of: _fraction(of["num"], of["den"], bar=of["@type"] != "noBar"),
    "rad": lambda of: _root(of["e"], of["deg"]),
    "nary": lambda of: _joined(
        (_with_scripts(_large(of["@chr"] or "∫"), of["sub"], of["sup"]), of["e"])
    ),
    "sPre": lambda of: script("_", of["sub"]) + script("^", of["sup"]) + of["e"],
    "limLow": lambda of: _over_or_under(of["e"], of["lim"], below=True),
    "limUpp": lambda of: _over_or_under(of["e"], of["lim"], below=False),
    "acc": lambda of: _over_or_under(of["e"], of["@chr"] or "\u0302", below=False),
    "bar": lambda of: _over_or_under(of["e"], "¯", below=of["@pos"] != "top"),
    "phant": lambda of: "" if of["@show"] in ("0", "off", "false") else of["e"],
}
"""of the parts of an element by their names and, after @, of what its properties are set to"""


# Superscripts and subscripts of running text

_OPERATOR = r"[+=×·÷<>≤≥≈±]|[-−](?=\s?[\d(])"
_BESIDE = re.compile(rf"\s?(?:{_OPERATOR})")
_AFTER_OPERATOR = re.compile(r"[-−+=×·÷<>≤≥≈±]\s?[\d.,]+\Z|[+=×·÷<>≤≥≈±]\s?[^\W\d_]{1,3}\Z")
_NUMBER = re.compile(r"(?<![\w.,])[\d.,]*\d\Z")
_TEN_OR_TWO = re.compile(r"(?<![\w.,])(?:10|2)\Z|[×·x*]\s?10\Z")
_VARIABLE = re.compile(r"(?:(?<![^\W\d_])[^\W\d_]|[)\]}|]|[\^_][-+]?\w+)\Z")
_UNIT, _ELEMENT = re.compile(_TOLD["unit"]), _TOLD["element"]
_ORDINAL = re.compile(r"st|nd|rd|th|ers?|[eè]?res?|ère|i?[eè]mes?|es?|n?de|os?|[ºª]|ter?", re.I)
_ABBREVIATED = re.compile(r"(?:\b[Nn]os?|\bM(?:me|lle|mes|lles|gr|r|rs|c)|\bDr|\bSt|\bn?th)\Z")
_DEGREE = {"\u2218": "°", "\u25e6": "°"}
_TRADE = {"TM": "™", "(TM)": "™", "SM": "℠", "R": "®", "(R)": "®", "C": "©", "(C)": "©"}
_MARKS = "*†‡§¶"
_SIGNED = re.compile(r"[-−+]\s?\w")
_BAR = re.compile(r"\s?[/\u2044]\s?_\d")
_ION = re.compile(r"\d*[-−+]")
_BETWEEN_MARKS = (",", ";", "–")
_MARK_ENDS = re.compile(r"\[\w{1,4}\][,;–]?\Z")
_SEVERAL_MARKS = re.compile(r"[\d,;\s–-]+")


def raised(text: str, before: str, after: str = "", *, noted: bool = False) -> str:
    """A superscript as it follows `before`: `^5`, a mark `[1]`, or as it is (`5th`, `™`).

    `after`: the text that follows; some of either is enough. `noted`: whether the document says by
    a link, a class or otherwise that it is the mark of a note. A bare number is one too, unless its
    base is 10, 2, a letter, a unit or a bracket, or an operator stands beside it. Before a bar and
    a number that stands lower, as "/_2", it is the upper one of a fraction.
    """
    text, base = " ".join(text.split()), before[-_LOOKED_AT:]
    text = _DEGREE.get(text, text)
    barred = text.isdigit() and _BAR.match(after) is not None
    mark = f"[{text.strip('[]() ')}]"
    if (noted and not barred) or (text and not text.strip(_MARKS) and not _VARIABLE.search(base)):
        return mark
    spaced = barred and not base[-1:].isalnum()
    if not text or spaced or text[0] in "[™®©℠√°\u200b" or text in _BETWEEN_MARKS:
        return text
    if _MARK_ENDS.search(base) and _SEVERAL_MARKS.fullmatch(text):
        return mark
    if text in _TRADE and base[-1:].isalpha():
        return _TRADE[text]
    if text in ("o", "O", "º", "°") and base.rstrip()[-1:].isdigit():
        return "°" if re.match(r"\s?[CF]\b", after) else text
    if (_ORDINAL.fullmatch(text) and base[-1:].isdigit()) or _ABBREVIATED.search(base + text):
        return text
    if not base[-1:].strip() or base[-1] in "\"'“‘":
        isotope = _SYMBOL.match(after)
        return text if not text.isdigit() else f"^{text}" if isotope else mark
    if not barred and _is_power(text, base, after):
        # The charge of an ion could else be read as a sum: Ca^(2+).
        charged = len(text) > 1 and text[-1] in "+-−"
        return _bounded(script("^", text, bound=charged), after)
    if not barred and (len(text) == 1 or _SEVERAL_MARKS.fullmatch(text)):
        return mark
    return f" {text}" + (" " if after[:1].isalnum() else "")


def _is_power(text: str, base: str, after: str) -> bool:
    powers = (_TEN_OR_TWO, _VARIABLE, _UNIT, _AFTER_OPERATOR)
    if any(each.search(base) for each in powers) or _SIGNED.match(text) or _ION.fullmatch(text):
        return True
    # A letter behind a number is an exponent from the middle of the alphabet on, as in 3^n.
    letters = not (_SEVERAL_MARKS.fullmatch(text) or text in "abcdefgh")
    return bool(_NUMBER.search(base)) and (letters or _BESIDE.match(after) is not None)


def _bounded(told: str, after: str) -> str:
    return f"{told} " if after[:1].isalnum() and not told.endswith(")") else told


_FORMULA = re.compile(rf"(?:(?:{_ELEMENT})\d*|[()\[\]]\d*)+")
_MOLECULE = re.compile(r"(?:[HNOFI]|Cl|Br)2|O3|S8|P4|C[67]0")
_SYMBOLS = re.compile(_ELEMENT)
_SYMBOL = re.compile(rf"(?:{_ELEMENT})(?![a-z])")
_FORMULA_BEFORE = re.compile(r"[A-Za-z()\[\]][A-Za-z0-9()\[\]]*+\Z")


def lowered(text: str, before: str, after: str = "") -> str:
    """A subscript as it follows `before`: `_max`, `_(n+1)`, or digits alone in `H2O`."""
    text, base = " ".join(text.split()), before[-_LOOKED_AT:]
    if not text or base[-1:].strip() in ("", "/", "\u2044"):
        return text
    if text.isdigit() and (led := _FORMULA_BEFORE.search(base)):
        whole = led[0] + text + re.split(r"[^A-Za-z0-9()\[\]]", after[:_LOOKED_AT])[0]
        several = len(_SYMBOLS.findall(whole)) > 1 and _FORMULA.fullmatch(whole)
        if text != "1" and text[0] != "0" and (several or _MOLECULE.fullmatch(whole)):
            return text
    return _bounded(script("_", text), after)
