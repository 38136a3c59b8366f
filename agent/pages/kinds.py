"""What a page is, by its bytes: what a server declares is often wrong, and never to be trusted."""

import codecs
import re
from typing import Literal

from agent.sources.readers import decode
from memory.errors import SourceError

Kind = Literal["html", "pdf", "text"]

_LOOKED_AT = 2048
"""bytes, as browsers look at some thousand"""
_BOMS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_BINARY = {
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"PK\x03\x04": "a ZIP archive or an Office document",
    b"\x1f\x8b": "a gzip archive",
    b"\x7fELF": "a program",
    b"OggS": "sound or film",
    b"ID3": "sound",
    b"\x1aE\xdf\xa3": "film",
}
_HTML = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|[a-z])", re.I | re.S
)
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.I)


def kind_of(content: bytes) -> Kind:
    """What the bytes are. Raises SourceError where they hold no text that can be read."""
    head = content[:_LOOKED_AT]
    if b"%PDF-" in head[:1024]:
        return "pdf"
    if not any(head.startswith(mark) for mark in _BOMS):
        name = next((name for mark, name in _BINARY.items() if head.startswith(mark)), "")
        if name or b"\0" in head:
            raise SourceError(f"What is there is {name or 'binary'}, and no text.")
    if not content.strip():
        raise SourceError("The page is empty.")
    return "html" if _HTML.match(head.lstrip(codecs.BOM_UTF8)) else "text"


def decoded(content: bytes, content_type: str) -> str:
    """The text in its own mark's encoding, else the declared one, else UTF-8 or Windows-1252."""
    head = content[:_LOOKED_AT].decode("latin-1")
    marks = [name for mark, name in _BOMS.items() if content.startswith(mark)]
    declared = [found[1] for found in map(_CHARSET.search, (content_type, head)) if found]
    for encoding in (*marks, *declared):
        try:
            return content.decode(encoding)
        except (LookupError, ValueError):
            continue
    return decode(content)[0]
