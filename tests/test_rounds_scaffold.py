"""Rounds under a rubric scaffold: what each one shows, and settings that contradict it."""

from pathlib import Path
from typing import Any

import pytest

from memory.errors import SettingsError
from memory.schema import ScaffoldedPrompt, TrajectoryGroup
from tests.collected import judgement
from tests.judged import run_of
from tests.test_rounds_job import ROUNDS, rounds_of
from tests.test_rounds_trained import metrics, on_server, server, train
from training.local.config import TrainConfig
from training.objective_config import ObjectiveConfig
from training.rounds.folders import RoundFolders
from training.rounds.job import Job, build_job
from training.rounds.numbers import numbers_of
from training.rounds.rows import JudgedGroup
from training.row_rule import SS_GRPO
from training.scaffolding import criteria_shown

__all__ = ["server"]


def shown(folder: Path, number: int, size: int = 4, **changed: Any) -> list[int]:
    """Of ten criteria, how many each member sees in a round of five, counted from 0."""
    rule = rounds_of(folder, rounds=5, scaffold="linear", **changed).scaffold_of(number)
    assert rule is not None
    return [criteria_shown(rule, member, size, 10) for member in range(size)]


def job(folder: Path, **values: Any) -> Job:
    return build_job({"out": "run", "rounds": ROUNDS, **values}, folder, "ss-grpo")


def test_the_scaffold_fades_with_the_rounds_of_the_run(tmp_path: Path):
    # (G - i) / (G - 1) of ten: 10, 6.67, 3.33, 0; a quarter of the run later 3/4 of that is left.
    assert shown(tmp_path, 0, scaffold_decay="linear") == [10, 7, 3, 0]
    assert shown(tmp_path, 1, scaffold_decay="linear") == [8, 5, 2, 0]
    assert shown(tmp_path, 4, scaffold_decay="linear") == [0, 0, 0, 0]
    # The paper's: all of it at the beginning, and nothing once a fifth of the run is over.
    assert [shown(tmp_path, n)[0] for n in (0, 1)] == [10, 0]


def test_ablations_show_all_to_the_end_all_to_everyone_or_nothing(tmp_path: Path):
    no_decay = {"scaffold_decay": "constant"}
    assert shown(tmp_path, 4, **no_decay) == [10, 7, 3, 0]
    full = rounds_of(tmp_path, rounds=5, scaffold="full", **no_decay).scaffold_of(4)
    assert full is not None and [criteria_shown(full, m, 4, 10) for m in range(4)] == [10] * 4
    assert criteria_shown(full, 0, 1, 10) == 10, "also in a group of one"
    assert rounds_of(tmp_path).scaffold_of(0) is None
    assert rounds_of(tmp_path, rounds=1, scaffold="linear").scaffold_of(0) is not None


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"scaffold": "half"}, "There is no scaffold 'half'"),
        ({"scaffold": "linear", "scaffold_decay": "slow"}, "There is no scaffold 'slow'"),
        ({"scaffold": "binary:x"}, "full cannot be x"),
        ({"scaffold_decay": "linear"}, "scaffold_decay needs a scaffold"),
    ],
)
def test_a_scaffold_that_is_none_is_refused(tmp_path: Path, changed: dict[str, Any], fault: str):
    with pytest.raises(SettingsError, match=fault):
        rounds_of(tmp_path, **changed)


def test_a_credit_or_ratio_brings_the_objective_it_is_defined_by(tmp_path: Path):
    table = {**ROUNDS, "scaffold": "linear"}
    dr_grpo = job(tmp_path, credit="dr-grpo", max_row_tokens=512).config.objective
    assert (dr_grpo.aggregation, dr_grpo.token_budget) == ("token-sum", 512)
    across = job(tmp_path, rounds=table, scaffold_ratio="behaviour", objective={"beta": 0.1})
    assert across.config.objective == ObjectiveConfig(
        correction="bypass", importance="none", beta=0.1
    )
    assert job(tmp_path, credit="identity").config.objective == ObjectiveConfig()
    assert job(tmp_path, rounds=table).rule.ratio == "unscaffolded"
    budget = {"aggregation": "token-sum", "token_budget": 99}
    assert job(tmp_path, credit="dr-grpo", objective=budget).config.objective.token_budget == 99


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"credit": "dr-grpo", "objective": {"aggregation": "token-mean"}},
         "credit dr-grpo goes with aggregation = 'token-sum'"),
        ({"scaffold_ratio": "scaffolded"}, "scaffold_ratio is about rollouts under a scaffold"),
        ({"rounds": {**ROUNDS, "scaffold": "linear"}, "scaffold_ratio": "behaviour",
          "objective": {"correction": "decoupled"}}, "goes with correction = 'bypass'"),
        ({"rounds": {**ROUNDS, "scaffold": "linear"},
          "objective": {"correction": "bypass", "importance": "none"}},
         "saw a scaffold that the rows have not"),
    ],
)  # fmt: skip
def test_what_contradicts_the_ratio_or_credit_is_told(
    tmp_path: Path, values: dict[str, Any], fault: str
):
    with pytest.raises(SettingsError, match=fault):
        job(tmp_path, **values)


