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
    is_beyond,
    is_folder,
    kept_name,
    open_source,
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
