"""Rows and trajectories as Parquet files and Hugging Face datasets, and read back without loss.

Both need the extra `data`. A file or folder is there whole or not at all.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from memory.errors import SettingsError
from memory.runs import writable
from memory.versions import Versioned, upgraded
from training.export_columns import arrow_schema, packed, unpacked
from training.extra_packages import needed

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
