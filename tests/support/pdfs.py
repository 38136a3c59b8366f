"""PDFs with a line of text on each page."""

from collections.abc import Sequence
from io import BytesIO

from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject


def pdf(pages: Sequence[str], password: str = "") -> bytes:
    """An empty line makes a blank page, as a scanner leaves it."""
    writer = PdfWriter()
    names = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    font = DictionaryObject({NameObject(k): NameObject(v) for k, v in names.items()})
    fonts = DictionaryObject({NameObject("/F1"): font})
    for line in pages:
        page = writer.add_blank_page(width=300, height=200)
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        if line:
            stream = DecodedStreamObject()
            stream.set_data(f"BT /F1 12 Tf 20 100 Td ({line}) Tj ET".encode())
            page[NameObject("/Contents")] = writer._add_object(stream)
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    out = BytesIO()
    writer.write(out)
    return out.getvalue()
