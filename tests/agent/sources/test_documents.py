import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from rubricem.agent.sources.choice import Sources
from rubricem.agent.sources.documents import Folder, fetch_repository, find_files
from rubricem.memory.errors import SettingsError, SourceError
from tests.support.sites import git
from tests.support.waiting import descendants, name_of


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    root = tmp_path / "documents"
    root.mkdir()
    (root / "bees.md").write_text("# Bees\n\n## Honey\n\nHoney keeps for years.\n")
    (root / "notes.txt").write_text("Wax melts at 62 degrees.\n")
    return root


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


async def test_a_changed_file_has_only_its_part_of_a_large_folder_indexed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rubricem.agent.sources.documents.PART_FILES", 10)
    root, cache = tmp_path / "notes", tmp_path / "cache"
    root.mkdir()
    for i in range(11):
        (root / f"{i}.md").write_text(f"# Note {i}\n\nThe lamp number{i} is lit.\n")
    (root / "alt.txt").write_bytes("Königin".encode("cp1252"))
    source = Folder(root, cache)
    assert len(await source.prepare()) == 1
    before = {*cache.glob("*/passages-*")}
    (root / "7.md").write_text("# Note 7\n\nThe lamp is broken.\n")
    again = Folder(root, cache)
    assert await again.prepare() == source.problems, "notes are kept with what they are about"
    after = {*cache.glob("*/passages-*")}
    assert (len(before), len(after), len(before & after)) == (2, 2, 1)
    found = [(await again.search(q, 1))[0].location for q in ("broken", "number8", "number9")]
    assert found == ["7.md", "8.md", "9.md"]
    assert "lit" not in (await again.search("Note 7", 1))[0].text


async def test_open_folder_sees_added_and_deleted_files(documents: Path, tmp_path: Path) -> None:
    source = Folder(documents, tmp_path / "cache", look_again=0.0)
    assert await source.search("honey", 1)
    (documents / "bees.md").unlink()
    (documents / "propolis.rst").write_text("Propolis\n========\n\nA resin that bees collect.\n")
    assert await source.search("honey", 1) == []
    assert [p.location for p in await source.search("resin", 1)] == ["propolis.rst"]


async def test_what_cannot_be_read_or_had_to_be_guessed_at_is_a_problem_and_the_rest_works(
    documents: Path, tmp_path: Path
) -> None:
    (documents / "alt.txt").write_bytes("Die Königin schlüpft früh.".encode("cp1252"))
    with (documents / "big.txt").open("wb") as file:
        file.truncate(50_000_001)
    (documents / "broken.pdf").write_bytes(b"%PDF-1.7 and then nothing")
    source = Folder(documents, tmp_path / "cache")
    assert len(await source.search("honey", 1)) == 1
    read, large, broken = source.problems
    assert source.reading == (read,)
    for told in ("read 3 files", "big.txt", "broken.pdf", "alt.txt is not UTF-8: read as Windows"):
        assert told in read
    assert large == "big.txt is larger than 50 MB. Split it."
    assert broken.startswith("broken.pdf: ")
    (found,) = await source.search("Königin", 1)
    assert found.text == "Die Königin schlüpft früh."


@pytest.mark.parametrize(
    ("folder", "content", "said", "remedy"),
    [
        ("empty", None, "has no documents", "pdf"),
        ("bad", b"no pdf at all", "None of the 1 documents", "scan.pdf"),
        (
            "old",
            b"\xd0\xcf",
            r"can be read: 1 \.doc \(a \.docx can be read\)",
            "pdf",
        ),
        ("gone", None, "There is no folder", "existing"),
    ],
)
async def test_a_folder_without_a_document_that_can_be_read_says_what_to_do(
    folder: str, content: bytes | None, said: str, remedy: str, tmp_path: Path
) -> None:
    if folder != "gone":
        (tmp_path / folder).mkdir()
    if content:
        name = "old.doc" if folder == "old" else "scan.pdf"
        (tmp_path / folder / name).write_bytes(content)
    with pytest.raises(SourceError, match=said) as caught:
        await Folder(tmp_path / folder, tmp_path / "cache").search("x", 1)
    assert remedy in caught.value.remedy


