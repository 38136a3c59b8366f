"""Archives of XML: what Office's files, OpenDocument's and books are packed in.

Names of elements are matched without their namespace, of which Office's standard has two.
"""

import posixpath
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

from lxml import etree

from rubricem.agent.sources.readers.document import Document, Input, Section, title_of
from rubricem.memory.errors import SourceError

MOST_BYTES = 100_000_000
"""of one part, uncompressed: a small file may expand beyond memory"""
_PIECE = 1 << 18
MOST_PARTS = 20_000
"""of a package, each time they are read; 20,000 small ones take some two seconds"""
_OLD_OR_ENCRYPTED = b"\xd0\xcf\x11\xe0"
"""how a file in Word's older container begins: .doc, and docx with a password"""


class _Package(ZipFile):
    """An archive with a limit on parts read: its lists may name one any number of times."""

    _left = MOST_PARTS

    def open(self, *given: Any, **named: Any) -> IO[bytes]:
        self._left -= 1
        if self._left < 0:
            name = Path(self.filename or "").name
            raise SourceError(f"{name} lists more than {MOST_PARTS:,} parts.", "Split it.")
        return super().open(*given, **named)


Sections = tuple[Section, ...]


def package_reader(
    read: Callable[[ZipFile, str], tuple[str, Sections] | tuple[str, Sections, str]],
) -> Callable[[Input], Document]:
    """A reader of a package; `read` gives its title, or "", its sections, and perhaps a note.

    What the package's own list of properties says is the title of one that has none.
    """

    def read_package(given: Input) -> Document:
        kind = given.suffix.removeprefix(".")
        given.file.seek(0)
        if given.file.read(4) == _OLD_OR_ENCRYPTED:
            raise SourceError(
                f"{given.name} is encrypted, or an old {kind[:3]} file by another name.",
                f"Save a copy of it as {kind} without a password.",
            )
        try:
            with _Package(given.file) as package:
                title, sections, *note = read(package, given.name)
                for part in () if title else ("docProps/core.xml", "meta.xml"):
                    if (listed := part_of(package, part, given.name)) is not None:
                        title = next((e.text or "" for e in listed.iter("{*}title")), "")
        except BadZipFile as cause:
            raise SourceError(
                f"{given.name} is no {kind} file.",
                f"Open it in a program that reads it, and save it as {kind}.",
            ) from cause
        return Document(title_of(sections, given.stem, title), sections, "".join(note))

    return read_package


def part_of(package: ZipFile, part: str, name: str) -> etree._Element | None:
    """The root element of a part, or None if the package lacks it."""
    if part not in package.NameToInfo:
        return None
    parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True)
    return etree.fromstring(b"".join(pieces_of(package, part, name)), parser)


def body_of(package: ZipFile, part: str, name: str) -> etree._Element:
    """The root element of a part that no such file lacks. Raises SourceError."""
    if (root := part_of(package, part, name)) is None:
        raise SourceError(f"{name} holds no document.", "Save it anew.")
    return root


def pieces_of(package: ZipFile, part: str, name: str) -> Iterator[bytes]:
    """A part's content, unpacked piece by piece. Raises SourceError beyond `MOST_BYTES`."""
    size = 0
    with package.open(part) as file:
        while piece := file.read(_PIECE):
            size += len(piece)
            if size > MOST_BYTES:
                raise SourceError(
                    f"{name} unpacks to more than {MOST_BYTES // 1_000_000} MB.",
                    "Split the document.",
                )
            yield piece


def elements_of(package: ZipFile, part: str, item: str, name: str) -> Iterator[etree._Element]:
    """The elements called `item` of a part, each dropped when the next one is asked for.

    The tree of a large sheet would take ten times its size.
    """
    if part not in package.NameToInfo:
        return
    parser = etree.XMLPullParser(
        events=("end",), tag=f"{{*}}{item}",
        resolve_entities=False, no_network=True, remove_comments=True,
    )  # fmt: skip
    for piece in pieces_of(package, part, name):
        parser.feed(piece)
        for _, element in parser.read_events():
            yield element
            element.clear()
            parent = element.getparent()
            while parent is not None and element.getprevious() is not None:
                del parent[0]
    parser.close()


def relations_of(package: ZipFile, part: str, name: str) -> dict[str, str]:
    """The parts that a part refers to, by the ids it has for them."""
    folder, _, file = part.rpartition("/")
    rels = part_of(package, f"{folder}/_rels/{file}.rels", name)
    told = () if rels is None else [(attribute(e, "Id"), attribute(e, "Target")) for e in rels]
    return {
        key: posixpath.normpath(posixpath.join(f"/{folder}", target)).lstrip("/")
        for key, target in told
    }


def in_order(
    package: ZipFile, part: str, item: str, name: str
) -> Iterator[tuple[etree._Element, str]]:
    """(element, the part that it leads to) of what a part lists as elements called `item`."""
    related = relations_of(package, part, name)
    for element in body_of(package, part, name).iter(f"{{*}}{item}"):
        # Its relation, and for slides a number of its own that is called `id` as well.
        ids = [str(value) for key, value in element.attrib.items() if str(key).endswith("}id")]
        if ids and ids[0] in related:
            yield element, related[ids[0]]


def tag_of(element: etree._Element) -> str:
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""  # QName takes three times as long


def attribute(element: etree._Element | None, name: str) -> str:
    """The value of an attribute, whatever its namespace, or ""."""
    for key, value in () if element is None else element.items():
        if key == name or key.endswith(f"}}{name}"):
            return str(value)
    return ""


def child_of(parent: etree._Element | None, name: str) -> etree._Element | None:
    """The first child called `name`."""
    return None if parent is None else next(parent.iterchildren(f"{{*}}{name}"), None)


def children_of(parent: etree._Element | None, name: str) -> list[etree._Element]:
    """The children called `name`."""
    return [] if parent is None else list(parent.iterchildren(f"{{*}}{name}"))


def value_of(parent: etree._Element | None, name: str) -> str:
    """The `val` of the child called `name`, or ""."""
    return attribute(child_of(parent, name), "val")
