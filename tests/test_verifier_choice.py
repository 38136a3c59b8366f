"""Which checker the settings and the policy's model lead to."""

import pytest

from agent.settings import load_settings
from agent.verifying.opening import verifier_of
from agent.weights.catalogue import known
from tests.fakes import ScriptedPolicy


def policy_of(version: str) -> ScriptedPolicy:
    policy = ScriptedPolicy([])
    policy.version = version
    return policy


@pytest.mark.parametrize(
    ("name", "suffix", "asked"),
    [("1.5b", "", True), ("0.5b", "", False), ("0.5b", "+sft-6-c1b36a0a64a4", False)],
)
def test_a_model_known_to_be_too_weak_is_not_asked_about_claims(
    name: str, suffix: str, asked: bool
) -> None:
    weights = known(name)
    assert weights is not None
    verifier = verifier_of(load_settings({}), policy_of(weights.folder + suffix))
    assert verifier is not None and (verifier.policy is not None) == asked


def test_a_model_that_nobody_measured_is_asked() -> None:
    verifier = verifier_of(load_settings({}), policy_of("some-other-model"))
    assert verifier is not None and verifier.policy is not None


def test_nothing_is_checked_where_it_is_switched_off() -> None:
    assert verifier_of(load_settings({"verify": "off"}), policy_of("any")) is None
