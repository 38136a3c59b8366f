"""The verifier that the settings name."""

from agent.policy import Policy
from agent.settings import Settings
from agent.verifying.verifier import AnswerVerifier


def verifier_of(settings: Settings, policy: Policy) -> AnswerVerifier | None:
    """None where nothing is to be checked; `--checker lexical` asks no model."""
    if settings.verify == "off":
        return None
    return AnswerVerifier(settings.verify, policy if settings.checker == "auto" else None)
