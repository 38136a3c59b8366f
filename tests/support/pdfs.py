"""PDFs with texts at places, and lines between them."""

import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO

FONTS = {"F1": "Helvetica", "F2": "Helvetica-Bold"}


@dataclass(frozen=True)
class Drawn:
    """A text at a place, in points from below, and degrees against the level."""

    x: float
    y: float
    text: str
    size: float = 10.0
    bold: bool = False
    angle: float = 0.0

    def commands(self) -> str:
        cos, sin = math.cos(math.radians(self.angle)), math.sin(math.radians(self.angle))
        told = self.text.encode("cp1252").hex()
        place = f"{cos:.4f} {sin:.4f} {-sin:.4f} {cos:.4f} {self.x} {self.y} Tm"
        return f"BT /F{1 + self.bold} {self.size} Tf {place} <{told}> Tj ET"


@dataclass(frozen=True)
class Ruled:
    """A line from one place to another."""

    x0: float
    y0: float
    x1: float
    y1: float

    def commands(self) -> str:
        return f"{self.x0} {self.y0} m {self.x1} {self.y1} l S"


def grid(xs: Sequence[float], ys: Sequence[float]) -> list[Ruled]:
    """All rules between cells, and around them."""
    level = [Ruled(xs[0], y, xs[-1], y) for y in ys]
    return level + [Ruled(x, ys[0], x, ys[-1]) for x in xs]


def lines_at(x: float, y: float, lines: Iterable[str], size: float = 10.0) -> list[Drawn]:
    """Lines of text below each other."""
    return [Drawn(x, y - 1.2 * size * n, line, size) for n, line in enumerate(lines)]


def drawing(*pages: Iterable[Drawn | Ruled], title: str = "", rotate: int = 0) -> bytes:
    """A PDF of pages of 600 by 800 points."""
    contents = ["\n".join(each.commands() for each in page).encode() for page in pages]
    return raw_pdf(contents, title, f"/Rotate {rotate}")


def raw_pdf(contents: Sequence[bytes], title: str = "", page: str = "", xref: bool = True) -> bytes:
    """A PDF of pages with these commands; without `xref` its table of places is wrong."""
    names = " ".join(
        f"/{name}<</Type/Font/Subtype/Type1/BaseFont/{font}/Encoding/WinAnsiEncoding>>"
        for name, font in FONTS.items()
    )
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(contents)))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{kids}]/Count {len(contents)}/MediaBox[0 0 600 800]"
        f"/Resources<</Font<<{names}>>>>>>".encode(),
        b"<</Title<" + title.encode("cp1252").hex().encode() + b">>>",
    ]
    for n, content in enumerate(contents):
        packed = zlib.compress(content)
        objects.append(f"<</Type/Page/Parent 2 0 R/Contents {5 + 2 * n} 0 R{page}>>".encode())
        length = f"<</Length {len(packed)}/Filter/FlateDecode>>stream\n".encode()
        objects.append(length + packed + b"\nendstream")
    out, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(out) if xref else 7 * number)
        out += b"%d 0 obj\n%b\nendobj\n" % (number, each)
    size, table = len(objects) + 1, b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % size
    tail = b"trailer<</Size %d/Root 1 0 R/Info 3 0 R>>\nstartxref\n%d\n%%%%EOF" % (size, len(out))
    return out + head + table + tail


def pdf(pages: Sequence[str], password: str | None = None) -> bytes:
    """A line of text on each page; an empty one makes a blank page, as a scanner leaves it."""
    made = drawing(*([Drawn(20, 100, line, 12)] if line else [] for line in pages))
    if password is None:
        return made
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(PdfReader(BytesIO(made)))
    writer.encrypt(password, algorithm="RC4-128")
    out = BytesIO()
    writer.write(out)
    return out.getvalue()
