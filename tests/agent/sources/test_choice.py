import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from rubricem.agent.research.setup import Stores
from rubricem.agent.settings import Settings
from rubricem.agent.settings.door import setup_of
from rubricem.agent.sources.choice import (
    RERANKED,
    Combined,
    Meaning,
    Reranked,
    entered_options,
    is_beyond,
    is_folder,
    kept_name,
    open_source,
    search_any,
)
from rubricem.agent.sources.documents import Folder
from rubricem.agent.sources.libraries import PythonDocs
from rubricem.agent.sources.web import Scholar, SearXNG, Web
from rubricem.agent.transcript.events import Tell
from rubricem.agent.weights.catalogue import DEFAULT_EMBEDDER, lookup
from rubricem.memory.errors import SettingsError, SourceError
from rubricem.memory.schema import Passage
from tests.support.policies import FixedSearch


def fixed(*texts: str, error: str = "") -> FixedSearch:
    return FixedSearch([Passage(text, f"https://{text}.org", "", text) for text in texts], error)


@pytest.mark.parametrize(
    ("sources", "limit", "found", "told"),
    [
        ((fixed("a1", "a2", "a3"), fixed("b1", "b2")), 4, ["a1", "b1", "a2", "b2"], []),
        ((fixed("a", "b"), fixed("b", "c")), 9, ["a", "b", "c"], []),
        ((fixed(error="the web is down"), fixed("a")), 3, ["a"],
         ["left out of this search: the web is down"]),
        ((fixed(), fixed()), 3, [], []),
    ],
    ids=[
        "the best of each comes before the second best of any", "what two found is there once",
        "one that fails is told and the others are heard", "nothing is no failure",
    ],
)  # fmt: skip
async def test_several_sources_are_asked_as_one(
    sources: tuple[FixedSearch, ...], limit: int, found: list[str], told: list[str]
) -> None:
    said: list[str] = []
    both = Combined(sources, said.append)
    assert [p.text for p in await both.search("q", limit)] == found
    assert (said, both.name) == (told, "search+search")


async def test_nothing_found_beside_failures_is_a_failure_that_names_them_all() -> None:
    down = fixed(error="One is down.")
    for other, named in (
        (fixed(), "One is down."),
        (fixed(error="Two is."), "One is down. Two is."),
    ):
        with pytest.raises(SourceError) as caught:
            await Combined([down, other]).search("q", 3)
        assert str(caught.value) == named


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("web", Web),
        ("scholar", Scholar),
        ("searxng:http://localhost:8080", SearXNG),
        ("python", PythonDocs),
        (".", Folder),
    ],
)
def test_names_of_sources(name: str, kind: type, tmp_path: Path) -> None:
    assert isinstance(open_source(name, tmp_path), kind)


