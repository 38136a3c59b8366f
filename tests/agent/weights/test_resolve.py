"""From names to weights: the hub's names, local files, what lies on disk, the command line.

From the setting `embedder` to a model on disk: names, folders, the hub; no code is run.
"""

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from rubricem.agent.cli.models import models, shown_fetch
from rubricem.agent.settings import load_settings
from rubricem.agent.weights.catalogue import CATALOGUE, DEFAULT_EMBEDDER, known, recorded, verify
from rubricem.agent.weights.download import fetch
from rubricem.agent.weights.resolve import (
    fetch_named,
    listed,
    obtain,
    open_embedder,
    remove,
    resolve_embedder,
    resolve_model,
    weights_dir,
)
from rubricem.memory.errors import SettingsError, WeightsError
from tests.support.sites import WHOLE, Site, in_pieces, on_hub, serving, sha256
from tests.support.tiny import as_repository, write_small_embedder


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with serving(monkeypatch) as site:
        yield site


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


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_embedder(tmp_path_factory.mktemp("models") / "small", {"query": "find "})


def put_on_hub(site: Site, small: Path, repo: str) -> None:
    files, listing = as_repository(small)
    site.files[f"/hub/api/models/{repo}"] = listing
    for name, content in files.items():
        site.files[f"/hub/{repo}/resolve/abc/{name}"] = content


async def test_a_model_of_the_hub_is_fetched_once_and_then_read_offline(
    site: Site, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    put_on_hub(site, small, "Qwen/Qwen3-Embedding-0.6B")
    embedder = await open_embedder("qwen3-0.6b", directory=tmp_path)
    assert embedder.name.startswith("Qwen--Qwen3-Embedding-0.6B-")
    assert embedder.embed(["cache"], query=True).shape == (1, 5)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    again = await open_embedder("Qwen/Qwen3-Embedding-0.6B", directory=tmp_path)
    assert again.name == embedder.name
    assert remove("qwen3-0.6b", tmp_path) > 0


async def test_a_bare_name_belongs_to_the_librarys_organisation(
    site: Site, small: Path, tmp_path: Path
):
    put_on_hub(site, small, "sentence-transformers/tiny")
    folder = await resolve_embedder("tiny", directory=tmp_path)
    assert folder.name.startswith("sentence-transformers--tiny-")


async def test_an_embedder_is_no_policy_and_a_policy_no_embedder(
    site: Site, small: Path, tmp_path: Path
):
    put_on_hub(site, small, "org/tiny")
    with pytest.raises(SettingsError, match="is an embedder and writes no text"):
        await resolve_model("org/tiny", directory=tmp_path)
    with pytest.raises(SettingsError, match=r"qwen2\.5-coder-1\.5b is no embedding model"):
        await resolve_embedder("1.5b", directory=tmp_path)


async def test_the_commands_for_weights_know_embedders(site: Site, small: Path, tmp_path: Path):
    put_on_hub(site, small, "org/tiny")
    folder = await fetch_named("org/tiny", directory=tmp_path)
    assert folder == await resolve_embedder("org/tiny", directory=tmp_path)
    assert [row.state for row in listed(tmp_path) if row.weights.name == "org/tiny"] == ["here"]


async def test_without_a_network_the_sentence_says_what_else_can_be_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(
        WeightsError, match=r"embedding model qwen3-0\.6b cannot be fetched"
    ) as told:
        await resolve_embedder("qwen3-0.6b", directory=tmp_path)
    assert DEFAULT_EMBEDDER in told.value.remedy and "folder" in told.value.remedy


async def test_a_file_that_is_not_the_hubs_is_refused(site: Site, small: Path, tmp_path: Path):
    put_on_hub(site, small, "org/tiny")
    site.files["/hub/org/tiny/resolve/abc/modules.json"] = b"[]"
    with pytest.raises(WeightsError, match=r"another file in the place of modules\.json"):
        await resolve_embedder("org/tiny", directory=tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_weights_that_could_hold_code_are_not_fetched(
    site: Site, small: Path, tmp_path: Path
):
    entries = [{"rfilename": name} for name in ("modules.json", "pytorch_model.bin", "x.py")]
    listing = {"sha": "abc", "siblings": entries}
    site.files["/hub/api/models/org/old"] = json.dumps(listing).encode()
    with pytest.raises(WeightsError, match="has no safetensors weights"):
        await resolve_embedder("org/old", directory=tmp_path)


async def test_a_model_that_brings_code_is_refused_before_it_is_loaded(tmp_path: Path):
    (tmp_path / "modules.json").write_text('[{"type": "custom.Evil", "path": ""}]')
    (tmp_path / "custom.py").write_text("raise SystemExit('ran')\n")
    with pytest.raises(WeightsError, match=r"brings code of its own \(custom\.Evil\)"):
        await resolve_embedder(str(tmp_path))


async def test_a_folders_name_changes_with_what_is_in_it(small: Path, tmp_path: Path):
    first, again = [(await open_embedder(str(small))).name for _ in range(2)]
    other = write_small_embedder(tmp_path / "small")
    assert first == again != (await open_embedder(str(other))).name
    assert first.startswith("small-")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "No embedding model is called ''"),
        ("a/b/c", "No embedding model is called 'a/b/c'"),
        ("org/tiny:x.gguf", "No embedding model is called"),
        ("./none", "There is no folder none"),
        ("~/none", "There is no folder .*/none"),
    ],
)
async def test_a_name_that_means_nothing_is_said(name: str, reason: str, tmp_path: Path):
    with pytest.raises(SettingsError, match=reason) as told:
        await resolve_embedder(name, directory=tmp_path)
    assert "Set embedder to" in told.value.remedy


@pytest.mark.parametrize("modules", [None, "no json", "{}", '[{"path": ""}]'])
async def test_a_folder_without_a_whole_model_is_said(modules: str | None, tmp_path: Path):
    if modules is not None:
        (tmp_path / "modules.json").write_text(modules)
    reason = "is no sentence-transformers model" if modules is None else r"modules.json is damaged"
    with pytest.raises(WeightsError, match=reason):
        await resolve_embedder(str(tmp_path))


async def test_a_folder_in_the_way_does_not_take_the_defaults_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "all-minilm-l6-v2").mkdir()
    monkeypatch.chdir(tmp_path)
    weights = known(DEFAULT_EMBEDDER)
    assert weights is not None and weights.embedder
    (tmp_path / weights.folder).mkdir()
    with pytest.raises(WeightsError, match="lacks its file"):
        await resolve_embedder(directory=tmp_path)


def test_the_embedder_is_a_setting(monkeypatch: pytest.MonkeyPatch):
    assert load_settings().embedder == DEFAULT_EMBEDDER
    monkeypatch.setenv("RUBRICEM_EMBEDDER", "qwen3-0.6b")
    assert load_settings().embedder == "qwen3-0.6b"
