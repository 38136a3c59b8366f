"""Numbers as a workbook shows them, by its formats (ECMA-376 part 1, 18.8.30 and 18.8.31).

Dates are told in ISO's form unless days, months and years of four digits are set apart by dots,
which nobody reads in another order; times and durations as they are shown. A percentage has a space
before its sign. (No maintained library does this without reading the whole workbook itself.)
"""

import re
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import lru_cache

BUILT_IN = {
    1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%", 11: "0.00E+00",
    12: "# ?/?", 13: "# ??/??", 37: "#,##0;(#,##0)", 38: "#,##0;(#,##0)",
    39: "#,##0.00;(#,##0.00)", 40: "#,##0.00;(#,##0.00)", 45: "mm:ss", 46: "[h]:mm:ss",
    47: "mm:ss.0", 48: "##0.0E+0", 49: "@",
    **dict.fromkeys((14, 15, 16, *range(27, 32), 36, *range(50, 59)), "yyyy-mm-dd"),
    17: "yyyy-mm", **dict.fromkeys((18, 20), "h:mm"), **dict.fromkeys((19, 21), "h:mm:ss"),
    22: "yyyy-mm-dd h:mm", **dict.fromkeys(range(32, 36), "h:mm"),
}  # fmt: skip
"""by the ids that workbooks do not explain"""
_PART = re.compile(
    r'"([^"]*)"|\\(.)|[_*].|\[\$([^\]-]*)[^\]]*\]|(\[[hms]+\])|\[[^\]]*\]|(AM/PM|A/P)'
    r"|([ymdhse]+(?![+-])|General|@|[#0?.,]+(?:[eE][+-][#0?]+)?|/)|(.)",
    re.IGNORECASE | re.DOTALL,
)
_DOTTED = re.compile(r"(dd?)\. ?(mm?)\. ?yyyy")
_MOST_DIGITS = 15
"""that a workbook computes with"""
_EPOCHS = (datetime(1899, 12, 30), datetime(1904, 1, 1))
_NO_LEAP_DAY = 60
"""the 29th of February 1900, which workbooks have and no calendar has"""
_LONGEST_FORMAT = 255

Token = tuple[str, str]
"""("text", literal), ("part", what stands for digits or for a part of a date), ("gone", hours)"""


def show(value: str, code: str, *, since_1904: bool = False) -> str:
    """A number as its format shows it; as it is kept, where either is no such thing."""
    if code in ("", "General") and len(value) <= _MOST_DIGITS:
        return value
    try:
        # As it is computed with: 15 digits of what may be kept with 17.
        number = Decimal(f"{float(value):.{_MOST_DIGITS}g}")
        return _shown(number, code, since_1904=since_1904) or value
    except (ValueError, OverflowError, InvalidOperation):
        return value


def _shown(number: Decimal, code: str, *, since_1904: bool) -> str:
    sections = _sections(code[:_LONGEST_FORMAT])
    own = 1 if number < 0 and len(sections) > 1 else 2 if not number and len(sections) > 2 else 0
    tokens = sections[own]
    kinds = {text[0].lower() for kind, text in tokens if kind == "part"}
    if kinds & {*"ymdhs"} or any(kind == "gone" for kind, _ in tokens):
        return _moment(number, tokens, _EPOCHS[since_1904])
    if not kinds & {*"#0?."}:
        whole = f"{number:f}" if -5 < number.adjusted() < 21 else f"{number}"
        plain = whole if kinds & {"g", "@"} or not code else ""
        told = (plain if kind == "part" else text for kind, text in tokens)
        return "".join(told).strip() or plain
    shown = _digits(abs(number) if own == 1 else number, tokens)
    # A format may tell a negative number by its colour alone.
    bare = own == 1 and shown == _digits(abs(number), sections[0])
    return f"-{shown}" if bare else shown


