import pytest

from agent.sources.query import Query, narrowed, read_query
from agent.sources.rows import found_passages, row, same_page
from memory.interfaces import Passage


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("bee dances", Query("bee dances")),
        ("bee year:2019 dances", Query("bee dances", "2019")),
        ("year:2019-2021 bees", Query("bees", "2019-2021")),
        ("bees years:2019-", Query("bees", "2019-")),
        ("bees year:-2021", Query("bees", "-2021")),
        ("bees field:Biology", Query("bees", "", ("Biology",))),
        ('bees fields:"computer  science,Art"', Query("bees", "", ("Computer Science", "Art"))),
        ("bees field:Art field:Law year:1999 year:2000", Query("bees", "2000", ("Art", "Law"))),
    ],
)  # fmt: skip
def test_years_and_fields_are_told_from_the_words(written: str, read: Query) -> None:
    assert read_query(written) == read


@pytest.mark.parametrize(
    "words",
    [
        "datetime.date(year: int)",
        "year:soon",
        "a field:name of a struct",
        'field:"Biology,Beekeeping"',
        "myyear:2019",
        "year:20190",
    ],
)
def test_what_is_no_year_and_no_known_field_stays_text(words: str) -> None:
    assert read_query(words) == Query(words)


def test_attributes_of_a_call_travel_in_the_query_and_back() -> None:
    query = narrowed("bee dances", {"year": "2019-2021", "fields": "biology, Computer Science"})
    assert query == 'bee dances year:2019-2021 field:"Biology,Computer Science"'
    assert read_query(query) == Query("bee dances", "2019-2021", ("Biology", "Computer Science"))


def test_attributes_that_narrow_nothing_leave_the_query_alone() -> None:
    assert narrowed("bees", {"year": "recent", "field": "AI", "limit": "9"}) == "bees"


def test_a_page_is_one_page_however_it_was_come_by() -> None:
    plain = same_page("https://bees.org/dance?id=7")
    assert same_page("http://www.bees.org/dance/?utm_source=x&id=7&fbclid=y#top") == plain
    assert same_page("https://bees.org/dance?id=8") != plain
    assert same_page("https://bees.org:8443/dance?id=7") != plain


@pytest.mark.parametrize(
    "address", ["", "javascript:alert(1)", "file:///etc/passwd", "/dance", "http://", "http://[::1"]
)
def test_what_is_no_web_address_is_no_page(address: str) -> None:
    assert same_page(address) == ""


def test_repeated_pages_and_repeated_texts_are_found_once() -> None:
    rows = [
        row("Bees", "https://bees.org/", "Bees dance to tell of food."),
        row("Bees again", "https://bees.org", "The same page by another address."),
        row("Copy", "https://copy.org/", "Bees dance to tell of food."),
        row("Wasps", "https://wasps.org/", "Wasps do not dance at all."),
    ]
    assert [p.location for p in found_passages(rows, 9)] == [
        "https://bees.org/",
        "https://wasps.org/",
    ]
    assert len(found_passages(rows, 1)) == 1


def test_fields_that_are_missing_or_of_another_type_make_no_passage() -> None:
    assert row(None, "https://a.org", 7) == Passage("https://a.org", "https://a.org", "", "")
    assert found_passages([row(None, "https://a.org", None), row("t", None, "x")], 9) == []
    assert row(" A\n b ", "https://a.org", None).text == "A b"
