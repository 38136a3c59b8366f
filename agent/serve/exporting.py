"""Runs made ready to leave this machine: without its folders' paths and without its keys."""

import re
from pathlib import Path

from agent.settings import Settings
from memory.schema import Trajectory

_SHORTEST_KEY = 6
"""characters; what is shorter stands in any text"""


def for_others(trajectory: Trajectory, settings: Settings) -> Trajectory:
    """The run with this machine's folders and the settings' keys taken out of all its texts."""
    hidden = _hidden(settings)
    if not hidden:
        return trajectory
    pattern = re.compile("|".join(re.escape(text) for text in sorted(hidden, key=len)[::-1]))
    fields = _without(trajectory.model_dump(mode="json"), pattern, hidden)
    return Trajectory.model_validate(fields)


def _hidden(settings: Settings) -> dict[str, str]:
    """Text that is not to leave -> what stands in its place."""
    folders = {
        settings.data_dir: "DATA",
        settings.weights_dir: "WEIGHTS",
        Path.cwd(): "FOLDER",
        Path.home(): "~",
    }
    keys = (settings.api_key, settings.scholar_key, settings.checkpoints)
    secrets = [key.get_secret_value() for key in keys if key is not None]
    # A folder of one part, such as /, /root or /data, would be found in many an innocent text.
    shown = {str(path): name for path, name in folders.items() if len(path.parts) > 2}
    return shown | {secret: "***" for secret in secrets if len(secret) >= _SHORTEST_KEY}


def _without(value: object, pattern: re.Pattern[str], hidden: dict[str, str]) -> object:
    if isinstance(value, str):
        return pattern.sub(lambda found: hidden[found.group()], value)
    if isinstance(value, dict):
        return {name: _without(held, pattern, hidden) for name, held in value.items()}
    if isinstance(value, list):
        return [_without(held, pattern, hidden) for held in value]
    return value
