"""Rounds whose money is limited: they end, tell so, and go on with more, also at another server."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rounds_server import serving
from memory.schema import Usage
from tests.test_rounds_trained import calls, metrics, on_server, train
from tests.test_training_numbers import unexplained
from training.rounds.config import RoundsConfig
from training.rounds.folders import RoundFolders
from training.watching.model_card import CARD

pytestmark = pytest.mark.usefixtures("one_thread")
LIMIT = "max_run_cost under [rounds]"


def replies(out: Path) -> list[Usage]:
    """What every finished call of a model has used, of all journals."""
    lines = [line for path in RoundFolders(out, out).journals()
             for line in path.read_text().splitlines()]  # fmt: skip
    used = (json.loads(line)["reply"].get("usage") for line in lines)
    return [usage for one in used if one for usage in [Usage.model_validate(one)] if usage.calls]


def priced(folder: Path) -> None:
    """Ten dollars for a thousand tokens written, of the first weights; checkpoints cost as much."""
    (folder / "rubricem.toml").write_text("[prices]\npolicy = [0.0, 0.0, 10000.0]\n")


def test_money_ends_all_rounds_at_its_limit_and_more_goes_on_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    shape: dict[str, Any] = {"reflections": 0, "rounds": 2}
    with serving(0.02) as address:
        shape["source"] = [f"searxng:{address.removesuffix('/v1')}"]
        refused = train(on_server(tmp_path, address, **shape, max_run_cost=1.0))
        assert refused.exit_code == 2 and f"{LIMIT} cannot be kept" in refused.stderr
        priced(tmp_path)
        ended = train(on_server(tmp_path, address, **shape, max_run_cost=40.0))
        said = " ".join(ended.stderr.split())
        assert ended.exit_code == 3, ended.output
        assert "of 40 US dollars, and another call may cost more" in said
        assert f"Allow it more by {LIMIT}. The same command goes on" in said
        spent = sum(one.cost or 0.0 for one in replies(tmp_path / "out"))
        assert 30.0 < spent <= 40.0, "nothing in flight was lost, and no call was too much"
        with serving(0.02) as moved:
            path = on_server(tmp_path, moved, **shape, max_run_cost=1000.0)
            done = train(path, "--json")
            assert done.exit_code == 0, done.output
            made = calls(address) + calls(moved)
    assert f"the rounds have cost {spent:.2f} of 1000 US dollars so far" in done.stderr
    lines = metrics(tmp_path / "out")
    assert [line["round"] for line in lines] == [1, 2]
    assert [unexplained(line) for line in lines] == [[], []]
    card = (tmp_path / "out" / "last" / CARD).read_text()
    assert "Not compared" not in card and "differ by" in card
    asked = card.split("## Held-out questions")[1].split("##")[0].splitlines()
    assert [line.split("|")[1].strip() for line in asked if line.startswith("| ")][2:] == [
        "0", "1", "2",
    ], "also what was asked of the last checkpoint"  # fmt: skip
    found = replies(tmp_path / "out")
    assert len(found) == made, "no finished call was made again"
    assert json.loads(done.stdout)["cost"] == pytest.approx(sum(one.cost or 0.0 for one in found))


@pytest.mark.parametrize("limit", [0, -1.0, float("inf"), float("nan")])
def test_a_limit_that_is_none_is_refused(limit: float):
    with pytest.raises(ValueError, match="max_run_cost"):
        RoundsConfig(questions="q.txt", rounds=1, max_run_cost=limit)
