"""From the setting `embedder` to a model on disk: names, folders, the hub; no code is run."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.settings import load_settings
from agent.weights.catalogue import DEFAULT_EMBEDDER, known
from agent.weights.embedders import open_embedder, resolve_embedder
from agent.weights.resolving import fetch_named, resolve_model
from agent.weights.stored import listed, remove
from memory.errors import SettingsError, WeightsError
from tests.small_embedder import as_repository, write_small_embedder
from tests.weights_site import Site, serving


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_embedder(tmp_path_factory.mktemp("models") / "small", {"query": "find "})


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with serving(monkeypatch) as site:
        yield site


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
