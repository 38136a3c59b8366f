"""Stored values of earlier schemas, read as today's.

What is stored says its `schema_version`; what says none is of version 1. A change that an older
reader or writer would misunderstand raises the version by one and adds the function that brings
the older fields up to it; a new field with a default needs neither.
"""

import json
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from memory.errors import StoreError
from memory.values import Value

Fields = dict[str, Any]
Upgrade = Callable[[Fields], Fields]


class Versioned(Value):
    """A stored value that says its schema."""

    upgrades: ClassVar[tuple[Upgrade, ...]] = ()
    """the first takes the fields of version 1 to those of version 2, and so on"""
    schema_version: int = 1


class _Stamp(Value):
    """The version of what is about to be read, without the rest of it."""

    schema_version: int = 1


V = TypeVar("V", bound=Value)


def read(text: str | bytes, kind: type[V]) -> V:
    """A stored value as today's schema has it.

    Raises pydantic's ValidationError for what is no such value, StoreError for one of a newer
    schema than is known.
    """
    if not issubclass(kind, Versioned) or _is_current(text, kind):
        return kind.model_validate_json(text)
    return kind.model_validate_json(json.dumps(upgraded(json.loads(text), kind)))


def upgraded(fields: Fields, kind: type[Versioned]) -> Fields:
    """Stored fields as today's schema has them. Raises StoreError for those of a newer one."""
    version, newest = fields.get("schema_version", 1), 1 + len(kind.upgrades)
    if version > newest:
        raise StoreError(
            f"This {kind.__name__} is of schema {version}, and schemas up to {newest} are known.",
            "A newer rubricem wrote it: read it with that one.",
        )
    for upgrade in kind.upgrades[max(version, 1) - 1 :]:
        fields = upgrade(fields)
    return {**fields, "schema_version": newest}


def _is_current(text: str | bytes, kind: type[Versioned]) -> bool:
    return _Stamp.model_validate_json(text).schema_version == 1 + len(kind.upgrades)
