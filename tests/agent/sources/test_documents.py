from pathlib import Path

import pytest

from rubricem.agent.sources.choice import open_source
from rubricem.agent.sources.documents import DocumentCache, Folder, found_files
from rubricem.agent.sources.python import PythonDocs
from rubricem.memory.errors import SettingsError, SourceError


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    root = tmp_path / "documents"
    root.mkdir()
    (root / "bees.md").write_text("# Bees\n\n## Honey\n\nHoney keeps for years.\n")
    (root / "notes.txt").write_text("Wax melts at 62 degrees.\n")
    return root


async def test_passage_carries_file_and_heading(documents: Path, tmp_path: Path) -> None:
    (found,) = await Folder(documents, tmp_path / "cache").search("honey", 3)
    assert (found.title, found.location, found.place, found.text) == (
        "Bees",
        "bees.md",
        "Bees > Honey",
        "Honey keeps for years.",
    )


async def test_only_a_changed_file_is_read_again(documents: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    await Folder(documents, cache).search("honey", 1)
    kept = {p.name: p.stat().st_mtime_ns for p in cache.glob("*/documents/*")}
    (documents / "notes.txt").write_text("Wax melts at 63 degrees.\n")
    (found,) = await Folder(documents, cache).search("wax", 1)
    after = {p.name: p.stat().st_mtime_ns for p in cache.glob("*/documents/*")}
    assert "63" in found.text
    assert len(kept.items() & after.items()) == 1
    assert len(after) == 2


async def test_open_folder_sees_added_and_deleted_files(documents: Path, tmp_path: Path) -> None:
    source = Folder(documents, tmp_path / "cache", look_again=0.0)
    assert await source.search("honey", 1)
    (documents / "bees.md").unlink()
    (documents / "propolis.rst").write_text("Propolis\n========\n\nA resin that bees collect.\n")
    assert await source.search("honey", 1) == []
    assert [p.location for p in await source.search("resin", 1)] == ["propolis.rst"]


async def test_unreadable_pdf_is_a_problem_and_the_rest_works(
    documents: Path, tmp_path: Path
) -> None:
    (documents / "broken.pdf").write_bytes(b"%PDF-1.7 and then nothing")
    source = Folder(documents, tmp_path / "cache")
    assert len(await source.search("honey", 1)) == 1
    (problem,) = source.problems
    assert problem.startswith("broken.pdf: ")


async def test_wrong_encoding_is_read_and_noted(documents: Path, tmp_path: Path) -> None:
    (documents / "alt.txt").write_bytes("Die Königin schlüpft früh.".encode("cp1252"))
    source = Folder(documents, tmp_path / "cache")
    (found,) = await source.search("Königin", 1)
    assert found.text == "Die Königin schlüpft früh."
    assert source.problems == ("alt.txt is not UTF-8: read as Windows-1252.",)


async def test_empty_folder_says_what_to_put_there(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="has no documents") as caught:
        await Folder(tmp_path / "empty", tmp_path / "cache").search("x", 1)
    assert "pdf" in caught.value.remedy


async def test_folder_of_unreadable_documents_names_their_problems(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "scan.pdf").write_bytes(b"no pdf at all")
    with pytest.raises(SourceError, match="None of the 1 documents") as caught:
        await Folder(tmp_path / "bad", tmp_path / "cache").search("x", 1)
    assert "scan.pdf" in caught.value.remedy


async def test_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="There is no folder"):
        await Folder(tmp_path / "gone", tmp_path / "cache").search("x", 1)


def test_hidden_files_and_links_out_of_the_folder_are_left_out(
    documents: Path, tmp_path: Path
) -> None:
    (documents / ".hidden.md").write_text("secret")
    (documents / ".git").mkdir()
    (documents / ".git" / "notes.md").write_text("secret")
    (tmp_path / "outside.md").write_text("secret")
    (documents / "link.md").symlink_to(tmp_path / "outside.md")
    (documents / "inside.md").symlink_to(documents / "bees.md")
    found = [file.location for file in found_files(documents)]
    assert found == ["bees.md", "inside.md", "notes.txt"]


def test_large_file_is_a_problem(documents: Path, tmp_path: Path) -> None:
    with (documents / "big.txt").open("wb") as file:
        file.truncate(50_000_001)
    read = DocumentCache(tmp_path / "cache").read(found_files(documents), None)
    assert [file.problem for file in read if file.problem] == [
        "big.txt is larger than 50 MB. Split it."
    ]


def test_names_of_sources(documents: Path, tmp_path: Path) -> None:
    assert isinstance(open_source("python", tmp_path), PythonDocs)
    assert isinstance(open_source(str(documents), tmp_path), Folder)


@pytest.mark.parametrize("name", ["", "ruby", "/no/such/folder"])
def test_unknown_source_lists_what_is_possible(name: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="Unknown source") as caught:
        open_source(name, tmp_path)
    assert "`python`" in caught.value.remedy


def test_hybrid_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="needs an embedding model"):
        open_source("python", tmp_path, "hybrid")
    with pytest.raises(SettingsError, match="Unknown retrieval"):
        open_source("python", tmp_path, "fuzzy")
