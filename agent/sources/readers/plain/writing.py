"""What the readers of light markups, TeX and RTF write: HTML, which is then read as any page."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from html import escape

from rubricem.agent.sources.readers.document import Section

_LONGEST_FORMULA = 2000
"""characters of TeX that are read as a formula"""


@lru_cache(1000)
def formula(tex: str, *, display: bool = False) -> str:
    """MathML of a formula in TeX, or the TeX itself if it cannot be read."""
    from latex2mathml.converter import convert

    tex = tex.strip()
    try:
        if len(tex) > _LONGEST_FORMULA:
            raise ValueError("longer than any formula")
        return convert(tex, display="block" if display else "inline")
    except Exception:  # it raises what it will on what is no TeX
        return f"<code>{escape(tex)}</code>"


def code(lines: str) -> str:
    return f"<pre>{escape(lines, quote=False)}</pre>\n"


def note_link(mark: str, note: str = "") -> str:
    """The mark of a note in the text, with the name of the note if it has one."""
    return f'<sup class="noteref"><a href="#note-{escape(note or mark)}">{escape(mark)}</a></sup>'


def note(mark: str, text: str, name: str = "") -> str:
    """A note at the end of what refers to it; `text` is HTML."""
    return f'<div id="note-{escape(name or mark)}"><p>{text}</p></div>\n'


def table(rows: Iterable[Sequence[str]], headers: int | None = None) -> str:
    """A table of cells in HTML, of which the first rows are its header if that is known."""
    told = []
    for number, row in enumerate(rows):
        tag = "th" if headers is not None and number < headers else "td"
        told.append("<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in row) + "</tr>\n")
    return f"<table>{''.join(told)}</table>\n"


def sections_of(page: str) -> tuple[Section, ...]:
    """The sections of a page without menus, banners and the like."""
    from rubricem.agent.sources.readers.pages.markup import page_of

    return page_of(page)[1]
