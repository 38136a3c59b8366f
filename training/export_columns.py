"""Stored values as columns: which Arrow type a field has, and its value in it and back.

Nested values are structs, tuples are lists, texts, numbers and truth values are themselves, and
None is null. A mapping is a JSON text, since Hugging Face datasets know no maps.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin

from memory.schema import Value
from training.extra_packages import needed

_PLAIN = (int, float, str, bool)


def arrow_schema(kind: type[Value]) -> Any:
    """A `pyarrow.Schema` with a column for each field, in order."""
    pyarrow = needed("pyarrow")
    fields = [(name, _arrow(field.annotation)) for name, field in kind.model_fields.items()]
    return pyarrow.schema([pyarrow.field(name, arrow) for name, arrow in fields])


def packed(value: Value) -> dict[str, Any]:
    """The fields of a value as Arrow takes them."""
    fields = type(value).model_fields.items()
    return {name: _packed(getattr(value, name), field.annotation) for name, field in fields}


def unpacked(fields: Mapping[str, Any], kind: type[Value]) -> dict[str, Any]:
    """What `packed` made of a value of that kind, as its fields again.

    A file of another schema may lack columns, and have ones of plain values that are not known.
    """
    known = {name: field.annotation for name, field in kind.model_fields.items()}
    return {name: _unpacked(value, known.get(name)) for name, value in fields.items()}


def _arrow(annotation: Any) -> Any:
    pyarrow, kind = needed("pyarrow"), _without_none(annotation)
    if (items := _items(kind)) is not None:
        return pyarrow.list_(_arrow(items))
    if _is(kind, Value):
        return pyarrow.struct(list(arrow_schema(kind)))
    if kind is datetime:
        return pyarrow.timestamp("us", tz="UTC")
    plain = {bool: pyarrow.bool_(), int: pyarrow.int64(), float: pyarrow.float64()}
    return plain.get(kind, pyarrow.string())


def _packed(value: Any, annotation: Any) -> Any:
    if value is None:
        return None
    kind = _without_none(annotation)
    if isinstance(value, Value):
        return packed(value)
    if (items := _items(kind)) is not None:
        return list(value) if items in _PLAIN else [_packed(item, items) for item in value]
    if isinstance(value, Mapping):
        return json.dumps(value)
    return value.value if isinstance(value, Enum) else value


def _unpacked(value: Any, annotation: Any) -> Any:
    if value is None:
        return None
    kind = _without_none(annotation)
    if _is(kind, Value):
        return unpacked(value, kind)
    if (items := _items(kind)) is not None:
        return value if items in _PLAIN else [_unpacked(item, items) for item in value]
    return json.loads(value) if _is(get_origin(kind), Mapping) else value


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, UnionType):
        (annotation,) = (kind for kind in get_args(annotation) if kind is not type(None))
    return annotation


def _items(kind: Any) -> Any:
    """What a tuple holds, all of it being of one kind; None for what is no tuple."""
    return get_args(kind)[0] if get_origin(kind) is tuple else None


def _is(kind: Any, of: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, of)
