"""The training files that the docs show are read as the command reads them."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.test_docs import PAGES, TOML
from training.judge_training.config import read_distil, read_grpo
from training.local.config import Method
from training.rounds.job import build_job

SETTINGS = ("# rubricem.toml", "# ~/.config/rubricem/rubricem.toml")
METHODS: dict[str, Method] = {
    "# sft.toml": "sft",
    "# grpo.toml": "ss-grpo",
    "# rounds.toml": "ss-grpo",
}
READ = {"# distil.toml": read_distil, "# judge-grpo.toml": read_grpo}
"""of the judge, whose tables have readers of their own"""
SHOWN = [
    pytest.param(block, id=f"{page.stem}-{block.splitlines()[0].strip('# ')}")
    for page in PAGES
    for block in TOML.findall(page.read_text(encoding="utf-8"))
    if block.splitlines()[0] not in SETTINGS
]


@pytest.mark.parametrize("block", SHOWN)
def test_a_training_file_that_is_shown_is_one(block: str, tmp_path: Path) -> None:
    for folder in ("run", "taught"):  # collected runs, by their manifest
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "manifest.json").touch()
    values = tomllib.loads(block)
    if read := READ.get(block.splitlines()[0]):
        (tmp_path / "judge.toml").write_text(block, encoding="utf-8")
        config, told = read(tmp_path / "judge.toml")
        assert (config.out, config.judge) == (tmp_path / values["out"], "full")
        assert told.pairs == (tmp_path / "preferences.jsonl",)
        return
    job = build_job(values, tmp_path, METHODS[block.splitlines()[0]])
    assert (job.rounds is not None) == ("rounds" in values)
    assert job.config.out == tmp_path / values["out"]
    named = {name: values[name] for name in ("learning_rate", "batch", "epochs") if name in values}
    assert {name: getattr(job.config, name) for name in named} == named


def test_each_kind_of_training_is_shown() -> None:
    shown = {str(each.values[0]).splitlines()[0] for each in SHOWN}
    assert shown == {*METHODS, *READ}


def test_every_command_of_the_page_names_a_file_that_it_shows() -> None:
    text = (PAGES[0].parent / "docs" / "training.md").read_text(encoding="utf-8")
    named = re.findall(r"train (sft|ss-grpo) (\w+\.toml)$", text, re.MULTILINE)
    assert named
    assert all(METHODS[f"# {file}"] == method for method, file in named)
