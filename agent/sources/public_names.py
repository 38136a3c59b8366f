"""The names by which a library's users know its objects.

`httpx.Client` is written in `httpx/_client.py` and taken into `httpx/__init__.py`; what a
reader asks about, and what its documentation should be found by, is `httpx.Client`. An
object's public name is the shortest one under which a public package offers it.
"""

from collections.abc import Iterator, Mapping

from agent.sources.python_source import Documented, ModuleSource

Modules = Mapping[str, ModuleSource]
_DEEPEST = 8
"""Hops followed from a package to where a name is defined; also ends circular imports."""


_INTERNAL = frozenset({"genericpath"})
"""Modules without an underscore that only serve others (here os.path)."""


def is_private(module: str) -> bool:
    return module in _INTERNAL or any(part.startswith("_") for part in module.split("."))


def public_names(modules: Modules) -> dict[tuple[str, str], str]:
    """(defining module, name there) -> the shortest public name."""
    names: dict[tuple[str, str], str] = {}
    for module in modules.values():
        if is_private(module.name) or not (module.package or module.exported):
            continue
        for local, home in _offered(modules, module):
            alias = f"{module.name}.{local}"
            current = names.get(home)
            if current is None or _order(alias) < _order(current):
                names[home] = alias
    return names


def _order(name: str) -> tuple[int, int]:
    return name.count("."), len(name)


def _offered(modules: Modules, module: ModuleSource) -> Iterator[tuple[str, tuple[str, str]]]:
    """(local name, where it is defined) of what a package takes from its own modules."""
    for local, (origin, name) in module.imported.items():
        if is_offered(module, local) and (home := _home(modules, origin, name)):
            yield local, home
    for origin in module.stars:
        for local in _star_names(modules, origin):
            if is_offered(module, local) and (home := _home(modules, origin, local)):
                yield local, home


def is_offered(module: ModuleSource, name: str) -> bool:
    return name in module.exported if module.exported is not None else not name.startswith("_")


def _star_names(modules: Modules, origin: str, depth: int = 0) -> set[str]:
    module = modules.get(origin)
    if module is None or depth > _DEEPEST:
        return set()
    if module.exported is not None:
        return set(module.exported)
    names = module.defined | module.imported.keys()
    for star in module.stars:
        names |= _star_names(modules, star, depth + 1)
    return {name for name in names if not name.startswith("_")}


def _home(modules: Modules, origin: str, name: str, depth: int = 0) -> tuple[str, str] | None:
    module = modules.get(origin)
    if module is None or depth > _DEEPEST:
        return None
    if name in module.defined:
        return origin, name
    if name in module.imported:
        return _home(modules, *module.imported[name], depth=depth + 1)
    found = (_home(modules, star, name, depth + 1) for star in module.stars)
    return next((home for home in found if home), None)


def symbol(
    module: ModuleSource, item: Documented, names: Mapping[tuple[str, str], str]
) -> str | None:
    """The public dotted name of a documented object, or None for an internal one."""
    if item.absolute:
        return item.name
    if not item.name:
        return None if is_private(module.name) else module.name
    top, dot, rest = item.name.partition(".")
    alias = names.get((module.name, top))
    own = f"{module.name}.{top}"
    if not is_private(module.name) and is_offered(module, top):
        alias = own if alias is None else min(own, alias, key=_order)
    return None if alias is None else alias + dot + rest
