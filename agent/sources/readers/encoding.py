"""The characters of a file, from its bytes.

In this order: the mark at its beginning, the zero bytes of UTF-16 and UTF-32, UTF-8, what the file
or its carrier declares, and detection. Detection is chardet's (right on 256 of 260 texts of 22
languages, where charset-normalizer was on 182), asked for the usual encodings alone, and held
against what no text looks like: "usˇ", "LitÉr". What cannot be decided is refused: no garbage.
"""

import codecs
import re
import tomllib
import unicodedata
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from rubricem.memory.errors import SourceError


@cache
def names_of(kind: str) -> dict[str, Any]:
    """What `names.toml` says of encodings, or of a kind of file."""
    told = tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))
    return dict(told[kind])


_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins with that of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DECLARED = re.compile(
    r"""(?:charset|<\?xml[^<>]{0,99}encoding)\s{0,9}=\s{0,9}["']?\s{0,9}([\w.:-]{1,40})"""
    r"""|\A(?:[^\n]{0,999}\n)?[^\n]{0,99}coding[:=][ \t]{0,9}([\w.-]{1,40})"""
    r"""|^\\usepackage\s{0,9}\[([\w-]{1,20})\]\{inputenc\}""",
    re.I | re.M,
)
"""by a content type, a page, XML, Python and Emacs, LaTeX"""
_LOOKED_AT = 4096
"""bytes in which a file declares its encoding"""
_SAMPLE = 100_000
"""bytes of which the encoding is told, from the first line that is not ASCII"""
_NAMES = names_of("encoding")
_READ_AS, _ALIASES, _USUAL, _LABELS = (_NAMES[n] for n in ("read_as", "aliases", "usual", "labels"))
_ESCAPED, _IN_ASCII = ("iso2022_kr", "iso2022_jp_2"), ("utf-7", "hz")
"""codecs whose bytes are all ASCII: those that say so, and those that must be declared"""
_TRUST = 3.0
"""how much better another encoding has to fit than a declared one"""
_MOST_ODD = 0.2
"""of the characters outside ASCII"""
_FEW = 2
"""different bytes outside ASCII, which are no evidence against what is common in the West"""
_WESTERN = frozenset(_NAMES["western"])
_TURKISH = frozenset("ýðþÝÐÞ")
"""what Turkish looks like in Windows-1252, and Icelandic with few others"""
_LEAD = 2.0
"""how much better than the usual another encoding has to fit"""
_ENOUGH = 60
"""bytes, of lines outside ASCII, of which the encoding can be told surely"""
_MIXED = 0.2
"""characters of UTF-8 for each other byte from which on a file that is not UTF-8 is so mostly"""
_MOST_LEFT_OUT = 0.05
"""of the lines of a file in mixed encodings"""
GUESSED = "not UTF-8: read as "
"""how a note begins that tells which encoding a text was taken to be in"""
_UNTOLD = "The encoding of its text cannot be told."
_REMEDY = "Save it as UTF-8, or leave it out."


def decode(content: bytes, declared: str = "") -> tuple[str, str]:
    """(text, note); `declared`: a content type or an encoding that the file's carrier names.

    The note says what had to be guessed, or left out. Raises SourceError where it cannot be told.
    """
    encoding, note = _told(content, declared)
    if encoding == "mixed":
        return _mixed(content)
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        return _by_line(content, encoding, note)
    return text.replace("\0", "").removeprefix("\ufeff"), note


def encoding_of(content: bytes, declared: str = "") -> str:
    """The name of the codec, of a whole file or its beginning; raises SourceError as `decode`."""
    encoding = _told(content, declared)[0]
    return "utf-8" if encoding == "mixed" else encoding


def _told(content: bytes, declared: str) -> tuple[str, str]:
    """(codec, or "mixed"; note)."""
    for mark, name in _MARKS:
        if content.startswith(mark):
            return name, ""
    if b"\0" in content[:_SAMPLE] and (wide := _wide(content[:_SAMPLE])):
        return wide, ""
    if content.isascii():
        coded = _ESCAPED if re.search(rb"\x1b[$(]", content[:_SAMPLE]) else ()
        named = (name for name in _declared(content, declared) if name in _IN_ASCII)
        return next((name for name in (*coded, *named) if _reads(content, name)), "utf-8"), ""
    if _reads(content, "utf-8") or _is_cut(content):
        return "utf-8", ""
    if _is_mixed(content):
        return "mixed", ""
    first = next(n for n in range(0, len(content), 4096) if not content[n : n + 4096].isascii())
    start = content.rfind(b"\n", 0, first) + 1
    sample = content[start : start + _SAMPLE]
    if len(content) > start + _SAMPLE:
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    encoding, sure = _detect(sample, [*_declared(content, declared)])
    return encoding, "" if sure else f"{GUESSED}{_label(encoding)}"


def _label(encoding: str) -> str:
    windows = encoding.replace("cp12", "Windows-12") if encoding.startswith("cp12") else ""
    return _LABELS.get(encoding) or windows or encoding.upper().replace("ISO8859", "ISO-8859")


