"""What the libraries installed here say of a name, as the tests of question sets look it up."""

import builtins
import importlib
import inspect
from typing import Any


def documented(symbol: str) -> str:
    """The signature and the documentation of what a dotted name stands for.

    `pydoc_data.topics:for` is a chapter of the language reference. A field of a class that is no
    attribute of it is looked up in the source of the class. Raises AttributeError where there is
    no such name.
    """
    module, _, topic = symbol.partition(":")
    if topic:
        return str(importlib.import_module(module).topics[topic])
    found, parts = _module_of(symbol)
    for part in parts:
        if inspect.isclass(found) and part in getattr(found, "__annotations__", {}):
            return inspect.getsource(found)
        found = getattr(found, part)
    try:
        signature = str(inspect.signature(found))
    except (TypeError, ValueError):
        signature = ""
    return f"{signature}\n{inspect.getdoc(found)}"


def _module_of(symbol: str) -> tuple[Any, list[str]]:
    """The longest module that the name begins with, and the names left."""
    parts = symbol.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            return importlib.import_module(".".join(parts[:cut])), parts[cut:]
        except ImportError:
            continue
    return builtins, parts
