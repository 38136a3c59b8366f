"""Text from outside, made safe to store."""

import re

_LONE = re.compile("[\ud800-\udfff]")


def storable(text: str) -> str:
    """The text with lone surrogates replaced one for one, so that offsets into it still hold.

    Servers that cut an emoji in two, undecodable arguments and file names, and some PDFs bring
    them; no encoding can write them.
    """
    return _LONE.sub("\ufffd", text)