def _decoded(content: bytes, encoding: str) -> str | None:
    """The text, possibly without a last character that is not whole."""
    with suppress(UnicodeDecodeError, LookupError):
        return codecs.getincrementaldecoder(encoding)().decode(content)
    return None


def _reads(content: bytes, encoding: str) -> bool:
    with suppress(UnicodeDecodeError, LookupError):
        return content.decode(encoding) is not None
    return False


def _is_cut(content: bytes) -> bool:
    """Whether only the last character of UTF-8 is not whole."""
    text = _decoded(content, "utf-8")
    return text is not None and sum(not c.isascii() for c in text[:_SAMPLE]) > 2


def _declared(content: bytes, declared: str) -> Iterator[str]:
    """The codecs that are named, without those of wide characters: they were recognised before."""
    heads = declared, content[:_LOOKED_AT].decode("latin-1")
    found = filter(None, map(_DECLARED.search, heads))
    for name in [*(next(filter(None, m.groups())) for m in found), declared]:
        name = name.lower().strip().removeprefix("x-")
        with suppress(LookupError, ValueError):
            codec = codecs.lookup(_ALIASES.get(name, name)).name
            if codec in _IN_ASCII or not codec.startswith(("utf", "idna", "punycode")):
                yield _READ_AS.get(codec, codec)


def _wide(sample: bytes) -> str:
    """Which of UTF-16 and UTF-32 a text without a mark is in, by its zero bytes; "" if none."""
    zeros = sample.count(0)
    found: list[tuple[float, float, str]] = []
    # Of Latin letters in wide characters every second byte is a zero; others look Chinese.
    plain = sample.isascii() and 0 < 4 * zeros < len(sample)
    for encoding in ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be"):
        text = _decoded(sample[:8000], encoding)
        if text and not _odd(text) and not _CONTROLS.search(text):
            scripts = [_script(c) for c in text if c.isalpha() and not c.isascii()]
            if plain and "EAST" in scripts:
                continue
            changes = sum(a != b for a, b in pairwise(scripts))
            share = sum(c.isascii() for c in text) / len(text)
            found.append((round(1 - changes / len(text), 1), share, encoding))
    if not found and 100 * zeros > len(sample):
        raise SourceError("It holds no text.", _REMEDY)
    return max(found)[2] if found else ""


@lru_cache(4096)
def _script(letter: str) -> str:
    name = "LATIN" if letter.isascii() else unicodedata.name(letter, "?").split()[0]
    east = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "KATAKANA-HIRAGANA")
    return "EAST" if name in east else name


