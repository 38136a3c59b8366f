"""The card of a checkpoint: what it says, of what, and what it never says."""

import json
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.weights.catalogue import lookup
from rubricem.agent.weights.checkpoints import Checkpoint
from rubricem.memory.errors import SettingsError
from rubricem.training.rounds.fit import train
from rubricem.training.rows.credit import CREDITS
from rubricem.training.show.card import CARD, model_card
from rubricem.training.show.training import KeptNumbers
from tests.support.rows import config_of, policy_rows, quiet


def note(**changed: Any) -> Checkpoint:
    values: dict[str, Any] = {
        "base": "0.5b", "base_sha256": "0" * 64, "adapter_sha256": "a" * 64, "method": "ss-grpo",
        "step": 7, "rank": 16, "alpha": 32.0, "lineage": ("sft-9-abcdef",),
    }  # fmt: skip
    return Checkpoint(**{**values, **changed})


def front_matter(card: str) -> dict[str, Any]:
    """The head; each line is a key of YAML and a value as JSON writes it."""
    head = card.split("---\n")[1]
    pairs = (line.split(": ", 1) for line in head.splitlines())
    return {name: json.loads(value) for name, value in pairs}


def test_a_base_of_the_catalogue_is_named_with_its_licence_by_its_hash_alone():
    weights = lookup("0.5b")
    assert weights is not None
    card = model_card(note(base="/home/me/my.gguf", base_sha256=weights.files[0].sha256),
                      KeptNumbers(), {}, {})  # fmt: skip
    assert front_matter(card) == {
        "license": "apache-2.0", "base_model": weights.repo, "base_model_relation": "adapter",
        "library_name": "peft", "pipeline_tag": "text-generation",
        "tags": ["rubricem", "ss-grpo", "lora"],
    }  # fmt: skip
    assert weights.files[0].sha256 in card and "/home/me" not in card


def test_an_unknown_base_has_an_unknown_licence_no_path_and_no_markup():
    card = model_card(note(base="/home/me/my.gguf"), KeptNumbers(), {}, {})
    assert front_matter(card)["license"] == "unknown"
    assert front_matter(card)["base_model"] == "my.gguf" and "/home" not in card
    full = model_card(note(adaptation="full", served=False), KeptNumbers(), {}, {})
    assert front_matter(full)["library_name"] == "transformers"
    assert "rubricem ask" not in full and "all weights" in full
    card = model_card(note(base="<img src=x>|`.gguf"), KeptNumbers(), {}, {})
    assert "<img" not in card.split("---\n", 2)[2]


def test_a_card_tells_data_settings_lineage_numbers_askings_and_canary():
    asked = {"rollouts": 24.0, "reward/answer/mean": 0.5, "reward/answer/low": 0.4,
             "reward/answer/high": 0.6, "unscored_share": 0.125}  # fmt: skip
    kept = KeptNumbers(
        record={"learning_rate": 2e-5, "objective": {"clip": [0.2, 0.28]}, "rounds.bank": None},
        held_out=[(3, asked)],
        canary={"mean": 0.0125, "moved": 0.5},
    )
    told = {"rows": 12, "left out": {"too | long\nrows": 3}}
    card = model_card(note(), kept, told, {"loss": 0.125, "bad": float("inf")})
    for line in (
        "| rows | 12 |", "| left out.too \\| long rows | 3 |", "| learning_rate | 2e-05 |",
        "| objective.clip | [0.2, 0.28] |", "`sft-9-abcdef`", "| loss | 0.125 |",
        "| 3 | none | none | none | 0.50 (0.40 to 0.60) |", "| mean | 0.0125 |", "## Limits",
    ):  # fmt: skip
        assert line in card, line
    assert "inf" not in card.split("## Numbers")[1].split("##")[0]
    card = model_card(note(), KeptNumbers(), {}, {"b": 486355000.0, "saved_at": 1.0})
    assert "| b | 486,355,000 |" in card and "saved_at" not in card


async def test_a_run_under_another_credit_does_not_go_on(tiny: Path, tmp_path: Path):
    config = config_of(tmp_path, tiny, policy_rows(2))
    trained = await train(config, "ss-grpo", quiet, rule=CREDITS["identity"])
    assert "| credit | identity |" in (trained.checkpoint / CARD).read_text()
    with pytest.raises(SettingsError, match="another rule"):
        await train(config, "ss-grpo", quiet, rule=CREDITS["ss-grpo"])
