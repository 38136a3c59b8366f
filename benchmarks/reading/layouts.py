"""Sheets of Excel and pages of PDF, written by hand from a few lines each."""

import re
from html import escape
from io import BytesIO

from pypdf import PdfWriter, generic

from benchmarks.reading.formats import file_of, kinds

_LIGATURES = "\N{LATIN SMALL LIGATURE FI}\N{LATIN SMALL LIGATURE FL}\N{LATIN SMALL LIGATURE FFI}"
_FONT = (
    b"<</Resources<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Courier/Encoding<<"
    b"/BaseEncoding/WinAnsiEncoding/Differences[1/fi/fl/ffi]>>>>>>>>>>"
)


def xlsx(source: str) -> bytes:
    """A sheet from lines: "a|b" is a row, "merge A1:B1" merges cells.

    A cell is a text with {sup 5}, a number, one with its format ("0.42 s1", as `kinds.toml` lists
    them), TRUE, a formula ("=A1+1") or one with the value that it was kept with ("9=A1+1").
    """
    lines = [line for line in source.splitlines() if line]
    merged = [f'<mergeCell ref="{line[6:]}"/>' for line in lines if line.startswith("merge ")]
    rows = ""
    for n, line in enumerate((line for line in lines if not line.startswith("merge ")), start=1):
        cells = (_cell(f"{chr(65 + at)}{n}", text) for at, text in enumerate(line.split("|")))
        rows += f'<row r="{n}">{"".join(cells)}</row>'
    after = f"<mergeCells>{''.join(merged)}</mergeCells>" if merged else ""
    return file_of(kinds()["xlsx"], f"<sheetData>{rows}</sheetData>{after}")


def _cell(place: str, text: str) -> str:
    if number := re.fullmatch(r"(-?\d+(?:\.\d+)?)(?: s(\d+))?", text):
        return f'<c r="{place}" s="{number[2] or 0}"><v>{number[1]}</v></c>'
    if "=" in text:
        value, _, formula = text.partition("=")
        return f'<c r="{place}"><f>{formula}</f>{f"<v>{value}</v>" if value else ""}</c>'
    if text in ("TRUE", "FALSE"):
        return f'<c r="{place}" t="b"><v>{int(text == "TRUE")}</v></c>'
    raised = '<rPr><vertAlign val="superscript"/></rPr>'
    told = "".join(
        f'<r>{raised * (n % 2)}<t xml:space="preserve">{run}</t></r>'
        for n, run in enumerate(re.split(r"\{sup ([^}]+)\}", escape(text)))
        if run
    )
    return f'<c r="{place}" t="inlineStr"><is>{told}</is></c>' if text else ""


def pdf(source: str) -> bytes:
    """Pages from lines: "page", "line X1 Y1 X2 Y2", "scan", "turned X Y text" and "X Y text".

    The text is in Courier of 10 points, where a {sup 5} is smaller and higher. "title ..." gives
    the file a title, "lost" breaks the table of its objects, "locked" gives it a password.
    """
    pages, writer, out = [list[str]()], PdfWriter(), BytesIO()
    lines = source.strip().splitlines()
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "page":
            pages.append([])
        elif word == "title":
            writer.add_metadata({"/Title": rest})
        elif word == "line":
            x, y, to_x, to_y = rest.split()
            pages[-1].append(f"{x} {y} m {to_x} {to_y} l S")
        elif word == "scan":
            pages[-1].append("0.9 g 50 50 500 700 re f")
        elif word not in ("lost", "locked"):
            turned = word == "turned"
            x, y, text = (rest if turned else line).split(" ", 2)
            pages[-1] += _drawn(float(x), float(y), text, "0 1 -1 0" if turned else "1 0 0 1")
    for page in pages:
        _add_page(writer, "\n".join(page))
    if "locked" in lines:
        writer.encrypt("secret", algorithm="RC4-128")
    writer.write(out)
    content = out.getvalue()
    return content.replace(b"startxref\n", b"startxref\n7") if "lost" in lines else content


def _drawn(x: float, y: float, text: str, how: str) -> list[str]:
    made = list[str]()
    for n, run in enumerate(re.split(r"\{sup ([^}]+)\}", text)):
        size, rise = (6.5, 3.5) if n % 2 else (10.0, 0.0)
        shown = "".join(rf"\00{_LIGATURES.index(c) + 1}" if c in _LIGATURES else c for c in run)
        shown = re.sub(r"([()])", r"\\\1", shown)
        made.append(f"BT /F1 {size:g} Tf {how} {x:g} {y + rise:g} Tm ({shown}) Tj ET")
        x += 0.6 * size * len(run)
    return made


def _add_page(writer: PdfWriter, drawn: str) -> None:
    page, stream = writer.add_blank_page(600, 800), generic.DecodedStreamObject()
    page.update(generic.DictionaryObject.read_from_stream(BytesIO(_FONT), None))
    stream.set_data(drawn.encode("cp1252"))
    page[generic.NameObject("/Contents")] = writer._add_object(stream.flate_encode())
