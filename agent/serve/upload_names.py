"""Names of uploaded documents and their folders: one path component, the same on every system.

A name is looked at as it is and in its compatibility form (Unicode NFKC), so that no look-alike
of a separator or a dot passes. It is refused rather than mended: nothing is stored under a name
that nobody gave.
"""

import re
import unicodedata
from http import HTTPStatus
from pathlib import PurePath

from agent.serve.refusals import Refused
from agent.sources.readers import READERS

MOST_BYTES = 180
"""of a name in UTF-8; most file systems hold 255"""
_FORBIDDEN = re.compile(r'[/\\:*?"<>|]')
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d|conin\$|conout\$)(?:\..*)?", re.I | re.S)
"""names that mean a device on Windows, whatever their suffix"""
_SHOWN = 60


def folder_name(name: str) -> str:
    """The name in its composed form. Raises Refused where it could mean anything but itself."""
    named = unicodedata.normalize("NFC", name.strip(" "))
    for form in (named, unicodedata.normalize("NFKC", named)):
        if wrong := _wrong(form):
            raise Refused(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"{_said(name)} cannot name anything here: {wrong}.",
                "Use letters, digits, spaces, dots, dashes and underscores.",
            )
    return named


def document_name(name: str) -> str:
    """The same for a document, whose suffix must say a kind that is read."""
    named = folder_name(name)
    if PurePath(named).suffix.lower() not in READERS:
        kinds = ", ".join(sorted(suffix.removeprefix(".") for suffix in READERS))
        raise Refused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"{_said(name)} is of a kind that is not read.",
            f"Upload documents of these kinds: {kinds}.",
        )
    return named


def _wrong(name: str) -> str:
    """What is wrong with a name; "" where nothing is."""
    faults = {
        "it is empty": not name,
        f"it is longer than {MOST_BYTES} bytes": len(name.encode("utf-8", "replace")) > MOST_BYTES,
        "it holds characters that cannot be seen": not name.isprintable(),
        "it holds a character that parts paths or is reserved": bool(_FORBIDDEN.search(name)),
        "it begins with a dot": name.startswith("."),
        "it begins or ends with a space, or ends with a dot": name != name.strip(" ").rstrip("."),
        "some systems take it for a device": bool(_DEVICES.fullmatch(name)),
    }
    return next((fault for fault, found in faults.items() if found), "")


def _said(name: str) -> str:
    """The name as it can be shown, whatever it holds."""
    return ascii(name if len(name) <= _SHOWN else name[:_SHOWN] + "...")
