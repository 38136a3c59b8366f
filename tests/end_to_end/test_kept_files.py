"""What commit 3f6f8c9 wrote still opens: a run, a broken run, a bank, a collection, a checkpoint.

`tests/data/commit_3f6f8c9.tar.xz` holds the files as that commit wrote them over the scripted
server and the tiny model. Only where they stand and the server's address are put right.
"""

import hashlib
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

from rubricem.agent.weights.checkpoints import Checkpoint
from rubricem.training.rounds.fit import train
from tests.conftest import ROOT, rubricem, unpack
from tests.support.policies import RUN, SUPPORTED
from tests.support.rows import config_of, policy_rows, quiet
from tests.support.scripted_server import ScriptedServer

WRITTEN_AT = "/tmp/old3f6f8c9"
ADDRESSES = {"data": "127.0.0.1:42317", "collect": "127.0.0.1:36763"}
ADAPTER = "adapter_model.safetensors"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files, unpacked."""
    with tarfile.open(ROOT / "tests" / "data" / "commit_3f6f8c9.tar.xz") as archive:
        unpack(archive, tmp_path)
    for path in tmp_path.rglob("request.json"):
        put(path, {WRITTEN_AT: str(tmp_path)})
    put(tmp_path / "collect" / "run" / "manifest.json", {WRITTEN_AT: str(tmp_path)})
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    return tmp_path


def put(path: Path, changes: dict[str, str]) -> None:
    text = path.read_text(encoding="utf-8")
    for old, new in changes.items():
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def answered_by(server: ScriptedServer, folder: Path, part: str) -> None:
    """Have the part's files name this server; addresses are of one length, as sizes are kept."""
    address = server.base_url.removeprefix("http://").removesuffix("/v1")
    assert len(address) == len(ADDRESSES[part])
    for path in (folder / part).rglob("*.json*"):
        put(path, {ADDRESSES[part]: address})


def test_a_finished_run_is_shown_with_its_citation(kept: Path):
    shown = rubricem("runs", "show", "finished").stdout
    assert "It is an unbounded cache [1]." in shown and "1 supported" in shown
    runs = json.loads(rubricem("runs", "--json").stdout)["runs"]
    listed = {run["thread"]: run["status"] for run in runs}
    assert listed == {"finished": "finished", "broken": "failed"}


def test_a_broken_run_begins_anew_since_its_prompts_are_no_longer_those(kept: Path):
    with ScriptedServer([*RUN, SUPPORTED]) as server:
        answered_by(server, kept, "data")
        done = rubricem("ask", "--resume", "broken", "--json")
        assert len(server.requests) == len(RUN) + 1, "another prompt brought what is kept"
    report = json.loads(done.stdout)
    assert report["status"] == "finished" and "an unbounded cache" in json.dumps(report)


def test_a_bank_has_its_items_in_their_states(kept: Path):
    listed = json.loads(rubricem("bank", "list", "--every", "--json").stdout)["reflections"]
    states = {item["id"]: item["state"] for item in listed if len(item["id"]) <= 4}
    assert states == {"live": "live", "old": "replaced", "new": "live", "bad": "quarantine"}
    assert "exact" in rubricem("bank", "show", "live").stdout
    (item,) = [item for item in listed if len(item["id"]) > 4]
    assert item["question"] == "What does functools.lru_cache do with maxsize=None?"


async def test_a_training_goes_on_from_a_checkpoint_to_the_same_weights(
    kept: Path, tiny: Path, one_thread: None
):
    folder = kept / "train"
    shutil.copy(tiny, folder / "tiny.gguf")
    run = folder / "run"
    moved(run, folder / "tiny.gguf")
    before = Checkpoint.for_llama(run / "checkpoints" / "000002")
    assert (before.step, before.method) == (2, "ss-grpo")
    expected = (run / "checkpoints" / "000002" / ADAPTER).read_bytes()
    # As if that commit had been killed after its first step.
    shutil.rmtree(run / "checkpoints" / "000002")
    (run / "last").unlink()
    (run / "last").symlink_to("checkpoints/000001")
    config = config_of(folder, folder / "tiny.gguf", policy_rows(4), epochs=2)
    trained = await train(config, "ss-grpo", quiet)
    assert trained.checkpoint.resolve().name == "000002"
    # To the last bits of a float only on a processor of the same kind.
    weights, theirs = load((trained.checkpoint / ADAPTER).read_bytes()), load(expected)
    assert weights.keys() == theirs.keys()
    for name, tensor in weights.items():
        np.testing.assert_allclose(tensor, theirs[name], rtol=1e-4, atol=1e-6, err_msg=name)


def moved(run: Path, base: Path) -> None:
    """Say of the base model where it stands now, in the checkpoints and in their lists of files."""
    put(run / "run.json", {f"{WRITTEN_AT}/train/tiny.gguf": str(base)})
    for checkpoint in (run / "checkpoints").iterdir():
        listed = json.loads((checkpoint / "files.json").read_text(encoding="utf-8"))
        for name in ("checkpoint.json", "adapter_config.json"):
            path = checkpoint / name
            put(path, {f"{WRITTEN_AT}/train/tiny.gguf": str(base)})
            held = path.read_bytes()
            listed[name] = [len(held), hashlib.sha256(held).hexdigest()]
        (checkpoint / "files.json").write_text(json.dumps(listed), encoding="utf-8")
