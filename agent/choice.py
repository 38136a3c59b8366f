"""Which model answers: the embedded one, unless a server or a server's model is named.

A key alone never causes a paid call: `OPENAI_API_KEY` lies in many environments for other
programs, so it counts only when a model that is not an embedded one has been asked for.
"""

import re
from dataclasses import dataclass, field

from agent.settings import Settings
from agent.weights.catalogue import DEFAULT_MODEL, known
from agent.weights.checkpoints import is_checkpoint
from memory.errors import SettingsError

OPENAI_URL = "https://api.openai.com/v1"
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(:[\w./-]+)?")


@dataclass(frozen=True, slots=True)
class EmbeddedChoice:
    """A model in this process: a catalogue name, a GGUF file, a hub name or a checkpoint."""

    model_name: str


@dataclass(frozen=True, slots=True)
class ServerChoice:
    """A model behind an OpenAI-compatible server; `model` None: the only one it lists."""

    model: str | None
    base_url: str
    api_key: str | None = field(default=None, repr=False)


PolicyChoice = EmbeddedChoice | ServerChoice


def choose_policy(settings: Settings) -> PolicyChoice:
    """The model that the settings name; raises SettingsError when it needs a key not there."""
    key = settings.api_key.get_secret_value() if settings.api_key else None
    if settings.base_url is not None:
        return ServerChoice(settings.model, settings.base_url, key)
    if settings.model is None or is_embedded(settings.model):
        return EmbeddedChoice(settings.model or DEFAULT_MODEL)
    if key is None:
        raise SettingsError(
            f"The model {settings.model!r} is not an embedded one, and no server is named for it.",
            "Name its server with --base-url, or set OPENAI_API_KEY to ask OpenAI's; "
            "the embedded models are 1.5b and 0.5b.",
        )
    return ServerChoice(settings.model, OPENAI_URL, key)


def is_embedded(model: str) -> bool:
    """Whether the name can only mean weights that run in this process."""
    return (
        known(model) is not None
        or model.lower().endswith(".gguf")
        or model.startswith(("/", "./", "../", "~"))
        or _HUB_NAME.fullmatch(model) is not None
        or is_checkpoint(model)
    )
