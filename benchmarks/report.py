"""The last line of every benchmark: one JSON object that a script can read.

    {"name": "corpus", "values": {...}, "targets": {...}, "holds": true, "how": "..."}

`values` is what was measured, with the unit in each key; `targets` says in words what each
value should reach; `holds` is true only when all targets were met; `how` says on what data,
with which seed and on how many cores it was measured.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from rubricem.judge.evaluation.report import share

RESULTS = Path(__file__).parent / "results"
"""where what was measured at length is kept, and committed"""
Value = float | int | str | bool | None


def sized_parser(doc: str | None, quick: str, full: str) -> argparse.ArgumentParser:
    """A parser of `--quick` or `--full`, which mean what is said of them."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help=quick)
    size.add_argument("--full", action="store_true", help=full)
    return parser


Main = Callable[[argparse.Namespace, Path], Coroutine[Any, Any, None]]


def kept_in(parser: argparse.ArgumentParser, main: Main) -> None:
    """Run a benchmark by its arguments, in the folder that they name or in one for this run."""
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(arguments, arguments.out or Path(temporary)))


def number(values: Mapping[str, Value], name: str) -> float:
    """A value as a number; NaN, which meets no target, where it is none."""
    value = values.get(name)
    return float(value) if isinstance(value, int | float) else float("nan")


def with_interval(name: str, hits: float, count: int) -> dict[str, Value]:
    """A share, None of nothing, with the ends of its 95% interval (Wilson's)."""
    found = share(hits, count)
    values = {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
    return {key: None if value is None else round(value, 3) for key, value in values.items()}


def emit(
    name: str,
    values: Mapping[str, Value],
    how: str,
    out: Path | None = None,
    raw: Sequence[object] = (),
    *,
    least: Mapping[str, float] | None = None,
    most: Mapping[str, float] | None = None,
) -> bool:
    """Print the report as one line, the last one of the program; whether all targets are met.

    `least` and `most` are what values should reach; what is no number reaches nothing. `out`: a
    file that is written anew with the report and `raw`, what was measured one by one.
    """
    least, most = least or {}, most or {}
    targets = {name: f">= {value}" for name, value in least.items()}
    targets |= {name: f"<= {value}" for name, value in most.items()}
    holds = all(number(values, name) >= value for name, value in least.items())
    holds = holds and all(number(values, name) <= value for name, value in most.items())
    report = {"name": name, "values": dict(values), "targets": targets, "holds": holds, "how": how}
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({**report, "raw": list(raw)}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report), flush=True)
    return holds
