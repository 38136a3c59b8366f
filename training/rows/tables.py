"""Rows and trajectories as Parquet files and Hugging Face datasets, and read back without loss.

Both need the extra `data`. A file or folder is there whole or not at all. Nested values are
structs, tuples are lists, texts, numbers and truth values are themselves, and None is null. A
mapping is a JSON text, since Hugging Face datasets know no maps.
"""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from itertools import islice
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from rubricem.memory.errors import SettingsError
from rubricem.memory.runs import writable
from rubricem.memory.schema import Value, Versioned, upgraded
from rubricem.training.extras import needed

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


AT_ONCE = 64
"""values in one part of a table"""
V = TypeVar("V", bound=Versioned)


def write_parquet(path: Path, values: Iterable[V], kind: type[V]) -> int:
    """Write values as one file, which takes an older one's place; returns how many they are."""
    parquet, count = needed("pyarrow.parquet"), 0
    schema = arrow_schema(kind)
    with _replacing(path) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
        for batch in _batches(values, kind):
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def read_parquet(path: Path, kind: type[V]) -> list[V]:
    """The values of such a file, of this schema or an older one."""
    return _values(needed("pyarrow.parquet").read_table(path), kind)


def write_dataset(folder: Path, values: Iterable[V], kind: type[V]) -> int:
    """Write values as a folder for `datasets.load_from_disk`; returns how many they are.

    Raises SettingsError where the folder exists: it may hold what nobody can make again.
    """
    if folder.exists():
        raise SettingsError(f"{folder} exists already.", "Name another folder by --out.")
    ipc, datasets, count = needed("pyarrow.ipc"), needed("datasets"), 0
    schema = arrow_schema(kind)
    with _replacing(folder) as temporary:
        # As a file, which a dataset maps into memory: values in memory would all be there at once.
        mapped = f"{temporary}.arrow"
        with ipc.new_stream(mapped, schema) as writer:
            for batch in _batches(values, kind):
                writer.write_batch(batch)
                count += batch.num_rows
        datasets.disable_progress_bars()
        datasets.Dataset.from_file(mapped).save_to_disk(temporary)
    return count


def read_dataset(folder: Path, kind: type[V]) -> list[V]:
    """The values of such a folder, of this schema or an older one."""
    found = needed("datasets").load_from_disk(str(folder))
    return _values(found.data.table, kind)


def _batches(values: Iterable[V], kind: type[V]) -> Iterator[Any]:
    pyarrow, schema, left = needed("pyarrow"), arrow_schema(kind), iter(values)
    while part := [packed(value) for value in islice(left, AT_ONCE)]:
        yield pyarrow.RecordBatch.from_pylist(part, schema=schema)


def _values(table: Any, kind: type[V]) -> list[V]:
    listed = (unpacked(fields, kind) for fields in table.to_pylist())
    return [kind.model_validate(upgraded(fields, kind)) for fields in listed]


@contextmanager
def _replacing(path: Path) -> Iterator[str]:
    """A place beside the path for a file or folder that then takes its name."""
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as place:
            temporary = Path(place) / path.name
            yield str(temporary)
            os.replace(temporary, path)
