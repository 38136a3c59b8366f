"""Settings of the objective: what contradicts itself is refused in a sentence."""

import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from training.objective_config import ObjectiveConfig


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"clip": (1.0, 0.2)}, "how far the ratio may fall"),
        ({"clip": (0.2, 0.0)}, "how far the ratio may fall"),
        ({"importance": "mask", "band": (2.0, 0.5)}, "1 has to lie inside it"),
        ({"importance": "mask", "band": (1.5, 3.0)}, "1 has to lie inside it"),
        ({"band": (0.1, 9.0)}, "band goes with the importance mask"),
        ({"importance": "none", "cap": 3.0}, "cap goes with the importance truncate"),
        ({"dual_clip": 1.0}, "greater than 1"),
        ({"cap": 0.5}, "greater than or equal to 1"),
        ({"beta": float("nan")}, "finite number"),
        ({"judge_weight": -1.0}, "greater than or equal to 0"),
        ({"aggregation": "token-sum"}, "token_budget goes with the aggregation token-sum"),
        ({"token_budget": 100}, "token_budget goes with the aggregation token-sum"),
        ({"correction": "bypass"}, 'set importance to "none"'),
        ({"clip_high": 0.3}, "Extra inputs are not permitted"),
    ],
)
def test_settings_that_contradict_or_are_unknown_are_refused(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValidationError, match=sentence):
        ObjectiveConfig(**settings)


def test_every_objective_has_its_weight_and_imitation_has_none() -> None:
    config = ObjectiveConfig(policy_weight=2.0, reflect_weight=3.0, judge_weight=4.0)
    weights = [config.weight_of(kind) for kind in ("policy", "reflect", "judge", "sft")]
    assert weights == [2.0, 3.0, 4.0, 1.0]


def test_reading_them_loads_no_torch() -> None:
    code = "import sys, training.objective_config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
