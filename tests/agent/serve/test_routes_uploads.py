"""Documents uploaded over HTTP: taken, listed, searched by name, deleted, refused.

Nothing is stored under a name of traversal, absolute paths, devices or Unicode tricks. Uploads that
come at once share one limit: one is stored after another.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from rubricem.agent.serve import routes_uploads
from rubricem.agent.serve.desk import RunDesk, desk_of
from rubricem.agent.serve.requests import RunAsked
from rubricem.agent.serve.routes_uploads import REQUEST_BYTES
from rubricem.agent.settings import Settings
from rubricem.agent.sources.documents import Folder
from rubricem.memory.errors import SettingsError
from tests.support.pages import served

TEXT = b"# Heaps\n\nA heap is a tree."


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with uploads(tmp_path) as client:
        yield client


def uploads(folder: Path) -> AbstractAsyncContextManager[httpx.AsyncClient]:
    return served(routes_uploads.routes, {desk_of: RunDesk(Settings(data_dir=folder))})


async def sent(
    client: httpx.AsyncClient, *documents: tuple[str, bytes], folder: str = "notes"
) -> httpx.Response:
    files = [("documents", document) for document in documents]
    return await client.post("/api/uploads", data={"folder": folder}, files=files)


async def names(client: httpx.AsyncClient) -> dict[str, list[str]]:
    uploads = (await client.get("/api/uploads")).json()["uploads"]
    return {u["name"]: [document["name"] for document in u["documents"]] for u in uploads}


async def test_documents_are_stored_and_listed_and_usable_by_name(
    client: httpx.AsyncClient, tmp_path: Path
):
    assert (await client.get("/api/uploads")).json()["uploads"] == []
    reply = await sent(client, ("heap.md", TEXT), ("Überblick 1.txt", b"more"))
    assert reply.status_code == 201
    told = reply.json()
    assert (told["source"], told["name"], told["bytes"]) == ("upload:notes", "notes", 30)
    assert await names(client) == {"notes": ["heap.md", "Überblick 1.txt"]}
    assert (tmp_path / "uploads" / "notes" / "heap.md").read_bytes() == TEXT
    asked = RunAsked(question="?", source=("upload:notes",))
    [source] = asked.change(Settings(data_dir=tmp_path)).source
    found = await Folder(Path(source), tmp_path / "cache").search("heap tree", 3)
    assert [passage.location for passage in found] == ["heap.md"]


@pytest.mark.parametrize("source", ["/etc", "upload:../..", "uploads/notes", "upload:", "~"])
async def test_no_other_folder_is_a_source(tmp_path: Path, source: str):
    (tmp_path / "uploads" / "notes").mkdir(parents=True)
    with pytest.raises(SettingsError, match="There is no source"):
        RunAsked(question="?", source=(source,)).change(Settings(data_dir=tmp_path))


async def test_documents_join_a_folder_replace_those_of_their_name_and_are_deleted(
    client: httpx.AsyncClient, tmp_path: Path
):
    await sent(client, ("a.md", b"one"), ("b.md", b"two"))
    await sent(client, ("b.md", b"three"), ("c.md", b"four"))
    assert await names(client) == {"notes": ["a.md", "b.md", "c.md"]}
    assert (tmp_path / "uploads" / "notes" / "b.md").read_bytes() == b"three"
    assert (await client.delete("/api/uploads/notes/a.md")).json() == {"removed": "a.md"}
    assert await names(client) == {"notes": ["b.md", "c.md"]}
    assert (await client.delete("/api/uploads/notes")).json() == {"removed": "notes"}
    assert list((tmp_path / "uploads").iterdir()) == []
    for path in ("notes", "notes/b.md", "..%2f..", "none", "%2e%2e"):
        assert (await client.delete(f"/api/uploads/{path}")).status_code in (404, 405)


async def test_of_a_set_with_a_document_of_no_known_kind_nothing_is_kept(
    client: httpx.AsyncClient, tmp_path: Path
):
    reply = await sent(client, ("good.md", b"x"), ("bad.exe", b"MZ"))
    assert reply.status_code == 422 and "an unsupported kind" in reply.json()["error"]
    assert "pdf" in reply.json()["remedy"] and not (tmp_path / "uploads").exists()


async def test_a_link_is_neither_listed_nor_followed_nor_written_through(
    client: httpx.AsyncClient, tmp_path: Path
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("secret")
    await sent(client, ("a.md", b"x"))
    notes = tmp_path / "uploads" / "notes"
    (tmp_path / "uploads" / "linked").symlink_to(outside)
    (notes / "secret.md").symlink_to(outside / "secret.md")
    assert await names(client) == {"notes": ["a.md"]}
    assert (await client.delete("/api/uploads/linked")).status_code == 404
    assert (await client.delete("/api/uploads/notes/secret.md")).status_code == 404
    assert (await sent(client, ("new.md", b"x"), folder="linked")).status_code == 409
    assert (await sent(client, ("secret.md", b"mine"))).status_code == 201
    assert (outside / "secret.md").read_text() == "secret"
    assert sorted(path.name for path in outside.iterdir()) == ["secret.md"]
    assert not (notes / "secret.md").is_symlink()


async def test_what_a_kill_left_is_not_listed_and_goes_with_its_folder(
    client: httpx.AsyncClient, tmp_path: Path
):
    await sent(client, ("a.md", b"x"))
    (tmp_path / "uploads" / "notes" / ".a.md.0123").write_text("half")
    assert await names(client) == {"notes": ["a.md"]}
    assert (await client.delete("/api/uploads/notes")).status_code == 200
    assert list((tmp_path / "uploads").iterdir()) == []


async def test_a_body_larger_than_is_taken_is_refused_while_it_is_read(
    client: httpx.AsyncClient, tmp_path: Path
):
    kind = {"content-type": "multipart/form-data; boundary=x"}
    begin, read = DOCUMENT.removesuffix(b"x\r\n"), 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        yield begin
        while True:
            read += 1_000_000
            yield b"x" * 1_000_000

    late = await client.post("/api/uploads", headers=kind, content=endless())
    assert late.status_code == 413
    assert REQUEST_BYTES <= read < REQUEST_BYTES + 3_000_000
    assert not (tmp_path / "uploads").exists()


def part(name: str, text: str = "x", more: str = "") -> bytes:
    """A field of a form whose boundary is x."""
    return f'--x\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{text}\r\n'.encode()


FORM = "multipart/form-data"
DOCUMENT, FOLDER, END = part("documents", more='; filename="a.md"'), part("folder"), b"--x--\r\n"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{}"),
        ("", b"x"),
        (FORM, DOCUMENT),
        (f"{FORM}; boundary=x", b"no part of it"),
        (f"{FORM}; boundary=x", DOCUMENT + part("path", "/etc") + END),
    ],
)
async def test_a_malformed_body_is_a_sentence(
    client: httpx.AsyncClient, kind: str, body: bytes, tmp_path: Path
):
    headers = {"content-type": kind} if kind else {}
    reply = await client.post("/api/uploads", headers=headers, content=body)
    assert reply.status_code in (400, 422)
    told: dict[str, Any] = reply.json()
    assert told["error"].endswith(".") and told["remedy"]
    assert not (tmp_path / "uploads").exists()


HOSTILE = (
    "../../etc/passwd.md", "/etc/passwd.md", "..\\..\\x.md", "C:\\x.md", "a/b.md", "..", ".", "",
    "   ", ".hidden.md", "x.md.", "x.md.\u200b", "a\x00.md", "a\n.md", "a\x1b[2J.md",
    "evil\u202edm.exe.md", "zero\u200bwidth.md", "\u2024\u2024\u2215x.md", "\uff0e\uff0e\uff0fx.md",
    "\uff0fetc\uff0fx.md", "a\u2215b\uff0fc.md", "x\ud800.md", "con.md", "NUL.txt", "com1.md",
    "\uff43\uff4f\uff4e.md", "a:b.md", "a|b.md", "a*?.md", "<script>.md", '"quoted".md',
    "x" * 300 + ".md", "ü" * 100 + ".md",
)  # fmt: skip


@pytest.mark.parametrize("field", ["folder", "document"])
async def test_no_hostile_name_writes_anything_over_http(tmp_path: Path, field: str):
    async with uploads(tmp_path / "data") as client:
        for name in HOSTILE:
            sent = name.encode("utf-8", "surrogatepass")
            folder, document = (sent, b"a.md") if field == "folder" else (b"notes", sent)
            named = DOCUMENT.replace(b"a.md", document.replace(b'"', b"%22"))
            body = FOLDER.replace(b"\r\nx\r", b"\r\n" + folder + b"\r") + named + END
            kind = {"content-type": f"{FORM}; boundary=x"}
            reply = await client.post("/api/uploads", headers=kind, content=body)
            made = reply.json()
            assert reply.status_code in (400, 422) or reply.status_code == 201, name
            if reply.status_code == 201:
                # A form strips a part of the name (a quoted-string's backslashes, a final space).
                assert made["documents"][0]["name"].isprintable()
    made_paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.parent.parent == tmp_path / "data" / "uploads" for path in made_paths)


MOST = 3000
BODY = b"x" * 900


@pytest.fixture
def full(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> httpx.AsyncClient:
    monkeypatch.setattr(routes_uploads, "ALL_BYTES", MOST)
    return client


async def put(client: httpx.AsyncClient, number: int, body: bytes = BODY) -> int:
    return (await sent(client, (f"{number}.md", body), folder=f"f{number}")).status_code


def held(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "uploads").glob("*/*"))


async def test_uploads_at_once_stay_below_the_limit_together(
    full: httpx.AsyncClient, tmp_path: Path
):
    statuses = await asyncio.gather(*(put(full, number) for number in range(12)))
    assert set(statuses) == {201, 413}
    assert held(tmp_path) == 900 * statuses.count(201) <= MOST
