from collections.abc import Sequence
from pathlib import Path

import pytest

from rubricem.agent.sources.index import (
    IndexSegment,
    LexicalIndex,
    joined,
    stored_index,
    without_near_duplicates,
    words,
    write_segment,
)
from rubricem.agent.sources.readers.passages import split_passages
from rubricem.agent.transcript.words import Query, narrow_query, read_query, stands_in
from rubricem.memory.schema import Passage

LIBRARY = [
    Passage("Apples", "fruit.md", "Apples", "Apples keep for months in a cool cellar."),
    Passage("Pears", "fruit.md", "Pears", "Pears ripen after they were picked. ünïcode"),
    Passage("toy.lru_cache", "toy.py", "toy.lru_cache", "A toy like functools.lru_cache."),
    Passage("functools.lru_cache", "f.py", "functools.lru_cache", "Keeps the last results."),
]


def indexed(folder: Path, passages: Sequence[Passage], key: str = "a") -> LexicalIndex:
    return stored_index(folder, "fruit", key, lambda: passages)


def test_an_index_opens_again_and_the_best_match_comes_first(tmp_path: Path) -> None:
    indexed(tmp_path, LIBRARY)
    index = indexed(tmp_path, [])
    assert [index.passages[row] for row in range(len(index.passages))] == LIBRARY
    assert index.search("cellar", 1) == [LIBRARY[0]]
    assert index.search("When are pears ripe, and when picked?", 2)[0] == LIBRARY[1]
    exact = index.search("functools.lru_cache", 1)
    assert exact == [LIBRARY[3]], "a name written in full is preferred to a mention"
    for without_a_shared_word in ("zeppelin", "what is the", ""):
        assert index.search(without_a_shared_word, 3) == []


def test_of_another_key_or_cut_short_it_is_made_anew_and_the_older_one_goes(tmp_path: Path) -> None:
    indexed(tmp_path, LIBRARY)
    index = indexed(tmp_path, LIBRARY[:1], "b")
    assert len(index.passages) == 1 and len(list(tmp_path.iterdir())) == 1
    file = index.segments[0].folder / "passages.jsonl"
    file.write_bytes(file.read_bytes()[:-5])
    assert len(indexed(tmp_path, LIBRARY, "b").passages) == 4
    assert len(indexed(tmp_path, [], "b").passages) == 4


@pytest.mark.parametrize(
    "variants",
    [
        "cache caches cached caching",
        "query queries",
        "stop stopped stopping",
        "pass passes passing",
    ],
)
def test_forms_of_a_word_share_one_stem(variants: str) -> None:
    assert len(set(words(variants))) == 1


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("functools.lru_cache",
         ["functools.lru_cache", "functool", "lru_cache", "lru", "cach"]),
        ("HTTPStatusError", ["httpstatuserror", "http", "status", "error"]),
        ("What does it do, and why?", []),
    ],
    ids=["an identifier whole and in parts", "camel case split and kept", "no stop words"],
)  # fmt: skip
def test_words_that_count(text: str, counted: list[str]) -> None:
    assert words(text) == counted
    assert "path.read_text" in words("pathlib.Path.read_text"), "a dotted name's endings"


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


def test_what_attributes_of_a_call_say_wrong_does_not_narrow_it() -> None:
    assert narrow_query("bees", {"year": "recent", "field": "AI", "limit": "9"}) == "bees"


@pytest.mark.parametrize(
    ("text", "most", "pieces"),
    [
        ("one two three\n\nfour five\n\nsix seven", 5,
         ["one two three\n\nfour five", "six seven"]),
        ("One two three. Four five six. Seven.", 4, ["One two three.", "Four five six. Seven."]),
        ("a b c d e", 2, ["a b", "c d", "e"]),
        (" \n\n \n", 110, []),
    ],
    ids=["between paragraphs", "between sentences", "by words", "nothing"],
)  # fmt: skip
def test_text_is_cut_where_it_can_be_read_by_itself(
    text: str, most: int, pieces: list[str]
) -> None:
    assert split_passages(text, most) == pieces


LONG = "Words of an entry that go on and on until there are many more than fit into one."
ENTRIES = f"""Kinds
-----
--keep
--no-keep
    Keeps it.

    {LONG}

--drop=<what>
    {LONG} {LONG}

    Drops it.

Afterwards.

    {LONG}"""


def test_a_passage_within_an_entry_begins_with_its_term_and_none_ends_with_one() -> None:
    pieces = split_passages(ENTRIES, 20)
    assert pieces == [
        "Kinds\n-----\n--keep\n--no-keep\n    Keeps it.",
        f"--keep\n--no-keep\n    {LONG}",
        f"--drop=<what>\n    {LONG}",
        f"--drop=<what>\n{LONG}",
        "--drop=<what>\n    Drops it.\n\nAfterwards.",
        f"    {LONG}",
    ]
    assert max(len(piece.split()) for piece in pieces) <= 20
    long = "A term of so many words that it would take the room of all that it means here"
    assert split_passages(f"{long}\n    {LONG}", 20) == [long, f"    {LONG}"]


