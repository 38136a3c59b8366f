"""`rubricem train judge distil`: teachers on a scripted server, a tiny random model as student.

Rows of teachers' traces stand once they are trained on: who goes on gets the same training.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rubricem.agent.cli import main
from rubricem.agent.settings import load_settings
from rubricem.memory.errors import PolicyError
from rubricem.training.judge_training.distil import distil, read_distil
from rubricem.training.rounds.fit import read_rows, train
from tests.support.judges import BAD, GOOD, pairs_file, toml
from tests.support.rows import quiet
from tests.support.scripted_server import Fault, Scripted, ScriptedServer
from tests.support.tiny import vocabulary, write_tiny

pytestmark = pytest.mark.usefixtures("one_thread")
RIGHT, WRONG = "It is the good one.", "I take the bad one."


def verdict(asked: str, good: bool) -> str:
    """A whole comparison, right or wrong."""
    first_is_good = asked.find(GOOD) < asked.find(BAD)
    letter = "A" if first_is_good == good else "B"
    return f"<eval>{RIGHT if good else WRONG}</eval>\n<answer>[[{letter}]]</answer>"


def teaching(body: dict[str, Any], number: int) -> Scripted:
    """The first is right about pair 0 alone, the second also about pair 1."""
    asked = body["messages"][1]["content"]
    known = ("Which is 0?",) if body["model"] == "first" else ("Which is 1?",)
    return verdict(asked, any(question in asked for question in known))


def written(folder: Path, address: str, second: bool = True, **told: Any) -> Path:
    if not (folder / "tiny.gguf").exists():
        write_tiny(folder / "tiny.gguf")
        pairs_file(folder / "pairs.jsonl", 3)
    table: dict[str, Any] = {"pairs": ["pairs.jsonl"], **told}
    table["teacher"] = {"model": "first", "base_url": address}
    if second:
        table["second_teacher"] = {"model": "second", "base_url": address}
    return toml(folder / "judge.toml", "distil", table, judge="full")


def run(command: str, path: Path, *flags: str) -> Result:
    return CliRunner().invoke(main, ["train", "judge", str(path), *flags])


def test_right_traces_are_kept_wrong_ones_redone_and_what_stays_wrong_is_dropped(tmp_path: Path):
    with ScriptedServer(teaching, models=("first", "second")) as server:
        path = written(tmp_path, server.base_url)
        done = run("distil", path, "--rows", "--json")
        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout)
        assert (told["pairs"], told["kept"], told["redone"], told["rows"]) == (3, 2, 1, 2)
        assert told["dropped"] == {"named the other reply, also when it was redone": 1}
        assert told["trained"] is None
        again = [r.body for r in server.requests if r.body["model"] == "second"]
        assert len(again) == 2 and len(server.requests) == 5
        assert all(WRONG in b["messages"][1]["content"] for b in again)
        assert all("named the other reply" in b["messages"][1]["content"] for b in again)
        assert json.loads(run("distil", path, "--rows", "--json").stdout) == told
        assert len(server.requests) == 5, "nothing that is finished is asked again"
    rows = read_rows([tmp_path / "out" / "distilled" / "rows.jsonl"])
    words = vocabulary()
    for row in rows:
        trained = [i for i, on in zip(row.ids, row.loss_mask, strict=True) if on]
        assert words[trained[-1]] == "<|im_end|>" and row.objective == "sft"
        text = "".join(chr(i) if i < 128 else words[i] for i in trained[:-1])
        assert text.startswith(f"<eval>{RIGHT}</eval>") and text.endswith("</answer>")
        assert not any(row.loss_mask[: row.prompt_tokens]) and row.prompt_tokens > 500


def test_without_a_second_teacher_wrong_traces_are_dropped(tmp_path: Path):
    with ScriptedServer(teaching, models=("first",)) as server:
        done = run("distil", written(tmp_path, server.base_url, second=False), "--rows")
    assert done.exit_code == 0, done.output
    assert "1 traces kept of 3 pairs, 0 of them redone" in done.stdout
    assert "2 pairs dropped: named the other reply" in done.stdout


def test_a_teacher_that_always_fails_is_told_and_its_pairs_are_tried_again_later(tmp_path: Path):
    with ScriptedServer(lambda body, number: Fault(400, "no such thing")) as server:
        failed = run("distil", written(tmp_path, server.base_url), "--rows")
        said = " ".join(failed.output.split())
        assert failed.exit_code != 0 and "Of 3 pairs no trace can be kept: the teacher" in said
        assert "Name a stronger teacher" in said
        asked = len(server.requests)
        run("distil", written(tmp_path, server.base_url), "--rows")
        assert len(server.requests) == 2 * asked
    assert not (tmp_path / "out" / "distilled" / "rows.jsonl").exists()


def test_money_ends_it_at_its_limit_and_no_price_is_no_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with ScriptedServer(teaching, models=("first", "second")) as server:
        path = written(tmp_path, server.base_url, max_run_cost=0.5)
        refused = run("distil", path, "--rows")
        assert "max_run_cost under [distil] cannot be kept" in refused.output
        # 100 tokens read and 20 written: 0.3 dollars a call.
        prices = dict.fromkeys(("first", "second"), (1000.0, 1000.0, 10000.0))
        monkeypatch.setenv("RUBRICEM_PRICES", json.dumps(prices))
        ended = run("distil", path, "--rows")
        assert ended.exit_code == 3 and "Allow more by max_run_cost" in ended.output
        assert len(server.requests) == 1
        more = run("distil", written(tmp_path, server.base_url, max_run_cost=9.0), "--rows")
        assert more.exit_code == 0 and len(server.requests) == 5
        assert "calls cost 1.50 US dollars" in more.stdout


def test_a_student_is_trained_and_belongs_to_its_base(tmp_path: Path):
    with ScriptedServer(teaching, models=("first", "second")) as server:
        done = run("distil", written(tmp_path, server.base_url))
    assert done.exit_code == 0, done.output
    assert f"--judge pairwise --model {tmp_path / 'out' / 'last'}" in done.stdout
    rounds = {"pairs": ["pairs.jsonl"], "rounds": 1}
    other = {"out": "rounds", "start_adapter": "out/last"}
    write_tiny(tmp_path / "other.gguf", seed=1)
    based = toml(tmp_path / "b.toml", "grpo", rounds,
                 **{"judge": "full", "model": "other.gguf", **other})  # fmt: skip
    assert "belongs to another model" in run("grpo", based).output
    write_tiny(tmp_path / "tiny.gguf", seed=1)
    asked = ["judge", "eval", str(tmp_path / "pairs.jsonl"), "--judge", "pairwise",
             "--model", str(tmp_path / "out" / "last")]  # fmt: skip
    assert "was trained on other weights" in CliRunner().invoke(main, asked).output


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('out = "o"', "there is no table [distil]"),
        ('out = "o"\nrows = ["r"]\n[distil]\npairs = ["p"]\nteacher = {model = "t"}', "own"),
        ('out = "o"\n[distil]\npairs = ["p"]\nteacher = {}', "name a model, or a base_url"),
        ('out = "o"\njudge = "terse"\n[distil]\npairs = ["p"]\nteacher = {model = "t"}', "judge:"),
    ],
)
def test_contradictory_settings_are_told_in_a_sentence(tmp_path: Path, text: str, told: str):
    (tmp_path / "c.toml").write_text(text)
    failed = run("distil", tmp_path / "c.toml")
    assert failed.exit_code != 0 and told in " ".join(failed.output.split())


def failing(body: dict[str, Any], number: int) -> Scripted:
    """Right about each pair, but of pair 1 nothing comes."""
    asked = body["messages"][1]["content"]
    return Fault(400, "no such thing") if "Which is 1?" in asked else verdict(asked, True)


def right(body: dict[str, Any], number: int) -> Scripted:
    return verdict(body["messages"][1]["content"], True)


def begun(folder: Path) -> tuple[Path, bytes]:
    """The file of a training that was stopped in its first step, whose rows lack pair 1."""

    def stop(line: str) -> None:
        if ": row " in line:
            raise RuntimeError("killed")

    async def interrupted() -> None:
        settings, told = read_distil(path)
        assert (await distil(settings, told, load_settings(), quiet)).rows == 2
        with pytest.raises(PolicyError, match="killed"):
            await train(settings, "sft", stop)

    with ScriptedServer(failing, models=("first", "second")) as server:
        path = written(folder, server.base_url, second=False)
        asyncio.run(interrupted())
    return path, (folder / "out" / "distilled" / "rows.jsonl").read_bytes()


@pytest.mark.slow
def test_a_training_goes_on_with_its_rows_though_a_teacher_would_now_answer(tmp_path: Path):
    _, rows = begun(tmp_path)
    with ScriptedServer(right, models=("first",)) as server:
        # Another address of the same teacher, and more money, are the same rows.
        done = run("distil", written(tmp_path, server.base_url, second=False), "--json")
        assert done.exit_code == 0, done.output
        assert server.requests == [], "no teacher is opened or asked"
    told = json.loads(done.stdout)
    assert (told["rows"], told["dropped"]) == (2, {"the teacher failed": 1})
    assert len(told["trained"]["steps"]) == 1
    assert "they stand as they are, and no teacher is asked" in done.stderr
    assert (tmp_path / "out" / "distilled" / "rows.jsonl").read_bytes() == rows