async def test_what_is_not_read_is_counted_by_kind_in_one_line(
    documents: Path, tmp_path: Path
) -> None:
    for name in ("a.doc", "b.7z", "c.7z", "d.png", "e.png", "f.pyc", "g.odd", ".h.odd", "~$i.docx"):
        (documents / name).write_bytes(b"\0\1\2")
    (documents / "program").write_bytes(b"\x7fELF\0\0")
    (documents / "README").write_text("Drones have no sting.\n")
    (documents / "empty.md").touch()
    source = Folder(documents, tmp_path / "cache")
    assert [p.location for p in await source.search("sting", 1)] == ["README"]
    (read,) = source.problems
    assert source.reading == (read,)
    head, _, unread = read.partition("; not read: ")
    assert head == "read 3 files of documents"
    assert unread.rstrip(".").split(", ") == [
        "2 .7z (a .zip can be read)", "2 pictures", "2 programs", "1 .doc (a .docx can be read)",
        "1 .odd", "1 empty file",
    ]  # fmt: skip


STORY = (
    "The queen of a hive lays up to two thousand eggs on a warm day in May, and lives for "
    "about four years, while a worker of the summer is worn out within six weeks."
)


async def test_one_text_in_several_formats_is_one_source(documents: Path, tmp_path: Path) -> None:
    (documents / "queen.md").write_text(
        f"---\ntitle: Queens\ntags: [hive]\n---\n\n# Eggs\n\n{STORY}\n"
    )
    (documents / "queen.html").write_text(f"<title>Eggs</title><h1>Eggs</h1><p>{STORY}</p>")
    (documents / "copy.txt").write_text(STORY)
    newer = STORY.replace("six weeks", "seven weeks")
    (documents / "newer.txt").write_text(newer)
    source = Folder(documents, tmp_path / "cache")
    assert [p.location for p in await source.search("hive worn out six weeks", 1)] == ["queen.md"]
    found = [p.location for p in await source.search("seven weeks", 1)]
    assert found == ["newer.txt"], "a new version of a text is no copy of it"
    copies = "2 files say the same as others, which are one source each: "
    assert source.problems == (f"{copies}copy.txt as queen.md, queen.html as queen.md.",)
    for name in ("anna", "berta", "clara", "dora"):
        told = f"Page of {name}. {STORY.replace('queen', f'queen {name}')}"
        for end in ("txt", "html"):
            (documents / f"{name}.{end}").write_text(told)
    [said] = await Folder(documents, tmp_path / "cache").prepare()
    assert said.startswith(copies.replace("2", "6")) and "anna.txt as anna.html" in said
    assert said.endswith(" and 3 more.")


def test_what_a_website_was_built_with_is_no_document_beside_its_pages(tmp_path: Path) -> None:
    pages = ("index.html", "library/queue.html", "_downloads/data.txt", "_static/manual.txt")
    generated = ("searchindex.js", "search.html", "genindex.html", "genindex-A.html",
                 "_sources/index.rst.txt", "_sources/library/queue.rst.txt",
                 "_static/documentation_options.js", "guide/search/search_index.json")  # fmt: skip
    own = ("notes/_sources/letters.txt", "notes/search.html", "guide/search/more.html")
    for name in (*pages, *generated, *own):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    found = find_files(tmp_path)
    assert [file.location for file in found.files] == sorted((*pages, *own))
    assert found.unread == {"generated part": 7}


def test_hidden_files_and_links_out_of_the_folder_are_left_out(
    documents: Path, tmp_path: Path
) -> None:
    (documents / ".hidden.md").write_text("secret")
    (documents / ".git").mkdir()
    (documents / ".git" / "notes.md").write_text("secret")
    (tmp_path / "outside.md").write_text("secret")
    (documents / "link.md").symlink_to(tmp_path / "outside.md")
    (documents / "inside.md").symlink_to(documents / "bees.md")
    found = [file.location for file in find_files(documents).files]
    assert found == ["bees.md", "inside.md", "notes.txt"]