@pytest.mark.parametrize(
    ("name", "said", "remedy"),
    [
        ("", "Unknown source", "`python`"),
        ("ruby", "Unknown source", "`python`"),
        ("/no/such/folder", "Unknown source", "`python`"),
        (__file__, "is a file", str(Path(__file__).parent)),
        ("searxng:", "not an http or https address", "searxng:http://localhost:8080"),
        ("tavily", "asked with a key", "RUBRICEM_TAVILY_KEY"),
    ],
)
def test_what_is_no_source_is_answered_with_what_is_possible(
    name: str, said: str, remedy: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        open_source(name, tmp_path)
    assert remedy in caught.value.remedy


def test_which_names_lie_beyond_the_machine_and_which_are_folders() -> None:
    names = ("python", "auto", "web", "scholar", "searxng:http://a", "./web", "papers")
    assert [is_beyond(name) for name in names] == [False, False, True, True, True, False, False]
    assert [is_folder(name) for name in names] == [False, False, False, False, False, True, True]


def test_a_name_is_kept_whole_and_without_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("web", "papers"):
        (tmp_path / name).mkdir()
    kept = [kept_name(name) for name in ("web", "./web", "papers", "nowhere", "auto")]
    assert kept == ["web", str(tmp_path / "web"), str(tmp_path / "papers"), "nowhere", "auto"]
    assert kept_name("searxng:http://ann:hunter2@host:8080/") == "searxng:http://host:8080"


async def test_what_two_sources_say_nearly_alike_is_found_once() -> None:
    left = fixed("Return the sum of all items in it.", "Something else.")
    right = fixed("Return the sum of all items in it", "A third thing.")
    found = await Combined([left, right]).search("sum", 3)
    assert [passage.text.split()[-1] for passage in found] == ["it.", "else.", "thing."]


class Near:
    """A boat is a ship."""

    name = "near"

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        near = [[1.0, 0.0] if re.search("ship|boat", t) else [0.0, 1.0] for t in texts]
        return np.array(near, dtype=np.float32)


async def test_what_words_find_is_put_in_order_by_its_meaning() -> None:
    class Words:
        name = "words"

        async def prepare(self) -> tuple[str, ...]:
            return ("one file was left out",)

        async def search(self, query: str, limit: int) -> list[Passage]:
            assert limit == RERANKED, "more than are asked for, so that there is a choice"
            return [Passage("a", "a.md", "", "list of cars"), Passage("b", "b.md", "", "my boat")]

    meaning = Meaning(Near())
    ranked = Reranked(Words(), meaning)
    assert (ranked.name, await ranked.prepare()) == ("words", ("one file was left out",))
    assert [p.title for p in await ranked.search("an old ship", 2)] == ["b", "a"]
    assert [p.title for p in await ranked.search("an old car", 1)] == ["a"]
    meaning.embedder = None
    with pytest.raises(AssertionError):
        await ranked.search("an old ship", 2)


async def test_what_several_wordings_find_is_ranked_together_by_the_meaning_of_two() -> None:
    class Words:
        name = "words"

        async def search(self, query: str, limit: int) -> list[Passage]:
            found = {"row it": "list of cars", "row it oars": "list of vans", "oars": "my boat"}
            return [Passage(query, f"{query}.md", "", found[query])]

    queries = ["row it", "row it oars", "oars"]
    for tool in (ranked := Reranked(Words(), Meaning(Near())), Combined([ranked])):
        found = await search_any(tool, queries, 3)
        assert [p.text for p in found] == ["list of cars", "list of vans", "my boat"]
    meant = await search_any(Reranked(Words(), Meaning(Near())), ["row it", "row it oars"], 2)
    assert [p.title for p in meant] == queries[:2]

    class Boats(Near):
        def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
            return super().embed([f"{text} boat" if query else text for text in texts])

    found = await search_any(Reranked(Words(), Meaning(Boats())), queries, 3)
    assert found[0].text == "my boat", "found by what is expected alone"
    found = await search_any(Reranked(Words(), Meaning()), queries, 3)
    assert [p.title for p in found] == queries[:2], "without meaning it would take a third"


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("How do I count cars? garage.Counter", "garage.Counter"),
        ("How do I count cars?", "total"),
        ("Does it count cars by default?", "garage.Counter"),
        ("garage Counter: how many cars?", "garage.Counter"),
        ("How does a garage work as a Counter of cars?", "total"),
    ],
)
async def test_what_a_query_names_in_full_or_by_a_default_comes_before_what_is_nearer(
    query: str, first: str
) -> None:
    counter = "garage.Counter(*, count_cars=True)"
    words = [Passage("total", "", "", "total"), Passage("garage.Counter", "", "", counter)]

    class Nearly:
        name = "nearly"

        def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
            rows = [[1.0, 0.9] if "garage" in text else [1.0, 0.92] for text in texts]
            return np.array([[1.0, 0.2]] if query else rows, dtype=np.float32)

    ranked = Reranked(FixedSearch(words), Meaning(Nearly()))
    assert (await ranked.search(query, 2))[0].title == first


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("How do I row a ship?", "Boats"),
        ("In which version was it to row a ship?", "Release notes"),
        ("What was changed for those who row?", "Release notes"),
    ],
)
async def test_what_was_changed_stands_behind_unless_it_is_asked_for(
    query: str, first: str
) -> None:
    pages = {"Release notes": "my boat", "Boats": "what a boat is"}
    words = FixedSearch([Passage(title, "", "", text) for title, text in pages.items()])
    assert (await Reranked(words, Meaning(Near())).search(query, 2))[0].title == first


async def test_of_the_best_page_other_parts_are_ranked_too(tmp_path: Path) -> None:
    for number in range(RERANKED):
        (tmp_path / f"{number}.md").write_text(f"# Page {number}\n\nrow it, row {number}")
    guide = "# Guide\n\nrow it, row it, row it, my boat\n\n## More\n\nmy boat, which is slow to row"
    (tmp_path / "guide.md").write_text(f"{guide}{' beside words of all kinds' * 9}.")
    ranked = Reranked(Folder(tmp_path, tmp_path / "index"), Meaning(Near()))
    found = await ranked.search("a ship: row it", 3)
    assert [(p.title, p.place) for p in found[:2]] == [
        ("Guide", "Guide"),
        ("Guide", "Guide > More"),
    ]


