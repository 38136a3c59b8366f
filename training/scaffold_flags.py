"""A scaffold as it is asked for: `--scaffold`, `--scaffold-decay`, `--progress`."""

from typing import Any

from pydantic import ValidationError

from memory.errors import SettingsError
from training.scaffolding import ScaffoldRule

_SHARES = {"linear": (), "binary": ("full",), "full": ()}
_DECAYS = {
    "sigmoid": ("steepness", "middle"),
    "linear": (),
    "power": ("exponent",),
    "constant": (),
}


def scaffold_rule(share: str | None, decay: str, progress: float) -> ScaffoldRule | None:
    """The rule in words: `binary:4` over the group, `sigmoid:125:0.2` over the training.

    None where no scaffold is asked for. Raises SettingsError for what is not such a rule.
    """
    if share is None:
        return None
    fields = {**_fields("share", share, _SHARES), **_fields("decay", decay, _DECAYS)}
    try:
        return ScaffoldRule(**fields, progress=progress)
    except ValidationError as cause:
        first = cause.errors()[0]
        raise SettingsError(
            f"The scaffold's {first['loc'][0]} cannot be {first['input']}: {first['msg']}.",
            "Write it as binary:4, sigmoid:125:0.2 or power:2.",
        ) from cause


def _fields(what: str, said: str, known: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    kind, *numbers = said.split(":")
    if kind not in known or len(numbers) > len(known[kind]):
        raise SettingsError(
            f"There is no scaffold {said!r}.",
            f"Use one of {', '.join(':'.join((k, *map(str.upper, v))) for k, v in known.items())}.",
        )
    return {what: kind, **dict(zip(known[kind], numbers, strict=False))}
