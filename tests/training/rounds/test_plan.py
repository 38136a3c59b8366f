"""`rubricem train ... --dry-run`: what would run where, and what cannot, in a sentence each."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rubricem.agent.cli import main
from rubricem.training.local.load import MemoryNeed
from rubricem.training.local.local_config import EngineConfig
from tests.support.rows import policy_rows, row
from tests.support.rows import written as write_rows
from tests.support.tiny import write_tiny
from tests.training.local.test_load import folder_of

SERVED = {"base_url": "http://localhost:1/v1", "model": "m", "refresh": "vllm-lora"}
ASKED = [f"Which rule is number {number}?" for number in range(6)]


def configured(folder: Path, engine: dict[str, Any], rounds: dict[str, Any] | None) -> Path:
    write_tiny(folder / "tiny.gguf")
    (folder / "asked.txt").write_text("\n".join(ASKED))
    (folder / "documents").mkdir()
    values = {"out": "out", "model": "tiny.gguf", "dtype": "float32", **engine}
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    table = {"questions": "asked.txt", "rounds": 9, "source": ["documents"], **(rounds or {})}
    told = [f"{name} = {json.dumps(value)}" for name, value in table.items()]
    path = folder / "train.toml"
    path.write_text("\n".join([*lines, *(["[rounds]", *told] if rounds is not None else [])]))
    return path


def dry_run(path: Path) -> Result:
    return CliRunner().invoke(main, ["train", "ss-grpo", str(path), "--dry-run"])


def test_a_dry_run_says_what_runs_where_and_writes_nothing(tmp_path: Path) -> None:
    rounds = {"held_out": "held.txt", "judge_base_url": "http://j:1/v1", "judge_model": "large"}
    path = configured(tmp_path, {"max_row_tokens": 1000}, rounds)
    (tmp_path / "held.txt").write_text(ASKED[0])
    lines = dry_run(path).stdout
    memory = MemoryNeed.of(EngineConfig(out=tmp_path, dtype="float32"), tmp_path / "tiny.gguf")
    for said in (
        "tiny.gguf, 0.00 billion parameters in float32",
        "trains: an adapter, cpu",
        f"{memory.fixed / 1e9:.3g} GB for the model",
        f"{memory.token / 1e6:.3g} GB for a row of 1,000 tokens",
        "9 of 4 questions, 4 rollouts of each; 5 questions are asked 7.2 times, 1 are held out",
        "samples: llama.cpp on the processors",
        f"searches: {tmp_path / 'documents'}",
        "judges and scores reflections: large at http://j:1/v1, by stage",
    ):
        assert said in lines
    assert "second" not in lines and "minute" not in lines, "no time that nobody has measured"
    assert not (tmp_path / "out").exists()


def test_a_dry_run_of_rows_counts_its_steps(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [*policy_rows(6), row(7)])
    path = configured(tmp_path, {"rows": ["rows.jsonl"], "batch": 1, "epochs": 2}, None)
    assert "rows: 6 of files in 6 steps" in dry_run(path).stdout


@pytest.mark.parametrize(
    ("engine", "rounds", "fault"),
    [
        ({"model": "bare"}, SERVED, "bare has a config.json and no model.safetensors"),
        ({"model": "parted"}, SERVED, "has a config.json and no b.safetensors"),
        ({"model": "sound"}, {}, "nothing here samples from .*sound, a folder of safetensors"),
        ({"adaptation": "full"}, SERVED, "takes an adapter, and all weights are trained"),
        ({"max_row_tokens": 10**12}, {}, "a row of 1,000,000,000,000 tokens takes"),
        ({}, {"questions_per_round": 7}, "has 6 questions to train on, of 7 for a round"),
        ({}, {"windows": 2}, "has 6 questions to train on, of 8 for 2 rounds of a window"),
        ({}, {"questions": "none.txt"}, "none.txt cannot be read"),
        ({}, {"source": ["documants"]}, "Unknown source 'documants'"),
        ({}, {"judge": "stages"}, "There is no judge 'stages'"),
        ({"trackers": ["trackio"]}, {}, "That tracker needs trackio, which is not installed"),
        ({"rows": ["none.jsonl"]}, None, "none.jsonl cannot be read"),
        ({"rows": ["sft.jsonl"]}, None, "there is no row to train on by ss-grpo"),
    ],
)
def test_what_cannot_run_is_refused_before_it_begins(
    tmp_path: Path, engine: dict[str, Any], rounds: dict[str, Any] | None, fault: str
) -> None:
    for name in ("bare", "parted", "sound"):
        folder_of(tmp_path / name, "qwen3")
    (tmp_path / "bare" / "model.safetensors").unlink()
    index = {"weight_map": {"x": "model.safetensors", "y": "b.safetensors"}}
    (tmp_path / "parted" / "model.safetensors.index.json").write_text(json.dumps(index))
    write_rows(tmp_path / "sft.jsonl", [row(0)])
    path = configured(tmp_path, engine, rounds)
    refused = dry_run(path)
    first, *remedy = refused.stderr.removeprefix("error: ").splitlines()
    assert refused.exit_code == 2 and re.search(fault, first) and remedy
    assert not (tmp_path / "out").exists()
