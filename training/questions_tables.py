"""Questions from tables: CSV, Parquet and Hugging Face datasets.

Parquet needs `pyarrow`, datasets need `datasets`; both come with the extra `data`. Only columns
of text, numbers, truth values and lists of text are read: a picture says nothing here.
"""

import csv
import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memory.errors import SettingsError
from training.extra_packages import needed
from training.questions_rows import HUB, Row, content, decoded, lacking

TRAIN = "train"


def csv_rows(path: Path, column: str) -> Iterator[Row]:
    """Rows of a CSV file whose first line names the columns; a cell may hold line breaks."""
    text = _text(path)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    names: list[str] | None = None
    number, line = 0, 1
    try:
        for cells in reader:
            place, line = f"line {line} of {path}", reader.line_num + 1
            if not any(map(str.strip, cells)):
                continue
            if names is None:
                names = _names(cells, place, column)
                continue
            if len(cells) != len(names):
                raise SettingsError(
                    f"{place} has {len(cells)} cells instead of {len(names)}.",
                    "Complete the line, or put cells with commas into quotes.",
                )
            yield Row(number, place, dict(zip(names, cells, strict=True)))
            number += 1
    except csv.Error as cause:
        raise SettingsError(
            f"line {line} of {path} is malformed: {cause}.", "Close its quotes; write one as two."
        ) from cause


def parquet_rows(path: Path, column: str) -> Iterator[Row]:
    arrow, parquet = needed("pyarrow"), needed("pyarrow.parquet")
    held = io.BytesIO(content(path))
    try:
        file = parquet.ParquetFile(held)
        names = _readable(file.schema_arrow)
        if column not in names:
            raise lacking(str(path), column, names)
        listed = file.read(columns=names).to_pylist()
    except (arrow.ArrowException, OSError) as cause:
        raise SettingsError(
            f"{path} is no whole Parquet file: {_line(cause)}.", "Write or fetch it again."
        ) from cause
    for number, fields in enumerate(listed):
        yield Row(number, f"row {number + 1} of {path}", fields)


def dataset_rows(named: str, column: str) -> Iterator[Row]:
    """Rows of `hf:org/name[:split]`, or of a folder that `save_to_disk` wrote."""
    datasets = needed("datasets")
    name, _, split = named.removeprefix(HUB).partition(":")
    if not name:
        raise SettingsError(
            f"{named!r} names no dataset.", "Write it as hf:org/name or hf:org/name:split."
        )
    # What the hub's client writes of each of its tries is told in a sentence at the end.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        if Path(name).is_dir():
            found = _split_of(datasets.load_from_disk(name), name, split)
        else:
            found = datasets.load_dataset(name, split=split or TRAIN)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as cause:
        if isinstance(cause, SettingsError):
            raise
        raise SettingsError(
            f"The dataset {name!r} cannot be had: {_line(cause)}.",
            "Name one of the hub as hf:org/name:split, or a folder saved by datasets.",
        ) from cause
    names = _readable(found.features.arrow_schema)
    if column not in names:
        raise lacking(name, column, names)
    for number, fields in enumerate(found.select_columns(names)):
        yield Row(number, f"row {number + 1} of {named}", fields)


def _split_of(found: Any, name: str, split: str) -> Any:
    """The split that is named, or the only one, or `train`."""
    if not isinstance(found, dict):
        return found
    chosen = split or (TRAIN if TRAIN in found or len(found) > 1 else next(iter(found), TRAIN))
    if chosen not in found:
        raise SettingsError(
            f"The dataset {name!r} has no split {chosen!r}; it has {', '.join(found)}.",
            f"Name one of them: {HUB}{name}:SPLIT.",
        )
    return found[chosen]


def _text(path: Path) -> str:
    written = content(path)
    for number, line in enumerate(written.split(b"\n"), start=1):
        decoded(line, f"line {number} of {path}")
    return decoded(written, str(path))


def _names(cells: list[str], place: str, column: str) -> list[str]:
    names = [cell.strip() for cell in cells]
    if column not in names:
        raise lacking(place, column, names)
    return names


def _readable(schema: Any) -> list[str]:
    types = needed("pyarrow").types

    def plain(kind: Any) -> bool:
        return bool(
            types.is_string(kind)
            or types.is_large_string(kind)
            or types.is_integer(kind)
            or types.is_floating(kind)
            or types.is_boolean(kind)
            or types.is_null(kind)
            or ((types.is_list(kind) or types.is_large_list(kind)) and plain(kind.value_type))
        )

    return [field.name for field in schema if plain(field.type)]


def _line(cause: BaseException) -> str:
    return " ".join(str(cause).split())[:200].rstrip(".")
