"""What is told of a claim is sure; whatever a writer may have made of the source is not told."""

import pytest

from rubricem.agent.learning.certain import sure_finding
from rubricem.agent.reports.rules import Pair
from rubricem.memory.schema import Source
from tests.judge.test_evidence import source

MILL = source(
    1, "The mill had 212 workers in 1893, 40 in 1901. Wages rose from 18.5 to 22.2 pence."
)
TIDE = source(2, "Some two hundred and twelve boats of 85,346 tons passed. High water: 11:30 pm.")
SEEN = f"{MILL.text}\n{TIDE.text}\nHe wrote: we shall never see its like again on this shore."


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        ("It employed 3,471 people of Ardnamurchan", '"3,471" and the name "Ardnamurchan"'),
        ('A letter says "the wheel was broken by the ice"', "broken by the ice"),
        ("Two hundred boats of so many tons passed at high water", "S2 has most"),
    ],
)
def test_a_number_with_a_name_or_a_quotation_that_stand_nowhere_and_a_mistaken_citation_are_told(
    claim: str, told: str
):
    finding = sure_finding(Pair(claim, MILL), SEEN, [MILL, TIDE])
    assert finding.verdict == "unsupported" and told in finding.reason


@pytest.mark.parametrize(
    "claim",
    [
        "Eight years later 172 fewer were employed",
        "Its people were Welsh, and three of them foremen",
        'They call it "the old mill" there',
        'They "shall never see [it] again on this shore"',
        "The four wages and heads add up to 292.7, a mean of 73.175",
    ],
)
def test_counts_sums_roundings_names_terms_and_other_words_are_not_told(claim: str):
    assert sure_finding(Pair(claim, MILL), SEEN, [MILL, TIDE]).verdict != "unsupported"


FEET = source(4, "The pass lies at 2,418 m; water boils there at 92.15 C. Snow fell by 12.5%.")
HOF = source(5, "Der Hof darf ihn nur als „Käse aus dem Tal“ verkaufen, und das ist auch so.")
BARE = source(6, "The pass was closed by ice, and nobody is known to have used it since.")
BARE = BARE.model_copy(update={"title": "Of passes"})


@pytest.mark.parametrize(
    ("claim", "cited", "verdict"),
    [
        ("It was closed in 1934", BARE, "unchecked"),
        ("From 1934 on Elsa Rudin sold tickets there", BARE, "unsupported"),
        ("At 197.87 \u00b0F, or after 31.25 kWh, water boils there", FEET, "unchecked"),
        ("It may be sold as “cheese from our own valley”", HOF, "unchecked"),
        ("It may be sold as “cheese from our own valley”", BARE, "unsupported"),
    ],
)
def test_what_is_converted_or_translated_is_not_told_and_other_things_are(
    claim: str, cited: Source, verdict: str
):
    assert sure_finding(Pair(claim, cited), f"{cited.text} {TIDE.text}", [cited]).verdict == verdict
