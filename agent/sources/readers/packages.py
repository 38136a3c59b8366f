"""Archives of XML: what Office's files, OpenDocument's and books are packed in.

Elements and attributes are known without their namespace, of which Office's standard has two.
"""

import re
from collections.abc import Callable, Iterator
from typing import IO, Any
from urllib.parse import unquote, urljoin
from zipfile import BadZipFile, ZipFile

from lxml import etree

from rubricem.agent.sources.readers.document import Document, Input, Section
from rubricem.memory.errors import SourceError

MOST_BYTES = 100_000_000
"""of one part, uncompressed: a small file may expand beyond memory"""
_PIECE = 1 << 18
_SAFE: Any = dict.fromkeys(("no_network", "remove_comments", "remove_pis"), True)
_SAFE["resolve_entities"] = False
_NAMESPACE = re.compile(rb"\sxmlns=[\"'][^\"'<>]*[\"']")
MOST_PARTS = 20_000
"""of a package, each time they are read; 20,000 small ones take some two seconds"""
_OLD_OR_ENCRYPTED = b"\xd0\xcf\x11\xe0"
"""how a file in Word's older container begins: .doc, and docx with a password"""


def bare(root: etree._Element) -> etree._Element:
    """The same tree, its names without namespaces; of like attributes the first that had one."""
    for element in root.iter(etree.Element):
        element.tag = str(element.tag).rpartition("}")[2]
        for name, value in reversed(element.items()):
            if name[0] == "{":
                del element.attrib[name]
                element.set(name.rpartition("}")[2], value)
    return root


class Package(ZipFile):
    """The archive of a document."""

    def __init__(self, given: Input) -> None:
        super().__init__(given.file)
        self.given = given
        self._left = MOST_PARTS  # its lists may name one any number of times

    def open(self, *given: Any, **named: Any) -> IO[bytes]:
        self.allow(1)
        self._left -= 1
        return super().open(*given, **named)

    def allow(self, parts: int) -> None:
        """Raises SourceError if so many more are too many to read."""
        if parts > self._left:
            message = f"{self.given.name} lists more than {MOST_PARTS:,} parts."
            raise SourceError(message, "Split it.")

    def pieces(self, part: str) -> Iterator[bytes]:
        """A part's content, unpacked piece by piece; nothing of one that the package lacks.

        Raises SourceError beyond `MOST_BYTES`.
        """
        if part not in self.NameToInfo:
            return
        size = 0
        with self.open(part) as file:
            while piece := file.read(_PIECE):
                size += len(piece)
                if size > MOST_BYTES:
                    raise SourceError(
                        f"{self.given.name} unpacks to more than {MOST_BYTES // 1_000_000} MB.",
                        "Split the document.",
                    )
                yield piece

    def part(self, part: str) -> etree._Element:
        """The root element of a part; an empty one if the package lacks it."""
        if part not in self.NameToInfo:
            return etree.Element("none")
        root = etree.fromstring(b"".join(self.pieces(part)), etree.XMLParser(**_SAFE))
        etree.strip_elements(root, etree.Entity, with_tail=False)
        return bare(root)

    def body(self, part: str) -> etree._Element:
        """The root element of a part that no such file lacks. Raises SourceError."""
        if part not in self.NameToInfo:
            raise SourceError(f"{self.given.name} holds no document.", "Save it anew.")
        return self.part(part)

    def elements(self, part: str, item: str) -> Iterator[etree._Element]:
        """The elements called `item` of a part, each dropped when the next one is asked for.

        The tree of a large sheet would take ten times its size.
        """
        parser = etree.XMLPullParser(events=("end",), tag=f"{{*}}{item}", **_SAFE)
        for number, piece in enumerate(self.pieces(part)):
            # Without a namespace its names need not be changed, which takes as long as all else.
            parser.feed(piece if number else _NAMESPACE.sub(b"", piece, 1))
            for _, element in parser.read_events():
                yield element if element.tag == item else bare(element)
                element.clear()
                parent = element.getparent()
                while parent is not None and element.getprevious() is not None:
                    del parent[0]

    def beside(self, part: str, reference: str) -> str:
        """The part that a reference leads to from another one."""
        return unquote(urljoin(f"/{part}", reference).partition("#")[0]).lstrip("/")

    def relations(self, part: str) -> dict[str, str]:
        """The parts that a part refers to, by the ids it has for them."""
        folder, _, file = part.rpartition("/")
        told = self.part(f"{folder}/_rels/{file}.rels")
        return {e.get("Id", ""): self.beside(part, e.get("Target", "")) for e in told}

    def listed(self, part: str, item: str) -> Iterator[tuple[etree._Element, str]]:
        """(element, the part that it leads to) of what a part lists as elements called `item`."""
        related, elements = self.relations(part), [*self.body(part).iter(item)]
        self.allow(len(elements))
        for element in elements:
            if target := related.get(element.get("id", "")):
                yield element, target


Sections = tuple[Section, ...]


def package_reader(
    read: Callable[[Package], tuple[str, Sections] | tuple[str, Sections, str]],
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
            with Package(given) as package:
                title, sections, *note = read(package)
                for part in ("docProps/core.xml", "meta.xml"):
                    title = title or package.part(part).findtext(".//title") or ""
        except BadZipFile as cause:
            raise SourceError(
                f"{given.name} is no {kind} file.",
                f"Open it in a program that reads it, and save it as {kind}.",
            ) from cause
        return Document.of(given, sections, title, "".join(note))

    return read_package


def value_of(parent: etree._Element | None, path: str) -> str:
    """The `val` of the first element at a path, or ""."""
    found = None if parent is None else parent.find(path)
    return "" if found is None else found.get("val", "")
