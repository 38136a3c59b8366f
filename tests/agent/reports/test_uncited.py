"""What an answer says without a source is counted, shown and marked."""

import pytest

from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.reports.report import end_notes, notes
from rubricem.agent.reports.uncited import own_references, uncited_sentences, unknown_addresses
from tests.support.values import trajectory


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The pump failed in 2023.", ["The pump failed in 2023."]),
        ("It ran well. The pump of Ann Lee ran for 40 days.",
         ["The pump of Ann Lee ran for 40 days."]),
        ("In 2023 # says it. It ran on.", []),
        ("# Trial 3 of the pump\n\n| a | 3 of 4 rows here |\n> In 2023 it was so, they say.", []),
        ("```\nx = 3 + 4 # of the code\n```\nDid it fail in 2023?", []),
        ("- It failed 3 times in a year.", ["It failed 3 times in a year."]),
        ("**The second trial of 2023.** It ran on.", []),
    ],
)  # fmt: skip
def test_sentences_with_a_number_or_a_name_want_a_source(text: str, found: list[str]):
    assert uncited_sentences(text, "# says") == found


def test_an_address_is_known_by_a_source_or_by_its_text():
    text = "See https://a.org/x, https://b.org/y) and doi:10.1234/abc.5, 10.1000/xyz."
    assert unknown_addresses(text, {"https://a.org/x"}, "It is 10.1234/ABC.5 there.") == [
        "https://b.org/y", "10.1000/xyz",
    ]  # fmt: skip


def test_entries_of_a_list_of_references_end_with_the_list():
    text = "Text.\n\n## References\n\n1. Ann Lee: Pumps.\n[2] Bo Ray: Seals.\n\nMore 1. text\n- no"
    assert [text[start:end] for start, end in own_references(text)] == [
        "1. Ann Lee: Pumps.", "[2] Bo Ray: Seals.",
    ]  # fmt: skip
    assert list(own_references("**Quellen:**\n- Eine.")) == [(13, 20)]
    assert not list(own_references("## Pumps\n1. One."))
    text = "## References\n\nLee, A. (2019). Pumps.\nAll of these hold.\n\nRay, B. (2020). Seals."
    assert list(own_references(text)) == [(15, 37)]


def test_an_entry_with_a_mark_of_its_own_is_marked_behind_those_that_cite():
    listed = '<cite id="S1">It evicts.</cite>\n[9] Lee, A. (2019). Pumps.\n* [8] Bo Ray, Seals.'
    answer = cited_answer(trajectory(f"It is.\n\n## References\n{listed}"))
    assert [said.strip() for said in answer.invented] == [
        "Lee, A. (2019). Pumps.",
        "* Bo Ray, Seals.",
    ]
    assert "evicts [1].\n" in answer.text()


def test_what_was_made_up_is_marked_in_the_answer_and_told():
    run = trajectory(
        '<cite id="S1">It evicts the oldest.</cite> It was built in 1987 by Ann Lee. '
        "See https://made.up/x.\n\n## References\n- Doe, J. (2020). Caches."
    )
    answer = cited_answer(run)
    assert answer.invented == ("https://made.up/x", "- Doe, J. (2020). Caches.")
    assert answer.uncited == ("It was built in 1987 by Ann Lee.",)
    assert answer.text().endswith(
        "See https://made.up/x [no source].\n\n## References\n- Doe, J. (2020). Caches [no source]."
    )
    told = " ".join([*notes(run, answer), *end_notes(run, answer)])
    assert "2 addresses or references" in told and "It was built in 1987 by Ann Lee." in told


def test_a_mark_stands_behind_a_link_and_never_in_code():
    run = trajectory(
        '<cite id="S1">It is.</cite> See [this](https://made.up/x) and `https://a.b/c`.'
    )
    answer = cited_answer(run)
    assert (
        answer.text() == "It is [1]. See [this](https://made.up/x) [no source] and `https://a.b/c`."
    )
    assert answer.invented == ("https://made.up/x)",)