@lru_cache(1024)
def _sections(code: str) -> tuple[tuple[Token, ...], ...]:
    """The parts of a format for positive numbers, negative ones and zero."""
    found: list[list[Token]] = [[]]
    for part in _PART.finditer(code):
        quoted, escaped, currency, gone, noon, digits, other = part.groups()
        if other == ";":
            found.append([])
        elif gone:
            found[-1].append(("gone", gone[1].lower()))
        elif digits:
            found[-1].append(("part", digits))
        elif noon or other == '"':  # one that nothing closes
            continue
        elif text := quoted or escaped or currency or other or "":
            found[-1].append(("text", text))
    return tuple(tuple(each) for each in found)


def _digits(number: Decimal, tokens: tuple[Token, ...]) -> str:
    places = [n for n, (kind, text) in enumerate(tokens) if kind == "part" and text[0] in "#0?."]
    if any(text == "/" for kind, text in tokens if kind == "part"):
        return f"{float(number):.6g}"  # a fraction; its value is what it says
    if ("text", "%") in tokens:
        number *= 100
    pattern = tokens[places[0]][1]
    mantissa, e, exponent = pattern.upper().partition("E")
    whole, _, after = mantissa.partition(".")
    decimals = sum(c in "0#?" for c in after)
    number /= 1000 ** (len(mantissa) - len(mantissa.rstrip(",")))
    if e:
        shown = f"{number:.{decimals}E}"
        base, _, power = shown.partition("E")
        shown = f"{base}E{int(power):+0{exponent.count('0') + 1}d}"
    else:
        grouped = "," if re.search("[0#?],[0#?]", whole) else ""
        shown = f"{number.quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP):{grouped}f}"
        optional = len(after) - len(after.rstrip("#?,"))
        if optional and "." in shown:
            kept = len(shown) - optional
            shown = shown[:kept] + shown[kept:].rstrip("0")
            shown = shown.rstrip(".")
        least, sign = whole.count("0"), "-" * shown.startswith("-")
        digits = shown.removeprefix("-").partition(".")[0]
        shown = sign + "0" * (least - len(digits) if not grouped else 0) + shown.removeprefix("-")
    if not shown.strip("-0.,"):
        shown = shown.removeprefix("-")
    told = [text if kind == "text" else "" for kind, text in tokens]
    told[places[0]] = shown
    text = " ".join("".join(told).replace("%", " %").split())
    # The sign stands before a currency, not after it.
    return re.sub(r"^([^\w(]{1,3}|[A-Z]{3} ?)-(?=\d)", r"-\1", text)


def _moment(number: Decimal, tokens: tuple[Token, ...], epoch: datetime) -> str:
    """A date, a time or a duration; raises OverflowError if there is no such day."""
    seconds = float(number) * 86_400
    parts = [text[0].lower() for kind, text in tokens if kind in ("part", "gone")]
    if gone := [text for kind, text in tokens if kind == "gone"]:
        return _duration(round(seconds), gone[0], parts)
    if epoch == _EPOCHS[0] and 1 <= number < _NO_LEAP_DAY:
        seconds += 86_400
    moment = epoch + timedelta(seconds=round(seconds))
    clock = f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"
    if not {*parts} & {"y", "d"} and ("h" in parts or "s" in parts):
        return clock if "h" in parts else f"{moment:%M:%S}"
    if "d" not in parts:
        return f"{moment:%Y-%m}" if "m" in parts else f"{moment:%Y}"
    dated = f"{moment:%Y-%m-%d}"
    if dotted := _DOTTED.match("".join(text.lower() for _, text in tokens)):
        numbers = zip((moment.day, moment.month), dotted.groups(), strict=True)
        day, month = (f"{number:0{len(sign)}}" for number, sign in numbers)
        dated = f"{day}.{month}.{moment:%Y}"
    return dated if moment.time() == datetime.min.time() else f"{dated} {clock}"


def _duration(seconds: int, unit: str, parts: list[str]) -> str:
    sign, seconds = "-" * (seconds < 0), abs(seconds)
    hours, minutes = seconds // 3600, seconds // 60
    if unit == "s":
        return f"{sign}{seconds}"
    if unit == "m":
        return f"{sign}{minutes}" + f":{seconds % 60:02d}" * ("s" in parts)
    clock = f"{sign}{hours}" + f":{minutes % 60:02d}" * ("m" in parts)
    return clock + f":{seconds % 60:02d}" * ("s" in parts)
