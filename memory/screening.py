"""What a reflection must be before it may enter the bank: short, plain, and nobody's mouthpiece.

A model wrote it after reading pages that anybody may have written, and it will stand before the
questions of later runs. So its text is stripped to what it says and capped; what looks like
somebody else's words is flagged, and a flagged reflection waits for a person. Screening can only
lessen the danger: whoever reads the bank still takes what it holds for untrusted text.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memory.copying import copied
from memory.orders import QUOTED, orders
from memory.stripping import Stripped, stripped

RUBRICS_CHARACTERS, TAKEAWAYS_CHARACTERS = 1500, 1000
"""the 700 tokens that a policy may write make some 2,500 characters of English in all"""
LONGEST = 20_000
"""characters that are looked at; whatever is behind them is dropped unread"""

_SENTENCE_END = re.compile(r"[.!?](?=\s)|[\u3002\uff01\uff1f]|(?=\n)")
_ENCODED = re.compile(
    r"\b(?=[A-Za-z0-9+/]{0,40}[a-z])(?=[A-Za-z0-9+/]{0,40}[A-Z])(?=[A-Za-z0-9+/]{0,40}\d)"
    r"[A-Za-z0-9+/]{24,400}={0,2}|\b[A-Za-z0-9+/]{20,400}={1,2}(?![\w=])"
    r"|\b(?=\d*[A-Fa-f])(?=[A-Fa-f]*\d)[0-9A-Fa-f]{32,}\b"
    r"|(?:\\x[0-9A-Fa-f]{2}|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}){6,}"
    r"|\b(?:(?:0x)?[0-9A-Fa-f]{2}[ ,:]+){11,}[0-9A-Fa-f]{2}\b|\b[01]{8}(?: [01]{8}){5,}"
)
_BROKEN = re.compile(r"(?:[()\[\]{},.;:\\/] ?){40,}")
"""what a small model that has lost its thread goes on writing"""
_SECRET = re.compile(
    r"\b(?:sk|pk|rk)-[\w-]{16,}|\bgh[opsur]_\w{20,}|\bgithub_pat_\w{20,}|\bAKIA[0-9A-Z]{16}\b"
    r"|\bxox[abpr]-[\w-]{10,}|\bAIza[\w-]{30,}|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}|-----BEGIN [A-Z ]+KEY"
    r"|\b(?i:password|passwd|passphrase|api[ _-]?key|secret|token)\s*(?:is|=|:)\s*"
    r"(?=(?:[^\s\d]*\d){3})(?=[^\s]*[A-Za-z])[^\s\"']{8,}"
    r"|/etc/(?:passwd|shadow)\b|\.ssh/|\bid_(?:rsa|ed25519)\b|\.aws/|(?<!\w)\.env\b"
)


@dataclass(frozen=True, slots=True)
class Screened:
    """The two texts as they may be kept; each flag is a sentence that says what is wrong."""

    rubrics: str
    takeaways: str
    flags: tuple[str, ...]


def screened(rubrics: str, takeaways: str, source_texts: Sequence[str]) -> Screened:
    """Both texts stripped and capped; with any flag they are to be kept in quarantine.

    `source_texts` are what the run read, as it was fetched: copying from them is flagged. What
    was screened before passes unchanged. Raises nothing, whatever the texts hold.
    """
    written = [rubrics[:LONGEST], takeaways[:LONGEST]]
    parts = [stripped(text) for text in written]
    whole = "\n\n".join(written)
    kept = "\n\n".join(part.text for part in parts)
    flags = (
        # What was taken out speaks as well as what is left, and taking it out may join words.
        *dict.fromkeys([*orders(kept), *orders(whole)]),
        *_flags_of_parts(parts),
        *_found(_ENCODED, whole, "It holds text in some code"),
        *_found(_BROKEN, kept, "It runs into signs that say nothing"),
        *_found(_SECRET, whole, "It holds what looks like a password, a key or the way to one"),
        *_copying(kept, source_texts),
    )
    return Screened(
        capped(parts[0].text, RUBRICS_CHARACTERS),
        capped(parts[1].text, TAKEAWAYS_CHARACTERS),
        flags,
    )


def capped(text: str, characters: int) -> str:
    """The text in so many characters, up to a sentence's end where half of it can be kept."""
    if len(text) <= characters:
        return text
    ends = [match.end() for match in _SENTENCE_END.finditer(text[: characters + 1])]
    at = next((end for end in reversed(ends) if characters // 2 < end <= characters), 0)
    space = text.rfind(" ", 0, characters + 1)
    return text[: at or (space if space > 0 else characters)].rstrip()


def _flags_of_parts(parts: Sequence[Stripped]) -> Iterator[str]:
    if addresses := [_quoted(address) for part in parts for address in part.addresses]:
        yield f"It names an address: {', '.join(dict.fromkeys(addresses))}."
    if markers := [_quoted(marker) for part in parts for marker in part.markers]:
        yield f"It holds marks that part the turns of a chat: {', '.join(dict.fromkeys(markers))}."
    if any(part.hidden for part in parts):
        yield "It held a part that no page would have shown."
    if unseen := sum(part.unseen for part in parts):
        yield f"It held {unseen} characters that cannot be seen."


def _found(pattern: re.Pattern[str], text: str, what: str) -> Iterator[str]:
    if match := pattern.search(text):
        yield f"{what}: {_quoted(match.group())}."


def _copying(text: str, source_texts: Sequence[str]) -> Iterator[str]:
    found = copied(text, source_texts)
    if found.counts:
        yield f"It is copied from what the run read: {_quoted(found.order or found.passage)}."


def _quoted(words: str) -> str:
    return f'"{words}"' if len(words) <= QUOTED else f'"{words[:QUOTED].rstrip()}..."'
