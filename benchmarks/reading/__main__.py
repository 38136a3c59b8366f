"""Whether what is quoted is what a file says: files of all kinds, and what must be read of them.

    python -m benchmarks.reading [--quick | --full] [--docs DIR] [--why]

Files are written anew (`cases.txt` and `kinds.toml` say how), each into a folder, and all into one
that is searched, and read as a run does; HTML is read again as a page of the web. A value is right,
told (not read, and a note names the file), changed (what must not stand there does, or what nobody
could decode was indexed), lost (a word of it is nowhere and no note names the file) or shaped
otherwise. List items are those of Debian's documents that are no navigation, told by their first
words. Processor time is that of `read` alone.
"""

import argparse
import asyncio
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from lxml import html

from benchmarks.reading.cases import File, Value, files
from benchmarks.reading.layouts import pdf
from benchmarks.report import Value as Measured
from benchmarks.report import emit, sized_parser
from rubricem.agent.sources.documents import Folder
from rubricem.agent.sources.readers import read
from rubricem.agent.sources.readers.document import Input
from rubricem.agent.sources.sandbox.pool import Job, readers
from rubricem.memory.errors import SourceError

LEAST_RIGHT, LEAST_ITEMS = 0.97, 0.98
PACKAGES = {"sqlite3-doc": "sqlite3", "git-doc": "git-doc", "debian-policy": "debian-policy"}
"""of Debian, and the folder below /usr/share/doc that holds the pages of each"""
PAGES = 60
"""of each that the quick form reads"""
_FOLDER_ALONE = "?!0th|"
"""marks of values that say nothing of a page of the web"""
_FIRST = 3
"""passages among which a search must find the file"""


class Outcome(StrEnum):
    RIGHT = "right"
    TOLD = "told"
    SHAPED = "shaped otherwise"
    CHANGED = "changed"
    LOST = "lost"


@dataclass(slots=True)
class Text:
    """What was read of a file."""

    notes: tuple[str, ...] = ()
    """those that name the file or count its kind"""
    title: str = ""
    headings: list[str] = field(default_factory=list)
    passages: list[str] = field(default_factory=list)

    def has(self, mark: str, text: str) -> bool:
        whole = "\n".join(self.passages)
        if mark in "th":
            return text == self.title or (mark == "h" and text in "\n".join(self.headings))
        if mark in "+n":
            return text in whole
        between = "" if mark in "=/" else " "
        return between.join(text.split()) in between.join(whole.split())

    def becomes(self, value: Value) -> Outcome:
        """What became of a value that is no search."""
        mark, text = value.mark, value.text
        missing = Outcome.TOLD if self.notes else Outcome.LOST
        if mark == "!":
            return Outcome.RIGHT if any(text in note for note in self.notes) else Outcome.LOST
        if not self.passages:
            return Outcome.RIGHT if mark in "0|" and self.notes else missing
        if mark == "0" or self.has(mark, text) == (mark in "-/"):
            if mark in "0@-/":
                return Outcome.CHANGED
            known = "\n".join([self.title, *self.passages])
            whole = mark in "=th" or all(word in known for word in re.findall(r"\w+", text))
            return Outcome.SHAPED if whole else missing
        return Outcome.RIGHT


def write(folder: Path, which: Iterable[File]) -> None:
    folder.mkdir()
    for file in which:
        (folder / file.name).write_bytes(file.content)


async def read_folder(folder: Folder, names: Iterable[str]) -> dict[str, Text]:
    """What is read of each file; what an archive holds counts as the archive's."""
    try:
        notes = await folder.prepare()
    except SourceError as error:  # none of them can be read
        return {name: Text((error.told(),) * _names(error.told(), name)) for name in names}
    found = {name: Text(tuple(note for note in notes if _names(note, name))) for name in names}
    for passage in folder._open().passages:
        above = (passage.location[:n] for n in range(len(passage.location), 0, -1))
        if (text := next((found[name] for name in above if name in found), None)) is not None:
            text.title = passage.title
            text.headings.append(passage.place)
            text.passages.append(passage.text)
    return found


def _names(note: str, name: str) -> bool:
    """Whether a note names a file, or counts its kind: "3 .zip"."""
    kind = re.escape(Path(name).suffix or name)
    return re.search(rf"(?<![\w/]){re.escape(name)}(?!\w)|\d {kind}(?!\w)", note) is not None


async def read_page(content: bytes) -> Text:
    """A page as the web's are read."""
    asked = {"address": "http://example.org/a", "declared": "text/html", "packing": ""}
    try:
        told = await readers().read(Job("page", "The page", {**asked, "most": 10**8}, content))
    except SourceError as error:
        return Text((error.told(),))
    places, texts = ([piece[n] for piece in told["passages"]] for n in (0, 1))
    return Text((), told["title"], places, texts)


Judged = tuple[str, Value, Outcome]
"""what was read, what was asked of it and what became of that"""


async def judge(work: Path) -> list[Judged]:
    write(work / "files", files())
    folder = Folder(work / "files", work / "cache", look_again=1e9)
    judged = list[Judged]()
    for n, file in enumerate(files()):
        # Alone, since copies of a text fold.
        write(work / f"{n}", [file])
        alone = Folder(work / f"{n}", work / "cache")
        text = (await read_folder(alone, [file.name]))[file.name]
        for value in file.values:
            if value.mark == "?":
                found = [passage.location for passage in await folder.search(value.text, _FIRST)]
                well = file.name in found
                judged.append((file.name, value, Outcome.RIGHT if well else Outcome.LOST))
            else:
                judged.append((file.name, value, text.becomes(value)))
        if file.name.endswith(".html"):
            page = await read_page(file.content)
            asked = (value for value in file.values if value.mark not in _FOLDER_ALONE)
            judged += [(f"web {file.name}", each, page.becomes(each)) for each in asked]
    return judged


