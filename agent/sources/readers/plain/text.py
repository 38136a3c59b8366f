"""Plain text: notes, logs, sources of programs, subtitles, and what has no kind in its name."""

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from itertools import zip_longest

from rubricem.agent.sources.readers.document import LINES_EACH, BlockKind, Document, Input, Outline
from rubricem.memory.errors import SourceError

_TIME = r"((?:\d+:)?\d+:\d\d)[.,]\d+"
_TIMES = re.compile(rf"^(?:\d+[ \t]*\n)?[ \t]*{_TIME}[ \t]+-->[ \t]+{_TIME}.*", re.M)
_CUE_MARKS = re.compile(r"<[^<>\n]{1,100}>|\{\\[^{}\n]{1,100}\}")
_VOICE = re.compile(r"<v(?:\.[\w.-]{1,60})?\s+([^<>\n]{1,100})>")
_CUES_EACH = 20
"""of subtitles, in one block"""
_PROSE = (".txt", ".text", ".log")
"""what is no program"""
CONTROLS = re.compile(r"[^\n\x08]\x08|\x1b\[[0-9;?]{0,20}[A-Za-z]|[\x00-\x08\x0b\x0e-\x1f\x7f]")
"""colours of a terminal among them, and what it strikes over to make it bold"""
_ESCAPED = re.compile(r"\\([nN,;:\\])")
_FOLDED = re.compile(r"\r?\n[ \t]")
"""a line of a calendar or an address that goes on in the next"""


def read_text(given: Input) -> Document:
    """Each section names its lines."""
    text, note = given.text()
    if given.suffix in (".ics", ".vcf"):
        text = _FOLDED.sub("", text)
        text = _ESCAPED.sub(lambda sign: " " if sign[1] in "nN" else sign[1], text)
    is_prose = given.suffix in ("", *_PROSE)
    lines, outline = text.splitlines(), Outline()
    for start in range(0, len(lines), LINES_EACH):
        body = CONTROLS.sub("", "\n".join(lines[start : start + LINES_EACH]))
        place = f"lines {start + 1}-{min(start + LINES_EACH, len(lines))}"
        outline.add(BlockKind.PARAGRAPH if is_prose else BlockKind.CODE, body, place)
    return Document(given.stem if is_prose else given.name, outline.sections(), note)


def read_subtitles(given: Input) -> Document:
    """What is said, without the breaks of its lines; the times are the place."""
    text, note = given.text()
    outline, cues = Outline(), list(_cues(text, parted=given.suffix == ".vtt"))
    for start in range(0, len(cues), _CUES_EACH):
        part = cues[start : start + _CUES_EACH]
        said: list[str] = []
        for _, _, words in part:
            said += words[words[:1] == said[-1:] :]  # a caption that rolls repeats its line
        outline.add(BlockKind.PARAGRAPH, " ".join(said), f"{part[0][0]} to {part[-1][1]}")
    if not cues:
        raise SourceError(f"{given.name} has no subtitles.", "Save it as txt, or leave it out.")
    return Document(given.stem, outline.sections(), note)


def _cues(text: str, *, parted: bool) -> Iterator[tuple[str, str, list[str]]]:
    """(begin, end, lines) of each; `parted`: an empty line ends one, and comments may follow."""
    text = "\n".join(text.splitlines())
    found = list(_TIMES.finditer(text))
    for this, after in zip_longest(found, found[1:]):
        said = text[this.end() : after.start() if after else None]
        said = said.partition("\n\n")[0] if parted else said
        said = unescape(_CUE_MARKS.sub("", _VOICE.sub(r"\1: ", said)))
        yield this[1], this[2], [line.strip() for line in said.splitlines() if line.strip()]


_PAGE = re.compile(r"\s*(?:<\?xml[^>]{0,200}>\s*)?<(?:!doctype html|html)\b", re.I)
_HEADED = re.compile(r"^#{1,6} \S", re.M)
_UNDERLINED = re.compile(r"^\S[^\n]{0,200}\n(?:={3,}|-{3,})[ \t]*$", re.M)


_MARKS = {b"%PDF-": ".pdf", b"{\\rtf": ".rtf"}


def read_unnamed(given: Input) -> Document:
    """A file without a kind in its name (README), as what its content is."""
    from rubricem.agent.sources.readers import read

    content = given.content()
    if content.startswith(b"PK\3\4"):
        raise SourceError(
            f"{given.name} is an archive without its kind in the name.", "Name its kind."
        )
    kind = next((kind for mark, kind in _MARKS.items() if content.startswith(mark)), "")
    text = "" if kind else given.text()[0]
    if _PAGE.match(text):
        kind = ".html"
    elif _HEADED.search(text) and not text.startswith("#!"):
        kind = ".md"
    elif _UNDERLINED.search(text):
        kind = ".rst"
    kind = kind or ".txt"
    return read(replace(given, name=given.name + kind))
