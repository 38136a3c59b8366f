"""The way to an 8B in examples/rubricem_8b: its parts, and the whole with tiny models."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import pytest

from rubricem.agent.cli import main
from rubricem.training.rounds.rounds_config import TrainingJob
from tests.conftest import ENVIRONMENT, ROOT

FOLDER = ROOT / "examples" / "rubricem_8b"


def module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    return found


def rehearse(*flags: str, timeout: float) -> str:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "rehearse.py"), *flags], capture_output=True, text=True,
        env={**os.environ, **ENVIRONMENT}, timeout=timeout,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_what_takes_seconds_of_the_rehearsal_passes() -> None:
    told = rehearse("--quick", timeout=300)
    assert [line.split()[0] for line in told.splitlines()] == [
        "questions.py", "judge.sh", "rl.sh", "cost.py",
    ]  # fmt: skip


@pytest.mark.slow
def test_the_whole_rehearsal_passes_in_a_quarter_of_an_hour() -> None:
    told = rehearse(timeout=900)
    assert "FAILED" not in told and told.count(" ran ") >= 6


def test_commands_of_the_scripts_have_the_flags_that_they_are_given() -> None:
    known: dict[str, set[str]] = {}
    for name in ("collect", "export", "eval"):
        command = main.get_command(click.Context(main), name)
        assert command is not None
        known[name] = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
    for script in ("teach.sh", "evaluate.sh"):
        text = (FOLDER / script).read_text().replace("\\\n", " ")
        for name, rest in re.findall(r'"\$RUBRICEM" (\w+)(.*)', text):
            given = set(re.findall(r"(--[a-z-]+)", rest))
            assert given and given <= known[name], (script, name, given - known[name])
    assert TrainingJob.read(FOLDER / "sft.toml", "sft").config.learning_rate == 4e-5


@pytest.mark.parametrize(
    ("name", "row", "points"),
    [
        ("plain", {"question": "Q?", "criteria": ["Says it."]}, 1),
        ("dr-tulu", {"query": "Q?", "rubrics": [{"description": "Says it.", "weight": 3}]}, 3),
        ("healthbench", {"prompt": [{"role": "user", "content": "First."},
                                    {"role": "assistant", "content": "So."},
                                    {"role": "user", "content": "Q?"}],
                         "rubrics": [{"criterion": "Says it.", "points": -12}]}, -10),
        ("researchrubrics", {"prompt": "Q?", "rubrics": [{"criterion": "Says it."}]}, 1),
        ("researchqa", {"query": "Q?", "rubric": [{"rubric_item": "Says it."}]}, 1),
    ],
)  # fmt: skip
def test_a_row_of_each_set_becomes_a_question(
    tmp_path: Path, name: str, row: dict[str, Any], points: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    rows = [json.dumps(row).replace("Q?", f"Q{n}?") for n in range(5)]
    (tmp_path / "set.jsonl").write_text("\n".join([*rows, rows[0]]))
    files = [str(tmp_path / file) for file in ("set.jsonl", "q.jsonl")]
    given = ["questions.py", name, *files, "--held-out", "2", "--step", "2"]
    monkeypatch.setattr("sys.argv", given)
    questions = module("questions")
    questions.main()
    asked, held = (
        [json.loads(line) for line in (tmp_path / file).read_text().splitlines()]
        for file in ("q.jsonl", "q.held_out.jsonl")
    )
    assert (len(asked), len(held)) == (2, 2), "one is left over of whole steps"
    assert not {one["question"] for one in asked} & {one["question"] for one in held}
    (criterion,) = asked[0]["criteria"]
    assert (criterion["criterion"], criterion["points"]) == ("Says it.", points)
    talked = "user: First.\n\nassistant: So.\n\nuser: Q" if name == "healthbench" else "Q"
    assert asked[0]["question"].startswith(talked), "what was said before belongs to it"
    (tmp_path / "set.jsonl").write_text('{"other": 1}')
    with pytest.raises(SystemExit, match=f"is none of {name}"):
        questions.main()
    (tmp_path / "set.jsonl").write_text('{"cut": ')
    with pytest.raises(SystemExit, match="no valid JSON"):
        questions.main()


def test_a_search_is_passed_on_once_and_replayed(tmp_path: Path) -> None:
    search = module("search")
    asked, slow = list[str](), threading.Event()

    def upstream(query: str) -> list[dict[str, Any]]:
        asked.append(query)
        slow.wait(5)
        if "fails" in query:
            raise OSError("away")
        return [{"title": query, "url": "http://x", "content": "y"}]

    server = search.serve(search.Cache(tmp_path / "c.db", upstream), "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"

    def get(path: str) -> Any:
        with urllib.request.urlopen(f"{address}{path}", timeout=10) as reply:
            return json.load(reply)

    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(get, f"/search?q=The+{word}") for word in ("rule", "RULE++", "rule")]
        slow.set()
        titles = [one.result()["results"][0]["title"] for one in found]
    assert titles == ["the rule"] * 3 and asked == ["the rule"]
    for _ in range(2):
        with pytest.raises(urllib.error.HTTPError, match="502"):
            get("/search?q=fails")
    assert asked[1:] == ["fails", "fails"], "a failure is not kept"
    assert get("/healthz")["hits"] == 2
    server.shutdown()
    server.server_close()
    replayed = search.Cache(tmp_path / "c.db", None)
    assert replayed.find("the RULE")[0]["content"] == "y" and replayed.find("other") == []


def test_costs_follow_from_the_assumptions() -> None:
    cost = module("cost")
    told = cost.Assumed(parameters=1e9, questions=2, group=3, reflections=1, read=1000, written=500,
                        peak=1e12, mfu=0.5, train_gpus=2, sampled_a_second=1000)  # fmt: skip
    found = cost.of_step(told)
    # 8 rows of 1,000 tokens, 10 operations each for 1e9 parameters, at 0.5e12 a second.
    assert found["GPU hours, training"] == pytest.approx(8 * 1000 * 1e9 * 10 / 0.5e12 / 3600)
    assert found["GPU hours, sampling"] == pytest.approx((6 * 500 + 2 * 500) / 1000 / 3600)
    assert found["searches"] == 60 and found["dollars, searches"] == pytest.approx(0.06)