@pytest.mark.parametrize(
    ("query", "option"),
    [
        ("row it: can tool row skip a ship?", "-w"),
        ("row it: can tool row skip?", "-x"),
    ],
)
async def test_the_page_of_the_command_that_is_asked_about_is_read_by_its_options(
    tmp_path: Path, query: str, option: str
) -> None:
    for number in range(RERANKED):
        (tmp_path / f"{number}.md").write_text(f"# Page {number}\n\nrow it, row {number}")
    entries = [f"-x{' and more to row' * 20}", f"-w\n    Without a ship{', to row' * 20}"]
    text = "\n\n".join(["# tool-row(1)", "## NAME", "row it, row, tool", "## OPTIONS", *entries])
    (tmp_path / "tool.md").write_text(text)
    ranked = Reranked(Folder(tmp_path, tmp_path / "index"), Meaning(Near()))
    found = await ranked.search(query, 2)
    told = next((p.text for p in found if p.place.endswith("OPTIONS")), "")
    assert told.startswith(option)


@pytest.mark.parametrize(
    ("question", "heading"),
    [
        ("Which exit status has tool row when a ship sinks?", "DIAGNOSTICS"),
        ("Which environment variables does tool row read?", "ENVIRONMENT"),
        ("How does tool row move?", "NAME"),
        ("Which exit status has a ship?", "NAME"),
    ],
)
async def test_a_section_of_the_named_page_tells_what_its_heading_is_there_for(
    question: str, heading: str
) -> None:
    heads = ("NAME", "DIAGNOSTICS", "ENVIRONMENT")
    words = [Passage("tool-row(1)", "", f"tool-row(1) > {h}", f"of {h}") for h in heads]
    found = await Reranked(FixedSearch(words), Meaning(Near())).search(question, 3)
    assert found[0].place.endswith(heading)


@pytest.mark.parametrize(
    ("title", "question", "first"),
    [
        ("tool-row(1)", "How does tool row move?", True),
        ("tool-row.1", "How does tool-row move?", True),
        ("numpy.row", "How does np.row move?", True),
        ("shed.cars.row_it_now", "How does row it now move?", True),
        ("shed.cars.row_it", "How does one row it?", False),
        ("row(1)", "How does one row?", False),
    ],
)
async def test_a_page_is_named_as_people_write_its_name(
    title: str, question: str, first: bool
) -> None:
    words = FixedSearch([Passage(name, "", "", f"of {name}") for name in ("Other", title)])
    found = await Reranked(words, Meaning(Near())).search(question, 2)
    assert (found[0].title == title) is first


@pytest.mark.parametrize(
    ("retrieval", "here", "opened"),
    [
        ("lexical", True, False),
        ("auto", True, True),
        ("auto", False, False),
        ("rerank", False, True),
    ],
)
async def test_meaning_ranks_where_it_is_there_and_its_lack_is_told(
    retrieval: str, here: bool, opened: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def open_embedder(stores: Stores, tell: Tell) -> Near:
        return Near()

    monkeypatch.setattr(Stores, "open_embedder", open_embedder)
    weights = lookup(DEFAULT_EMBEDDER)
    assert weights is not None
    if here:
        (tmp_path / weights.folder).mkdir()
    (tmp_path / "small.gguf").touch()
    named = {"model": str(tmp_path / "small.gguf"), "retrieval": retrieval}
    setup = setup_of(Settings(weights_dir=tmp_path, **named))  # type: ignore[arg-type]
    told: list[str] = []
    embedder = await setup.open_embedder(told.append)
    assert (embedder is not None, bool(told)) == (opened, not opened and retrieval == "auto")
    fetched = await setup.open_embedder(fetch=True)
    assert (fetched is None) is (retrieval == "lexical"), "with a model that is fetched"
    served = Settings(model="m", base_url="http://127.0.0.1:1")
    assert setup_of(served).sources.retrieval == "lexical"


def test_an_option_has_its_entry_where_a_line_begins_with_it():
    text = (
        "-d, --delete\n    All are deleted. -v is of git add, see `--dry-run`.\n--size=<n>\n"
        "-[no-]all\n--quiet | -q\n--keep is kept\n-1 is less\n - item"
    )
    assert entered_options(text) == {"-d", "--delete", "--size", "--quiet", "-q", "--keep"}
