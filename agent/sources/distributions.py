"""The installed distributions, and the documentation that their files carry.

A distribution is read from its package inwards: first the public packages and what they take
from other modules, as that is what users meet, then the remaining public modules, the
shallow ones first, until its share of source is spent. Tests, vendored copies and private
modules that nothing public takes from are left out. Only files are read; nothing is imported.
"""

import hashlib
import heapq
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

from agent.sources.passages import split_passages
from agent.sources.public_names import is_offered, is_private, public_names, symbol
from agent.sources.python_source import Documented, ModuleSource, read_source
from agent.sources.readers import markdown_sections
from agent.sources.skeleton import skeleton
from memory.interfaces import Passage

MOST_SOURCE = 4_000_000
"""Bytes of source read of one distribution."""
MOST_PASSAGES = 3600
"""Passages kept of one distribution."""
_MOST_README = 40
_LEFT_OUT = frozenset(
    [
        "test",
        "tests",
        "testing",
        "_testing",
        "conftest",
        "_vendor",
        "vendor",
        "vendored",
        "externals",
        "extern",
        "examples",
        "example",
        "benchmarks",
        "benchmark",
        "docs",
        "doc",
        "migrations",
        "__main__",
        "setup",
        "site-packages",
    ]
)


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """A source file: its module's dotted name, its path, and its path as shown."""

    module: str
    path: Path
    location: str
    package: bool


def installed() -> list[Distribution]:
    """The installed distributions by name; of two with one name the first on the path.

    This program itself is left out: its README quotes questions, and would be found for them.
    """
    found: dict[str, Distribution] = {}
    for distribution in distributions():
        found.setdefault(distribution.name.lower(), distribution)
    found.pop("rubricem", None)
    return [found[name] for name in sorted(found)]


def fingerprint(distributions: list[Distribution]) -> str:
    """Changes with the Python version and with any distribution's name or version."""
    lines = [platform.python_version(), *(f"{d.name}=={d.version}" for d in distributions)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def module_files(distribution: Distribution) -> dict[str, ModuleFile]:
    """The modules of a distribution by name, without tests and vendored copies.

    A `.pyi` file counts only where the module has no `.py`: it documents a compiled module.
    """
    root = Path(str(distribution.locate_file("")))
    files: dict[str, ModuleFile] = {}
    for line in sorted((distribution.read_text("RECORD") or "").splitlines()):
        location = line.partition(",")[0]
        stem, _, suffix = location.rpartition(".")
        if suffix not in ("py", "pyi"):
            continue
        parts = stem.split("/")
        package = parts[-1] == "__init__"
        if package:
            parts.pop()
        if parts and all(_is_documented_part(part) for part in parts):
            name = ".".join(parts)
            files.setdefault(name, ModuleFile(name, root / location, location, package))
    return files


def _is_documented_part(part: str) -> bool:
    return part.isidentifier() and part not in _LEFT_OUT and not part.startswith("test_")


def read_modules(files: dict[str, ModuleFile], budget: int = MOST_SOURCE) -> list[ModuleSource]:
    """The modules worth reading, most public first, until `budget` bytes are read."""
    modules: dict[str, ModuleSource] = {}
    waiting = [(float(_depth(name)), name) for name in files if not is_private(name)]
    heapq.heapify(waiting)
    while waiting and budget > 0:
        distance, name = heapq.heappop(waiting)
        if name in modules:
            continue
        module, size = _read_file(files[name])
        budget -= size
        modules[name] = module
        if module.package or module.stars:
            for taken in {*_taken_from(module)} & files.keys() - modules.keys():
                heapq.heappush(waiting, (min(_depth(taken), distance + 0.5), taken))
    return list(modules.values())


def _depth(module: str) -> int:
    """How far a module is from its library's users; a private package is no step away."""
    return sum(not part.startswith("_") for part in module.split("."))


def _read_file(file: ModuleFile) -> tuple[ModuleSource, int]:
    """The module, or an empty one where the file is gone or is no Python of this version."""
    try:
        source = file.path.read_text("utf-8")
        try:
            module = read_source(file.module, skeleton(source), file.package)
        except SyntaxError:
            module = read_source(file.module, source, file.package)
        return module, len(source)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ModuleSource(file.module, file.package), 0


def _taken_from(module: ModuleSource) -> Iterator[str]:
    """Modules behind the names that a package offers, and those that hold documentation."""
    for local, (origin, name) in module.imported.items():
        if is_offered(module, local) or local.endswith("docs"):
            yield origin
            yield f"{origin}.{name}"
    yield from module.stars


def documented_passages(
    modules: list[ModuleSource], files: dict[str, ModuleFile], most: int = MOST_PASSAGES
) -> list[Passage]:
    """The passages of the modules' public objects, each object once."""
    names = public_names({module.name: module for module in modules})
    passages: list[Passage] = []
    seen: set[str] = set()
    for module in modules:
        for item in module.documented:
            public = symbol(module, item, names)
            if public is not None and public not in seen:
                seen.add(public)
                passages += object_passages(public, item, files[module.name].location)
    return passages[:most]


def object_passages(public: str, item: Documented, location: str) -> list[Passage]:
    """The object's passages; the first begins with its signature, which holds the defaults."""
    text = f"{public}{item.signature}\n\n{item.text}" if item.signature else item.text
    return [Passage(public, location, public, piece) for piece in split_passages(text)]


def distribution_passages(distribution: Distribution) -> list[Passage]:
    """The README and the documented public objects of a distribution."""
    files = module_files(distribution)
    return [
        *readme_passages(distribution),
        *documented_passages(read_modules(files), files),
    ]


def readme_passages(distribution: Distribution) -> list[Passage]:
    """The description in the metadata, without its history of changes."""
    text = (distribution.read_text("METADATA") or "").partition("\n\n")[2]
    title = f"{distribution.name} {distribution.version} README"
    location = f"{distribution.name}-{distribution.version}.dist-info/METADATA"
    passages: list[Passage] = []
    for section in markdown_sections(text):
        heading = section.heading.lower()
        if "change" in heading or "history" in heading or "release" in heading:
            break
        for piece in split_passages(section.text):
            passages.append(Passage(title, location, section.heading, piece))
    return passages[:_MOST_README]
