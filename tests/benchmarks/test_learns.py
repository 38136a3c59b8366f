"""The whole layout of `learns` on a tiny random model: every phase, arm and figure.

A model of random weights keeps no form, so the recipe's own rewards would be 0 throughout and
teach nothing; here a stage is worth how many different letters it is written with.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.learns.__main__ import main
from benchmarks.learns.hops import QUICK, RECIPE, Phases, Plan, accepted
from benchmarks.learns.replicates import ARMS, IMITATION, kept_replicates
from rubricem.judge.composed import StageView
from rubricem.judge.rubrics import Rubric
from rubricem.memory.schema import Stage
from rubricem.training.collect.directory import RunDirectory

pytestmark = pytest.mark.usefixtures("one_thread")
Learns = Callable[..., dict[str, Any]]
SIZES = "rounds=2,every=1,per_round=2,questions=4,held_out=2,test=3,traces=4"


class Letters(Rubric):
    """The share of an alphabet that a stage is written with."""

    def forward(self, action: str, observation: StageView) -> float:
        return min(len(set(action)) / 40, 1.0)


def letters() -> dict[Stage, type[Rubric]]:
    return dict.fromkeys(Stage, Letters)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """That of hops, with a judge that tells garbage apart, and short of turns."""
    folder = tmp_path / "recipe"
    folder.mkdir()
    own = f"rubric:{letters.__module__}:{letters.__name__}"
    changed = {
        "rubric:benchmarks.learns.recipe:rewards": own,
        "max_tokens = 300": "max_tokens = 24",
    }
    for path in RECIPE.glob("*.toml"):
        text = path.read_text()
        for old, new in changed.items():
            text = text.replace(old, new)
        (folder / path.name).write_text(text)
    return folder


@pytest.fixture
def learns(
    tiny: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Learns:
    def run(*flags: object) -> dict[str, Any]:
        given = ("learns", "--model", tiny, "--recipe", recipe, *flags)
        monkeypatch.setattr("sys.argv", [*map(str, given)])
        main()
        values: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])["values"]
        return values

    return run


@pytest.mark.slow
def test_a_replicate_goes_through_every_phase_in_sittings_and_is_pooled_with_another(
    learns: Learns, tmp_path: Path
):
    results, sittings = tmp_path / "results", 0

    def replicate(number: int, *flags: object) -> dict[str, Any]:
        kept = ("--keep", tmp_path / "kept", "--out", results / f"{number}.json")
        return learns(*kept, "--replicate", number, "--sizes", SIZES, *flags)

    # Each is twice as long as the one before: a busy machine gets there too.
    while not replicate(0, "--minutes", 0.05 * 2**sittings)["all_done"]:
        sittings += 1
    assert sittings > 1, "it was ended and went on"
    before = (results / "0.json").read_text()
    assert replicate(0)["all_done"] and (results / "0.json").read_text() == before
    with pytest.raises(SystemExit, match="begun with other sizes"):
        replicate(0, "--sizes", f"{SIZES},rounds=3")
    assert replicate(1, "--arms", "answer,stages")["all_done"]
    one, other = kept_replicates(results)
    assert set(one.arms) == set(ARMS) and set(other.arms) == {"answer", "stages"}
    for name in (IMITATION, *ARMS):
        assert len(one.dev[name]) == 3
    for name in ARMS:
        course = one.arms[name]
        assert course.rollouts == 8
        assert [asking.rounds for asking in course.held_out] == [0, 1, 2]
        assert any(course.metrics["kl_reference"]), "a round has trained"
    pooled = learns("--pool", results)
    assert pooled["replicates"] == 2 and pooled["all_done"]
    for figure in ("evidence", "f1", "refused"):
        name = f"{figure}_stages_answer"
        assert pooled[f"{name}_low"] <= pooled[name] <= pooled[f"{name}_high"]


async def test_traces_that_are_enough_end_their_own_phase_alone(recipe: Path, tmp_path: Path):
    sizes = replace(QUICK, traces=2, questions=2)
    plan = Plan(tmp_path / "kept" / "0", sizes, recipe=recipe)
    phases = Phases(plan, lambda line: None, asyncio.Event())
    plan.write()
    await phases.traces()
    assert accepted(RunDirectory(plan.keep / "traces")) == 2
    assert not phases.stop.is_set(), "what comes next would be over at once"
