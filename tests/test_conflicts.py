"""Figures on which sources differ are said before the answer; what only looks alike is not."""

import json

import pytest

from agent.reports.citations import cited_answer
from agent.reports.conflicts import conflicts
from agent.reports.report import as_json, markdown
from agent.reports.report_page import page
from memory.schema import Trajectory
from tests.trajectories import source, trajectory

SAYS = "The revenue of Acme in 2023 was 12.5 million dollars."


def run(says: str, but: str, where: str = "https://b.test/") -> Trajectory:
    """An answer that cites the first of two sources."""
    return trajectory(
        f'<cite id="S1">{says}</cite>',
        sources=(
            source(1, f"Anvils are heavy. {says}", "A", "https://a.test/"),
            source(2, f"All about anvils. {but} More follows.", "B", where),
        ),
    )


def found(says: str, but: str, where: str = "https://b.test/") -> list[tuple[str, str]]:
    made = run(says, but, where)
    return [(c.says, c.but) for c in conflicts(made, cited_answer(made))]


@pytest.mark.parametrize(
    ("says", "but"),
    [
        (SAYS, "In 2023 the revenue of Acme came to 11.9 million dollars."),
        ("The old tower is 1,200 feet high.", "The old tower is 1250 feet high."),
        (
            "Unemployment in Ohio fell sharply to 4.1% in May.",
            "Unemployment in Ohio fell sharply to 4.9 % in May.",
        ),
        ("Die alte Brücke misst 12,5 Meter Breite.", "Die alte Brücke misst 14,5 Meter Breite."),
    ],
)
def test_different_figures_for_the_same_thing_are_a_conflict(says: str, but: str):
    assert found(says, but) == [(says, but)]


@pytest.mark.parametrize(
    "but",
    [
        "In 2022 the revenue of Acme came to 11.9 million dollars.",
        "The revenue of Acme came to 11.9 million dollars.",
        "In 2023 the revenue of Acme came to 12.5 million dollars.",
        "In 2023 the revenue of Acme came to 12 million dollars.",
        "In 2023 the revenue of Acme came to 12,500 thousand dollars.",
        "In 2023 the profit of Globex came to 11.9 million euros.",
        "In 2023 Acme had 340 people.",
        "In 2023 the revenue of Acme went from 9 million to 11.9 million dollars.",
        "In 2023   revenue   Acme   11.9 million   dollars",
    ],
    ids=[
        "another year",
        "no year",
        "the same",
        "rounded",
        "another unit",
        "another thing",
        "something else",
        "two numbers of one unit",
        "a table",
    ],
)
def test_what_may_be_about_something_else_is_no_conflict(but: str):
    assert found(SAYS, but) == []


def test_a_source_does_not_differ_from_itself():
    assert found(SAYS, SAYS.replace("12.5", "11.9"), "https://a.test/") == []


def test_every_form_of_the_report_says_it_and_lets_nothing_in():
    but = "In 2023 the revenue of Acme was <b>11.9 million</b> dollars."
    made = run(SAYS, but)
    said = f'Figures differ: [1] says "{SAYS}", https://b.test/ says "{but}"'
    assert as_json(made)["conflicts"] == [said]
    assert json.dumps(as_json(made))
    assert "Figures differ" in markdown(made) and "<b>" not in markdown(made)
    assert "Figures differ" in page(made) and "<b>" not in page(made)


def test_copies_are_told_where_the_source_is_listed():
    first = source(1, SAYS, "A", "https://a.test/").model_copy(
        update={"copies": ("https://b.test/x", "https://c.test/")}
    )
    made = trajectory(f'<cite id="S1">{SAYS}</cite>', sources=(first,))
    assert "also at https://b.test/x, https://c.test/" in markdown(made).replace("\\", "")
    assert "also at https://b.test/x, https://c.test/" in page(made)
    assert as_json(made)["citations"][0]["source"]["copies"] == list(first.copies)