def test_imitation_has_no_credit(tmp_path: Path):
    with pytest.raises(SettingsError, match="credit: this acts on judged groups"):
        build_job({"out": "run", "rows": ["r"], "credit": "identity"}, tmp_path, "sft")
    kept = build_job({"out": "run", "rows": ["r"]}, tmp_path, "sft")
    assert isinstance(kept.config, TrainConfig)


def test_rewards_are_told_by_place_in_a_group_that_was_shown_its_rubric():
    runs = [run_of(name=f"s000-q000-r{place}") for place in (0, 2)]
    scaffold = ScaffoldedPrompt(text="!", shown=3, bare_ids=(1,))
    runs[0] = runs[0].model_copy(update={"scaffold": scaffold})
    group = TrajectoryGroup(question="q", trajectories=tuple(runs), failures=("away",))
    told = tuple(judgement(r, [0.0, 0.0, 0.0, s]) for r, s in zip(runs, (0.9, 0.5), strict=True))
    found = numbers_of([JudgedGroup("g", group, told, None)], SS_GRPO)
    assert (found["scaffold/0/reward/mean"], found["scaffold/2/reward/mean"]) == (0.9, 0.5)
    assert (found["scaffold/0/shown/mean"], found["scaffold/2/shown/mean"]) == (3.0, 0.0)
    assert "scaffold/1/reward/mean" not in found, "that rollout failed"
    assert (found["best_of/1"], found["best_of/2"], found["best_of/groups"]) == (0.7, 0.9, 1)
    bare = group.model_copy(update={"trajectories": (runs[1],)})
    names = numbers_of([JudgedGroup("g", bare, told[1:], None)], SS_GRPO)
    assert not any("scaffold" in name or "best_of" in name for name in names)


@pytest.mark.slow
def test_rounds_under_a_scaffold_train_across_prompts_and_tell_what_it_came_to(
    tmp_path: Path, server: str
):
    shape = {"rounds": 2, "group_size": 4, "reflections": 0, "held_out": None, "ahead": 0,
             "scaffold": "linear", "scaffold_decay": "linear"}  # fmt: skip
    path = on_server(tmp_path, server, **{n: v for n, v in shape.items() if v is not None})
    path.write_text(f'scaffold_ratio = "behaviour"\ncredit = "answer-only"\n{path.read_text()}')
    done = train(path)
    assert done.exit_code == 0, done.output
    out = tmp_path / "out"
    rules = [RoundFolders(out, out).round(n).manifest().scaffold for n in range(2)]
    assert [rule.progress for rule in rules if rule] == [0.0, 1.0]
    first, second = metrics(out)
    assert first["scaffold/0/shown/mean"] > first["scaffold/2/shown/mean"] > 0
    assert first["scaffold/3/shown/mean"] == 0 and "scaffold/0/shown/mean" not in second
    assert first["rows/policy"] > 0 and first["scaffold_gap"] > 0
    assert first["sequence_ratio_median"] > 0 and 0 <= first["diversity/words"] <= 1
    assert first["best_of/groups"] == 2
    assert first["best_of/1"] == pytest.approx(first["reward/answer/mean"])
    assert first["best_of/1"] <= first["best_of/4"] <= first["reward/answer/max"]
    path.write_text(path.read_text().replace("rounds = 2\n", "rounds = 3\n"))
    longer = train(path)
    assert longer.exit_code == 2 and "rounds.rounds" in longer.output, "it would fade otherwise"
