"""Tables: each cell is told with the name of its column, so that a row can be quoted by itself."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from rubricem.agent.sources.readers.document import LINES_EACH, LONGEST_NAME, Block, BlockKind

MOST_NAMED = 200
"""most columns of a table whose cells are given with their names"""


def table_blocks(rows: Iterable[Sequence[str]]) -> list[Block]:
    """The rows of a table, some in each block, whose place says which.

    The first non-empty row names the columns.
    """
    told = ((n, [" ".join(cell.split()) for cell in row]) for n, row in enumerate(rows, start=1))
    filled = [(number, row) for number, row in told if any(row)]
    if not filled:
        return []
    # Beside long names, or many, what a table says would be lost among them.
    heads = [head[:LONGEST_NAME] for head in filled[0][1][:MOST_NAMED]]
    cells = ((number, zip_longest(heads, row, fillvalue="")) for number, row in filled[1:])
    lines = [(n, " | ".join(f"{h}: {c}" if h else c for h, c in row if c)) for n, row in cells]
    lines = lines or [(filled[0][0], " | ".join(filter(None, filled[0][1])))]
    parts = [lines[start : start + LINES_EACH] for start in range(0, len(lines), LINES_EACH)]
    return [
        Block(
            BlockKind.TABLE,
            "\n".join(line for _, line in part),
            f"rows {part[0][0]}-{part[-1][0]}",
        )
        for part in parts
    ]
