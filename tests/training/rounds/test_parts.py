"""`rubricem train ss-grpo` in rounds: a tiny random model, a loopback server, the real engine.

The best of the rounds' checkpoints: by a number that there is, told as early as possible.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from click.testing import CliRunner, Result

from benchmarks.judged import buffer_of
from benchmarks.rounds_server import serving
from rubricem.agent.cli import main
from rubricem.agent.weights.checkpoints import read_checkpoint
from rubricem.memory.errors import SettingsError
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.runs import write_atomically
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.collect.questions import Selected
from rubricem.training.local.checkpoints import TrainingFolder
from rubricem.training.local.session import open_session
from rubricem.training.rounds.rollouts import NUMBERS, HeldOut, Sampled
from rubricem.training.rounds.rounds_config import RoundsConfig
from rubricem.training.rounds.update import RoundFolders, SessionUpdates
from rubricem.training.rows.credit import RowRule
from tests.conftest import COMMAND, ENVIRONMENT, ROOT
from tests.programs.tiny_loop import judging
from tests.support.rows import config_of, policy_rows, quiet
from tests.support.scripted_server import ScriptedServer
from tests.support.tiny import write_tiny

pytestmark = pytest.mark.usefixtures("one_thread")
ASKED = [f"Which rule is number {number}?" for number in range(6)]


@pytest.fixture
def server() -> Iterator[str]:
    with serving(0.02) as address:
        yield address


def written(folder: Path, **rounds: Any) -> Path:
    """A configuration of two new questions a round, which holds out one of them."""
    write_tiny(folder / "tiny.gguf")
    (folder / "asked.txt").write_text("".join(f"{q}\n" for q in ASKED[:4]))
    (folder / "held_out.txt").write_text("".join(f"{q}\n" for q in ASKED[3:]))
    table = {"questions": "asked.txt", "questions_per_round": 2, "group_size": 2, **rounds}
    engine = {"out": "out", "model": "tiny.gguf", "rank": 4, "alpha": 8.0, "threads": 1,
              "dtype": "float32", "max_row_tokens": 8192}  # fmt: skip
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in engine.items()]
    lines += ["[rounds]\n", *(f"{name} = {json.dumps(value)}\n" for name, value in table.items())]
    path = folder / "rounds.toml"
    path.write_text("".join(lines))
    return path


def on_server(folder: Path, address: str, **changed: Any) -> Path:
    """Three rounds on the server, which scores by rubrics that are there from the beginning."""
    for store in (folder / "out" / "data", folder / "out" / "held_out" / "data"):
        buffers = BufferStore(store / "buffers")
        for question in ASKED:
            if not buffers.load(question).version:
                buffers.save(buffer_of(question).model_copy(update={"version": 1}))
    rounds = {
        "rounds": 3, "held_out": "held_out.txt", "base_url": address, "model": "policy",
        "refresh": ["sh", "-c", "cksum < {checkpoint}/adapter.gguf | tr ' ' -"],
        "source": [f"searxng:{address.removesuffix('/v1')}"], "reflections": 2,
        **changed,
    }  # fmt: skip
    return written(folder, **rounds)


def train(path: Path, *flags: str) -> Result:
    return CliRunner().invoke(main, ["train", "ss-grpo", str(path), *flags])


def metrics(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]


def calls(address: str) -> int:
    with urlopen(address.removesuffix("/v1") + "/count") as reply:
        counted: int = json.load(reply)["calls"]
    return counted


@pytest.mark.model
def test_rounds_collect_judge_reflect_and_train_and_a_second_run_repeats_nothing(
    tmp_path: Path, server: str, minilm: Path
):
    path = on_server(tmp_path, server)
    done = train(path, "--json")
    assert done.exit_code == 0, done.output
    assert "1 questions are held out, and not trained on" in done.stderr
    told = json.loads(done.stdout)
    out = tmp_path / "out"
    assert (told["rounds"], told["checkpoint"]) == (3, str(TrainingFolder(out).newest))
    assert told["canary"]["mean"] < 0.1
    lines = metrics(out)
    assert [line["round"] for line in lines] == [1, 2, 3]
    assert [line["staleness/max"] for line in lines] == [0, 1, 2]
    assert lines[1]["rows/reflect"] == 4 and lines[1]["rows/policy"] > 0
    assert lines[2]["grad_norm"] > 0 and lines[0]["unscored_share"] == 0
    versions = [RoundFolders(out, out).round(n).manifest().policy_version for n in range(3)]
    assert versions[0] == versions[1] == "policy" != versions[2]
    held = [json.loads((out / "held_out" / f"{n:03d}" / "numbers.json").read_text())
            for n in range(4)]  # fmt: skip
    assert [one["updates"] for one in held] == [0, 1, 2, 3] and held[0]["groups"] == 3
    asked = calls(server)
    (out / "canary.json").unlink()  # as if it was killed before it was compared
    again = train(path, "--json")
    assert again.exit_code == 0 and json.loads(again.stdout)["rounds"] == 3
    assert json.loads(again.stdout)["canary"]["mean"] == pytest.approx(told["canary"]["mean"])
    assert calls(server) == asked and metrics(out) == lines


def test_more_rounds_go_on_and_other_ones_are_refused(tmp_path: Path, server: str):
    shape = {"reflections": 0, "held_out_every": 2}
    assert train(on_server(tmp_path, server, rounds=1, **shape)).exit_code == 0
    assert train(on_server(tmp_path, server, rounds=2, **shape)).exit_code == 0
    asked = sorted(path.name for path in (tmp_path / "out" / "held_out").glob("0*"))
    assert asked == ["000", "001", "002"], "before, after what was the last, and every second"
    assert [line["round"] for line in metrics(tmp_path / "out")] == [1, 2]
    refused = train(on_server(tmp_path, server, rounds=2, **shape, group_size=3))
    assert refused.exit_code == 2 and "another rounds.group_size" in refused.stderr


def test_rounds_go_on_by_what_they_ask_however_their_files_are_named(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "a.md").write_text("# One\nWhat is asked is read first.\n")
    shape = {"reflections": 0, "source": ["documents"]}
    path = on_server(tmp_path, server, rounds=1, **shape)
    monkeypatch.chdir(tmp_path)
    assert train(Path(path.name)).exit_code == 0
    on_server(tmp_path, server, rounds=2, held_out="moved.txt", **shape)
    (tmp_path / "moved.txt").write_text((tmp_path / "held_out.txt").read_text())
    assert train(path).exit_code == 0
    (tmp_path / "moved.txt").write_text(f"{ASKED[3]}\n{ASKED[5]}\n")
    refused = train(path)
    assert refused.exit_code == 2 and "with another rounds.asked_held_out." in refused.stderr


def test_a_server_that_is_not_given_a_checkpoint_ends_the_rounds_in_a_sentence(
    tmp_path: Path, server: str
):
    refresh = ["sh", "-c", "echo no such adapter >&2; exit 3"]
    done = train(on_server(tmp_path, server, refresh=refresh, reflections=0))
    assert done.exit_code == 1
    assert "was not given the checkpoint: no such adapter" in done.stderr
    assert "Correct `refresh`" in done.stderr
    done = train(on_server(tmp_path, server, reflections=0, rounds=2))
    assert done.exit_code == 0, "it can be corrected, and what was collected is not lost"
    assert [line["round"] for line in metrics(tmp_path / "out")] == [1, 2]


@pytest.mark.parametrize(("said", "of"), [([], "training began with"), (["mine"], "ss-grpo-1-")])
def test_a_server_that_has_one_name_for_two_checkpoints_is_not_sampled(
    said: list[str], of: str, tmp_path: Path, server: str
):
    done = train(on_server(tmp_path, server, refresh=["echo", *said], reflections=0))
    assert done.exit_code == 1
    assert f"the name of {of}" in done.stderr.replace("the weights that ", "")
    assert "print a name of its own for each checkpoint" in done.stderr


@pytest.mark.slow
def test_the_embedded_policy_samples_from_each_checkpoint(tmp_path: Path):
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "a.md").write_text("# One\nWhat is asked is measured and read first.\n")
    with ScriptedServer(judging) as judge:
        path = written(
            tmp_path, judge_model="scripted", judge_base_url=judge.base_url,
            source=["documents"], tool_calls=1, max_tokens=40, reflections=0, ahead=0,
            max_staleness=0, rounds=2,
        )  # fmt: skip
        done = train(path)
    assert done.exit_code == 0, done.output
    out = tmp_path / "out"
    versions = [RoundFolders(out, out).round(n).manifest().policy_version for n in range(2)]
    assert "ss-grpo-1-" in versions[1] and "ss-grpo" not in versions[0]
    assert read_checkpoint(TrainingFolder(out).newest).step == 2
    assert [line["staleness/max"] for line in metrics(out)] == [0, 0]


KILLS = 4


def go_on(path: Path, seconds: float | None) -> bool:
    """Run the command in a process; True if it came to its end before it was killed."""
    environment = {**ENVIRONMENT, "HOME": os.environ["HOME"],
                   "RUBRICEM_WEIGHTS_DIR": os.environ["RUBRICEM_WEIGHTS_DIR"]}  # fmt: skip
    command = [*COMMAND, "train", "ss-grpo", str(path)]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            said = process.communicate(timeout=seconds)[0].decode()
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            return False
    assert process.returncode == 0, said
    return True


@pytest.mark.slow
@pytest.mark.model
def test_killed_rounds_end_as_those_that_were_not(tmp_path: Path, server: str, minilm: Path):
    seed = random.randrange(2**32)
    draw, kills = random.Random(seed), 0
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    whole = on_server(tmp_path / "whole", server)
    began = time.monotonic()
    assert go_on(whole, None)
    lasts, made = time.monotonic() - began, calls(server)
    killed = on_server(tmp_path / "killed", server)
    for _ in range(KILLS):
        kills += not go_on(killed, draw.uniform(lasts / 3, lasts))
    assert go_on(killed, None)
    told = f"with the seed {seed}"
    # Four rollouts, four reflections and a judgement are the most that is in flight of two rounds.
    assert calls(server) - 2 * made <= 9 * kills, f"finished calls were repeated {told}"
    lines, expected = metrics(tmp_path / "killed" / "out"), metrics(tmp_path / "whole" / "out")
    assert [line["round"] for line in lines] == [1, 2, 3], told
    for name in ("rows/policy", "rows/reflect", "staleness/max", "reward/answer/mean"):
        assert [line[name] for line in lines] == [line[name] for line in expected], told
    assert [RunDirectory(tmp_path / "killed" / "out" / "held_out" / f"{n:03d}").finished_steps()
            for n in range(4)] == [1] * 4  # fmt: skip


def test_an_unknown_number_is_refused_before_anything_is_collected(tmp_path: Path):
    path = on_server(tmp_path, "http://127.0.0.1:9/v1")
    path.write_text('best_by = "accuracy"\n' + path.read_text())
    refused = train(path)
    assert refused.exit_code == 2 and "no round has a number 'accuracy'" in refused.stderr
    assert not (tmp_path / "out" / "run.json").exists()


async def test_a_number_that_does_not_come_is_told_once_it_would_be_there(
    tiny: Path, tmp_path: Path
) -> None:
    config = config_of(tmp_path, tiny, policy_rows(4), best_by="novelty_median")
    async with open_session(config, "ss-grpo", quiet) as session:
        updates = SessionUpdates(session, RoundFolders(config.out, tmp_path), 3)
        updates.save({"round": 1.0, **updates.update(policy_rows(4))})
        second = {"round": 2.0, **updates.update(policy_rows(4))}
        with pytest.raises(SettingsError, match="no metric 'novelty_median'") as told:
            updates.save(second)
    assert "sequence_ratio_median" in told.value.remedy
    assert updates.done == 1, "the round is trained again with another best_by"
    async with open_session(
        config.model_copy(update={"best_by": "loss"}), "ss-grpo", quiet
    ) as session:
        updates = SessionUpdates(session, RoundFolders(config.out, tmp_path), 3)
        updates.save({"round": 2.0, **updates.update(policy_rows(4))})
        assert session.folder.best.exists() and updates.done == 2


class Pointed:
    """Updates of which only the newest checkpoint and the best are known."""

    checkpoint = None

    def __init__(self) -> None:
        self.done, self.best = 0, 0

    def keep_best(self) -> None:
        self.best = self.done


async def test_the_best_is_what_the_held_out_questions_say(tiny: Path, tmp_path: Path):
    config = config_of(
        tmp_path, tiny, policy_rows(4), best_by="held_out/reward/answer/mean", best_is="highest"
    )
    rounds = RoundsConfig(questions="q", held_out="h", rounds=5)
    folders, updates = RoundFolders(config.out, tmp_path), Pointed()
    sampled = Sampled(rounds, config, folders, quiet)
    held_out = HeldOut(sampled, Selected(()), updates, RowRule())
    for updates.done, (score, best) in enumerate(
        [(0.9, 0), (0.3, 1), (0.6, 2), (0.6, 2), (None, 2), (0.7, 5)]
    ):
        numbers = {} if score is None else {"reward/answer/mean": score}
        write_atomically(folders.held_out(updates.done).folder / NUMBERS, json.dumps(numbers))
        await held_out(updates.done)
        await held_out(updates.done)  # again, as after a kill
        assert updates.best == best, "the first of equals, and never one without a score"


def test_the_best_by_the_held_out_questions_is_kept_though_newer_ones_come(tmp_path: Path):
    with serving(0.02) as address:
        path = on_server(tmp_path, address, rounds=4, reflections=0)
        path.write_text('best_by = "held_out/groups"\n' + path.read_text())
        assert train(path).exit_code == 0
    folder = TrainingFolder(tmp_path / "out")
    assert folder.newest.resolve().name > folder.best.resolve().name == "000001"
    assert (folder.best / "adapter.gguf").exists()
