"""The best of the rounds' checkpoints: by a number that there is, told as early as possible."""

import json
from pathlib import Path

import pytest

from benchmarks.rounds_server import serving
from memory.errors import SettingsError
from memory.runs import write_atomically
from tests.test_rounds_trained import on_server, train
from tests.train_rows import config_of, policy_rows, quiet
from training.local.checkpointing import TrainingFolder
from training.local.session import open_session
from training.questions_selecting import Selected
from training.rounds.collected import Sampled
from training.rounds.config import RoundsConfig
from training.rounds.engine import SessionUpdates
from training.rounds.folders import RoundFolders
from training.rounds.held_out import NUMBERS, HeldOut
from training.row_rule import RowRule
from training.watching.names import check_possible, check_possible_of_judge

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("reward/answer/men", "reward/answer/mean"),
        ("reward/anwser/mean", "reward/answer/mean"),
        ("los", "loss"),
        ("reward/answer/low", "reward/answer/"),  # of held-out questions alone
        ("sequence_ratio_above_x", "sequence_ratio_above_"),
    ],
)
def test_a_number_that_no_round_can_have_is_told_with_the_nearest(wrong: str, near: str):
    with pytest.raises(SettingsError, match=f"no round has a number '{wrong}'") as told:
        check_possible(wrong)
    assert f"Set best_by to '{near}" in told.value.remedy


@pytest.mark.parametrize(
    "name", [None, "loss", "plan_loss", "best_of/4", "dropped/longer than 9 tokens", "best_of/16"]
)
def test_a_number_that_a_round_can_have_is_not_refused(name: str | None):
    check_possible(name)


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


def test_a_number_of_held_out_questions_needs_some():
    check_possible("held_out/reward/answer/low", held_out=True)
    with pytest.raises(SettingsError, match="and no questions are held out"):
        check_possible("held_out/reward/answer/mean")
    with pytest.raises(SettingsError, match="no round has a number 'held_out/reward/anser/mean'"):
        check_possible("held_out/reward/anser/mean", held_out=True)
    with pytest.raises(SettingsError, match="no round has a number 'held_out/seconds/train'"):
        check_possible("held_out/seconds/train", held_out=True)


@pytest.mark.parametrize("name", [None, "right", "reward", "loss", "judge_kl_old", "rows/judge"])
def test_a_number_that_a_judges_round_can_have_is_not_refused(name: str | None):
    check_possible_of_judge(name)


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("reward/answer/mean", "tokens/mean"),
        ("plan_loss", "loss"),
        ("policy_loss", "loss"),
        ("rigth", "right"),
    ],
)
def test_a_number_that_no_judges_round_can_have_is_told_with_the_nearest(wrong: str, near: str):
    with pytest.raises(SettingsError, match=f"no round has a number '{wrong}'") as told:
        check_possible_of_judge(wrong)
    assert f"Set best_by to '{near}" in told.value.remedy


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
