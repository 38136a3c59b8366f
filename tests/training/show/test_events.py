"""The names of the numbers, each explained in the documents."""

import re

from rubricem.memory.schema import Author, Stage
from rubricem.training.rounds.numbers import numbers_of, reward_intervals, rows_numbers
from rubricem.training.rounds.update import RoundRows
from rubricem.training.rows.credit import SS_GRPO
from rubricem.training.rows.row import OBJECTIVES
from tests.conftest import ROOT
from tests.support.rows import row
from tests.training.rounds.test_numbers import group

PLACES = {
    "{stage}": "|".join(Stage),
    "{author}": "|".join(Author),
    "{objective}": "|".join(OBJECTIVES),
    "{n}": r"\d+",
    "{reason}": ".+",
}
EXPLAINED = (ROOT / "docs" / "training_numbers.md").read_text(encoding="utf-8")


def listed() -> list[str]:
    """The names in the tables of the page."""
    cells = (line.split("|")[1] for line in EXPLAINED.splitlines() if line.startswith("| `"))
    return [name for cell in cells for name in re.findall(r"`(.+?)`", cell)]


def explained() -> re.Pattern[str]:
    """What matches every name in the tables of the page, and no other."""
    names = (re.sub(r"\{\w+\}", lambda at: f"(?:{PLACES[at[0]]})", name) for name in listed())
    return re.compile("|".join(names))


def unexplained(names: object) -> list[str]:
    return [name for name in names if not explained().fullmatch(name)]  # type: ignore[attr-defined]


def test_every_number_of_a_round_is_explained():
    one = group([0.2, 0.5, 0.5, None], [0.6, 0.5, 0.5, 1.0])
    groups = [one]
    found = numbers_of(groups, SS_GRPO)
    rows = RoundRows((row(0, "policy"),), {"longer than 10 tokens": 2}, (1,))
    told = found | rows_numbers(rows, RoundRows()) | reward_intervals(groups)
    assert len(told) > 40 and unexplained(told) == []
