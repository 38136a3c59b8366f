"""The last line of every benchmark: one JSON object that a script can read.

    {"name": "corpus", "values": {...}, "targets": {...}, "holds": true, "how": "..."}

`values` is what was measured, with the unit in each key; `targets` says in words what each
value should reach; `holds` is true only when all targets were met; `how` says on what data,
with which seed and on how many cores it was measured.
"""

import json
from collections.abc import Mapping

Value = float | int | str | bool | None


def emit(
    name: str,
    values: Mapping[str, Value],
    targets: Mapping[str, str],
    holds: bool,
    how: str,
) -> None:
    """Print the report as one line, the last one of the program."""
    report = {
        "name": name,
        "values": dict(values),
        "targets": dict(targets),
        "holds": holds,
        "how": how,
    }
    print(json.dumps(report), flush=True)
