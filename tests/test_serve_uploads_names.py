"""Names under which nothing is stored: traversal, absolute paths, devices, Unicode tricks."""

from pathlib import Path

import pytest

from agent.serve.refusals import Refused
from agent.serve.routes_uploads import router
from agent.serve.upload_names import document_name, folder_name
from tests.serve_apps import served

HOSTILE = (
    "../../etc/passwd.md",
    "/etc/passwd.md",
    "..\\..\\x.md",
    "C:\\x.md",
    "a/b.md",
    "..",
    ".",
    "",
    "   ",
    ".hidden.md",
    "x.md.",
    "x.md.\u200b",
    "a\x00.md",
    "a\n.md",
    "a\x1b[2J.md",
    "evil\u202edm.exe.md",
    "zero\u200bwidth.md",
    "\u2024\u2024\u2215x.md",
    "\uff0e\uff0e\uff0fx.md",
    "\uff0fetc\uff0fx.md",
    "a\u2215b\uff0fc.md",
    "x\ud800.md",
    "con.md",
    "NUL.txt",
    "com1.md",
    "\uff43\uff4f\uff4e.md",
    "a:b.md",
    "a|b.md",
    "a*?.md",
    "<script>.md",
    '"quoted".md',
    "x" * 300 + ".md",
    "ü" * 100 + ".md",
)


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_hostile_name_is_refused(name: str):
    with pytest.raises(Refused) as caught:
        document_name(name)
    assert caught.value.status == 422
    assert str(caught.value).isprintable() and len(str(caught.value)) < 400


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_hostile_name_is_no_folder_either(name: str):
    with pytest.raises(Refused):
        folder_name(name)


@pytest.mark.parametrize("name", ["a.md", "Notes 2026-01 (draft).PDF", "日本語.txt", "a..b.md"])
def test_an_honest_name_is_kept(name: str):
    assert document_name(name) == name


def test_a_name_is_kept_in_its_composed_form():
    assert document_name("U\u0308ber.md") == "\u00dcber.md"
    assert folder_name(" notes ") == "notes"


@pytest.mark.parametrize("name", ["a.exe", "a", "a.md.sh", "a.svg", "a.zip"])
def test_other_kinds_are_refused(name: str):
    with pytest.raises(Refused, match="kind that is not read"):
        document_name(name)


@pytest.mark.parametrize("field", ["folder", "document"])
async def test_no_hostile_name_writes_anything_over_http(tmp_path: Path, field: str):
    async with served(router(tmp_path / "data")) as client:
        for name in HOSTILE:
            sent = name.encode("utf-8", "surrogatepass")
            folder, document = (sent, b"a.md") if field == "folder" else (b"notes", sent)
            body = (
                b'--x\r\nContent-Disposition: form-data; name="folder"\r\n\r\n' + folder + b"\r\n"
                b'--x\r\nContent-Disposition: form-data; name="documents"; filename="'
                + document.replace(b'"', b"%22") + b'"\r\n\r\ntext\r\n--x--\r\n'
            )  # fmt: skip
            kind = {"content-type": "multipart/form-data; boundary=x"}
            reply = await client.post("/api/uploads", headers=kind, content=body)
            made = reply.json()
            assert reply.status_code in (400, 422) or reply.status_code == 201, name
            if reply.status_code == 201:
                # A form strips a part of the name (a quoted-string's backslashes, a final space).
                assert made["documents"][0]["name"].isprintable()
    made_paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.parent.parent == tmp_path / "data" / "uploads" for path in made_paths)
