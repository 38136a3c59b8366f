"""Notebooks: JSON of cells, read as one Markdown text with what the cells gave."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from rubricem.agent.sources.readers.document import Document, Input
from rubricem.agent.sources.readers.plain.markdown import markdown_sections
from rubricem.agent.sources.readers.plain.text import CONTROLS
from rubricem.memory.errors import SourceError

_PICTURE = re.compile(r"<(?:Figure|IPython\.|matplotlib\.|Axes)[^<>]*>\Z")
"""what stands for one in the text beside it"""


def read_notebook(given: Input) -> Document:
    """The cells of a notebook in their order, with what they gave as text; no pictures."""
    text, note = given.text()
    try:
        notebook = json.loads(text)
        told = "\n\n".join(part for cell in notebook["cells"] for part in _cell(cell))
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise SourceError(
            f"{given.name} is no notebook of format 4.", "Save it again in Jupyter."
        ) from cause
    sections = markdown_sections(told)
    title = notebook.get("metadata", {}).get("title", "")
    return Document.of(given, sections, title if isinstance(title, str) else "", note)


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    source = _lines(cell.get("source") or "")
    if cell.get("cell_type") == "code":
        yield _fenced(source)
        for each in cell.get("outputs") or ():
            yield from _output(each)
    else:
        yield _IMAGE.sub("", source)


_IMAGE = re.compile(r"!\[[^\[\]]{0,200}\]\((?:data:|attachment:)[^()\s]*+\)|<img\b[^<>]*+>")


def _output(output: dict[str, Any]) -> Iterator[str]:
    given = output.get("data") or output
    page, plain = _lines(given.get("text/html") or ""), _lines(given.get("text/plain") or "")
    plain = "" if _PICTURE.match(plain.strip()) else plain
    if "<table" in page or (page and not plain):
        yield f"<div>{page}</div>"
    elif set_as := _lines(given.get("text/markdown") or given.get("text/latex") or ""):
        yield set_as
    elif said := plain or _lines(output.get("text") or ""):
        yield _fenced(CONTROLS.sub("", said))
    elif output.get("output_type") == "error":
        yield _fenced(CONTROLS.sub("", f"{output.get('ename')}: {output.get('evalue')}"))


def _lines(text: str | Iterable[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def _fenced(text: str) -> str:
    longest = max(map(len, re.findall("`+", text)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}" if text.strip() else ""