def test_a_branch_that_is_called_as_an_option_runs_nothing(tmp_path: Path) -> None:
    there, program = tmp_path / "there", tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o700)
    there.mkdir()
    git(there, "init")
    git(there, "commit", "--allow-empty", "-m", "one")
    git(there, "update-ref", f"refs/heads/--upload-pack={program}", "HEAD")
    for _ in range(2):  # fetched anew, it is asked for by its name
        fetch_repository(f"{there}#--upload-pack={program}", tmp_path / "cache")
    assert not (tmp_path / "ran").exists()


async def test_a_repository_is_read_as_its_newest_files_and_known_ones_stand_in(
    tmp_path: Path,
) -> None:
    from rubricem.agent.sources.choice import open_source

    there, cache = tmp_path / "there", tmp_path / "data" / "indexes"
    there.mkdir()
    (tmp_path / "secret.md").write_text("# Secret\nNobody may dance.\n")
    (there / "bees.md").write_text("# Bees\nBees dance.\n")
    (there / "out.md").symlink_to(tmp_path / "secret.md")
    git(there, "init")
    git(there, "add", "-A")
    git(there, "commit", "-m", "one")

    async def found(name: str) -> list[str]:
        tool = open_source(name, cache)
        await tool.prepare()
        return [passage.text for passage in await tool.search("who may dance", 5)]

    assert await found(f"git:{there}") == ["Bees dance."]
    (there / "bees.md").write_text("# Bees\nWasps dance.\n")
    git(there, "commit", "-am", "two")
    assert await found(f"git:{there}#main") == ["Wasps dance."]
    there.rename(tmp_path / "gone")
    assert await found(f"git:{there}#main") == ["Wasps dance."]
    with pytest.raises(SourceError, match=r"cannot be fetched: .*does not (exist|appear)"):
        open_source("git:/no/such/repository", cache)
    with pytest.raises(SourceError, match="cannot be fetched"):
        open_source(f"git:ext::touch {tmp_path}/ran", cache)
    assert not (tmp_path / "ran").exists()
    with pytest.raises(SettingsError, match="holds a password"):
        open_source("git:https://me:pw@git.example/x", cache)
    with pytest.raises(SettingsError, match="holds a password or token") as refused:
        Sources(("git:https://ghp_secret@git.example/x",)).check()
    assert "ghp" not in str(refused.value)
    Sources(("git:ssh://git@git.example/x",)).check()


@pytest.mark.slow
def test_a_repository_that_names_files_without_end_is_refused_before_they_are_written(
    tmp_path: Path,
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    git(there, "init")
    (there / "a").write_text("word " * 1000)
    git(there, "add", "a")
    git(there, "commit", "-m", "one")
    with pytest.raises(SourceError, match="more than"):
        fetch_repository(str(there), tmp_path / "cache", most_bytes=4999)
    kind, named = "blob", told(there, "rev-parse", "HEAD:a")
    for _ in range(5):  # each folder holds the one before eleven times
        lines = "".join(
            f"{'100644' if kind == 'blob' else '040000'} {kind} {named}\t{n}\n" for n in range(11)
        )
        kind, named = "tree", told(there, "mktree", said=lines)
    git(there, "update-ref", "refs/heads/main", told(there, "commit-tree", named, "-m", "two"))
    with pytest.raises(SourceError, match="more than 100,000 files") as refused:
        fetch_repository(str(there), tmp_path / "cache")
    assert refused.value.remedy
    assert not list((tmp_path / "cache").iterdir())


def test_what_fetches_a_repository_ends_with_its_time(tmp_path: Path) -> None:
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        with pytest.raises(SourceError, match="no end within 1 s"):
            fetch_repository(address, tmp_path / "cache", seconds=1.0)
        assert not [pid for pid in descendants(os.getpid()) if "git" in name_of(pid)]
    assert time.monotonic() - began < 30


def told(folder: Path, *arguments: str, said: str = "") -> str:
    person = ("-c", "user.name=a", "-c", "user.email=a@b")
    command = ["git", *person, *arguments]
    return subprocess.check_output(command, cwd=folder, input=said, text=True).strip()