def items_of(pages: Sequence[bytes]) -> list[list[str]]:
    """The first words of each list item of each page, without those that many pages repeat."""
    around = "ancestor::*[self::nav or self::header or self::footer or @role='navigation']"
    own = ".//text()[not(ancestor::script or ancestor::style or ancestor::sup)]"
    items = (html.document_fromstring(page).xpath(f"//li[not({around})]") for page in pages)
    listed = [[_words(item.xpath(own), 8) for item in each] for each in items]
    often = Counter(item for items in listed for item in {*items})
    most = max(3, len(pages) / 5)
    return [[item for item in items if item and often[item] < most] for items in listed]


def _words(texts: Iterable[str], most: int | None = None) -> str:
    return " ".join(re.findall(r"[a-z]{2,}", " ".join(texts).lower())[:most])


async def items_kept(name: str, docs: Path, quick: bool, work: Path) -> dict[str, Measured]:
    """List items of a package of Debian, and the shares that are read of its folder and the web."""
    paths = sorted(path for path in (docs / PACKAGES[name]).rglob("*.html") if path.is_file())
    pages = [path.read_bytes() for path in paths[:: max(1, len(paths) // PAGES) if quick else 1]]
    if not pages:
        return {f"{name}_folder": None, f"{name}_web": None}
    which = [File(f"{n}.html", page, ()) for n, page in enumerate(pages)]
    write(work / name, which)
    texts = await read_folder(Folder(work / name, work / "cache"), [file.name for file in which])
    kept = Counter[str]()
    for file, items in zip(which, items_of(pages), strict=True):
        local, web = texts[file.name], await read_page(file.content)
        kept["items"] += len(items)
        for how, text in (("folder", local), ("web", web)):
            kept[how] += sum(item in held for held in [_words(text.passages)] for item in items)
    shares = {f"{name}_{how}": round(kept[how] / kept["items"], 3) for how in ("folder", "web")}
    return {f"{name}_items": kept["items"], **shares}


def costs(quick: bool) -> dict[str, Measured]:
    """Processor seconds of reading; the quick form reads a tenth, and says ten times that."""
    share = 10 if quick else 1
    page = next(file.content for file in files() if file.name == "trial.html")
    more = b"<p>%s</p><ul><li>A seal</li></ul>" % (10 * b"A part of the pump wore out. ")
    page = page.replace(b"<hr/>", 90 * more)
    lines = "\n".join(f"40 {750 - 12 * n} The seal of part {n} wore out in May." for n in range(55))
    pages = pdf("\npage\n".join([lines] * (300 // share)))
    rows = (f"{n},customer {n % 977},Bonn,{n}.50,2023-05-17\n" for n in range(330_000 // share))
    table = "order,customer,city,amount,date\n" + "".join(rows)
    found: dict[str, Measured] = {}
    for name, file, content, times in (
        ("html_1000_cpu_s", "a.html", page, 1000 // share),
        ("pdf_300_pages_cpu_s", "a.pdf", pages, 1),
        ("csv_14_mb_cpu_s", "a.csv", table.encode(), 1),
    ):
        before = time.process_time()
        for _ in range(times):
            read(Input.of_bytes(file, content))
        found[name] = round(share * (time.process_time() - before), 1)
    return found


async def main(arguments: argparse.Namespace) -> None:
    quick = not arguments.full
    with tempfile.TemporaryDirectory() as folder:
        judged, more = await judge(Path(folder)), dict[str, Measured]()
        for name in PACKAGES:
            more |= await items_kept(name, arguments.docs, quick, Path(folder))
    for where, value, became in judged if arguments.why else ():
        if became is not Outcome.RIGHT:
            print(f"{became:16} {where:18} {value.mark} {value.text!r}")
    report(judged, more | costs(quick), quick)


def report(judged: Sequence[Judged], more: dict[str, Measured], quick: bool) -> None:
    became = Counter(outcome for _, _, outcome in judged)
    searches = [each is Outcome.RIGHT for _, value, each in judged if value.mark == "?"]
    kinds = defaultdict[str, list[bool]](list)
    for where, _, each in judged:
        kind = "web" if where.startswith("web ") else Path(where).suffix or where
        kinds[kind].append(each is Outcome.RIGHT)
    right, found = became[Outcome.RIGHT] / len(judged), sum(searches) / len(searches)
    values: dict[str, Measured] = {"files": len(files()), "n": len(judged)}
    values |= {"right_share": round(right, 3), "searches_share": round(found, 3)}
    values |= {each.value.replace(" ", "_"): became[each] for each in [*Outcome][1:]} | more
    values["by_kind"] = ", ".join(f"{k} {sum(v)}/{len(v)}" for k, v in sorted(kinds.items()))
    least = {"right_share": LEAST_RIGHT, "searches_share": 1.0}
    least |= {k: LEAST_ITEMS for k in more if k.endswith(("_folder", "_web")) and more[k]}
    how = f"files of our own; {PAGES if quick else 'all'} pages a package; costs in one process"
    emit("reading", values, how, least=least, most={"changed": 0, "lost": 0})


if __name__ == "__main__":
    parser = sized_parser(__doc__, "a tenth of what costs (the default)", "all pages and costs")
    parser.add_argument("--docs", type=Path, default=Path("/usr/share/doc"), help="Debian's")
    parser.add_argument("--why", action="store_true", help="say each value that is not right")
    asyncio.run(main(parser.parse_args()))
