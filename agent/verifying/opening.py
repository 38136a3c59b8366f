"""The verifier that the settings name."""

from agent.policy import Policy
from agent.settings import Settings
from agent.verifying.verifier import AnswerVerifier
from agent.weights.catalogue import CATALOGUE


def verifier_of(settings: Settings, policy: Policy) -> AnswerVerifier | None:
    """None where nothing is to be checked; `--checker lexical` asks no model.

    Nor is a model asked that is known to judge claims no better than the rules.
    """
    if settings.verify == "off":
        return None
    known = next((w for w in CATALOGUE if policy.version.startswith(w.folder)), None)
    asked = settings.checker == "auto" and (known is None or known.checks_claims)
    return AnswerVerifier(settings.verify, policy if asked else None)
