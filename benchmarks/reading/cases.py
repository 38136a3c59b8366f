"""The files that are read, and the values that must be read of each, from `cases.txt`."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.reading.formats import Block, block_of, file_of, kinds, repeated, zipped
from benchmarks.reading.layouts import pdf, xlsx

_CHARACTER = re.compile(r"\{U\+([0-9A-F]{4})\}")
_OPEN_DOCUMENT = {"ods": "spreadsheet", "odp": "presentation"}


@dataclass(frozen=True, slots=True)
class Value:
    mark: str
    """what is asked of the text, as the head of `cases.txt` says"""
    text: str

    @classmethod
    def of_line(cls, line: str) -> "Value":
        return cls(line[0], line[2:].replace("⏎", "\n"))


@dataclass(frozen=True, slots=True)
class File:
    name: str
    """its path inside the folder"""
    content: bytes
    values: tuple[Value, ...]


@cache
def files() -> tuple[File, ...]:
    """All files, those that hold the same blocks in every kind of file first."""
    text = Path(__file__).with_name("cases.txt").read_text(encoding="utf-8")
    blocks, made = list[tuple[Block, tuple[Value, ...]]](), list[File]()
    for case in text.split("\n### ")[1:]:
        head, _, rest = case.partition("\n")
        source, _, lines = rest.partition("\n???\n")
        source = _CHARACTER.sub(lambda found: chr(int(found[1], 16)), source)
        values = tuple(Value.of_line(line) for line in lines.splitlines() if line)
        name, _, how = head.partition(" ")
        if name == "block":
            blocks.append(((how, source), values))
        else:
            made.append(File(name, _content(repeated(source), how), values))
    return (*(_trial(suffix, blocks) for suffix, kind in kinds().items() if "row" in kind), *made)


def _trial(suffix: str, blocks: list[tuple[Block, tuple[Value, ...]]]) -> File:
    """The blocks that this kind of file can hold."""
    kind = kinds()[suffix]
    held = [(text, values) for block, values in blocks if (text := block_of(kind, block))]
    values = [value for _, each in held for value in each]
    values += [Value.of_line(line) for line in kind.get("more", "").split("; ") if line]
    return File(f"trial.{suffix}", file_of(kind, "".join(text for text, _ in held)), tuple(values))


def _content(source: str, how: str) -> bytes:
    if how in ("xlsx", "pdf"):
        return {"xlsx": xlsx, "pdf": pdf}[how](source)
    if word := _OPEN_DOCUMENT.get(how):
        swap = re.compile(r"(?<=opendocument\.)text|(?<=office:)text(?=>)")
        parts = {name: swap.sub(word, part) for name, part in kinds()["odt"]["parts"].items()}
        return file_of({"parts": parts}, source)
    if how == "zip":
        inner = [part.split("\n", 1) for part in source.split(">>> ")[1:]]
        return zipped({n: zipped({"a.txt": t}) if n.endswith(".zip") else t for n, t in inner})
    return source.encode(how or "utf-8")
