"""Copies on the web are one source; what only quotes or resembles is another."""

import pytest

from rubricem.agent.research.run import Evidence
from rubricem.agent.sources.likeness import (
    copies_among,
    print_of,
)
from rubricem.agent.transcript.question import Found, tool_output
from rubricem.memory.schema import Passage

WORDS = [f"word{i}" for i in range(400)]
NEWS = (
    "Acme said on Monday that its revenue rose to 12.5 million dollars in 2023, more than "
    "analysts had expected, and that it would build a second factory in Ohio."
)


def page(site: str, text: str) -> Passage:
    return Passage(site, f"https://{site}.test/news", "", text)


def test_a_copy_found_by_a_search_gets_the_number_of_the_first():
    evidence = Evidence()
    first = evidence.number(page("acme", NEWS), "q", "web")
    copy = evidence.number(page("herald", NEWS.replace("Monday", "Tuesday")), "q", "web")
    other = evidence.number(page("times", "Acme makes anvils. " + " ".join(WORDS[:30])), "q", "web")
    assert (first.id, copy.id, other.id) == ("S1", "S1", "S2")
    assert evidence.sources["S1"].copies == ("https://herald.test/news",)
    assert evidence.sources["S1"].text == NEWS


def test_an_excerpt_of_a_page_that_was_read_is_that_page():
    evidence = Evidence()
    evidence.number(page("acme", f"{NEWS} More follows."), "q", "web")
    source = evidence.number(page("acme", f"… {NEWS[19:]} ..."), "another q", "web")
    assert (source.id, source.copies) == ("S1", ())


@pytest.mark.parametrize(
    "copy",
    [(Passage("print", "b.pdf", "", NEWS[25:]), "folder"), (page("herald", NEWS), "investigate")],
    ids=["a file's print", "what another investigation found"],
)
def test_what_says_no_more_than_another_source_is_that_source(copy: tuple[Passage, str]):
    evidence = Evidence()
    first = page("acme", NEWS) if copy[1] == "investigate" else Passage("text", "a.md", "", NEWS)
    evidence.number(first, "q", "folder")
    source = evidence.number(copy[0], "q", copy[1])
    assert (source.id, source.copies) == ("S1", (copy[0].location,))
    shown = tool_output(Found((source,)), 100, placed=True)
    assert f"Shown above. It stands in {copy[0].location}, too." in shown


@pytest.mark.parametrize(
    "passages",
    [
        [(page("acme", NEWS), "web"), (page("acme", NEWS + " More follows."), "web")],
        [
            (Passage("", f"{year}", "", NEWS.replace("2023", year)), "a")
            for year in ("2023", "2022")
        ],
        [(Passage("", f"{own}", "", NEWS, public=own), "folder") for own in (True, False)],
        [(page("herald", NEWS), "web"), (page("acme", NEWS + " The rest of it."), "open_page")],
        [(page(year, NEWS.replace("2023", year)), "web") for year in ("2023", "2022")],
        [(page("herald", NEWS), "web"), (page("acme", f"{NEWS} {' '.join(WORDS)}"), "web")],
        [(page("herald", NEWS[:60]), "web"), (page("acme", NEWS[:60]), "web")],
    ],
    ids=[
        "the same page again",
        "another year",
        "another kind",
        "a page that was opened, whole",
        "another year on the web",
        "a page of which there was an excerpt",
        "too short to tell",
    ],
)
def test_what_is_no_copy_is_a_source_of_its_own(passages: list[tuple[Passage, str]]):
    evidence = Evidence()
    numbered = [evidence.number(passage, "q", tool) for passage, tool in passages]
    assert [source.id for source in numbered] == ["S1", "S2"]


def test_a_page_is_kept_and_the_plain_text_and_the_print_of_it_are_its_copies():
    body = " ".join(
        f"Option {n} keeps the reflog for some days before it is pruned." for n in "abcdef"
    )
    texts = {
        "git-gc.txt": f"include::config.txt[] linkgit:git-prune[1] {body}",
        "git-gc.html": f"{body} See git-prune(1), gc.auto is 6700. {body.upper()} and more.",
        "git-gc.pdf": f"{body} See git-prune(1), gc.auto is 6700. {body.upper()} and_more.",
        "old.pdf": f"{body} In version 3.",
        "old.txt": f"{body} In version 1.",
        "old.html": f"{body} In version 2.",
    }
    prints = {name: print_of(text) for name, text in texts.items()}
    copies = copies_among(prints, texts.__getitem__)
    assert copies == dict.fromkeys(("git-gc.txt", "git-gc.pdf"), "git-gc.html")