_FOREIGN = re.compile(r"[^\x00-\x7f]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_TRIED = 3000
_BETWEEN = frozenset("’‘·\xad\xa0\u200b\u200c\u200d\u2060ʼ")  # noqa: RUF001
_DASHES = frozenset("–—\u2010\u2011")  # noqa: RUF001


def _odd(text: str) -> float:
    """The share of characters outside ASCII that are not as in any text."""
    odd = [
        _is_odd(text[at - 1 : at] or " ", text[at], text[at + 1 : at + 2] or " ")
        for at in (found.start() for found in islice(_FOREIGN.finditer(text), _TRIED))
    ]
    return sum(odd) / len(odd) if odd else 0.0


def _is_odd(before: str, letter: str, after: str) -> int:
    kind = unicodedata.category(letter)
    if kind in ("Cc", "Co", "Cn", "Cs"):
        return 3
    if kind[0] == "L":
        scripts = {_script(c) for c in (before, letter, after) if c.isalpha()}
        rises = (before.islower() and letter.isupper()) or (letter.islower() and after.isupper())
        return rises + (len(scripts - {"EAST", "MASCULINE", "FEMININE", "MICRO"}) > 1)
    if kind[0] == "M" or letter in _BETWEEN or {_script(before), _script(after)} == {"EAST"}:
        return 0
    if letter in _DASHES:
        return before.isalpha() != after.isalpha()
    return (before.isalpha() and after.isalpha()) or 0x2500 <= ord(letter) < 0x25A0


def _detect(sample: bytes, declared: Collection[str]) -> tuple[str, bool]:
    """(the codec of a text that is no UTF-8, whether it was declared). Raises SourceError."""
    try:
        return _detect_whole(sample, declared)
    except SourceError:
        lines = sample.splitlines(keepends=True)
        third = len(lines) // 3
        for part in (lines[:third], lines[-third:]) if third > 5 else ():
            with suppress(SourceError):
                told = _detect_whole(b"".join(part), declared)
                if sum(not _reads(e, told[0]) for e in lines) <= _MOST_LEFT_OUT * len(lines):
                    return told
        raise


def _detect_whole(sample: bytes, declared: Collection[str]) -> tuple[str, bool]:
    fits, texts = _fits(sample, declared), dict[str, str]()
    for name in fits:
        text = _decoded(sample, name)
        if text is not None and (odd := _odd(text)) < _MOST_ODD:
            texts[name] = text
            fits[name] *= 1 - 4 * odd
    if not texts:
        if wide := _wide(sample):
            return wide, False
        raise SourceError(_UNTOLD, _REMEDY)
    name = max(texts, key=fits.__getitem__)
    if name in declared:
        return name, True
    told = texts[name]
    east = any(_script(c) == "EAST" for c in told if c.isalpha())
    few = len({byte for byte in sample if byte > 127}) - bool(_TURKISH & {*told})
    if few <= _FEW and not east:
        return _of_few(fits, texts, name), False
    # UTF-16 of East Asia, without a mark and a zero, is as good as never text in single bytes.
    typed = sum(c.isascii() for c in told) * 4 > len(told) and len(told.split()) == 1
    if typed and east and (wide := _wide(sample)):
        return wide, False
    if _halves_differ(sample, name):
        raise SourceError("Its text is in mixed encodings.", _REMEDY)
    return name, False


def _fits(sample: bytes, declared: Collection[str]) -> dict[str, float]:
    """How well encodings fit to the statistics of their languages, above 0."""
    import chardet  # its models take a moment

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that its own last resort is not among the usual
        told = chardet.detect_all(
            sample, ignore_threshold=True, compat_names=False, include_encodings=_USUAL
        )
    fits = {str(each["encoding"]): each["confidence"] for each in told if each["encoding"]}
    best = max(fits.values(), default=1.0)
    fits |= {name: _TRUST * fits.get(name, best) for name in declared}
    return {name: fit for name, fit in fits.items() if name in declared or name in _USUAL}


def _of_few(fits: Mapping[str, float], texts: Mapping[str, str], best: str) -> str:
    """Windows-1252, if a few characters are as usual there and no other fits much better.

    Raises SourceError, also for letters of another script among Latin ones.
    """
    western = {c for c in texts.get("cp1252", "") if not c.isascii()}
    if western and western <= _WESTERN:
        if _LEAD * fits["cp1252"] >= fits[best] or not any(c.isalpha() for c in western - {*"µªº"}):
            return "cp1252"
    elif not _TURKISH & {*texts[best]}:
        scripts = [_script(c) for c in texts[best] if c.isalpha()]
        if scripts.count("LATIN") < _FEW or {*scripts} == {"LATIN"}:
            return best
    raise SourceError(_UNTOLD, _REMEDY)


def _halves_differ(sample: bytes, encoding: str) -> bool:
    """Whether one half of the lines outside ASCII is clearly in another encoding."""
    lines = [line for line in sample.splitlines(keepends=True) if not line.isascii()]
    half = len(lines) // 2
    for part in (b"".join(lines[:half]), b"".join(lines[half:])):
        fits = _fits(part, ()) if len(part) > _ENOUGH else {}
        best = max(fits, key=fits.__getitem__, default=encoding)
        told, otherwise = _decoded(part, encoding), _decoded(part, best)
        clear = told is None or fits.get(best, 0.0) > _LEAD * fits.get(encoding, 0.0)
        if otherwise is not None and otherwise != told and clear:
            return True
    return False


_SEQUENCE = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
)


def _is_mixed(content: bytes) -> bool:
    """Whether lines in UTF-8 stand beside others."""
    left, count = _SEQUENCE.subn(b"", content)
    others = len(re.findall(rb"[\x80-\xff]", left))
    well = (line for line in content.splitlines() if not line.isascii() and _reads(line, "utf-8"))
    sure = count > 100 * others or any(len(line.decode()) <= len(line) - 3 for line in well)
    return count >= max(3, _MIXED * others) and sure


def _mixed(content: bytes) -> tuple[str, str]:
    """Lines of UTF-8, and what else is among them in its own encoding if that can be told."""
    lines = content.splitlines(keepends=True)
    others = [line for line in lines if not _reads(line, "utf-8")]
    with suppress(SourceError, UnicodeDecodeError):
        encoding = _detect(b"".join(others)[:_SAMPLE], [])[0]
        told = (line.decode("utf-8" if _reads(line, "utf-8") else encoding) for line in lines)
        how = f"{len(others)} of its {len(lines)} lines are read as {_label(encoding)}"
        return "".join(told), f"in mixed encodings: {how}"
    return _by_line(content, "utf-8", "")


def _by_line(content: bytes, encoding: str, note: str) -> tuple[str, str]:
    """The lines that can be decoded; raises SourceError if too many cannot."""
    if encoding == "utf-8" and _is_cut(content):
        return content.decode("utf-8", "ignore"), note
    if encoding.startswith(("utf-16", "utf-32")):  # whose lines end in no single byte
        text = content.decode(encoding, "replace")
        if text.count("\ufffd") > 1 + len(text) // 1000:
            raise SourceError(_UNTOLD, _REMEDY)
        return text, note
    lines = content.splitlines(keepends=True)
    well = [line.decode(encoding) for line in lines if _reads(line, encoding)]
    left = len(lines) - len(well)
    if left > max(1, _MOST_LEFT_OUT * len(lines)) or not any(map(str.strip, well)):
        raise SourceError("Its text is in mixed encodings.", _REMEDY)
    told = f"read in part: {left} of its {len(lines)} lines are in another encoding"
    return "".join(well), f"{note}; " * bool(note) + told
