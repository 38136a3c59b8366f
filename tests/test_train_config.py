"""A training run's configuration, and the plan that follows from it and its rows."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.cli import main
from memory.errors import SettingsError
from tests.test_local_training import policy_rows, row, written
from training.local.config import TrainConfig, build_config, read_config
from training.local.windows import rate_at, read_rows, select, windows

Build = Callable[..., TrainConfig]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    def built(**settings: object) -> TrainConfig:
        return build_config({"out": "run", "rows": ["rows.jsonl"], **settings}, tmp_path)

    return built


def test_paths_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text('out = "run"\nrows = ["a", "/b"]\nmodel = "m.gguf"\n')
    config = read_config(tmp_path / "t.toml")
    assert config.out == tmp_path / "run"
    assert config.rows == (tmp_path / "a", Path("/b"))
    assert config.model == str(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('out = "x"', "rows: Field required"),
        ('out = "x"\nrows = []', "rows: .*at least 1"),
        ('out = "x"\nrows = ["r"]\nrank = 0', "rank: .*greater than or equal to 1"),
        ('out = "x"\nrows = ["r"]\nlr = 1.0', "lr: Extra inputs"),
        ('out = "x"\nrows = ["r"]\n[objective]\nclip = [1.5, 0.2]', "clip is how far"),
        ('out = "x"\nrows = ["r"]\nrank = 8\nadaptation = "full"', "rank go with the adaptation"),
        ('out = "x"\nrows = ["r"]\npack_tokens = 9\nmicro_batch = 2', "two ways to cut a window"),
        ('out = "x"\nrows = ["r"]\nmin_rate = 1.0\nschedule = "linear"', "above learning_rate"),
        ('out = "x"\nrows = ["r"]\nmin_rate = 1e-6', "needs a schedule that falls"),
        ('out = "x"\nrows = ["r"]\nbest_is = "highest"', "best_is goes with best_by"),
        ('out = "x"\nrows = ["r"]\nlearning_rate = inf', "learning_rate: .*finite"),
        ("out =", "cannot be read"),
    ],
)
def test_a_wrong_configuration_is_told_by_name(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "t.toml").write_text(text)
    with pytest.raises(SettingsError, match=fault):
        read_config(tmp_path / "t.toml")


def test_the_command_tells_a_wrong_configuration_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text('out = "x"\nrows = ["none.jsonl"]\n')
    result = CliRunner().invoke(main, ["train", "sft", str(tmp_path / "t.toml")])
    assert result.exit_code == 2
    assert "none.jsonl cannot be read" in result.output
    assert "rubricem export RUN" in result.output


def test_imitation_is_told_what_only_the_policy_gradient_reads(tmp_path: Path) -> None:
    rows = written(tmp_path / "rows.jsonl", [row(0, "sft")])
    text = f'out = "x"\nrows = ["{rows}"]\npasses = 2\nnovelty = true\n[objective]\nbeta = 0.1\n'
    (tmp_path / "t.toml").write_text(text + 'aggregation = "sequence-mean"\n')
    result = CliRunner().invoke(main, ["train", "sft", str(tmp_path / "t.toml")])
    assert result.exit_code == 2
    assert "imitation makes no use of novelty, objective.beta, passes" in result.output


def test_a_folder_is_its_rows_and_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", policy_rows(2))
    assert read_rows([tmp_path]) == read_rows([path]) == policy_rows(2)
    path.write_text(path.read_text() + "{}\n")
    with pytest.raises(SettingsError, match=r"line 3 of .* is not a training row"):
        read_rows([path])


def test_rows_that_do_not_fit_are_counted_by_reason() -> None:
    rows = [
        row(0, "policy"),
        row(1, "sft"),
        row(2, "reflect", ratio_allowed=False),
        row(3, "policy", loss_mask=(0,) * 24),
    ]
    selection = select(rows, "ss-grpo", 24)
    assert [r.id for r in selection.rows] == ["row0"]
    assert selection.dropped == {
        "sft rows": 1,
        "retokenised or forced": 1,
        "without a trained token": 1,
    }
    with pytest.raises(SettingsError, match="1 longer than 23 tokens"):
        select(rows[:1], "ss-grpo", 23)
    with pytest.raises(SettingsError, match="same id"):
        select([rows[0], rows[0]], "ss-grpo", 24)


def test_a_group_is_never_divided(build: Build) -> None:
    rows = policy_rows(6)
    found = windows(rows, "ss-grpo", build(batch=2))
    assert [len(window) for window in found] == [4, 2]
    assert all(len({r.group for r in window}) * 2 == len(window) for window in found)
    assert windows(rows, "ss-grpo", build()) == [found[0] + found[1]], "0: all in one step"


def test_every_epoch_has_every_row_once_in_an_order_of_its_own(build: Build) -> None:
    rows = [row(number) for number in range(8)]
    config = build(batch=3, epochs=2)
    found = windows(rows, "sft", config)
    assert [len(window) for window in found] == [3, 3, 2] * 2
    orders = [[r.id for w in found[at : at + 3] for r in w] for at in (0, 3)]
    assert sorted(orders[0]) == sorted(orders[1]) == [f"row{n}" for n in range(8)]
    assert orders[0] != orders[1]
    assert windows(rows, "sft", config) == found
    assert len(windows(rows, "sft", build(batch=3, epochs=2, max_steps=4))) == 4


def test_the_rate_rises_then_falls_by_a_cosine(build: Build) -> None:
    config = build(learning_rate=1.0, schedule="cosine", warmup=0.2)
    rates = [rate_at(step, 10, config) for step in range(10)]
    assert rates[:3] == pytest.approx([0.5, 1.0, 1.0])
    assert rates[6] == pytest.approx(0.5) and rates[9] == pytest.approx(0.03806, abs=1e-4)
    assert rate_at(7, 10, build(learning_rate=0.3)) == 0.3


def test_a_linear_schedule_falls_to_the_least_rate(build: Build) -> None:
    config = build(learning_rate=1.0, schedule="linear", warmup=0.2, min_rate=0.2)
    rates = [rate_at(step, 10, config) for step in range(10)]
    assert rates[:3] == pytest.approx([0.5, 1.0, 1.0])
    assert rates[6] == pytest.approx(0.6) and rates[9] == pytest.approx(0.3)
    cosine = build(learning_rate=1.0, schedule="cosine", min_rate=0.2)
    assert rate_at(5, 10, cosine) == pytest.approx(0.6)


def test_a_folder_of_weights_is_found_from_the_file_that_names_it(
    build: Build, tmp_path: Path
) -> None:
    (tmp_path / "base").mkdir()
    assert build(model="base").model == "base", "no model lies there: a name"
    (tmp_path / "base" / "config.json").write_text("{}")
    assert build(model="base").model == str(tmp_path / "base")
