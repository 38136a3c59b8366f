from collections.abc import Sequence
from pathlib import Path

import pytest

from rubricem.agent.sources.choice import Combined, is_beyond, is_folder, kept_name, open_source
from rubricem.agent.sources.web import Scholar, SearXNG, Web
from rubricem.memory.errors import SettingsError, SourceError
from rubricem.memory.interfaces import Passage
from tests.support.policies import FixedSearch


def passages(*texts: str) -> list[Passage]:
    return [Passage(text, f"https://{text}.org", "", text) for text in texts]


def fixed(found: Sequence[Passage], error: str = "") -> FixedSearch:
    return FixedSearch(found, error)


async def test_the_best_of_each_comes_before_the_second_best_of_any() -> None:
    both = Combined([fixed(passages("a1", "a2", "a3")), fixed(passages("b1", "b2"))])
    assert [p.text for p in await both.search("q", 4)] == ["a1", "b1", "a2", "b2"]
    assert both.name == "search+search"


async def test_a_passage_that_two_sources_found_is_there_once() -> None:
    both = Combined([fixed(passages("a", "b")), fixed(passages("b", "c"))])
    assert [p.text for p in await both.search("q", 9)] == ["a", "b", "c"]


async def test_a_source_that_fails_is_told_and_the_others_are_heard() -> None:
    told: list[str] = []
    both = Combined([fixed([], "the web is down"), fixed(passages("a"))], told.append)
    assert [p.text for p in await both.search("q", 3)] == ["a"]
    assert told == ["left out of this search: the web is down"]


async def test_nothing_found_beside_a_failure_is_a_failure() -> None:
    both = Combined([fixed([], "the web is down"), fixed([])])
    with pytest.raises(SourceError, match="the web is down"):
        await both.search("q", 3)


async def test_where_all_fail_all_are_named() -> None:
    both = Combined([fixed([], "One is down."), fixed([], "Two is down.")])
    with pytest.raises(SourceError, match=r"One is down\. Two is down\."):
        await both.search("q", 3)


async def test_nothing_found_anywhere_is_an_empty_list() -> None:
    assert await Combined([fixed([]), fixed([])]).search("q", 3) == []


def test_names_of_sources_beyond_the_machine(tmp_path: Path) -> None:
    assert isinstance(open_source("web", tmp_path), Web)
    assert isinstance(open_source("scholar", tmp_path), Scholar)
    assert isinstance(open_source("searxng:http://localhost:8080", tmp_path), SearXNG)
    with pytest.raises(SettingsError, match="not an http or https address"):
        open_source("searxng:", tmp_path)


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
