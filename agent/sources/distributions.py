"""The installed distributions, and the documentation that their files carry.

A distribution is read from its package inwards: first the public packages and what they take
from other modules, as that is what users meet, then the remaining public modules, the
shallow ones first, until its share of source is spent. Tests, vendored copies and private
modules that nothing public takes from are left out. Only files are read; nothing is imported.
"""

import hashlib
import platform
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath

from agent.sources.passages import split_passages
from agent.sources.public_names import is_private, public_names, symbol
from agent.sources.python_source import Documented, ModuleSource, read_source
from agent.sources.readers import markdown_sections
from memory.interfaces import Passage

MOST_SOURCE = 1_500_000
"""Bytes of source read of one distribution."""
MOST_PASSAGES = 2500
"""Passages kept of one distribution."""
_MOST_README = 40
_LEFT_OUT = frozenset(
    "test tests testing _testing conftest _vendor vendor vendored externals extern examples "
    "example benchmarks benchmark docs doc migrations __main__ setup site-packages".split()
)


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """A source file: its module's dotted name, its path, and its path as shown."""

    module: str
    path: Path
    location: str
    package: bool


def installed() -> list[Distribution]:
    """The installed distributions by name; of two with one name the first on the path."""
    found: dict[str, Distribution] = {}
    for distribution in distributions():
        found.setdefault(distribution.name.lower(), distribution)
    return [found[name] for name in sorted(found)]


def fingerprint(distributions: list[Distribution]) -> str:
    """Changes with the Python version and with any distribution's name or version."""
    lines = [platform.python_version(), *(f"{d.name}=={d.version}" for d in distributions)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def module_files(distribution: Distribution) -> dict[str, ModuleFile]:
    """The modules of a distribution by name, without tests and vendored copies.

    A `.pyi` file counts only where the module has no `.py`: it documents a compiled module.
    """
    record = distribution.read_text("RECORD") or ""
    files: dict[str, ModuleFile] = {}
    for line in sorted(record.splitlines()):
        location = line.partition(",")[0]
        path = PurePosixPath(location)
        if path.suffix not in (".py", ".pyi") or ".." in path.parts:
            continue
        parts = [*path.parts[:-1], path.stem]
        package = parts[-1] == "__init__"
        if package:
            parts.pop()
        if not parts or not all(_is_documented_part(part) for part in parts):
            continue
        name = ".".join(parts)
        full = Path(str(distribution.locate_file(location)))
        files.setdefault(name, ModuleFile(name, full, location, package))
    return files


def _is_documented_part(part: str) -> bool:
    return part.isidentifier() and part not in _LEFT_OUT and not part.startswith("test_")


def read_modules(files: dict[str, ModuleFile], budget: int = MOST_SOURCE) -> list[ModuleSource]:
    """The modules worth reading, most public first, until `budget` bytes are read."""
    modules: dict[str, ModuleSource] = {}
    waiting = deque(sorted((name for name in files if "." not in name), key=is_private))
    rest = sorted((n for n in files if not is_private(n)), key=lambda n: (n.count("."), n))
    for start in (waiting, deque(rest)):
        while start and budget > 0:
            name = start.popleft()
            if name in modules or name not in files:
                continue
            module, size = _read_file(files[name])
            budget -= size
            modules[name] = module
            if module.package:
                start.extend(_taken_from(module))
    return list(modules.values())


def _read_file(file: ModuleFile) -> tuple[ModuleSource, int]:
    """The module, or an empty one where the file is gone or is no Python of this version."""
    try:
        source = file.path.read_text("utf-8")
        return read_source(file.module, source, file.package), len(source)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ModuleSource(file.module, file.package), 0


def _taken_from(module: ModuleSource) -> Iterator[str]:
    for origin, name in module.imported.values():
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
    title = public + item.signature
    return [Passage(title, location, public, text) for text in split_passages(item.text)]


def distribution_passages(distribution: Distribution) -> list[Passage]:
    """The README and the documented public objects of a distribution."""
    files = module_files(distribution)
    return [
        *readme_passages(distribution),
        *documented_passages(read_modules(files), files),
    ]


def readme_passages(distribution: Distribution) -> list[Passage]:
    """The description in the metadata, without its history of changes."""
    text = str(distribution.metadata.get_payload() or "")
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
