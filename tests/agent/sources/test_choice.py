import asyncio
import re
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from rubricem.agent.settings import Settings
from rubricem.agent.settings.door import setup_of
from rubricem.agent.sources.choice import (
    RERANKED,
    Combined,
    Meaning,
    Sources,
    about,
    kept_name,
    open_source,
)
from rubricem.agent.sources.documents import Folder
from rubricem.agent.sources.index import around, page
from rubricem.agent.sources.web import SearchRefused
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
        ((fixed(error="One is down."), fixed()), 3, "One is down.", []),
        ((fixed(error="One is down."), fixed(error="Two is.")), 3, "One is down. Two is.", []),
    ],
    ids=[
        "the best of each comes before the second best of any", "what two found is there once",
        "one that fails is told and the others are heard", "nothing is no failure",
        "nothing beside a failure is one", "all failures are named",
    ],
)  # fmt: skip
async def test_several_sources_are_asked_as_one(
    sources: tuple[FixedSearch, ...], limit: int, found: list[str] | str, told: list[str]
) -> None:
    said: list[str] = []
    both = Combined(sources, said.append)
    try:
        assert [p.text for p in await both.search("q", limit)] == found
    except SourceError as error:
        assert str(error) == found
    assert (said, both.name) == (told, "search+search")


PUMPS = ("flow", "seal", "rotor", "start", "noise", "power", "valve", "oil", "sensor", "trial")


async def test_sources_of_this_machine_are_ranked_as_one(tmp_path: Path) -> None:
    """Of ten queries nearly all that is shown is of the product that is named, now and then."""
    for product in ("Alba", "Brio"):
        (tmp_path / product).mkdir()
        for part in PUMPS:
            for turn, told in enumerate(PUMPS):
                name = f" of the {product}" if turn % 4 == 0 else ""
                page = tmp_path / product / f"{part} and {told}.md"
                page.write_text(f"# {part}\n\nHow the {part}{name} bears upon the {told}.\n")
    names = ("Alba", "Brio")
    folders = [Folder(tmp_path / name, tmp_path / "cache", below=name) for name in names]
    both, shown = Combined(folders), list[tuple[str, str]]()
    for number, part in enumerate(PUMPS):
        product = ("Alba", "Brio")[number % 2]
        found = await both.search(f"{part} of the {product} pump", 5)
        shown += [(product, passage.location.split("/")[0]) for passage in found]
    assert len(shown) == 50
    assert sum(asked == told for asked, told in shown) >= 0.95 * len(shown)