@pytest.mark.parametrize(
    ("head", "moved"),
    [("SET a; a = 1;", True), ("(2) Why is it so?", True), ("Say:\n\nSET a;", True),
     ("- One\n- Two", False), ("    Off", False), ("It is so.", False),
     ("\u201cIt is so.\u201d", False), ("2.", True)],
)  # fmt: skip
def test_what_heads_a_passage_does_not_end_the_one_before(head: str, moved: bool) -> None:
    cut = [LONG, f"{head}\n\n{LONG}"] if moved else [f"{LONG}\n\n{head}", LONG]
    assert split_passages(f"{LONG}\n\n{head}\n\n{LONG}", 25) == cut


def test_columns_that_are_aligned_stay_in_their_lines() -> None:
    listed = "\n".join(
        f".{name_of(n):12}  Tells about {name_of(n + 99)} and more" for n in range(9)
    )
    pieces = split_passages(listed, 20)
    assert len(pieces) > 1 and "\n".join(pieces) == listed


def test_what_is_announced_stays_with_its_announcement() -> None:
    said = f"{LONG} Say this:\n\nSET a;"
    assert split_passages(f"{said}\n\n{LONG}", 25) == [said, LONG]


def name_of(number: int) -> str:
    """A word of its own for each number, of letters alone."""
    return "x" + "".join(chr(ord("a") + number // 16**place % 16) for place in range(5)) + "o"


def test_a_word_counts_as_often_as_it_stands_in_a_text_of_few_words_too(tmp_path: Path) -> None:
    few = Passage("", "few", "", "Okapi okapi " * 9 + "leaf " * 22)
    many = Passage("", "many", "", "Okapi " + " ".join(map(name_of, range(39))))
    scores = dict(indexed(tmp_path, [few, many]).rank("okapi", 2))
    # BM25 with k1 = 1.2, and b has no say: both have 40 words.
    assert scores[0] / scores[1] == pytest.approx((18 / 19.2) / (1 / 2.2), rel=1e-5)


def test_what_only_names_other_sections_is_ranked_below_them(tmp_path: Path) -> None:
    names = [f"{name_of(n)} pumps" for n in range(4)]
    told = [Passage("Pumps", "p.md", each, "They are kept dry. " * 40) for each in names]
    contents = Passage("Book", "c.md", "", "\n".join(f"- {n}. {e}" for n, e in enumerate(names)))
    assert indexed(tmp_path, [contents, *told]).search(names[1], 2)[0] == told[1]


def test_of_two_near_duplicates_the_first_is_kept() -> None:
    said = (
        "Of the items of a list that it was given it returns the sum and a mean, at most {} of it."
    )
    texts = [said.format(5), said.format("5") + " ", "Something else.", said.format(7)]
    passages = [Passage(str(i), "x", "", text) for i, text in enumerate(texts)]
    kept = [p.title for p in without_near_duplicates(passages, 5)]
    assert kept == ["0", "2", "3"], "what differs in a number says something else"


def part(place: str, text: str, location: str = "pump.md") -> Passage:
    return Passage("Pump", location, place, text)


def test_around_a_passage_stands_what_its_heading_holds_or_the_whole_of_a_short_page(
    tmp_path: Path,
) -> None:
    page = [
        part("Trials", "The first trial ran for a day."),
        part("Trials", "The seal failed in the second trial."),
        part("Trials", "The third trial was called off."),
        part("Costs", "A seal costs four euros."),
        part("", "Not of the pump.", "other.md"),
    ]
    index = indexed(tmp_path, page)
    (found,) = index.search("seal failed second", 1)
    (cut,) = index.around([found], 15)
    assert cut.text == "The seal failed in the second trial.\n\nThe third trial was called off."
    assert (cut.begun_before, cut.goes_on) == (True, False)
    (wide,) = index.around([found], 20)
    assert wide.text.startswith("The first trial") and wide.text.endswith("called off.")
    (whole,) = index.around([found], 40)
    assert whole.text.endswith("called off.\n\nCosts\nA seal costs four euros.")
    assert (whole.place, whole.location) == ("Trials - Costs", "pump.md")
    assert not (wide.goes_on or whole.begun_before or whole.goes_on)
    both = index.search("trial", 2)
    assert len(both) == 2 and len(index.around(both, 40)) == 1, "one section is shown once"
    assert index.page("pump.md") == page[:4] and index.page("gone.md") == []
    assert indexed(tmp_path, []).page("pump.md") == page[:4], "also where none was found"
    strange = part("", "Never found here.")
    assert index.around([strange], 40) == [strange]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("efficiency office", 0),
        ("oﬃce eﬃciency", 0),
        ("ABC-7", 1),
        ("４２", 1),
        ("カタカナ", 1),
        ("investigation", 2),
        ("submersible", 2),
        ("well-known", 3),
        ("wellknown", 3),
        ("selfcontained", 4),
        ("self-contained", 4),
        ("self contained", 4),
    ],
)
def test_a_word_is_found_however_it_is_drawn_broken_or_joined(
    query: str, found: int, tmp_path: Path
) -> None:
    texts = (
        "The eﬃciency of the oﬃce was fixed.",
        "Type ＡＢＣ－７ holds ４２ litres (ｶﾀｶﾅ).",
        "The investi-\ngation of a sub\u00admersible pump.",
        "It is a wellknown and a well-\nknown seal.",
        "Each has a self-contained lid.",
        "Nothing of these stands in here.",
    )
    passages = [Passage("Notes", f"{n}.md", "", text) for n, text in enumerate(texts)]
    index = indexed(tmp_path, passages)
    assert [passage.location for passage in index.search(query, 1)] == [f"{found}.md"]


