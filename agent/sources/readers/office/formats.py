"""Numbers as a workbook shows them, by its formats (ECMA-376 part 1, 18.8.30 and 18.8.31).

Dates are told in ISO's form unless days, months and years of four digits are set apart by dots,
which nobody reads in another order; times and durations as they are shown. A percentage has a space
before its sign. (No maintained library does this without reading the whole workbook itself.)
"""

import re
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache

_PART = re.compile(
    r'"(?P<text>[^"]*)"|\\(?P<sign>.)|[_*].|\[\$(?P<currency>[^\]-]*)[^\]]*\]|\[(?P<gone>[hms])+\]'
    r"|\[[^\]]*\]|AM/PM|A/P|(?P<part>[ymdhs]+|e+(?![+-])|General|@|[#0?.,]+(?:[eE][+-][#0?]+)?|/)"
    r'|(?P<end>;)|"|(?P<other>.)',
    re.IGNORECASE | re.DOTALL,
)
_DOTTED = re.compile(r"(dd?)\. ?(mm?)\. ?yyyy")
_MOST_DIGITS = 15
"""that a workbook computes with"""
_EPOCHS = (datetime(1899, 12, 30), datetime(1904, 1, 1))
_NO_LEAP_DAY = 60
"""the 29th of February 1900, which workbooks have and no calendar has"""
_LONGEST_FORMAT = 255

_PLAIN = re.compile(r"-?\d{1,9}(?:\.\d{0,5}[1-9])?")
"""a number that is kept as it is shown"""

Token = tuple[str, str]
"""("text", literal), ("part", what stands for digits or for a part of a date), ("gone", hours)"""


def show(value: str, code: str, *, since_1904: bool = False) -> str:
    """A number as its format shows it; as it is kept, where either is no such thing."""
    if code in ("", "General") and _PLAIN.fullmatch(value):
        return value
    if code and not code.strip(";"):  # as what nobody is to see is set
        return ""
    try:
        # As it is computed with: 15 digits of what may be kept with 17.
        number = Decimal(f"{float(value):.{_MOST_DIGITS}g}")
        return _shown(number, code, _EPOCHS[since_1904]) or value
    except (ValueError, OverflowError, InvalidOperation):
        return value


def _shown(number: Decimal, code: str, epoch: datetime) -> str:
    sections = _sections(code[:_LONGEST_FORMAT])
    own = 1 if number < 0 and len(sections) > 1 else 2 if not number and len(sections) > 2 else 0
    tokens = sections[own]
    kinds = {text[0].lower() for kind, text in tokens if kind != "text"}
    if kinds & {*"ymdhs"}:
        return _moment(number, tokens, epoch)
    if not kinds & {*"#0?."}:
        power = f"{float(number):.{_MOST_DIGITS}g}".upper()
        whole = f"{number:f}" if -5 < number.adjusted() < 21 else power
        plain = whole if kinds & {"g", "@"} or not code else ""
        return "".join(plain if kind == "part" else text for kind, text in tokens).strip() or plain
    shown = _digits(abs(number) if own == 1 else number, tokens)
    # A format may tell a negative number by its colour alone.
    return f"-{shown}" if own == 1 and shown == _digits(abs(number), sections[0]) else shown


@lru_cache(1024)
def _sections(code: str) -> tuple[tuple[Token, ...], ...]:
    """The parts of a format for positive numbers, negative ones and zero."""
    found: list[list[Token]] = [[]]
    for token in _PART.finditer(code):
        kind = token.lastgroup
        if kind == "end":
            found.append([])
        elif kind and token[kind]:
            name = kind if kind in ("part", "gone") else "text"
            found[-1].append((name, token[kind].lower() if kind == "gone" else token[kind]))
    return tuple(tuple(each) for each in found)


def _digits(number: Decimal, tokens: tuple[Token, ...]) -> str:
    if ("part", "/") in tokens:
        below = "".join(text for _, text in tokens).rpartition("/")[2].strip()
        near = abs(Fraction(number).limit_denominator(10 ** (len(below[:3]) or 1) - 1))
        parts = " ".join(str(part) for part in divmod(near, 1) if part)
        return f"{'-' * (number < 0)}{parts or '0'}"
    at, *more = (n for n, (kind, text) in enumerate(tokens) if kind == "part" and text[0] in "#0?.")
    mantissa, e, exponent = "".join(tokens[n][1] for n in (at, *more)).upper().partition("E")
    whole, _, after = mantissa.partition(".")
    decimals = sum(c in "0#?" for c in after)
    number *= 100 if ("text", "%") in tokens else 1
    number /= 1000 ** (len(mantissa) - len(mantissa.rstrip(",")))
    if e:
        base, _, power = f"{number:.{decimals}E}".partition("E")
        shown = f"{base}E{int(power):+0{exponent.count('0') + 1}d}"
    else:
        rounded = number.quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP)
        grouped, optional = "," in whole.strip(","), len(after) - len(after.rstrip("#?,"))
        digits, point, rest = f"{abs(rounded):{',' * grouped}f}".partition(".")
        rest = rest[: decimals - optional] + rest[decimals - optional :].rstrip("0")
        shown = digits if grouped else digits.rjust(whole.count("0"), "0")
        shown = "-" * (rounded < 0) + shown + (point + rest) * bool(rest)
    told = [text if kind == "text" else "" for kind, text in tokens]
    for n in reversed(more):  # digits among other signs: (000) 000-0000
        width = len(tokens[n][1])
        told[n], shown = shown[-width:], shown[:-width]
    told[at] = shown
    text = " ".join("".join(told).replace("%", " %").split())
    # The sign stands before a currency, not after it.
    return re.sub(r"^([^\w(]{1,3}|[A-Z]{3} ?)-(?=\d)", r"-\1", text)


def _moment(number: Decimal, tokens: tuple[Token, ...], epoch: datetime) -> str:
    """A date, a time or a duration; raises OverflowError if there is no such day."""
    seconds = round(float(number) * 86_400)
    parts = "".join(text[0].lower() for kind, text in tokens if kind != "text")
    if gone := next((text for kind, text in tokens if kind == "gone"), ""):
        hours, minutes = divmod(abs(seconds) // 60, 60)
        clock = {"h": f"{hours}:{minutes:02d}", "m": f"{abs(seconds) // 60}"}
        told = clock.get(gone, f"{abs(seconds)}")
        told = told if gone != "h" or "m" in parts else f"{hours}"
        later = gone != "s" and "s" in parts
        return "-" * (seconds < 0) + told + f":{abs(seconds) % 60:02d}" * later
    if epoch == _EPOCHS[0] and 1 <= number < _NO_LEAP_DAY:
        seconds += 86_400
    moment = epoch + timedelta(seconds=seconds)
    clock_of_day = f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"
    if not {*parts} & {"y", "d"} and {*parts} & {"h", "s"}:
        return clock_of_day if "h" in parts else f"{moment:%M:%S}"
    if "d" not in parts:
        return f"{moment:%Y-%m}" if "m" in parts else f"{moment:%Y}"
    dated = f"{moment:%Y-%m-%d}"
    if dotted := _DOTTED.match("".join(text.lower() for _, text in tokens)):
        day, month = f"{moment.day:0{len(dotted[1])}}", f"{moment.month:0{len(dotted[2])}}"
        dated = f"{day}.{month}.{moment:%Y}"
    return f"{dated} {clock_of_day}" if {*parts} & {"h", "s"} else dated