async def test_what_searches_of_one_turn_find_is_shown_with_what_stands_around_it(
    tmp_path: Path,
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        parts = "".join(f"The {part} is made of {'steel ' * 60}\n\n" for part in PUMPS)
        (tmp_path / name / "pump.md").write_text(f"# Pump {name}\n\n{parts}")
    both = Combined([Folder(tmp_path / name, tmp_path / "cache", below=name) for name in "ab"])

    async def words_around(part: str) -> list[int]:
        return [len(p.text.split()) for p in await around(both, await both.search(part, 2), 300)]

    shown = await asyncio.gather(*map(words_around, PUMPS))
    assert all(count > 200 for counts in shown for count in counts), shown


async def test_one_document_of_several_does_not_take_every_place(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    many = "".join(f"## {n}\n\nThe seal failed in trial {n}.\n\n" for n in range(9))
    (tmp_path / "a" / "long.md").write_text(f"# Long\n\n{many}")
    (tmp_path / "b" / "short.md").write_text("# Short\n\nWhat the seal cost is told elsewhere.\n")
    both = Combined([Folder(tmp_path / name, tmp_path / "cache") for name in "ab"])
    found = [p.location for p in await both.search("why did the seal fail", 4)]
    assert sorted(found) == ["long.md", "long.md", "long.md", "short.md"]
    assert [p.location for p in await both.search("trial failed", 5)] == ["long.md"] * 5


async def test_a_part_of_a_collection_that_goes_is_named_with_it_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, seconds = list[str](), [1000.0]
    for name in ("a", "uploads/b"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "seal.md").write_text(f"# Seal\n\nThe seal of {name} failed.\n")
    a, b = str(tmp_path / "a"), tmp_path / "uploads" / "b"
    sets = {"one": (a, "upload:b"), "two": ("upload:b", "searxng:http://ann:hunter2@127.0.0.1:9")}
    monkeypatch.setattr("time.monotonic", lambda: seconds[0])

    def parts(*source: str) -> Sources:
        here = Settings(source=source, collections=sets, data_dir=tmp_path, weights_dir=tmp_path)
        return setup_of(here).sources

    assert {*parts("@one", a).parts.values()} == {"", "upload:b of the collection @one"}
    both = parts("@one", "@two")
    assert both.parts[str(b)] == "upload:b of the collection @one and @two"
    assert "hunter2" not in str(both.parts.values())
    with pytest.raises(SourceError, match=r"\*\*\*@127.0.0.1:9 of the collection @two: SearXNG"):
        async with both.open(tmp_path) as tool:
            await tool.prepare()
    async with parts("@one").open(tmp_path, told.append) as tool:
        assert len(await tool.search("seal", 5)) == 2
        shutil.rmtree(b)
        seconds[0] += 60
        assert len(await tool.search("seal", 5)) == 1

    async def refuse(query: str, limit: int) -> list[Passage]:
        raise SearchRefused("It said 500.", "", 500, {})

    refusing = fixed()
    monkeypatch.setattr(refusing, "search", refuse)
    with pytest.raises(SourceError, match=r"^x of the collection @y: It said 500."):
        await Combined([refusing], parts=["x of the collection @y"]).search("q", 3)
    left = "left out of this search: upload:b of the collection @one: There is no folder "
    assert told[-1].startswith(left)
    with pytest.raises(SettingsError, match="upload:b of the collection @one: There is") as caught:
        parts("@one").check()
    assert caught.value.remedy.startswith("Mend it, or take it out of [collections]")


@pytest.mark.parametrize(
    ("name", "said", "remedy"),
    [
        ("ruby", "Unknown source", "`python`"),
        ("tests_", "Unknown source", "Did you mean tests? "),
        ("wikipedai", "Unknown source", "Did you mean wikipedia? "),
        ("./nowhere/", "There is no folder './nowhere/'", "`@NAME`"),
        (
            f"{Path(__file__).parent}_",
            "There is no folder",
            f"Did you mean {Path(__file__).parent}",
        ),
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


def test_a_name_is_kept_whole_and_without_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("web", "papers"):
        (tmp_path / name).mkdir()
    kept = [kept_name(name) for name in ("web", "./web", "papers", "nowhere", "auto")]
    assert kept == ["web", str(tmp_path / "web"), str(tmp_path / "papers"), "nowhere", "auto"]
    assert kept_name("searxng:http://ann:hunter2@host:8080/") == "searxng:http://host:8080"


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
    ranked = Combined([Words()], meaning=meaning)
    assert (ranked.name, await ranked.prepare()) == ("words", ("one file was left out",))
    assert [p.title for p in await ranked.search("an old ship", 2)] == ["b", "a"]
    assert [p.title for p in await ranked.search("an old car", 1)] == ["a"]
    meaning.embedder = None
    with pytest.raises(AssertionError):
        await ranked.search("an old ship", 2)


async def test_searches_that_are_ranked_leave_threads_to_what_is_written_down() -> None:
    going, ranking = threading.Event(), threading.Lock()

    class Slow(Near):
        def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
            with ranking:
                assert going.wait(60)
                return super().embed(texts, query=query)

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    ranked = Combined([fixed("a", "b")], meaning=Meaning(Slow()))
    searches = [asyncio.create_task(ranked.search("an old ship", 2)) for _ in range(4)]
    await asyncio.sleep(0.1)
    try:
        await asyncio.wait_for(asyncio.to_thread(int), 10)
    finally:
        going.set()
        await asyncio.gather(*searches)


async def test_files_of_one_name_in_several_folders_are_told_apart(tmp_path: Path):
    for place, said in (("a/docs", "The pump leaks oil."), ("b/docs", "The pump leaks water.")):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "pump.md").write_text(said)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "seal.md").write_text("The seal is dry.")
    # A name such as docs says too little also where no other folder has it.
    async with Sources((str(tmp_path / "a/docs"), str(tmp_path / "c"))).open(
        tmp_path / "d"
    ) as tool:
        assert [p.location for p in await tool.search("what does the pump leak", 2)] == [
            "a/docs/pump.md"
        ]
        assert [line.partition(":")[0] for line in about(tool)] == ["a/docs", "c"]
    names = (str(tmp_path / "a/docs"), str(tmp_path / "b/docs"))
    async with Sources(names).open(tmp_path / "data") as tool:
        found = await tool.search("what does the pump leak", 2)
        assert {each.location for each in found} == {"a/docs/pump.md", "b/docs/pump.md"}
        for each in found:
            assert [p.text for p in await page(tool, each.location)] == [each.text]
    told: list[str] = []
    async with Sources(names[:1]).open(tmp_path / "new", told.append) as tool:
        await tool.prepare()
        assert told[0] == "reading document 1 of 1"
        assert [p.location for p in await tool.search("pump", 2)] == ["pump.md"]