def test_a_private_page_is_not_joined_to_a_public_one_of_its_name(tmp_path: Path) -> None:
    for name in ("notes", "docs"):
        write_segment([Passage("P", "python:x", "", f"The {name} of pumps.")], tmp_path / name)
    both = IndexSegment(tmp_path / "notes"), IndexSegment(tmp_path / "docs", public=True)
    index = LexicalIndex(*both)
    wide = {(p.text, p.public) for p in index.around(index.search("pumps", 2), 100)}
    assert wide == {("The notes of pumps.", False), ("The docs of pumps.", True)}


def test_around_takes_nothing_that_was_shown_and_a_bare_heading_not_alone(tmp_path: Path) -> None:
    prose = " ".join(f"Sentence {n} of the trials tells of seals." for n in range(24))
    page = [
        part("NAME", "pump - it moves water"),
        part("SYNOPSIS", "pump [--fast]"),
        part("Trials", f"{prose} One."),
        part("Trials", f"{prose} Two."),
        part("Trials", f"{prose} Three."),
    ]
    index = indexed(tmp_path, page)
    (name,) = index.search("moves water", 1)
    (wide,) = index.around([name], 200)
    assert wide.text == "pump - it moves water\n\nSYNOPSIS\npump [--fast]"
    (two,) = (each for each in index.search("trials Two", 3) if each.text.endswith("Two."))
    (cut,) = index.around([two], 450, {"pump.md": [f"{prose} One.\n\nMore."]})
    assert cut.text == f"{prose} Two.\n\n{prose} Three."
    assert (cut.begun_before, cut.goes_on) == (True, False)
    near = [*index.search("trials One", 3), *index.search("trials Three", 3)]
    ends = [next(p for p in near if p.text.endswith(end)) for end in ("One.", "Three.")]
    both = index.around(ends, 400)  # the second would reach back into the first
    assert [each.text for each in both] == [f"{prose} One.\n\n{prose} Two.", f"{prose} Three."]


def test_the_term_of_an_entry_stands_once_and_its_parts_count_as_shown():
    parts = ["-k\n    Keeps it.", "-k\nFor ever.", "-k\n    Or not.", "-q\n    Is quiet."]
    page = [part("Options", text) for text in parts]
    told = joined(page, range(4), 0).text
    assert told == "-k\n    Keeps it.\n\n    For ever.\n\n    Or not.\n\n-q\n    Is quiet."
    assert all(stands_in(text, told) for text in parts) and not stands_in("-x\n    Or not.", told)


@pytest.mark.parametrize(
    ("first", "last", "both"),
    [
        ("1. Use > 1.1. Syntax", "1. Use > 1.2. Speed", "1. Use > 1.1. Syntax - 1.2. Speed"),
        ("1. Use", "1. Use > 1.1. Syntax", "1. Use - 1.1. Syntax"),
        ("page 3", "page 4", "page 3 - page 4"),
        ("Use", "Use", "Use"),
        ("Use > Speed", "Use", "Use > Speed"),
        ("", "Use", ""),
        ("Use > Speed > Fast", "Use > Size", "Use > Speed > Fast - Size"),
    ],
)
def test_a_passage_over_headings_is_placed_from_the_first_to_the_last(first, last, both):
    page = [part(first, "One."), part(last, "Two.")]
    told = joined(page, [0, 1], 0)
    assert told.place == both
    head = last.rpartition(" > ")[2] * (last != first)
    assert told.text == f"One.\n\n{head}\nTwo.".replace("\n\n\n", "\n\n"), "each level once"
