"""The examples, as far as they run without a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ENVIRONMENT, ROOT
from tests.support.scripted_server import Scripted, ScriptedServer
from tests.support.tiny import write_tiny, write_tokenizer
from tests.training.cli.test_collect import scripted

pytestmark = pytest.mark.slow
SEEN: dict[str, int] = {}


def judging(body: dict[str, Any], number: int) -> Scripted:
    """A judge that proposes one criterion and likes each text that it has not seen otherwise.

    Two rollouts of a question so never get the same scores, and one that is judged again, after
    a kill, gets what it had.
    """
    said = body["messages"][1]["content"]
    if "Criteria:" not in said:
        return scripted(body, number)
    points = SEEN.setdefault(said, len(SEEN)) % 3
    given = [{"number": n, "justification": "so it is", "points": points} for n in (1, 2)]
    return json.dumps({"verdicts": given})


def test_the_checks_of_a_first_gpu_pass_in_their_form_without_one(tmp_path: Path):
    write_tokenizer(tmp_path / "tokenizer")
    with ScriptedServer(judging) as judge:
        done = first(tmp_path, "--judge-base-url", judge.base_url)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    names = ["device", "ids", "logprobs", "refresh", "round", "fsdp, 1 ranks", "fsdp, 2 ranks"]
    assert [line.split("  ")[0].strip() for line in lines] == names
    assert all("  pass  " in line for line in lines)


def test_a_check_that_fails_is_told_and_ends_no_other(tmp_path: Path):
    (tmp_path / "tokenizer").mkdir()
    done = first(tmp_path, "--most-gap", "0", "--limit", "60")
    assert done.returncode == 1
    told = dict(line.split("  ", 1) for line in done.stdout.splitlines())
    assert "FAIL" in told["ids"] or "FAIL" in told["ids      "], told
    assert done.stdout.count("FAIL") >= 2 and "fsdp, 1 ranks" in done.stdout


def first(folder: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    model = write_tiny(folder / "tiny.gguf")
    told = {
        "MODEL": str(model), "WORK": str(folder / "work"), "PYTHON": sys.executable,
        "RUBRICEM_DATA_DIR": str(folder / "data"), "PYTHONPATH": str(ROOT / "src"),
    }  # fmt: skip
    return subprocess.run(
        ["bash", str(ROOT / "examples" / "first_gpu.sh"), "--cpu", "--tokenizer",
         str(folder / "tokenizer"), *flags],
        env={**os.environ, **ENVIRONMENT, **told}, capture_output=True, text=True, timeout=1500,
    )  # fmt: skip
