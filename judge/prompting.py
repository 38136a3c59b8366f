"""The judge's prompts, one Markdown file each."""

import re
from functools import cache
from importlib.resources import files

_PLACE = re.compile(r"\{\{(\w+)\}\}")


@cache
def prompt(name: str) -> str:
    """The text of `judge/prompts/NAME.md`."""
    return (files("judge") / "prompts" / f"{name}.md").read_text(encoding="utf-8").strip()


def filled(name: str, **texts: str) -> str:
    """The prompt with each `{{place}}` replaced in one pass: nothing is filled in a text."""
    return _PLACE.sub(lambda match: texts[match.group(1)], prompt(name))
